//! The crate guest-pv, on the hypervisor: every IPI that is sent arrives,
//! once, by as few calls as there should be.
//!
//! The command line says whether the paravirtual IPI must be offered (`pv=`,
//! 0 or 1), how many times each vCPU sends in the storm (`rounds=`), whether
//! they are moved between CPUs in it (`moves=1`), and whether the ids are such
//! that windows grow and overflow in every way (`growth=1`). Without the feature the same checks run on native IPIs.

mod ledger;
mod machine;
mod masks;
mod serve;
mod storm;

use crate::check::{self, Check, Outcome, ensure, equal};
use crate::runtime::call::hvcl;
use crate::runtime::cmdline::Options;
use crate::runtime::smp::{self, CPUS};
use crate::runtime::trap;
use crate::{csrrd, println};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use guest_pv::abi::cpucfg::PvFeatures;
use guest_pv::abi::hypercall::{CODE_SERVICE, CallError, NOTIFY, NOTIFY_STEAL_TIME, SEND_IPI};
use guest_pv::cpu_set::CpuSet;
use guest_pv::ipi::{Action, Ipi};
use guest_pv::loongarch::Native;
use guest_pv::{call, detect};
use machine::Counted;

const CHECKS: [&[Check]; 3] = [
    &[Check {
        name: "guest-pv.detect",
        cpus: 1,
        run: features,
    }],
    &masks::CHECKS,
    &[
        Check {
            name: "guest-pv.storm",
            cpus: 2,
            run: storm::run,
        },
        Check {
            name: "guest-pv.ledger",
            cpus: 1,
            run: ledger::balances,
        },
    ],
];

/// An action, known to fit.
const fn action(number: u32) -> Action {
    Action::new(number).unwrap()
}

/// Actions that the checks send: [`FIRST_ACTION`] and those that follow.
const ACTIONS: usize = 4;
const FIRST_ACTION: u32 = 1;

static FEATURES: AtomicU32 = AtomicU32::new(0);
static EXPECTED: AtomicU64 = AtomicU64::new(0);
static ROUNDS: AtomicU64 = AtomicU64::new(0);
static SEED: AtomicU64 = AtomicU64::new(0);
static GROWTH: AtomicU64 = AtomicU64::new(0);
static MOVES: AtomicU64 = AtomicU64::new(0);

/// The guest's IPIs; hypercalls are counted.
fn ipi() -> Ipi<'static, Counted> {
    let features = PvFeatures::from_bits_retain(FEATURES.load(Ordering::Relaxed));
    Ipi::new(Counted, features, &CPUS)
}

/// Runs the checks; how many failed.
pub fn run(options: &Options) -> u64 {
    for (option, key) in [
        (&EXPECTED, "pv"),
        (&ROUNDS, "rounds"),
        (&SEED, "seed"),
        (&GROWTH, "growth"),
        (&MOVES, "moves"),
    ] {
        option.store(options.number(key, 0), Ordering::Relaxed);
    }
    let features = detect::features(&Native);
    FEATURES.store(features.bits(), Ordering::Relaxed);
    trap::handle_ipis_by(serve::on_interrupt);
    machine::learn_ids((0..smp::count()).map(smp::id));
    let failed = check::run_all(&CHECKS, options.text("only"), smp::count());
    println!("guest: {} IPIs", ledger::total());
    failed
}

fn features() -> Outcome {
    let want = EXPECTED.load(Ordering::Relaxed);
    equal("paravirtual IPIs", ipi().is_paravirtual().into(), want)?;
    if want == 0 {
        nothing_is_offered()?;
    }
    ensure("it is Loongvisor", call::is_loongvisor(&Native))?;
    ensure("the null call is offered", call::null(&Native).is_ok())
}

/// What isn't offered is refused, and does nothing.
fn nothing_is_offered() -> Outcome {
    let (me, refused) = (smp::id(0), CallError::InvalidCode.register());
    for (low, high, base) in [(1, 0, me), (3, 0, me), (0, 1, me), (1, 0, 2000), (0, 0, 0)] {
        let result = hvcl::<CODE_SERVICE>([SEND_IPI, low, high, base]);
        equal("send", result, refused)?;
    }
    for a2 in [0, 0x200_0001, u64::MAX] {
        let result = hvcl::<CODE_SERVICE>([NOTIFY, NOTIFY_STEAL_TIME, a2, 0]);
        equal("notify", result, refused)?;
    }
    equal("SWI0", csrrd!(ESTAT) & 1, 0)
}

/// All vCPUs.
fn everyone() -> CpuSet {
    CpuSet::first(smp::count())
}
