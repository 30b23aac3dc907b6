//! Into the guest and back: the general registers, and what `ertn` needs.
//!
//! [`enter`] returns to its caller: what came out is handled in Rust. The
//! one exception entry serves guest and host alike: the register that holds
//! the guest's context is 0 while the host runs. The hottest exits are dealt
//! with right there, in a few registers, and go straight back. PVM, GID and the tables'
//! root stay as they are between an exit and the next entry: the hypervisor
//! executes no `ertn` of its own and has no TLB miss.
//!
//! Sources: arch/loongarch/kvm/switch.S of Linux 7.2 for what hardware
//! expects at entry; asm/kvm_para.h for `hvcl`.

use super::{boot, trap};
use crate::isa::csr::Csr;
use crate::isa::exception::Ecode;
use crate::isa::gpr::{Gpr, Gprs};
use crate::isa::{csr_exchange, csr_write};
use crate::vcpu::exit::ExitInfo;
use crate::vcpu::{Context, HostContext};
use core::arch::{asm, global_asm};
use core::mem::offset_of;

/// SAVE register that holds the context of the guest that runs, or 0.
const CONTEXT: Csr = Csr::save(1);
/// PRMD at entry: interrupts of the host on, level 0.
const PRMD_IN_GUEST: u64 = 1 << 2;
/// GSTAT.PVM.
const GSTAT_PVM: u64 = 1 << 1;

const GPRS: usize = offset_of!(Context, gprs);
const HOST: usize = offset_of!(Context, host);
const _: () = assert!(size_of::<Gprs>() == 32 * 8);

global_asm!(
    ".section .text.exception, \"ax\"",
    // All but r0, a0 and a1.
    ".macro each_gpr insn base",
    ".irp n,1,2,3,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31",
    "\\insn $r\\n, \\base, {gprs} + 8 * \\n",
    ".endr",
    ".endm",
    // a0 = context.
    ".globl world_switch",
    "world_switch:",
    "st.d $ra, $a0, {host_ra}",
    "st.d $sp, $a0, {host_sp}",
    "st.d $fp, $a0, {host_fp}",
    "st.d $s8, $a0, {host_s8}",
    "ld.d $t0, $a0, {pc}",
    "csrwr $t0, {era}",
    "move $t0, $a0",
    "csrwr $t0, {context}",
    "each_gpr ld.d, $a0",
    "ld.d $a1, $a0, {gprs} + 8 * {a1}",
    "ld.d $a0, $a0, {gprs} + 8 * {a0}",
    "ertn",
    ".balign 4096",
    ".globl exception_entry",
    "exception_entry:",
    "csrwr $a0, {scratch}",
    "csrrd $a0, {context}",
    "beqz $a0, host_exception",
    "st.d $a1, $a0, {gprs} + 8 * {a1}",
    "csrrd $a1, {estat}",
    "bstrpick.d $a1, $a1, 21, 16",
    "addi.d $a1, $a1, -{hvc}",
    "beqz $a1, hypercall_stub",
    "addi.d $a1, $a1, {hvc} - {gspr}",
    "beqz $a1, sensitive_stub",
    "addi.d $a1, $a1, {gspr}",
    "beqz $a1, interrupt_stub",
    ".globl general_exit",
    "general_exit:",
    "each_gpr st.d, $a0",
    "csrrd $t0, {scratch}",
    "st.d $t0, $a0, {gprs} + 8 * {a0}",
    "csrwr $zero, {context}",
    "csrrd $t0, {era}",
    "st.d $t0, $a0, {pc}",
    "ld.d $ra, $a0, {host_ra}",
    "ld.d $sp, $a0, {host_sp}",
    "ld.d $fp, $a0, {host_fp}",
    "ld.d $s8, $a0, {host_s8}",
    "csrrd $a0, {estat}",
    "csrrd $a1, {badv}",
    "csrrd $a2, {badi}",
    "ret",
    // A second-stage miss: direct addressing, and nothing but t0 to use.
    ".balign 4096",
    ".globl refill_entry",
    "refill_entry:",
    "csrwr $t0, {tlbrsave}",
    "csrrd $t0, {context}",
    "beqz $t0, host_refill",
    "csrrd $t0, {pgdl}",
    "lddir $t0, $t0, 3",
    "lddir $t0, $t0, 1",
    "ldpte $t0, 0",
    "ldpte $t0, 1",
    "tlbfill",
    "csrrd $t0, {tlbrsave}",
    "ertn",
    ".section .text, \"ax\"",
    gprs = const GPRS,
    a0 = const Gpr::A0.number(),
    a1 = const Gpr::A1.number(),
    hvc = const Ecode::Hvc.number(),
    gspr = const Ecode::Gspr.number(),
    pc = const offset_of!(Context, pc),
    host_ra = const HOST + offset_of!(HostContext, ra),
    host_sp = const HOST + offset_of!(HostContext, sp),
    host_fp = const HOST + offset_of!(HostContext, fp),
    host_s8 = const HOST + offset_of!(HostContext, s8),
    context = const CONTEXT.number(),
    scratch = const trap::SCRATCH.number(),
    era = const Csr::ERA.number(),
    estat = const Csr::ESTAT.number(),
    badv = const Csr::BADV.number(),
    badi = const Csr::BADI.number(),
    tlbrsave = const Csr::TLBRSAVE.number(),
    pgdl = const Csr::PGDL.number(),
);

unsafe extern "C" {
    fn exception_entry();
    fn refill_entry();
}

/// Sets this CPU's exception and refill entries: it is in the host.
pub fn set_up() {
    // SAFETY: the entries are those above.
    unsafe {
        csr_write!(save(1), 0);
        csr_write!(EENTRY, exception_entry as *const () as u64);
        csr_write!(TLBRENTRY, boot::physical(refill_entry as *const u8));
    }
}

/// Prepares the next `ertn` to enter the guest, with the host's interrupts
/// on. It stays so from exit to entry: an exit records that it came from
/// there. Only an exception of the host, as `idle` may take, changes it.
pub fn arm() {
    // SAFETY: nothing but `world_switch` executes `ertn`.
    unsafe {
        csr_write!(PRMD, PRMD_IN_GUEST);
        csr_exchange!(GSTAT, GSTAT_PVM, GSTAT_PVM);
    }
}

/// Runs the guest until it exits.
///
/// # Safety
/// The guest's bank, its GID and its tables are loaded on this CPU, the
/// tables lead only to memory of its VM, and [`arm`] has been called since
/// this CPU last was idle.
#[inline(always)]
pub unsafe fn enter(context: &mut Context) -> ExitInfo {
    let (estat, badv, badi);
    // SAFETY: `world_switch` saves what can't be declared below, and the
    // exception entry brings it back. The guest reaches none of the host's
    // memory: the caller's duty, as documented.
    unsafe {
        asm!(
            "bl world_switch",
            inlateout("$a0") &raw mut *context => estat,
            lateout("$a1") badv,
            lateout("$a2") badi,
            lateout("$s0") _, lateout("$s1") _, lateout("$s2") _, lateout("$s3") _,
            lateout("$s4") _, lateout("$s5") _, lateout("$s6") _, lateout("$s7") _,
            clobber_abi("C"),
        );
    }
    ExitInfo { estat, badv, badi }
}
