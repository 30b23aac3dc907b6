//! One sender, and everyone at rest in between: each count is exact.

use super::serve::{self, until, until_others, while_all_serve};
use super::{GROWTH, SEED, everyone, ipi, ledger};
use crate::check::{Check, Outcome, ensure, equal};
use crate::runtime::random::Random;
use crate::runtime::smp;
use crate::runtime::trap::{taken, taken_by};
use core::sync::atomic::{AtomicU64, Ordering};
use guest_pv::abi::hypercall::{IPI_SET_BITS, SEND_IPI};
use guest_pv::call;
use guest_pv::cpu_set::CpuSet;
use guest_pv::ipi::Action;
use guest_pv::loongarch::Native;
use loongarch_isa::exception::Interrupt;

/// The checks.
pub const CHECKS: [Check; 6] = [
    Check {
        name: "guest-pv.self",
        cpus: 1,
        run: to_self,
    },
    Check {
        name: "guest-pv.single",
        cpus: 2,
        run: single,
    },
    Check {
        name: "guest-pv.all",
        cpus: 1,
        run: all,
    },
    Check {
        name: "guest-pv.pending",
        cpus: 2,
        run: pending,
    },
    Check {
        name: "guest-pv.pairs",
        cpus: 2,
        run: pairs,
    },
    Check {
        name: "guest-pv.windows",
        cpus: 2,
        run: windows,
    },
];

/// What the hypervisor says how many IPI calls this vCPU has made.
fn calls_by_host() -> u64 {
    call::call_count(&Native, SEND_IPI).unwrap_or(u64::MAX)
}

/// The interrupt by which IPIs arrive.
fn line() -> Interrupt {
    if ipi().is_paravirtual() {
        Interrupt::SWI0
    } else {
        Interrupt::IPI
    }
}

/// Sends `action` to `targets` and waits until all have handled it; it takes
/// as many calls as it should.
fn send_and_wait(targets: &CpuSet, action: Action) -> Outcome {
    let (handled, calls) = (ledger::handled_of(0), calls_by_host());
    let sent = ledger::send(0, targets, action) as u64;
    equal("targets", sent, targets.len() as u64)?;
    ensure("all have handled it in time", {
        until(20, || ledger::handled_of(0) >= handled + sent)
    })?;
    equal("handled", ledger::handled_of(0) - handled, sent)?;
    equal("calls", calls_by_host() - calls, expected_calls(targets).0)
}

/// How many calls `targets` should take, and in which ways the windows grew.
fn expected_calls(targets: &CpuSet) -> (u64, Growth) {
    let mut growth = Growth::default();
    if !ipi().is_paravirtual() {
        return (0, growth);
    }
    let (mut calls, mut low, mut high) = (0, 0, 0);
    for id in targets.iter().map(smp::id) {
        let width = u64::from(IPI_SET_BITS);
        if calls == 0 || high.max(id) - low.min(id) >= width {
            growth.over_up += u64::from(calls > 0 && id > high);
            growth.over_down += u64::from(calls > 0 && id < low);
            calls += 1;
            (low, high) = (id, id);
        }
        growth.up += u64::from(id > high);
        growth.down += u64::from(id < low);
        growth.inside += u64::from(low < id && id < high);
        growth.full += u64::from(high.max(id) - low.min(id) == width - 1);
        (low, high) = (low.min(id), high.max(id));
    }
    (calls, growth)
}

/// How often windows grew, or were too narrow, and in which way.
#[derive(Clone, Copy, Default)]
struct Growth {
    up: u64,
    down: u64,
    inside: u64,
    full: u64,
    over_up: u64,
    over_down: u64,
}

impl Growth {
    fn add(&mut self, other: &Self) {
        self.up += other.up;
        self.down += other.down;
        self.inside += other.inside;
        self.full += other.full;
        self.over_up += other.over_up;
        self.over_down += other.over_down;
    }

    /// Every way was seen in which two ids can lie.
    fn outwards(&self) -> Outcome {
        ensure("a window grew upwards", self.up > 0)?;
        ensure("a window grew downwards", self.down > 0)?;
        ensure("a window had its full width", self.full > 0)?;
        ensure("a window was too narrow upwards", self.over_up > 0)?;
        ensure("a window was too narrow downwards", self.over_down > 0)
    }
}

fn to_self() -> Outcome {
    serve::begin();
    let before = taken(line());
    let me = CpuSet::first(1);
    for round in 1..=50 {
        let calls = calls_by_host();
        ledger::send(0, &me, ledger::nth_action(round));
        // It arrives at once: no instruction of this vCPU comes in between.
        equal("interrupts", taken(line()) - before, round)?;
        equal("handled", ledger::handled(0, 0).into(), round)?;
        equal("calls", calls_by_host() - calls, expected_calls(&me).0)?;
    }
    serve::end();
    Ok(())
}

