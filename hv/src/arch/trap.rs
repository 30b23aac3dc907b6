//! Exceptions of the hypervisor itself.
//!
//! The hypervisor takes none in normal work: interrupts are off, and it has
//! no TLB entry to miss. So an exception is an interrupt that ends `idle`,
//! or a fault of the hypervisor, of which everything known is written down
//! before the machine stops. A refill or a machine error comes in direct
//! addressing, at an entry of its own that first turns the windows on.
//!
//! Source: *LoongArch Reference Manual, Volume 1*, chapter 6.

use crate::arch::{boot, cpu};
use crate::isa::csr::Csr;
use crate::isa::{csr_read, csr_write};
use alloc::boxed::Box;
use core::arch::global_asm;
use core::mem::offset_of;

/// SAVE register that holds a general register while its place is sought.
pub const SCRATCH: Csr = Csr::save(0);
/// SAVE register that holds the top of this CPU's exception stack.
const STACK: Csr = Csr::save(2);
/// Bytes of that stack: it only ever holds one dump.
const STACK_BYTES: usize = 16 << 10;

/// The registers at an exception of the hypervisor.
#[derive(Debug)]
#[repr(C)]
pub struct Frame {
    /// General registers, r0 first.
    pub gprs: [u64; 32],
    /// Where it happened.
    pub pc: u64,
}

const FRAME_BYTES: usize = size_of::<Frame>().next_multiple_of(16);

global_asm!(
    ".macro save_frame pc_csr",
    "csrwr $sp, {scratch}",
    "csrrd $sp, {stack}",
    "addi.d $sp, $sp, -{bytes}",
    ".irp n,0,1,2,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31",
    "st.d $r\\n, $sp, {gprs} + 8 * \\n",
    ".endr",
    "csrrd $t0, {scratch}",
    "st.d $t0, $sp, {gprs} + 8 * 3",
    "csrrd $t0, \\pc_csr",
    "st.d $t0, $sp, {pc}",
    "move $a0, $sp",
    ".endm",
    // Direct addressing ignores the window bits, so the jump comes first.
    ".macro to_window",
    "la.pcrel $t0, 9f",
    "lu52i.d $t0, $t0, -0x700",
    "jirl $zero, $t0, 0",
    "9: li.w $t0, {mode}",
    "csrwr $t0, {crmd}",
    ".endm",
    ".section .text.exception, \"ax\"",
    // From the exception entry (`world_switch`): a0 is in SCRATCH.
    ".globl host_exception",
    "host_exception:",
    "csrrd $a0, {scratch}",
    "csrwr $t0, {scratch}",
    "csrwr $t1, {scratch1}",
    // An interrupt in `idle`: on to its end.
    "csrrd $t0, {estat}",
    "bstrpick.d $t0, $t0, 21, 16",
    "bnez $t0, 1f",
    "csrrd $t0, {era}",
    "la.pcrel $t1, idle_begin",
    "bltu $t0, $t1, 1f",
    "la.pcrel $t1, idle_end",
    "bltu $t1, $t0, 1f",
    "jr $t1",
    "1:",
    "csrrd $t1, {scratch1}",
    "csrrd $t0, {scratch}",
    "save_frame {era}",
    "b {exception}",
    // From the refill entry: t0 is in TLBRSAVE.
    ".globl host_refill",
    "host_refill:",
    "to_window",
    "csrrd $t0, {tlbrsave}",
    "save_frame {tlbrera}",
    "b {refill}",
    ".balign 4096",
    ".globl machine_error_entry",
    "machine_error_entry:",
    "csrwr $t0, {merrsave}",
    "to_window",
    "csrrd $t0, {merrsave}",
    "save_frame {merrera}",
    "b {machine_error}",
    ".section .text, \"ax\"",
    scratch = const SCRATCH.number(),
    scratch1 = const Csr::save(3).number(),
    stack = const STACK.number(),
    bytes = const FRAME_BYTES,
    gprs = const offset_of!(Frame, gprs),
    pc = const offset_of!(Frame, pc),
    mode = const boot::MODE,
    estat = const Csr::ESTAT.number(),
    era = const Csr::ERA.number(),
    crmd = const Csr::CRMD.number(),
    tlbrsave = const Csr::TLBRSAVE.number(),
    tlbrera = const Csr::TLBRERA.number(),
    merrsave = const Csr::MERRSAVE.number(),
    merrera = const Csr::MERRERA.number(),
    exception = sym on_exception,
    refill = sym on_refill,
    machine_error = sym on_machine_error,
);

unsafe extern "C" {
    fn machine_error_entry();
}

/// Gives this CPU a stack to dump from, and its machine-error entry.
pub fn set_up() {
    let stack = Box::leak(Box::new([0u128; STACK_BYTES / 16]));
    let top = stack.as_ptr_range().end as u64;
    // SAFETY: the entry is the one above; the stack is this CPU's for good.
    unsafe {
        csr_write!(save(2), top);
        csr_write!(MERRENTRY, boot::physical(machine_error_entry as *const u8));
    }
}

extern "C" fn on_exception(frame: &Frame) -> ! {
    crate::fatal::exception("exception", frame, csr_read!(ESTAT), csr_read!(BADV))
}

extern "C" fn on_refill(frame: &Frame) -> ! {
    crate::fatal::exception("TLB refill", frame, csr_read!(ESTAT), csr_read!(TLBRBADV))
}

extern "C" fn on_machine_error(frame: &Frame) -> ! {
    crate::fatal::exception(
        "machine error",
        frame,
        csr_read!(ESTAT),
        csr_read!(MERRINFO1),
    )
}

/// Takes a breakpoint exception, which is the end.
pub fn breakpoint() {
    // SAFETY: ends in `on_exception`.
    unsafe { core::arch::asm!("break 0") };
}

/// Reads through the TLB, which has no entry, and that is the end.
pub fn read_unmapped() {
    // SAFETY: ends in `on_refill`.
    unsafe { core::arch::asm!("ld.d $t0, $zero, 16", out("$t0") _) };
}

/// The stack pointer, for a dump without a frame.
#[must_use]
pub fn stack_pointer() -> u64 {
    let sp: u64;
    // SAFETY: copies a register.
    unsafe { core::arch::asm!("move {}, $sp", out(reg) sp, options(nomem, nostack)) };
    sp
}

/// Where a return to `address` would come from: the word before it, where
/// `address` is code of the hypervisor.
#[must_use]
pub fn caller_word(address: u64) -> Option<u32> {
    let aligned = address.is_multiple_of(4);
    // SAFETY: `in_text` says that the word is the hypervisor's code.
    (aligned && boot::in_text(address) && boot::in_text(address - 4))
        .then(|| unsafe { ((address - 4) as *const u32).read() })
}

/// Stops this CPU for good.
pub fn halt() -> ! {
    // SAFETY: with every line masked nothing ends the sleep but a reset.
    unsafe { csr_write!(ECFG, 0) };
    loop {
        cpu::idle();
    }
}
