//! Stolen time: how long a vCPU was ready while another one had its CPU.
//!
//! The guest names a record in its RAM; it is written when the vCPU is put
//! on a CPU that another one had before, and when it is taken off although
//! it could go on. A vCPU that has its CPU to itself costs nothing here. What
//! the guest left in the record is carried on, as KVM does: a guest that
//! takes a CPU off and on again goes on with its count.
//!
//! Threats: the guest may change the record at any time; it is read into
//! plain numbers, every one of which is a good one. The record is a buffer
//! in its RAM that was checked when it was named.
//!
//! Source: Linux 7.2, arch/loongarch/kvm/vcpu.c (kvm_update_stolen_time) for
//! what a guest may rely on; the record in `guest_pv::abi::steal`.

use crate::mm::addr::Gpa;
use crate::mm::guest_mem::GuestBuf;
use crate::mm::phys::PhysMem;
use core::cell::Cell;
use core::mem::{offset_of, size_of};
use core::sync::atomic::{Ordering, fence};
use guest_pv::abi::hypercall::CallError;
use guest_pv::abi::steal::{ADDRESS_RESERVED, ADDRESS_VALID, PREEMPTED, StealTime};

/// Nanoseconds of a second.
const NS: u128 = 1_000_000_000;

/// What is stolen from one vCPU. It belongs to the CPU that runs the vCPU.
#[derive(Debug, Default)]
pub struct StealClock {
    record: Cell<Option<GuestBuf>>,
    ready_since: Cell<u64>,
}

impl StealClock {
    /// The guest names its record, a2 of NOTIFY, which `hold` finds and keeps
    /// where it is; without [`ADDRESS_VALID`] it takes it back.
    ///
    /// # Errors
    /// Reserved bits are set, or the record isn't all in the guest's RAM.
    pub fn name(
        &self,
        a2: u64,
        hold: impl FnOnce(Gpa, u64) -> Option<GuestBuf>,
    ) -> Result<(), CallError> {
        if a2 & ADDRESS_RESERVED != 0 {
            return Err(CallError::InvalidParameter);
        }
        if a2 & ADDRESS_VALID == 0 {
            self.record.set(None);
            return Ok(());
        }
        let record = hold(Gpa::new(a2 & !ADDRESS_VALID), RECORD_BYTES);
        self.record
            .set(Some(record.ok_or(CallError::InvalidParameter)?));
        Ok(())
    }

    /// Whether there is a record.
    #[must_use]
    pub fn is_named(&self) -> bool {
        self.record.get().is_some()
    }

    /// The vCPU, which slept, can run from `now` (ticks) on.
    pub fn ready(&self, now: u64) {
        self.ready_since.set(now);
    }

    /// The vCPU gets a CPU at `now` (ticks) that another one had; there are
    /// `per_second()` ticks a second. How many ticks were stolen from it.
    #[must_use = "what is stolen is counted whether the guest has a record or not"]
    pub fn scheduled_in(
        &self,
        now: u64,
        per_second: impl FnOnce() -> u64,
        memory: &mut impl PhysMem,
    ) -> u64 {
        let ticks = now.saturating_sub(self.ready_since.get());
        if let Some(record) = self.record.get() {
            add(record, nanoseconds(ticks, per_second()), memory);
        }
        ticks
    }

    /// The vCPU loses its CPU at `now` (ticks) though it could go on.
    pub fn preempted(&self, now: u64, memory: &mut impl PhysMem) {
        self.ready(now);
        if let Some(record) = self.record.get() {
            put(record, PREEMPTED_AT, &[PREEMPTED], memory);
        }
    }
}

/// `ticks` in ns, where there are `per_second` ticks a second.
#[must_use]
pub fn nanoseconds(ticks: u64, per_second: u64) -> u64 {
    (u128::from(ticks) * NS / u128::from(per_second.max(1))) as u64
}

const RECORD_BYTES: u64 = size_of::<StealTime>() as u64;
const STEAL_AT: u64 = offset_of!(StealTime, steal) as u64;
const VERSION_AT: u64 = offset_of!(StealTime, version) as u64;
const PREEMPTED_AT: u64 = offset_of!(StealTime, preempted) as u64;

/// Adds `ns` to the record, whose version is odd meanwhile; a version that
/// the guest left odd becomes an even one.
fn add(record: GuestBuf, ns: u64, memory: &mut impl PhysMem) {
    let (mut steal, mut version) = ([0; 8], [0; 4]);
    get(record, STEAL_AT, &mut steal, memory);
    get(record, VERSION_AT, &mut version, memory);
    let odd = u32::from_le_bytes(version) | 1;
    put(record, VERSION_AT, &odd.to_le_bytes(), memory);
    fence(Ordering::Release);
    let steal = u64::from_le_bytes(steal).wrapping_add(ns);
    put(record, STEAL_AT, &steal.to_le_bytes(), memory);
    put(record, PREEMPTED_AT, &[0], memory);
    fence(Ordering::Release);
    put(
        record,
        VERSION_AT,
        &odd.wrapping_add(1).to_le_bytes(),
        memory,
    );
}

