//! Work of every kind at once, in each of two VMs at once.
//!
//! The long form has two runs. Half an hour of virtual time, with one instruction in 16
//! nanoseconds: a machine of four CPUs that do 62 million instructions a second together,
//! which one can emulate in a reasonable time, and run again to the same end. And some
//! minutes with a thread for each CPU, where the VMs really run at the same time.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use sha2::{Digest, Sha256};

use super::LIMIT;

use crate::guest::images::Image;
use crate::guest::job::Job;
use crate::guest::log::trouble;
use crate::guest::report::Report;
use crate::hash::hex;
use crate::hypervisor::lines_of;
use crate::qemu::Timing;
use crate::suite::to_end;
use crate::test::{Rig, Tally};
use crate::vm::LinuxVm;

/// The last number of the guests' data, and how often it is copied at a time.
const LAST_NUMBER: u32 = 20_000;
const ROUNDS: u32 = 4;

/// The kinds of work that stress-ng does.
const KINDS: [&str; 6] = ["cpu", "vm", "fork", "futex", "timer", "switch"];

/// A run: seconds of load by the guests' clock, how time goes, and how long it may take.
struct Run {
    seconds: u32,
    timing: Timing,
    limit: Duration,
}

/// Runs the checks.
///
/// # Errors
/// The machine can't be made.
pub fn run(rig: &Rig<'_>, tally: &mut Tally) -> Result<()> {
    runs(rig).iter().try_for_each(|run| run.go(rig, tally))
}

fn runs(rig: &Rig<'_>) -> Vec<Run> {
    let run = |seconds, timing, limit| Run {
        seconds,
        timing,
        limit,
    };
    if !rig.options.long {
        return vec![run(1, rig.timing(), LIMIT)];
    }
    let hours = |count: u64| Duration::from_secs(count * 3600);
    vec![
        run(1800, rig.slow(4), hours(4)),
        run(300, Timing::Threads, hours(1)),
    ]
}

impl Run {
    fn go(&self, rig: &Rig<'_>, tally: &mut Tally) -> Result<()> {
        let variables = [
            ("SOAK", self.seconds.to_string()),
            ("KINDS", KINDS.join(" ")),
            ("LAST_NUMBER", LAST_NUMBER.to_string()),
            ("ROUNDS", ROUNDS.to_string()),
        ];
        let job = Job::new(rig.cx, "soak.sh", &variables)?;
        let vm = |name, cpus: &str| LinuxVm {
            more: format!("cpus = \"{cpus}\"\nexclusive = true"),
            ..LinuxVm::new(name, 2, 768)
        };
        let vms = [vm("left", "0-1"), vm("right", "2-3")];
        let machine = rig.linux(Image::Bench, Some(&job), &vms, 4, self.timing)?;
        let printed = to_end(&machine, self.limit);
        let text = printed.map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        for name in ["left", "right"] {
            let judged = match &text {
                Ok(text) => judge(&lines_of(name, text)),
                Err(error) => Err(anyhow::anyhow!("{error:#}")),
            };
            let (seconds, timing) = (self.seconds, self.timing.label());
            tally.check(&format!("{seconds} s of load, {timing}, VM {name}"), judged);
        }
        Ok(())
    }
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
    for kind in KINDS {
        ensure!(passed(text, kind), "{kind} didn't pass, in:\n{text}");
    }
    for done in ["messages", "copies"] {
        let count: u64 = fact(done)?.parse()?;
        ensure!(count > 0, "no {done} were made");
    }
    let bad = trouble(text);
    ensure!(bad.is_empty(), "{}", bad.join("\n"));
    ensure!(report.ended.as_deref() == Some("0"), "the job didn't end");
    Ok(())
}

/// Whether stress-ng says that its one worker of `kind` has passed:
/// `stress-ng: info:  [124] passed: 2: cpu (1) vm (1)`.
fn passed(text: &str, kind: &str) -> bool {
    let passed = text
        .lines()
        .filter_map(|line| line.split_once("] passed: "));
    let worker = format!(" {kind} (1)");
    passed.into_iter().any(|(_, kinds)| kinds.contains(&worker))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_have_passed_or_not() {
        let text = "stress-ng: info:  [124] skipped: 1: vm (1)\n\
                    stress-ng: info:  [124] passed: 2: cpu (1) fork (1)\n";
        assert!(passed(text, "cpu") && passed(text, "fork"));
        assert!(!passed(text, "vm") && !passed(text, "futex"));
    }
}
