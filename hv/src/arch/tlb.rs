//! Invalidating TLB entries, by the scopes that the hypervisor needs.
//!
//! Source: `invtlb` of the *LoongArch Reference Manual, Volume 1*, section
//! 4.2.4.7; operations 0x10 and above from asm/tlb.h of Linux 7.2.

use crate::mm::addr::{Gpa, PAGE_BYTES};
use crate::mm::gid::Gid;
use core::arch::asm;

/// Bit of the GID in `invtlb`'s first operand.
const GID_SHIFT: u32 = 16;

/// Forgets every entry of every guest on this CPU, of both stages.
pub fn flush_all_guests() {
    // SAFETY: an entry that is gone is walked for again.
    unsafe { asm!("invtlb 0x12, $zero, $zero", options(nostack)) };
}

/// Forgets every entry with this identifier on this CPU, of both stages.
pub fn flush_gid(gid: Gid) {
    let operand = u64::from(gid.number()) << GID_SHIFT;
    // SAFETY: as in `flush_all_guests`.
    unsafe { asm!("invtlb 0x15, {}, $zero", in(reg) operand, options(nostack)) };
}

/// Forgets the second-stage entry that holds the pair of pages around `gpa`.
pub fn flush_page(gid: Gid, gpa: Gpa) {
    let operand = u64::from(gid.number()) << GID_SHIFT;
    let pair = gpa.align_down(2 * PAGE_BYTES).get();
    // SAFETY: as in `flush_all_guests`.
    unsafe { asm!("invtlb 0x16, {}, {}", in(reg) operand, in(reg) pair, options(nostack)) };
}
