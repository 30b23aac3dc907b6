//! The paravirtual IPI at its edges: who is named by a set and a base, what
//! else of ESTAT changes, and a timer that expires meanwhile.

use crate::check::{Check, Outcome, ensure, equal};
use crate::runtime::call::hvcl;
use crate::runtime::trap::{mask, taken, unmask};
use crate::runtime::{microseconds, nap, smp, ticks, wait_until};
use crate::{csrrd, csrwr, csrxchg};
use core::sync::atomic::{AtomicU64, Ordering};
use guest_pv::abi::hypercall::{CODE_SERVICE, SEND_IPI};
use loongarch_isa::exception::Interrupt;

/// The checks.
pub const CHECKS: [Check; 4] = [
    Check {
        name: "pv-ipi.edges",
        cpus: 1,
        run: edges,
    },
    Check {
        name: "pv-ipi.swi1",
        cpus: 1,
        run: other_lines,
    },
    Check {
        name: "pv-ipi.deaf",
        cpus: 2,
        run: deaf,
    },
    Check {
        name: "pv-ipi.timer",
        cpus: 2,
        run: timer,
    },
];

const SWI0: u64 = Interrupt::SWI0.bit();
const SWI1: u64 = Interrupt::SWI1.bit();

/// Sends SWI0 to the ids `base` + bits of `set`.
fn send(set: u128, base: u64) -> u64 {
    hvcl::<CODE_SERVICE>([SEND_IPI, set as u64, (set >> 64) as u64, base])
}

/// Whether `base` and `set` name `id`: in 64 bits, without a wrap.
fn names(set: u128, base: u64, id: u64) -> bool {
    let bit = id.checked_sub(base).filter(|bit| *bit < 128);
    bit.is_some_and(|bit| set >> bit & 1 == 1)
}

/// Sets and bases around the id of whoever calls.
fn cases(id: u64) -> impl Iterator<Item = (u128, u64)> {
    let distances = [0, 1, 63, 64, 65, 127, 128, 129, 255, 1023];
    let near = distances.into_iter().flat_map(move |distance| {
        let below = id.checked_sub(distance);
        [below, Some(id + distance)].into_iter().flatten()
    });
    // The id as it would look with bits that don't belong to one.
    let far = [1 << 10, 1 << 16, 1 << 31, 1 << 32, 1 << 48, 1 << 63].map(|high| id | high);
    let ends = [
        0,
        896,
        1000,
        1023,
        1024,
        0xffff_ffff,
        1 << 32,
        u64::MAX - 127,
        u64::MAX,
    ];
    let bases = near.chain(far).chain(ends);
    let sets = [
        0,
        1,
        2,
        1 << 63,
        1 << 64,
        1 << 127,
        u128::MAX,
        !1,
        u128::MAX >> 1,
    ];
    bases.flat_map(move |base| sets.map(|set| (set, base)))
}

static TURN: AtomicU64 = AtomicU64::new(0);
static WRONG: AtomicU64 = AtomicU64::new(0);
static CASES: AtomicU64 = AtomicU64::new(0);

/// Each vCPU in turn, while the others do nothing, finds SWI0 pending exactly
/// when it has named itself.
fn edges() -> Outcome {
    for counter in [&TURN, &WRONG, &CASES] {
        counter.store(0, Ordering::SeqCst);
    }
    smp::on_all(|index| {
        csrwr!(ECFG, 0);
        while TURN.load(Ordering::SeqCst) != index as u64 {
            nap();
        }
        let id = csrrd!(CPUID);
        for (set, base) in cases(id) {
            csrxchg!(ESTAT, 0, SWI0);
            let result = send(set, base);
            let pending = csrrd!(ESTAT) & SWI0 != 0;
            let right = result == 0 && pending == names(set, base, id);
            CASES.fetch_add(1, Ordering::SeqCst);
            WRONG.fetch_add((!right).into(), Ordering::SeqCst);
        }
        TURN.fetch_add(1, Ordering::SeqCst);
        while TURN.load(Ordering::SeqCst) < smp::count() as u64 {
            nap();
        }
        csrxchg!(ESTAT, 0, SWI0);
    });
    ensure(
        "cases",
        CASES.load(Ordering::SeqCst) >= 200 * smp::count() as u64,
    )?;
    equal("cases that went wrong", WRONG.load(Ordering::SeqCst), 0)
}

