//! Clearing, copying and checking memory fast: what starts a VM does by the
//! megabyte.
//!
//! Source: *LoongArch Reference Manual, Volume 1*, section 2.2.9 (CRC).

use super::cpu;
use core::arch::asm;

/// Bytes that one turn of a loop clears or copies.
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

/// Copies `bytes` bytes from `from` to `to`.
///
/// # Safety
/// Both are memory, they don't overlap, and nobody else uses the target
/// meanwhile.
pub unsafe fn copy(from: *const u8, to: *mut u8, bytes: usize) {
    let aligned = (from as usize | to as usize).is_multiple_of(8);
    let whole = if aligned { bytes / TURN * TURN } else { 0 };
    if whole > 0 {
        // SAFETY: the caller answers for the ranges.
        unsafe {
            asm!(
                "1: ld.d {a}, {from}, 0",
                "ld.d {b}, {from}, 8",
                "ld.d {c}, {from}, 16",
                "ld.d {d}, {from}, 24",
                "st.d {a}, {to}, 0",
                "st.d {b}, {to}, 8",
                "st.d {c}, {to}, 16",
                "st.d {d}, {to}, 24",
                "ld.d {a}, {from}, 32",
                "ld.d {b}, {from}, 40",
                "ld.d {c}, {from}, 48",
                "ld.d {d}, {from}, 56",
                "st.d {a}, {to}, 32",
                "st.d {b}, {to}, 40",
                "st.d {c}, {to}, 48",
                "st.d {d}, {to}, 56",
                "addi.d {from}, {from}, {turn}",
                "addi.d {to}, {to}, {turn}",
                "bne {to}, {end}, 1b",
                from = inout(reg) from => _,
                to = inout(reg) to => _,
                end = in(reg) to.wrapping_add(whole),
                a = out(reg) _,
                b = out(reg) _,
                c = out(reg) _,
                d = out(reg) _,
                turn = const TURN,
                options(nostack),
            );
        }
    }
    // SAFETY: the rest of the caller's ranges.
    unsafe { core::ptr::copy_nonoverlapping(from.add(whole), to.add(whole), bytes - whole) }
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
    // Eight at a time: the loop costs as much as the words.
    let (eights, rest) = words.as_chunks::<8>();
    let crc = eights.iter().fold(crc, |crc, [a, b, c, d, e, f, g, h]| {
        [a, b, c, d, e, f, g, h].into_iter().fold(crc, crc_of_word)
    });
    Some(rest.iter().fold(crc, crc_of_word))
}

#[inline(always)]
fn crc_of_word(crc: u32, word: &[u8; 8]) -> u32 {
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
}
