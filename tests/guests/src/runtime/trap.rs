//! Exceptions and interrupts of the guest.
//!
//! An exception is expected inside [`catch`], which says what came; anywhere
//! else it fails the guest. Interrupts are counted by line.

use super::smp::MAX_CPUS;
use crate::{csrrd, csrwr, csrxchg};
use core::arch::global_asm;
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use loongarch_isa::csr::Csr;
use loongarch_isa::exception::Interrupt;

/// What came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caught {
    /// Exception code.
    pub ecode: u64,
    /// Its sub-code.
    pub esubcode: u64,
    /// Address at fault.
    pub badv: u64,
    /// Instruction at fault.
    pub badi: u32,
    /// Where.
    pub era: u64,
    /// PRMD: the mode before.
    pub prmd: u64,
}

/// Registers that the handler may change, by number; sp is in its place.
#[repr(C)]
pub struct Frame {
    gprs: [u64; 32],
    era: u64,
    prmd: u64,
}

/// HWI0 to HWI7, as in ESTAT and ECFG.
pub const HARDWARE_LINES: u64 = 0x3fc;

struct Cell(UnsafeCell<Option<Caught>>);

// SAFETY: each vCPU uses its own cell alone.
unsafe impl Sync for Cell {}

static CAUGHT: [Cell; MAX_CPUS] = [const { Cell(UnsafeCell::new(None)) }; MAX_CPUS];
static ARMED: [AtomicU32; MAX_CPUS] = [const { AtomicU32::new(0) }; MAX_CPUS];
static COUNTS: [[AtomicU64; 13]; MAX_CPUS] =
    [const { [const { AtomicU64::new(0) }; 13] }; MAX_CPUS];

global_asm!(
    ".section .text.exception, \"ax\"",
    ".balign 4096",
    ".globl guest_exception_entry",
    "guest_exception_entry:",
    "csrwr $sp, {save0}",
    "csrrd $sp, {save0}",
    "addi.d $sp, $sp, -288",
    ".irp n,1,2,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31",
    "st.d $r\\n, $sp, 8 * \\n",
    ".endr",
    "csrrd $t0, {era}",
    "st.d $t0, $sp, {frame_era}",
    "csrrd $t0, {prmd}",
    "st.d $t0, $sp, {frame_prmd}",
    "move $a0, $sp",
    "bl {handle}",
    "ld.d $t0, $sp, {frame_era}",
    "csrwr $t0, {era}",
    "ld.d $t0, $sp, {frame_prmd}",
    "csrwr $t0, {prmd}",
    ".irp n,1,2,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31",
    "ld.d $r\\n, $sp, 8 * \\n",
    ".endr",
    "addi.d $sp, $sp, 288",
    "ertn",
    ".section .text, \"ax\"",
    save0 = const Csr::save(0).number(),
    era = const Csr::ERA.number(),
    prmd = const Csr::PRMD.number(),
    frame_era = const core::mem::offset_of!(Frame, era),
    frame_prmd = const core::mem::offset_of!(Frame, prmd),
    handle = sym handle,
);

const _: () = assert!(size_of::<Frame>() <= 288);

unsafe extern "C" {
    fn guest_exception_entry();
}

/// Sets this vCPU's exception entry, and that it is the one of `index`.
pub fn set_up(index: usize) {
    csrwr!(save(1), index as u64);
    csrwr!(ECFG, 0);
    csrwr!(EENTRY, guest_exception_entry as *const () as u64);
}

/// The index of this vCPU.
pub fn this_cpu() -> usize {
    (csrrd!(save(1)) as usize).min(MAX_CPUS - 1)
}

