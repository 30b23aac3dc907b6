//! The instructions that Rust has no words for.
//!
//! The suite is one trusted program: these functions are safe to call by
//! rule, not by type. Who changes a register that translation or the
//! exception entry depends on restores it before Rust's own code needs it.

pub mod code;
pub mod csr;
pub mod encode;
pub mod iocsr;
pub mod tlb;
pub mod trap;

use core::arch::asm;

/// The stable counter, in ticks of 10 ns.
pub fn counter() -> u64 {
    let ticks;
    // SAFETY: reads a counter.
    unsafe { asm!("rdtime.d {}, $zero", out(reg) ticks, options(nomem, nostack)) };
    ticks
}

/// Ticks of the stable counter and of the timers a microsecond.
pub const TICKS_PER_US: u64 = 100;

/// Waits for at least this many ticks.
pub fn delay(ticks: u64) {
    let start = counter();
    while counter().wrapping_sub(start) < ticks {}
}

/// A configuration word of the processor.
pub fn cpucfg(word: u64) -> u32 {
    let value: u64;
    // SAFETY: reads a constant of the processor.
    unsafe { asm!("cpucfg {}, {}", out(reg) value, in(reg) word, options(nomem, nostack)) };
    value as u32
}

/// Sleeps until an interrupt line that ECFG enables is pending, whatever
/// CRMD.IE says.
pub fn idle() {
    // SAFETY: waits; interrupts are off, so nothing else runs here.
    unsafe { asm!("idle 0", options(nostack)) };
}

/// Makes instructions written before visible to the fetches that follow.
pub fn fetch_barrier() {
    // SAFETY: a barrier.
    unsafe { asm!("ibar 0", options(nostack)) };
}
