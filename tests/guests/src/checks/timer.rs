//! The guest's timer, its counter, and `idle`.

use crate::check::{Check, Outcome, ensure, equal};
use crate::runtime::smp;
use crate::runtime::trap::{mask, taken, unmask};
use crate::runtime::{microseconds, ticks, wait_until};
use crate::{csrrd, csrwr};
use core::arch::asm;
use core::sync::atomic::{AtomicU64, Ordering};
use loongarch_isa::exception::Interrupt;

/// The checks.
pub const CHECKS: [Check; 9] = [
    Check {
        name: "timer.one-shot",
        cpus: 1,
        run: one_shot,
    },
    Check {
        name: "timer.periodic",
        cpus: 1,
        run: periodic,
    },
    Check {
        name: "timer.zero",
        cpus: 1,
        run: zero,
    },
    Check {
        name: "timer.extremes",
        cpus: 1,
        run: extremes,
    },
    Check {
        name: "idle.timer",
        cpus: 1,
        run: idle_timer,
    },
    Check {
        name: "idle.pending",
        cpus: 1,
        run: idle_pending,
    },
    Check {
        name: "idle.masked",
        cpus: 1,
        run: idle_masked,
    },
    Check {
        name: "timer.all",
        cpus: 2,
        run: all_periodic,
    },
    Check {
        name: "counter.monotonic",
        cpus: 1,
        run: monotonic,
    },
];

const EN: u64 = 1;
const PERIODIC: u64 = 2;

fn arm(value: u64) {
    csrwr!(TICLR, 1);
    csrwr!(ECFG, Interrupt::TI.bit());
    csrwr!(TCFG, value);
}

fn disarm() {
    mask();
    csrwr!(TCFG, 0);
    csrwr!(TICLR, 1);
    csrwr!(ECFG, 0);
}

fn wait(ticks_to_wait: u64) {
    let start = ticks();
    while ticks() - start < ticks_to_wait {
        core::hint::spin_loop();
    }
}

fn idle() {
    // SAFETY: waits; changes nothing.
    unsafe { asm!("idle 0", options(nostack)) };
}

fn one_shot() -> Outcome {
    let before = taken(Interrupt::TI);
    arm(microseconds(100) | EN);
    unmask();
    let fired = wait_until(|| taken(Interrupt::TI) > before);
    wait(microseconds(1000));
    let count = taken(Interrupt::TI) - before;
    let (tval, tcfg) = (csrrd!(TVAL), csrrd!(TCFG));
    disarm();
    ensure("it fires", fired)?;
    equal("interrupts", count, 1)?;
    ensure("TVAL after the expiry", tval > microseconds(100))?;
    equal("TCFG keeps EN", tcfg & 1, 1)
}

/// Expiries may come late, and several as one, where the vCPU waits for its
/// CPU; but none comes before its time, so none comes twice.
fn periodic() -> Outcome {
    let before = taken(Interrupt::TI);
    let period = microseconds(500);
    let start = ticks();
    arm(period | PERIODIC | EN);
    unmask();
    let goes_on = wait_until(|| taken(Interrupt::TI) - before >= 20);
    // In this order: one that comes in between is not counted.
    let (count, elapsed) = (taken(Interrupt::TI) - before, ticks() - start);
    disarm();
    ensure("twenty interrupts", goes_on)?;
    ensure("not before their time", elapsed >= count * period)
}

/// A start value of nothing fires at once, and the guest gets on.
fn zero() -> Outcome {
    let before = taken(Interrupt::TI);
    arm(EN);
    unmask();
    wait(microseconds(50));
    let count = taken(Interrupt::TI) - before;
    disarm();
    ensure("no more than one interrupt", count <= 1)
}

