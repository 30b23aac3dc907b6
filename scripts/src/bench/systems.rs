//! The systems that are compared: Linux on the machine, in guests of ours, in guests of
//! Linux's KVM; and one run of each.
//!
//! All boot the same kernel on the same QEMU with as many CPUs and run the same job, with
//! one instruction a virtual nanosecond.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde::{Deserialize, Serialize};

use super::trace::{Trace, Windows};
use crate::context::Context;
use crate::guest::images::Image;
use crate::guest::job::Job;
use crate::guest::machine::{COMMAND_LINE, Machine, run_watched, with_job};
use crate::guest::report::Report;
use crate::hypervisor::{Hypervisor, lines_of};
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

/// What runs on a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// The system alone, on as many CPUs as the machine has.
    Alone,
    /// Two of them, on CPUs of their own; the second is the neighbour. The word `role`
    /// on each one's command line says which it is; on the machine itself it is `both`.
    Beside,
}

impl Shape {
    /// CPUs of the machine.
    fn cpus(self) -> u32 {
        match self {
            Self::Alone => CPUS,
            Self::Beside => 2 * BESIDE_CPUS,
        }
    }

    /// What is added to the command line on the machine itself.
    fn on_the_machine(self) -> &'static str {
        match self {
            Self::Alone => "",
            Self::Beside => " role=both",
        }
    }

    /// The VMs: name, vCPUs, more of the command line, more of the file.
    fn vms(self) -> Vec<(&'static str, u32, &'static str, &'static str)> {
        match self {
            Self::Alone => vec![(MEASURED, CPUS, "", "")],
            Self::Beside => vec![
                (
                    MEASURED,
                    BESIDE_CPUS,
                    " role=latency",
                    "cpus = \"0-3\"\nexclusive = true\n",
                ),
                (
                    "neighbour",
                    BESIDE_CPUS,
                    " role=storm",
                    "cpus = \"4-7\"\nexclusive = true\n",
                ),
            ],
        }
    }
}

/// The VM that is measured.
const MEASURED: &str = "bench";

/// CPUs of each of two systems.
const BESIDE_CPUS: u32 = 4;

/// A system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
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

    /// Boots the system alone with `seed` and runs `job`, which is part of the measurement
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
        self.run_as(lab, bench, seed, job, Shape::Alone, see)
    }

    /// [`System::run`] in any shape; every system of it gets the job.
    ///
    /// # Errors
    /// As [`System::run`].
    pub fn run_as(
        self,
        lab: &Lab<'_>,
        bench: &str,
        seed: u64,
        job: &Job,
        shape: Shape,
        see: &mut dyn FnMut(&str),
    ) -> Result<Run> {
        let cx = lab.cx;
        let name = format!("{bench}-{}-seed-{seed}", self.slug());
        let qemu = match self {
            Self::Bare => bare(lab, seed, job, shape)?,
            Self::Paravirtual => ours(lab, true, seed, job, shape)?,
            Self::Native => ours(lab, false, seed, job, shape)?,
            Self::KvmParavirtual => in_kvm(lab, "la464,kvm-pv-ipi=on", seed, job, shape)?,
            Self::Kvm => in_kvm(lab, "la464,kvm-pv-ipi=off", seed, job, shape)?,
        };
        let trace = Trace::new(cx)?;
        let machine = trace.of(qemu.machine);
        let command = portable(&machine.command_line());
        let finished = run_watched(cx, &machine, &name, LIMIT, see)?;
        let (host, guest) = Report::split(&finished.text);
        let report = match (self, shape) {
            (Self::KvmParavirtual | Self::Kvm, _) => guest,
            (Self::Paravirtual | Self::Native, Shape::Beside) => {
                Report::read(&lines_of(MEASURED, &finished.text))
            }
            _ => host,
        };
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
            console: finished.text,
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
fn machine(image: Image, memory_mib: u32, seed: u64, shape: Shape) -> Machine {
    Machine {
        cpus: shape.cpus(),
        memory_mib,
        timing: Timing::Deterministic { seed },
        lvz: true,
        image,
        append: format!("{STEADY} job_limit={JOB_LIMIT}"),
    }
}

/// The machine that runs `job` itself.
fn bare(lab: &Lab<'_>, seed: u64, job: &Job, shape: Shape) -> Result<Ready> {
    let mut machine = machine(Image::Bench, MEMORY_MIB, seed, shape);
    machine.append += shape.on_the_machine();
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
fn in_kvm(lab: &Lab<'_>, cpu: &str, seed: u64, job: &Job, shape: Shape) -> Result<Ready> {
    let append = |words: &str| format!("{COMMAND_LINE} {STEADY} job_limit={JOB_LIMIT}{words}");
    let mut vms = shape.vms().into_iter();
    let (_, vcpus, words, _) = vms.next().context("a shape has a VM")?;
    let neighbour = vms.next().map(|(_, _, words, _)| append(words));
    let variables = [
        ("CPU", cpu.to_owned()),
        ("VCPUS", vcpus.to_string()),
        ("MEMORY", MEMORY_MIB.to_string()),
        ("SEED", seed.to_string()),
        ("DISTURB", "no".to_owned()),
        ("APPEND", append(words)),
        ("NEIGHBOUR", neighbour.unwrap_or_default()),
    ];
    let host = Job::new(lab.cx, "kvm-host.sh", &variables)?.with_file("guest.cpio", job.bytes())?;
    with_initrd(lab, &machine(Image::KvmHost, HOST_MIB, seed, shape), &host)
}

/// The machine that runs `job` in a guest of ours, with or without the paravirtual IPI.
fn ours(lab: &Lab<'_>, paravirtual: bool, seed: u64, job: &Job, shape: Shape) -> Result<Ready> {
    let files = Files::new(lab.cx, Image::Bench, Some(job))?;
    let vm = |(name, vcpus, words, more)| LinuxVm {
        command_line: format!("{QUIET} {STEADY} job_limit={JOB_LIMIT}{words}"),
        more: format!("{more}[paravirt]\nipi = {paravirtual}"),
        ..LinuxVm::new(name, vcpus, MEMORY_MIB)
    };
    let vms: Vec<LinuxVm> = shape.vms().into_iter().map(vm).collect();
    let timing = Timing::Deterministic { seed };
    let machine = files.machine(lab.cx, &lab.hypervisor, &vms, shape.cpus(), timing)?;
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
    /// All that was printed.
    pub console: String,
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
