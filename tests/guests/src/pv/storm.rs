//! Everyone sends to everyone at once: singles, random sets, all, oneself;
//! and sleeps now and then.

use super::serve::{self, until, until_others};
use super::{MOVES, ROUNDS, SEED, everyone, ledger, machine};
use crate::check::{Outcome, equal};
use crate::runtime::random::Random;
use crate::runtime::trap::{mask, unmask};
use crate::runtime::{doze, smp};
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use guest_pv::abi::hypercall::SEND_IPI;
use guest_pv::call;
use guest_pv::cpu_set::CpuSet;
use guest_pv::loongarch::Native;

/// vCPUs that have sent all they wanted.
static FINISHED: AtomicUsize = AtomicUsize::new(0);
/// vCPUs that something was still wanted of at the end.
static RESTLESS: AtomicU64 = AtomicU64::new(0);
/// vCPUs of which the hypervisor counted other calls than they made.
static MISCOUNTED: AtomicU64 = AtomicU64::new(0);

/// The check.
pub fn run() -> Outcome {
    for counter in [&RESTLESS, &MISCOUNTED] {
        counter.store(0, Ordering::SeqCst);
    }
    FINISHED.store(0, Ordering::SeqCst);
    smp::on_all(storm);
    equal("vCPUs that wait", RESTLESS.load(Ordering::SeqCst), 0)?;
    equal(
        "vCPUs whose calls differ",
        MISCOUNTED.load(Ordering::SeqCst),
        0,
    )
}

/// How many more calls the hypervisor has counted than the guest made.
fn uncounted(cpu: usize) -> u64 {
    let host = call::call_count(&Native, SEND_IPI).unwrap_or(u64::MAX);
    host.wrapping_sub(machine::calls(cpu))
}

fn storm(cpu: usize) {
    let seed = SEED.load(Ordering::Relaxed) << 8 | cpu as u64;
    let mut random = Random::new(seed);
    let before = uncounted(cpu);
    serve::begin();
    for _ in 0..ROUNDS.load(Ordering::Relaxed) {
        let targets = pick(&mut random, cpu);
        ledger::send(cpu, &targets, ledger::nth_action(random.below(4)));
        if MOVES.load(Ordering::Relaxed) != 0 && random.below(4) == 0 {
            let who = random.below(smp::count() as u64) as usize;
            crate::moves::go(who, random.next());
        }
        if random.below(8) == 0 {
            mask();
            doze(1 + random.below(40));
            unmask();
        }
    }
    let rest = || ledger::at_rest(cpu);
    if FINISHED.fetch_add(1, Ordering::SeqCst) + 1 == smp::count() {
        serve::wake_all();
    }
    let all = || FINISHED.load(Ordering::SeqCst) == smp::count();
    let all_finished = until_others(20_000, all);
    if !all_finished || !until(100, rest) {
        RESTLESS.fetch_add(1, Ordering::SeqCst);
    }
    serve::end();
    MISCOUNTED.fetch_add((uncounted(cpu) != before).into(), Ordering::SeqCst);
}

/// Half of them one, most others a few, now and then oneself or everyone.
fn pick(random: &mut Random, cpu: usize) -> CpuSet {
    let count = smp::count() as u64;
    let mut targets = CpuSet::EMPTY;
    let some = match random.below(32) {
        0 => return everyone(),
        1..4 => {
            let _ = targets.insert(cpu);
            0
        }
        4..16 => 2 + random.below(6),
        _ => 1,
    };
    for _ in 0..some {
        let _ = targets.insert(random.below(count) as usize);
    }
    targets
}
