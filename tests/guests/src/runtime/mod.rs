//! What a bare-metal guest needs to run at all.

pub mod boot;
pub mod call;
pub mod cmdline;
pub mod csr;
pub mod devices;
pub mod iocsr;
pub mod smp;
pub mod trap;
pub mod uart;

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

/// The address at which `phys` is seen uncached: device registers.
pub fn device<T>(phys: u64) -> *mut T {
    (0x8000_0000_0000_0000 | phys) as *mut T
}

/// The address at which `phys` is seen cached: memory.
pub fn memory<T>(phys: u64) -> *mut T {
    (0x9000_0000_0000_0000 | phys) as *mut T
}

/// Waits until `done`; gives up after ten seconds, since a busy emulator may
/// let a vCPU wait for one.
pub fn wait_until(done: impl Fn() -> bool) -> bool {
    let start = ticks();
    while !done() {
        if ticks() - start > 10 * ticks_per_second() {
            return false;
        }
        core::hint::spin_loop();
    }
    true
}
