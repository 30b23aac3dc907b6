//! Counters of a vCPU: why it left the guest, what it called.
//!
//! Only the CPU that runs the vCPU counts; others may read at any time. A
//! count is a load, an addition and a store, whether anybody reads or not.

use core::sync::atomic::{AtomicU64, Ordering};
use guest_pv::abi::hypercall;
use guest_pv::abi::vendor::{self, ExitReason};

/// A counter with one writer.
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Counts one more.
    #[inline]
    pub fn count(&self) {
        self.add(1);
    }

    /// Makes it `value`.
    #[inline]
    pub fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    /// Counts `more` of them.
    #[inline]
    pub fn add(&self, more: u64) {
        let value = self.0.load(Ordering::Relaxed);
        self.0.store(value.wrapping_add(more), Ordering::Relaxed);
    }

    /// The value.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Calls that are counted by themselves; all others share a counter.
const CALLS: usize = 3 + vendor::COUNT as usize;

/// The functions with a counter of their own, 0 for the others' one, and what
/// they are called.
pub const CALLED: [(u64, &str); CALLS] = [
    (0, "other"),
    (hypercall::SEND_IPI, "send-ipi"),
    (hypercall::NOTIFY, "notify"),
    (vendor::NULL, "null"),
    (vendor::IDENTIFY, "identify"),
    (vendor::EXIT_COUNT, "exit-count"),
    (vendor::CALL_COUNT, "call-count"),
    (vendor::STOP, "stop"),
    (vendor::NULL_GENERAL, "null-general"),
    (vendor::STOLEN, "stolen"),
    (vendor::MEMORY_RELEASE, "memory-release"),
    (vendor::MEMORY_CLAIM, "memory-claim"),
    (vendor::MEMORY_PROTECT, "memory-protect"),
    (vendor::MOVE_VCPU, "move-vcpu"),
];

/// The counters of one vCPU.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Stats {
    /// Hypercalls: all others, [`hypercall::SEND_IPI`],
    /// [`hypercall::NOTIFY`], then the vendor's.
    calls: [Counter; CALLS],
    exits: [Counter; ExitReason::ALL.len()],
    /// Accesses to IOCSR offsets that no device has.
    pub unknown_iocsr: Counter,
    /// Exits for an IPI of the CPU; those for its other interrupts are among
    /// `exits`.
    pub kicks: Counter,
    /// Sleeps that a post has ended.
    pub woken: Counter,
    /// When it last went to sleep, and how long it slept before that, in ticks.
    pub slept: Counter,
    /// See `slept`.
    pub asleep: Counter,
    /// Ticks for which the vCPU was ready while another one had its CPU.
    pub stolen: Counter,
}

/// Offset in [`Stats`] of the counter of calls of `function`.
#[must_use]
pub const fn call_offset(function: u64) -> usize {
    core::mem::offset_of!(Stats, calls) + call_index(function) * size_of::<Counter>()
}

/// Offset in [`Stats`] of the counter of exits for an IPI of the CPU.
pub const KICKS: usize = core::mem::offset_of!(Stats, kicks);

/// Offset in [`Stats`] of the counter of exits for `reason`.
#[must_use]
pub const fn exit_offset(reason: ExitReason) -> usize {
    core::mem::offset_of!(Stats, exits) + reason as usize * size_of::<Counter>()
}

impl Stats {
    /// Counts an exit. Hypercalls are counted by [`Stats::call`] alone, and
    /// IPIs of the CPU in `kicks`.
    #[inline]
    pub fn exit(&self, reason: ExitReason) {
        if let Some(counter) = self.exits.get(reason as usize) {
            counter.count();
        }
    }

    /// Counts a hypercall of function `function`.
    #[inline]
    pub fn call(&self, function: u64) {
        if let Some(counter) = self.calls.get(call_index(function)) {
            counter.count();
        }
    }

    /// How often the vCPU left the guest for `reason`.
    #[must_use]
    pub fn exits(&self, reason: ExitReason) -> u64 {
        let others = self.exits.get(reason as usize).map_or(0, Counter::get);
        match reason {
            ExitReason::Hypercall => self.calls.iter().map(Counter::get).sum(),
            ExitReason::HostInterrupt => others + self.kicks.get(),
            _ => others,
        }
    }

    /// How often the vCPU called `function`, 0 standing for all that have no
    /// counter of their own; `None` for one of those.
    #[must_use]
    pub fn calls(&self, function: u64) -> Option<u64> {
        match (function, call_index(function)) {
            (1.., 0) => None,
            (_, index) => self.calls.get(index).map(Counter::get),
        }
    }
}

/// The counter of `function`.
#[inline]
const fn call_index(function: u64) -> usize {
    match function {
        hypercall::SEND_IPI => 1,
        hypercall::NOTIFY => 2,
        _ => match function.wrapping_sub(vendor::FIRST) {
            index @ 0..vendor::COUNT => 3 + index as usize,
            _ => 0,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_have_a_counter_each_and_the_rest_one_together() {
        let stats = Stats::default();
        for function in [0, 1, 2, 3, vendor::NULL, vendor::STOP, u64::MAX] {
            stats.call(function);
        }
        assert_eq!(stats.calls(0), Some(3));
        assert_eq!(stats.calls(1), Some(1));
        assert_eq!(stats.calls(vendor::STOP), Some(1));
        assert_eq!(stats.calls(vendor::IDENTIFY), Some(0));
        assert_eq!(stats.calls(3), None);
        assert_eq!(stats.calls(u64::MAX), None);
        assert_eq!(stats.exits(ExitReason::Hypercall), 7);
    }

    #[test]
    fn every_counter_of_calls_has_a_name() {
        for (index, (function, name)) in CALLED.into_iter().enumerate() {
            assert_eq!(call_index(function), index, "{name}");
        }
    }

    #[test]
    fn exits_are_counted_by_reason() {
        let stats = Stats::default();
        for reason in ExitReason::ALL {
            for _ in 0..reason as usize {
                stats.exit(reason);
            }
        }
        for reason in ExitReason::ALL
            .into_iter()
            .filter(|r| *r != ExitReason::Hypercall)
        {
            assert_eq!(stats.exits(reason), reason as u64, "{}", reason.name());
        }
    }

    #[test]
    fn short_cuts_count_in_the_right_place() {
        let stats = Stats::default();
        stats.call(vendor::NULL);
        stats.exit(ExitReason::Iocsr);
        stats.kicks.count();
        let words: &[u64; size_of::<Stats>() / 8] =
            // SAFETY: `Stats` is an array of 64-bit counters, borrowed here.
            unsafe { &*(&raw const stats).cast() };
        assert_eq!(words[call_offset(vendor::NULL) / 8], 1);
        assert_eq!(words[exit_offset(ExitReason::Iocsr) / 8], 1);
        assert_eq!(words[KICKS / 8], 1);
        assert_eq!(stats.exits(ExitReason::HostInterrupt), 1);
        assert_eq!(words.iter().sum::<u64>(), 3);
    }
}
