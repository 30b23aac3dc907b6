//! The VM changes its own memory while its vCPUs run: what was true before a
//! call is true for nobody after it.
//!
//! All of it happens in the second 32 MiB of RAM, where nothing else is.

use crate::check::{Check, Outcome, ensure, equal};
use crate::runtime::call::hvcl;
use crate::runtime::trap::{Caught, catch};
use crate::runtime::{memory, microseconds, nap, random::Random, smp, ticks, wait_until};
use core::arch::asm;
use core::sync::atomic::{AtomicU64, Ordering};
use guest_pv::abi::hypercall::{CODE_SERVICE, CallError, NOTIFY, NOTIFY_STEAL_TIME};
use guest_pv::abi::steal::ADDRESS_VALID;
use guest_pv::abi::vendor::{
    MEMORY_CLAIM, MEMORY_PROTECT, MEMORY_RELEASE, PROTECT_EXECUTE, PROTECT_WRITE,
};

/// The checks.
pub const CHECKS: [Check; 10] = [
    Check {
        name: "control.release",
        cpus: 1,
        run: release,
    },
    Check {
        name: "control.block",
        cpus: 1,
        run: block,
    },
    Check {
        name: "control.protect",
        cpus: 1,
        run: protect,
    },
    Check {
        name: "control.refused",
        cpus: 1,
        run: refused,
    },
    Check {
        name: "control.held",
        cpus: 1,
        run: held,
    },
    Check {
        name: "control.linked-load",
        cpus: 2,
        run: linked_load,
    },
    Check {
        name: "control.read-only",
        cpus: 2,
        run: read_only,
    },
    Check {
        name: "control.neighbours",
        cpus: 2,
        run: neighbours,
    },
    Check {
        name: "control.everyone",
        cpus: 2,
        run: everyone,
    },
    Check {
        name: "control.whole",
        cpus: 1,
        run: whole,
    },
];

/// What the checks change: a block of the second stage.
pub const BLOCK: u64 = 32 << 20;
/// Its bytes.
pub const BLOCK_BYTES: u64 = 32 << 20;
/// Bytes of a page.
pub const PAGE: u64 = 16 << 10;
/// What a page may be used for at first.
pub const ALL: u64 = PROTECT_WRITE | PROTECT_EXECUTE;
/// ADE, and a sub-code of it: an access.
const ADE: u64 = 8;
const ACCESS: u64 = 1;

fn call(function: u64, address: u64, bytes: u64, access: u64) -> u64 {
    hvcl::<CODE_SERVICE>([function, address, bytes, access])
}

/// Calls, and fails where that is refused.
pub fn change(function: u64, address: u64, bytes: u64, access: u64) -> Outcome {
    equal("call", call(function, address, bytes, access), 0)
}

/// The first word of a page.
pub fn word(page: u64) -> *mut u64 {
    memory(BLOCK + page * PAGE)
}

fn at(page: u64) -> u64 {
    BLOCK + page * PAGE
}

fn load(page: u64) -> u64 {
    // SAFETY: a page that only these checks use; an exception is caught.
    unsafe { word(page).read_volatile() }
}

fn store(page: u64, value: u64) {
    // SAFETY: as in `load`.
    unsafe { word(page).write_volatile(value) }
}

/// The load or store at `address` has ended in an address error.
fn bad_access(what: &'static str, caught: Option<Caught>, address: u64) -> Outcome {
    let Some(caught) = caught else {
        return ensure(what, false);
    };
    equal("code", caught.ecode, ADE)?;
    equal("sub-code", caught.esubcode, ACCESS)?;
    equal("address", caught.badv, address)
}

/// Nothing is at `page`.
fn absent(page: u64) -> Outcome {
    bad_access("a load faults", catch(|| _ = load(page)), at(page))?;
    bad_access("a store faults", catch(|| store(page, 1)), at(page))?;
    // SAFETY: ends in an exception, whose handler returns to ra.
    let fetch = catch(|| unsafe {
        asm!("jirl $ra, {}, 0", in(reg) word(page), clobber_abi("C"));
    });
    equal(
        "a fetch faults",
        fetch.map_or(0, |caught| caught.ecode),
        ADE,
    )
}

