//! Starting the other CPUs.
//!
//! A parked CPU first clears its mailbox and then enables its IPI: a message
//! that comes before that is lost, so it is sent until the CPU says that it
//! runs. Sending twice does no harm: a CPU that has started isn't parked.
//!
//! Source: Loongson's firmware interface as in Linux,
//! arch/loongarch/kernel/smp.c; hw/loongarch/boot.c of QEMU 10.0.

use crate::arch::boot::{self, Launch, STACK_BYTES};
use crate::arch::cpu;
use crate::platform::ipi::{self, Vector};
use alloc::boxed::Box;
use core::sync::atomic::{AtomicU32, Ordering};

/// How often a CPU is called before it counts as broken.
const ATTEMPTS: u32 = 2000;
/// Calls a second.
const ATTEMPTS_PER_SECOND: u64 = 1000;

/// CPUs that have arrived.
static ARRIVED: AtomicU32 = AtomicU32::new(0);

/// Tells the starter that this CPU runs.
pub fn arrived() {
    ARRIVED.fetch_add(1, Ordering::Release);
}

/// How many CPUs run, this one included.
#[must_use]
pub fn running() -> u32 {
    ARRIVED.load(Ordering::Acquire) + 1
}

/// Starts CPU `id`, which gets `argument`; false if it doesn't arrive.
#[must_use]
pub fn start(id: u32, argument: u64) -> bool {
    let stack = Box::leak(Box::new([0u128; STACK_BYTES / 16]));
    let launch = Box::leak(Box::new(Launch {
        stack: stack.as_ptr_range().end as u64,
        argument,
    }));
    let before = ARRIVED.load(Ordering::Acquire);
    for _ in 0..ATTEMPTS {
        ipi::mail(id, 1, boot::physical(launch));
        ipi::mail(id, 0, boot::secondary_entry());
        ipi::send(id, Vector::Start);
        cpu::delay(cpu::ticks_per_second() / ATTEMPTS_PER_SECOND);
        if ARRIVED.load(Ordering::Acquire) != before {
            return true;
        }
    }
    false
}
