//! The CPU, with a count of what the crate does through it.

use crate::runtime::smp::MAX_CPUS;
use crate::runtime::trap::this_cpu;
use core::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use guest_pv::abi::hypercall::SEND_IPI;
use guest_pv::cpu::PhysicalId;
use guest_pv::loongarch::Native;
use guest_pv::machine::Machine;

/// [`Native`], counted.
pub struct Counted;

/// Calls that each vCPU has made.
static CALLS: [AtomicU64; MAX_CPUS] = [const { AtomicU64::new(0) }; MAX_CPUS];
/// Calls that have named each vCPU.
static NAMED: [AtomicU64; MAX_CPUS] = [const { AtomicU64::new(0) }; MAX_CPUS];
/// Index of the vCPU with each physical id.
static INDEX: [AtomicU8; IDS] = [const { AtomicU8::new(0) }; IDS];
const IDS: usize = PhysicalId::MAX.number() as usize + 1;

/// How many IPI calls vCPU `cpu` has made.
pub fn calls(cpu: usize) -> u64 {
    CALLS[cpu].load(Ordering::Relaxed)
}

/// How many IPI calls have named vCPU `cpu`.
pub fn named(cpu: usize) -> u64 {
    NAMED[cpu].load(Ordering::SeqCst)
}

/// Tells which vCPU has which id.
pub fn learn_ids(ids: impl Iterator<Item = u64>) {
    for (index, id) in (0..).zip(ids) {
        INDEX[id as usize % IDS].store(index, Ordering::Relaxed);
    }
}

fn count([low, high, base]: [u64; 3]) {
    CALLS[this_cpu()].fetch_add(1, Ordering::Relaxed);
    for (mut set, base) in [(low, base), (high, base + 64)] {
        while set != 0 {
            let id = base + u64::from(set.trailing_zeros());
            set &= set - 1;
            let cpu = INDEX[id as usize % IDS].load(Ordering::Relaxed);
            NAMED[usize::from(cpu)].fetch_add(1, Ordering::SeqCst);
        }
    }
}

impl Machine for Counted {
    fn cpucfg(&self, word: u32) -> u32 {
        Native.cpucfg(word)
    }

    fn iocsr_read32(&self, offset: u32) -> u32 {
        Native.iocsr_read32(offset)
    }

    unsafe fn iocsr_write32(&self, offset: u32, value: u32) {
        // SAFETY: the caller's duty is the same.
        unsafe { Native.iocsr_write32(offset, value) }
    }

    unsafe fn iocsr_write64(&self, offset: u32, value: u64) {
        // SAFETY: the caller's duty is the same.
        unsafe { Native.iocsr_write64(offset, value) }
    }

    unsafe fn hypercall(&self, function: u64, arguments: [u64; 3]) -> u64 {
        if function == SEND_IPI {
            count(arguments);
        }
        // SAFETY: the caller's duty is the same.
        unsafe { Native.hypercall(function, arguments) }
    }

    fn clear_swi0(&self) {
        Native.clear_swi0();
    }
}
