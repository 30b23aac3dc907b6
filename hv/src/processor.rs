//! A physical CPU at work: it picks a vCPU, loads it, runs it, and sleeps
//! when there is none to run.
//!
//! Each CPU owns its vCPUs and its scheduler alone. Others reach it by its
//! inbox and by a kick; the inbox's lock is never held across an entry.

mod machine;

use crate::arch::{cpu, world_switch};
use crate::isa::exception::Interrupt;
use crate::isa::{csr_exchange, csr_read, gcsr_read};
use crate::mm::gid::GidPool;
use crate::mm::phys::Cached;
use crate::platform::ipi::{self, Vector};
use crate::sched::{Scheduler, Slot};
use crate::start;
use crate::vcpu::handle::Hardware;
use crate::vcpu::run::run;
use crate::vcpu::timer::SavedTimer;
use crate::vcpu::{Power, Resume, Vcpu, Yield};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, Ordering};
use machine::Machine;
use spin::Mutex;

/// The interrupt lines of ESTAT and ECFG.
const LINES: u64 = (1 << 13) - 1;

/// Time slices a second.
const SLICES_PER_SECOND: u64 = 200;

/// How others reach a CPU.
#[derive(Debug)]
#[expect(
    clippy::vec_box,
    reason = "a vCPU never moves: the world switch knows its address"
)]
pub struct Mailbox {
    id: u32,
    new: Mutex<Vec<Box<Vcpu>>>,
    attention: AtomicBool,
}

impl Mailbox {
    /// The mailbox of the CPU with physical id `id`.
    #[must_use]
    pub const fn new(id: u32) -> Self {
        Self {
            id,
            new: Mutex::new(Vec::new()),
            attention: AtomicBool::new(false),
        }
    }

    /// The CPU's physical id.
    #[must_use]
    pub const fn id(&self) -> u32 {
        self.id
    }

    /// Gives the CPU a vCPU to run.
    pub fn give(&self, vcpu: Box<Vcpu>) {
        self.new.lock().push(vcpu);
        self.attention.store(true, Ordering::SeqCst);
        ipi::send(self.id, Vector::Wake);
    }
}

/// A physical CPU.
#[derive(Debug)]
pub struct Processor {
    mailbox: &'static Mailbox,
    slots: Vec<Option<Box<Vcpu>>>,
    scheduler: Scheduler,
    machine: Machine,
    loaded: Option<Slot>,
}

impl Processor {
    /// This CPU, with guest identifiers of `gid_bits` bits; `None` where
    /// there are none.
    #[must_use]
    pub fn new(mailbox: &'static Mailbox, gid_bits: u32) -> Option<Self> {
        let gids = GidPool::new(mailbox.id, gid_bits)?;
        Some(Self {
            mailbox,
            slots: Vec::new(),
            scheduler: Scheduler::new(cpu::ticks_per_second() / SLICES_PER_SECOND),
            machine: Machine {
                mailbox,
                gids,
                lease: None,
                timer: None,
                console: false,
            },
            loaded: None,
        })
    }

    /// Works for good.
    pub fn work(mut self) -> ! {
        // SAFETY: the timer line only ends `idle` or a stay in the guest.
        unsafe { csr_exchange!(ECFG, Interrupt::TI.bit(), Interrupt::TI.bit()) };
        loop {
            if self.mailbox.attention.swap(false, Ordering::SeqCst) {
                self.admit();
            }
            if core::mem::take(&mut self.machine.console) {
                start::console_interrupt(&self.machine);
            }
            let now = cpu::ticks();
            self.wake(now);
            match self.scheduler.pick() {
                Some(slot) => self.run(slot, now),
                None => self.sleep(now),
            }
        }
    }

    fn admit(&mut self) {
        for vcpu in self.mailbox.new.lock().drain(..) {
            vcpu.steal.ready(cpu::ticks());
            let free = self.slots.iter().position(Option::is_none);
            let slot = free.unwrap_or(self.slots.len());
            match self.slots.get_mut(slot) {
                Some(place) => *place = Some(vcpu),
                None => self.slots.push(Some(vcpu)),
            }
            self.scheduler.admit(slot);
        }
    }

