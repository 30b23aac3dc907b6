//! From "this line may have changed" to the guest's registers.
//!
//! Posts say which lines may have changed; what level they have now is asked
//! of whoever drives them, at the moment it is applied. SWI0, SWI1, PMI, TI
//! and IPI are bits of the guest's ESTAT; HWI0 to HWI7 are bits of the host's
//! GINTC, which shows them to the guest.
//!
//! Source: arch/loongarch/kvm/interrupt.c of Linux 7.2.

use crate::isa::exception::{HARDWARE_INTERRUPTS, Interrupt};

/// Lines that are levels: HWI0 to HWI7 and IPI. The others are only ever
/// raised from outside, and cleared by the guest.
pub const LEVELS: u64 = HARDWARE_LINES | Interrupt::IPI.bit();
/// HWI0 to HWI7, as in ESTAT.
pub const HARDWARE_LINES: u64 = ((1 << HARDWARE_INTERRUPTS) - 1) << HARDWARE_SHIFT;
/// Bit of HWI0 in ESTAT.
const HARDWARE_SHIFT: u8 = Interrupt::hwi(0).number();

/// Bits to change in the guest's ESTAT and in GINTC.HWIS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Apply {
    /// ESTAT: bits to write.
    pub estat_mask: u64,
    /// ESTAT: their values.
    pub estat: u64,
    /// GINTC: bits to write, HWI0 at bit 0.
    pub gintc_mask: u64,
    /// GINTC: their values.
    pub gintc: u64,
}

/// What to change for `changed` lines, of which those in `levels` are high.
/// Both are as in ESTAT; `levels` matters for lines that are levels.
#[inline]
#[must_use]
pub const fn apply(changed: u64, levels: u64) -> Apply {
    let wanted = changed & (levels | !LEVELS);
    Apply {
        estat_mask: changed & !HARDWARE_LINES,
        estat: wanted & !HARDWARE_LINES,
        gintc_mask: (changed & HARDWARE_LINES) >> HARDWARE_SHIFT,
        gintc: (wanted & HARDWARE_LINES) >> HARDWARE_SHIFT,
    }
}

/// Whether the timer expired while ESTAT was being exchanged, so that its
/// interrupt may be lost: TVAL counts down, and only an expiry makes it grow.
#[inline]
#[must_use]
pub const fn timer_expired(tval_before: u64, tval_after: u64) -> bool {
    tval_after > tval_before
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_zero_is_raised_like_the_others() {
        let done = apply(1, 0);
        assert_eq!((done.estat_mask, done.estat), (1, 1));
        assert_eq!((done.gintc_mask, done.gintc), (0, 0));
    }

    #[test]
    fn levels_follow_their_source_both_ways() {
        let ipi = Interrupt::IPI.bit();
        assert_eq!(apply(ipi, ipi).estat, ipi);
        assert_eq!(apply(ipi, 0).estat, 0);
        assert_eq!(apply(ipi, 0).estat_mask, ipi);
        let (hwi0, hwi7) = (Interrupt::hwi(0).bit(), Interrupt::hwi(7).bit());
        let done = apply(hwi0 | hwi7, hwi7);
        assert_eq!((done.gintc_mask, done.gintc), (0x81, 0x80));
        assert_eq!(done.estat_mask, 0);
    }

    #[test]
    fn lines_that_were_not_posted_are_left_alone() {
        let done = apply(Interrupt::SWI1.bit(), u64::MAX);
        assert_eq!((done.estat_mask, done.estat), (2, 2));
        assert_eq!(done.gintc_mask, 0);
        assert_eq!(apply(0, u64::MAX), apply(0, 0));
    }

    #[test]
    fn only_an_expiry_makes_tval_grow() {
        assert!(timer_expired(2, (1 << 48) - 1) && timer_expired(1, 0x400));
        assert!(!timer_expired(5, 4) && !timer_expired(5, 5));
    }
}
