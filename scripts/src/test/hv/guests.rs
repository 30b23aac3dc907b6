//! The guests' own checks, and a checked guest beside one that does its worst.

use std::time::Duration;

use anyhow::{Result, ensure};
use rayon::prelude::*;

use crate::hypervisor::{GuestVm, Hypervisor, lines_of};
use crate::qemu::Timing;
use crate::test::alone::{Alone, CLOSING, run_alone};
use crate::test::lines::Transcript;
use crate::test::{Options, Tally};

/// A run that takes longer hangs.
const LIMIT: Duration = Duration::from_secs(240);

/// vCPUs and CPUs of the runs.
const SHAPES: [(u32, u32); 5] = [(1, 1), (4, 4), (4, 1), (16, 16), (16, 4)];

/// Seeds of deterministic runs, in the short and in the long form.
const SEEDS: u64 = 2;
const LONG_SEEDS: u64 = 10;
/// Multi-threaded runs, likewise.
const THREADED: usize = 1;
const LONG_THREADED: usize = 8;

/// What a checked guest is offered.
pub const PARAVIRTUAL: &str = "pv_ipi = true\npv_steal_time = true\ncontrol = true";

/// What a guest that is checked alone has: a device right behind its RAM, too.
const ALONE: &str = "pv_ipi = true\npv_steal_time = true\ncontrol = true\ndevice = uart@0x4000000";

/// Guests that do their worst.
const WORST: [&str; 9] = [
    "zeros", "ones", "random", "words", "storm", "calls", "devices", "memory", "spin",
];

/// Runs them all.
///
/// # Errors
/// A bundle can't be made.
pub fn run(hypervisor: &Hypervisor, options: &Options, tally: &mut Tally) -> Result<()> {
    let shapes = SHAPES.into_iter();
    let runs = shapes.flat_map(|shape| timings(options).into_iter().map(move |t| alone(shape, t)));
    let (threaded, counted): (Vec<Alone>, Vec<Alone>) =
        runs.partition(|run| run.timing == Timing::Threads);
    // A deterministic machine needs one CPU; of two with threads neither would have enough.
    let each = counted.par_iter().with_max_len(1);
    let ran: Vec<_> = each.map(|run| run.run(hypervisor)).collect();
    for (run, ran) in counted.iter().zip(ran) {
        run.count(ran?, &[], tally);
    }
    for run in threaded {
        run.count(run.run(hypervisor)?, &[], tally);
    }
    sparse(hypervisor, tally)
}

/// All checks with as many vCPUs, on as many CPUs.
fn alone((vcpus, cpus): (u32, u32), timing: Timing) -> Alone {
    let clock = match timing {
        Timing::Deterministic { .. } | Timing::Slow { .. } => "counted",
        Timing::Threads => "real",
    };
    Alone {
        label: format!("{vcpus} vcpus, {cpus} cpus, {}", timing.label()),
        vm: GuestVm {
            more: ALONE,
            ..GuestVm::new("a", vcpus, &format!("cpus={cpus} clock={clock}"))
        },
        cpus,
        timing,
    }
}

/// A checked guest beside each that does its worst. In a deterministic run an endless
/// storm of exceptions takes seconds for each of its time slices, so the checked guest
/// gets few of them to sit out.
///
/// # Errors
/// None: a bundle that can't be made fails its check.
pub fn beside_worst(hypervisor: &Hypervisor, options: &Options, tally: &mut Tally) -> Result<()> {
    let seed = options.seed.unwrap_or(1);
    let deterministic = Timing::Deterministic { seed };
    let with = |cpus, timing, only| WORST.map(|kind| (kind, cpus, timing, only));
    let run = |&(kind, cpus, timing, only): &(&str, u32, Timing, &str)| {
        let label = format!("beside {kind}, {cpus} cpus, {}", timing.label());
        let vms = neighbours(kind, seed, only);
        (label, beside(hypervisor, &vms, cpus, timing))
    };
    let on_one = [with(1, deterministic, "call"), with(1, Timing::Threads, "")].concat();
    let on_two = with(2, Timing::Threads, "");
    let alone: Vec<_> = on_one.par_iter().with_max_len(1).map(run).collect();
    for (label, result) in alone.into_iter().chain(on_two.iter().map(run)) {
        tally.check(&label, result);
    }
    Ok(())
}

/// A guest that does its worst, and one that runs the checks named like `only`.
fn neighbours(kind: &str, seed: u64, only: &str) -> [GuestVm; 2] {
    let worst = format!("mode=evil kind={kind} seed={seed}");
    let good = GuestVm {
        more: PARAVIRTUAL,
        ..GuestVm::new("good", 2, &format!("only={only}"))
    };
    let evil = GuestVm {
        more: if kind == "memory" {
            "control = true"
        } else {
            ""
        },
        ..GuestVm::new("evil", 1, &worst)
    };
    [evil, good]
}

fn timings(options: &Options) -> Vec<Timing> {
    let (seeds, threaded) = if options.long {
        (LONG_SEEDS, LONG_THREADED)
    } else {
        (SEEDS, THREADED)
    };
    let first = options.seed.unwrap_or(1);
    let seeds = (first..first + seeds).map(|seed| Timing::Deterministic { seed });
    let threads = std::iter::repeat_n(Timing::Threads, threaded);
    seeds.chain(threads).collect()
}

/// Physical ids that are no indices.
fn sparse(hypervisor: &Hypervisor, tally: &mut Tally) -> Result<()> {
    let vm = GuestVm {
        ids: vec![0, 5, 64, 127],
        more: PARAVIRTUAL,
        ..GuestVm::new("a", 4, "only=ipi")
    };
    let timing = Timing::Deterministic { seed: 1 };
    run_alone(hypervisor, tally, "ids 0, 5, 64, 127", &vm, 2, timing, &[])?;
    Ok(())
}

/// The second of `vms`, the checked guest, passes, and the hypervisor goes on.
fn beside(hypervisor: &Hypervisor, vms: &[GuestVm; 2], cpus: u32, timing: Timing) -> Result<()> {
    let machine = hypervisor.machine(vms, cpus, timing)?;
    let mut running = machine.spawn()?;
    running.console.wait_for("VM good has stopped", LIMIT)?;
    // The one that does its worst runs on for a while, alone.
    std::thread::sleep(Duration::from_secs(1));
    let printed = running.console.text();
    let transcript = Transcript::parse(CLOSING, &lines_of("good", &printed), &[]);
    let failed = transcript.checks.iter();
    let failed = failed.filter_map(|(name, why)| Some(format!("{name}: {}", why.as_ref()?)));
    let faults: Vec<String> = failed.chain(transcript.faults).collect();
    ensure!(faults.is_empty(), "{}", faults.join("; "));
    ensure!(
        !printed.contains("FATAL"),
        "the hypervisor ended:\n{}",
        running.console.tail(40)
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_kinds_of_time_are_used() {
        let short = timings(&Options {
            seed: Some(7),
            ..Options::default()
        });
        let seeds = [7, 8].map(|seed| Timing::Deterministic { seed });
        assert_eq!(short, [seeds[0], seeds[1], Timing::Threads]);
    }
}
