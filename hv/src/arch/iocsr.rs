//! The IOCSR space of the physical CPU.
//!
//! An offset is given as 64 bits: of a narrower value `asm!` leaves the
//! register's upper half as it was, and the instruction takes all of it.

use core::arch::asm;

/// Reads the 32-bit register at `offset`, zero-extended.
#[inline]
#[must_use]
pub fn read_32(offset: u32) -> u32 {
    let value: u64;
    // SAFETY: the registers that the hypervisor names have no read that
    // touches memory.
    unsafe {
        asm!("iocsrrd.w {}, {}", out(reg) value, in(reg) u64::from(offset), options(nostack))
    };
    value as u32
}

/// Reads the 64-bit register at `offset`.
#[inline]
#[must_use]
pub fn read_64(offset: u32) -> u64 {
    let value;
    // SAFETY: as in `read_32`.
    unsafe {
        asm!("iocsrrd.d {}, {}", out(reg) value, in(reg) u64::from(offset), options(nostack))
    };
    value
}

/// Writes the 32-bit register at `offset`.
///
/// # Safety
/// The caller answers for what the register controls.
#[inline]
pub unsafe fn write_32(offset: u32, value: u32) {
    // SAFETY: the caller's duty, as documented.
    unsafe { asm!("iocsrwr.w {}, {}", in(reg) value, in(reg) u64::from(offset), options(nostack)) };
}

/// Writes the 64-bit register at `offset`.
///
/// # Safety
/// The caller answers for what the register controls.
#[inline]
pub unsafe fn write_64(offset: u32, value: u64) {
    // SAFETY: the caller's duty, as documented.
    unsafe { asm!("iocsrwr.d {}, {}", in(reg) value, in(reg) u64::from(offset), options(nostack)) };
}
