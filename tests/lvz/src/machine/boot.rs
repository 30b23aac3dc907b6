//! The first instructions of each CPU, up to Rust.
//!
//! QEMU starts CPU 0 at `_start` in direct addressing, with a1 = command
//! line; the others jump to the address in their mailbox. Each sets up the
//! two direct map windows that the suite lives in, a stack of its own, and
//! the registers that the rest relies on.
//!
//! Source: hw/loongarch/boot.c of QEMU 10.0 for the state at the start.

use super::{MAX_CPUS, PHYS_MASK};
use core::arch::global_asm;
use loongarch_isa::csr::Csr;

/// Direct map window 0x8000…, strongly ordered uncached, level 0 only.
pub const UNCACHED_WINDOW: u64 = 0x8000_0000_0000_0001;
/// Direct map window 0x9000…, coherent cached, level 0 only.
pub const CACHED_WINDOW: u64 = 0x9000_0000_0000_0011;
/// CRMD in the suite: mapped addressing, cached, level 0, interrupts off.
pub const MODE: u64 = 0xb0;

/// Bytes of stack a CPU.
const STACK_SIZE: usize = 64 << 10;

#[repr(C, align(16384))]
struct Stacks([[u8; STACK_SIZE]; MAX_CPUS]);

static mut STACKS: Stacks = Stacks([[0; STACK_SIZE]; MAX_CPUS]);

global_asm!(
    ".section .text.boot, \"ax\"",
    ".macro suite_mode",
    "li.d $t0, {uncached}",
    "csrwr $t0, {dmw0}",
    "li.d $t0, {cached}",
    "csrwr $t0, {dmw1}",
    "la.pcrel $t0, 1f",
    "lu52i.d $t0, $t0, -0x700",
    "jirl $zero, $t0, 0",
    "1: li.d $t0, {mode}",
    "csrwr $t0, {crmd}",
    ".endm",
    // a0 = index of this CPU; sets its stack.
    ".macro suite_stack",
    "la.pcrel $sp, {stacks}",
    "li.d $t1, {stack_size}",
    "addi.d $t0, $a0, 1",
    "mul.d $t0, $t0, $t1",
    "add.d $sp, $sp, $t0",
    ".endm",
    ".globl _start",
    "_start:",
    "suite_mode",
    "la.pcrel $t0, __bss_start",
    "la.pcrel $t1, __bss_end",
    "2: st.d $zero, $t0, 0",
    "addi.d $t0, $t0, 8",
    "bne $t0, $t1, 2b",
    "move $a0, $zero",
    "suite_stack",
    "move $a0, $a1",
    "b {main}",
    ".globl _start_secondary",
    "_start_secondary:",
    "suite_mode",
    "csrrd $a0, {cpuid}",
    "suite_stack",
    "b {secondary}",
    ".section .text, \"ax\"",
    uncached = const UNCACHED_WINDOW,
    cached = const CACHED_WINDOW,
    mode = const MODE,
    dmw0 = const Csr::dmw(0).number(),
    dmw1 = const Csr::dmw(1).number(),
    crmd = const Csr::CRMD.number(),
    cpuid = const Csr::CPUID.number(),
    stacks = sym STACKS,
    stack_size = const STACK_SIZE,
    main = sym crate::suite_main,
    secondary = sym super::smp::secondary_main,
);

unsafe extern "C" {
    fn _start_secondary();
}

/// Physical address at which a secondary CPU starts.
pub fn secondary_entry() -> u64 {
    _start_secondary as *const () as u64 & PHYS_MASK
}
