//! Stolen time in two Linux guests that share CPUs: what each of their kernels says, in
//! /proc/stat, is what the hypervisor's scheduler has counted.
//!
//! Both are asked while nothing runs, so it doesn't matter that they can't be asked at
//! once.

use anyhow::{Context as _, Result, ensure};

use crate::guest::images::Image;
use crate::test::linux::Session;
use crate::test::{Rig, Tally};
use crate::vm::LinuxVm;

/// vCPUs of each VM, and CPUs of the machine.
const VCPUS: u32 = 4;
const NAMES: [&str; 2] = ["left", "right"];

/// Seconds for which both are busy, and for which one or neither is.
const BUSY: f64 = 3.0;
const QUIET: f64 = 1.0;

/// How far the two may be apart: this part, and what /proc/stat rounds off, a hundredth
/// of a second at either end, and a tick, at which the kernel looks.
const PART: f64 = 0.05;
const ROUNDING: f64 = 0.03;

/// What was stolen from each vCPU of a VM, and the time that passed there, in seconds.
struct Stolen {
    passed: f64,
    by_guest: Vec<f64>,
    by_host: Vec<f64>,
}

/// Runs the checks.
///
/// # Errors
/// The machine can't be made.
pub fn run(rig: &Rig<'_>, tally: &mut Tally) -> Result<()> {
    let vms = NAMES.map(|name| LinuxVm::new(name, VCPUS, 256));
    let machine = rig.linux(Image::Shell, None, &vms, VCPUS, rig.slow(4))?;
    let mut session = Session::start(&machine)?;
    session.log_in_to(&NAMES)?;
    tally.check("steal of two busy Linux guests", busy(&mut session));
    tally.check("steal beside a busy Linux guest", one_busy(&mut session));
    tally.check("steal of two idle Linux guests", idle(&mut session));
    Ok(())
}

/// Half of each CPU's time is stolen from either.
fn busy(session: &mut Session) -> Result<()> {
    let stolen = during(session, |session| {
        session.show(1)?;
        session.run("on_every_cpu spin")?;
        session.show(0)?;
        session.run(&format!("on_every_cpu spin; sleep {BUSY}; kill $started"))?;
        session.show(1)?;
        session.run("kill $started; wait")?;
        Ok(())
    })?;
    for (name, stolen) in NAMES.into_iter().zip(&stolen) {
        for (cpu, (guest, host)) in stolen.by_guest.iter().zip(&stolen.by_host).enumerate() {
            println!("{name}, CPU {cpu}: {guest:.2} s by the guest, {host:.3} s by the host");
            let what = format!("{name}, CPU {cpu}: {guest:.2} s, the hypervisor says {host:.3} s");
            ensure!((guest - host).abs() <= PART * host + ROUNDING, "{what}");
            ensure!(*host > 0.4 * BUSY, "too little: {what}");
        }
    }
    Ok(())
}

/// Next to nothing is stolen from one that sleeps, nor by it.
fn one_busy(session: &mut Session) -> Result<()> {
    let stolen = during(session, |session| {
        session.show(0)?;
        session.run(&format!(
            "on_every_cpu spin; sleep {QUIET}; kill $started; wait"
        ))?;
        Ok(())
    })?;
    little(&stolen, 0.1)
}

fn idle(session: &mut Session) -> Result<()> {
    let stolen = during(session, |session| {
        session.run(&format!("sleep {QUIET}"))?;
        Ok(())
    })?;
    little(&stolen, 0.02)
}

/// At most the part `most` of the time was stolen, by either account.
fn little(stolen: &[Stolen], most: f64) -> Result<()> {
    for (name, stolen) in NAMES.into_iter().zip(stolen) {
        for (cpu, (guest, host)) in stolen.by_guest.iter().zip(&stolen.by_host).enumerate() {
            let what = format!("{name}, CPU {cpu}: {guest:.2} s, the hypervisor says {host:.3} s");
            // While nobody types, the clock of an idle machine runs fast.
            let most = most * stolen.passed;
            ensure!(
                *host <= most && *guest <= host + ROUNDING,
                "{what}, not {most:.3} s"
            );
        }
    }
    Ok(())
}

/// What is stolen while `act` goes on, from each VM.
fn during(
    session: &mut Session,
    act: impl FnOnce(&mut Session) -> Result<()>,
) -> Result<Vec<Stolen>> {
    let before = read(session)?;
    act(session)?;
    let after = read(session)?;
    let less = |after: &[f64], before: &[f64]| {
        let pairs = after.iter().zip(before);
        pairs.map(|(after, before)| after - before).collect()
    };
    let pairs = after.iter().zip(&before);
    let stolen = pairs.map(|(after, before)| Stolen {
        passed: after.passed - before.passed,
        by_guest: less(&after.by_guest, &before.by_guest),
        by_host: less(&after.by_host, &before.by_host),
    });
    Ok(stolen.collect())
}

fn read(session: &mut Session) -> Result<Vec<Stolen>> {
    let mut all = Vec::new();
    for (vm, name) in (0..).zip(NAMES) {
        session.show(vm)?;
        // A tick on each CPU brings its account up to date.
        session.run("on_every_cpu touch_cpu; wait")?;
        let numbers = "{ read -r up _; echo $up; awk '/^cpu[0-9]/ { print $9 }' /proc/stat; }";
        let text = session.line(&format!("echo $({numbers} < /proc/uptime)"))?;
        let numbers: Result<Vec<f64>, _> = text.split(' ').map(str::parse).collect();
        let numbers = numbers.with_context(|| format!("no counts: {text}"))?;
        let printed = session.monitor(&format!("vcpus {name}"), vm)?;
        let by_host: Vec<f64> = printed.lines().filter_map(stolen).collect();
        let (passed, hundredths) = numbers.split_first().context("no time")?;
        ensure!(
            (hundredths.len(), by_host.len()) == (VCPUS as usize, VCPUS as usize),
            "{text}\n{printed}"
        );
        all.push(Stolen {
            passed: *passed,
            by_guest: hundredths.iter().map(|count| count / 100.0).collect(),
            by_host,
        });
    }
    Ok(all)
}

/// Seconds, at the end of a vCPU's line in the monitor: `…; 12.345 ms stolen`.
fn stolen(line: &str) -> Option<f64> {
    let (_, ms) = line
        .trim_end()
        .strip_suffix(" ms stolen")?
        .rsplit_once("; ")?;
    Some(ms.parse::<f64>().ok()? / 1000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stolen_time_is_found_in_the_monitor_s_line() {
        let line = "left vCPU 0 on CPU 0, asleep: 9 exits: hypercall 9; 1500.250 ms stolen\r";
        assert_eq!(stolen(line), Some(1.50025));
        assert_eq!(stolen("left doesn't run"), None);
    }
}
