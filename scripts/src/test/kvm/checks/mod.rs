//! What one boot of a KVM guest must show.
//!
//! The jobs in the two machines only measure; here it is judged, with the bounds and
//! the reason for each.

mod time;

use std::sync::LazyLock;

use anyhow::{Context as _, Result, bail, ensure};
use sha2::{Digest, Sha256};

use super::Case;
use crate::guest::interrupts::Snapshot;
use crate::guest::log::trouble;
use crate::guest::machine::Run;
use crate::guest::report::Report;
use crate::hash::hex;

/// The last number of the guests' data, which are the lines 1, 2, 3, … up to it.
pub const LAST_NUMBER: u32 = 100_000;

/// One boot, as it was asked for and as it went.
pub struct Boot<'a> {
    /// What was asked for.
    pub case: Case,
    /// Timer interrupts per second and CPU that the guest's kernel asks for.
    pub hz: u32,
    /// How the machine's run went.
    pub run: &'a Run,
    /// What KVM's host has reported.
    pub host: &'a Report,
    /// What the guest has reported.
    pub guest: &'a Report,
}

/// A check: its name, and the figures that passed or why it failed.
pub type Outcome = (&'static str, Result<String>);

impl Boot<'_> {
    /// All checks.
    pub fn judge(&self) -> Vec<Outcome> {
        vec![
            ("ran to its end", self.end()),
            ("CPUs", self.cpus()),
            ("timer rate", self.timer()),
            ("ticks", self.ticks()),
            ("clock", self.clock()),
            ("SWI0-IPI", self.paravirtual_ipi()),
            ("hackbench", self.hackbench()),
            ("futex wake", self.futex()),
            ("memory checker", self.memory()),
            ("data", self.data()),
            ("guest's memory", self.moved()),
            ("guest's kernel log", clean(self.guest)),
            ("host's kernel log", clean(self.host)),
        ]
    }

    /// Both machines have finished their jobs and powered themselves off.
    fn end(&self) -> Result<String> {
        let kvm = self
            .host
            .fact("kvm-device")
            .is_some_and(|values| values == ["yes"]);
        ensure!(
            kvm,
            "the host has no /dev/kvm; it printed:\n{}",
            end_of(self.host)
        );
        let ended = self.guest.ended.as_deref();
        ensure!(
            ended == Some("0"),
            "the guest's job ended with {ended:?}; it printed:\n{}",
            end_of(self.guest)
        );
        let qemu = self.host.fact("qemu");
        ensure!(
            qemu.is_some_and(|values| values == ["0"]),
            "the inner QEMU ended with {qemu:?}"
        );
        let ended = self.host.ended.as_deref();
        ensure!(ended == Some("0"), "the host's job ended with {ended:?}");
        ensure!(self.run.finished, "the machine did not power itself off");
        Ok(format!("{:.0} s", self.run.wall.as_secs_f64()))
    }

    fn cpus(&self) -> Result<String> {
        let cpus = self.number("cpus", 0)?;
        ensure!(
            cpus == f64::from(self.case.vcpus),
            "{cpus} instead of {}",
            self.case.vcpus
        );
        Ok(format!("{cpus}"))
    }

    /// Every CPU gets wake-ups by software interrupt 0. One CPU alone sends none.
    fn paravirtual_ipi(&self) -> Result<String> {
        let (start, end) = (self.snapshot("load-start")?, self.snapshot("load-end")?);
        let counts = end
            .since(start, "SWI0-IPI")
            .context("no SWI0-IPI in /proc/interrupts")?;
        ensure!(
            counts.len() == self.case.vcpus as usize,
            "the count of {} CPUs is there",
            counts.len()
        );
        ensure!(
            self.case.vcpus == 1 || counts.iter().all(|&count| count > 0),
            "a CPU got none: {counts:?}"
        );
        Ok(format!("{} under load", counts.iter().sum::<u64>()))
    }

    fn hackbench(&self) -> Result<String> {
        let values = self.guest.fact("hackbench").context("it didn't end")?;
        match values {
            [status, _, time] if status == "0" => Ok(format!("{time} s")),
            _ => bail!("it said: {}", values.join(" ")),
        }
    }

    /// `perf bench` has woken 16 threads one by one, twenty times.
    fn futex(&self) -> Result<String> {
        let values = self.guest.fact("futex").context("it didn't end")?;
        match values.iter().map(String::as_str).collect::<Vec<_>>()[..] {
            ["0", "Wokeup", "16", "of", "16", "threads", "in", time, ..] => {
                Ok(format!("{time} ms"))
            }
            _ => bail!("it said: {}", values.join(" ")),
        }
    }

    /// stress-ng wrote patterns to memory and read them back.
    fn memory(&self) -> Result<String> {
        let status = self.number("memory", 0)?;
        let said: Vec<&str> = self
            .guest
            .text
            .lines()
            .filter(|line| line.starts_with("stress-ng:"))
            .collect();
        let passed = said
            .iter()
            .any(|line| line.ends_with(&format!("passed: {0}: vm ({0})", self.case.vcpus)));
        let failed = said.iter().any(|line| line.ends_with("failed: 0"));
        ensure!(
            status == 0.0 && passed && failed,
            "status {status}:\n{}",
            said.join("\n")
        );
        Ok(format!("{} workers", self.case.vcpus))
    }

    /// Data that every CPU has made and copied is what it must be.
    fn data(&self) -> Result<String> {
        if let Some(where_) = self.guest.fact("data-differs") {
            bail!(
                "a copy differs from its original: CPU and round {}",
                where_.join(", ")
            );
        }
        for cpu in 0..self.case.vcpus {
            let name = cpu.to_string();
            let hash = self
                .guest
                .facts("data")
                .find(|values| values.first() == Some(&name));
            let hash = hash
                .and_then(|values| values.get(1))
                .with_context(|| format!("no hash from CPU {cpu}"))?;
            ensure!(
                *hash == *RIGHT_HASH,
                "CPU {cpu} has {hash} instead of {}",
                *RIGHT_HASH
            );
        }
        Ok(format!("{} hashes", self.case.vcpus))
    }

    /// Where the guest's memory was to be moved about, it was. The figures are of the whole
    /// host: pages moved, large pages made of small ones, and split again.
    fn moved(&self) -> Result<String> {
        let values = self
            .host
            .fact("moved")
            .context("the host reported nothing")?;
        let numbers = values
            .iter()
            .map(|word| word.parse::<u64>())
            .collect::<Result<Vec<_>, _>>()?;
        let [pages, joined, split] = numbers[..] else {
            bail!("the host reported {values:?}")
        };
        ensure!(
            !self.case.disturbed || pages > 100,
            "only {pages} pages were moved"
        );
        Ok(format!(
            "{pages} pages moved, {joined} large ones made, {split} split"
        ))
    }

    fn snapshot(&self, name: &str) -> Result<&Snapshot> {
        self.guest
            .snapshot(name)
            .with_context(|| format!("the guest didn't get to `{name}`"))
    }

    /// The number at `index` of the guest's fact `name`.
    fn number(&self, name: &str, index: usize) -> Result<f64> {
        let values = self
            .guest
            .fact(name)
            .with_context(|| format!("the guest didn't get to `{name}`"))?;
        let value = values
            .get(index)
            .with_context(|| format!("`{name}` has no value"))?;
        value
            .parse()
            .with_context(|| format!("`{name}` is no number: {value}"))
    }
}

/// The kernel's log is there to its end, and neither it nor anything else that was
/// printed shows trouble.
fn clean(report: &Report) -> Result<String> {
    let found = trouble(&report.text);
    ensure!(
        found.is_empty(),
        "{} lines, such as\n{}",
        found.len(),
        found[..found.len().min(5)].join("\n")
    );
    let log = report
        .kernel_log
        .as_ref()
        .context("it wasn't printed to its end")?;
    Ok(format!("{} lines, clean", log.lines().count()))
}

/// The last lines of `report`.
fn end_of(report: &Report) -> String {
    crate::process::tail(&report.text, 12)
}

/// The hash of the data, as sha256sum prints it.
static RIGHT_HASH: LazyLock<String> = LazyLock::new(|| {
    let data: String = (1..=LAST_NUMBER)
        .map(|number| format!("{number}\n"))
        .collect();
    hex(&Sha256::digest(data))
});

#[cfg(test)]
mod tests;
