//! The other vCPUs: starting them and giving them work.

use super::{boot, cmdline::Options, iocsr, nap, trap};
use crate::{csrrd, csrwr};
use core::arch::asm;
use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use guest_pv::abi::cpucfg::PvFeatures;
use guest_pv::abi::iocsr::{IPI_CLEAR, IPI_ENABLE, IPI_STATUS};
use guest_pv::cpu::{Cpu, PhysicalId};
use guest_pv::ipi::{Action, Ipi};
use guest_pv::loongarch::Native;
use loongarch_isa::exception::Interrupt;

/// Most vCPUs of a guest.
pub const MAX_CPUS: usize = 128;

/// Index of the next vCPU to start; the boot vCPU has 0.
pub static NEXT_INDEX: AtomicU64 = AtomicU64::new(1);

/// The vCPUs, in the order in which they are listed.
pub static CPUS: [Cpu; MAX_CPUS] = [const { Cpu::new() }; MAX_CPUS];
static COUNT: AtomicUsize = AtomicUsize::new(1);

static HOST_CPUS: AtomicU64 = AtomicU64::new(0);

/// The command line says that nothing but instructions takes time.
static COUNTED: AtomicBool = AtomicBool::new(false);
/// vCPUs at the end of the list that [`start`] leaves parked.
static SPARES: AtomicUsize = AtomicUsize::new(0);

/// vCPUs that run.
static ARRIVED: AtomicUsize = AtomicUsize::new(1);

/// ESTAT and the pending vectors at the first instruction of the last vCPU that
/// was started, and ESTAT once it had cleared the vectors.
pub static FIRST: [AtomicU64; 3] = [const { AtomicU64::new(0) }; 3];

/// What the secondaries do, and how many have done it.
static TASK: AtomicUsize = AtomicUsize::new(0);
static DONE: AtomicUsize = AtomicUsize::new(0);

/// Vector of the native IPI that begins a task.
const GO: Action = Action::new(31).unwrap();

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

/// Whether all vCPUs share one CPU, of a machine whose clock counts its
/// instructions (`clock=counted`): what waits there waits for another vCPU.
pub fn on_one_counted_cpu() -> bool {
    host_cpus() == 1 && COUNTED.load(Ordering::Relaxed)
}

/// Physical id of the vCPU that is still parked, by the command line's
/// `spares=`.
pub fn spare() -> Option<u32> {
    let index = count() + SPARES.load(Ordering::Relaxed).checked_sub(1)?;
    CPUS[index].id().map(PhysicalId::number)
}

/// How many vCPUs have arrived in Rust.
pub fn arrived() -> usize {
    ARRIVED.load(Ordering::Acquire)
}

/// Physical id of vCPU `index`.
pub fn id(index: usize) -> u64 {
    CPUS[index].id().map_or(u64::MAX, |id| id.number().into())
}

/// The index of the vCPU with this physical id.
pub fn index_of(id: u64) -> Option<usize> {
    (0..count()).find(|&index| self::id(index) == id)
}

/// IPIs that the guest's own runtime sends: always native.
fn native() -> Ipi<'static, Native> {
    Ipi::new(Native, PvFeatures::empty(), &CPUS)
}

/// Starts every vCPU that the command line's `ids=` lists, beyond the first
/// and but for the last `spares=`.
pub fn start(options: &Options) {
    HOST_CPUS.store(options.number("cpus", 0), Ordering::Relaxed);
    COUNTED.store(options.text("clock") == "counted", Ordering::Relaxed);
    let ids = options.list("ids").map(|id| PhysicalId::new(id as u32));
    let count = CPUS.iter().zip(ids).fold(0, |count, (cpu, id)| {
        id.inspect(|&id| cpu.set_id(id));
        count + 1
    });
    let spares = (options.number("spares", 0) as usize).min(count - 1);
    SPARES.store(spares, Ordering::Relaxed);
    let count = count - spares;
    COUNT.store(count, Ordering::Relaxed);
    native().enable();
    for index in 1..count {
        // SAFETY: the vCPU waits to be started, and that is its entry.
        if let Err(error) = unsafe { native().boot(index, boot::secondary_entry()) } {
            crate::println!("FAIL smp.start: {error}");
        }
        while ARRIVED.load(Ordering::Acquire) <= index {
            nap();
        }
    }
}

/// Every other vCPU arrives here.
pub extern "C" fn secondary_main(index: usize) -> ! {
    trap::set_up(index);
    let (estat, vectors) = (csrrd!(ESTAT), iocsr::read_w(IPI_STATUS.into()));
    // The boot IPI stays pending until it is cleared; then its line drops.
    iocsr::write_w(IPI_CLEAR.into(), u64::from(u32::MAX));
    let cleared = csrrd!(ESTAT);
    for (first, value) in FIRST.iter().zip([estat, vectors, cleared]) {
        first.store(value, Ordering::Relaxed);
    }
    if vectors & 1 == 0 || cleared & Interrupt::IPI.bit() != 0 {
        crate::println!("FAIL smp.start: vectors {vectors:#x}, ESTAT then {cleared:#x}");
    }
    native().enable();
    if csrrd!(CPUID) != id(index) {
        crate::println!("FAIL smp.start: id {:#x} at index {index}", csrrd!(CPUID));
    }
    ARRIVED.fetch_add(1, Ordering::Release);
    loop {
        wait_for_go();
        let task = TASK.load(Ordering::Relaxed);
        // SAFETY: `on_all` stored a `Task` before it said go.
        let task: Task = unsafe { core::mem::transmute(task) };
        task(index);
        DONE.fetch_add(1, Ordering::Release);
    }
}

/// Sleeps until the boot vCPU says go: vCPUs that share a CPU don't take
/// each other's time while they wait. Other vectors may be for the task to
/// come, from vCPUs that have begun already: they stay pending.
fn wait_for_go() {
    let go = 1 << GO.number();
    trap::mask();
    csrwr!(ECFG, Interrupt::IPI.bit());
    iocsr::write_w(IPI_ENABLE.into(), go);
    while iocsr::read_w(IPI_STATUS.into()) & go == 0 {
        // SAFETY: waits; what came since the look is pending and ends it.
        unsafe { asm!("idle 0", options(nostack)) };
    }
    iocsr::write_w(IPI_CLEAR.into(), go);
    csrwr!(ECFG, 0);
    native().enable();
}

/// Runs `task` on every vCPU at once; returns when all are done.
pub fn on_all(task: Task) {
    begin(task);
    task(0);
    finish();
}

/// Every vCPU but the first begins with `task`.
pub fn begin(task: Task) {
    DONE.store(0, Ordering::Relaxed);
    TASK.store(task as usize, Ordering::Release);
    for index in 1..count() {
        // The index is that of a vCPU which was started.
        let _ = native().send_ipi_single(index, GO);
    }
}

/// Waits until every vCPU but the first is done.
pub fn finish() {
    while DONE.load(Ordering::Acquire) < count() - 1 {
        nap();
    }
}
