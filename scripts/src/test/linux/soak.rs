//! The same things over and over, and everything at once.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use sha2::{Digest, Sha256};

use super::LIMIT;
use super::session::Session;
use crate::context::Context;
use crate::guest::images::Image;
use crate::guest::job::Job;
use crate::guest::log::trouble;
use crate::guest::report::Report;
use crate::hash::hex;
use crate::hypervisor::{Hypervisor, lines_of};
use crate::qemu::Timing;
use crate::suite::to_end;
use crate::test::{Options, Tally};
use crate::vm::{Files, LinuxVm};

/// How often a VM is stopped and started, in the short and in the long form; reboots
/// and seconds of load likewise.
const CYCLES: [u32; 2] = [20, 100];
const REBOOTS: [u32; 2] = [0, 100];
const SECONDS: [u32; 2] = [1, 1800];

/// The last number of the guests' data, and how often it is copied at a time.
const LAST_NUMBER: u32 = 20_000;
const ROUNDS: u32 = 4;

/// Runs the checks.
///
/// # Errors
/// A machine can't be made.
pub fn run(
    cx: &Context,
    hypervisor: &Hypervisor,
    options: &Options,
    tally: &mut Tally,
) -> Result<()> {
    let form = usize::from(options.long);
    let of = |counts: [u32; 2]| counts.get(form).copied().unwrap_or(0);
    let files = Files::new(cx, Image::Shell, None)?;
    let vms = [LinuxVm::new("debian", 4, 1024)];
    let seed = options.seed.unwrap_or(1);
    let machine = files.machine(cx, hypervisor, &vms, 2, Timing::Deterministic { seed }, "")?;
    let cycles = of(CYCLES);
    let result =
        Session::start(&machine).and_then(|mut session| stop_and_start(&mut session, cycles));
    tally.check(&format!("{cycles} times stopped and started"), result);
    if options.long {
        let job = Job::from_text(cx, "reboot -f\n", &[])?;
        let files = Files::new(cx, Image::Shell, Some(&job))?;
        let machine = files.machine(cx, hypervisor, &vms, 4, Timing::Deterministic { seed }, "")?;
        let result =
            Session::start(&machine).and_then(|mut session| reboot(&mut session, of(REBOOTS)));
        tally.check(&format!("{} reboots", of(REBOOTS)), result);
    }
    load(cx, hypervisor, options, of(SECONDS), tally)
}

/// With work in flight, at moments of the boot that differ. A machine that lost a VM's
/// memory could not start it so often: it has only a little more than one needs.
fn stop_and_start(session: &mut Session, times: u32) -> Result<()> {
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
    ensure!(session.line("nproc")? == "4", "CPUs are missing");
    session.keys("poweroff -f\n")?;
    session.ended()
}

fn reboot(session: &mut Session, times: u32) -> Result<()> {
    for _ in 0..times {
        session.wait_for("VM debian has stopped: it reset itself")?;
    }
    session.keys("\u{1}x")?;
    session.ended()
}

/// Two VMs at once, each with work of every kind.
fn load(
    cx: &Context,
    hypervisor: &Hypervisor,
    options: &Options,
    seconds: u32,
    tally: &mut Tally,
) -> Result<()> {
    let variables = [
        ("SOAK", seconds.to_string()),
        ("LAST_NUMBER", LAST_NUMBER.to_string()),
        ("ROUNDS", ROUNDS.to_string()),
    ];
    let job = Job::new(cx, "soak.sh", &variables)?;
    let files = Files::new(cx, Image::Bench, Some(&job))?;
    let vm = |name, cpus: &str| LinuxVm {
        more: format!("cpus = \"{cpus}\"\nexclusive = true"),
        ..LinuxVm::new(name, 2, 768)
    };
    let vms = [vm("left", "0-1"), vm("right", "2-3")];
    let seed = options.seed.unwrap_or(1);
    let (timing, limit) = match options.long {
        false => (Timing::Deterministic { seed }, LIMIT),
        true => (
            Timing::Threads,
            LIMIT + Duration::from_secs(2 * u64::from(seconds)),
        ),
    };
    let machine = files.machine(cx, hypervisor, &vms, 4, timing, "")?;
    let printed = to_end(&machine, limit);
    let text = printed.map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    for name in ["left", "right"] {
        let judged = match &text {
            Ok(text) => judge(&lines_of(name, text)),
            Err(error) => Err(anyhow::anyhow!("{error:#}")),
        };
        tally.check(&format!("{seconds} s of load, VM {name}"), judged);
    }
    Ok(())
}

fn judge(text: &str) -> Result<()> {
    let report = Report::read(text);
    let fact = |name| {
        let values = report.fact(name).and_then(|values| values.first());
        values.with_context(|| format!("no `{name}` in:\n{text}"))
    };
    let numbers: String = (1..=LAST_NUMBER)
        .map(|number| format!("{number}\n"))
        .collect();
    let expected = hex(&Sha256::digest(numbers));
    ensure!(*fact("hash")? == expected, "the data's hash is wrong");
    for (name, value) in [
        ("stress", "0"),
        ("hackbench", "0"),
        ("wrong", "0"),
        ("cpus", "2"),
    ] {
        ensure!(fact(name)? == value, "{name}: {}, in:\n{text}", fact(name)?);
    }
    let bad = trouble(text);
    ensure!(bad.is_empty(), "{}", bad.join("\n"));
    ensure!(report.ended.as_deref() == Some("0"), "the job didn't end");
    Ok(())
}
