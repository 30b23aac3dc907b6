//! vCPUs on the move: between the machine's CPUs, all the time.
//!
//! The VM moves its own vCPUs, by the hypervisor's call. Nothing that a vCPU
//! has may show it: registers of any kind, its timer, its counter; and what
//! a CPU still knows of an earlier stay must not show either.

use crate::check::{self, Check, Outcome, ensure, equal};
use crate::checks::control::{ALL, BLOCK, BLOCK_BYTES, PAGE, change, word};
use crate::checks::units::fill_and_compare;
use crate::println;
use crate::runtime::call::hvcl;
use crate::runtime::cmdline::Options;
use crate::runtime::random::Random;
use crate::runtime::trap::{catch, mask, taken, unmask};
use crate::runtime::{iocsr, microseconds, smp, ticks, wait_until};
use crate::{csrrd, csrwr, csrxchg};
use core::arch::asm;
use core::sync::atomic::{AtomicU64, Ordering};
use guest_pv::abi::hypercall::{CODE_SERVICE, CallError};
use guest_pv::abi::iocsr::{IPI_CLEAR, IPI_ENABLE, IPI_SET};
use guest_pv::abi::vendor::{MEMORY_PROTECT, MOVE_VCPU};
use loongarch_isa::exception::Interrupt;

const CHECKS: [Check; 9] = [
    Check {
        name: "move.refused",
        cpus: 1,
        run: refused,
    },
    Check {
        name: "move.linked-load",
        cpus: 1,
        run: linked_load,
    },
    Check {
        name: "move.identifiers",
        cpus: 1,
        run: identifiers,
    },
    Check {
        name: "move.pending",
        cpus: 1,
        run: pending,
    },
    Check {
        name: "move.one-shot",
        cpus: 1,
        run: one_shot,
    },
    Check {
        name: "move.units",
        cpus: 1,
        run: units,
    },
    Check {
        name: "move.alone",
        cpus: 1,
        run: alone,
    },
    Check {
        name: "move.asleep",
        cpus: 2,
        run: asleep,
    },
    Check {
        name: "move.everyone",
        cpus: 2,
        run: everyone,
    },
];

/// Moves that were made.
static MOVES: AtomicU64 = AtomicU64::new(0);

/// Runs the checks; how many failed.
pub fn run(options: &Options) -> u64 {
    let failed = check::run_all(&[&CHECKS], options.text("only"), smp::count());
    println!("guest: {} moves", MOVES.load(Ordering::Relaxed));
    failed
}

fn places() -> u64 {
    smp::host_cpus().max(1)
}

fn call(id: u64, place: u64) -> u64 {
    hvcl::<CODE_SERVICE>([MOVE_VCPU, id, place, 0])
}

/// Moves the vCPU of index `index`, by number, round the VM's CPUs.
pub fn go(index: usize, number: u64) {
    let done = call(smp::id(index), number % places());
    if done != 0 {
        println!("FAIL move: {done:#x}");
    }
    MOVES.fetch_add(1, Ordering::Relaxed);
}

fn refused() -> Outcome {
    let bad = CallError::InvalidParameter.register();
    for id in [1000, 1024, 1 << 32, u64::MAX] {
        equal("a vCPU that isn't", call(id, 0), bad)?;
    }
    for place in [places(), 1 << 32, u64::MAX] {
        equal("a CPU that isn't", call(smp::id(0), place), bad)?;
    }
    equal("to where it is", call(smp::id(0), 0), 0)
}

/// A pair of LL and SC with a move in between fails.
fn linked_load() -> Outcome {
    let cell = AtomicU64::new(0);
    let mut stored = 0;
    for place in [1, 0] {
        let result: u64;
        // SAFETY: a word of this function; a call changes a0 alone.
        unsafe {
            asm!(
                "ll.d {v}, {w}, 0", "hvcl {code}", "addi.d {v}, {v}, 1", "sc.d {v}, {w}, 0",
                code = const CODE_SERVICE, v = out(reg) result, w = in(reg) cell.as_ptr(),
                inlateout("$a0") MOVE_VCPU => _, in("$a1") smp::id(0),
                in("$a2") place % places(), options(nostack),
            );
        }
        MOVES.fetch_add(1, Ordering::Relaxed);
        stored += result;
    }
    ensure("the machine has two CPUs", places() > 1)?;
    equal("SC after a move", stored, 0)
}

