//! The first instructions of each vCPU, up to Rust.
//!
//! They are in direct addressing; the boot vCPU has a1 = command line. Each
//! notes what it found in its registers, turns on two direct map windows and
//! takes a stack by its place in the list of ids.

use super::smp::MAX_CPUS;
use core::arch::global_asm;
use core::sync::atomic::{AtomicU64, Ordering};
use loongarch_isa::csr::Csr;

const STACK_BYTES: usize = 32 << 10;

#[repr(C, align(16))]
struct Stacks([[u8; STACK_BYTES]; MAX_CPUS]);

/// Bits that differ, in any register, from what a vCPU is to begin with:
/// CRMD says direct addressing, level 0, interrupts off; all else is 0, but
/// for a0 to a2 of the boot vCPU.
static FOUND: [AtomicU64; MAX_CPUS] = [const { AtomicU64::new(0) }; MAX_CPUS];

/// What vCPU `index` found wrong at its first instruction, as bits.
pub fn found(index: usize) -> u64 {
    FOUND[index].load(Ordering::Relaxed)
}

static mut STACKS: Stacks = Stacks([[0; STACK_BYTES]; MAX_CPUS]);

global_asm!(
    ".section .text.boot, \"ax\"",
    ".macro enter_window",
    "li.d $t0, 0x8000000000000001",
    "csrwr $t0, {dmw0}",
    "li.d $t0, 0x9000000000000011",
    "csrwr $t0, {dmw1}",
    "la.pcrel $t0, 1f",
    "lu52i.d $t0, $t0, -0x700",
    "jirl $zero, $t0, 0",
    "1: li.d $t0, 0xb0",
    "csrwr $t0, {crmd}",
    ".endm",
    // s8 = the bits of all registers of the list and of some CSRs.
    ".macro look_around registers:vararg",
    ".irp n,\\registers",
    "or $s8, $s8, $r\\n",
    ".endr",
    "csrrd $t0, {crmd}",
    "xori $t0, $t0, 8",
    "or $s8, $s8, $t0",
    ".irp csr,{euen},{ecfg},{tcfg},{prmd},{dmw0},{dmw1}",
    "csrrd $t0, \\csr",
    "or $s8, $s8, $t0",
    ".endr",
    ".endm",
    ".globl _start, _start_secondary",
    "_start:",
    "look_around 1,2,3,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30",
    "la.pcrel $t0, {found}",
    "st.d $s8, $t0, 0",
    "enter_window",
    "la.pcrel $sp, {stacks}",
    "li.d $t0, {stack_bytes}",
    "add.d $sp, $sp, $t0",
    "b {main}",
    "_start_secondary:",
    "look_around 1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30",
    "enter_window",
    // The count of those that came before is this one's index.
    "la.pcrel $t0, {next}",
    "li.w $a0, 1",
    "amadd_db.d $t1, $a0, $t0",
    "move $a0, $t1",
    "la.pcrel $t0, {found}",
    "alsl.d $t0, $a0, $t0, 3",
    "st.d $s8, $t0, 0",
    "la.pcrel $sp, {stacks}",
    "li.d $t0, {stack_bytes}",
    "addi.d $t1, $t1, 1",
    "mul.d $t0, $t0, $t1",
    "add.d $sp, $sp, $t0",
    "b {secondary}",
    ".section .text, \"ax\"",
    dmw0 = const Csr::dmw(0).number(),
    dmw1 = const Csr::dmw(1).number(),
    crmd = const Csr::CRMD.number(),
    euen = const Csr::EUEN.number(),
    ecfg = const Csr::ECFG.number(),
    tcfg = const Csr::TCFG.number(),
    prmd = const Csr::PRMD.number(),
    found = sym FOUND,
    stacks = sym STACKS,
    stack_bytes = const STACK_BYTES,
    next = sym super::smp::NEXT_INDEX,
    main = sym crate::guest_main,
    secondary = sym super::smp::secondary_main,
);

unsafe extern "C" {
    fn _start_secondary();
}

/// Physical address at which a secondary vCPU starts.
pub fn secondary_entry() -> u64 {
    _start_secondary as *const () as u64 & 0xffff_ffff_ffff
}