/// The shortest period, whose interrupts nobody takes, and the longest time,
/// which survives the vCPU's turns off its CPU.
fn extremes() -> Outcome {
    const LONGEST: u64 = (1 << 48) - 4;
    mask();
    arm(4 | PERIODIC | EN);
    let fires = wait_until(|| csrrd!(ESTAT) & Interrupt::TI.bit() != 0);
    wait(microseconds(20_000));
    disarm();
    ensure("it fires", fires)?;
    // Before it is armed, until after it was read: this vCPU may be away in between.
    let start = ticks();
    arm(LONGEST | EN);
    wait(microseconds(20_000));
    let (pending, left) = (csrrd!(ESTAT) & Interrupt::TI.bit(), csrrd!(TVAL));
    let passed = ticks() - start;
    disarm();
    equal("it hasn't fired", pending, 0)?;
    ensure(
        "it counts",
        left <= LONGEST && LONGEST - left <= passed + 64,
    )?;
    ensure(
        "and doesn't stand still",
        LONGEST - left >= microseconds(19_000),
    )
}

fn idle_timer() -> Outcome {
    let before = taken(Interrupt::TI);
    for round in 1..=10 {
        let start = ticks();
        arm(microseconds(200) | EN);
        // Interrupts are off at `idle`, or one that comes just before it
        // would be slept over.
        while taken(Interrupt::TI) - before < round {
            idle();
            unmask();
            mask();
        }
        ensure("it slept long enough", ticks() - start >= microseconds(200))?;
    }
    disarm();
    equal("interrupts", taken(Interrupt::TI) - before, 10)
}

/// What is pending and enabled ends `idle` at once, though interrupts are off.
fn idle_pending() -> Outcome {
    mask();
    let before = taken(Interrupt::TI);
    arm(microseconds(10) | EN);
    let fires = wait_until(|| csrrd!(ESTAT) & Interrupt::TI.bit() != 0);
    if fires {
        idle();
    }
    let count = taken(Interrupt::TI) - before;
    disarm();
    ensure("it fires", fires)?;
    equal("none was taken", count, 0)
}

/// A source that isn't enabled doesn't end `idle`; the timer does.
fn idle_masked() -> Outcome {
    use crate::runtime::iocsr;
    use guest_pv::abi::iocsr::{IPI_CLEAR, IPI_ENABLE, IPI_SET};
    iocsr::write_w(IPI_ENABLE.into(), 0xffff_ffff);
    iocsr::write_w(IPI_SET.into(), 2);
    ensure("the line is up", csrrd!(ESTAT) & Interrupt::IPI.bit() != 0)?;
    let start = ticks();
    arm(microseconds(300) | EN);
    idle();
    let slept = ticks() - start;
    iocsr::write_w(IPI_CLEAR.into(), 2);
    let line = csrrd!(ESTAT) & Interrupt::IPI.bit();
    disarm();
    ensure("it slept until the timer", slept >= microseconds(300))?;
    equal("the line is down", line, 0)
}

static FAULTS: AtomicU64 = AtomicU64::new(0);

/// Every vCPU has its own timer, whether they share CPUs or not: while one
/// waits for a CPU its expiries come together, and none comes twice.
fn all_periodic() -> Outcome {
    FAULTS.store(0, Ordering::Relaxed);
    smp::on_all(|_| {
        let before = taken(Interrupt::TI);
        let period = microseconds(500);
        let start = ticks();
        arm(period | PERIODIC | EN);
        unmask();
        wait(20 * period);
        let ticks_on = wait_until(|| taken(Interrupt::TI) > before);
        mask();
        let elapsed = ticks() - start;
        let count = taken(Interrupt::TI) - before;
        disarm();
        if !ticks_on || count > elapsed / period + 1 {
            FAULTS.fetch_add(1, Ordering::Relaxed);
        }
    });
    equal(
        "vCPUs with a wrong count",
        FAULTS.load(Ordering::Relaxed),
        0,
    )
}

static LATEST: AtomicU64 = AtomicU64::new(0);

/// No vCPU reads a counter that is behind what another one has read before.
fn monotonic() -> Outcome {
    FAULTS.store(0, Ordering::Relaxed);
    LATEST.store(0, Ordering::SeqCst);
    smp::on_all(|_| {
        for _ in 0..2000 {
            let latest = LATEST.load(Ordering::SeqCst);
            let now = ticks();
            if now < latest {
                FAULTS.fetch_add(1, Ordering::Relaxed);
            }
            LATEST.fetch_max(now, Ordering::SeqCst);
        }
    });
    equal("readings that went back", FAULTS.load(Ordering::Relaxed), 0)
}