/// Stays on each of two CPUs, after more of which than there are guest
/// identifiers (8 bits) those of the first ones are given again.
const STAYS: u64 = 255;
/// Stays with used identifiers, in which all pages are tried.
const TRIED: u64 = 6;

/// Whether a store to the page is an address error.
fn faults(page: u64) -> bool {
    // SAFETY: a page that nothing else uses; the fault is caught.
    catch(|| unsafe { word(page).write_volatile(page) }).is_some()
}

/// On each stay on one CPU another page is written, and then made read-only
/// while the vCPU is on another CPU: the first CPU's TLB may still know it as
/// writable, by an identifier that isn't used any more. Once it is given
/// again, none of that may be left.
fn identifiers() -> Outcome {
    change(MEMORY_PROTECT, BLOCK, BLOCK_BYTES, ALL)?;
    // The block is split: pages have an entry of the TLB for each pair.
    change(MEMORY_PROTECT, BLOCK, PAGE, 0)?;
    for stay in 1..=STAYS {
        go(0, 0);
        ensure("writable", !faults(2 * stay))?;
        go(0, 1);
        change(MEMORY_PROTECT, BLOCK + 2 * stay * PAGE, PAGE, 0)?;
    }
    for _ in 0..TRIED {
        go(0, 0);
        let written = (1..=STAYS).filter(|stay| !faults(2 * stay)).count();
        equal("pages that can still be written", written as u64, 0)?;
        go(0, 1);
    }
    change(MEMORY_PROTECT, BLOCK, BLOCK_BYTES, ALL)
}

/// Round the CPUs, some times.
fn round_trip() {
    (1..=6).for_each(|number| go(0, number));
}

/// What is pending and not delivered stays so, whatever it is, and what was
/// cleared stays clear.
fn pending() -> Outcome {
    let all = Interrupt::SWI0.bit() | Interrupt::SWI1.bit() | Interrupt::IPI.bit();
    let all = all | Interrupt::TI.bit();
    let lines = || csrrd!(ESTAT) & all;
    csrwr!(ECFG, 0);
    csrxchg!(ESTAT, 3, 3);
    iocsr::write_w(IPI_ENABLE.into(), 0xffff_ffff);
    iocsr::write_w(IPI_SET.into(), 0x10);
    csrwr!(TCFG, microseconds(20) | 1);
    let expired = wait_until(|| lines() == all);
    ensure("all lines are up", expired)?;
    round_trip();
    equal("after moves", lines(), all)?;
    csrxchg!(ESTAT, 0, Interrupt::SWI0.bit());
    iocsr::write_w(IPI_CLEAR.into(), 0x10);
    csrwr!(TICLR, 1);
    round_trip();
    equal("what is left", lines(), Interrupt::SWI1.bit())?;
    csrwr!(TCFG, 0);
    csrxchg!(ESTAT, 0, 3);
    round_trip();
    equal("nothing", lines(), 0)
}

/// A one-shot fires once, on the way or before it, and never again.
fn one_shot() -> Outcome {
    for us in [10, 60, 200] {
        let before = taken(Interrupt::TI);
        csrwr!(ECFG, Interrupt::TI.bit());
        csrwr!(TCFG, microseconds(us) | 1);
        unmask();
        (0..40).for_each(|number| go(0, number));
        let fired = wait_until(|| taken(Interrupt::TI) > before);
        round_trip();
        mask();
        let (count, tval, tcfg) = (taken(Interrupt::TI) - before, csrrd!(TVAL), csrrd!(TCFG));
        csrwr!(TCFG, 0);
        csrwr!(ECFG, 0);
        ensure("it fires", fired)?;
        equal("how often", count, 1)?;
        ensure("TVAL after the expiry", tval > microseconds(us))?;
        equal("TCFG keeps EN", tcfg & 1, 1)?;
    }
    Ok(())
}

