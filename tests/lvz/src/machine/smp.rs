//! The other CPUs: starting them, giving them work, waiting for them.
//!
//! A CPU without work sleeps, so that under a clock that counts the
//! instructions of all CPUs the waiting ones cost nothing.

use super::{MAX_CPUS, boot, cached, device, ipi};
use crate::arch;
use crate::check::{Cpu, Outcome, Task};
use crate::{csrrd, csrwr, csrxchg};
use core::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use loongarch_isa::exception::Interrupt;

/// fw_cfg of the `virt` board: data at +0, selector (big endian) at +8.
const FW_CFG: u64 = 0x1e02_0000;
/// fw_cfg key: number of CPUs, 16 bits little endian.
const FW_CFG_NB_CPUS: u16 = 5;

/// What a secondary CPU is to do.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum State {
    /// In the boot stub.
    Off,
    /// Waits for a task.
    Ready,
    /// Has one, or is at it.
    Busy,
    /// Is done, with this outcome.
    Passed,
    Failed,
}

struct Desk {
    state: AtomicU8,
    task: AtomicUsize,
}

static DESKS: [Desk; MAX_CPUS] = [const {
    Desk {
        state: AtomicU8::new(State::Off as u8),
        task: AtomicUsize::new(0),
    }
}; MAX_CPUS];

/// The index of this CPU, below [`MAX_CPUS`].
pub fn this_cpu() -> usize {
    csrrd!(CPUID) as usize % MAX_CPUS
}

/// How many CPUs the machine has; those beyond [`MAX_CPUS`] stay off.
pub fn count() -> usize {
    let selector: *mut u16 = device(FW_CFG + 8);
    let data: *const u8 = device(FW_CFG);
    // SAFETY: fw_cfg's registers, mapped by the uncached window; reading
    // them touches no memory of ours.
    let bytes = unsafe {
        selector.write_volatile(FW_CFG_NB_CPUS.to_be());
        [data.read_volatile(), data.read_volatile()]
    };
    usize::from(u16::from_le_bytes(bytes)).min(MAX_CPUS)
}

/// What every CPU sets up for itself.
pub fn set_up_this_cpu() {
    arch::trap::set_up();
    ipi::clear(u32::MAX);
    ipi::enable();
    crate::guest::set_up_this_cpu();
}

/// Starts CPUs 1 to `count` − 1 and waits until they are ready.
///
/// The boot stub first clears its mailbox and then enables its interrupts,
/// and a message that comes before is lost: so it is sent until it works.
pub fn start(count: usize) {
    for cpu in 1..count {
        while state(cpu) == State::Off as u8 {
            ipi::mail(cpu, boot::secondary_entry());
            ipi::send(cpu, ipi::Vector::Boot);
            arch::delay(START_DELAY);
        }
    }
}

/// Ticks between two attempts to start a CPU: 1 ms.
const START_DELAY: u64 = 1000 * arch::TICKS_PER_US;

fn state(cpu: usize) -> u8 {
    DESKS[cpu].state.load(Ordering::Acquire)
}

/// Sleeps until `done`; the CPU that makes it so sends [`ipi::Vector::Wake`].
pub fn wait(done: impl Fn() -> bool) {
    sleep(Interrupt::IPI.bit(), done);
}

/// The same for no longer than this many ticks; whether it was `done`. Takes
/// the host's timer.
pub fn wait_for(ticks: u64, done: impl Fn() -> bool) -> bool {
    let timer = Interrupt::TI.bit();
    let expired = || csrrd!(ESTAT) & timer != 0;
    csrwr!(TCFG, ticks | 1);
    sleep(Interrupt::IPI.bit() | timer, || done() || expired());
    csrwr!(TCFG, 0);
    csrwr!(TICLR, 1);
    done()
}

/// Sleeps until `done`, woken by these lines.
fn sleep(lines: u64, done: impl Fn() -> bool) {
    let before = csrxchg!(ECFG, lines, lines);
    while !done() {
        arch::idle();
        // Cleared before the next look at `done`: a wake-up after that look
        // stays pending and ends the next sleep at once.
        ipi::clear(ipi::Vector::Wake.bit() | ipi::Vector::Boot.bit());
    }
    csrxchg!(ECFG, before, lines);
}

/// Gives `task` to CPU `cpu`, which must be ready.
pub fn give(cpu: usize, task: Task) {
    let desk = &DESKS[cpu];
    assert!(state(cpu) == State::Ready as u8);
    desk.task.store(task as usize, Ordering::Relaxed);
    desk.state.store(State::Busy as u8, Ordering::Release);
    ipi::send(cpu, ipi::Vector::Wake);
}

/// Waits until CPU `cpu` has done its task; the failure is on its own desk
/// (see [`crate::check::failure`]).
pub fn join(cpu: usize) -> Outcome {
    let done = || matches!(state(cpu), s if s == State::Passed as u8 || s == State::Failed as u8);
    wait(done);
    let outcome = state(cpu);
    DESKS[cpu]
        .state
        .store(State::Ready as u8, Ordering::Release);
    if outcome == State::Passed as u8 {
        Ok(())
    } else {
        Err(crate::check::Failed)
    }
}

/// A secondary CPU's life.
pub extern "C" fn secondary_main(index: usize) -> ! {
    set_up_this_cpu();
    let desk = &DESKS[index];
    let mut cpu = Cpu::new(index);
    desk.state.store(State::Ready as u8, Ordering::Release);
    loop {
        wait(|| state(index) == State::Busy as u8);
        let task = desk.task.load(Ordering::Relaxed);
        // SAFETY: `give`, the only writer, stored a `Task` before it set the
        // state that this CPU has just seen (acquire after release).
        let task: Task = unsafe { core::mem::transmute(task) };
        let end = match cpu.run(task) {
            Ok(()) => State::Passed,
            Err(_) => State::Failed,
        };
        desk.state.store(end as u8, Ordering::Release);
        ipi::send(0, ipi::Vector::Wake);
    }
}

/// The command line, which QEMU leaves at a physical address.
pub fn command_line(phys: u64) -> &'static str {
    // SAFETY: `phys` is what QEMU passed in a1; nothing writes there, since
    // the suite's memory begins at 2 MiB.
    unsafe { super::cmdline::at(cached(phys) as *const core::ffi::c_char) }
}