fn release() -> Outcome {
    (1..8).for_each(|page| store(page, page));
    change(MEMORY_RELEASE, at(3), 2 * PAGE, 0)?;
    // Again: there is nothing to do.
    change(MEMORY_RELEASE, at(3), 2 * PAGE, 0)?;
    absent(3)?;
    absent(4)?;
    for page in [1, 2, 5, 6, 7] {
        equal("its neighbours are as they were", load(page), page)?;
    }
    change(MEMORY_CLAIM, at(2), 4 * PAGE, 0)?;
    for (page, value) in [(2, 2), (3, 0), (4, 0), (5, 5)] {
        equal("claimed", load(page), value)?;
    }
    store(3, 7);
    equal("it is memory again", load(3), 7)
}

/// A whole block goes back to the machine, and another one comes.
fn block() -> Outcome {
    let last = BLOCK_BYTES / PAGE - 1;
    for _ in 0..3 {
        store(0, 1);
        store(last, 2);
        change(MEMORY_RELEASE, BLOCK, BLOCK_BYTES, 0)?;
        absent(0)?;
        absent(last)?;
        // Half of it.
        change(MEMORY_CLAIM, at(last), PAGE, 0)?;
        equal("one page of it", load(last), 0)?;
        absent(0)?;
        change(MEMORY_CLAIM, BLOCK, BLOCK_BYTES, 0)?;
        equal("all of it", load(0), 0)?;
    }
    Ok(())
}

fn protect() -> Outcome {
    store(1, 5);
    change(MEMORY_PROTECT, at(1), PAGE, 0)?;
    equal("a load may be", load(1), 5)?;
    for _ in 0..3 {
        bad_access("a store faults", catch(|| store(1, 6)), at(1))?;
    }
    equal("nothing was stored", load(1), 5)?;
    store(0, 1);
    store(2, 1);
    change(MEMORY_PROTECT, at(1), PAGE, PROTECT_WRITE)?;
    equal(
        "a store may be",
        catch(|| store(1, 0x4c00_0020)).is_some().into(),
        0,
    )?;
    // SAFETY: `jr $ra` stands there; a fault's handler returns to ra too.
    let jump = || unsafe {
        asm!("ibar 0", "jirl $ra, {}, 0", in(reg) word(1), clobber_abi("C"));
    };
    let fetch = catch(jump);
    equal(
        "a fetch faults",
        fetch.map_or(0, |caught| caught.ecode),
        ADE,
    )?;
    change(MEMORY_PROTECT, at(1), PAGE, PROTECT_EXECUTE)?;
    equal("a fetch may be", catch(jump).is_some().into(), 0)?;
    change(MEMORY_PROTECT, at(1), PAGE, ALL)
}

fn refused() -> Outcome {
    let bad = CallError::InvalidParameter.register();
    let ranges = [
        (BLOCK, 0),
        (BLOCK + 1, PAGE),
        (BLOCK, PAGE + 8),
        (BLOCK, BLOCK_BYTES + PAGE),
        (0x1000_0000, PAGE),
        (BLOCK + BLOCK_BYTES - PAGE, 2 * PAGE),
        (u64::MAX - PAGE + 1, PAGE),
        (0, u64::MAX - PAGE + 1),
    ];
    for function in [MEMORY_RELEASE, MEMORY_CLAIM, MEMORY_PROTECT] {
        for (address, bytes) in ranges {
            equal("range", call(function, address, bytes, 0), bad)?;
        }
    }
    for access in [4, u64::MAX] {
        equal("access", call(MEMORY_PROTECT, BLOCK, PAGE, access), bad)?;
    }
    Ok(())
}

/// What the hypervisor writes to can't be taken from under it.
fn held() -> Outcome {
    let record = at(9) + 64;
    let notify = |a2| hvcl::<CODE_SERVICE>([NOTIFY, NOTIFY_STEAL_TIME, a2, 0]);
    equal("record", notify(record | ADDRESS_VALID), 0)?;
    let in_use = CallError::InUse.register();
    equal("its page", call(MEMORY_RELEASE, at(9), PAGE, 0), in_use)?;
    equal(
        "its block",
        call(MEMORY_RELEASE, BLOCK, BLOCK_BYTES, 0),
        in_use,
    )?;
    change(MEMORY_RELEASE, at(8), PAGE, 0)?;
    let bad = CallError::InvalidParameter.register();
    equal(
        "a record where nothing is",
        notify(at(8) | ADDRESS_VALID),
        bad,
    )?;
    equal("taken back", notify(0), 0)?;
    change(MEMORY_RELEASE, at(8), 2 * PAGE, 0)?;
    change(MEMORY_CLAIM, at(8), 2 * PAGE, 0)
}