    /// Makes those ready that were posted to or whose timer has expired.
    fn wake(&mut self, now: u64) {
        let slots = &self.slots;
        self.scheduler.wake(now, |slot, late| {
            let Some(Some(vcpu)) = slots.get(slot) else {
                return false;
            };
            if late {
                vcpu.wake_up();
            }
            let wakes = late || !vcpu.shared().postbox.asleep();
            if wakes {
                vcpu.steal.ready(now);
            }
            wakes
        });
    }

    fn run(&mut self, slot: Slot, now: u64) {
        self.machine.set_timer(self.scheduler.next_event(now), now);
        if self.loaded != Some(slot) {
            self.switch(slot, now);
        }
        let Some(Some(vcpu)) = self.slots.get_mut(slot) else {
            return;
        };
        let alone = self.scheduler.alone();
        loop {
            world_switch::arm();
            let resume = run(vcpu, &mut self.machine);
            if resume == Resume::Stop {
                return self.remove(slot);
            }
            let asleep = alone && resume == Resume::Yield(Yield::Sleep);
            if asleep {
                poll(vcpu, &self.machine);
            }
            match sleeps(vcpu, resume, &self.machine) {
                Some(deadline) if asleep && self.machine.nap(vcpu, deadline) => {}
                Some(deadline) => return self.scheduler.sleep(slot, deadline),
                None if asleep => {}
                None => return self.scheduler.ready(slot),
            }
        }
    }

    /// Takes the loaded vCPU off, and loads the one in `slot`.
    fn switch(&mut self, slot: Slot, now: u64) {
        // SAFETY: used for the steal-time records of vCPUs, in their RAM.
        let mut memory = unsafe { Cached::new() };
        let old = self.loaded.and_then(|slot| self.slots.get(slot)?.as_ref());
        if let Some(old) = old.filter(|old| !old.shared().postbox.asleep()) {
            old.steal.preempted(now, &mut memory);
        }
        self.put();
        if let Some(Some(vcpu)) = self.slots.get_mut(slot) {
            let per_second = cpu::ticks_per_second;
            let stolen = vcpu.steal.scheduled_in(now, per_second, &mut memory);
            vcpu.shared().stats.stolen.add(stolen);
            self.machine.load(vcpu);
            self.loaded = Some(slot);
        }
    }

    fn put(&mut self) {
        let old = self.loaded.take();
        if let Some(Some(vcpu)) = old.and_then(|slot| self.slots.get_mut(slot)) {
            self.machine.put(vcpu);
        }
    }

    fn remove(&mut self, slot: Slot) {
        if self.loaded == Some(slot) {
            self.put();
        }
        if let Some(vcpu) = self.slots.get_mut(slot).and_then(Option::take) {
            crate::launch::retire(vcpu);
        }
    }

    /// Sleeps until an interrupt.
    fn sleep(&mut self, now: u64) {
        self.machine.set_timer(self.scheduler.next_event(now), now);
        cpu::idle();
        let _ = self.machine.take_interrupts(csr_read!(ESTAT));
    }
}

/// Looks for a while whether the loaded vCPU, which is idle, has to do again:
/// nobody needs to wake the CPU meanwhile.
fn poll(vcpu: &Vcpu, machine: &Machine) {
    if vcpu.power != Power::On {
        return;
    }
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

/// Whether the loaded vCPU that has given its CPU back sleeps, and until
/// when.
fn sleeps(vcpu: &Vcpu, resume: Resume, machine: &Machine) -> Option<Option<u64>> {
    match resume {
        Resume::Yield(Yield::Sleep) => until(vcpu, machine),
        Resume::Yield(Yield::Paused) => vcpu.go_to_pause().then_some(None),
        Resume::Guest | Resume::Yield(Yield::Preempted) | Resume::Stop => None,
    }
}

/// Lets the loaded vCPU sleep; until when, `None` where it may not. The
/// timer is read before the last look at what is pending: it may expire
/// between the look that led here and its reading.
fn until(vcpu: &Vcpu, machine: &Machine) -> Option<Option<u64>> {
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
