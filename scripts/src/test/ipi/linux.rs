//! Linux under a load of wake-ups and broadcasts, while a CPU goes off and on: with the
//! feature all of its IPIs but those that start a CPU are SWI0, without it none is.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use crate::guest::images::Image;
use crate::guest::job::Job;
use crate::guest::log::trouble;
use crate::guest::report::Report;
use crate::qemu::Timing;
use crate::suite::to_end;
use crate::test::{Rig, Tally};
use crate::vm::LinuxVm;

/// A run ends within this time.
const LIMIT: Duration = Duration::from_secs(600);
const LONG_LIMIT: Duration = Duration::from_secs(3600);

/// IPIs that a run must at least have taken, a vCPU: each thread is woken five times, and
/// messages wake many more.
const LEAST: u64 = 5;

/// How often a CPU goes off and on.
const ONLINED: u64 = 3;

/// A VM and its load.
struct Load {
    vcpus: u32,
    cpus: u32,
    memory_mib: u32,
    paravirtual: bool,
    /// Seconds of membarriers and futexes.
    storm: u32,
    timing: Timing,
}

/// The loads.
fn loads(rig: &Rig<'_>) -> Vec<Load> {
    let timing = rig.timing();
    let load = |vcpus, paravirtual, timing| Load {
        vcpus,
        cpus: 16,
        memory_mib: 1024,
        paravirtual,
        storm: 0,
        timing,
    };
    let mut loads = vec![load(16, true, timing), load(16, false, timing)];
    if rig.options.long {
        // A second of 16 CPUs is a billion instructions.
        let timing = rig.slow(4);
        loads.extend([true, false].map(|paravirtual| Load {
            memory_mib: 4096,
            storm: 4,
            ..load(64, paravirtual, timing)
        }));
    }
    loads
}

/// Runs the checks.
///
/// # Errors
/// A machine can't be made.
pub fn run(rig: &Rig<'_>, tally: &mut Tally) -> Result<()> {
    for load in loads(rig) {
        let kind = if load.paravirtual { "SWI0" } else { "native" };
        let label = format!("Linux, {} vCPUs, {kind} IPIs", load.vcpus);
        tally.check(&label, load.run(rig));
    }
    Ok(())
}

impl Load {
    fn run(&self, rig: &Rig<'_>) -> Result<()> {
        let variables = [
            ("THREADS", self.vcpus.to_string()),
            ("STORM", self.storm.to_string()),
            ("ONLINED", ONLINED.to_string()),
        ];
        let job = Job::new(rig.cx, "ipi-load.sh", &variables)?;
        let mut vm = LinuxVm::new("debian", self.vcpus, self.memory_mib);
        if !self.paravirtual {
            "[paravirt]\nipi = false\nsteal-time = false".clone_into(&mut vm.more);
        }
        let machine = rig.linux(Image::Bench, Some(&job), &[vm], self.cpus, self.timing)?;
        let limit = if rig.options.long { LONG_LIMIT } else { LIMIT };
        let printed = to_end(&machine, limit)?;
        self.judge(&String::from_utf8_lossy(&printed))
    }

    fn judge(&self, text: &str) -> Result<()> {
        let report = Report::read(text);
        let fact = |name: &str| report.fact(name).map(|values| values.join(" "));
        let is = |name: &str, want: &str| {
            let found = fact(name);
            ensure!(found.as_deref() == Some(want), "{name}: {found:?}\n{text}");
            Ok(())
        };
        is("cpus", &self.vcpus.to_string())?;
        is("onlined", &ONLINED.to_string())?;
        for name in ["futex", "messaging", "storm"] {
            is(name, "0")?;
        }
        let steal = self
            .paravirtual
            .then_some("steal-time with preempt enabled");
        ensure!(
            fact("paravirt").as_deref() == steal,
            "{:?}",
            fact("paravirt")
        );
        let of = |name| report.snapshot(name).context("no snapshot");
        let (start, end) = (of("start")?, of("end")?);
        let count = |name| {
            end.since(start, name)
                .map(|counts| counts.iter().sum::<u64>())
        };
        let (native, software) = (count("IPI").context("no IPI")?, count("SWI0-IPI"));
        let least = LEAST * u64::from(self.vcpus);
        println!(
            "{} vCPUs: SWI0-IPI +{software:?}, IPI +{native}",
            self.vcpus
        );
        match software {
            Some(software) => ensure!(
                self.paravirtual && software >= least && native == ONLINED,
                "{software} SWI0s, {native} native IPIs"
            ),
            None => ensure!(
                !self.paravirtual && native >= least,
                "no SWI0, {native} native IPIs"
            ),
        }
        let bad = trouble(text);
        ensure!(bad.is_empty(), "{}", bad.join("\n"));
        ensure!(report.ended.as_deref() == Some("0"), "the job didn't end");
        Ok(())
    }
}
