//! The systems that are compared: Linux on the machine, in guests of ours, in guests of
//! Linux's KVM; and one run of each.
//!
//! All boot the same kernel on the same QEMU with as many CPUs and run the same job, with
//! one instruction a virtual nanosecond.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Result, ensure};
use serde::Serialize;

use crate::context::Context;
use crate::guest::images::Image;
use crate::guest::job::Job;
use crate::guest::machine::{COMMAND_LINE, Machine, Run as Finished, run_to_end};
use crate::guest::report::Report;
use crate::hypervisor::Hypervisor;
use crate::qemu::Timing;
use crate::vm::{Files, LinuxVm};

/// CPUs of the machine and of each guest.
pub const CPUS: u32 = 16;

/// Memory of a machine whose Linux is measured itself, and of a guest, in MiB.
const MEMORY_MIB: u32 = 1024;
/// Memory of a machine that is KVM's host, in MiB.
const HOST_MIB: u32 = 3072;
/// How long a run may take, in seconds of the machine's own clock.
const JOB_LIMIT: u32 = 600;
/// How long it may take on this machine.
const LIMIT: Duration = Duration::from_secs(1800);

/// What runs of systems need: made once for a measurement.
pub struct Lab<'a> {
    cx: &'a Context,
    hypervisor: Hypervisor,
}

impl<'a> Lab<'a> {
    /// Builds the hypervisor.
    ///
    /// # Errors
    /// It doesn't compile.
    pub fn new(cx: &'a Context) -> Result<Self> {
        let hypervisor = Hypervisor::build(cx)?;
        Ok(Self { cx, hypervisor })
    }
}

/// A system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum System {
    /// Linux on the machine itself.
    Bare,
    /// A guest of ours with the paravirtual IPI.
    Paravirtual,
    /// A guest of ours without it.
    Native,
    /// A guest of Linux's KVM with the paravirtual IPI.
    KvmParavirtual,
    /// A guest of Linux's KVM without it.
    Kvm,
}

impl System {
    /// All of them, in the table's order.
    pub const ALL: [Self; 5] = [
        Self::Bare,
        Self::Paravirtual,
        Self::Native,
        Self::KvmParavirtual,
        Self::Kvm,
    ];

    /// Its name in the table.
    pub fn label(self) -> &'static str {
        match self {
            Self::Bare => "bare metal",
            Self::Paravirtual => "Loongvisor, paravirtual IPI",
            Self::Native => "Loongvisor",
            Self::KvmParavirtual => "Linux KVM, paravirtual IPI",
            Self::Kvm => "Linux KVM",
        }
    }

    /// Its name in file names.
    fn slug(self) -> &'static str {
        match self {
            Self::Bare => "bare",
            Self::Paravirtual => "pv",
            Self::Native => "native",
            Self::KvmParavirtual => "kvm-pv",
            Self::Kvm => "kvm",
        }
    }

    /// Whether it is a guest of Linux's KVM.
    pub fn is_kvm(self) -> bool {
        matches!(self, Self::KvmParavirtual | Self::Kvm)
    }

    /// Boots the system with `seed` and runs `job`, which is part of the measurement
    /// `bench`.
    ///
    /// # Errors
    /// It doesn't come to the job's end: the console is in the log that is named.
    pub fn run(self, lab: &Lab<'_>, bench: &str, seed: u64, job: &Job) -> Result<Run> {
        let cx = lab.cx;
        let name = format!("{bench}-{}-seed-{seed}", self.slug());
        let text = match self {
            Self::Bare => machine(Image::Bench, MEMORY_MIB, seed).run(cx, &name, job, LIMIT)?,
            Self::Paravirtual => ours(lab, true, seed, &name, job)?,
            Self::Native => ours(lab, false, seed, &name, job)?,
            Self::KvmParavirtual => in_kvm(cx, "la464,kvm-pv-ipi=on", seed, &name, job)?,
            Self::Kvm => in_kvm(cx, "la464,kvm-pv-ipi=off", seed, &name, job)?,
        }
        .text;
        let (host, guest) = Report::split(&text);
        let exits = exits(&host);
        let report = if self.is_kvm() { guest } else { host };
        ensure!(
            report.ended.as_deref() == Some("0"),
            "{}, seed {seed}: the job didn't end well; the console is in {}",
            self.label(),
            cx.cache.log(&name).display()
        );
        Ok(Run { report, exits })
    }
}

/// The machine that boots Linux itself.
fn machine(image: Image, memory_mib: u32, seed: u64) -> Machine {
    Machine {
        cpus: CPUS,
        memory_mib,
        timing: Timing::Deterministic { seed },
        lvz: true,
        image,
        append: format!("{STEADY} job_limit={JOB_LIMIT}"),
    }
}

/// A run of `job` in a guest of KVM's whose CPUs are of the model `cpu`.
fn in_kvm(cx: &Context, cpu: &str, seed: u64, name: &str, job: &Job) -> Result<Finished> {
    let append = format!("{COMMAND_LINE} {STEADY} job_limit={JOB_LIMIT}");
    let variables = [
        ("CPU", cpu.to_owned()),
        ("VCPUS", CPUS.to_string()),
        ("MEMORY", MEMORY_MIB.to_string()),
        ("SEED", seed.to_string()),
        ("DISTURB", "no".to_owned()),
        ("APPEND", append),
    ];
    let host = Job::new(cx, "kvm-host.sh", &variables)?.with_file("guest.cpio", job.bytes())?;
    machine(Image::KvmHost, HOST_MIB, seed).run(cx, name, &host, LIMIT)
}

/// A run of `job` in a guest of ours, with or without the paravirtual IPI.
fn ours(lab: &Lab<'_>, paravirtual: bool, seed: u64, name: &str, job: &Job) -> Result<Finished> {
    let files = Files::new(lab.cx, Image::Bench, Some(job))?;
    let vm = LinuxVm {
        command_line: format!("{QUIET} {STEADY} job_limit={JOB_LIMIT}"),
        more: format!("[paravirt]\nipi = {paravirtual}"),
        ..LinuxVm::new("bench", CPUS, MEMORY_MIB)
    };
    let timing = Timing::Deterministic { seed };
    let machine = files.machine(lab.cx, &lab.hypervisor, &[vm], CPUS, timing, "")?;
    run_to_end(lab.cx, &machine, name, LIMIT)
}

/// On the command line of our guest, which needs none of the words that the machine's
/// own kernel does, but measures with the same.
const QUIET: &str = "console=ttyS0 loglevel=5 cryptomgr.notests";

/// On every kernel's command line: addresses are the same in each run.
const STEADY: &str = "nokaslr norandmaps";

/// What one run gave.
#[derive(Debug)]
pub struct Run {
    /// What the job reported.
    pub report: Report,
    /// Exits of all vCPUs by their reason, between the job's lines `count start` and
    /// `count end`; empty where nobody counts them.
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
