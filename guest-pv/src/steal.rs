//! How much of a CPU's time the hypervisor gave to others.
//!
//! Each CPU gives the hypervisor a record, in which it adds up the time that
//! the CPU was ready and did not run. The hypervisor may write while another
//! CPU reads: the record's version is odd meanwhile, and even, but another,
//! afterwards.
//!
//! Source: Linux, kernel/paravirt.c (`paravt_steal_clock`).

use crate::abi::hypercall::CallError;
use crate::abi::steal::PREEMPTED;
use crate::call;
use crate::machine::Machine;
use crate::sync::{AtomicU8, AtomicU32, AtomicU64, Ordering, fence, spin_loop};

/// The record of one CPU, as both sides see it while they share it:
/// [`crate::abi::steal::StealTime`] in memory.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct StealRecord {
    steal: AtomicU64,
    version: AtomicU32,
    flags: AtomicU32,
    preempted: AtomicU8,
    pad: [u8; 47],
}

impl StealRecord {
    /// A record that nobody writes yet.
    #[must_use]
    #[cfg(not(loom))]
    pub const fn new() -> Self {
        Self {
            steal: AtomicU64::new(0),
            version: AtomicU32::new(0),
            flags: AtomicU32::new(0),
            preempted: AtomicU8::new(0),
            pad: [0; 47],
        }
    }

    /// A record that nobody writes yet.
    #[must_use]
    #[cfg(loom)]
    pub fn new() -> Self {
        Self {
            steal: AtomicU64::new(0),
            version: AtomicU32::new(0),
            flags: AtomicU32::new(0),
            preempted: AtomicU8::new(0),
            pad: [0; 47],
        }
    }

    /// Gives the record, which lies at the physical address `physical`, to
    /// the hypervisor as that of the calling CPU. Where
    /// [`PvFeatures::STEAL_TIME`](crate::abi::cpucfg::PvFeatures::STEAL_TIME)
    /// is offered.
    ///
    /// # Errors
    /// As [`call::register_steal_time`].
    ///
    /// # Safety
    /// `physical` is the record's address.
    pub unsafe fn register(
        &'static self,
        machine: &impl Machine,
        physical: u64,
    ) -> Result<(), CallError> {
        // SAFETY: the record is there for ever, all of it may be written at
        // any time, and the caller knows its address.
        unsafe { call::register_steal_time(machine, physical) }
    }

    /// Time stolen from the record's CPU since it was registered, in ns. Any
    /// CPU may ask.
    #[must_use]
    pub fn stolen(&self) -> u64 {
        loop {
            let before = self.version.load(Ordering::Acquire);
            let steal = self.steal.load(Ordering::Relaxed);
            fence(Ordering::Acquire);
            if before.is_multiple_of(2) && self.version.load(Ordering::Relaxed) == before {
                return steal;
            }
            spin_loop();
        }
    }

    /// Whether the record's CPU is off its physical CPU now: whoever waits
    /// for a lock of its may wait long. Where
    /// [`PvFeatures::PREEMPT`](crate::abi::cpucfg::PvFeatures::PREEMPT) is
    /// offered; false elsewhere.
    #[must_use]
    pub fn is_preempted(&self) -> bool {
        self.preempted.load(Ordering::Relaxed) & PREEMPTED != 0
    }
}

impl Default for StealRecord {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(not(loom))]
const _: () = {
    use crate::abi::steal::StealTime;
    use core::mem::offset_of;
    assert!(size_of::<StealRecord>() == size_of::<StealTime>());
    assert!(align_of::<StealRecord>() == align_of::<StealTime>());
    assert!(offset_of!(StealRecord, steal) == offset_of!(StealTime, steal));
    assert!(offset_of!(StealRecord, version) == offset_of!(StealTime, version));
    assert!(offset_of!(StealRecord, preempted) == offset_of!(StealTime, preempted));
};

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    #[cfg(not(loom))]
    use std::vec::Vec;

    /// The hypervisor's side: adds `ns` as the protocol wants it, but in two
    /// steps, so that a reader in between sees a number that never was.
    fn add(record: &StealRecord, ns: u64) {
        let version = record.version.load(Ordering::Relaxed);
        record.version.store(version + 1, Ordering::Relaxed);
        fence(Ordering::Release);
        let steal = record.steal.load(Ordering::Relaxed);
        record.steal.store(steal | 1, Ordering::Relaxed);
        record.steal.store(steal + ns, Ordering::Relaxed);
        record.version.store(version + 2, Ordering::Release);
    }

    #[cfg(not(loom))]
    #[test]
    fn a_reader_sees_only_whole_numbers() {
        static RECORD: StealRecord = StealRecord::new();
        let readers: Vec<_> = (0..2)
            .map(|_| {
                std::thread::spawn(|| {
                    let mut last = 0;
                    while last < 200_000 {
                        let now = RECORD.stolen();
                        assert!(now >= last && now.is_multiple_of(2), "{last} {now}");
                        last = now;
                    }
                })
            })
            .collect();
        (0..100_000).for_each(|_| add(&RECORD, 2));
        for reader in readers {
            reader.join().unwrap();
        }
    }

    #[cfg(loom)]
    #[test]
    fn a_reader_sees_only_whole_numbers() {
        loom::model(|| {
            let record = loom::sync::Arc::new(StealRecord::new());
            let reader = {
                let record = record.clone();
                loom::thread::spawn(move || record.stolen())
            };
            add(&record, 2);
            let seen = [reader.join().unwrap(), record.stolen()];
            assert!([[0, 2], [2, 2]].contains(&seen), "{seen:?}");
        });
    }

    #[cfg(not(loom))]
    #[test]
    fn a_cpu_is_off_while_the_byte_says_so() {
        let record = StealRecord::default();
        assert!(!record.is_preempted());
        record.preempted.store(PREEMPTED, Ordering::Relaxed);
        assert!(record.is_preempted());
    }
}
