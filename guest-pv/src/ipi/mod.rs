//! Inter-processor interrupts: paravirtual where they are offered, native
//! elsewhere.
//!
//! A paravirtual IPI is a bit in the target's message word
//! ([`crate::cpu::Cpu`]) and, if that word was zero, SWI0 by a hypercall:
//! targets whose physical ids lie within 128 of each other share one. The
//! receiver acknowledges without leaving the guest. A native IPI is a write of
//! IPI_SEND for each target, and a read and a write of IOCSR to acknowledge.
//!
//! A CPU is always started natively, so both kinds must be handled:
//!
//! | interrupt | ESTAT, ECFG | handler |
//! | --- | --- | --- |
//! | SWI0 | bit 0 | [`Ipi::handle_swi0`] |
//! | IPI | bit 12 | [`Ipi::handle_ipi`] |
//!
//! If the hypervisor stops offering the call, after a migration to a host
//! that doesn't have it, what it refuses goes out natively, with the message
//! words set: [`Ipi::handle_ipi`] looks there too, and nothing is lost.
//!
//! Source: Linux, kernel/paravirt.c and kernel/smp.c.

mod action;
mod window;

pub use action::{Action, Actions};
pub use window::Window;

use crate::abi::cpucfg::PvFeatures;
use crate::abi::iocsr::{
    IPI_CLEAR, IPI_ENABLE, IPI_SEND, IPI_STATUS, MAIL_SEND, SEND_BLOCKING, ipi_send, mail_send,
};
use crate::cpu::{Cpu, PhysicalId};
use crate::cpu_set::CpuSet;
use crate::machine::Machine;
use crate::{call, detect};
use core::fmt;

/// The CPU of this index isn't there: the index is too large, or its physical
/// id was never set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoSuchCpu(pub usize);

impl fmt::Display for NoSuchCpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "there is no CPU {}", self.0)
    }
}

impl core::error::Error for NoSuchCpu {}

/// IPIs among the CPUs of a kernel.
#[derive(Debug)]
pub struct Ipi<'a, M> {
    machine: M,
    cpus: &'a [Cpu],
    paravirtual: bool,
}

impl<'a, M: Machine> Ipi<'a, M> {
    /// IPIs among `cpus`, of the kind that the machine offers.
    #[must_use]
    pub fn detect(machine: M, cpus: &'a [Cpu]) -> Self {
        let features = detect::features(&machine);
        Self::new(machine, features, cpus)
    }

    /// IPIs among `cpus`, paravirtual if `features`, from
    /// [`detect::features`], has them; a kernel may leave that bit out to
    /// have native ones.
    #[must_use]
    pub const fn new(machine: M, features: PvFeatures, cpus: &'a [Cpu]) -> Self {
        Self {
            machine,
            cpus,
            paravirtual: features.contains(PvFeatures::IPI),
        }
    }

    /// Whether IPIs are paravirtual.
    #[must_use]
    pub const fn is_paravirtual(&self) -> bool {
        self.paravirtual
    }

    /// Enables native IPIs on this CPU; each CPU does that once, before it
    /// lets the interrupts through in ECFG. The IPI that started it, if any,
    /// is pending then: the first [`Ipi::handle_ipi`] returns it.
    pub fn enable(&self) {
        // SAFETY: lets interrupts of this CPU through.
        unsafe { self.machine.iocsr_write32(IPI_ENABLE, u32::MAX) };
    }

    /// Wants `action` of CPU `cpu`, which may be this one.
    ///
    /// # Errors
    /// There is no such CPU: nothing is sent.
    #[inline]
    pub fn send_ipi_single(&self, cpu: usize, action: Action) -> Result<(), NoSuchCpu> {
        if let Some(id) = self.target(cpu, action)? {
            self.interrupt(Window::new(id), action);
        }
        Ok(())
    }

