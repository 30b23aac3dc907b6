//! What a bare-metal guest needs to run at all.

pub mod boot;
pub mod call;
pub mod cmdline;
pub mod csr;
pub mod devices;
pub mod iocsr;
pub mod random;
pub mod smp;
pub mod trap;
pub mod uart;

use crate::{csrrd, csrwr};
use loongarch_isa::exception::Interrupt;

/// The stable counter, in ticks.
pub fn ticks() -> u64 {
    let value;
    // SAFETY: reads a counter.
    unsafe { core::arch::asm!("rdtime.d {}, $zero", out(reg) value, options(nostack)) };
    value
}

/// CPUCFG word `word`, as 64 bits of register.
pub fn cpucfg(word: u64) -> u64 {
    let value;
    // SAFETY: reads a configuration word.
    unsafe { core::arch::asm!("cpucfg {}, {}", out(reg) value, in(reg) word, options(nostack)) };
    value
}

/// Ticks a second, from CPUCFG words 4 and 5.
pub fn ticks_per_second() -> u64 {
    let ratio = cpucfg(5);
    cpucfg(4) * (ratio & 0xffff) / (ratio >> 16).max(1)
}

/// Ticks in `us` microseconds, in steps of four, as the timer counts.
pub fn microseconds(us: u64) -> u64 {
    (ticks_per_second() / 1_000_000 * us) & !3
}

/// Interrupts are off: sleeps until one of ECFG's comes, or for `us`
/// microseconds.
pub fn doze(us: u64) {
    let ecfg = csrrd!(ECFG);
    csrwr!(ECFG, ecfg | Interrupt::TI.bit());
    csrwr!(TCFG, microseconds(us) | 1);
    // SAFETY: waits; what has come already is pending and ends it.
    unsafe { core::arch::asm!("idle 0", options(nostack)) };
    csrwr!(TCFG, 0);
    csrwr!(TICLR, 1);
    csrwr!(ECFG, ecfg);
}

/// Interrupts are off: leaves the CPU to others for a moment.
pub fn nap() {
    let ecfg = csrwr!(ECFG, 0);
    doze(20);
    csrwr!(ECFG, ecfg);
}

/// The address at which `phys` is seen uncached: device registers.
pub fn device<T>(phys: u64) -> *mut T {
    (0x8000_0000_0000_0000 | phys) as *mut T
}

/// The address at which `phys` is seen cached: memory.
pub fn memory<T>(phys: u64) -> *mut T {
    (0x9000_0000_0000_0000 | phys) as *mut T
}

/// Waits until `done`; gives up after a minute, since a busy emulator may let a
/// vCPU wait for seconds. Whether it is `done`.
pub fn wait_until(done: impl Fn() -> bool) -> bool {
    let start = ticks();
    while !done() {
        if ticks() - start > 60 * ticks_per_second() {
            return false;
        }
        core::hint::spin_loop();
    }
    true
}
