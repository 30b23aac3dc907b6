//! The power controller: switches the VM off, or resets it.
//!
//! Threats: a guest can end itself, which it could anyhow. Not emulated:
//! sleep states and wake-up events; everything reads 0.
//!
//! Source: the device tree of QEMU's `virt` (nodes `syscon-poweroff` and
//! `syscon-reboot`); the values are those of its ACPI sleep and reset
//! registers.

use super::layout::{POWER_OFF_OFFSET, POWER_OFF_VALUE, RESET_OFFSET, RESET_VALUE};
use crate::isa::insn::Width;
use crate::vcpu::StopReason;

/// What a write of `value` at `offset` does to the VM.
#[must_use]
pub fn write(offset: u64, width: Width, value: u64) -> Option<StopReason> {
    let byte = |at: u64| {
        let index = at
            .checked_sub(offset)
            .filter(|index| *index < width.bytes() as u64)?;
        Some((value >> (index * 8)) as u8)
    };
    if byte(POWER_OFF_OFFSET) == Some(POWER_OFF_VALUE) {
        Some(StopReason::PowerOff)
    } else if byte(RESET_OFFSET) == Some(RESET_VALUE) {
        Some(StopReason::Reset)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_right_byte_in_the_right_place() {
        assert_eq!(write(0, Width::Byte, 0x34), Some(StopReason::PowerOff));
        assert_eq!(write(0, Width::Word, 0x34), Some(StopReason::PowerOff));
        assert_eq!(write(2, Width::Byte, 0x42), Some(StopReason::Reset));
        assert_eq!(write(0, Width::Word, 0x42_0000), Some(StopReason::Reset));
        for (offset, value) in [(0, 0), (0, 0x42), (1, 0x34), (2, 0x34), (3, 0x42)] {
            assert_eq!(write(offset, Width::Byte, value), None);
        }
    }
}