/// What the vCPUs of a check tell each other.
static STAGE: AtomicU64 = AtomicU64::new(0);
static COUNT: AtomicU64 = AtomicU64::new(0);
static WRONG: AtomicU64 = AtomicU64::new(0);

fn clear_counts() {
    for count in [&STAGE, &COUNT, &WRONG] {
        count.store(0, Ordering::SeqCst);
    }
}

/// LL, then `between`, then SC of the value + 1: whether it was stored.
fn linked_add(word: *mut u64, tell: u64, until: u64) -> bool {
    let stored: u64;
    // SAFETY: a word of these checks, and STAGE. Nothing but loads and one
    // store to STAGE lies between LL and SC.
    unsafe {
        asm!(
            "ll.d {v}, {w}, 0",
            "st.d {t}, {s}, 0",
            "dbar 0",
            "1: ld.d {x}, {s}, 0",
            "bne {x}, {u}, 1b",
            "addi.d {v}, {v}, 1",
            "sc.d {v}, {w}, 0",
            v = out(reg) stored, x = out(reg) _, w = in(reg) word, s = in(reg) STAGE.as_ptr(),
            t = in(reg) tell, u = in(reg) until, options(nostack),
        );
    }
    stored == 1
}

/// A pair of LL and SC fails where the page was changed in between, though
/// the value is the same. Where nothing changes it succeeds, at last.
fn linked_load() -> Outcome {
    clear_counts();
    store(5, 0);
    let alone = (0..1000).any(|_| linked_add(word(5), 1, 1));
    ensure("without a change it succeeds", alone)?;
    store(5, 0);
    STAGE.store(0, Ordering::SeqCst);
    smp::begin(|index| {
        if index == 1 && linked_add(word(5), 1, 2) {
            WRONG.fetch_add(1, Ordering::SeqCst);
        }
    });
    while STAGE.load(Ordering::SeqCst) != 1 {
        nap();
    }
    let changed =
        change(MEMORY_RELEASE, at(5), PAGE, 0).and_then(|()| change(MEMORY_CLAIM, at(5), PAGE, 0));
    STAGE.store(2, Ordering::SeqCst);
    smp::finish();
    changed?;
    equal("SC after a change", WRONG.load(Ordering::SeqCst), 0)?;
    equal("the word", load(5), 0)
}

/// Word of its own for vCPU `index`, in page 6.
fn own_word(index: usize) -> *mut u64 {
    // SAFETY: 128 words are less than a page.
    unsafe { word(6).add(index) }
}

fn own_words() -> u64 {
    // SAFETY: words of these checks.
    let of = |index| unsafe { own_word(index).read_volatile() };
    (1..smp::count()).map(of).sum()
}

/// How often a check changes what the others use.
const ROUNDS: u64 = 12;

/// Once a page is read-only nobody stores to it any more, and each store is
/// one fault; once it isn't, nobody faults.
fn read_only() -> Outcome {
    clear_counts();
    change(MEMORY_PROTECT, at(6), PAGE, ALL)?;
    smp::begin(|index| {
        let mut value = 0;
        while STAGE.load(Ordering::SeqCst) == 0 {
            value += 1;
            // SAFETY: this vCPU's own word.
            let caught = catch(|| unsafe { own_word(index).write_volatile(value) });
            COUNT.fetch_add(caught.is_some().into(), Ordering::SeqCst);
            if value.is_multiple_of(64) {
                nap();
            }
        }
    });
    let outcome = (0..ROUNDS).try_for_each(|_| one_round());
    STAGE.store(1, Ordering::SeqCst);
    smp::finish();
    outcome
}

fn pause() {
    let start = ticks();
    while ticks() - start < microseconds(200) {
        nap();
    }
}

