//! Stolen time: what the hypervisor says of it is what is missing.

use crate::check::{Check, Outcome, ensure, equal};
use crate::runtime::call::hvcl;
use crate::runtime::{smp, ticks, ticks_per_second};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use guest_pv::abi::hypercall::{CallError, NOTIFY, NOTIFY_STEAL_TIME};
use guest_pv::call;
use guest_pv::loongarch::Native;
use guest_pv::steal::StealRecord;

/// The checks.
pub const CHECKS: [Check; 4] = [
    Check {
        name: "steal.refused",
        cpus: 1,
        run: refused,
    },
    Check {
        name: "steal.alone",
        cpus: 1,
        run: alone,
    },
    Check {
        name: "steal.moved",
        cpus: 2,
        run: moved,
    },
    Check {
        name: "steal.shared",
        cpus: 2,
        run: shared,
    },
];

static RECORDS: [StealRecord; smp::MAX_CPUS] = [const { StealRecord::new() }; smp::MAX_CPUS];

/// Where the VM's RAM ends: it has 64 MiB.
const RAM_END: u64 = 64 << 20;

fn notify(feature: u64, a2: u64) -> u64 {
    hvcl::<0x100>([NOTIFY, feature, a2, 0])
}

/// The guest physical address of a vCPU's record.
fn address(index: usize) -> u64 {
    (&raw const RECORDS[index] as u64) & ((1 << 48) - 1)
}

fn refused() -> Outcome {
    let good = address(0);
    let bad = CallError::InvalidParameter.register();
    for a2 in [
        good | 3,
        good | 0x21,
        2,
        // Devices: PCH-PIC, the UART, PCH-MSI.
        0x1000_0001,
        0x1fe0_01c1,
        0x2ff0_0001,
        // The end of RAM, and far beyond it.
        RAM_END | 1,
        RAM_END + 0x1_0001,
        0xffff_ffff_ffc1,
        good | 1 << 48 | 1,
        good | 1 << 63 | 1,
        // Reserved bits count where the record isn't valid, too.
        0x3e,
        !0x3e,
    ] {
        equal("record that is none", notify(NOTIFY_STEAL_TIME, a2), bad)?;
    }
    for feature in [0, 2, NOTIFY_STEAL_TIME | 8, u64::MAX] {
        let result = notify(feature, good | 1);
        equal("feature", result, CallError::InvalidCode.register())?;
    }
    // The last 64 bytes of RAM are a place like others.
    let last = RAM_END - 64;
    equal("the last record", notify(NOTIFY_STEAL_TIME, last | 1), 0)?;
    equal("nothing to forget", notify(NOTIFY_STEAL_TIME, 0), 0)?;
    // An address that isn't valid is none.
    equal("forgotten by name", notify(NOTIFY_STEAL_TIME, good), 0)
}

fn register(index: usize) -> u64 {
    // SAFETY: the record's own address.
    let result = unsafe { RECORDS[index].register(&Native, address(index)) };
    result.map_or_else(CallError::register, |()| 0)
}

/// A vCPU that has its CPU for itself loses nothing of it.
fn alone() -> Outcome {
    if smp::host_cpus() < smp::count() as u64 {
        return Ok(());
    }
    equal("register", register(0), 0)?;
    let (before, by_host) = (RECORDS[0].stolen(), by_host());
    let start = ticks();
    while ticks() - start < ticks_per_second() / 100 {}
    equal("stolen", RECORDS[0].stolen() - before, 0)?;
    equal("stolen, by the hypervisor", self::by_host() - by_host, 0)?;
    ensure("it runs", !RECORDS[0].is_preempted())?;
    equal("forget", notify(NOTIFY_STEAL_TIME, 0), 0)
}

/// A record that is given in another's place, and taken back, while the vCPU
/// loses time to others: it is written as long as it is the record.
fn moved() -> Outcome {
    if smp::host_cpus() != 1 {
        return Ok(());
    }
    static OVER: AtomicBool = AtomicBool::new(false);
    OVER.store(false, Ordering::SeqCst);
    smp::begin(|_| {
        while !OVER.load(Ordering::SeqCst) {
            core::hint::spin_loop();
        }
    });
    let outcome = move_about();
    OVER.store(true, Ordering::SeqCst);
    smp::finish();
    outcome
}

fn move_about() -> Outcome {
    let lose_time = || {
        let before = by_host();
        while by_host() == before {}
    };
    let stolen = || [0, 1].map(|index| RECORDS[index].stolen());
    for _ in 0..2 {
        for (given, other) in [(0, 1), (1, 0)] {
            // The very same vCPU gives a record of its own, and one of another's.
            // SAFETY: the record's own address.
            let given_away = unsafe { RECORDS[given].register(&Native, address(given)) };
            ensure("register", given_away.is_ok())?;
            let before = stolen();
            lose_time();
            let after = stolen();
            ensure(
                "written while it is the record",
                after[given] > before[given],
            )?;
            equal("written when it is none", after[other] - before[other], 0)?;
        }
        equal("forget", notify(NOTIFY_STEAL_TIME, 0), 0)?;
        let before = stolen();
        lose_time();
        equal("written once forgotten", (stolen() != before).into(), 0)?;
    }
    Ok(())
}

