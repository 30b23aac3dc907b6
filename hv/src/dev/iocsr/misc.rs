//! What the machine is: version, features, names.
//!
//! Every register here is a constant of the VM but one: the switches of
//! EIOINTC in the miscellaneous functions, which show that controller's
//! configuration. Not emulated: temperature and the system management
//! controller, which read 0.
//!
//! Source: Loongson 3A5000 manual, chapter on configuration registers;
//! Linux, arch/loongarch/kernel/cpu-probe.c for what a guest makes of it.

use crate::dev::lane::Lane;
use crate::isa::insn::Width;
use guest_pv::abi::iocsr::{
    CPU_NAME, FEATURES, Features, MISC_EXT_IOI_EN, MISC_EXT_IOI_INT_ENCODE, MISC_FUNC, NODE_COUNT,
    VENDOR, VERSION, VirtEiointc,
};

/// Bytes of the window, which begins at 0.
pub const BYTES: u32 = 0x1000;

/// "Loongson" in memory order.
const VENDOR_NAME: u64 = u64::from_le_bytes(*b"Loongson");
/// "3C5000" in memory order.
const MODEL_NAME: u64 = u64::from_le_bytes(*b"3C5000\0\0");
/// The version that a 3A5000 reports.
const VERSION_VALUE: u64 = 0x11;

/// The features of a VM.
const FEATURES_VALUE: Features = Features::NODE_COUNT
    .union(Features::MSI)
    .union(Features::EXT_IOI)
    .union(Features::CSR_IPI)
    .union(Features::VM);

/// Reads `width` bytes at `offset`, zero-extended; EIOINTC is configured as
/// `eiointc` says.
#[must_use]
pub fn read(offset: u32, width: Width, eiointc: impl FnOnce() -> VirtEiointc) -> u64 {
    Lane::new(offset.into(), width).read(match offset & !7 {
        VERSION => VERSION_VALUE,
        FEATURES => FEATURES_VALUE.bits(),
        VENDOR => VENDOR_NAME,
        CPU_NAME => MODEL_NAME,
        NODE_COUNT => 1,
        MISC_FUNC => functions(eiointc()),
        _ => 0,
    })
}

/// How EIOINTC, now configured as `eiointc` says, is to be configured after
/// a write to the bits `lane` of the register at `offset`; `None` where the
/// write doesn't concern it.
#[must_use]
pub fn write(
    offset: u32,
    lane: Lane,
    value: u64,
    eiointc: impl FnOnce() -> VirtEiointc,
) -> Option<VirtEiointc> {
    if offset & !7 != MISC_FUNC {
        return None;
    }
    let old = eiointc();
    let functions = lane.merge(functions(old), value);
    let mut new = old;
    new.set(VirtEiointc::ENABLE, functions & MISC_EXT_IOI_EN != 0);
    new.set(
        VirtEiointc::INT_ENCODE,
        functions & MISC_EXT_IOI_INT_ENCODE != 0,
    );
    (new != old).then_some(new)
}

fn functions(eiointc: VirtEiointc) -> u64 {
    let bit = |flag, bit| if eiointc.contains(flag) { bit } else { 0 };
    bit(VirtEiointc::ENABLE, MISC_EXT_IOI_EN)
        | bit(VirtEiointc::INT_ENCODE, MISC_EXT_IOI_INT_ENCODE)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_off(offset: u32, width: Width) -> u64 {
        read(offset, width, VirtEiointc::empty)
    }

    #[test]
    fn a_guest_finds_that_it_is_one_and_what_it_has() {
        let features = 1 << 11 | 1 << 4 | 1 << 3 | 1 << 2 | 1 << 1;
        assert_eq!(read_off(8, Width::Word), features);
        assert_eq!(read_off(9, Width::Byte), 1 << 3);
    }

    #[test]
    fn names_read_at_any_width() {
        assert_eq!(read_off(0x10, Width::Double).to_le_bytes(), *b"Loongson");
        let end = u64::from(u32::from_le_bytes(*b"gson"));
        assert_eq!(read_off(0x14, Width::Word), end);
        assert_eq!(read_off(0x21, Width::Byte), u64::from(b'C'));
        // What crosses the end of a register ends there.
        assert_eq!(read_off(0x1c, Width::Double), 0);
        assert_eq!(read_off(0x14, Width::Double), end);
    }

    #[test]
    fn switches_of_eiointc_show_its_configuration() {
        let on = || VirtEiointc::ENABLE | VirtEiointc::CPU_ENCODE;
        assert_eq!(read(0x420, Width::Double, on), 1 << 48);
        assert_eq!(read(0x426, Width::Byte, on), 1);
        let encode = || VirtEiointc::CPU_ENCODE;
        let lane = Lane::new(0x420, Width::Double);
        assert_eq!(write(0x420, lane, 1 << 48, encode), Some(on()));
        assert_eq!(write(0x420, lane, 0, encode), None);
        assert_eq!(write(0x420, lane, 0, on), Some(encode()));
        let lane = Lane::new(0x426, Width::Half);
        let both = on() | VirtEiointc::INT_ENCODE;
        assert_eq!(write(0x426, lane, 3, encode), Some(both));
        let low = Lane::new(0x420, Width::Word);
        assert_eq!(write(0x420, low, u64::MAX, encode), None);
        assert_eq!(write(0x408, lane, 3, encode), None);
    }

    #[test]
    fn every_offset_answers() {
        for offset in (0..BYTES).chain([u32::MAX - 1, u32::MAX]) {
            for width in [Width::Byte, Width::Half, Width::Word, Width::Double] {
                let _ = read_off(offset, width);
            }
        }
        assert_eq!(read_off(0x428, Width::Double), 0);
    }
}
