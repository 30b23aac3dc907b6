//! Where a guest finds its devices: addresses, inputs and vectors.
//!
//! One definition for the devices, the checks of a configuration and the
//! guest's device tree. The addresses are those of QEMU's `virt`, so that a
//! kernel that knows that machine (early consoles, syscon nodes) knows ours.
//!
//! Source: Loongson 7A1000 manual, address map; QEMU, hw/loongarch/virt.c
//! (facts alone).

use super::irq_line::{EiointcVector, PchPicInput};
use crate::mm::addr::Gpa;
use core::ops::RangeInclusive;

/// A device's range of guest physical addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// Its first address.
    pub base: Gpa,
    /// How many bytes it covers.
    pub bytes: u64,
}

impl Range {
    const fn new(base: u64, bytes: u64) -> Self {
        let base = Gpa::new(base);
        Self { base, bytes }
    }
}

/// PCH-PIC, the controller that devices' lines lead to.
pub const PCH_PIC: Range = Range::new(0x1000_0000, 0x1000);
/// PCH-MSI: a write of a vector to its first word raises that vector.
pub const PCH_MSI: Range = Range::new(0x2ff0_0000, 8);
/// The UART.
pub const UART: Range = Range::new(0x1fe0_01e0, 0x100);
/// The real-time clock.
pub const RTC: Range = Range::new(0x100d_0100, 0x100);
/// The power controller (a syscon).
pub const POWER: Range = Range::new(0x100e_001c, 4);
/// Legacy I/O ports: nothing is there, and every read gives ones.
pub const PORTS: Range = Range::new(0x1800_4000, 0xc000);

/// Input of the UART's interrupt.
pub const UART_INPUT: PchPicInput = PchPicInput::of::<2>();

/// Frequency of the UART's clock in Hz, as the device tree states it. The
/// line has no speed; drivers want a number to divide.
pub const UART_CLOCK_HZ: u32 = 100_000_000;

/// Vectors of EIOINTC that PCH-PIC's inputs may send.
pub const PCH_PIC_VECTORS: RangeInclusive<EiointcVector> =
    EiointcVector::new(0)..=EiointcVector::new(63);
/// Vectors of EIOINTC that messages may raise.
pub const MSI_VECTORS: RangeInclusive<EiointcVector> =
    EiointcVector::new(64)..=EiointcVector::new(255);

/// Power controller: offset of the byte that switches off.
pub const POWER_OFF_OFFSET: u64 = 0;
/// Power controller: what is written there.
pub const POWER_OFF_VALUE: u8 = 0x34;
/// Power controller: offset of the byte that resets.
pub const RESET_OFFSET: u64 = 2;
/// Power controller: what is written there.
pub const RESET_VALUE: u8 = 0x42;
