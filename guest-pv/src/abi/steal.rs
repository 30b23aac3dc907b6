//! The steal-time record: how long a vCPU was ready and did not run.
//!
//! The guest gives its address with [`super::hypercall::NOTIFY`]; the
//! hypervisor writes it. `version` is odd while it is being written: a
//! reader tries again until it sees the same even number before and after.
//!
//! Source: Linux, asm/kvm_para.h (struct kvm_steal_time).

use core::mem::{align_of, offset_of, size_of};

/// The record, 64 bytes on a boundary of 64.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C, align(64))]
pub struct StealTime {
    /// Time stolen, in ns, added to what the guest left there at registration.
    pub steal: u64,
    /// Odd while the record is written.
    pub version: u32,
    /// No flag is defined: 0.
    pub flags: u32,
    /// [`PREEMPTED`] from when the vCPU lost its CPU though it could go on
    /// until it runs again; 0 while it runs, or sleeps of its own accord.
    pub preempted: u8,
    pad: [u8; 47],
}

impl StealTime {
    /// The record of a vCPU from which nothing has been stolen yet.
    pub const ZERO: Self = Self {
        steal: 0,
        version: 0,
        flags: 0,
        preempted: 0,
        pad: [0; 47],
    };
}

/// Value of [`StealTime::preempted`] while the vCPU is off its CPU.
pub const PREEMPTED: u8 = 1;

/// Bit 0 of the address in a2 of NOTIFY: the record is valid.
pub const ADDRESS_VALID: u64 = 1;
/// Bits 5:1 of that address, which must be 0.
pub const ADDRESS_RESERVED: u64 = 0x3e;

const _: () = assert!(size_of::<StealTime>() == 64 && align_of::<StealTime>() == 64);
const _: () = assert!(offset_of!(StealTime, version) == 8);
const _: () = assert!(offset_of!(StealTime, flags) == 12);
const _: () = assert!(offset_of!(StealTime, preempted) == 16);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn valid_and_reserved_bits_are_all_below_the_record_size() {
        assert_eq!(
            ADDRESS_VALID | ADDRESS_RESERVED,
            size_of::<StealTime>() as u64 - 1
        );
    }
}
