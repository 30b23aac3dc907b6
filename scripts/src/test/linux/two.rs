//! Two VMs at once, each on CPUs of its own.

use anyhow::{Result, ensure};

use super::session::Session;
use crate::context::Context;
use crate::guest::images::Image;
use crate::hypervisor::{Hypervisor, lines_of};
use crate::qemu::Timing;
use crate::test::{Options, Tally};
use crate::vm::{Files, LinuxVm};

/// vCPUs of each, and CPUs of the machine.
const VCPUS: u32 = 2;
const CPUS: u32 = 4;

/// Runs the checks.
///
/// # Errors
/// The machine can't be made.
pub fn run(
    cx: &Context,
    hypervisor: &Hypervisor,
    options: &Options,
    tally: &mut Tally,
) -> Result<()> {
    let files = Files::new(cx, Image::Shell, None)?;
    let vm = |name, cpus: &str| LinuxVm {
        more: format!("cpus = \"{cpus}\"\nexclusive = true"),
        ..LinuxVm::new(name, VCPUS, 256)
    };
    let vms = [vm("left", "0-1"), vm("right", "2-3")];
    let timing = Timing::Deterministic {
        seed: options.seed.unwrap_or(1),
    };
    let machine = files.machine(cx, hypervisor, &vms, CPUS, timing, "")?;
    let mut session = Session::start(&machine)?;
    tally.check("two VMs at once", both(&mut session));
    Ok(())
}

fn both(session: &mut Session) -> Result<()> {
    session.wait_for("VM right: 2 vCPUs")?;
    for vm in 0..2 {
        session.show(vm)?;
        session.log_in()?;
        session.run(&format!("hostname vm{vm}"))?;
    }
    // What one prints while the other is shown is kept until its turn.
    session.keys("usleep 300000; echo la''ter\n")?;
    session.show(0)?;
    ensure!(session.line("hostname")? == "vm0", "input went elsewhere");
    session.run("sleep 1")?;
    session.show(1)?;
    session.wait_for("later")?;
    // Line by line, each with its name.
    session.keys("\u{1}l")?;
    session.wait_for("input goes to right]")?;
    session.keys("hostname\n")?;
    session.wait_for("right| vm1")?;
    // A kernel that panics restarts alone.
    session.keys("echo c > /proc/sysrq-trigger\n")?;
    session.wait_for("right| ")?;
    session.wait_for("VM right has stopped: it reset itself")?;
    // The hypervisor's own lines would stand among those of the other VM.
    session.wait_for("VM right: 2 vCPUs")?;
    session.show(0)?;
    ensure!(session.line("hostname")? == "vm0", "left has suffered");
    session.show(1)?;
    session.log_in()?;
    ensure!(session.line("hostname")? == "loongvisor", "right isn't new");
    ensure!(
        !session.text().contains("FATAL"),
        "the hypervisor has a fault"
    );
    session.keys("poweroff -f\n")?;
    session.wait_for("VM right has stopped: it switched itself off")?;
    session.show(0)?;
    ensure!(
        session.line("nproc")? == VCPUS.to_string(),
        "left has suffered"
    );
    session.keys("poweroff -f\n")?;
    session.ended()?;
    let lines = lines_of("right", &session.text());
    ensure!(lines.contains("vm1"), "right's lines have no name");
    Ok(())
}
