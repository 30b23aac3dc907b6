//! Starting the other CPUs, all at once.
//!
//! A parked CPU first clears its mailbox and then enables its IPI: a message
//! that comes before that is lost, so it is sent until the CPU says that it
//! runs. Sending twice does no harm: a CPU that has started isn't parked.
//! The starter sleeps meanwhile, until one arrives or it is time to call
//! again: where emulated CPUs take turns, one that waits busily keeps the
//! others from arriving.
//!
//! Sources: Loongson's firmware interface as in Linux,
//! arch/loongarch/kernel/smp.c; hw/loongarch/boot.c of QEMU 10.0;
//! OvmfPkg/LoongArchVirt/Sec and UefiCpuPkg/Library/CpuExceptionHandlerLib of
//! EDK2: its parked CPUs take the interrupt, and go to mailbox 0 from there.

use crate::arch::boot::{self, Launch, STACK_BYTES};
use crate::arch::cpu;
use crate::isa::csr::{TCFG, TICLR};
use crate::isa::exception::Interrupt;
use crate::isa::{csr_exchange, csr_write};
use crate::platform::ipi::{self, Vector};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering, fence};
use spin::Once;

/// How often a CPU is called before it counts as broken.
const ATTEMPTS: u32 = 2000;
/// Calls a second.
const ATTEMPTS_PER_SECOND: u64 = 1000;

/// A CPU that is called.
#[derive(Debug)]
struct Call {
    id: u32,
    arrived: AtomicBool,
}

impl Call {
    const fn new(id: u32) -> Self {
        Self {
            id,
            arrived: AtomicBool::new(false),
        }
    }

    /// What the CPU needs, with a stack of its own.
    fn launch(&self, index: u64) -> Launch {
        let stack = Box::leak(Box::new([0u128; STACK_BYTES / 16]));
        Launch {
            id: self.id.into(),
            stack: stack.as_ptr_range().end as u64,
            argument: index,
        }
    }

    fn send(&self) {
        ipi::mail(self.id, 0, boot::secondary_entry());
        ipi::send(self.id, Vector::Start);
    }
}

static CALLS: Once<Vec<Call>> = Once::new();
static STARTER: AtomicU32 = AtomicU32::new(0);

/// Tells the starter that the CPU with the argument `index` runs.
pub fn arrived(index: u64) {
    if let Some(call) = CALLS.get().and_then(|calls| calls.get(index as usize)) {
        call.arrived.store(true, Ordering::SeqCst);
        ipi::send(STARTER.load(Ordering::SeqCst), Vector::Wake);
    }
}

/// The CPUs of `calls` that haven't arrived.
fn missing(calls: &[Call]) -> impl Iterator<Item = &Call> {
    calls
        .iter()
        .filter(|call| !call.arrived.load(Ordering::SeqCst))
}

/// Starts the CPUs `ids`, once and for all; returns those that don't arrive.
#[must_use]
pub fn start(ids: impl Iterator<Item = u32>) -> Vec<u32> {
    STARTER.store(cpu::id(), Ordering::SeqCst);
    let calls = CALLS.call_once(|| ids.map(Call::new).collect());
    boot::set_launches((0..).zip(calls).map(|(n, call)| call.launch(n)).collect());
    // The table is there before anyone is called.
    fence(Ordering::SeqCst);
    // SAFETY: the timer's line only ends `idle`.
    unsafe { csr_exchange!(ECFG, Interrupt::TI.bit(), Interrupt::TI.bit()) };
    for _ in 0..ATTEMPTS {
        missing(calls).for_each(Call::send);
        wait(calls);
        if missing(calls).next().is_none() {
            break;
        }
    }
    missing(calls).map(|call| call.id).collect()
}

/// Sleeps until all have arrived, or it is time for the next attempt.
fn wait(calls: &[Call]) {
    let pause = cpu::ticks_per_second() / ATTEMPTS_PER_SECOND;
    let end = cpu::ticks() + pause;
    // SAFETY: the timer only raises its line; it is stopped below.
    unsafe { csr_write!(TCFG, pause & !3 | TCFG::EN::SET.value) };
    while missing(calls).next().is_some() && cpu::ticks() < end {
        cpu::idle();
        // That they have come is all that they say.
        let _ = ipi::take();
    }
    // SAFETY: stops the timer, and acknowledges its interrupt.
    unsafe {
        csr_write!(TCFG, 0);
        csr_write!(TICLR, TICLR::CLR::SET.value);
    }
}