/// SWI1 is the guest's alone, and stays as it is; so does SWI0 until the guest
/// clears it.
fn other_lines() -> Outcome {
    csrwr!(ECFG, 0);
    for swi1 in [SWI1, 0] {
        csrxchg!(ESTAT, swi1, SWI0 | SWI1);
        for _ in 0..3 {
            send(1, csrrd!(CPUID));
            equal("SWI0 and SWI1", csrrd!(ESTAT) & 3, SWI0 | swi1)?;
        }
        csrxchg!(ESTAT, 0, SWI0);
        equal("SWI0 cleared", csrrd!(ESTAT) & 3, swi1)?;
    }
    csrxchg!(ESTAT, 0, SWI0 | SWI1);
    Ok(())
}

static BEGUN: AtomicU64 = AtomicU64::new(0);
static HEARD: AtomicU64 = AtomicU64::new(0);
static OVER: AtomicU64 = AtomicU64::new(0);

/// A vCPU with SWI0 off in ECFG doesn't wake for it, and finds it pending.
fn deaf() -> Outcome {
    for counter in [&BEGUN, &HEARD, &OVER] {
        counter.store(0, Ordering::SeqCst);
    }
    let others = smp::count() as u64 - 1;
    smp::begin(|_| {
        csrxchg!(ESTAT, 0, SWI0 | SWI1);
        BEGUN.fetch_add(1, Ordering::SeqCst);
        while OVER.load(Ordering::SeqCst) == 0 {
            nap();
        }
        HEARD.fetch_add((csrrd!(ESTAT) & 3 == SWI0).into(), Ordering::SeqCst);
        csrxchg!(ESTAT, 0, SWI0);
    });
    // What is sent before would be cleared.
    while BEGUN.load(Ordering::SeqCst) != others {
        nap();
    }
    for _ in 0..10 {
        nap();
        (1..smp::count()).for_each(|index| {
            send(1, smp::id(index));
        });
    }
    OVER.store(1, Ordering::SeqCst);
    smp::finish();
    equal(
        "vCPUs with SWI0 alone",
        HEARD.load(Ordering::SeqCst),
        others,
    )
}

/// Expiries of the timer under a flood of SWI0.
const EXPIRIES: u64 = 200;

/// All others send SWI0 to the boot vCPU, without an end: each of its timer's
/// interrupts comes, and comes once.
fn timer() -> Outcome {
    OVER.store(0, Ordering::SeqCst);
    smp::begin(|_| {
        while OVER.load(Ordering::SeqCst) == 0 {
            send(1, smp::id(0));
        }
    });
    csrwr!(TICLR, 1);
    csrwr!(ECFG, Interrupt::TI.bit() | SWI0);
    unmask();
    let outcome = (1..=EXPIRIES).try_for_each(expire);
    mask();
    csrwr!(TCFG, 0);
    csrwr!(ECFG, 0);
    OVER.store(1, Ordering::SeqCst);
    smp::finish();
    csrwr!(TICLR, 1);
    csrxchg!(ESTAT, 0, SWI0);
    outcome
}

fn expire(round: u64) -> Outcome {
    let (before, start) = (taken(Interrupt::TI), ticks());
    let after = microseconds(8) + 4 * (round % 8);
    csrwr!(TCFG, after | 1);
    ensure(
        "an expiry was lost",
        wait_until(|| taken(Interrupt::TI) > before),
    )?;
    ensure("it came before its time", ticks() - start >= after)?;
    let now = ticks();
    while ticks() - now < microseconds(20) {}
    equal("interrupts of one expiry", taken(Interrupt::TI) - before, 1)
}
