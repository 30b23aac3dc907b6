//! Random words as a program: what ends in an exception is skipped, so that
//! each word has its turn.
//!
//! Three of four are likely to be instructions. Each begins with random
//! registers, level 0 or 3, all units on and a timer that ends what takes long,
//! whatever the words before have done.

use super::{PROGRAM, WORDS};
use crate::runtime::call::stop;
use crate::runtime::devices::{PCH_PIC, UART};
use crate::runtime::random::Random;
use crate::runtime::trap::set_up;
use crate::runtime::{device, memory, microseconds};
use crate::{csrwr, println};
use core::arch::{asm, global_asm};
use core::cell::UnsafeCell;
use loongarch_isa::csr::Csr;
use loongarch_isa::exception::Interrupt;

/// Instructions with many forms, or a few with great effect: their first word,
/// and how many of its low bits are operands.
const GROUPS: [(u32, u32); 16] = [
    (0x0000_0000, 25), // Arithmetic.
    (0x0000_6000, 12), // rdtime, cpucfg.
    (0x002a_0000, 18), // break, syscall, hvcl and others.
    (0x0100_0000, 24), // Floating point.
    (0x0400_0000, 24), // CSRs.
    (0x0600_0000, 22), // cacop.
    (0x0640_0000, 20), // Page walk, IOCSR, TLB, idle, invtlb.
    (0x0648_0000, 16), // IOCSR, TLB, ertn, idle.
    (0x0800_0000, 27), // Floating point and vectors, fused.
    (0x2000_0000, 27), // Linked loads, loads and stores by an offset.
    (0x2a00_0000, 26), // The same, of the units too.
    (0x3800_0000, 23), // By an index, and atomics.
    (0x7000_0000, 26), // Vectors.
    (0x7200_0000, 25), // Vectors with an operand in the word.
    (0x7400_0000, 26), // Wide vectors.
    (0x7600_0000, 25), // The same with an operand in the word.
];

/// How far it is.
struct Progress {
    random: Random,
    next: u64,
    /// Programs to go.
    left: u64,
    /// Ticks until the timer comes.
    ticks: u64,
    registers: [u64; 32],
}

struct Cell(UnsafeCell<Option<Progress>>);

// SAFETY: one vCPU runs it.
unsafe impl Sync for Cell {}

static PROGRESS: Cell = Cell(UnsafeCell::new(None));

const STACK_BYTES: usize = 16 << 10;

#[repr(C, align(16))]
struct Stack([u8; STACK_BYTES]);

static mut STACK: Stack = Stack([0; STACK_BYTES]);

global_asm!(
    ".section .text.exception, \"ax\"",
    ".balign 4096",
    ".globl words_entry",
    // No register is worth keeping. A refill comes in direct addressing.
    "words_entry:",
    "li.d $t0, 0x8000000000000009",
    "csrwr $t0, {dmw0}",
    "li.d $t0, 0x9000000000000019",
    "csrwr $t0, {dmw1}",
    "csrwr $zero, {tlbrera}",
    "la.pcrel $t0, 1f",
    "bstrins.d $t0, $zero, 63, 48",
    "lu52i.d $t0, $t0, -0x700",
    "jirl $zero, $t0, 0",
    "1: ori $t1, $zero, 0xb0",
    "csrwr $t1, {crmd}",
    "la.pcrel $sp, {stack}",
    "li.d $t0, {stack_bytes}",
    "add.d $sp, $sp, $t0",
    "bl {next}",
    ".irp n,1,2,3,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31",
    "ld.d $r\\n, $a0, 8 * \\n",
    ".endr",
    "ld.d $a0, $a0, 8 * 4",
    "ertn",
    ".section .text, \"ax\"",
    dmw0 = const Csr::dmw(0).number(),
    dmw1 = const Csr::dmw(1).number(),
    crmd = const Csr::CRMD.number(),
    tlbrera = const Csr::TLBRERA.number(),
    stack = sym STACK,
    stack_bytes = const STACK_BYTES,
    next = sym next,
);

unsafe extern "C" {
    fn words_entry() -> !;
}

/// Runs `programs` programs; doesn't come back.
pub fn run(random: Random, programs: u64) -> ! {
    let progress = Progress {
        random,
        next: WORDS,
        left: programs,
        ticks: microseconds(20),
        registers: [0; 32],
    };
    // SAFETY: nothing else runs yet.
    unsafe {
        *PROGRESS.0.get() = Some(progress);
        words_entry()
    }
}

/// Comes after each exception: gets the next word ready, and gives the
/// registers that it begins with.
extern "C" fn next() -> *const u64 {
    // SAFETY: this runs once at a time.
    let Some(progress) = (unsafe { &mut *PROGRESS.0.get() }) else {
        stop(1)
    };
    if progress.next == WORDS {
        if progress.left == 0 {
            set_up(0);
            println!("evil: every word has had its turn");
            stop(0);
        }
        progress.left -= 1;
        progress.next = 0;
        write(&mut progress.random);
    }
    for register in &mut progress.registers {
        *register = value(&mut progress.random);
    }
    let entry = words_entry as *const () as u64;
    csrwr!(EENTRY, entry);
    csrwr!(TLBRENTRY, entry & ((1 << 48) - 1));
    csrwr!(TICLR, 1);
    csrwr!(TCFG, progress.ticks | 1);
    csrwr!(ECFG, Interrupt::TI.bit());
    csrwr!(EUEN, 7);
    csrwr!(ERA, memory::<u32>(PROGRAM) as u64 + 4 * progress.next);
    csrwr!(PRMD, 4 | (progress.random.below(2) * 3));
    progress.next += 2;
    progress.registers.as_ptr()
}

/// What a register begins with: a number, or where something is.
fn value(random: &mut Random) -> u64 {
    let near = random.below(0x1000);
    match random.below(6) {
        0 => memory::<u8>(PROGRAM + 0x10_0000 + near) as u64,
        1 => device::<u8>(PCH_PIC + near) as u64,
        2 => device::<u8>(UART + 1 + near % 8) as u64,
        3 => 0x1000 + near % 0x200,
        _ => random.any(),
    }
}

/// Writes a program: each word with one behind it that ends in an exception.
fn write(random: &mut Random) {
    const BREAK: u32 = 0x002a_0000;
    let start: *mut u32 = memory(PROGRAM);
    for index in (0..WORDS as usize).step_by(2) {
        let word = word(random);
        // SAFETY: RAM of the guest that nothing else uses.
        unsafe {
            start.add(index).write_volatile(word);
            start.add(index + 1).write_volatile(BREAK);
        }
    }
    // SAFETY: makes the program seen.
    unsafe { asm!("ibar 0") };
}

/// A word from which there is a way back: no branch, and no access to the two
/// registers that lead here.
fn word(random: &mut Random) -> u32 {
    let word = random.next() as u32;
    let (first, operands) = GROUPS[random.below(16) as usize];
    let word = match random.below(4) {
        0 => word,
        _ => word & ((1 << operands) - 1) | first,
    };
    let csr = (word >> 10 & 0x3fff) as u16;
    let leads_here = [Csr::EENTRY, Csr::TLBRENTRY].map(Csr::number);
    let branch = (0x10..0x1c).contains(&(word >> 26));
    if branch || word >> 24 == 4 && leads_here.contains(&csr) {
        return self::word(random);
    }
    word
}
