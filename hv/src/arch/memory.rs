//! Clearing and checking memory fast: what starts a VM does by the megabyte.
//!
//! Source: *LoongArch Reference Manual, Volume 1*, section 2.2.9 (CRC).

use super::cpu;
use core::arch::asm;

/// Bytes that one turn of the loop clears.
const TURN: usize = 64;

/// Sets `bytes` bytes from `at` on to zero.
///
/// # Safety
/// They are memory that nobody else uses meanwhile.
pub unsafe fn clear(at: *mut u8, bytes: usize) {
    let whole = bytes / TURN * TURN;
    if whole > 0 {
        // SAFETY: the caller answers for the range.
        unsafe {
            asm!(
                "1: st.d $zero, {at}, 0",
                "st.d $zero, {at}, 8",
                "st.d $zero, {at}, 16",
                "st.d $zero, {at}, 24",
                "st.d $zero, {at}, 32",
                "st.d $zero, {at}, 40",
                "st.d $zero, {at}, 48",
                "st.d $zero, {at}, 56",
                "addi.d {at}, {at}, {turn}",
                "bne {at}, {end}, 1b",
                at = inout(reg) at => _,
                end = in(reg) at.wrapping_add(whole),
                turn = const TURN,
                options(nostack),
            );
        }
    }
    // SAFETY: the rest of the caller's range.
    unsafe { core::ptr::write_bytes(at.add(whole), 0, bytes - whole) }
}

/// CPUCFG word 1: the CRC instructions are there.
const HAS_CRC: u32 = 1 << 25;

/// CRC-32 of what `crc` stands for (inverted, as between two steps) and the
/// whole 8-byte words of `bytes`, in their order; `None` where the CPU has no
/// instruction for it.
#[must_use]
pub fn crc32(crc: u32, words: &[[u8; 8]]) -> Option<u32> {
    if cpu::cpucfg(1) & HAS_CRC == 0 {
        return None;
    }
    Some(words.iter().fold(crc, |crc, word| {
        let next: u32;
        // SAFETY: computes a number from two.
        unsafe {
            asm!(
                "crc.w.d.w {next}, {word}, {crc}",
                next = lateout(reg) next,
                word = in(reg) u64::from_le_bytes(*word),
                crc = in(reg) crc,
                options(pure, nomem, nostack),
            );
        }
        next
    }))
}
