//! A physical CPU at work: it picks a vCPU, loads it, runs it, and sleeps
//! when there is none to run.
//!
//! Each CPU owns its vCPUs and its scheduler alone. Others reach it by its
//! inbox and by a kick; the inbox's lock is never held across an entry.

use crate::arch::units::{self, Widest};
use crate::arch::{bank, cpu, tlb, trap, world_switch};
use crate::dev::uart::Sink;
use crate::isa::csr::{GSTAT, GTLBC, TCFG, TICLR};
use crate::isa::exception::Interrupt;
use crate::mm::addr::{Gpa, Hpa};
use crate::mm::gid::{GidPool, Lease};
use crate::mm::phys::{Cached, PhysMem};
use crate::platform::eiointc;
use crate::platform::ipi::{self, Vector};
use crate::sched::{Scheduler, Slot};
use crate::start;
use crate::vcpu::exception::{Exception, ExceptionState, inject};
use crate::vcpu::exit::ExitInfo;
use crate::vcpu::handle::Hardware;
use crate::vcpu::interrupt::Apply;
use crate::vcpu::postbox::Notify;
use crate::vcpu::run::{Loaded, run};
use crate::vcpu::timer::SavedTimer;
use crate::vcpu::{Power, Resume, Vcpu, Yield};
use crate::vm::{Notifier, Vm};
use crate::{csr_exchange, csr_read, csr_write, gcsr_read, gcsr_write};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, Ordering, fence};
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

