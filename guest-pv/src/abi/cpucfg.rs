//! The CPUCFG words that only a virtual machine has.
//!
//! A guest reads them with `cpucfg` once IOCSR has told it that it is a
//! guest ([`super::iocsr::Features::VM`]); on silicon the same words read 0.
//!
//! Source: Linux, asm/kvm_para.h (CPUCFG_KVM_BASE and what follows it).

use bitflags::bitflags;

/// First CPUCFG word of the hypervisor's area.
pub const AREA_FIRST: u32 = 0x4000_0000;
/// Last CPUCFG word of the hypervisor's area; what isn't named here reads 0.
pub const AREA_LAST: u32 = 0x4000_00ff;
/// Word that holds [`SIGNATURE_VALUE`].
pub const SIGNATURE: u32 = AREA_FIRST;
/// Word that holds [`PvFeatures`].
pub const FEATURES: u32 = AREA_FIRST + 4;

/// "KVM" and a zero byte, in memory order.
pub const SIGNATURE_VALUE: u32 = u32::from_le_bytes(*b"KVM\0");

bitflags! {
    /// The feature word at [`FEATURES`].
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct PvFeatures: u32 {
        /// Hypercall 1 sends an IPI that arrives as SWI0.
        const IPI = 1 << 1;
        /// Hypercall 2 registers a steal-time record.
        const STEAL_TIME = 1 << 2;
        /// The record's `preempted` byte is kept.
        const PREEMPT = 1 << 3;
        /// IOCSR 0x40000000 holds the virtual extension of EIOINTC.
        const VIRT_EXTIOI = 1 << 24;
        /// `hvcl 0x102` goes to a user-space VMM.
        const USER_HCALL = 1 << 25;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signature_is_what_linux_compares_with() {
        assert_eq!(SIGNATURE_VALUE, 0x004d_564b);
    }

    #[test]
    fn words_lie_in_the_area() {
        assert_eq!((SIGNATURE, FEATURES), (0x4000_0000, 0x4000_0004));
        assert!((AREA_FIRST..=AREA_LAST).contains(&FEATURES));
    }

    #[test]
    fn feature_bits_are_those_of_the_kernel_header() {
        assert_eq!(PvFeatures::all().bits(), 0x0300_000e);
    }
}