    /// Wants `action` of every CPU of `cpus`, which may have this one.
    ///
    /// # Errors
    /// The first CPU that isn't there; all others get their IPI.
    pub fn send_ipi_mask(&self, cpus: &CpuSet, action: Action) -> Result<(), NoSuchCpu> {
        let (mut open, mut result) = (None::<Window>, Ok(()));
        for cpu in cpus {
            let id = match self.target(cpu, action) {
                Ok(Some(id)) => id,
                Ok(None) => continue,
                Err(error) => {
                    result = result.and(Err(error));
                    continue;
                }
            };
            if open.as_mut().is_none_or(|window| !window.add(id))
                && let Some(full) = open.replace(Window::new(id))
            {
                self.interrupt(full, action);
            }
        }
        if let Some(last) = open {
            self.interrupt(last, action);
        }
        result
    }

    /// Starts CPU `cpu` at `entry`, a physical address, in direct addressing.
    ///
    /// # Errors
    /// There is no such CPU.
    ///
    /// # Safety
    /// The CPU hasn't been started, and code that is sound to run there lies
    /// at `entry`.
    pub unsafe fn boot(&self, cpu: usize, entry: u64) -> Result<(), NoSuchCpu> {
        let id = self.find(cpu)?.1.number();
        // The high half first: whoever polls the mailbox sees a whole entry.
        for (half, data) in [(1, entry >> 32), (0, entry)] {
            let mail = mail_send(id, half, data as u32) | u64::from(SEND_BLOCKING);
            // SAFETY: the mailbox of a CPU that waits for it.
            unsafe { self.machine.iocsr_write64(MAIL_SEND, mail) };
        }
        self.send_native(id, Action::BOOT);
        Ok(())
    }

    /// The handler of SWI0, on CPU `cpu`: what is wanted of it. May be
    /// nothing: the interrupt of an action that an earlier one brought along.
    #[inline]
    pub fn handle_swi0(&self, cpu: usize) -> Actions {
        // The order is the protocol: see `crate::cpu`.
        self.machine.clear_swi0();
        self.cpus.get(cpu).map_or(Actions::NONE, Cpu::take)
    }

    /// The handler of the native IPI, on CPU `cpu`: what is wanted of it,
    /// [`Action::BOOT`] after its start.
    pub fn handle_ipi(&self, cpu: usize) -> Actions {
        let vectors = self.machine.iocsr_read32(IPI_STATUS);
        // SAFETY: clears interrupts of this CPU.
        unsafe { self.machine.iocsr_write32(IPI_CLEAR, vectors) };
        let wanted = self.cpus.get(cpu).map_or(Actions::NONE, Cpu::take);
        Actions::from_bits(vectors).or(wanted)
    }

    /// The CPU `cpu` and its id.
    fn find(&self, cpu: usize) -> Result<(&'a Cpu, PhysicalId), NoSuchCpu> {
        let found = self.cpus.get(cpu).ok_or(NoSuchCpu(cpu))?;
        Ok((found, found.id().ok_or(NoSuchCpu(cpu))?))
    }

    /// Notes that `action` is wanted of `cpu`; its id, if it must be
    /// interrupted for that.
    #[inline]
    fn target(&self, cpu: usize, action: Action) -> Result<Option<PhysicalId>, NoSuchCpu> {
        let (cpu, id) = self.find(cpu)?;
        // A native IPI has its own memory of what is wanted: the vector.
        let interrupts = !self.by_call(action) || cpu.want(action);
        Ok(interrupts.then_some(id))
    }

    /// Whether `action` goes through the hypercall.
    const fn by_call(&self, action: Action) -> bool {
        self.paravirtual && action.number() != Action::BOOT.number()
    }

    /// Interrupts every CPU of `window`.
    #[inline]
    fn interrupt(&self, window: Window, action: Action) {
        let done = self.by_call(action)
            && call::send_ipi(&self.machine, window.set(), window.base().into()).is_ok();
        if !done {
            window
                .ids()
                .for_each(|id| self.send_native(id.number(), action));
        }
    }

    fn send_native(&self, id: u32, action: Action) {
        let send = ipi_send(id, action.number()) | SEND_BLOCKING;
        // SAFETY: interrupts a CPU whose handlers are sound at any time; one
        // that waits to be started looks for an entry, which only `boot` sets.
        unsafe { self.machine.iocsr_write32(IPI_SEND, send) };
    }
}
