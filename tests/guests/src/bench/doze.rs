//! Wakes among vCPUs that sleep at once, or poll before they sleep.
//!
//! What a kernel could do that idles in another way than Linux: who waits
//! says so before it sleeps, and who wakes it sends an IPI only then. One
//! that polls meanwhile sees the wake in memory: no exit, no hypervisor.
//!
//! vCPU 0 wakes all others, one by one, and waits for the last one's answer,
//! as `tests/wake` does on Linux. Lines `count NAME` and `count end` are
//! around what is counted from outside.

use super::counted::mark;
use super::send::{events, swi0};
use crate::runtime::smp::{self, MAX_CPUS};
use crate::runtime::{ticks, ticks_per_second};
use crate::{csrwr, csrxchg, println};
use core::arch::asm;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use loongarch_isa::exception::Interrupt;

const ROUNDS: u64 = 32;

/// How often each vCPU has been woken.
static WOKEN: [AtomicU64; MAX_CPUS] = [const { AtomicU64::new(0) }; MAX_CPUS];
/// It sleeps, or is about to: only an IPI wakes it.
static ASLEEP: [AtomicBool; MAX_CPUS] = [const { AtomicBool::new(false) }; MAX_CPUS];
/// How many vCPUs have been woken in all.
static ALL: AtomicU64 = AtomicU64::new(0);
/// Ticks for which who waits polls.
static POLL: AtomicU64 = AtomicU64::new(0);
/// Ticks of a microsecond: to ask for them is an exit.
static MICROSECOND: AtomicU64 = AtomicU64::new(0);

/// Measures both kinds.
pub fn run() {
    events();
    MICROSECOND.store(ticks_per_second() / 1_000_000, Ordering::Relaxed);
    measure("idles", 0);
    measure("polls", ticks_per_second());
}

fn measure(name: &str, poll: u64) {
    POLL.store(poll, Ordering::Relaxed);
    WOKEN
        .iter()
        .for_each(|woken| woken.store(0, Ordering::Relaxed));
    ALL.store(0, Ordering::Relaxed);
    println!("count {name}");
    // Until that has come to the UART.
    pause(10_000);
    smp::on_all(|index| {
        csrwr!(ECFG, Interrupt::SWI0.bit());
        if index == 0 {
            // Until all have begun.
            pause(10_000);
        }
        (0..ROUNDS).for_each(|round| one_round(index, round));
        // Nobody goes on before the last round is over for all.
        match index {
            0 => end(),
            _ => wait(index, ROUNDS),
        }
        csrwr!(ECFG, 0);
    });
    println!("count end");
    pause(10_000);
}

fn end() {
    pause(1_000);
    mark::<0>();
    (1..smp::count()).for_each(wake);
}

fn one_round(index: usize, round: u64) {
    if index == 0 {
        pause(1_000);
        mark::<0>();
        (1..smp::count()).for_each(wake);
        mark::<4>();
        wait(0, round);
        mark::<0>();
        return;
    }
    wait(index, round);
    let others = smp::count() as u64 - 1;
    if ALL.fetch_add(1, Ordering::SeqCst) + 1 == others * (round + 1) {
        // Linux takes longer, and vCPU 0 waits by then.
        pause(100);
        wake(0);
    }
}

/// Lets `microseconds` pass: a thousand is enough until all others wait.
fn pause(microseconds: u64) {
    let start = ticks();
    let span = microseconds * MICROSECOND.load(Ordering::Relaxed);
    while ticks() - start < span {
        core::hint::spin_loop();
    }
}

/// Wakes the vCPU `index`: by an IPI only where nothing less does.
fn wake(index: usize) {
    WOKEN[index].fetch_add(1, Ordering::SeqCst);
    if ASLEEP[index].load(Ordering::SeqCst) {
        swi0(smp::id(index));
    }
}

/// Waits until this vCPU has been woken more than `before` times. Who sleeps
/// has said so before its last look, and who wakes looks for that afterwards.
fn wait(index: usize, before: u64) {
    let woken = || WOKEN[index].load(Ordering::SeqCst) > before;
    let (start, poll) = (ticks(), POLL.load(Ordering::Relaxed));
    while ticks() - start < poll {
        if woken() {
            return;
        }
        core::hint::spin_loop();
    }
    ASLEEP[index].store(true, Ordering::SeqCst);
    while !woken() {
        // SAFETY: interrupts are off: what comes stays pending, and ends it.
        unsafe { asm!("idle 0", options(nostack)) };
        csrxchg!(ESTAT, 0, Interrupt::SWI0.bit());
    }
    ASLEEP[index].store(false, Ordering::SeqCst);
}
