//! The physical CPU: who it is, what it can, the time, waiting.

use crate::isa::csr_read;
use core::arch::{asm, global_asm};

/// CPUID: the bits of the physical id.
pub const ID_MASK: u32 = 0x1ff;

/// The physical id of this CPU.
#[must_use]
pub fn id() -> u32 {
    csr_read!(CPUID) as u32 & ID_MASK
}

/// CPUCFG word `word`; 0 for one that isn't defined.
#[must_use]
pub fn cpucfg(word: u32) -> u32 {
    let value: u64;
    // SAFETY: reads a constant of the CPU.
    unsafe {
        asm!("cpucfg {}, {}", out(reg) value, in(reg) u64::from(word),
            options(pure, nomem, nostack, preserves_flags));
    }
    value as u32
}

/// Bits of a physical address: PALEN, CPUCFG word 1, which is one less. The
/// direct map windows have room for 60.
#[must_use]
pub fn physical_bits() -> u32 {
    ((cpucfg(1) >> 4 & 0xff) + 1).min(60)
}

/// The stable counter: the same on every CPU, in ticks.
#[inline]
#[must_use]
pub fn ticks() -> u64 {
    let value;
    // SAFETY: reads a counter.
    unsafe { asm!("rdtime.d {}, $zero", out(reg) value, options(nomem, nostack)) };
    value
}

/// Ticks a second, from CPUCFG words 4 and 5 (crystal × multiplier ÷ divider).
#[must_use]
pub fn ticks_per_second() -> u64 {
    let (crystal, ratio) = (u64::from(cpucfg(4)), cpucfg(5));
    let (multiply, divide) = (u64::from(ratio & 0xffff), u64::from(ratio >> 16));
    crystal * multiply / divide.max(1)
}

/// Waits for `ticks` ticks.
pub fn delay(ticks: u64) {
    let start = self::ticks();
    while self::ticks().wrapping_sub(start) < ticks {
        core::hint::spin_loop();
    }
}

unsafe extern "C" {
    fn idle_wait();
}

// An interrupt may come between the instruction that lets it come and the
// one that waits: then the wait must not begin. So the exception entry knows
// this stretch of code and continues at its end; nothing is saved, since
// this is a call like another.
global_asm!(
    ".section .text",
    ".globl idle_wait, idle_begin, idle_end",
    "idle_wait:",
    "li.w $t0, 4",
    "idle_begin:",
    "csrxchg $t0, $t0, 0x0",
    "idle 0",
    "idle_end:",
    "li.w $t0, 4",
    "csrxchg $zero, $t0, 0x0",
    "ret",
);

/// Sleeps until one of this CPU's enabled interrupts (ECFG.LIE) is pending;
/// may return early. None of them is taken.
pub fn idle() {
    // SAFETY: a leaf function without arguments; the exception entry brings
    // it to its end.
    unsafe { idle_wait() }
}
