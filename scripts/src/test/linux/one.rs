//! One VM with 16 vCPUs.

use std::time::Instant;

use anyhow::{Context as _, Result, ensure};

use super::LIMIT;
use super::idle;
use super::session::Session;
use crate::guest::images::{Image, kernel_hz};
use crate::guest::log::trouble;
use crate::guest::report::Report;
use crate::test::{Rig, Tally};
use crate::vm::LinuxVm;

pub(super) const VCPUS: u32 = 16;

/// What Linux warns of on every machine that is described by a device tree alone, and
/// what it says of LoongArch as such. On QEMU without the hypervisor it says all of this,
/// and complains of the CPUs' clock besides.
const EXPECTED: [&str; 5] = [
    "ACPI: OSL: System description tables not found",
    "ACPI: Failed to initialize tables",
    "ACPI PPTT: No PPTT table found",
    "Invalid BIOS PPTT",
    "This architecture does not have kernel memory protection",
];

/// The least IPIs while CPUs go off and on.
const LEAST_WAKES: u64 = 1000;

/// Runs the checks.
///
/// # Errors
/// The machine can't be made.
pub fn run(rig: &Rig<'_>, tally: &mut Tally) -> Result<()> {
    let vms = [LinuxVm::new("debian", VCPUS, 1024)];
    let machine = rig.linux(Image::Shell, None, &vms, VCPUS, rig.timing())?;
    let mut session = Session::start(&machine)?;
    let hz = f64::from(kernel_hz(rig.cx)?);
    let checks: [Check<'_>; 14] = [
        ("login, with keys pressed before", &login),
        ("CPUs", &cpus),
        ("kernel log", &log),
        ("timer rate", &|s| timer(s, hz)),
        ("SWI0-IPI", &software_ipi),
        ("ttyS0 by interrupt", &serial),
        ("4 KiB pasted", &paste),
        ("the terminal's size", &size),
        ("CPU off and on, under IPIs", &hotplug),
        ("idle vCPUs", &idle::kept),
        ("idle vCPUs, with nothing to do", &idle::at_rest),
        ("no spurious interrupt", &spurious),
        ("monitor", &monitor),
        ("reboot and power-off", &end),
    ];
    for (name, check) in checks {
        let result = check(&mut session);
        let failed = result.is_err();
        tally.check(&format!("{name} ({VCPUS} vCPUs)"), result);
        if failed {
            // What follows starts from a state that isn't there.
            break;
        }
    }
    Ok(())
}

type Check<'a> = (&'a str, &'a dyn Fn(&mut Session) -> Result<()>);

/// What is typed before the kernel has opened its port may be lost, and does no harm.
fn login(session: &mut Session) -> Result<()> {
    session.wait_for("VM debian: ")?;
    session.keys(&format!("{}\n", "early ".repeat(50)))?;
    session.log_in()
}

fn cpus(session: &mut Session) -> Result<()> {
    let count = session.line("nproc")?;
    let online = session.line("cat /sys/devices/system/cpu/online")?;
    ensure!(
        count == VCPUS.to_string() && online == format!("0-{}", VCPUS - 1),
        "{count} CPUs, {online} online"
    );
    Ok(())
}

/// No warning, and nothing worse, since boot.
fn log(session: &mut Session) -> Result<()> {
    let warnings = session.run("dmesg -r | grep '^<[0-4]>'")?.text;
    let unexpected: Vec<&str> = warnings
        .lines()
        .filter(|line| line.starts_with('<') && !EXPECTED.iter().any(|text| line.contains(text)))
        .collect();
    ensure!(unexpected.is_empty(), "{}", unexpected.join("\n"));
    let text = session.text();
    let bad = trouble(&text);
    ensure!(bad.is_empty(), "{}", bad.join("\n"));
    Ok(())
}

/// Every busy CPU gets its ticks.
fn timer(session: &mut Session, hz: f64) -> Result<()> {
    session.run("echo NO_HRTICK > /sys/kernel/debug/sched/features")?;
    let spin = "on_every_cpu spin; usleep 200000; snapshot start > /tmp/s; sleep 1; \
                snapshot end >> /tmp/s; kill $started; cat /tmp/s";
    let report = Report::read(&session.run(spin)?.text);
    let snapshot = |name| report.snapshot(name).context("no snapshot");
    let (start, end) = (snapshot("start")?, snapshot("end")?);
    let span = end.uptime - start.uptime;
    let counts = end.since(start, "timer").context("no timer")?;
    ensure!(counts.len() == VCPUS as usize, "{} CPUs", counts.len());
    for (cpu, count) in counts.iter().enumerate() {
        let rate = *count as f64 / span;
        ensure!(
            (0.9 * hz..1.1 * hz).contains(&rate),
            "CPU {cpu}: {rate:.0} per second, HZ is {hz}"
        );
    }
    Ok(())
}

/// The interrupts so far.
pub(super) fn interrupts(session: &mut Session) -> Result<Report> {
    Ok(Report::read(&session.run("snapshot now")?.text))
}

