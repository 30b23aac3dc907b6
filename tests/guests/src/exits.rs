//! Exits, one after another, while the timer ticks: they cost no tick.
//!
//! `limit=` says how many. Only where the vCPU has its CPU to itself, in
//! deterministic time, can each tick be told from the next one.

use crate::check::{self, Check, Outcome, ensure, equal};
use crate::println;
use crate::runtime::call::call;
use crate::runtime::cmdline::Options;
use crate::runtime::trap::{mask, taken, unmask};
use crate::runtime::{cpucfg, devices, iocsr, microseconds, smp, ticks};
use crate::{csrrd, csrwr};
use core::sync::atomic::{AtomicU64, Ordering};
use guest_pv::abi::iocsr::{IPI_ENABLE, IPI_STATUS};
use guest_pv::abi::vendor::{EXIT_COUNT, ExitReason, NULL, NULL_GENERAL};
use loongarch_isa::exception::Interrupt;

const CHECKS: [Check; 1] = [Check {
    name: "exits.ticks",
    cpus: 1,
    run: ticks_among_exits,
}];

static LIMIT: AtomicU64 = AtomicU64::new(0);

/// Runs the check; how many failed.
pub fn run(options: &Options) -> u64 {
    LIMIT.store(options.number("limit", 1000), Ordering::Relaxed);
    check::run_all(&[&CHECKS], "", smp::count())
}

/// How often this vCPU has left the guest, but for the host's interrupts.
fn exits() -> u64 {
    let reasons = (1..ExitReason::ALL.len() as u64).map(|reason| call(EXIT_COUNT, reason));
    reasons.sum()
}

/// One exit of each kind that is emulated, or has a short cut.
const EACH: u64 = 8;

fn each() {
    call(NULL, 0);
    call(NULL_GENERAL, 0);
    cpucfg(1);
    csrrd!(IMPCTL1);
    iocsr::read_w(IPI_STATUS.into());
    iocsr::write_w(IPI_ENABLE.into(), 0);
    devices::read32(devices::MASK);
    call(0, 0);
}

/// Ticks that one another's exits are to fall between.
const PERIOD_US: u64 = 100;

fn ticks_among_exits() -> Outcome {
    let limit = LIMIT.load(Ordering::Relaxed);
    let (period, before) = (microseconds(PERIOD_US), taken(Interrupt::TI));
    let exits_before = exits();
    csrwr!(ECFG, Interrupt::TI.bit());
    let start = ticks();
    csrwr!(TCFG, period | 3);
    unmask();
    for _ in 0..limit.div_ceil(EACH) {
        each();
    }
    mask();
    let (count, elapsed) = (taken(Interrupt::TI) - before, ticks() - start);
    csrwr!(TCFG, 0);
    csrwr!(TICLR, 1);
    csrwr!(ECFG, 0);
    let made = exits() - exits_before;
    println!("exits: {made} and {count} ticks in {elapsed} ticks of the counter");
    ensure("exits", made >= limit)?;
    // The last one may be pending, or have come after the counter was read.
    ensure("no tick is missing", count + 1 >= elapsed / period)?;
    equal(
        "no tick is invented",
        (count > elapsed / period + 1).into(),
        0,
    )
}
