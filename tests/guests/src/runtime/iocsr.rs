//! The IOCSR space, at every width.

use core::arch::asm;

macro_rules! accessors {
    ($($read:ident $write:ident $read_insn:literal $write_insn:literal,)*) => {$(
        #[doc = concat!("`", $read_insn, "` of `offset`: the whole register it gives.")]
        pub fn $read(offset: u64) -> u64 {
            let value;
            // SAFETY: emulated; no register of the VM's IOCSR space touches memory.
            unsafe { asm!(concat!($read_insn, " {}, {}"), out(reg) value, in(reg) offset, options(nostack)) };
            value
        }

        #[doc = concat!("`", $write_insn, "` of `value` to `offset`.")]
        pub fn $write(offset: u64, value: u64) {
            // SAFETY: as for a read.
            unsafe { asm!(concat!($write_insn, " {}, {}"), in(reg) value, in(reg) offset, options(nostack)) };
        }
    )*};
}

accessors! {
    read_b write_b "iocsrrd.b" "iocsrwr.b",
    read_h write_h "iocsrrd.h" "iocsrwr.h",
    read_w write_w "iocsrrd.w" "iocsrwr.w",
    read_d write_d "iocsrrd.d" "iocsrwr.d",
}
