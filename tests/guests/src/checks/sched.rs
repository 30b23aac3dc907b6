//! Several vCPUs on one CPU: who wakes runs soon, and takes no more than its
//! share by it.

use crate::check::{Check, Outcome, ensure};
use crate::runtime::call::hvcl;
use crate::runtime::{doze, microseconds, smp, ticks, ticks_per_second};
use crate::{csrrd, csrwr, csrxchg};
use core::arch::asm;
use core::sync::atomic::{AtomicU64, Ordering};
use guest_pv::abi::hypercall::{CODE_SERVICE, SEND_IPI};
use loongarch_isa::exception::Interrupt;

/// The checks.
pub const CHECKS: [Check; 3] = [
    Check {
        name: "sched.timer-beside-busy",
        cpus: 2,
        run: timer,
    },
    Check {
        name: "sched.ipi-beside-busy",
        cpus: 3,
        run: ipi,
    },
    Check {
        name: "sched.share-beside-wakers",
        cpus: 2,
        run: share,
    },
];

/// A time slice of the hypervisor's, in ticks.
fn slice() -> u64 {
    ticks_per_second() / 200
}

static STOP: AtomicU64 = AtomicU64::new(0);
/// When an IPI was sent.
static SENT: AtomicU64 = AtomicU64::new(0);

const ROUNDS: usize = 15;

/// The median.
fn middle(mut late: [u64; ROUNDS]) -> u64 {
    late.sort_unstable();
    late[ROUNDS / 2]
}

/// Runs `task` on all vCPUs, if they are on one CPU and only they take time;
/// whether they are.
fn on_one_cpu(task: smp::Task) -> bool {
    if !smp::on_one_counted_cpu() {
        return false;
    }
    STOP.store(0, Ordering::SeqCst);
    SENT.store(0, Ordering::SeqCst);
    smp::on_all(task);
    true
}

fn busy() {
    while STOP.load(Ordering::Relaxed) == 0 {
        core::hint::spin_loop();
    }
}

static LATE: AtomicU64 = AtomicU64::new(0);

/// A timer's interrupt ends a sleep long before the slices of those that are
/// busy do.
fn timer() -> Outcome {
    let ran = on_one_cpu(|index| {
        if index > 0 {
            return busy();
        }
        let late = core::array::from_fn(|round| {
            let us = 700 + 90 * round as u64;
            let due = ticks() + microseconds(us);
            doze(us);
            ticks().saturating_sub(due)
        });
        LATE.store(middle(late), Ordering::Relaxed);
        STOP.store(1, Ordering::SeqCst);
    });
    ensure(
        "it waited for a slice",
        !ran || LATE.load(Ordering::Relaxed) < slice() / 10,
    )
}

/// The same for an IPI, which the last vCPU sends.
fn ipi() -> Outcome {
    let ran = on_one_cpu(|index| match index {
        0 => {
            csrwr!(ECFG, Interrupt::SWI0.bit());
            let late = core::array::from_fn(|_| {
                while csrrd!(ESTAT) & Interrupt::SWI0.bit() == 0 {
                    // SAFETY: interrupts are off: what comes ends it.
                    unsafe { asm!("idle 0", options(nostack)) };
                }
                let late = ticks().saturating_sub(SENT.load(Ordering::SeqCst));
                csrxchg!(ESTAT, 0, Interrupt::SWI0.bit());
                SENT.store(0, Ordering::SeqCst);
                late
            });
            csrwr!(ECFG, 0);
            LATE.store(middle(late), Ordering::Relaxed);
            STOP.store(1, Ordering::SeqCst);
        }
        _ if index == smp::count() - 1 => send(),
        _ => busy(),
    });
    ensure(
        "it waited for a slice",
        !ran || LATE.load(Ordering::Relaxed) < slice() / 10,
    )
}

/// Sends the next IPI a while after the one before was taken.
fn send() {
    while STOP.load(Ordering::SeqCst) == 0 {
        if SENT.load(Ordering::SeqCst) == 0 {
            let start = ticks();
            while ticks() - start < microseconds(300) {
                core::hint::spin_loop();
            }
            SENT.store(ticks(), Ordering::SeqCst);
            hvcl::<CODE_SERVICE>([SEND_IPI, 1, 0, smp::id(0)]);
        }
    }
}

/// Ticks in which vCPU 0 ran.
static RAN: AtomicU64 = AtomicU64::new(0);

/// vCPUs that sleep for a moment all the time leave one that never does its
/// share.
fn share() -> Outcome {
    let span = 40 * slice();
    let ran = on_one_cpu(|index| {
        if index > 0 {
            while STOP.load(Ordering::SeqCst) == 0 {
                let start = ticks();
                while ticks() - start < microseconds(40) {
                    core::hint::spin_loop();
                }
                doze(1);
            }
            return;
        }
        // A look that comes long after the one before is time of others.
        let (start, mut before, mut ran) = (ticks(), ticks(), 0);
        while before - start < 40 * slice() {
            let now = ticks();
            if now - before < microseconds(5) {
                ran += now - before;
            }
            before = now;
        }
        RAN.store(ran, Ordering::Relaxed);
        STOP.store(1, Ordering::SeqCst);
    });
    let share = span / smp::count() as u64;
    ensure(
        "it had less than its share",
        !ran || RAN.load(Ordering::Relaxed) >= share / 10 * 8,
    )
}
