//! Sends from vCPU 0 to all others, which run, poll, or have one pending.

use super::{BATCHES, measure, report};
use crate::runtime::call::hvcl;
use crate::runtime::smp::{self, MAX_CPUS};
use crate::runtime::trap::{mask, taken, unmask};
use crate::runtime::{iocsr, ticks, ticks_per_second};
use crate::{csrrd, csrwr, csrxchg};
use core::arch::{asm, global_asm};
use core::sync::atomic::{AtomicU64, Ordering};
use guest_pv::abi::hypercall::{CODE_SERVICE, SEND_IPI};
use guest_pv::abi::iocsr::{IPI_SEND, ipi_send};
use loongarch_isa::csr::Csr;
use loongarch_isa::exception::Interrupt;

/// Interrupts that each vCPU has taken since the measurement began.
static TAKEN: [AtomicU64; MAX_CPUS] = [const { AtomicU64::new(0) }; MAX_CPUS];
static STOP: AtomicU64 = AtomicU64::new(0);

#[inline(always)]
fn swi0(id: u64) {
    hvcl::<CODE_SERVICE>([SEND_IPI, 1, 0, id]);
}

#[inline(always)]
fn ipi(id: u64) {
    iocsr::write_w(IPI_SEND.into(), ipi_send(id as u32, 2).into());
}

/// Ticks between two expiries of vCPU 0's timer, whose interrupt is masked:
/// an emulator that counts instructions lets a CPU that polls run until the
/// next event.
const EVENTS: u64 = 5_000 & !3;

/// Measures sends to vCPUs that poll. Those to vCPUs that run can't be told
/// from what the kicked vCPU does: an emulator whose clock is the sum of all
/// CPUs' instructions lets it run at once.
pub fn run() {
    csrwr!(TCFG, EVENTS | 3);
    with_others(Interrupt::SWI0, || to_each("send-polling", swi0));
    with_others(Interrupt::SWI0, to_set);
    with_others(Interrupt::IPI, || to_each("iocsr-send", ipi));
}

/// Runs `act` on vCPU 0, while the others are `idle` until an interrupt of
/// `line`.
fn with_others(line: Interrupt, act: fn()) {
    static LINE: AtomicU64 = AtomicU64::new(0);
    static ACT: AtomicU64 = AtomicU64::new(0);
    LINE.store(line.number().into(), Ordering::Relaxed);
    ACT.store(act as usize as u64, Ordering::Relaxed);
    STOP.store(0, Ordering::SeqCst);
    TAKEN
        .iter()
        .for_each(|taken| taken.store(0, Ordering::SeqCst));
    smp::on_all(|index| {
        if index > 0 {
            take_interrupts(index, LINE.load(Ordering::Relaxed) as u8);
            return;
        }
        // SAFETY: `with_others` stored a function of this type.
        let act: fn() = unsafe { core::mem::transmute(ACT.load(Ordering::Relaxed) as usize) };
        act();
        STOP.store(1, Ordering::SeqCst);
        (1..smp::count()).for_each(|index| {
            swi0(smp::id(index));
            ipi(smp::id(index));
        });
    });
}

fn take_interrupts(index: usize, line: u8) {
    let Some(line) = Interrupt::new(line) else {
        return;
    };
    let before = taken(line);
    csrwr!(ECFG, Interrupt::SWI0.bit() | Interrupt::IPI.bit());
    while STOP.load(Ordering::SeqCst) == 0 {
        // SAFETY: interrupts are off: what comes now ends it.
        unsafe { asm!("idle 0", options(nostack)) };
        unmask();
        TAKEN[index].store(taken(line) - before, Ordering::SeqCst);
        mask();
    }
    csrwr!(ECFG, 0);
}

/// Waits until every other vCPU has taken `round` interrupts, and a while.
fn settle(round: u64) {
    let all = || (1..smp::count()).all(|index| TAKEN[index].load(Ordering::SeqCst) >= round);
    while !all() {
        core::hint::spin_loop();
    }
    let start = ticks();
    while ticks() - start < 100 {
        core::hint::spin_loop();
    }
}

/// One send to each of the others: a batch, of which the loop is a part.
fn to_each(name: &str, send: impl Fn(u64)) {
    let mut ids = [0; MAX_CPUS];
    for (index, id) in ids.iter_mut().enumerate().take(smp::count()) {
        *id = smp::id(index);
    }
    let ids = &ids[1..smp::count()];
    let mut samples = [0; BATCHES];
    for (round, sample) in (1..).zip(&mut samples) {
        let start = ticks();
        for &id in ids {
            send(id);
        }
        *sample = ticks() - start;
        settle(round);
    }
    report(name, &mut samples, ids.len() as u64);
}

/// One send to all of the others at once. The counter is too coarse for one
/// exit, so the mean is taken of the better half of the samples.
fn to_set() {
    let set = (1..smp::count()).fold(0u64, |set, index| set | 1 << smp::id(index));
    let mut samples = [0; BATCHES];
    for (round, sample) in (1..).zip(&mut samples) {
        let start = ticks();
        hvcl::<CODE_SERVICE>([SEND_IPI, set, 0, 0]);
        *sample = ticks() - start;
        settle(round);
    }
    samples.sort_unstable();
    let half = BATCHES / 2;
    let sum: u64 = samples[..half].iter().sum();
    report("send-set", &mut [sum; BATCHES], half as u64);
}

/// Sends to vCPU 1, which sleeps with SWI0 masked: the first stays pending.
pub fn pending() {
    smp::on_all(|index| match index {
        0 => {
            let id = smp::id(1);
            let start = ticks();
            while ticks() - start < 100_000 {
                core::hint::spin_loop();
            }
            swi0(id);
            measure!("send-pending", swi0(id));
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
