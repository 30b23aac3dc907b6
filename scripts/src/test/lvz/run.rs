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

/// Runs the suite and counts every check of it.
pub fn run(
    suite: &Suite,
    tally: &mut Tally,
    cpus: u32,
    timing: Timing,
    seed: u64,
    declared: &[String],
) {
    let label = format!("{cpus} cpus, {}", timing.label());
    count(
        tally,
        &label,
        &suite.machine("suite", cpus, timing, seed),
        declared,
    );
}

/// Runs the suite's checks for a CPU whose LVZ is off.
pub fn without_lvz(suite: &Suite, tally: &mut Tally) {
    let timing = Timing::Deterministic { seed: 1 };
    count(
        tally,
        "lvz=off",
        &suite.machine_of(WITHOUT_LVZ, "off", 1, timing, 1),
        &[],
    );
}

/// Runs `machine` to its end and counts every check; what is wrong with the run as a
/// whole counts as one more, with the end of the output and how to replay it.
fn count(tally: &mut Tally, label: &str, machine: &Qemu, declared: &[String]) {
    let started = Instant::now();
    let printed = match to_end(machine, LIMIT) {
        Ok(printed) => printed,
        Err(error) => return tally.fail(label, &format!("{error:#}")),
    };
    let text = String::from_utf8_lossy(&printed);
    let transcript = Transcript::parse("lvz", &text, declared);
    count_transcript(tally, label, &transcript);
    eprintln!(
        "{label}: {} checks took {}",
        transcript.checks.len(),
        seconds(started.elapsed())
    );
    if transcript.counts().1 > 0 || !transcript.faults.is_empty() {
        println!("  to replay: {}", machine.command_line());
    }
    if !transcript.faults.is_empty() {
        println!("  the last lines were:\n{}", tail(&text, SHOWN));
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
