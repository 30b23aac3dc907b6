//! A way to raise this CPU's hardware interrupt lines: messages through the
//! PCH-MSI to the extended I/O interrupt controller.
//!
//! Source: *Loongson 3A5000 Processor Reference Manual*, section 11.2, for
//! the EIOINTC; hw/intc/loongarch_pch_msi.c of QEMU 10.0 for the MSI window,
//! whose first vector is 32 on the `virt` board. That board routes to four
//! CPUs and four lines.

use super::device;
use crate::arch::iocsr;

const IP_MAP: u32 = 0x14c0;
const ENABLE: u32 = 0x1600;
const CORE_ISR: u32 = 0x1800;
const CORE_MAP: u32 = 0x1c00;
/// Where a 32-bit write raises the vector written.
pub const MSI_WINDOW: u64 = 0x2ff0_0000;
/// Vectors a group: a group goes to one line.
const GROUP: u32 = 32;

/// Lines that the board can raise: HWI0 to HWI3.
pub const LINES: u8 = 4;

/// The vector for `line`: the first of groups 1 to 4, routed to CPU 0.
pub fn vector(line: u8) -> u32 {
    GROUP * (u32::from(line) + 1)
}

/// Routes one vector to each line of CPU 0 and enables them.
pub fn set_up() {
    // One byte a group, a bit a line: groups 1 to 3 to lines 0 to 2.
    iocsr::write32(IP_MAP, 0x0402_0100);
    iocsr::write32(IP_MAP + 4, 0x08);
    for line in 0..LINES {
        iocsr::write32(CORE_MAP + vector(line), 0x0101_0101);
        iocsr::write32(ENABLE + vector(line) / 8, 1);
    }
}

/// Raises hardware line `line` (0 to 3) of CPU 0.
pub fn raise(line: u8) {
    let window: *mut u32 = device(MSI_WINDOW);
    // SAFETY: the MSI window is a device register, mapped by the uncached
    // window; the write raises an interrupt and touches no memory of ours.
    unsafe { window.write_volatile(vector(line)) };
}

/// Acknowledges the vector of `line` on CPU 0, which lowers the line.
pub fn acknowledge(line: u8) {
    iocsr::write32(CORE_ISR + vector(line) / 8, 1);
}
