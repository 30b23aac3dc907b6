//! Two vCPUs in turn: asleep in between, or a time slice each.

use super::{BATCHES, report};
use crate::runtime::call::hvcl;
use crate::runtime::{smp, ticks, ticks_per_second};
use crate::{csrwr, csrxchg};
use core::arch::asm;
use core::sync::atomic::{AtomicU64, Ordering};
use guest_pv::abi::hypercall::{CODE_SERVICE, SEND_IPI};
use loongarch_isa::exception::Interrupt;

static TURN: AtomicU64 = AtomicU64::new(0);

/// Hops to the other vCPU and back, in a batch.
const HOPS: u64 = 8;

/// vCPUs 0 and 1 wake each other in turn, and sleep in between: a hop is a
/// send, a sleep, and a wake-up to the instruction behind `idle`. On one CPU
/// it is a switch besides.
pub fn hop() {
    static SAMPLES: [AtomicU64; BATCHES] = [const { AtomicU64::new(0) }; BATCHES];
    TURN.store(0, Ordering::SeqCst);
    smp::on_all(|index| {
        for sample in &SAMPLES {
            let start = ticks();
            hops(index, HOPS);
            if index == 0 {
                sample.store(ticks() - start, Ordering::Relaxed);
            }
        }
    });
    let mut samples = [0; BATCHES];
    for (to, from) in samples.iter_mut().zip(&SAMPLES) {
        *to = from.load(Ordering::Relaxed);
    }
    report("hop", &mut samples, 2 * HOPS);
}

/// The same, a few times, measured from outside.
pub fn few_hops() {
    TURN.store(0, Ordering::SeqCst);
    smp::on_all(|index| hops(index, HOPS));
}

fn hops(index: usize, count: u64) {
    if index > 1 {
        return;
    }
    csrwr!(ECFG, Interrupt::SWI0.bit());
    let other = smp::id(1 - index);
    (0..count).for_each(|_| one_hop(index as u64, other));
    csrwr!(ECFG, 0);
}

/// Waits for this vCPU's turn, asleep, and gives it to the other.
fn one_hop(index: u64, other: u64) {
    while TURN.load(Ordering::SeqCst) & 1 != index {
        // SAFETY: interrupts are off: what comes stays pending, and ends it.
        unsafe { asm!("idle 0", options(nostack)) };
        csrxchg!(ESTAT, 0, Interrupt::SWI0.bit());
    }
    TURN.fetch_add(1, Ordering::SeqCst);
    hvcl::<CODE_SERVICE>([SEND_IPI, 1, 0, other]);
}

/// Time slices a second that the hypervisor gives.
const SLICES_PER_SECOND: u64 = 200;
/// Slices that are looked at: few, since each takes long.
const SLICES: usize = 20;
/// Slices that are measured from outside.
const FEW: usize = 3;

/// vCPU 0 has seen enough.
static STOP: AtomicU64 = AtomicU64::new(0);

/// A stretch of time in which a vCPU didn't run: first and last tick.
static GAPS: [[[AtomicU64; 2]; SLICES]; 2] =
    [const { [const { [const { AtomicU64::new(0) }; 2] }; SLICES] }; 2];

/// vCPUs 0 and 1 are busy on one CPU, and each notes when it didn't run. Of a
/// gap of vCPU 0, what lies outside of vCPU 1's run in between is two changes.
pub fn switch() {
    STOP.store(0, Ordering::SeqCst);
    smp::on_all(|index| {
        let gaps = GAPS.get(index).into_iter().flatten();
        for (gap, found) in gaps.zip(core::iter::from_fn(next_gap)) {
            gap[0].store(found.0, Ordering::Relaxed);
            gap[1].store(found.1, Ordering::Relaxed);
        }
        // vCPU 1 must not leave the CPU to the other one before it is done.
        while index == 1 && STOP.load(Ordering::SeqCst) == 0 {
            core::hint::spin_loop();
        }
        STOP.store(1, Ordering::SeqCst);
    });
    let load = |word: &AtomicU64| word.load(Ordering::Relaxed);
    let [own, others] = &GAPS;
    let changes = own.iter().filter_map(|gap| {
        let (from, to) = (load(&gap[0]), load(&gap[1]));
        // The other ran from the end of one of its gaps to the next one.
        let mut runs = others
            .windows(2)
            .map(|two| (load(&two[0][1]), load(&two[1][0])));
        let (begin, end) = runs.find(|(begin, end)| from < *begin && begin < end && *end < to)?;
        Some((to - from) - (end - begin))
    });
    let mut samples = [0; BATCHES];
    let count = changes
        .zip(&mut samples)
        .map(|(change, sample)| *sample = change)
        .count();
    let mut all = [0; BATCHES];
    for (to, from) in all.iter_mut().zip(samples[..count].iter().cycle()) {
        *to = *from;
    }
    report("switch", &mut all, 2);
}

/// Lets vCPUs 0 and 1 have a few slices each, measured from outside.
pub fn few_slices() {
    STOP.store(0, Ordering::SeqCst);
    smp::on_all(|index| {
        if index == 0 {
            let _ = core::iter::from_fn(next_gap).take(FEW).count();
            STOP.store(1, Ordering::SeqCst);
        }
        while STOP.load(Ordering::Relaxed) == 0 {
            core::hint::spin_loop();
        }
    });
}

/// Looks at the counter until half a slice passes between two looks; these
/// two. `None` once it is over.
fn next_gap() -> Option<(u64, u64)> {
    let least = ticks_per_second() / SLICES_PER_SECOND / 2;
    let mut before = ticks();
    while STOP.load(Ordering::Relaxed) == 0 {
        let now = ticks();
        if now - before > least {
            return Some((before, now));
        }
        before = now;
    }
    None
}
