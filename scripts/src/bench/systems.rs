//! The systems that are compared: Linux on the machine, in guests of ours, in guests of
//! Linux's KVM; and one run of each.
//!
//! All boot the same kernel on the same QEMU with as many CPUs and run the same job, with
//! one instruction a virtual nanosecond.

use std::time::Duration;

use anyhow::{Result, ensure};
use serde::Serialize;

use super::trace::{Trace, Windows};
use crate::context::Context;
use crate::guest::images::Image;
use crate::guest::job::Job;
use crate::guest::machine::{COMMAND_LINE, Machine, run_watched, with_job};
use crate::guest::report::Report;
use crate::hypervisor::Hypervisor;
use crate::qemu::{Qemu, Timing};
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

    /// Its name in file names and on the command line.
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
    /// `bench`; `see` gets each line that is printed.
    ///
    /// # Errors
    /// It doesn't come to the job's end: the console is in the log that is named.
    pub fn run(
        self,
        lab: &Lab<'_>,
        bench: &str,
        seed: u64,
        job: &Job,
        see: &mut dyn FnMut(&str),
    ) -> Result<Run> {
        let cx = lab.cx;
        let name = format!("{bench}-{}-seed-{seed}", self.slug());
        let qemu = match self {
            Self::Bare => bare(lab, seed, job)?,
            Self::Paravirtual => ours(lab, true, seed, job)?,
            Self::Native => ours(lab, false, seed, job)?,
            Self::KvmParavirtual => in_kvm(lab, "la464,kvm-pv-ipi=on", seed, job)?,
            Self::Kvm => in_kvm(lab, "la464,kvm-pv-ipi=off", seed, job)?,
        };
        let trace = Trace::new(cx)?;
        let machine = trace.of(qemu.machine);
        let command = portable(&machine.command_line());
        let finished = run_watched(cx, &machine, &name, LIMIT, see)?;
        let (host, guest) = Report::split(&finished.text);
        let report = if self.is_kvm() { guest } else { host };
        ensure!(
            report.ended.as_deref() == Some("0"),
            "{}, seed {seed}: the job didn't end well; the console is in {}",
            self.label(),
            cx.cache.log(&name).display()
        );
        let windows = trace.read()?;
        Ok(Run {
            report,
            windows,
            command,
        })
    }
}

/// `command` without the folders of its files, and without the names of temporary ones.
fn portable(command: &str) -> String {
    let words: Vec<&str> = command.split(' ').collect();
    let before = std::iter::once("").chain(words.iter().copied());
    let word = |(before, word): (&str, &&str)| match before {
        "-initrd" => "INITRD".to_owned(),
        "-D" => "TRACE".to_owned(),
        _ if word.starts_with('/') => word.rsplit('/').next().unwrap_or("").to_owned(),
        _ => (*word).to_owned(),
    };
    before.zip(&words).map(word).collect::<Vec<_>>().join(" ")
}

/// A machine to run, and the files that it reads.
struct Ready {
    machine: Qemu,
    #[expect(dead_code, reason = "kept until the machine has ended")]
    files: Box<dyn std::any::Any>,
}

/// The system that is called `name`.
///
/// # Errors
/// None is.
pub fn named(name: &str) -> Result<System, String> {
    let mut all = System::ALL.into_iter();
    let found = all.find(|system| system.slug() == name);
    found.ok_or_else(|| {
        let names = System::ALL.map(System::slug);
        format!("there are {}", names.join(", "))
    })
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

/// The machine that runs `job` itself.
fn bare(lab: &Lab<'_>, seed: u64, job: &Job) -> Result<Ready> {
    let machine = machine(Image::Bench, MEMORY_MIB, seed);
    with_initrd(lab, &machine, job)
}

/// `machine` with `job`.
fn with_initrd(lab: &Lab<'_>, machine: &Machine, job: &Job) -> Result<Ready> {
    let initrd = with_job(lab.cx, machine.image, job)?;
    let machine = machine.qemu(lab.cx, initrd.path());
    let files = Box::new(initrd);
    Ok(Ready { machine, files })
}

/// The machine that runs `job` in a guest of KVM's whose CPUs are of the model `cpu`.
fn in_kvm(lab: &Lab<'_>, cpu: &str, seed: u64, job: &Job) -> Result<Ready> {
    let append = format!("{COMMAND_LINE} {STEADY} job_limit={JOB_LIMIT}");
    let variables = [
        ("CPU", cpu.to_owned()),
        ("VCPUS", CPUS.to_string()),
        ("MEMORY", MEMORY_MIB.to_string()),
        ("SEED", seed.to_string()),
        ("DISTURB", "no".to_owned()),
        ("APPEND", append),
    ];
    let host = Job::new(lab.cx, "kvm-host.sh", &variables)?.with_file("guest.cpio", job.bytes())?;
    with_initrd(lab, &machine(Image::KvmHost, HOST_MIB, seed), &host)
}

/// The machine that runs `job` in a guest of ours, with or without the paravirtual IPI.
fn ours(lab: &Lab<'_>, paravirtual: bool, seed: u64, job: &Job) -> Result<Ready> {
    let files = Files::new(lab.cx, Image::Bench, Some(job))?;
    let vm = LinuxVm {
        command_line: format!("{QUIET} {STEADY} job_limit={JOB_LIMIT}"),
        more: format!("[paravirt]\nipi = {paravirtual}"),
        ..LinuxVm::new("bench", CPUS, MEMORY_MIB)
    };
    let timing = Timing::Deterministic { seed };
    let machine = files.machine(lab.cx, &lab.hypervisor, &[vm], CPUS, timing, "")?;
    let files = Box::new(files);
    Ok(Ready { machine, files })
}

/// On the command line of our guest, which needs none of the words that the machine's
/// own kernel does, but measures with the same.
const QUIET: &str = "console=ttyS0 loglevel=5 cryptomgr.notests";

/// On every kernel's command line: addresses are the same in each run.
const STEADY: &str = "nokaslr norandmaps";

/// What one run gave.
#[derive(Debug, Default)]
pub struct Run {
    /// What the job reported.
    pub report: Report,
    /// What was counted between the marks that the job printed.
    pub windows: Windows,
    /// How the machine was started, without its files' places.
    pub command: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_name_no_place_of_this_machine() {
        let line =
            "/q/qemu -m 4M -kernel /a/kernel -initrd /tmp/.tmpX -D /tmp/.tmpY -append 'a b=/dev/c'";
        let portable = portable(line);
        assert_eq!(
            portable,
            "qemu -m 4M -kernel kernel -initrd INITRD -D TRACE -append 'a b=/dev/c'"
        );
    }

    #[test]
    fn systems_are_found_by_name() {
        for system in System::ALL {
            assert_eq!(named(system.slug()), Ok(system));
        }
        assert!(named("xen").unwrap_err().contains("kvm-pv"));
    }
}
