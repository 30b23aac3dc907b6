//! IOCSR accesses.

use core::arch::asm;

/// Reads 32 bits.
pub fn read32(address: u32) -> u32 {
    let value: u64;
    // SAFETY: reads a register of the interrupt hardware.
    unsafe { asm!("iocsrrd.w {}, {}", out(reg) value, in(reg) address, options(nostack)) };
    value as u32
}

/// Reads 64 bits.
pub fn read64(address: u32) -> u64 {
    let value;
    // SAFETY: as in `read32`.
    unsafe { asm!("iocsrrd.d {}, {}", out(reg) value, in(reg) address, options(nostack)) };
    value
}

/// Writes 32 bits.
pub fn write32(address: u32, value: u32) {
    // SAFETY: writes a register of the interrupt hardware, which touches no
    // memory; the compiler keeps earlier stores before it (no `nomem`).
    unsafe { asm!("iocsrwr.w {}, {}", in(reg) value, in(reg) address, options(nostack)) };
}

/// Writes 64 bits.
pub fn write64(address: u32, value: u64) {
    // SAFETY: as in `write32`.
    unsafe { asm!("iocsrwr.d {}, {}", in(reg) value, in(reg) address, options(nostack)) };
}