extern "C" fn handle(frame: &mut Frame) {
    let estat = csrrd!(ESTAT);
    let (cpu, ecode) = (this_cpu(), estat >> 16 & 0x3f);
    if ecode == 0 {
        interrupt(cpu, estat & csrrd!(ECFG) & 0x1fff);
        return;
    }
    let caught = Caught {
        ecode,
        esubcode: estat >> 22 & 0x1ff,
        badv: csrrd!(BADV),
        badi: csrrd!(BADI) as u32,
        era: frame.era,
        prmd: frame.prmd,
    };
    if ARMED[cpu].load(Ordering::Relaxed) == 0 {
        crate::println!("FAIL guest: cpu {cpu}: unexpected {caught:x?}");
        super::call::stop(1);
    }
    // SAFETY: this vCPU's own cell; `catch` reads it after this handler. The
    // first exception counts: a system call that only brings back follows it.
    unsafe {
        if CAUGHT[cpu].0.get().read_volatile().is_none() {
            CAUGHT[cpu].0.get().write_volatile(Some(caught));
        }
    }
    // A fetch goes back to its caller, everything else to the next one.
    frame.era = if caught.era == caught.badv && matches!(ecode, 3 | 8) && caught.esubcode == 0 {
        frame.gprs[1]
    } else {
        frame.era + 4
    };
    // Level 0 whatever level the exception came from.
    frame.prmd &= !3;
}

/// Handles SWI0 and IPI, whichever are among the lines.
pub type IpiHandler = fn(usize, u64);

/// The handler, if it isn't [`acknowledge`].
static IPI_HANDLER: AtomicUsize = AtomicUsize::new(0);

/// From now on `handler` handles SWI0 and IPI on every vCPU.
pub fn handle_ipis_by(handler: IpiHandler) {
    IPI_HANDLER.store(handler as usize, Ordering::Release);
}

fn interrupt(cpu: usize, lines: u64) {
    for line in (0..13).filter(|line| lines >> line & 1 == 1) {
        COUNTS[cpu][line].fetch_add(1, Ordering::Relaxed);
    }
    if lines & Interrupt::TI.bit() != 0 {
        csrwr!(TICLR, 1);
    }
    match IPI_HANDLER.load(Ordering::Acquire) {
        0 => acknowledge(lines),
        handler => {
            // SAFETY: `handle_ipis_by` stored an `IpiHandler`.
            let handler: IpiHandler = unsafe { core::mem::transmute(handler) };
            handler(cpu, lines);
        }
    }
    if lines & HARDWARE_LINES != 0 {
        super::devices::take(cpu);
    }
}

/// Clears SWI0 and the IPI's vectors, and does nothing else.
fn acknowledge(lines: u64) {
    if lines & Interrupt::SWI0.bit() != 0 {
        csrxchg!(ESTAT, 0, Interrupt::SWI0.bit());
    }
    if lines & Interrupt::IPI.bit() != 0 {
        clear_vectors();
    }
}

/// Clears the IPI's vectors.
pub fn clear_vectors() {
    use guest_pv::abi::iocsr::{IPI_CLEAR, IPI_STATUS};
    let status = super::iocsr::read_w(IPI_STATUS.into());
    super::iocsr::write_w(IPI_CLEAR.into(), status);
}

/// How often this vCPU has taken the interrupt of `line`.
pub fn taken(line: Interrupt) -> u64 {
    taken_by(this_cpu(), line)
}

/// How often vCPU `cpu` has.
pub fn taken_by(cpu: usize, line: Interrupt) -> u64 {
    COUNTS[cpu][usize::from(line.number())].load(Ordering::Relaxed)
}

/// Runs `act`, in which an exception is expected to come once; what came.
pub fn catch(act: impl FnOnce()) -> Option<Caught> {
    let cpu = this_cpu();
    // SAFETY: this vCPU's own cell; its handler doesn't run now.
    unsafe { CAUGHT[cpu].0.get().write_volatile(None) };
    ARMED[cpu].store(1, Ordering::SeqCst);
    act();
    ARMED[cpu].store(0, Ordering::SeqCst);
    // SAFETY: as above.
    unsafe { CAUGHT[cpu].0.get().read_volatile() }
}

/// Interrupts on (level 0).
pub fn unmask() {
    csrxchg!(CRMD, 4, 4);
}

/// Interrupts off.
pub fn mask() {
    csrxchg!(CRMD, 0, 4);
}
