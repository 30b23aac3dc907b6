//! A physical CPU at work: it picks a vCPU, loads it, runs it, and sleeps
//! when there is none to run.
//!
//! Each CPU owns its vCPUs and its scheduler alone. Others reach it by its
//! inbox and by a kick; the inbox's lock is never held across an entry.

mod machine;
mod wait;

use crate::arch::{cpu, world_switch};
use crate::isa::exception::Interrupt;
use crate::isa::{csr_exchange, csr_read};
use crate::mm::gid::GidPool;
use crate::mm::phys::Cached;
use crate::platform::ipi::{self, Vector};
use crate::sched::{Scheduler, Slot};
use crate::start;
use crate::vcpu::run::run;
use crate::vcpu::{Resume, Vcpu, Yield};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, Ordering};
use machine::Machine;
use spin::Mutex;

/// The interrupt lines of ESTAT and ECFG.
const LINES: u64 = (1 << 13) - 1;

/// Time slices a second.
const SLICES_PER_SECOND: u64 = 200;

/// vCPUs that a CPU has room for at once without taking more memory.
const ROOM: usize = crate::config::MAX_VCPUS;

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
    pub fn new(id: u32) -> Self {
        Self {
            id,
            new: Mutex::new(Vec::with_capacity(ROOM)),
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
    /// The loaded vCPU has given the CPU back though it could go on.
    preempted: bool,
}

impl Processor {
    /// This CPU, with guest identifiers of `gid_bits` bits; `None` where
    /// there are none.
    #[must_use]
    pub fn new(mailbox: &'static Mailbox, gid_bits: u32) -> Option<Self> {
        let gids = GidPool::new(mailbox.id, gid_bits)?;
        Some(Self {
            mailbox,
            slots: Vec::with_capacity(ROOM),
            scheduler: Scheduler::new(cpu::ticks_per_second() / SLICES_PER_SECOND, ROOM),
            machine: Machine {
                mailbox,
                gids,
                timer: None,
                poll: start::console_poll(mailbox.id),
                next_poll: 0,
                // What has come in before now raises no interrupt any more.
                console: start::serves_console(mailbox.id),
                alone: false,
            },
            loaded: None,
            preempted: false,
        })
    }

    /// Works for good.
    pub fn work(mut self) -> ! {
        // SAFETY: the timer line only ends `idle` or a stay in the guest.
        unsafe { csr_exchange!(ECFG, Interrupt::TI.bit(), Interrupt::TI.bit()) };
        world_switch::arm();
        loop {
            if self.mailbox.attention.load(Ordering::Relaxed) {
                self.mailbox.attention.swap(false, Ordering::SeqCst);
                self.admit();
            }
            if self.machine.console {
                self.machine.look_at_console();
            }
            let now = cpu::ticks();
            self.wake(now);
            match self.scheduler.pick(now) {
                Some(slot) => self.run(slot, now),
                None => self.sleep(now),
            }
        }
    }

    fn admit(&mut self) {
        for vcpu in self.mailbox.new.lock().drain(..) {
            let (now, begins) = (cpu::ticks(), vcpu.begins);
            // Until then only a change of its VM's state wakes it.
            let waits = begins > now && vcpu.go_to_pause();
            vcpu.shared().stats.slept.set(now);
            if !waits {
                vcpu.steal.ready(now);
            }
            let free = self.slots.iter().position(Option::is_none);
            let slot = free.unwrap_or(self.slots.len());
            match self.slots.get_mut(slot) {
                Some(place) => *place = Some(vcpu),
                None => self.slots.push(Some(vcpu)),
            }
            self.scheduler.admit(slot, waits.then_some(begins));
        }
        self.machine.alone = self.scheduler.alone();
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
                let stats = &vcpu.shared().stats;
                stats.asleep.add(now.saturating_sub(stats.slept.get()));
                stats.woken.add((!late).into());
            }
            wakes
        });
    }

    fn run(&mut self, slot: Slot, now: u64) {
        self.machine.set_timer(self.scheduler.next_event(), now);
        if self.loaded != Some(slot) {
            self.put(now);
        }
        let Some(vcpu) = at(&mut self.slots, slot) else {
            return;
        };
        if self.loaded.is_none() {
            take_on(vcpu, &mut self.machine, now);
            self.loaded = Some(slot);
        }
        let resume = run(vcpu, &mut self.machine);
        if resume == Resume::Yield(Yield::Preempted) {
            vcpu.leave_guest();
            self.preempted = true;
            return self.scheduler.ready();
        }
        if resume != Resume::Yield(Yield::Sleep) {
            return self.rarely(slot, resume);
        }
        let sleeps = wait::until(vcpu, &self.machine);
        self.preempted = rest(&mut self.scheduler, vcpu, sleeps);
    }

    /// What seldom ends a stay. Not inlined: the registers that it needs
    /// would be saved each time.
    #[cold]
    #[inline(never)]
    fn rarely(&mut self, slot: Slot, resume: Resume) {
        let Some(vcpu) = at(&mut self.slots, slot) else {
            return;
        };
        let sleeps = match resume {
            Resume::Stop => return self.remove(slot),
            Resume::Yield(Yield::Moved) => return self.hand_over(slot),
            Resume::Yield(Yield::Retry) => wait::moment(vcpu, &self.machine),
            Resume::Yield(_) | Resume::Guest => vcpu.go_to_pause().then_some(None),
        };
        self.preempted = rest(&mut self.scheduler, vcpu, sleeps);
    }

    /// Takes the loaded vCPU off, at `now`.
    fn put(&mut self, now: u64) {
        let old = self.loaded.take();
        let Some(old) = old.and_then(|slot| at(&mut self.slots, slot)) else {
            return;
        };
        if self.preempted {
            // SAFETY: used for the vCPU's steal-time record, in its RAM.
            old.steal.preempted(now, &mut unsafe { Cached::new() });
        }
        self.machine.put(old);
    }

    /// Takes the vCPU in `slot`, which has had the CPU until now, off it.
    fn take_off(&mut self, slot: Slot) -> Option<Box<Vcpu>> {
        self.scheduler.leave();
        self.machine.alone = self.scheduler.alone();
        let mut vcpu = self.slots.get_mut(slot).and_then(Option::take)?;
        vcpu.leave_guest();
        if self.loaded == Some(slot) {
            self.loaded = None;
            self.machine.put(&mut vcpu);
        }
        Some(vcpu)
    }

    fn remove(&mut self, slot: Slot) {
        if let Some(vcpu) = self.take_off(slot) {
            crate::launch::retire(vcpu);
        }
    }

    /// Gives the vCPU in `slot` to the CPU that is to have it.
    fn hand_over(&mut self, slot: Slot) {
        let Some(mut vcpu) = self.take_off(slot) else {
            return;
        };
        let wanted = vcpu.shared().placement.destination();
        let to = wanted.and_then(start::mailbox).unwrap_or(self.mailbox);
        vcpu.hand_over(to.id());
        to.give(vcpu);
    }

    /// Sleeps until an interrupt.
    fn sleep(&mut self, now: u64) {
        self.machine.set_timer(self.scheduler.next_event(), now);
        cpu::idle();
        world_switch::arm();
        let _ = self.machine.take_interrupts(csr_read!(ESTAT));
    }
}

fn at(slots: &mut [Option<Box<Vcpu>>], slot: Slot) -> Option<&mut Vcpu> {
    slots.get_mut(slot)?.as_deref_mut()
}

/// Puts a vCPU that waited for it on this CPU, at `now`.
#[inline(always)]
fn take_on(vcpu: &mut Vcpu, machine: &mut Machine, now: u64) {
    // SAFETY: used for the vCPU's steal-time record, in its RAM.
    let mut memory = unsafe { Cached::new() };
    let per_second = cpu::ticks_per_second;
    let stolen = vcpu.steal.scheduled_in(now, per_second, &mut memory);
    vcpu.shared().stats.stolen.add(stolen);
    machine.load(vcpu);
}

/// The vCPU that has the CPU gives it back: it sleeps, until when, or can go
/// on. Whether it can.
#[inline(always)]
fn rest(scheduler: &mut Scheduler, vcpu: &Vcpu, sleeps: Option<Option<u64>>) -> bool {
    if let Some(deadline) = sleeps {
        vcpu.shared().stats.slept.set(cpu::ticks());
        scheduler.sleep(deadline);
    } else {
        scheduler.ready();
    }
    sleeps.is_none()
}
