//! What is used of Linux, and how a program begins.
//!
//! Source of the numbers: Linux, include/uapi/asm-generic/unistd.h, linux/futex.h,
//! linux/sched.h; of the registers: arch/loongarch/kernel/entry.S.

use core::arch::{asm, global_asm};
use core::ffi::{CStr, c_char};
use core::fmt::{self, Write};
use core::panic::PanicInfo;
use core::sync::atomic::AtomicU32;

const WRITE: usize = 64;
const EXIT_GROUP: usize = 94;
const FUTEX: usize = 98;
const NANOSLEEP: usize = 101;
const SCHED_SETAFFINITY: usize = 122;
const CLONE: usize = 220;

/// Futex operations on this process's own words.
const WAIT_PRIVATE: usize = 128;
const WAKE_PRIVATE: usize = 129;

/// A thread: memory, files, handlers and process are shared.
const THREAD: usize = 0x100 | 0x200 | 0x400 | 0x800 | 0x1_0000 | 0x4_0000;

global_asm!(
    ".globl _start",
    "_start:",
    "move $a0, $sp",
    "bl {begin}",
    begin = sym begin,
);

/// `stack` has the number of arguments, then their addresses.
extern "C" fn begin(stack: *const usize) -> ! {
    let argument = |index: usize| {
        // SAFETY: Linux puts the count there, as many addresses of texts behind it, and
        // they stay.
        unsafe {
            (index < *stack)
                .then(|| CStr::from_ptr(*stack.add(1 + index) as *const c_char))
                .and_then(|text| text.to_str().ok())
        }
    };
    exit(crate::rounds::run([1, 2, 3].map(argument)))
}

fn call(number: usize, arguments: [usize; 4]) -> isize {
    let [a0, a1, a2, a3] = arguments;
    let result;
    // SAFETY: the callers below pass what each call wants.
    unsafe {
        asm!(
            "syscall 0",
            in("$a7") number,
            inlateout("$a0") a0 => result,
            in("$a1") a1, in("$a2") a2, in("$a3") a3,
            out("$t0") _, out("$t1") _, out("$t2") _, out("$t3") _, out("$t4") _,
            out("$t5") _, out("$t6") _, out("$t7") _, out("$t8") _,
        );
    }
    result
}

/// Ends the process.
pub fn exit(status: usize) -> ! {
    loop {
        // Linux doesn't come back.
        call(EXIT_GROUP, [status, 0, 0, 0]);
    }
}

/// Sleeps while `word` is `value`, until it is woken.
pub fn wait(word: &AtomicU32, value: u32) {
    call(
        FUTEX,
        [word.as_ptr() as usize, WAIT_PRIVATE, value as usize, 0],
    );
}

/// Wakes one thread that sleeps on `word`; how many that were.
pub fn wake_one(word: &AtomicU32) -> u32 {
    let woken = call(FUTEX, [word.as_ptr() as usize, WAKE_PRIVATE, 1, 0]);
    u32::try_from(woken).unwrap_or(0)
}

/// Sleeps for less than a second.
pub fn sleep(nanoseconds: u64) {
    let time = [0, nanoseconds];
    call(NANOSLEEP, [time.as_ptr() as usize, 0, 0, 0]);
}

/// Binds the calling thread to `cpu`, of the first 64.
pub fn bind(cpu: usize) {
    let set = 1u64 << (cpu % 64);
    call(SCHED_SETAFFINITY, [0, 8, (&raw const set) as usize, 0]);
}

/// Starts a thread that runs `body` with `argument` on the stack that ends at `top`.
///
/// # Safety
/// The stack is 16-byte aligned, large enough, and nobody else's for ever.
pub unsafe fn spawn(body: extern "C" fn(usize) -> !, argument: usize, top: usize) {
    // SAFETY: the new thread begins with a copy of all registers but a0, which is 0,
    // and the stack pointer; it never leaves `body`.
    unsafe {
        asm!(
            "syscall 0",
            "bnez $a0, 1f",
            "move $fp, $zero",
            "move $a0, $a6",
            "jirl $ra, $a5, 0",
            "1:",
            in("$a7") CLONE,
            inlateout("$a0") THREAD => _,
            in("$a1") top,
            in("$a2") 0, in("$a3") 0, in("$a4") 0,
            in("$a5") body,
            in("$a6") argument,
            out("$t0") _, out("$t1") _, out("$t2") _, out("$t3") _, out("$t4") _,
            out("$t5") _, out("$t6") _, out("$t7") _, out("$t8") _,
        );
    }
}

/// The stable counter.
pub fn ticks() -> u64 {
    let ticks;
    // SAFETY: reads a counter.
    unsafe { asm!("rdtime.d {}, $zero", out(reg) ticks) };
    ticks
}

/// Its frequency in Hz (CPUCFG words 4 and 5).
pub fn frequency() -> u64 {
    let word = |index: u64| {
        let value: u64;
        // SAFETY: reads a constant of the CPU's.
        unsafe { asm!("cpucfg {}, {}", out(reg) value, in(reg) index) };
        value & 0xffff_ffff
    };
    let (base, ratio) = (word(4), word(5));
    base * (ratio & 0xffff) / (ratio >> 16).max(1)
}

/// Leaves guest mode with an instruction that nobody else uses: whoever watches exits
/// knows by it that a round begins.
pub fn mark_round() {
    // SAFETY: the result is thrown away.
    unsafe { asm!("cpucfg $zero, $zero") };
}

/// Likewise: everybody is woken.
pub fn mark_woken() {
    // SAFETY: the result is thrown away.
    unsafe { asm!("cpucfg $zero, $a0") };
}

/// Standard output.
pub struct Output;

impl Write for Output {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let written = call(WRITE, [1, text.as_ptr() as usize, text.len(), 0]);
        (written == text.len() as isize)
            .then_some(())
            .ok_or(fmt::Error)
    }
}

#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    // Nowhere else to say it.
    let _ = writeln!(Output, "wake: {info}");
    exit(101)
}
