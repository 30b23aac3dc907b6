//! One run of the suite, and the counting of its checks.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use crate::process::tail;
use crate::progress::seconds;
use crate::qemu::{Qemu, Timing};
use crate::suite::{SHOWN, Suite, WITHOUT_LVZ, to_end};
use crate::test::Tally;
use crate::test::lines::Transcript;

/// A run that takes longer hangs: the slowest, 16 CPUs in turn, takes a tenth of it.
pub const LIMIT: Duration = Duration::from_secs(300);

/// The checks that a run on `cpus` CPUs must have, by the suite's own word.
///
/// # Errors
/// The suite doesn't say, or names another number of checks than it says.
pub fn declared(suite: &Suite, cpus: u32) -> Result<Vec<String>> {
    let machine = suite.machine("list", cpus, Timing::Deterministic { seed: 1 }, 1);
    let printed = to_end(&machine, LIMIT).context("the suite's list of checks could not be had")?;
    declared_in(&String::from_utf8_lossy(&printed))
        .with_context(|| format!("{cpus} CPUs; to replay: {}", machine.command_line()))
}

/// The names after the line `declared N`.
fn declared_in(printed: &str) -> Result<Vec<String>> {
    let mut lines = printed.lines().map(str::trim_end);
    let count = lines
        .find_map(|line| line.strip_prefix("declared "))
        .context("no line `declared N`")?;
    let names: Vec<String> = lines
        .map(str::to_owned)
        .filter(|name| !name.is_empty())
        .collect();
    if count.parse() != Ok(names.len()) || names.is_empty() {
        bail!(
            "the suite declares {count} checks and names {}",
            names.len()
        );
    }
    Ok(names)
}

/// How the suite is to run.
pub struct Run {
    label: String,
    machine: Qemu,
}

/// What a run has printed, and how long it took.
type Ended = (Result<Vec<u8>>, Duration);

impl Run {
    /// On `cpus` CPUs, with random numbers by `seed`.
    pub fn new(suite: &Suite, cpus: u32, timing: Timing, seed: u64) -> Self {
        Self {
            label: format!("{cpus} cpus, {}", timing.label()),
            machine: suite.machine("suite", cpus, timing, seed),
        }
    }

    /// On a CPU whose LVZ is off.
    pub fn without_lvz(suite: &Suite) -> Self {
        let timing = Timing::Deterministic { seed: 1 };
        Self {
            label: "lvz=off".to_owned(),
            machine: suite.machine_of(WITHOUT_LVZ, "off", 1, timing, 1),
        }
    }

    /// Runs to the end.
    pub fn run(&self) -> Ended {
        let started = Instant::now();
        (to_end(&self.machine, LIMIT), started.elapsed())
    }

    /// Counts every check of a run; what is wrong with it as a whole counts as one more,
    /// with the end of the output and how to replay it.
    pub fn count(&self, (printed, took): Ended, declared: &[String], tally: &mut Tally) {
        let label = &self.label;
        let printed = match printed {
            Ok(printed) => printed,
            Err(error) => return tally.fail(label, &format!("{error:#}")),
        };
        let text = String::from_utf8_lossy(&printed);
        let transcript = Transcript::parse("lvz", &text, declared);
        count_transcript(tally, label, &transcript);
        let checks = transcript.checks.len();
        eprintln!("{label}: {checks} checks took {}", seconds(took));
        if transcript.counts().1 > 0 || !transcript.faults.is_empty() {
            println!("  to replay: {}", self.machine.command_line());
        }
        if !transcript.faults.is_empty() {
            println!("  the last lines were:\n{}", tail(&text, SHOWN));
        }
    }
}

/// Counts the checks of a transcript, and its faults as one failed check.
pub fn count_transcript(tally: &mut Tally, label: &str, transcript: &Transcript) {
    for (name, failure) in &transcript.checks {
        match failure {
            None => tally.pass(&format!("{name} ({label})")),
            Some(why) => tally.fail(&format!("{name} ({label})"), why),
        }
    }
    if transcript.checks.is_empty() {
        tally.fail(label, "no check ran");
    }
    if !transcript.faults.is_empty() {
        tally.fail(label, &transcript.faults.join("; "));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_of_checks_is_read() {
        let names = declared_in("boot\r\ndeclared 2\r\na.one\r\na.two\r\n").unwrap();
        assert_eq!(names, ["a.one", "a.two"]);
        assert!(declared_in("declared 3\na.one\na.two\n").is_err());
        assert!(declared_in("declared 0\n").is_err());
        assert!(declared_in("a.one\n").is_err());
    }

    #[test]
    fn faults_and_empty_runs_fail() {
        let closing = |text: &str, declared: &[String]| {
            let mut tally = Tally::new("t");
            count_transcript(&mut tally, "x", &Transcript::parse("lvz", text, declared));
            tally.closing_line()
        };
        assert_eq!(
            closing("PASS a\nlvz: 1 passed, 0 failed\n", &["a".into()]),
            "t: 1 passed, 0 failed"
        );
        assert_eq!(closing("PASS a\n", &["a".into()]), "t: 1 passed, 1 failed");
        assert_eq!(
            closing("lvz: 0 passed, 0 failed\n", &[]),
            "t: 0 passed, 1 failed"
        );
    }
}