fn get(record: GuestBuf, at: u64, into: &mut [u8], memory: &impl PhysMem) {
    if let Some(field) = record.part(at, into.len() as u64) {
        field.read(memory, into);
    }
}

fn put(record: GuestBuf, at: u64, from: &[u8], memory: &mut impl PhysMem) {
    if let Some(field) = record.part(at, from.len() as u64) {
        field.write(memory, from);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mm::addr::Hpa;
    use crate::mm::guest_mem::{GuestRam, RamRegion};
    use crate::mm::phys::FakeMem;

    const RECORD: u64 = 0x4040;

    fn ram() -> GuestRam {
        let region = |gpa, hpa| RamRegion {
            gpa: Gpa::new(gpa),
            hpa: Hpa::new(hpa),
            bytes: 0x4000,
        };
        GuestRam::new(vec![region(0x4000, 0), region(0x8000_0000, 0x4000)]).unwrap()
    }

    fn find(gpa: Gpa, bytes: u64) -> Option<GuestBuf> {
        GuestBuf::new(&ram(), gpa, bytes)
    }

    /// steal, version, preempted of the record at [`RECORD`].
    fn seen(memory: &FakeMem) -> (u64, u32, u8) {
        let bytes = &memory.0[0x40..0x80];
        let steal = u64::from_le_bytes(bytes[..8].try_into().unwrap());
        let version = u32::from_le_bytes(bytes[8..12].try_into().unwrap());
        (steal, version, bytes[16])
    }

    #[test]
    fn time_between_ready_and_scheduled_in_is_stolen() {
        let (clock, mut memory) = (StealClock::default(), FakeMem(vec![0; 0x8000]));
        clock.name(RECORD | 1, find).unwrap();
        clock.preempted(0, &mut memory);
        assert_eq!(seen(&memory), (0, 0, PREEMPTED));
        clock.ready(1000);
        let stolen = clock.scheduled_in(1700, || 100_000_000, &mut memory);
        assert_eq!(stolen, 700);
        assert_eq!(seen(&memory), (7000, 2, 0));
        clock.ready(2000);
        let stolen = clock.scheduled_in(2003, || 100_000_000, &mut memory);
        assert_eq!((stolen, seen(&memory)), (3, (7030, 4, 0)));
    }

    #[test]
    fn records_that_are_no_records_are_refused_and_the_old_one_stays() {
        let (clock, mut memory) = (StealClock::default(), FakeMem(vec![0; 0x8000]));
        clock.name(RECORD | 1, find).unwrap();
        for bad in [
            RECORD | 3,
            RECORD | 0x20,
            2,
            0x3fc0 | 1,
            0x8000 | 1,
            0x8000_4000 | 1,
            !0x3e,
        ] {
            assert_eq!(
                clock.name(bad, find),
                Err(CallError::InvalidParameter),
                "{bad:#x}"
            );
        }
        clock.ready(0);
        let _ = clock.scheduled_in(1, || 1_000_000_000, &mut memory);
        assert_eq!(seen(&memory).0, 1);
    }

    #[test]
    fn the_last_record_of_a_region_is_whole() {
        let (clock, mut memory) = (StealClock::default(), FakeMem(vec![0; 0x8000]));
        clock.name(0x8000_3fc0 | 1, find).unwrap();
        clock.ready(0);
        let _ = clock.scheduled_in(5, || 1_000_000_000, &mut memory);
        assert_eq!(memory.0[0x7fc0], 5);
    }

    #[test]
    fn a_record_taken_back_is_written_no_more() {
        let (clock, mut memory) = (StealClock::default(), FakeMem(vec![0; 0x8000]));
        clock.name(RECORD | 1, find).unwrap();
        clock.name(0, find).unwrap();
        clock.preempted(0, &mut memory);
        clock.ready(0);
        let stolen = clock.scheduled_in(9, || 1_000_000_000, &mut memory);
        assert_eq!(seen(&memory), (0, 0, 0));
        // It is counted all the same.
        assert_eq!(stolen, 9);
    }

    #[test]
    fn what_the_guest_left_is_carried_on() {
        let (clock, mut memory) = (StealClock::default(), FakeMem(vec![0xff; 0x8000]));
        clock.name(RECORD | 1, find).unwrap();
        clock.ready(0);
        let _ = clock.scheduled_in(3, || 1_000_000_000, &mut memory);
        assert_eq!(seen(&memory), (2, 0, 0));
        // The clock never goes back, whatever is asked.
        clock.ready(10);
        assert_eq!(clock.scheduled_in(4, || 0, &mut memory), 0);
        assert_eq!(seen(&memory), (2, 2, 0));
    }

    #[test]
    fn a_century_in_ticks_is_one_in_nanoseconds() {
        let century = 100 * 365 * 86_400;
        assert_eq!(
            nanoseconds(century * 100_000_000, 100_000_000),
            century * 1_000_000_000
        );
        assert_eq!(
            (nanoseconds(3, 7), nanoseconds(3, 0)),
            (428_571_428, 3_000_000_000)
        );
    }
}