fn single() -> Outcome {
    while_all_serve(|| {
        for target in 1..smp::count() {
            for round in 0..3 {
                let before = taken_by(target, Interrupt::SWI0);
                let mut only = CpuSet::EMPTY;
                let _ = only.insert(target);
                send_and_wait(&only, ledger::nth_action(round))?;
                let swi0s = taken_by(target, Interrupt::SWI0) - before;
                equal("SWI0s", swi0s, expected_calls(&only).0)?;
            }
        }
        Ok(())
    })
}

fn all() -> Outcome {
    while_all_serve(|| {
        let mut others = everyone();
        others.remove(0);
        (0..6).try_for_each(|round| {
            send_and_wait(&everyone(), ledger::nth_action(round))?;
            send_and_wait(&others, ledger::nth_action(round))
        })
    })
}

static STAGE: AtomicU64 = AtomicU64::new(0);

/// vCPU 1 has interrupts off: whatever is sent to it meanwhile is one call
/// and one interrupt.
fn pending() -> Outcome {
    STAGE.store(0, Ordering::SeqCst);
    smp::begin(|index| {
        if index == 1 {
            STAGE.store(1, Ordering::SeqCst);
            while STAGE.load(Ordering::SeqCst) == 1 {
                crate::runtime::nap();
            }
            serve::begin();
            until_others(1000, || STAGE.load(Ordering::SeqCst) == 3);
            serve::end();
        }
    });
    serve::begin();
    let outcome = send_to_the_deaf();
    STAGE.store(3, Ordering::SeqCst);
    serve::end();
    smp::finish();
    outcome
}

fn send_to_the_deaf() -> Outcome {
    ensure(
        "vCPU 1 is there",
        until(20, || STAGE.load(Ordering::SeqCst) == 1),
    )?;
    let mut only = CpuSet::EMPTY;
    let _ = only.insert(1);
    let (calls, lines, handled) = (calls_by_host(), taken_by(1, line()), ledger::handled(1, 0));
    for round in 0..40 {
        let sent = ledger::send(0, &only, ledger::nth_action(round));
        equal("sent", sent as u64, u64::from(round < 4))?;
        // The word knows: not even this is a call.
        let again = ipi().send_ipi_single(1, ledger::nth_action(round));
        ensure("sent again", again.is_ok())?;
    }
    equal("calls", calls_by_host() - calls, expected_calls(&only).0)?;
    equal("interrupts before", taken_by(1, line()) - lines, 0)?;
    STAGE.store(2, Ordering::SeqCst);
    ensure(
        "handled in time",
        until(20, || ledger::handled(1, 0) >= handled + 4),
    )?;
    equal("handled", (ledger::handled(1, 0) - handled).into(), 4)?;
    equal("interrupts", taken_by(1, line()) - lines, 1)
}

/// vCPUs of which every pair is sent to at once.
const PAIRED: usize = 16;

/// Every pair of the first vCPUs: neighbours and ids far apart, upwards and
/// downwards, around the width of a window and at the ends of all ids.
fn pairs() -> Outcome {
    let count = smp::count().min(PAIRED);
    let mut seen = Growth::default();
    while_all_serve(|| {
        for (first, second) in (0..count).flat_map(|a| (a + 1..count).map(move |b| (a, b))) {
            let mut targets = CpuSet::EMPTY;
            let _ = targets.insert(first).and(targets.insert(second));
            seen.add(&expected_calls(&targets).1);
            send_and_wait(&targets, ledger::nth_action((first ^ second) as u64))?;
        }
        Ok(())
    })?;
    // The first of many may lie on one side of each other.
    if GROWTH.load(Ordering::Relaxed) == 1 && smp::count() <= PAIRED {
        seen.outwards()?;
    }
    Ok(())
}

/// Random sets: windows grow upwards, downwards and inside.
fn windows() -> Outcome {
    let mut random = Random::new(SEED.load(Ordering::Relaxed));
    let mut seen = Growth::default();
    while_all_serve(|| {
        for round in 0..40 {
            let mut targets = CpuSet::EMPTY;
            let density = random.below(64);
            for cpu in (0..smp::count()).filter(|_| random.below(64) <= density) {
                let _ = targets.insert(cpu);
            }
            seen.add(&expected_calls(&targets).1);
            send_and_wait(&targets, ledger::nth_action(round))?;
        }
        Ok(())
    })?;
    if GROWTH.load(Ordering::Relaxed) == 1 {
        ensure("a window filled up inside", seen.inside > 0)?;
        seen.outwards()?;
    }
    Ok(())
}
