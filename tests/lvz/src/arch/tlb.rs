//! TLB instructions.

use super::{code, encode};
use core::arch::asm;
use loongarch_isa::gpr::Gpr;

macro_rules! bare {
    ($($(#[$doc:meta])* $name:ident = $insn:literal;)*) => {
        $($(#[$doc])*
        pub fn $name() {
            // SAFETY: changes translations of mapped addresses only; the
            // suite's own code and data lie in a direct map window.
            unsafe { asm!($insn, options(nostack)) };
        })*
    };
}

bare! {
    /// Searches for TLBEHI's address; the index goes to TLBIDX.
    search = "tlbsrch";
    /// Reads the entry TLBIDX.
    read = "tlbrd";
    /// Writes the entry TLBIDX.
    write = "tlbwr";
    /// As `search`, on the guest's first-stage entries.
    guest_search = ".word 0x06482801";
    /// As `read`, on the guest's first-stage entries.
    guest_entry_read = ".word 0x06482c01";
    /// As `write`, on the guest's first-stage entries.
    guest_entry_write = ".word 0x06483001";
    /// Writes a first-stage entry that the hardware chooses.
    guest_fill = ".word 0x06483401";
    /// Clears the guest's non-global entries of its ASID in TLBIDX's line.
    guest_clear = ".word 0x06482001";
    /// Clears the guest's entries in TLBIDX's line.
    guest_flush = ".word 0x06482401";
}

/// `invtlb` with an operation known when the suite is compiled: `info` is
/// ASID 9:0 and GID 23:16.
pub fn invalidate<const OP: u32>(info: u64, address: u64) {
    // SAFETY: as for the instructions above.
    unsafe {
        asm!("invtlb {}, {}, {}", const OP, in(reg) info, in(reg) address, options(nostack));
    }
}

/// `invtlb` with any defined operation.
pub fn invalidate_by(op: u32, info: u64, address: u64) {
    let words = [encode::invtlb(op, Gpr::A0, Gpr::A1), encode::RET];
    code::call(&words, info, address);
}

/// INVTLB: everything of the executing context.
pub const ALL: u32 = 0x0;
/// INVTLB: both stages of all guests.
pub const ALL_GUESTS: u32 = 0x12;
/// INVTLB: both stages of one guest.
pub const GUEST: u32 = 0x15;
/// INVTLB: one guest-physical address of one guest.
pub const GUEST_ADDRESS: u32 = 0x16;
