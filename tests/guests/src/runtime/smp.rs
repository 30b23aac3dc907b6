//! The other vCPUs: starting them and giving them work.

use super::{boot, cmdline::Options, iocsr, trap};
use crate::csrrd;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use guest_pv::abi::iocsr::{IPI_CLEAR, IPI_ENABLE, IPI_SEND, MAIL_SEND, ipi_send, mail_send};

/// Most vCPUs of a guest.
pub const MAX_CPUS: usize = 128;

/// Index of the next vCPU to start; the boot vCPU has 0.
pub static NEXT_INDEX: AtomicU64 = AtomicU64::new(1);

/// Physical id of each vCPU, by the order in which they are listed.
static IDS: [AtomicU64; MAX_CPUS] = [const { AtomicU64::new(0) }; MAX_CPUS];
static COUNT: AtomicUsize = AtomicUsize::new(1);

static HOST_CPUS: AtomicU64 = AtomicU64::new(0);

/// vCPUs that run.
static ARRIVED: AtomicUsize = AtomicUsize::new(1);

/// What the secondaries do, and how often that was changed.
static TASK: AtomicUsize = AtomicUsize::new(0);
static ROUND: AtomicUsize = AtomicUsize::new(0);
static DONE: AtomicUsize = AtomicUsize::new(0);

/// Work for a vCPU, which gets its index.
pub type Task = fn(usize);

/// How many vCPUs run.
pub fn count() -> usize {
    COUNT.load(Ordering::Relaxed)
}

/// How many CPUs the machine has, by the command line's `cpus=`; 0 where it
/// doesn't say.
pub fn host_cpus() -> u64 {
    HOST_CPUS.load(Ordering::Relaxed)
}

/// Physical id of vCPU `index`.
pub fn id(index: usize) -> u64 {
    IDS[index].load(Ordering::Relaxed)
}

/// The index of the vCPU with this physical id.
pub fn index_of(id: u64) -> Option<usize> {
    (0..count()).find(|&index| self::id(index) == id)
}

/// Starts every vCPU that the command line's `ids=` lists, beyond the first.
pub fn start(options: &Options) {
    let host_cpus = options.list("cpus").next().unwrap_or(0);
    HOST_CPUS.store(host_cpus, Ordering::Relaxed);
    let mut ids = options.list("ids");
    IDS[0].store(ids.next().unwrap_or(0), Ordering::Relaxed);
    iocsr::write_w(IPI_ENABLE.into(), u64::from(u32::MAX));
    for (index, id) in (1..MAX_CPUS).zip(ids) {
        IDS[index].store(id, Ordering::Relaxed);
        COUNT.store(index + 1, Ordering::Relaxed);
        let entry = boot::secondary_entry();
        let target = id as u32;
        iocsr::write_d(MAIL_SEND.into(), mail_send(target, 1, (entry >> 32) as u32));
        iocsr::write_d(MAIL_SEND.into(), mail_send(target, 0, entry as u32));
        iocsr::write_w(IPI_SEND.into(), ipi_send(target, 0).into());
        while ARRIVED.load(Ordering::Acquire) <= index {
            core::hint::spin_loop();
        }
    }
}

/// Every other vCPU arrives here.
pub extern "C" fn secondary_main(index: usize) -> ! {
    trap::set_up();
    // The boot IPI stays pending until it is cleared.
    iocsr::write_w(IPI_CLEAR.into(), u64::from(u32::MAX));
    iocsr::write_w(IPI_ENABLE.into(), u64::from(u32::MAX));
    if csrrd!(CPUID) != id(index) {
        crate::println!("FAIL smp.start: id {:#x} at index {index}", csrrd!(CPUID));
    }
    ARRIVED.fetch_add(1, Ordering::Release);
    let mut seen = 0;
    loop {
        while ROUND.load(Ordering::Acquire) == seen {
            core::hint::spin_loop();
        }
        seen += 1;
        let task = TASK.load(Ordering::Relaxed);
        // SAFETY: `on_all` stored a `Task` before it began the round.
        let task: Task = unsafe { core::mem::transmute(task) };
        task(index);
        DONE.fetch_add(1, Ordering::Release);
    }
}

/// Runs `task` on every vCPU at once; returns when all are done.
pub fn on_all(task: Task) {
    DONE.store(0, Ordering::Relaxed);
    TASK.store(task as usize, Ordering::Relaxed);
    ROUND.fetch_add(1, Ordering::Release);
    task(0);
    while DONE.load(Ordering::Acquire) < count() - 1 {
        core::hint::spin_loop();
    }
}
