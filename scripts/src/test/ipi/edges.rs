//! A vCPU that waits to be started, ids at the edges of a set and of all ids, and what a
//! reset leaves behind.

use anyhow::{Context as _, Result, ensure};

use crate::hypervisor::{GuestVm, Hypervisor, lines_of};
use crate::qemu::Timing;
use crate::test::alone::run_alone;
use crate::test::hv::PARAVIRTUAL;
use crate::test::linux::LIMIT;
use crate::test::{Rig, Tally};

/// Ids at the ends, and around the width of a set; the last vCPU stays parked where that
/// is asked for.
const IDS: [u32; 6] = [1023, 0, 128, 127, 1000, 896];

/// Checks that must have run.
const PARKED: [&str; 1] = ["parked.start"];
const EDGES: [&str; 4] = ["pv-ipi.edges", "pv-ipi.swi1", "pv-ipi.deaf", "pv-ipi.timer"];

/// How often a VM resets itself.
const RESETS: usize = 4;

/// Runs the checks.
///
/// # Errors
/// A bundle can't be made.
pub fn run(rig: &Rig<'_>, tally: &mut Tally) -> Result<()> {
    let deterministic = rig.timing();
    let vm = |words: &str| GuestVm {
        ids: IDS.to_vec(),
        more: PARAVIRTUAL,
        ..GuestVm::new("a", 1, words)
    };
    let runs: [(&str, &str, &[&str]); 2] = [
        ("parked", "mode=parked spares=1", &PARKED),
        ("edges", "only=pv-ipi", &EDGES),
    ];
    for (name, words, declared) in runs {
        for (cpus, timing) in [(2, deterministic), (1, deterministic), (2, Timing::Threads)] {
            let label = format!("{name}, {cpus} cpus, {}", timing.label());
            let vm = vm(words);
            run_alone(&rig.hypervisor, tally, &label, &vm, cpus, timing, declared)?;
        }
    }
    for timing in [deterministic, Timing::Threads] {
        let label = format!("a VM that resets itself, {}", timing.label());
        tally.check(&label, resets(&rig.hypervisor, vm("mode=reset"), timing));
    }
    Ok(())
}

/// It begins each time as at first, on a CPU that its vCPUs share.
fn resets(hypervisor: &Hypervisor, vm: GuestVm, timing: Timing) -> Result<()> {
    let mut running = hypervisor.machine(&[vm], 1, timing)?.spawn()?;
    for _ in 0..RESETS {
        running.console.wait_for("reset.clean", LIMIT)?;
        running.console.wait_for("it reset itself", LIMIT)?;
    }
    let lines = lines_of("a", &running.console.text());
    ensure!(!lines.contains("FAIL"), "{lines}");
    // A machine with threads may be starved while a VM begins.
    if timing != Timing::Threads {
        starts_anew(&lines)?;
    }
    Ok(())
}

/// Each life's counter begins before that of the life before it ended.
fn starts_anew(lines: &str) -> Result<()> {
    let mut end = u64::MAX;
    let mut lives = 0;
    for life in lines.lines().filter_map(|line| line.strip_prefix("ticks ")) {
        let (began, ended) = life.split_once(' ').context("two numbers")?;
        let (began, ended): (u64, u64) = (began.parse()?, ended.trim().parse()?);
        ensure!(began < end, "the counter goes on: {lines}");
        end = ended;
        lives += 1;
    }
    ensure!(lives >= RESETS, "{lives} lives have told their time");
    Ok(())
}
