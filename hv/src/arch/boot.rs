//! The first instructions of each CPU, up to Rust.
//!
//! A loader starts one CPU at `_start` with a0 = 1, a1 = command line and
//! a2 = EFI system table, all physical. UEFI firmware starts it at
//! `_start_efi`, whose part in Rust (`crate::efi`) makes a loader of itself.
//! The others arrive at `_start_secondary` from wherever firmware parked
//! them, and look for their [`Launch`] by their physical id: mailbox 0 brings
//! the entry, and EDK2 clears the rest. Each turns on the two direct map
//! windows that the hypervisor lives in, and takes a stack.
//!
//! They come in direct addressing, or where firmware has page tables, at
//! addresses that these don't change; interrupts may be on.
//!
//! The image runs wherever it lies: code reaches its own addresses relative
//! to the program counter, and the words that hold one are in a table, by
//! which `relocate` moves them. One of them tells where they point now, so
//! that it can be done again: as EFI application it runs at physical
//! addresses first.
//!
//! Sources: Linux, Documentation/arch/loongarch/booting.rst;
//! hw/loongarch/boot.c of QEMU 10.0 and UefiCpuPkg/Library/MpInitLib of EDK2
//! for the parked CPUs; System V gABI, section "Relocation" (SHT_RELR).

use super::cpu;
use crate::isa::csr::Csr;
use alloc::vec::Vec;
use core::arch::global_asm;
use core::mem::offset_of;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, Ordering};

/// Direct map window 0x8000…: strongly ordered uncached, level 0 only.
const UNCACHED_WINDOW: u64 = 0x8000_0000_0000_0001;
/// Direct map window 0x9000…: coherent cached, level 0 only.
const CACHED_WINDOW: u64 = 0x9000_0000_0000_0011;
/// CRMD: mapped addressing, cached, level 0, interrupts off.
pub const MODE: u64 = 0xb0;
/// CRMD: interrupts on.
const CRMD_IE: u64 = 1 << 2;
/// Address of the image, as the linker script has it.
pub const LINKED_AT: u64 = 0x9000_0000_0020_0000;
/// Bytes of the stack that a CPU has.
pub const STACK_BYTES: usize = 64 << 10;

/// What a secondary CPU needs at its first instruction.
#[derive(Debug)]
#[repr(C)]
pub struct Launch {
    /// Its physical id.
    pub id: u64,
    /// Top of its stack.
    pub stack: u64,
    /// What its entry function gets.
    pub argument: u64,
}

/// The table of launches, whose last one is [`NOBODY`]'s.
static LAUNCHES: AtomicPtr<Launch> = AtomicPtr::new(null_mut());

/// More than any physical id: the end of the table.
const NOBODY: u64 = u64::MAX;

/// Lets secondary CPUs find these.
pub fn set_launches(mut launches: Vec<Launch>) {
    launches.push(Launch {
        id: NOBODY,
        stack: 0,
        argument: 0,
    });
    LAUNCHES.store(launches.leak().as_mut_ptr(), Ordering::SeqCst);
}

#[repr(C, align(16384))]
struct Stack([u8; STACK_BYTES]);

static mut FIRST_STACK: Stack = Stack([0; STACK_BYTES]);