/// The CPU's hardware, for the vCPU that is loaded.
#[derive(Debug)]
struct Machine {
    mailbox: &'static Mailbox,
    gids: GidPool,
    lease: Option<Lease>,
    timer: Option<u64>,
    /// The console has received something.
    console: bool,
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
                start::console_input(&self.machine);
            }
            self.wake();
            match self.scheduler.pick() {
                Some(slot) => self.run(slot),
                None => self.sleep(),
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
    fn wake(&mut self) {
        let (slots, now) = (&self.slots, cpu::ticks());
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

    fn run(&mut self, slot: Slot) {
        let now = cpu::ticks();
        self.machine.set_timer(self.scheduler.next_event(now), now);
        if self.loaded != Some(slot) {
            self.switch(slot);
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
                None => {
                    vcpu.steal.ready(cpu::ticks());
                    return self.scheduler.ready(slot);
                }
            }
        }
    }

    /// Takes the loaded vCPU off, and loads the one in `slot`.
    fn switch(&mut self, slot: Slot) {
        // SAFETY: used for the steal-time records of vCPUs, in their RAM.
        let mut memory = unsafe { Cached::new() };
        let old = self.loaded.and_then(|slot| self.slots.get(slot)?.as_ref());
        if let Some(old) = old.filter(|old| !old.shared().postbox.asleep()) {
            old.steal.preempted(&mut memory);
        }
        self.put();
        if let Some(Some(vcpu)) = self.slots.get_mut(slot) {
            let now = cpu::ticks();
            vcpu.steal
                .scheduled_in(now, cpu::ticks_per_second, &mut memory);
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
    fn sleep(&mut self) {
        let now = cpu::ticks();
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

impl Machine {
    /// Lets the timer of this CPU fire at `event`, or not at all.
    fn set_timer(&mut self, event: Option<u64>, now: u64) {
        if self.timer == event {
            return;
        }
        self.timer = event;
        let tcfg = event.map_or(0, |at| {
            // In steps of four ticks, and never 0.
            let ticks = at.saturating_sub(now).next_multiple_of(4).max(4);
            TCFG::EN::SET.value | ticks & TCFG::INITVAL.val(u64::MAX >> 18).value
        });
        // SAFETY: the timer only raises a line that is looked at.
        unsafe { csr_write!(TCFG, tcfg) };
    }

    /// Sleeps until `vcpu`, which sleeps alone on this CPU, may go on, at
    /// `deadline` (in ticks) at the latest: no queue is touched. False where
    /// there is something else to look at first.
    fn nap(&mut self, vcpu: &Vcpu, deadline: Option<u64>) -> bool {
        loop {
            if !vcpu.shared().postbox.asleep() {
                return true;
            }
            let now = cpu::ticks();
            if deadline.is_some_and(|deadline| deadline <= now) {
                vcpu.wake_up();
                return true;
            }
            self.set_timer(deadline, now);
            cpu::idle();
            let look = self.take_interrupts(csr_read!(ESTAT));
            if look && (self.console || self.mailbox.attention.load(Ordering::SeqCst)) {
                return false;
            }
        }
    }

    /// Takes the interrupts of `estat`; whether there were any for the
    /// scheduler.
    fn take_interrupts(&mut self, estat: u64) -> bool {
        let mut look = false;
        if estat & Interrupt::TI.bit() != 0 {
            // SAFETY: acknowledges the timer's interrupt.
            unsafe { csr_write!(TICLR, TICLR::CLR::SET.value) };
            self.timer = None;
            look = true;
        }
        if estat & eiointc::LINE.bit() != 0 {
            self.console = true;
            look = true;
        }
        if estat & Interrupt::IPI.bit() != 0 {
            let vectors = ipi::take();
            if vectors & Vector::Halt.bit() != 0 {
                trap::halt();
            }
            // What the vectors tell of is looked at after they are taken.
            fence(Ordering::SeqCst);
            look |= vectors & Vector::Wake.bit() != 0;
        }
        look
    }

    fn load(&mut self, vcpu: &mut Vcpu) {
        if !self.gids.holds(vcpu.lease) {
            let renewal = self.gids.renew();
            if renewal.flush_all {
                tlb::flush_all_guests();
            }
            vcpu.lease = Some(renewal.lease);
        }
        self.lease = vcpu.lease;
        let gid = vcpu.lease.map_or(0, |lease| u64::from(lease.gid.number()));
        // SAFETY: no guest runs; tables and identifier belong together.
        unsafe {
            csr_write!(PGDL, vcpu.root().get());
            csr_exchange!(
                GSTAT,
                GSTAT::GID.val(gid).value,
                GSTAT::GID.mask << GSTAT::GID.shift
            );
            csr_exchange!(
                GTLBC,
                GTLBC::TGID.val(gid).value,
                GTLBC::TGID.mask << GTLBC::TGID.shift
            );
        }
        bank::load(vcpu);
    }

    fn put(&mut self, vcpu: &mut Vcpu) {
        if vcpu.units_loaded {
            let widest = Widest::of(vcpu.vm().cpucfg.units());
            units::save(&mut vcpu.units, widest);
            vcpu.units_loaded = false;
        }
        bank::save(vcpu);
        self.lease = None;
    }
}

impl Notifier for Machine {
    #[inline]
    fn tell(&self, notify: Notify) {
        match notify {
            Notify::Nothing => {}
            // The vCPU that is loaded here: it is looked at before the entry.
            Notify::Kick(id) if id == self.mailbox.id => {}
            Notify::Kick(id) => ipi::send(id, Vector::Kick),
            Notify::Wake(id) => ipi::send(id, Vector::Wake),
        }
    }
}

impl Hardware for Machine {
    #[inline]
    fn privilege(&self) -> u64 {
        gcsr_read!(CRMD) & 3
    }

    #[inline]
    fn pending(&self) -> u64 {
        gcsr_read!(ESTAT) & gcsr_read!(ECFG) & LINES
    }

    fn inject(&mut self, pc: u64, exception: &Exception) -> u64 {
        let before = ExceptionState {
            crmd: gcsr_read!(CRMD),
            prmd: gcsr_read!(PRMD),
            ecfg: gcsr_read!(ECFG),
            estat: 0,
            era: gcsr_read!(ERA),
            badv: gcsr_read!(BADV),
            badi: gcsr_read!(BADI),
            eentry: gcsr_read!(EENTRY),
            pc,
        };
        let after = inject(&before, exception);
        // SAFETY: registers of a guest that isn't running.
        unsafe {
            gcsr_write!(CRMD, after.crmd);
            gcsr_write!(PRMD, after.prmd);
            gcsr_write!(ERA, after.era);
            gcsr_write!(BADV, after.badv);
            gcsr_write!(BADI, after.badi);
        }
        // Not the whole register: an interrupt may come in between.
        bank::set_estat(after.estat, bank::ESTAT_CAUSE);
        after.pc
    }

    #[inline]
    fn apply(&mut self, change: &Apply) {
        if change.estat_mask != 0 {
            bank::set_estat(change.estat, change.estat_mask);
        }
        if change.gintc_mask != 0 {
            bank::set_hardware_lines(change.gintc, change.gintc_mask);
        }
    }

    fn forget(&mut self, gpa: Gpa) {
        if let Some(lease) = self.lease {
            tlb::flush_page(lease.gid, gpa);
        }
    }

    fn clear(&self, hpa: Hpa, bytes: u64) {
        // SAFETY: used for the VM's RAM, which no guest sees yet.
        unsafe { Cached::new() }.zero(hpa, bytes);
    }

    fn load_units(&mut self, vcpu: &mut Vcpu) {
        units::load(&vcpu.units, Widest::of(vcpu.vm().cpucfg.units()));
        vcpu.units_loaded = true;
    }

    #[inline]
    fn host_interrupt(&mut self, estat: u64) -> Resume {
        if self.take_interrupts(estat) {
            Resume::Yield(Yield::Preempted)
        } else {
            Resume::Guest
        }
    }

    #[inline]
    fn ticks(&self) -> u64 {
        cpu::ticks()
    }

    fn console(&self, vm: &Vm, byte: u8) {
        vm.console.send(byte);
    }
}

impl Loaded for Machine {
    fn flush(&mut self, vcpu: &Vcpu) {
        if let Some(lease) = vcpu.lease {
            tlb::flush_gid(lease.gid);
        }
    }

    #[inline(always)]
    fn enter(&mut self, vcpu: &mut Vcpu) -> ExitInfo {
        // SAFETY: `Processor` loaded this vCPU, whose tables lead only to
        // its VM's RAM, which `launch` took from the frame allocator, and
        // armed the entry.
        unsafe { world_switch::enter(&mut vcpu.context) }
    }
}
