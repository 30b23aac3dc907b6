//! The hardware of a physical CPU, for the vCPU that is loaded on it.

use super::{LINES, Mailbox, wait};
use crate::arch::units::{self, Widest};
use crate::arch::{bank, cpu, tlb, trap, world_switch};
use crate::dev::uart::Sink;
use crate::isa::csr::{GSTAT, GTLBC, TCFG, TICLR};
use crate::isa::exception::Interrupt;
use crate::isa::{csr_exchange, csr_write, gcsr_read, gcsr_write};
use crate::mm::addr::{Gpa, Hpa};
use crate::mm::gid::GidPool;
use crate::mm::phys::{Cached, PhysMem};
use crate::platform::eiointc;
use crate::platform::ipi::{self, Vector};
use crate::start;
use crate::vcpu::exception::{Exception, ExceptionState, inject};
use crate::vcpu::exit::ExitInfo;
use crate::vcpu::handle::Hardware;
use crate::vcpu::interrupt::Apply;
use crate::vcpu::postbox::Notify;
use crate::vcpu::run::Loaded;
use crate::vcpu::{Resume, Vcpu, Yield};
use crate::vm::{Notifier, Vm};
use core::sync::atomic::{Ordering, fence};

/// Most ticks that the CPU's timer is set for; then it is set anew.
const LONGEST: u64 = (1 << 40) - 1;

/// The CPU's hardware, for the vCPU that is loaded.
#[derive(Debug)]
pub(super) struct Machine {
    pub(super) mailbox: &'static Mailbox,
    pub(super) gids: GidPool,
    pub(super) timer: Option<u64>,
    /// Ticks between two looks at the console, which this CPU polls; 0 where
    /// it doesn't.
    pub(super) poll: u64,
    /// When it looks next, in ticks: events that come and go don't put it off.
    pub(super) next_poll: u64,
    /// The console has received something.
    pub(super) console: bool,
    /// The loaded vCPU is the only one of this CPU.
    pub(super) alone: bool,
}

impl Machine {
    /// Lets the timer of this CPU fire at `event`, or not at all.
    pub(super) fn set_timer(&mut self, event: Option<u64>, now: u64) {
        if self.timer == event {
            return;
        }
        self.timer = event;
        let event = if self.poll == 0 {
            event
        } else {
            let poll = self.next_poll;
            Some(event.map_or(poll, |event| event.min(poll)))
        };
        let tcfg = event.map_or(0, |at| {
            // In steps of four ticks, and never 0: the next step after it.
            let ticks = (at.saturating_sub(now) & LONGEST | 3) + 1;
            TCFG::EN::SET.value | ticks
        });
        // SAFETY: the timer only raises a line that is looked at.
        unsafe { csr_write!(TCFG, tcfg) };
    }

    /// Looks at the console. Where it is polled the timer is to be set anew, for
    /// the next look, even if nothing else is to come.
    #[cold]
    #[inline(never)]
    pub(super) fn look_at_console(&mut self) {
        self.console = false;
        start::console_interrupt(self);
        // No event: no scheduler asks for tick 0.
        const UNSET: Option<u64> = Some(0);
        if self.poll != 0 {
            self.next_poll = cpu::ticks() + self.poll;
            self.timer = UNSET;
        }
    }

    /// Takes the interrupts of `estat`; whether there were any for the
    /// scheduler.
    pub(super) fn take_interrupts(&mut self, estat: u64) -> bool {
        let mut look = false;
        if estat & Interrupt::TI.bit() != 0 {
            // SAFETY: acknowledges the timer's interrupt.
            unsafe { csr_write!(TICLR, TICLR::CLR::SET.value) };
            self.timer = None;
            self.console |= self.poll != 0;
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

    pub(super) fn load(&mut self, vcpu: &mut Vcpu) {
        if !self.gids.holds(vcpu.lease) {
            let renewal = self.gids.renew();
            if renewal.flush_all {
                tlb::flush_all_guests();
            }
            vcpu.lease = Some(renewal.lease);
        }
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

    pub(super) fn put(&mut self, vcpu: &mut Vcpu) {
        if vcpu.units_loaded {
            let widest = Widest::of(vcpu.vm().cpucfg.units());
            units::save(&mut vcpu.units, widest);
            vcpu.units_loaded = false;
        }
        bank::save(vcpu);
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

    fn forget(&mut self, vcpu: &Vcpu, gpa: Gpa) {
        if let Some(lease) = vcpu.lease {
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
    #[inline(never)]
    fn wait(&mut self, vcpu: &Vcpu) -> bool {
        self.alone && wait::alone(vcpu, self)
    }

    fn flush(&mut self, vcpu: &Vcpu) {
        if let Some(lease) = vcpu.lease {
            tlb::flush_gid(lease.gid);
        }
        bank::forget_linked_load();
    }

    #[inline(always)]
    fn enter(&mut self, vcpu: &mut Vcpu) -> ExitInfo {
        // SAFETY: `Processor` loaded this vCPU, whose tables lead only to
        // its VM's RAM, which `launch` took from the frame allocator, and
        // armed the entry.
        unsafe { world_switch::enter(&mut vcpu.context) }
    }
}
