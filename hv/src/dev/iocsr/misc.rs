//! What the machine is: version, features, names.
//!
//! Every register here is a constant of the VM. Not emulated: temperature
//! and the system management controller, which read 0.
//!
//! Source: Loongson 3A5000 manual, chapter on configuration registers;
//! Linux, arch/loongarch/kernel/cpu-probe.c for what a guest makes of it.

use crate::isa::insn::Width;
use guest_pv::abi::iocsr::{CPU_NAME, FEATURES, Features, NODE_COUNT, VENDOR, VERSION};

/// Bytes of the window, which begins at 0.
pub const BYTES: u32 = 0x1000;

/// "Loongson" in memory order.
const VENDOR_NAME: u64 = u64::from_le_bytes(*b"Loongson");
/// "3C5000" in memory order.
const MODEL_NAME: u64 = u64::from_le_bytes(*b"3C5000\0\0");
/// The version that a 3A5000 reports.
const VERSION_VALUE: u64 = 0x11;

/// The features of a VM whose interrupt controller is IPI alone.
const FEATURES_VALUE: Features = Features::NODE_COUNT
    .union(Features::CSR_IPI)
    .union(Features::VM);

/// Reads `width` bytes at `offset`, zero-extended.
#[must_use]
pub fn read(offset: u32, width: Width) -> u64 {
    let register = |offset| match offset {
        VERSION => VERSION_VALUE,
        FEATURES => FEATURES_VALUE.bits(),
        VENDOR => VENDOR_NAME,
        CPU_NAME => MODEL_NAME,
        NODE_COUNT => 1,
        _ => 0,
    };
    let start = offset & !7;
    let low = register(start) >> (offset % 8 * 8);
    let high = match offset % 8 {
        0 => 0,
        skipped => register(start.wrapping_add(8)) << (64 - skipped * 8),
    };
    width.zero_extend(low | high)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guest_finds_that_it_is_one() {
        assert_eq!(read(8, Width::Word), 1 << 11 | 1 << 4 | 1 << 1);
        assert_eq!(read(9, Width::Byte), 1 << 3);
    }

    #[test]
    fn names_read_at_any_width() {
        assert_eq!(read(0x10, Width::Double).to_le_bytes(), *b"Loongson");
        assert_eq!(
            read(0x14, Width::Word),
            u64::from(u32::from_le_bytes(*b"gson"))
        );
        assert_eq!(read(0x21, Width::Byte), u64::from(b'C'));
        assert_eq!(
            read(0x1c, Width::Double),
            u64::from(u32::from_le_bytes(*b"3C50")) << 32
        );
    }

    #[test]
    fn every_offset_answers() {
        for offset in (0..BYTES).chain([u32::MAX - 1, u32::MAX]) {
            for width in [Width::Byte, Width::Half, Width::Word, Width::Double] {
                let _ = read(offset, width);
            }
        }
        assert_eq!(read(0x428, Width::Double), 0);
    }
}
