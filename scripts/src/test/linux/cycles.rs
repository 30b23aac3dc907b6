//! The same things over and over: a VM that is stopped and started, and one that reboots.

use anyhow::{Result, ensure};

use super::LIMIT;
use super::session::Session;

use crate::guest::images::Image;
use crate::guest::job::Job;
use crate::hypervisor::GuestVm;
use crate::qemu::Qemu;
use crate::test::{Rig, Tally};
use crate::vm::LinuxVm;

/// How often a VM is stopped and started, and how often it reboots, in the short and in
/// the long form. The short form's one reboot is in the session of 16 vCPUs.
const CYCLES: [u32; 2] = [20, 100];
const REBOOTS: u32 = 100;

/// Lines of a VM's configuration, and how long it then waits before it starts anew, in
/// milliseconds, where it ends at once again and again.
const PACES: [(&str, u64); 2] = [
    ("restart = always", 1000),
    ("restart = always\nrestart_wait = 300", 300),
];

/// vCPUs and MiB of the VM.
const VCPUS: u32 = 4;
const MEMORY_MIB: u32 = 1024;

/// With work in flight, at moments of the boot that differ. A machine that lost a VM's
/// memory could not start it so often: it has only a little more than one needs.
///
/// # Errors
/// The machine can't be made.
pub fn stop_and_start(rig: &Rig<'_>, tally: &mut Tally) -> Result<()> {
    let [short, long] = CYCLES;
    let times = if rig.options.long { long } else { short };
    let machine = machine(rig, None, 2)?;
    let result = Session::start(&machine).and_then(|mut session| stopped(&mut session, times));
    tally.check(&format!("{times} times stopped and started"), result);
    Ok(())
}

/// In a row, each as soon as the first program runs.
///
/// # Errors
/// The machine can't be made.
pub fn reboots(rig: &Rig<'_>, tally: &mut Tally) -> Result<()> {
    if rig.options.long {
        let job = Job::from_text(rig.cx, "echo re''booting; reboot -f\n", &[])?;
        let machine = machine(rig, Some(&job), VCPUS)?;
        let result =
            Session::start(&machine).and_then(|mut session| rebooted(&mut session, REBOOTS));
        tally.check(&format!("{REBOOTS} reboots"), result);
    }
    Ok(())
}

/// A VM that ends at once and is to start anew always is kept from doing so all the time.
///
/// # Errors
/// The machine can't be made.
pub fn pace(rig: &Rig<'_>, tally: &mut Tally) -> Result<()> {
    for (more, wait) in PACES {
        let vm = GuestVm {
            more,
            ..GuestVm::new("a", 1, "only=nothing")
        };
        let machine = rig.hypervisor.machine(&[vm], 1, rig.timing())?;
        let name = format!("a VM that ends at once, again and again, waits {wait} ms at most");
        tally.check(&name, paced(&machine, wait));
    }
    Ok(())
}

/// The times at which its VM starts, in milliseconds, become `wait` apart, but no more.
fn paced(machine: &Qemu, wait: u64) -> Result<()> {
    let mut running = machine.spawn()?;
    let mut starts: Vec<u64> = Vec::new();
    while starts.len() < 14 {
        running.console.wait_for(" starts at ", LIMIT)?;
        starts.push(running.console.wait_for(" ms", LIMIT)?.parse()?);
    }
    let gaps: Vec<u64> = starts.windows(2).map(|pair| pair[1] - pair[0]).collect();
    let (first, last) = (gaps[0], gaps[gaps.len() - 4..].iter());
    ensure!(first < 50, "it waits {first} ms at first");
    ensure!(
        last.clone().all(|gap| (wait..wait + 100).contains(gap)),
        "it starts every {gaps:?} ms"
    );
    Ok(())
}

/// A machine of `cpus` CPUs, with one VM.
fn machine(rig: &Rig<'_>, job: Option<&Job>, cpus: u32) -> Result<Qemu> {
    let vms = [LinuxVm::new("debian", VCPUS, MEMORY_MIB)];
    rig.linux(Image::Shell, job, &vms, cpus, rig.timing())
}

fn stopped(session: &mut Session, times: u32) -> Result<()> {
    session.wait_for("VM debian: 4 vCPUs")?;
    for round in 0..times {
        for _ in 0..round % 5 {
            session.monitor("list", 0)?;
        }
        session.keys("\u{1}mstop 0\r")?;
        session.wait_for("the user stopped it")?;
        session.keys("start 0\r\u{1}0")?;
        session.wait_for("VM debian: 4 vCPUs")?;
        session.wait_for("helps]")?;
    }
    session.log_in()?;
    ensure!(
        session.line("nproc")? == VCPUS.to_string(),
        "CPUs are missing"
    );
    session.keys("poweroff -f\n")?;
    session.ended()
}

fn rebooted(session: &mut Session, times: u32) -> Result<()> {
    for _ in 0..times {
        // It is Linux that reboots, not a guest that fails at once.
        session.wait_for("rebooting")?;
        session.wait_for("VM debian has stopped: it reset itself")?;
    }
    session.keys("\u{1}x")?;
    session.ended()
}
