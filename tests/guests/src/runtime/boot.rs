//! The first instructions of each vCPU, up to Rust.
//!
//! They are in direct addressing; the boot vCPU has a1 = command line. Each
//! turns on two direct map windows and takes a stack by its place in the
//! list of ids.

use super::smp::MAX_CPUS;
use core::arch::global_asm;
use loongarch_isa::csr::Csr;

const STACK_BYTES: usize = 32 << 10;

#[repr(C, align(16))]
struct Stacks([[u8; STACK_BYTES]; MAX_CPUS]);

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
    ".globl _start, _start_secondary",
    "_start:",
    "enter_window",
    "la.pcrel $sp, {stacks}",
    "li.d $t0, {stack_bytes}",
    "add.d $sp, $sp, $t0",
    "b {main}",
    "_start_secondary:",
    "enter_window",
    // The count of those that came before is this one's index.
    "la.pcrel $t0, {next}",
    "li.w $a0, 1",
    "amadd_db.d $t1, $a0, $t0",
    "move $a0, $t1",
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
