//! A vCPU that waits for an interrupt: when it is the only one of its CPU it
//! waits right there, and its CPU with it.

use super::LINES;
use super::machine::Machine;
use crate::arch::{cpu, world_switch};
use crate::isa::exception::Interrupt;
use crate::isa::{csr_read, gcsr_read};
use crate::vcpu::handle::Hardware;
use crate::vcpu::timer::SavedTimer;
use crate::vcpu::{Power, Vcpu};
use core::sync::atomic::Ordering;

/// Lets the CPU of `vcpu`, which is alone on it, poll and then sleep until
/// the vCPU has something to look at: no queue is touched. False where there
/// is something else to look at first.
pub(super) fn alone(vcpu: &Vcpu, machine: &mut Machine) -> bool {
    if vcpu.vm().idle_poll != 0 {
        poll(vcpu, machine);
    }
    let Some(deadline) = until(vcpu, machine) else {
        return true;
    };
    let woken = nap(vcpu, machine, deadline);
    world_switch::arm();
    woken
}

/// Looks for a while whether the loaded vCPU, which is idle, has to do again:
/// nobody needs to wake the CPU meanwhile. A function of its own: who counts
/// instructions (`cargo xtask bench exits`) leaves it out.
#[inline(never)]
fn poll(vcpu: &Vcpu, machine: &Machine) {
    if vcpu.power != Power::On {
        return;
    }
    vcpu.leave_guest();
    let wakes = vcpu.wakes(gcsr_read!(ECFG));
    let lines = csr_read!(ECFG);
    let limit = vcpu.vm().idle_poll * cpu::ticks_per_second() / 1_000_000;
    let start = cpu::ticks();
    while cpu::ticks().wrapping_sub(start) < limit
        && !vcpu.shared().postbox.wanted(wakes)
        && machine.pending() == 0
        && csr_read!(ESTAT) & lines & LINES == 0
    {
        core::hint::spin_loop();
    }
}

/// Lets the loaded vCPU sleep; until when, `None` where it may not. The
/// timer is read before the last look at what is pending: it may expire
/// between the look that led here and its reading.
pub(super) fn until(vcpu: &Vcpu, machine: &Machine) -> Option<Option<u64>> {
    let enabled = gcsr_read!(ECFG);
    let timed = vcpu.power == Power::On && enabled & Interrupt::TI.bit() != 0;
    let deadline = timed.then(|| SavedTimer {
        tcfg: gcsr_read!(TCFG),
        tval: gcsr_read!(TVAL),
        saved_at: cpu::ticks(),
    });
    if !vcpu.go_to_sleep(enabled) {
        return None;
    }
    if timed && machine.pending() != 0 {
        vcpu.wake_up();
        return None;
    }
    Some(deadline.and_then(|timer| timer.deadline()))
}

/// How often a vCPU that waits for others looks whether they are done.
const LOOKS_PER_SECOND: u64 = 100_000;

/// Lets the loaded vCPU sleep for a moment, if it has no interrupt to take;
/// until when.
pub(super) fn moment(vcpu: &Vcpu, machine: &Machine) -> Option<Option<u64>> {
    if machine.pending() != 0 || !vcpu.go_to_sleep(gcsr_read!(ECFG)) {
        // Outside all the same: others wait for it, as it does for them.
        vcpu.leave_guest();
        return None;
    }
    let ticks = cpu::ticks_per_second() / LOOKS_PER_SECOND;
    Some(Some(cpu::ticks() + ticks))
}

/// Sleeps until `vcpu` may go on, at `deadline` (in ticks) at the latest.
/// False where there is something else to look at first.
fn nap(vcpu: &Vcpu, machine: &mut Machine, deadline: Option<u64>) -> bool {
    loop {
        if !vcpu.shared().postbox.asleep() {
            vcpu.shared().stats.woken.count();
            return true;
        }
        let now = cpu::ticks();
        if deadline.is_some_and(|deadline| deadline <= now) {
            vcpu.wake_up();
            return true;
        }
        machine.set_timer(deadline, now);
        let stats = &vcpu.shared().stats;
        stats.slept.set(now);
        cpu::idle();
        stats.asleep.add(cpu::ticks().wrapping_sub(now));
        let look = machine.take_interrupts(csr_read!(ESTAT));
        if look && (machine.console || machine.mailbox.attention.load(Ordering::SeqCst)) {
            return false;
        }
    }
}
