//! What exits cost, as the guest sees it: batches of equal exits between two
//! readings of the counter.
//!
//! Under a clock that counts instructions (QEMU's -icount shift=0) a
//! nanosecond is an instruction, and what is printed is instructions of the
//! round trip, the guest's own instruction included. The clock counts the
//! instructions of all CPUs.

use crate::println;
use crate::runtime::call::call;
use crate::runtime::smp;
use crate::runtime::trap::{mask, unmask};
use crate::runtime::{cpucfg, device, iocsr, ticks, ticks_per_second};
use crate::{csrrd, csrwr};
use core::arch::asm;
use core::sync::atomic::{AtomicU64, Ordering};
use guest_pv::abi::hypercall::{CODE_SERVICE, SEND_IPI};
use guest_pv::abi::iocsr::{IPI_CLEAR, IPI_SEND, IPI_STATUS, ipi_send};
use guest_pv::abi::vendor;
use loongarch_isa::exception::Interrupt;

/// Exits between two readings, and such batches.
const BATCH: u64 = 16;
const BATCHES: usize = 200;

/// Prints a line `BENCH name min=… median=…` in nanoseconds an exit.
fn report(name: &str, samples: &mut [u64; BATCHES], exits: u64) {
    samples.sort_unstable();
    let each = |sample: u64| sample * (1_000_000_000 / ticks_per_second()) / exits;
    let (min, median) = (each(samples[0]), each(samples[BATCHES / 2]));
    println!("BENCH {name} min={min} median={median}");
}

/// Measures `exit`, which is put in line sixteen times.
macro_rules! measure {
    ($name:literal, $exit:expr) => {{
        let mut samples = [0; BATCHES];
        for sample in &mut samples {
            let start = ticks();
            $exit;
            $exit;
            $exit;
            $exit;
            $exit;
            $exit;
            $exit;
            $exit;
            $exit;
            $exit;
            $exit;
            $exit;
            $exit;
            $exit;
            $exit;
            $exit;
            *sample = ticks() - start;
        }
        report($name, &mut samples, BATCH);
    }};
}

/// Measures everything that this many vCPUs allow.
pub fn run() {
    let nothing = || ();
    measure!("nothing", nothing());
    measure!("hypercall-null", call(vendor::NULL, 0));
    measure!("hypercall-general", call(vendor::NULL_GENERAL, 0));
    measure!("hypercall-unknown", call(0x3fff, 0));
    measure!("pv-ipi-nobody", call(SEND_IPI, 0));
    measure!("cpucfg", cpucfg(2));
    measure!("csr", csrrd!(IMPCTL1));
    measure!("iocsr-read", iocsr::read_w(IPI_STATUS.into()));
    measure!("iocsr-write", iocsr::write_w(IPI_CLEAR.into(), 0));
    let line_status: *mut u8 = device(0x1fe0_01e5);
    // SAFETY: a register of the UART, read without an effect.
    measure!("mmio-read", unsafe { line_status.read_volatile() });
    idle_pending();
    if smp::count() > 1 {
        hops();
    }
}

/// `idle` with something pending: it doesn't sleep.
fn idle_pending() {
    mask();
    let swi0 = Interrupt::SWI0.bit();
    csrwr!(ECFG, swi0);
    crate::csrxchg!(ESTAT, swi0, swi0);
    // SAFETY: returns at once.
    measure!("idle-pending", unsafe { asm!("idle 0", options(nostack)) });
    crate::csrxchg!(ESTAT, 0, swi0);
    csrwr!(ECFG, 0);
}

static TURN: AtomicU64 = AtomicU64::new(0);

/// Hops to the other vCPU and back, in a batch.
const HOPS: u64 = 8;

/// vCPUs 0 and 1 wake each other in turn, and sleep in between: a hop is a
/// send, a sleep, and a wake-up to the receiver's handler. On one CPU it is a
/// switch besides.
fn hops() {
    both("hop-pv-ipi", |to| {
        // SAFETY: a call changes a0 alone.
        unsafe {
            asm!("hvcl {}", const CODE_SERVICE, inlateout("$a0") SEND_IPI => _,
                in("$a1") 1u64, in("$a2") 0u64, in("$a3") to, options(nostack));
        }
    });
    both("hop-ipi", |to| {
        iocsr::write_w(IPI_SEND.into(), ipi_send(to as u32, 2).into())
    });
}

fn both(name: &str, send: fn(u64)) {
    static SEND: AtomicU64 = AtomicU64::new(0);
    static SAMPLES: [AtomicU64; BATCHES] = [const { AtomicU64::new(0) }; BATCHES];
    SEND.store(send as usize as u64, Ordering::Relaxed);
    TURN.store(0, Ordering::SeqCst);
    smp::on_all(|index| {
        if index > 1 {
            return;
        }
        // SAFETY: `both` stored a function of this type.
        let send: fn(u64) = unsafe { core::mem::transmute(SEND.load(Ordering::Relaxed) as usize) };
        csrwr!(ECFG, Interrupt::IPI.bit() | Interrupt::SWI0.bit());
        for sample in &SAMPLES {
            let start = ticks();
            for _ in 0..HOPS {
                hop(index as u64, send);
            }
            if index == 0 {
                sample.store(ticks() - start, Ordering::Relaxed);
            }
        }
        csrwr!(ECFG, 0);
    });
    let mut samples = [0; BATCHES];
    for (to, from) in samples.iter_mut().zip(&SAMPLES) {
        *to = from.load(Ordering::Relaxed);
    }
    report(name, &mut samples, 2 * HOPS);
}

/// Waits for this vCPU's turn, asleep, and gives it to the other.
fn hop(index: u64, send: fn(u64)) {
    while TURN.load(Ordering::SeqCst) & 1 != index {
        // SAFETY: interrupts are off: what comes now stays pending.
        unsafe { asm!("idle 0", options(nostack)) };
        unmask();
        mask();
    }
    TURN.fetch_add(1, Ordering::SeqCst);
    send(smp::id(1 - index as usize));
}