/// Every CPU has been woken by software interrupt 0, and none by the native IPI but at
/// its start.
fn software_ipi(session: &mut Session) -> Result<()> {
    let report = interrupts(session)?;
    let now = report.snapshot("now").context("no snapshot")?;
    let software = now.counts("SWI0-IPI").context("no SWI0-IPI")?;
    let native = now.counts("IPI").context("no IPI")?;
    ensure!(
        software.len() == VCPUS as usize && software.iter().all(|&count| count > 0),
        "SWI0-IPI: {software:?}"
    );
    ensure!(native.iter().all(|&count| count <= 1), "native: {native:?}");
    Ok(())
}

fn serial(session: &mut Session) -> Result<()> {
    let count = |report: &Report| {
        let now = report.snapshot("now").context("no snapshot")?;
        let counts = now.counts("ttyS0").context("no ttyS0")?;
        anyhow::Ok(counts.iter().sum::<u64>())
    };
    let before = count(&interrupts(session)?)?;
    let after = count(&interrupts(session)?)?;
    ensure!(after > before, "{before} interrupts, then {after}");
    Ok(())
}

/// What is typed all at once arrives, without a byte lost.
fn paste(session: &mut Session) -> Result<()> {
    let line = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.";
    let text: String = std::iter::repeat_n(format!("{line}\n"), 64).collect();
    session.keys(&format!("cat > /tmp/pasted << END\n{text}END\n"))?;
    let count = session.line("wc -c < /tmp/pasted")?;
    let lines = session.line(&format!("grep -cx {line} /tmp/pasted"))?;
    ensure!(
        count == text.len().to_string() && lines == "64",
        "{count} of {} bytes, {lines} of 64 lines",
        text.len()
    );
    Ok(())
}

/// The guest asks the terminal for it, and the terminal answers: escape sequences get
/// through both ways.
fn size(session: &mut Session) -> Result<()> {
    session.keys("resize 2>&1 > /dev/null; echo re''sized\n")?;
    session.wait_for("\u{1b}[6n")?;
    session.keys("\u{1b}[40;132R")?;
    // It takes what comes right after its answer, too.
    session.wait_for("resized")?;
    let size = session.line("stty size")?;
    ensure!(size == "40 132", "it has become {size}");
    Ok(())
}

/// While every CPU wakes the next one, and is woken.
fn hotplug(session: &mut Session) -> Result<()> {
    let sent = |session: &mut Session| {
        let report = interrupts(session)?;
        let now = report.snapshot("now").context("no snapshot")?;
        let counts = now.counts("SWI0-IPI").context("no SWI0-IPI")?;
        anyhow::Ok(counts.iter().sum::<u64>())
    };
    let before = sent(session)?;
    session.run("touch /tmp/waking; on_every_cpu wake_the_next")?;
    let result = off_and_on(session);
    session.run("rm /tmp/waking; wait")?;
    let woken = sent(session)? - before;
    ensure!(woken > LEAST_WAKES, "only {woken} IPIs");
    result
}

fn off_and_on(session: &mut Session) -> Result<()> {
    let online = |session: &mut Session, value: u32| {
        let cpu = "/sys/devices/system/cpu";
        session.line(&format!(
            "echo {value} > {cpu}/cpu5/online && cat {cpu}/online"
        ))
    };
    for _ in 0..5 {
        let off = online(session, 0)?;
        ensure!(off == "0-4,6-15", "{off} online with CPU 5 off");
        let on = online(session, 1)?;
        ensure!(on == "0-15", "{on} online with CPU 5 on");
        let ran = session.line("taskset -c 5 cat /proc/self/stat | cut -d' ' -f39")?;
        ensure!(ran == "5", "what is bound to CPU 5 ran on {ran}");
    }
    Ok(())
}

/// No CPU was interrupted by something that had gone when it looked.
fn spurious(session: &mut Session) -> Result<()> {
    let count = session.line("awk '/^ *ERR:/ { print $2 }' /proc/interrupts")?;
    ensure!(count == "0", "{count} spurious interrupts");
    Ok(())
}

fn monitor(session: &mut Session) -> Result<()> {
    // A VM takes a moment to stop.
    let state = |session: &mut Session, what: &str| {
        let start = Instant::now();
        loop {
            let text = session.monitor("list", 0)?;
            if text.contains(what) {
                return Ok(());
            }
            ensure!(start.elapsed() < LIMIT, "not {what}: {text}");
        }
    };
    state(session, "running")?;
    session.monitor("pause debian", 0)?;
    state(session, "paused")?;
    session.monitor("resume 0", 0)?;
    state(session, "running")?;
    ensure!(
        session.line("echo a''live")? == "alive",
        "no answer after a pause"
    );
    let help = session.monitor("help", 0)?;
    ensure!(help.contains("reset VM"), "no help: {help}");
    let wrong = session.monitor("stop nobody", 0)?;
    ensure!(wrong.contains("no VM nobody"), "{wrong}");
    session.monitor("reset 0", 0)?;
    session.log_in()?;
    session.monitor("stop 0", 0)?;
    state(session, "stopped")?;
    session.monitor("start 0", 0)?;
    session.log_in()
}

fn end(session: &mut Session) -> Result<()> {
    session.keys("touch /tmp/old; reboot -f\n")?;
    session.wait_for("it reset itself")?;
    session.log_in()?;
    let fresh = session.line("[ -e /tmp/old ] || echo fresh")?;
    ensure!(fresh == "fresh", "a file has outlived a reboot");
    cpus(session)?;
    session.keys("poweroff -f\n")?;
    session.wait_for("it switched itself off")?;
    session.ended()
}
