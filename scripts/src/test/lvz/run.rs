//! One run of the suite.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use crate::process::tail;
use crate::qemu::{Qemu, Timing};
use crate::test::Tally;
use crate::test::lines::Transcript;

/// The CPU with and without LVZ.
pub const WITH_LVZ: &str = "la464,lvz=on";
const WITHOUT_LVZ: &str = "la464,lvz=off";

/// Memory of the machine, in MiB.
const MEMORY_MIB: u32 = 1024;

/// A run that takes longer hangs: the slowest, 16 CPUs in turn, takes a tenth of it.
const LIMIT: Duration = Duration::from_secs(300);

/// How much of a failed run's output is shown, in lines.
const SHOWN: usize = 25;

/// The suite's program and the QEMU to run it on.
pub struct Suite {
    /// The emulator.
    pub qemu: PathBuf,
    /// The ELF file of tests/lvz.
    pub image: PathBuf,
}

impl Suite {
    /// The machine that runs the suite in `mode`.
    pub fn machine(&self, mode: &str, cpus: u32, timing: Timing, seed: u64) -> Qemu {
        self.machine_with(WITH_LVZ, mode, cpus, timing, seed)
    }

    fn machine_with(&self, cpu: &str, mode: &str, cpus: u32, timing: Timing, seed: u64) -> Qemu {
        let qemu = Qemu::new(&self.qemu, cpu, cpus, MEMORY_MIB, timing);
        qemu.kernel(&self.image)
            .append(&format!("mode={mode} seed={seed}"))
    }

    /// The checks that a run on `cpus` CPUs must have, by the suite's own word.
    ///
    /// # Errors
    /// The suite doesn't say, or names another number of checks than it says.
    pub fn declared(&self, cpus: u32) -> Result<Vec<String>> {
        let machine = self.machine("list", cpus, Timing::Deterministic { seed: 1 }, 1);
        let printed = to_end(&machine).context("the suite's list of checks could not be had")?;
        declared_in(&String::from_utf8_lossy(&printed))
            .with_context(|| format!("{cpus} CPUs; to replay: {}", machine.command_line()))
    }

    /// Runs the suite and counts every check of it.
    pub fn run(
        &self,
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
            &self.machine("suite", cpus, timing, seed),
            declared,
        );
    }

    /// Runs the suite's checks for a CPU whose LVZ is off.
    pub fn without_lvz(&self, tally: &mut Tally) {
        let machine =
            self.machine_with(WITHOUT_LVZ, "off", 1, Timing::Deterministic { seed: 1 }, 1);
        count(tally, "lvz=off", &machine, &[]);
    }
}

/// Runs `machine` to its end and counts every check; what is wrong with the run as a
/// whole counts as one more, with the end of the output and how to replay it.
fn count(tally: &mut Tally, label: &str, machine: &Qemu, declared: &[String]) {
    let printed = match to_end(machine) {
        Ok(printed) => printed,
        Err(error) => return tally.fail(label, &format!("{error:#}")),
    };
    let text = String::from_utf8_lossy(&printed);
    let transcript = Transcript::parse("lvz", &text, declared);
    count_transcript(tally, label, &transcript);
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

/// Runs `machine` until it ends by itself; returns all it has printed.
///
/// # Errors
/// It can't be started, takes too long, or QEMU ends with an error.
pub fn to_end(machine: &Qemu) -> Result<Vec<u8>> {
    let mut running = machine.spawn()?;
    let line = running.command_line().to_owned();
    let status = running
        .wait(LIMIT)
        .with_context(|| ending(&running.console.tail(SHOWN), &line))?;
    let printed = running.console.all(LIMIT);
    if !status.success() {
        bail!(
            "QEMU failed ({status}){}",
            ending(&running.console.tail(SHOWN), &line)
        );
    }
    Ok(printed)
}

/// The end of what was printed, and how to replay the run.
fn ending(last: &str, line: &str) -> String {
    format!("; the last lines were:\n{last}  to replay: {line}")
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
