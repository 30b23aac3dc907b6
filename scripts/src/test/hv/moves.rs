//! vCPUs on the move, exits among ticks, and IPIs among vCPUs that move.

use anyhow::Result;

use super::guests::PARAVIRTUAL;
use crate::hypervisor::{GuestVm, Hypervisor};
use crate::qemu::Timing;
use crate::test::alone::run_alone;
use crate::test::{Options, Tally};

/// vCPUs and CPUs of VMs whose vCPUs move.
const SHAPES: [(u32, u32); 4] = [(1, 2), (4, 2), (4, 4), (16, 4)];

/// Exits among ticks, in the short and in the long form; rounds of IPIs likewise.
const EXITS: [u64; 2] = [100_000, 1_000_000];
const ROUNDS: [u64; 2] = [60, 1000];

/// The checks of all shapes, which must have run.
const CHECKS: [&str; 7] = [
    "move.refused",
    "move.linked-load",
    "move.identifiers",
    "move.pending",
    "move.one-shot",
    "move.units",
    "move.alone",
];

/// Runs them.
///
/// # Errors
/// A bundle can't be made.
pub fn run(hypervisor: &Hypervisor, options: &Options, tally: &mut Tally) -> Result<()> {
    let seed = options.seed.unwrap_or(1);
    let form = usize::from(options.long);
    moves(hypervisor, seed, tally)?;
    let rounds = ROUNDS.get(form).copied().unwrap_or(0);
    storms(hypervisor, seed, rounds, tally)?;
    let limit = EXITS.get(form).copied().unwrap_or(0);
    let words = format!("mode=exits limit={limit}");
    let label = format!("{limit} exits among ticks");
    let (timing, declared) = (Timing::Deterministic { seed }, ["exits.ticks"]);
    let vm = vm(1, &words);
    run_alone(hypervisor, tally, &label, &vm, 1, timing, &declared)?;
    Ok(())
}

/// A VM that does what `words` say.
fn vm(vcpus: u32, words: &str) -> GuestVm {
    GuestVm {
        more: PARAVIRTUAL,
        ..GuestVm::new("a", vcpus, words)
    }
}

/// vCPUs that move while they do this and that.
fn moves(hypervisor: &Hypervisor, seed: u64, tally: &mut Tally) -> Result<()> {
    for (vcpus, cpus) in SHAPES {
        for timing in [Timing::Deterministic { seed }, Timing::Threads] {
            let label = format!("moves, {vcpus} vcpus, {cpus} cpus, {}", timing.label());
            let words = format!("mode=moves cpus={cpus}");
            let vm = vm(vcpus, &words);
            run_alone(hypervisor, tally, &label, &vm, cpus, timing, &CHECKS)?;
        }
    }
    Ok(())
}

/// vCPUs that move while they send IPIs to each other.
fn storms(hypervisor: &Hypervisor, seed: u64, rounds: u64, tally: &mut Tally) -> Result<()> {
    for timing in [Timing::Deterministic { seed }, Timing::Threads] {
        let label = format!("IPIs and moves, {}", timing.label());
        let words = format!("mode=ipi pv=1 moves=1 cpus=4 rounds={rounds} seed={seed} only=.");
        let declared = ["guest-pv.storm", "guest-pv.ledger"];
        let vm = vm(16, &words);
        run_alone(hypervisor, tally, &label, &vm, 4, timing, &declared)?;
    }
    Ok(())
}
