//! A guest that sends IPIs among its vCPUs, one at a time and in a storm, and counts who
//! has sent to whom, who has handled whose, and how many calls it took; with as many CPUs
//! as vCPUs and with far fewer, with ids dense and sparse, and without the feature.

use std::time::Instant;

use anyhow::{Context as _, Result};

use crate::hypervisor::{GuestVm, Hypervisor};
use crate::qemu::Timing;
use crate::test::alone::run_alone;
use crate::test::{Rig, Tally};

/// The guest's checks, all of which must have run.
pub const CHECKS: [&str; 9] = [
    "guest-pv.detect",
    "guest-pv.self",
    "guest-pv.single",
    "guest-pv.all",
    "guest-pv.pending",
    "guest-pv.pairs",
    "guest-pv.windows",
    "guest-pv.storm",
    "guest-pv.ledger",
];

/// The long form: seeds, how many times as often each vCPU sends, and how many IPIs all
/// deterministic runs come to at least.
const LONG_SEEDS: u64 = 50;
const LONG_ROUNDS: u32 = 2;
const LONG_TOTAL: u64 = 10_000_000;
/// Seeds of the long form's multi-threaded runs.
const LONG_THREADED: usize = 5;

/// A VM and the machine it runs on.
pub struct Shape {
    label: &'static str,
    ids: Vec<u32>,
    cpus: u32,
    paravirtual: bool,
    /// The ids make windows grow, and overflow, in every way.
    growth: bool,
    /// How often each vCPU sends in the storm.
    rounds: u32,
}

impl Shape {
    /// Paravirtual IPIs among vCPUs with these ids.
    pub fn new(label: &'static str, ids: Vec<u32>, cpus: u32, rounds: u32) -> Self {
        Self {
            label,
            ids,
            cpus,
            paravirtual: true,
            growth: false,
            rounds,
        }
    }

    /// The VM, with its random numbers by `seed`.
    pub fn vm(&self, seed: u64) -> GuestVm {
        let (pv, growth) = (u8::from(self.paravirtual), u8::from(self.growth));
        let rounds = self.rounds;
        let words = format!("mode=ipi pv={pv} growth={growth} rounds={rounds} seed={seed}");
        GuestVm {
            ids: self.ids.clone(),
            more: if self.paravirtual {
                "pv_ipi = true"
            } else {
                ""
            },
            ..GuestVm::new("a", 1, &words)
        }
    }
}

/// Ids of 16 vCPUs around the width of a window, in no order.
const AROUND: [u32; 16] = [
    400, 527, 528, 401, 399, 272, 273, 0, 127, 128, 1023, 896, 895, 600, 5, 700,
];

/// All shapes.
fn shapes() -> Vec<Shape> {
    let dense = |count| (0..count).collect();
    // Groups of 32, each begun in the middle, with steps of 7, 8 and 9.
    let sparse = (0..128_u32).map(|index| index ^ 21);
    let sparse = sparse.map(|place| place * 8 + place % 8).collect();
    vec![
        Shape::new("16 on 16", dense(16), 16, 400),
        Shape::new("16 on 4", dense(16), 4, 400),
        Shape {
            growth: true,
            ..Shape::new("16 on 4, ids around a window", AROUND.to_vec(), 4, 400)
        },
        Shape {
            paravirtual: false,
            ..Shape::new("16 on 4, native", dense(16), 4, 100)
        },
        Shape::new("128 on 4", dense(128), 4, 50),
        Shape {
            growth: true,
            ..Shape::new("128 on 4, sparse ids", sparse, 4, 50)
        },
        Shape::new("128 on 16", dense(128), 16, 25),
    ]
}

/// The first of them is the one seed of the short form.
fn seeds(rig: &Rig<'_>) -> std::ops::Range<u64> {
    let first = rig.seed();
    first..first + if rig.options.long { LONG_SEEDS } else { 1 }
}

/// Runs all shapes.
///
/// # Errors
/// A bundle can't be made.
pub fn run(rig: &Rig<'_>, tally: &mut Tally) -> Result<()> {
    let mut shapes = shapes();
    if rig.options.long {
        shapes
            .iter_mut()
            .for_each(|shape| shape.rounds *= LONG_ROUNDS);
    }
    let mut total = 0;
    for seed in seeds(rig) {
        for shape in &shapes {
            let timing = Timing::Deterministic { seed };
            total += shape.run(&rig.hypervisor, tally, timing, seed)?;
        }
    }
    if rig.options.long {
        let enough = (total >= LONG_TOTAL).then_some(());
        let enough = enough.with_context(|| format!("only {total} of {LONG_TOTAL}"));
        tally.check("IPIs enough", enough);
    }
    // QEMU's threads run on this machine's CPUs: no more of them than it has.
    for shape in shapes.iter().filter(|shape| shape.cpus == 4) {
        for seed in seeds(rig).take(LONG_THREADED) {
            shape.run(&rig.hypervisor, tally, Timing::Threads, seed)?;
        }
    }
    Ok(())
}

impl Shape {
    /// Runs it once; how many IPIs were handled.
    fn run(
        &self,
        hypervisor: &Hypervisor,
        tally: &mut Tally,
        timing: Timing,
        seed: u64,
    ) -> Result<u64> {
        let label = format!("{}, {}", self.label, timing.label());
        let vm = self.vm(seed);
        let start = Instant::now();
        let printed = run_alone(hypervisor, tally, &label, &vm, self.cpus, timing, &CHECKS)?;
        let (count, seconds) = (handled(&printed).unwrap_or(0), start.elapsed().as_secs());
        println!("{label}: {count} IPIs in {seconds} s");
        Ok(count)
    }
}

/// The number in the guest's line `guest: n IPIs`.
fn handled(printed: &str) -> Option<u64> {
    let mut counts = printed
        .lines()
        .filter_map(|line| line.strip_prefix("guest: ")?.strip_suffix(" IPIs"));
    counts.next_back()?.parse().ok()
}
