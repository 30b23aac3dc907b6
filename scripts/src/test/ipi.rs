//! Part `ipi`: the crate guest-pv on the hypervisor.
//!
//! A guest sends IPIs among its vCPUs, one at a time and in a storm, and counts who has
//! sent to whom, who has handled whose, and how many calls it took; with as many CPUs as
//! vCPUs and with far fewer, with ids dense and sparse, and without the feature.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

use super::alone::{CLOSING, run_alone};
use super::lines::Transcript;
use super::{Options, Part, Tally};
use crate::bare;
use crate::context::Context;
use crate::hypervisor::{GuestVm, Hypervisor, lines_of};
use crate::qemu::Timing;
use crate::suite::{NEEDS, to_end};

/// The part `ipi`.
pub struct Ipi;

/// The guest's checks, all of which must have run.
const CHECKS: [&str; 8] = [
    "guest-pv.detect",
    "guest-pv.self",
    "guest-pv.single",
    "guest-pv.all",
    "guest-pv.pending",
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

/// A run beside a guest that does its worst ends within this time.
const ABUSE_LIMIT: Duration = Duration::from_secs(1200);

/// The example prints its lines within this time.
const LIMIT: Duration = Duration::from_secs(60);

/// A VM and the machine it runs on.
struct Shape {
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
    fn new(label: &'static str, ids: Vec<u32>, cpus: u32, rounds: u32) -> Self {
        Self {
            label,
            ids,
            cpus,
            paravirtual: true,
            growth: false,
            rounds,
        }
    }

    fn vm(&self, seed: u64) -> GuestVm {
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
    ]
}

/// The first of them is the one seed of the short form.
fn seeds(options: &Options) -> std::ops::Range<u64> {
    let first = options.seed.unwrap_or(1);
    first..first + if options.long { LONG_SEEDS } else { 1 }
}

impl Part for Ipi {
    fn name(&self) -> &'static str {
        "ipi"
    }

    fn about(&self) -> &'static str {
        "IPIs among the vCPUs of a guest, by the crate guest-pv"
    }

    fn needs(&self) -> Vec<&'static str> {
        NEEDS.to_vec()
    }

    fn run(&self, cx: &Context, options: &Options, tally: &mut Tally) -> Result<()> {
        let mut hypervisor = Hypervisor::build(cx)?;
        let mut shapes = shapes();
        if options.long {
            shapes
                .iter_mut()
                .for_each(|shape| shape.rounds *= LONG_ROUNDS);
        }
        let mut total = 0;
        for seed in seeds(options) {
            for shape in &shapes {
                let timing = Timing::Deterministic { seed };
                total += shape.run(&hypervisor, tally, timing, seed)?;
            }
        }
        if options.long {
            let enough = (total >= LONG_TOTAL).then_some(());
            let enough = enough.with_context(|| format!("only {total} of {LONG_TOTAL}"));
            tally.check("IPIs enough", enough);
        }
        // QEMU's threads run on this machine's CPUs: no more of them than it has.
        for shape in shapes.iter().filter(|shape| shape.cpus == 4) {
            for seed in seeds(options).take(LONG_THREADED) {
                shape.run(&hypervisor, tally, Timing::Threads, seed)?;
            }
        }
        let abuse = abuse(&hypervisor, options);
        tally.check("beside a guest that calls and accesses at random", abuse);
        hypervisor.set_guest(&bare::build_example(cx, "guest-pv", "kernel")?)?;
        for paravirtual in [true, false] {
            let kind = if paravirtual { "paravirtual" } else { "native" };
            let name = format!("the example kernel, {kind}");
            tally.check(&name, example(&hypervisor, paravirtual));
        }
        Ok(())
    }
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

/// A guest that makes random calls, IOCSR accesses and reads of CPUCFG, and one beside it,
/// on the same CPUs, that checks all of its IPIs. Both end.
fn abuse(hypervisor: &Hypervisor, options: &Options) -> Result<()> {
    let seed = options.seed.unwrap_or(1);
    // Both take about as long.
    let (limit, rounds) = if options.long {
        (10_000_000, 20_000)
    } else {
        (200_000, 400)
    };
    let offered = "pv_ipi = true\npv_steal_time = true";
    let worst = format!("mode=evil kind=calls limit={limit} seed={seed}");
    let good = Shape::new("beside", (0..8).collect(), 2, rounds).vm(seed);
    let evil = GuestVm {
        more: offered,
        ..GuestVm::new("evil", 1, &worst)
    };
    let machine = hypervisor.machine(&[evil, good.clone()], 2, Timing::Threads)?;
    let printed = to_end(&machine, ABUSE_LIMIT)?;
    let printed = String::from_utf8_lossy(&printed);
    let done = format!("evil| evil: {limit} accesses");
    ensure!(printed.contains(&done), "no line `{done}`:\n{printed}");
    let declared = CHECKS.map(str::to_owned);
    let transcript = Transcript::parse(CLOSING, &lines_of(good.name, &printed), &declared);
    let failed = transcript.checks.iter();
    let failed = failed.filter_map(|(name, why)| Some(format!("{name}: {}", why.as_ref()?)));
    let faults: Vec<String> = failed.chain(transcript.faults).collect();
    ensure!(faults.is_empty(), "{}", faults.join("; "));
    Ok(())
}

/// The crate's example ends, having seen all its IPIs: a thousand calls to three CPUs.
fn example(hypervisor: &Hypervisor, paravirtual: bool) -> Result<()> {
    let (more, how) = if paravirtual {
        ("pv_ipi = true", "they took 1000 hypercalls")
    } else {
        ("", "all were native")
    };
    let vm = GuestVm {
        more,
        ..GuestVm::new("a", 4, "")
    };
    // It waits in a loop; QEMU's deterministic time lets one CPU loop for long before the
    // next one runs.
    let machine = hypervisor.machine(&[vm], 4, Timing::Threads)?;
    let mut running = machine.spawn()?;
    for line in ["a| 3000 IPIs handled by 3 CPUs", how] {
        running.console.wait_for(line, LIMIT)?;
    }
    Ok(())
}

/// The number in the guest's line `guest: n IPIs`.
fn handled(printed: &str) -> Option<u64> {
    let mut counts = printed
        .lines()
        .filter_map(|line| line.strip_prefix("guest: ")?.strip_suffix(" IPIs"));
    counts.next_back()?.parse().ok()
}
