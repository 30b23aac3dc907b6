//! Exits to be counted from outside, a few of each kind.
//!
//! The emulator writes down every instruction of the hypervisor once `READY`
//! is printed and a byte has come. `cpucfg $zero, $rN` marks the exits that
//! follow as those of kind N; the host tool knows the numbers.

use super::send::{self, ipi, settle, swi0, with_others};
use super::turns;
use crate::csrrd;
use crate::println;
use crate::runtime::call::{call, hvcl};
use crate::runtime::{cpucfg, device, iocsr, smp};
use core::arch::asm;
use guest_pv::abi::hypercall::{CODE_SERVICE, SEND_IPI};
use guest_pv::abi::iocsr::{IPI_CLEAR, IPI_STATUS};
use guest_pv::abi::vendor;
use loongarch_isa::exception::Interrupt;

/// How often each exit is made.
const TIMES: usize = 6;

/// The UART: its data, and whether a byte has come.
const UART: u64 = 0x1fe0_01e0;
const LINE_STATUS: u64 = UART + 5;

/// Marks what follows as of kind `N`.
#[inline(always)]
pub fn mark<const N: u32>() {
    // SAFETY: an instruction without an effect but its exit.
    unsafe { asm!(".word {}", const 0x6c00 | N << 5, options(nostack)) };
}

/// Makes an exit of kind `N`, several times in line.
#[inline(always)]
fn several<const N: u32, T>(exit: impl Fn() -> T) {
    mark::<N>();
    for _ in 0..TIMES {
        let _ = exit();
    }
    mark::<0>();
}

fn ready() {
    println!("READY");
    let (status, data) = (device::<u8>(LINE_STATUS), device::<u8>(UART));
    // SAFETY: registers of the VM's UART.
    unsafe {
        while status.read_volatile() & 1 == 0 {}
        data.read_volatile();
    }
}

/// Exits of one vCPU, and sends to others that poll and that run.
pub fn awake() {
    ready();
    several::<1, _>(|| call(vendor::NULL, 0));
    several::<2, _>(|| call(vendor::NULL_GENERAL, 0));
    several::<3, _>(|| cpucfg(2));
    several::<4, _>(|| csrrd!(IMPCTL1));
    let pch_pic: *mut u32 = device(super::single::PCH_PIC_MASK);
    // SAFETY: a register that is read without an effect.
    several::<5, _>(|| unsafe { pch_pic.read_volatile() });
    several::<6, _>(|| iocsr::read_w(IPI_STATUS.into()));
    several::<7, _>(|| iocsr::write_w(IPI_CLEAR.into(), 0));
    send::events();
    with_others(Interrupt::IPI, false, || {
        each::<8, _>(|| ipi(smp::id(1)), 1)
    });
    with_others(Interrupt::SWI0, false, || {
        each::<9, _>(|| swi0(smp::id(1)), 1);
        each_set::<10>(7);
    });
    with_others(Interrupt::SWI0, true, || {
        each::<12, _>(|| swi0(smp::id(1)), 1);
        each_set::<13>(7);
        each_set::<14>(16);
    });
}

/// Sends by `send`, each when the `count` vCPUs behind vCPU 0 have taken the
/// one before.
fn each<const N: u32, T>(send: impl Fn() -> T, count: usize) {
    for time in 0..=TIMES {
        let before = send::taken_by_all(count);
        // The first finds those asleep that have polled for long enough.
        if time > 0 {
            mark::<N>();
        }
        let _ = send();
        settle(count, before + 1);
        mark::<0>();
    }
}

/// Sends to a set of `count`, where there are as many others.
fn each_set<const N: u32>(count: usize) {
    if count < smp::count() {
        let set = ((1 << count) - 1) << 1;
        each::<N, _>(|| hvcl::<CODE_SERVICE>([SEND_IPI, set, 0, 0]), count);
    }
}

/// Sends to a vCPU that sleeps, and to one that has the interrupt pending.
pub fn asleep() {
    ready();
    mark::<15>();
    turns::few_hops();
    mark::<0>();
    send::beside_pending(|id| several::<16, _>(|| swi0(id)));
}

/// Time slices of two vCPUs on a CPU.
pub fn slices() {
    ready();
    mark::<17>();
    turns::few_slices();
    mark::<0>();
}