/// What the hypervisor itself has counted for this vCPU, in ns.
fn by_host() -> u64 {
    call::stolen(&Native).unwrap_or(u64::MAX)
}

/// vCPUs that have begun; when the first and the last one did, and when the last
/// one ended; the time that all ran.
static BEGUN: AtomicU64 = AtomicU64::new(0);
static FIRST: AtomicU64 = AtomicU64::new(0);
static LAST: AtomicU64 = AtomicU64::new(0);
static END: AtomicU64 = AtomicU64::new(0);
static RAN: AtomicU64 = AtomicU64::new(0);
/// vCPUs whose record was refused, or differs from what the hypervisor counted.
static DIFFERENT: AtomicU64 = AtomicU64::new(0);
/// Whether each is busy; how often busy ones were looked at, and how often the
/// `preempted` byte was wrong, of them or of the one that looked.
static BUSY: [AtomicBool; smp::MAX_CPUS] = [const { AtomicBool::new(false) }; smp::MAX_CPUS];
static LOOKS: AtomicU64 = AtomicU64::new(0);
static WRONG: AtomicU64 = AtomicU64::new(0);

/// Ticks that all are busy for together: a dozen time slices.
fn span() -> u64 {
    ticks_per_second() / 1000 * 60
}

fn busy(index: usize) {
    if register(index) != 0 {
        DIFFERENT.fetch_add(1, Ordering::Relaxed);
        BEGUN.fetch_add(1, Ordering::SeqCst);
        return;
    }
    // Stolen before the start, or kept from an earlier run.
    let (before, host_before) = (RECORDS[index].stolen(), by_host());
    let begun = ticks();
    FIRST.fetch_min(begun, Ordering::SeqCst);
    LAST.fetch_max(begun, Ordering::SeqCst);
    BUSY[index].store(true, Ordering::SeqCst);
    BEGUN.fetch_add(1, Ordering::SeqCst);
    loop {
        look(index);
        let all = BEGUN.load(Ordering::SeqCst) == smp::count() as u64;
        if all && ticks() >= LAST.load(Ordering::SeqCst) + span() {
            break;
        }
    }
    BUSY[index].store(false, Ordering::SeqCst);
    // The record is written between two readings of the count, or not at all.
    let host_early = by_host() - host_before;
    let (end, stolen) = (ticks(), RECORDS[index].stolen() - before);
    let host_late = by_host() - host_before;
    let off = stolen + 1000 < host_early || stolen > host_late + 1000;
    DIFFERENT.fetch_add(off.into(), Ordering::Relaxed);
    let stolen = stolen / (1_000_000_000 / ticks_per_second());
    RAN.fetch_add(end - begun - stolen, Ordering::Relaxed);
    END.fetch_max(end, Ordering::Relaxed);
    notify(NOTIFY_STEAL_TIME, 0);
}

/// One of them runs: the one that looks. Those that are busy too are off
/// their CPU, though they could go on.
fn look(index: usize) {
    let other = (index + 1) % smp::count();
    let busy = || other != index && BUSY[other].load(Ordering::SeqCst);
    let before = busy();
    let right = RECORDS[other].is_preempted() && !RECORDS[index].is_preempted();
    // It may have ended between two of these lines.
    if before && busy() {
        LOOKS.fetch_add(1, Ordering::Relaxed);
        WRONG.fetch_add((!right).into(), Ordering::Relaxed);
    }
}

/// vCPUs that share one CPU: what each was busy for, less what was stolen,
/// comes to the time that passed. Those that are done wait, so
/// it may be less than all of it.
fn shared() -> Outcome {
    if smp::host_cpus() != 1 {
        return Ok(());
    }
    for counter in [&BEGUN, &LAST, &RAN, &END, &DIFFERENT, &LOOKS, &WRONG] {
        counter.store(0, Ordering::Relaxed);
    }
    FIRST.store(u64::MAX, Ordering::Relaxed);
    smp::on_all(busy);
    let passed = END.load(Ordering::Relaxed) - FIRST.load(Ordering::Relaxed);
    let ran = RAN.load(Ordering::Relaxed);
    ensure("less than what was run", ran >= span() / 100 * 95)?;
    ensure("more than what passed", ran <= passed / 100 * 105)?;
    let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    equal("records that differ from the count", of(&DIFFERENT), 0)?;
    ensure("busy vCPUs were looked at", of(&LOOKS) > 0)?;
    equal("wrong `preempted`", of(&WRONG), 0)
}