global_asm!(
    ".section .text.boot, \"ax\"",
    ".macro enter_window",
    "li.w $t0, {interrupts}",
    "csrxchg $zero, $t0, {crmd}",
    "li.d $t0, {uncached}",
    "csrwr $t0, {dmw0}",
    "li.d $t0, {cached}",
    "csrwr $t0, {dmw1}",
    "csrwr $zero, {dmw2}",
    "csrwr $zero, {dmw3}",
    "csrwr $zero, {euen}",
    "csrwr $zero, {ecfg}",
    "la.pcrel $t0, 1f",
    // Bits 63:52 of the address become those of the cached window.
    "lu52i.d $t0, $t0, -0x700",
    "jirl $zero, $t0, 0",
    "1: li.d $t0, {mode}",
    "csrwr $t0, {crmd}",
    ".endm",
    // Lets every address in the image follow it to where this code runs.
    ".pushsection .data.relocated, \"aw\"",
    ".balign 8",
    "relocated_to: .dword __image_start",
    ".popsection",
    "relocate:",
    "la.pcrel $t0, __image_start",
    "li.d $t1, {linked_at}",
    "sub.d $t1, $t0, $t1",
    "la.pcrel $t2, relocated_to",
    "ld.d $t2, $t2, 0",
    "sub.d $t0, $t0, $t2",
    "la.pcrel $t2, __relr_start",
    "la.pcrel $t3, __relr_end",
    // t0 = what to add to a word, t1 = to where it was linked.
    "1: beq $t2, $t3, 6f",
    "ld.d $t4, $t2, 0",
    "addi.d $t2, $t2, 8",
    "andi $t5, $t4, 1",
    "bnez $t5, 2f",
    "add.d $t6, $t4, $t1", // A word's place.
    "ld.d $t5, $t6, 0",
    "add.d $t5, $t5, $t0",
    "st.d $t5, $t6, 0",
    "addi.d $t6, $t6, 8",
    "b 1b",
    // A bit for each of the 63 words after that.
    "2: move $t7, $t6",
    "3: srli.d $t4, $t4, 1",
    "beqz $t4, 5f",
    "andi $t5, $t4, 1",
    "beqz $t5, 4f",
    "ld.d $t5, $t7, 0",
    "add.d $t5, $t5, $t0",
    "st.d $t5, $t7, 0",
    "4: addi.d $t7, $t7, 8",
    "b 3b",
    "5: addi.d $t6, $t6, 63 * 8",
    "b 1b",
    "6: ret",
    // a0 = image handle, a1 = system table; the stack is firmware's.
    ".globl _start_efi",
    "_start_efi:",
    "addi.d $sp, $sp, -16",
    "st.d $ra, $sp, 0",
    "bl relocate",
    "bl {efi}",
    "ld.d $ra, $sp, 0",
    "addi.d $sp, $sp, 16",
    "ret",
    ".globl _start",
    "_start:",
    "enter_window",
    "bl relocate",
    "la.pcrel $t0, __bss_start",
    "la.pcrel $t1, __bss_end",
    "2: st.d $zero, $t0, 0",
    "addi.d $t0, $t0, 8",
    "bne $t0, $t1, 2b",
    "la.pcrel $sp, {stack}",
    "li.d $t0, {stack_bytes}",
    "add.d $sp, $sp, $t0",
    "move $ra, $zero",
    "b {main}",
    ".globl _start_secondary",
    "_start_secondary:",
    "enter_window",
    "csrrd $t0, {cpuid}",
    "andi $t0, $t0, {id_mask}",
    "la.pcrel $t1, {launches}",
    "ld.d $t1, $t1, 0",
    "li.w $t3, {nobody}",
    "7: ld.d $t2, $t1, {launch_id}",
    "beq $t2, $t0, 8f",
    "beq $t2, $t3, 9f",
    "addi.d $t1, $t1, {launch_bytes}",
    "b 7b",
    // Nobody waits for this one.
    "9: idle 0",
    "b 9b",
    "8: ld.d $sp, $t1, {launch_stack}",
    "ld.d $a0, $t1, {launch_argument}",
    "move $ra, $zero",
    "b {secondary}",
    ".section .text, \"ax\"",
    uncached = const UNCACHED_WINDOW,
    cached = const CACHED_WINDOW,
    mode = const MODE,
    dmw0 = const Csr::dmw(0).number(),
    dmw1 = const Csr::dmw(1).number(),
    dmw2 = const Csr::dmw(2).number(),
    dmw3 = const Csr::dmw(3).number(),
    crmd = const Csr::CRMD.number(),
    euen = const Csr::EUEN.number(),
    ecfg = const Csr::ECFG.number(),
    cpuid = const Csr::CPUID.number(),
    id_mask = const cpu::ID_MASK,
    launches = sym LAUNCHES,
    nobody = const NOBODY.cast_signed(),
    launch_bytes = const size_of::<Launch>(),
    launch_id = const offset_of!(Launch, id),
    launch_stack = const offset_of!(Launch, stack),
    launch_argument = const offset_of!(Launch, argument),
    stack = sym FIRST_STACK,
    stack_bytes = const STACK_BYTES,
    linked_at = const LINKED_AT,
    interrupts = const CRMD_IE,
    efi = sym crate::efi::application,
    main = sym crate::start::first_cpu,
    secondary = sym crate::start::secondary_cpu,
);

unsafe extern "C" {
    fn _start(has_arguments: u64, command_line: u64, system_table: u64) -> !;
    fn _start_secondary();
    static __image_start: u8;
    static __image_end: u8;
    static __text_start: u8;
    static __text_end: u8;
}

/// Begins anew where a loader begins, with these physical addresses.
///
/// # Safety
/// Firmware's boot services have ended, and nobody uses a static any more.
pub unsafe fn start(command_line: u64, system_table: u64) -> ! {
    // SAFETY: the caller's duty, as documented.
    unsafe { _start(1, command_line, system_table) }
}

/// Address bits that a direct map window takes as physical.
const PHYSICAL: u64 = (1 << 48) - 1;

/// The physical address of something that lies in the cached window.
#[must_use]
pub fn physical<T: ?Sized>(object: *const T) -> u64 {
    object.cast::<u8>() as u64 & PHYSICAL
}

/// Physical address at which a secondary CPU starts.
#[must_use]
pub fn secondary_entry() -> u64 {
    physical(_start_secondary as *const u8)
}

/// Physical addresses of the hypervisor's image, start and end.
#[must_use]
pub fn image() -> (u64, u64) {
    (
        physical(&raw const __image_start),
        physical(&raw const __image_end),
    )
}

/// Whether `address` lies in the hypervisor's code.
#[must_use]
pub fn in_text(address: u64) -> bool {
    (&raw const __text_start as u64..&raw const __text_end as u64).contains(&address)
}
