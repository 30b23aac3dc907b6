//! Who has sent how many IPIs to whom, and who has handled how many of whom.
//!
//! An action's bit in a message word doesn't say who wants it, and two may
//! want the same at once. So each sender also leaves its mark with the target,
//! one for each action, and sends that action to that target again only after
//! the mark was taken: each mark is one IPI.

use super::{ACTIONS, CPUS, FIRST_ACTION, action, ipi, machine};
use crate::check::{Outcome, equal};
use crate::runtime::smp::{self, MAX_CPUS};
use crate::runtime::trap::taken_by;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use guest_pv::cpu_set::CpuSet;
use guest_pv::ipi::{Action, Actions};
use loongarch_isa::exception::Interrupt;

type PerCpu<T> = [T; MAX_CPUS];
/// A bit for each sender.
type Marks = [AtomicU64; MAX_CPUS / 64];

/// By target and action.
static MARKS: PerCpu<[Marks; ACTIONS]> =
    [const { [const { [const { AtomicU64::new(0) }; MAX_CPUS / 64] }; ACTIONS] }; MAX_CPUS];
/// By sender and target.
static SENT: PerCpu<PerCpu<AtomicU32>> =
    [const { [const { AtomicU32::new(0) }; MAX_CPUS] }; MAX_CPUS];
/// By target and sender.
static HANDLED: PerCpu<PerCpu<AtomicU32>> =
    [const { [const { AtomicU32::new(0) }; MAX_CPUS] }; MAX_CPUS];
/// How often the handler of each found a message word that was not zero.
static TOLD: PerCpu<AtomicU64> = [const { AtomicU64::new(0) }; MAX_CPUS];

fn marks(target: usize, action: Action) -> &'static Marks {
    &MARKS[target][(action.number() - FIRST_ACTION) as usize]
}

/// vCPU `from` sends `action` to those of `targets` that have no mark of it
/// left; how many.
pub fn send(from: usize, targets: &CpuSet, action: Action) -> usize {
    let mut free = *targets;
    for target in targets {
        let word = &marks(target, action)[from / 64];
        let bit = 1 << (from % 64);
        if word.fetch_or(bit, Ordering::SeqCst) & bit != 0 {
            free.remove(target);
        } else {
            SENT[from][target].fetch_add(1, Ordering::Relaxed);
        }
    }
    let sent = match free.iter().next() {
        Some(only) if free.len() == 1 => ipi().send_ipi_single(only, action),
        _ => ipi().send_ipi_mask(&free, action),
    };
    // All targets are vCPUs that run.
    sent.map_or(0, |()| free.len())
}

/// vCPU `cpu` has been told `actions`: takes their marks.
pub fn handle(cpu: usize, actions: Actions) {
    if !actions.is_empty() {
        TOLD[cpu].fetch_add(1, Ordering::Relaxed);
    }
    let ours = FIRST_ACTION..FIRST_ACTION + ACTIONS as u32;
    for action in actions.into_iter().filter(|a| ours.contains(&a.number())) {
        for (index, word) in marks(cpu, action).iter().enumerate() {
            let mut left = word.swap(0, Ordering::SeqCst);
            while left != 0 {
                let from = index * 64 + left.trailing_zeros() as usize;
                left &= left - 1;
                HANDLED[cpu][from].fetch_add(1, Ordering::Release);
            }
        }
    }
}

/// Whether nothing is wanted of vCPU `cpu` any more.
pub fn at_rest(cpu: usize) -> bool {
    let unmarked = |marks: &Marks| marks.iter().all(|word| word.load(Ordering::SeqCst) == 0);
    CPUS[cpu].wanted().is_empty() && MARKS[cpu].iter().all(unmarked)
}

/// How many of `from`'s IPIs `cpu` has handled.
pub fn handled(cpu: usize, from: usize) -> u32 {
    HANDLED[cpu][from].load(Ordering::Acquire)
}

/// How many of `from`'s IPIs everyone has handled.
pub fn handled_of(from: usize) -> u64 {
    let by = (0..smp::count()).map(|cpu| u64::from(handled(cpu, from)));
    by.sum()
}

/// How many IPIs were handled.
pub fn total() -> u64 {
    (0..smp::count()).map(handled_of).sum()
}

/// Sent is handled for every pair, every message word is 0, and, for
/// paravirtual IPIs: interrupts, words found set, and calls that named a vCPU
/// are equally many.
pub fn balances() -> Outcome {
    for to in 0..smp::count() {
        for (from, sent) in SENT.iter().enumerate().take(smp::count()) {
            let sent = sent[to].load(Ordering::Relaxed);
            equal("handled of a pair", handled(to, from).into(), sent.into())?;
        }
        equal("message word", CPUS[to].wanted().bits().into(), 0)?;
        let swi0s = taken_by(to, Interrupt::SWI0);
        equal("SWI0s, by calls", swi0s, machine::named(to))?;
        if ipi().is_paravirtual() {
            equal("SWI0s, by words", swi0s, TOLD[to].load(Ordering::Relaxed))?;
        }
    }
    Ok(())
}

/// Action number `index` of those that are sent.
pub fn nth_action(index: u64) -> Action {
    action(FIRST_ACTION + index as u32 % ACTIONS as u32)
}
