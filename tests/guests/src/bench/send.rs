//! Sends from vCPU 0 to others, which run, poll, or have one pending.

use super::{BATCHES, measure, report};
use crate::runtime::call::hvcl;
use crate::runtime::smp::{self, MAX_CPUS};
use crate::runtime::trap::{mask, taken, unmask};
use crate::runtime::{iocsr, ticks, ticks_per_second};
use crate::{csrrd, csrwr, csrxchg};
use core::arch::{asm, global_asm};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use guest_pv::abi::hypercall::{CODE_SERVICE, SEND_IPI};
use guest_pv::abi::iocsr::{IPI_SEND, ipi_send};
use loongarch_isa::csr::Csr;
use loongarch_isa::exception::Interrupt;

/// Interrupts that each vCPU has taken since the measurement began.
static TAKEN: [AtomicU64; MAX_CPUS] = [const { AtomicU64::new(0) }; MAX_CPUS];
static STOP: AtomicU64 = AtomicU64::new(0);

#[inline(always)]
pub fn swi0(id: u64) {
    hvcl::<CODE_SERVICE>([SEND_IPI, 1, 0, id]);
}

#[inline(always)]
pub fn ipi(id: u64) {
    iocsr::write_w(IPI_SEND.into(), ipi_send(id as u32, 2).into());
}

/// Ticks between two expiries of vCPU 0's timer, whose interrupt is masked:
/// an emulator that counts instructions lets a CPU that polls run until the
/// next event.
const EVENTS: u64 = 500;

/// Starts vCPU 0's timer.
pub fn events() {
    csrwr!(TCFG, EVENTS | 3);
}

/// Runs `act` on vCPU 0, while the others take interrupts of `line`, `busy`
/// or `idle` in between.
pub fn with_others(line: Interrupt, busy: bool, act: fn()) {
    static LINE: AtomicU64 = AtomicU64::new(0);
    static BUSY: AtomicBool = AtomicBool::new(false);
    LINE.store(line.number().into(), Ordering::Relaxed);
    BUSY.store(busy, Ordering::Relaxed);
    set_act(act as usize);
    STOP.store(0, Ordering::SeqCst);
    TAKEN
        .iter()
        .for_each(|taken| taken.store(0, Ordering::SeqCst));
    smp::on_all(|index| {
        if index > 0 {
            let busy = BUSY.load(Ordering::Relaxed);
            take_interrupts(index, LINE.load(Ordering::Relaxed) as u8, busy);
            return;
        }
        // SAFETY: `with_others` stored a function of this type.
        let act: fn() = unsafe { core::mem::transmute(stored_act()) };
        act();
        STOP.store(1, Ordering::SeqCst);
        (1..smp::count()).for_each(|index| {
            swi0(smp::id(index));
            ipi(smp::id(index));
        });
    });
}

/// A function for a task, which can't have it in its closure.
static ACT: AtomicU64 = AtomicU64::new(0);

fn set_act(act: usize) {
    ACT.store(act as u64, Ordering::Relaxed);
}

fn stored_act() -> usize {
    ACT.load(Ordering::Relaxed) as usize
}

fn take_interrupts(index: usize, line: u8, busy: bool) {
    let Some(line) = Interrupt::new(line) else {
        return;
    };
    let before = taken(line);
    csrwr!(ECFG, Interrupt::SWI0.bit() | Interrupt::IPI.bit());
    while STOP.load(Ordering::SeqCst) == 0 {
        if !busy {
            // SAFETY: interrupts are off: what comes now ends it.
            unsafe { asm!("idle 0", options(nostack)) };
        }
        unmask();
        TAKEN[index].store(taken(line) - before, Ordering::SeqCst);
        mask();
    }
    csrwr!(ECFG, 0);
}

/// How many interrupts each of the first `count` vCPUs behind vCPU 0 has
/// taken.
pub fn taken_by_all(count: usize) -> u64 {
    let taken = (1..=count).map(|index| TAKEN[index].load(Ordering::SeqCst));
    taken.min().unwrap_or(0)
}

/// Waits until they all have taken `round` interrupts, and a while.
pub fn settle(count: usize, round: u64) {
    while taken_by_all(count) < round {
        core::hint::spin_loop();
    }
    let start = ticks();
    while ticks() - start < 100 {
        core::hint::spin_loop();
    }
}

/// Measures sends to a vCPU that has the interrupt pending.
pub fn pending() {
    beside_pending(|id| {
        measure!("send-pending", swi0(id));
    });
}

/// Runs `act` with the id of vCPU 1, which sleeps with SWI0 masked and
/// pending.
pub fn beside_pending(act: fn(u64)) {
    set_act(act as usize);
    smp::on_all(|index| match index {
        0 => {
            let id = smp::id(1);
            let start = ticks();
            while ticks() - start < 100_000 {
                core::hint::spin_loop();
            }
            swi0(id);
            // SAFETY: `beside_pending` stored a function of this type.
            let act: fn(u64) = unsafe { core::mem::transmute(stored_act()) };
            act(id);
            ipi(id);
        }
        1 => {
            csrwr!(ECFG, Interrupt::IPI.bit());
            // SAFETY: sleeps until the IPI.
            unsafe { asm!("idle 0", options(nostack)) };
            unmask();
            mask();
            csrxchg!(ESTAT, 0, Interrupt::SWI0.bit());
            csrwr!(ECFG, 0);
        }
        _ => {}
    });
}

global_asm!(
    ".section .text.exception, \"ax\"",
    ".balign 4096",
    ".globl bench_swi0_entry",
    "bench_swi0_entry:",
    "csrwr $t0, {save1}",
    "ori $t0, $zero, 1",
    "csrxchg $zero, $t0, {estat}",
    "csrrd $t0, {save1}",
    "ertn",
    ".section .text, \"ax\"",
    save1 = const Csr::save(1).number(),
    estat = const Csr::ESTAT.number(),
);

/// Instructions of the handler above.
const HANDLER: u64 = 5;

unsafe extern "C" {
    fn bench_swi0_entry();
}

/// A send to oneself: the send, the kick that it ends in, and the way to the
/// guest's vector, less the handler there.
pub fn to_self() {
    let id = csrrd!(CPUID);
    let entry = csrwr!(EENTRY, bench_swi0_entry as *const () as u64);
    csrwr!(ECFG, Interrupt::SWI0.bit());
    unmask();
    let samples = measure!("send-self-and-handler", swi0(id));
    mask();
    csrwr!(ECFG, 0);
    csrwr!(EENTRY, entry);
    let tick = 1_000_000_000 / ticks_per_second();
    report(
        "send-self",
        &mut [samples.saturating_sub(HANDLER); BATCHES],
        tick,
    );
}
