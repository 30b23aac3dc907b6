//! Handling interrupts, and waiting while they are handled.

use super::{ipi, ledger};
use crate::check::Outcome;
use crate::runtime::smp::{self, CPUS};
use crate::runtime::trap::{clear_vectors, mask, unmask};
use crate::runtime::{doze, iocsr, ticks, ticks_per_second};
use crate::{csrrd, csrwr};
use core::sync::atomic::{AtomicBool, Ordering};
use guest_pv::abi::iocsr::{IPI_SEND, ipi_send};
use loongarch_isa::exception::Interrupt;

/// Vector of a native IPI that only wakes.
const WAKE: u32 = 30;
/// Seconds after which a wait for interrupts is given up.
const PATIENCE: u64 = 60;
/// Seconds that others may be busy for.
const LONGEST: u64 = 3600;

/// Handles SWI0 and IPI, by the crate.
pub fn on_interrupt(cpu: usize, lines: u64) {
    if lines & Interrupt::SWI0.bit() != 0 {
        ledger::handle(cpu, ipi().handle_swi0(cpu));
    }
    if lines & Interrupt::IPI.bit() == 0 {
    } else if ipi().is_paravirtual() {
        // Wake-ups only. The crate's handler would look at the message word
        // as well, and make the counts of SWI0 inexact.
        clear_vectors();
    } else {
        ledger::handle(cpu, ipi().handle_ipi(cpu));
    }
}

/// Lets SWI0 and IPI through.
pub fn begin() {
    csrwr!(ECFG, Interrupt::SWI0.bit() | Interrupt::IPI.bit());
    unmask();
}

/// Lets nothing through.
pub fn end() {
    mask();
    csrwr!(ECFG, 0);
}

/// Handles interrupts until `done`; looks after each of them, and every `us`
/// microseconds. Whether it was done in time.
pub fn until(us: u64, done: impl Fn() -> bool) -> bool {
    within(PATIENCE, us, done)
}

/// [`until`], for what other vCPUs do before they come to an end: those whose
/// CPU has more to do may take long.
pub fn until_others(us: u64, done: impl Fn() -> bool) -> bool {
    within(LONGEST, us, done)
}

fn within(seconds: u64, us: u64, done: impl Fn() -> bool) -> bool {
    let start = ticks();
    loop {
        mask();
        if done() {
            unmask();
            return true;
        }
        doze(us);
        unmask();
        if ticks() - start > seconds * ticks_per_second() {
            return false;
        }
    }
}

/// Wakes every other vCPU, natively, whatever IPIs are otherwise.
pub fn wake_all() {
    for cpu in CPUS.iter().take(smp::count()).filter_map(|cpu| cpu.id()) {
        if u64::from(cpu.number()) != csrrd!(CPUID) {
            iocsr::write_w(IPI_SEND.into(), ipi_send(cpu.number(), WAKE).into());
        }
    }
}

static OVER: AtomicBool = AtomicBool::new(false);

/// Runs `act` on the boot vCPU while all others handle interrupts.
pub fn while_all_serve(act: impl FnOnce() -> Outcome) -> Outcome {
    OVER.store(false, Ordering::SeqCst);
    smp::begin(|_| {
        begin();
        until_others(100_000, || OVER.load(Ordering::SeqCst));
        end();
    });
    begin();
    let outcome = act();
    OVER.store(true, Ordering::SeqCst);
    wake_all();
    end();
    smp::finish();
    outcome
}