/// The widest registers are the vCPU's own on every CPU.
fn units() -> Outcome {
    let wrong = fill_and_compare(0x0123_4567_89ab_cdef, round_trip);
    csrwr!(EUEN, 0);
    equal("wrong words", wrong, 0)
}

static LATEST: AtomicU64 = AtomicU64::new(0);

/// What is wrong with a vCPU that has moved, by what it keeps: its id, its
/// floating-point registers, its counter.
fn wrong(index: usize, round: u64, kept: u64) -> u64 {
    let latest = LATEST.load(Ordering::SeqCst);
    let now = ticks();
    let back = now < latest || now < kept;
    LATEST.fetch_max(now, Ordering::SeqCst);
    let other = csrrd!(CPUID) != smp::id(index);
    let value = (index as u64) << 32 | round;
    let read: u64;
    // SAFETY: a register of this vCPU.
    unsafe { asm!("movfr2gr.d {}, $f9", out(reg) read, options(nostack)) };
    u64::from(back) + u64::from(other) + u64::from(read != value)
}

/// Moves itself, or another, `rounds` times; what was wrong. Its timer ticks
/// meanwhile, never before its time.
fn tour(index: usize, rounds: u64, mut next: impl FnMut(u64)) -> u64 {
    csrwr!(EUEN, 1);
    let (before, start, period) = (taken(Interrupt::TI), ticks(), microseconds(200));
    csrwr!(ECFG, csrrd!(ECFG) | Interrupt::TI.bit());
    csrwr!(TCFG, period | 3);
    unmask();
    let mut faults = 0;
    for round in 0..rounds {
        let value = (index as u64) << 32 | round;
        // SAFETY: a register of this vCPU; interrupts don't use it.
        unsafe { asm!("movgr2fr.d $f9, {}", in(reg) value, options(nostack)) };
        let kept = ticks();
        next(round);
        faults += wrong(index, round, kept);
    }
    // It goes on ticking.
    let ticked = taken(Interrupt::TI);
    let goes_on = wait_until(|| taken(Interrupt::TI) > ticked + 1);
    mask();
    let (count, elapsed) = (taken(Interrupt::TI) - before, ticks() - start);
    csrwr!(TCFG, 0);
    csrwr!(TICLR, 1);
    csrwr!(ECFG, 0);
    csrwr!(EUEN, 0);
    faults + u64::from(!goes_on) + u64::from(count > elapsed / period)
}

fn alone() -> Outcome {
    equal("what was wrong", tour(0, 300, |round| go(0, round)), 0)
}

/// A vCPU that sleeps until its timer is moved in its sleep, and wakes in
/// time, where it is.
fn asleep() -> Outcome {
    static SLEPT: AtomicU64 = AtomicU64::new(0);
    SLEPT.store(0, Ordering::SeqCst);
    smp::begin(|index| {
        if index == 1 {
            for _ in 0..20 {
                let start = ticks();
                crate::runtime::doze(500);
                let slept = ticks() - start;
                // Whatever moves it doesn't end its sleep.
                SLEPT.fetch_add((slept >= microseconds(500)).into(), Ordering::SeqCst);
            }
        }
    });
    for number in 0..100 {
        go(1, number);
        crate::runtime::nap();
    }
    smp::finish();
    equal("whole sleeps", SLEPT.load(Ordering::SeqCst), 20)
}

static WRONG: AtomicU64 = AtomicU64::new(0);

/// Everyone moves anyone.
fn everyone() -> Outcome {
    WRONG.store(0, Ordering::SeqCst);
    smp::on_all(|index| {
        let mut random = Random::new(index as u64);
        let count = smp::count() as u64;
        let next = |_| {
            go(random.below(count) as usize, random.next());
            if random.below(8) == 0 {
                // SAFETY: waits, until the next tick at the latest.
                unsafe { asm!("idle 0", options(nostack)) };
            }
        };
        WRONG.fetch_add(tour(index, 100, next), Ordering::SeqCst);
    });
    equal("what was wrong", WRONG.load(Ordering::SeqCst), 0)
}