fn one_round() -> Outcome {
    change(MEMORY_PROTECT, at(6), PAGE, 0)?;
    let (words, faults) = (own_words(), COUNT.load(Ordering::SeqCst));
    let more_faults = wait_until(|| {
        nap();
        COUNT.load(Ordering::SeqCst) > faults
    });
    ensure("stores fault", more_faults)?;
    pause();
    equal("nothing is stored", own_words(), words)?;
    change(MEMORY_PROTECT, at(6), PAGE, ALL)?;
    let stored = wait_until(|| {
        nap();
        own_words() != words
    });
    ensure("stores go on", stored)?;
    // A fault that came before the change may only be counted now.
    let others = smp::count() as u64 - 1;
    pause();
    let faults = COUNT.load(Ordering::SeqCst);
    pause();
    ensure(
        "no more faults",
        COUNT.load(Ordering::SeqCst) - faults <= others,
    )
}

/// Page 7 comes and goes, and in the end its whole block, while the others
/// read it and its neighbours. They never see an older value than one that
/// was there when they began to look.
fn neighbours() -> Outcome {
    clear_counts();
    store(7, 0);
    for page in 8..16 {
        store(page, page);
    }
    smp::begin(|index| {
        let mut random = Random::new(index as u64);
        while STAGE.load(Ordering::SeqCst) < ROUNDS {
            let newest = COUNT.load(Ordering::SeqCst);
            let (mut seen, page) = (u64::MAX, 8 + random.below(8));
            catch(|| seen = load(7));
            // 0 is there for a moment after it was claimed.
            let mut wrong = seen != 0 && seen < newest;
            wrong |= load(page) != page;
            WRONG.fetch_add(wrong.into(), Ordering::SeqCst);
            if newest.is_multiple_of(2) {
                nap();
            }
        }
    });
    let mut outcome = Ok(());
    for round in 1..=ROUNDS {
        outcome = outcome
            .and_then(|()| change(MEMORY_RELEASE, at(7), PAGE, 0))
            .and_then(|()| change(MEMORY_CLAIM, at(7), PAGE, 0))
            .and_then(|()| equal("claimed", load(7), 0));
        store(7, round);
        COUNT.store(round, Ordering::SeqCst);
        pause();
        STAGE.store(round, Ordering::SeqCst);
    }
    smp::finish();
    outcome?;
    equal("wrong values", WRONG.load(Ordering::SeqCst), 0)
}

/// All at once, each with pages of its own, and with one that all change.
fn everyone() -> Outcome {
    clear_counts();
    smp::on_all(|index| {
        let mut random = Random::new(0x77 + index as u64);
        let page = 32 + 2 * index as u64;
        for round in 0..ROUNDS {
            let own = come_and_go(page, round);
            let shared = match random.below(3) {
                0 => change(MEMORY_RELEASE, at(30), PAGE, 0),
                1 => change(MEMORY_CLAIM, at(30), PAGE, 0),
                _ => change(MEMORY_PROTECT, at(30), PAGE, random.below(4)),
            };
            let wrong = own.is_err() || shared.is_err();
            WRONG.fetch_add(wrong.into(), Ordering::SeqCst);
        }
    });
    equal("vCPUs at fault", WRONG.load(Ordering::SeqCst), 0)?;
    change(MEMORY_CLAIM, at(30), PAGE, 0)?;
    change(MEMORY_PROTECT, at(30), PAGE, ALL)
}

fn come_and_go(page: u64, value: u64) -> Outcome {
    change(MEMORY_PROTECT, at(page), PAGE, ALL)?;
    store(page, value);
    change(MEMORY_PROTECT, at(page), PAGE, 0)?;
    bad_access("a store faults", catch(|| store(page, 9)), at(page))?;
    equal("its value", load(page), value)?;
    change(MEMORY_RELEASE, at(page), PAGE, 0)?;
    bad_access("a load faults", catch(|| _ = load(page)), at(page))?;
    change(MEMORY_CLAIM, at(page), PAGE, 0)?;
    equal("claimed", load(page), 0)
}

/// Whatever became of it, the block can be had again as it was at first.
fn whole() -> Outcome {
    change(MEMORY_RELEASE, BLOCK, BLOCK_BYTES, 0)?;
    change(MEMORY_CLAIM, BLOCK, BLOCK_BYTES, 0)?;
    for page in 0..BLOCK_BYTES / PAGE {
        equal("it is zero", load(page), 0)?;
    }
    Ok(())
}
