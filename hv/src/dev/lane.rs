//! Which bits of a 64-bit register an access of any width reaches.
//!
//! Registers are kept eight bytes wide. An access that crosses the end of
//! its register reaches what lies before it: beyond, it reads 0 and writes
//! nothing.

use crate::isa::insn::Width;

/// Bits of a 64-bit register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lane {
    shift: u32,
    mask: u64,
}

impl Lane {
    /// The `width` bytes at `offset`, within the register that has them.
    #[inline]
    #[must_use]
    pub const fn new(offset: u64, width: Width) -> Self {
        let shift = (offset & 7) as u32 * 8;
        Self {
            shift,
            mask: width.zero_extend(u64::MAX) << shift,
        }
    }

    /// The 32-bit half at `offset`, less the bytes whose bits are set in
    /// `keep`: what a send register writes.
    #[must_use]
    pub fn half_but(offset: u64, keep: u32) -> Self {
        let shift = (offset & 4) as u32 * 8;
        Self {
            shift,
            mask: u64::from(!byte_mask(keep)) << shift,
        }
    }

    /// The bits that it reaches.
    #[inline]
    #[must_use]
    pub const fn mask(self) -> u64 {
        self.mask
    }

    /// What a read of `register` gives, zero-extended.
    #[inline]
    #[must_use]
    pub const fn read(self, register: u64) -> u64 {
        (register & self.mask) >> self.shift
    }

    /// What is written, in its place in the register; 0 around it.
    #[inline]
    #[must_use]
    pub const fn place(self, value: u64) -> u64 {
        value << self.shift & self.mask
    }

    /// `register` after `value` has been written.
    #[inline]
    #[must_use]
    pub const fn merge(self, register: u64, value: u64) -> u64 {
        register & !self.mask | self.place(value)
    }
}

/// All bits of the bytes whose bits are set in `bytes` (0 to 15).
#[must_use]
pub fn byte_mask(bytes: u32) -> u32 {
    let byte = |index: u32| if bytes >> index & 1 == 1 { 0xff } else { 0 };
    u32::from_le_bytes([byte(0), byte(1), byte(2), byte(3)])
}

#[cfg(test)]
mod tests {
    use super::*;

    const REGISTER: u64 = 0x8877_6655_4433_2211;

    #[test]
    fn every_width_at_every_offset() {
        for (width, bytes) in [
            (Width::Byte, 1),
            (Width::Half, 2),
            (Width::Word, 4),
            (Width::Double, 8),
        ] {
            for offset in 0..8usize {
                let lane = Lane::new(offset as u64 + 0x40, width);
                let end = (offset + bytes).min(8);
                let mut read = [0; 8];
                read[..end - offset].copy_from_slice(&REGISTER.to_le_bytes()[offset..end]);
                assert_eq!(lane.read(REGISTER), u64::from_le_bytes(read));
                let mut merged = REGISTER.to_le_bytes();
                merged[offset..end].fill(0xee);
                let written = lane.merge(REGISTER, 0xeeee_eeee_eeee_eeee);
                assert_eq!(written, u64::from_le_bytes(merged));
            }
        }
    }

    #[test]
    fn sends_write_the_bytes_that_they_do_not_keep() {
        let lane = Lane::half_but(0x1c04, 0b0110);
        assert_eq!(lane.mask(), 0xff00_00ff_0000_0000);
        let written = lane.merge(REGISTER, 0xdead_beef);
        assert_eq!(written, 0xde77_66ef_4433_2211);
        assert_eq!(Lane::half_but(0x1c00, 0).mask(), 0xffff_ffff);
        assert_eq!(Lane::half_but(0x1c00, 0xf).mask(), 0);
    }
}
