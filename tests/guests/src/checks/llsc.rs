//! A pair of LL and SC never survives what may have changed what it is about:
//! another vCPU's turn on the CPU, or a change of the memory behind it.

use crate::check::{Check, Outcome, ensure, equal};
use crate::runtime::{memory, smp, ticks, ticks_per_second, trap};
use core::arch::asm;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use guest_pv::abi::hypercall::CODE_SERVICE;
use guest_pv::abi::vendor;

/// The checks.
pub const CHECKS: [Check; 3] = [
    Check {
        name: "llsc.alone",
        cpus: 1,
        run: alone,
    },
    Check {
        name: "llsc.switched",
        cpus: 2,
        run: switched,
    },
    Check {
        name: "llsc.remapped",
        cpus: 1,
        run: remapped,
    },
];

/// What the pairs are about, with a cache line for itself.
#[repr(align(64))]
struct Word(AtomicU64);

static WORD: Word = Word(AtomicU64::new(0));

/// Without anything in between a pair succeeds, sooner or later.
fn alone() -> Outcome {
    let at = WORD.0.as_ptr();
    let succeeds = || {
        let done: u64;
        // SAFETY: a word of this check's own.
        unsafe {
            asm!("ll.d {v}, {at}, 0", "ori {v}, $zero, 1", "sc.d {v}, {at}, 0",
                v = out(reg) done, at = in(reg) at, options(nostack));
        }
        done == 1
    };
    ensure("a pair that succeeds", (0..100).any(|_| succeeds()))
}

/// The turns of another vCPU, that counts while it has the CPU.
static TURNS: AtomicU64 = AtomicU64::new(0);
static OVER: AtomicBool = AtomicBool::new(false);

/// It executes no LL, no SC and no `ertn`, which would end the pair anyway.
fn count_turns(_: usize) {
    trap::mask();
    while !OVER.load(Ordering::Relaxed) {
        TURNS.store(TURNS.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }
}

/// vCPUs that share one CPU, and take turns on it.
fn switched() -> Outcome {
    if smp::host_cpus() != 1 {
        return Ok(());
    }
    OVER.store(false, Ordering::Relaxed);
    trap::mask();
    smp::begin(count_turns);
    let survived = (0..4).filter(|_| survives_a_turn()).count();
    OVER.store(true, Ordering::Relaxed);
    smp::finish();
    equal("pairs that survived a turn", survived as u64, 0)
}

fn survives_a_turn() -> bool {
    let turns = TURNS.as_ptr();
    let done: u64;
    // SAFETY: words of this check's own. It waits until the count, as it was
    // after LL, has changed.
    unsafe {
        asm!(
            "ll.d {v}, {at}, 0",
            "ld.d {was}, {turns}, 0",
            "2: ld.d {is}, {turns}, 0",
            "beq {is}, {was}, 2b",
            "sc.d {v}, {at}, 0",
            v = out(reg) done, was = out(reg) _, is = out(reg) _,
            at = in(reg) WORD.0.as_ptr(), turns = in(reg) turns,
            options(nostack),
        );
    }
    done == 1
}

/// A page of RAM that is given back and taken again between LL and SC: the
/// word reads as before.
fn remapped() -> Outcome {
    /// A page that nothing else uses.
    const PAGE: u64 = 48 << 20;
    const BYTES: u64 = 0x4000;
    let at: *mut u64 = memory(PAGE);
    // SAFETY: RAM that nothing else uses.
    unsafe { at.write_volatile(0) };
    let start = ticks();
    let (mut done, mut released, mut claimed): (u64, u64, u64);
    // SAFETY: the page comes back before it is accessed again.
    unsafe {
        asm!(
            "ll.d {v}, {at}, 0",
            "move $a0, {release}",
            "move $a1, {page}",
            "move $a2, {bytes}",
            "hvcl {code}",
            // Until every vCPU has forgotten, the call itself is repeated.
            "move {released}, $a0",
            "move $a0, {claim}",
            "move $a1, {page}",
            "move $a2, {bytes}",
            "hvcl {code}",
            "move {claimed}, $a0",
            "ori {v}, $zero, 7",
            "sc.d {v}, {at}, 0",
            v = out(reg) done, released = out(reg) released, claimed = out(reg) claimed,
            at = in(reg) at, page = in(reg) PAGE, bytes = in(reg) BYTES,
            release = in(reg) vendor::MEMORY_RELEASE, claim = in(reg) vendor::MEMORY_CLAIM,
            code = const CODE_SERVICE,
            out("$a0") _, out("$a1") _, out("$a2") _,
            options(nostack),
        );
    }
    equal("released", released, 0)?;
    equal("claimed", claimed, 0)?;
    ensure("in time", ticks() - start < 10 * ticks_per_second())?;
    equal("a pair across a change of memory", done, 0)?;
    // SAFETY: as above.
    equal("the word", unsafe { at.read_volatile() }, 0)
}
