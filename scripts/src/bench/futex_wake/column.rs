//! The systems that are compared, and one run of each.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Result, ensure};
use serde::Serialize;

use super::samples::times;
use crate::context::Context;
use crate::guest::images::Image;
use crate::guest::job::Job;
use crate::guest::machine::{COMMAND_LINE, Machine};
use crate::guest::report::Report;
use crate::qemu::Timing;

/// CPUs of the machine, of each guest, and threads that are woken.
pub const CPUS: u32 = 16;

/// Memory of a machine whose Linux is measured itself, and of a guest, in MiB.
const MEMORY_MIB: u32 = 1024;
/// Memory of a machine that is KVM's host, in MiB.
const HOST_MIB: u32 = 3072;
/// How long a run may take, in seconds of the machine's own clock.
const LIMIT: u32 = 600;
/// How long it may take on this machine.
const WALL_LIMIT: Duration = Duration::from_secs(1800);

/// A system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Column {
    /// Linux on the machine itself.
    Bare,
    /// A guest of Linux's KVM with the paravirtual IPI.
    KvmParavirtual,
    /// A guest of Linux's KVM without it.
    Kvm,
}

impl Column {
    /// All of them, in the table's order.
    pub const ALL: [Self; 3] = [Self::Bare, Self::KvmParavirtual, Self::Kvm];

    /// Its name in the table.
    pub fn label(self) -> &'static str {
        match self {
            Self::Bare => "bare metal",
            Self::KvmParavirtual => "Linux KVM, paravirtual IPI",
            Self::Kvm => "Linux KVM",
        }
    }

    /// Its name in file names.
    fn slug(self) -> &'static str {
        match self {
            Self::Bare => "bare",
            Self::KvmParavirtual => "kvm-pv",
            Self::Kvm => "kvm",
        }
    }

    /// Boots the system with `seed` and measures `repeats` wakes.
    ///
    /// # Errors
    /// A repeat is missing: the console is in the log that is named.
    pub fn run(self, cx: &Context, seed: u64, repeats: u32) -> Result<Run> {
        let name = format!("futex-wake-{}-seed-{seed}", self.slug());
        let limit = Duration::from_secs(LIMIT.into()).max(WALL_LIMIT);
        let machine = self.machine(seed);
        let run = machine.run(cx, &name, &self.job(cx, seed, repeats)?, limit)?;
        let (host, guest) = Report::split(&run.text);
        let measured = if self == Self::Bare { &host } else { &guest };
        let ms = times(&measured.text, CPUS);
        ensure!(
            ms.len() == repeats as usize,
            "{}, seed {seed}: {} of {repeats} wakes were measured; the console is in {}",
            self.label(),
            ms.len(),
            cx.cache.log(&name).display()
        );
        Ok(Run {
            ms,
            exits: exits(&host),
        })
    }

    fn machine(self, seed: u64) -> Machine {
        let host = self != Self::Bare;
        Machine {
            cpus: CPUS,
            memory_mib: if host { HOST_MIB } else { MEMORY_MIB },
            timing: Timing::Deterministic { seed },
            lvz: true,
            image: if host { Image::KvmHost } else { Image::Bench },
            append: format!("{STEADY} job_limit={LIMIT}"),
        }
    }

    /// What the machine runs: the measurement, or KVM with the measurement in its guest.
    fn job(self, cx: &Context, seed: u64, repeats: u32) -> Result<Job> {
        let variables = [
            ("THREADS", CPUS.to_string()),
            ("REPEATS", repeats.to_string()),
        ];
        let measure = Job::new(cx, "futex-wake.sh", &variables)?;
        let cpu = match self {
            Self::Bare => return Ok(measure),
            Self::KvmParavirtual => "la464,kvm-pv-ipi=on",
            Self::Kvm => "la464,kvm-pv-ipi=off",
        };
        let host = [
            ("CPU", cpu.to_owned()),
            ("VCPUS", CPUS.to_string()),
            ("MEMORY", MEMORY_MIB.to_string()),
            ("SEED", seed.to_string()),
            ("DISTURB", "no".to_owned()),
            (
                "APPEND",
                format!("{COMMAND_LINE} {STEADY} job_limit={LIMIT}"),
            ),
        ];
        Job::new(cx, "kvm-host.sh", &host)?.with_file("guest.cpio", measure.bytes())
    }
}

/// On every kernel's command line: addresses are the same in each run.
const STEADY: &str = "nokaslr norandmaps";

/// What one run gave.
#[derive(Debug)]
pub struct Run {
    /// Milliseconds of each wake.
    pub ms: Vec<f64>,
    /// Exits of all vCPUs by their reason, from the first wake to the last; empty where
    /// there are none.
    pub exits: BTreeMap<String, u64>,
}

/// The difference of the facts `exits start` and `exits end`, whose values are
/// `reason:count`.
fn exits(host: &Report) -> BTreeMap<String, u64> {
    let counts = |when: &str| -> BTreeMap<String, u64> {
        let mut facts = host.facts("exits");
        let fact = facts.find(|values| values.first().is_some_and(|word| word == when));
        let pairs = fact.into_iter().flatten().filter_map(|v| v.split_once(':'));
        pairs
            .filter_map(|(reason, n)| Some((reason.to_owned(), n.parse().ok()?)))
            .collect()
    };
    let start = counts("start");
    counts("end")
        .into_iter()
        .map(|(reason, n)| {
            let before = start.get(&reason).copied().unwrap_or_default();
            (reason, n.saturating_sub(before))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exits_are_those_between_start_and_end() {
        let (host, _) = Report::split(
            "fact exits start idle_exits:5 int_exits:7\nfact exits end idle_exits:25 int_exits:7 new:3\n",
        );
        let found: Vec<(String, u64)> = exits(&host).into_iter().collect();
        let expected = [("idle_exits", 20), ("int_exits", 0), ("new", 3)];
        assert_eq!(found, expected.map(|(name, n)| (name.to_owned(), n)));
        assert!(exits(&Report::default()).is_empty());
    }
}
