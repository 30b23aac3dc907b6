//! What others must know of a CPU to interrupt it: its physical id, and a
//! word with what they want of it.
//!
//! The word is what makes the paravirtual IPI cheap. Whoever finds it zero
//! must interrupt the CPU; whoever finds it set need not, for an interrupt
//! is on its way and its handler will see both bits. So an interrupt that got
//! lost, or one that was cleared after the word had been read, would silence
//! the CPU for good: the handler clears SWI0 **first** and exchanges the word
//! afterwards.
//!
//! Source of the protocol: Linux, kernel/paravirt.c (`pv_send_ipi_single`,
//! `pv_ipi_interrupt`).

use crate::ipi::{Action, Actions};
use crate::sync::{AtomicU32, Ordering};

/// The id of a CPU as the machine knows it: what CSR.CPUID reads, what
/// IPI_SEND takes. It is no index: ids need not be dense, nor in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PhysicalId(u16);

impl PhysicalId {
    /// The largest: IPI_SEND has 10 bits for it.
    pub const MAX: Self = Self(1023);

    /// `id`, if it isn't above [`PhysicalId::MAX`].
    #[must_use]
    pub const fn new(id: u32) -> Option<Self> {
        if id <= Self::MAX.0 as u32 {
            Some(Self(id as u16))
        } else {
            None
        }
    }

    /// The number.
    #[must_use]
    pub const fn number(self) -> u32 {
        self.0 as u32
    }
}

/// One CPU. Its words have a cache line (64 bytes on LA464) of their own:
/// two CPUs that are interrupted at once don't take it from each other.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Cpu {
    message: AtomicU32,
    /// Its physical id, or [`NO_ID`].
    id: AtomicU32,
}

/// A CPU that isn't there (yet).
const NO_ID: u32 = u32::MAX;

impl Cpu {
    /// A CPU that isn't there yet: nobody can send to it before
    /// [`Cpu::set_id`].
    #[must_use]
    #[cfg(not(loom))]
    pub const fn new() -> Self {
        Self {
            message: AtomicU32::new(0),
            id: AtomicU32::new(NO_ID),
        }
    }

    /// A CPU that isn't there yet.
    #[must_use]
    #[cfg(loom)]
    pub fn new() -> Self {
        Self {
            message: AtomicU32::new(0),
            id: AtomicU32::new(NO_ID),
        }
    }

    /// The CPU has this physical id. To be called before anyone sends to it.
    pub fn set_id(&self, id: PhysicalId) {
        self.id.store(id.number(), Ordering::Release);
    }

    /// Its physical id, once it is known.
    #[must_use]
    pub fn id(&self) -> Option<PhysicalId> {
        PhysicalId::new(self.id.load(Ordering::Acquire))
    }

    /// What is wanted of it and was not handled yet, for a look only.
    pub fn wanted(&self) -> Actions {
        Actions::from_bits(self.message.load(Ordering::Relaxed))
    }

    /// Sender: wants `action`. Whether the CPU must be interrupted: false
    /// where an interrupt is on its way already.
    pub(crate) fn want(&self, action: Action) -> bool {
        // Release: who handles the action sees what was written before it.
        // Acquire: a word found zero was exchanged after SWI0 was cleared, so
        // the interrupt that follows here isn't the one that was cleared.
        self.message.fetch_or(action.bit(), Ordering::AcqRel) == 0
    }

    /// Receiver, after it has cleared SWI0: takes all that is wanted.
    pub(crate) fn take(&self) -> Actions {
        Actions::from_bits(self.message.swap(0, Ordering::AcqRel))
    }
}

impl Default for Cpu {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<Cpu>() == 64 && align_of::<Cpu>() == 64);

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn ids_have_ten_bits() {
        assert_eq!(PhysicalId::new(1023), Some(PhysicalId::MAX));
        assert_eq!(PhysicalId::new(1024), None);
        assert_eq!(PhysicalId::new(u32::MAX), None);
    }

    #[test]
    fn a_cpu_is_there_once_it_has_an_id() {
        let cpu = Cpu::new();
        assert_eq!(cpu.id(), None);
        let id = PhysicalId::new(0).unwrap();
        cpu.set_id(id);
        assert_eq!(cpu.id(), Some(id));
    }

    #[test]
    fn only_the_first_wish_interrupts() {
        let (cpu, one, two) = (Cpu::new(), Action::new(1).unwrap(), Action::new(2).unwrap());
        assert!(cpu.want(one));
        assert!(!cpu.want(two) && !cpu.want(one));
        assert_eq!(cpu.wanted(), Actions::from_bits(6));
        assert_eq!(cpu.take(), Actions::from_bits(6));
        assert_eq!(cpu.take(), Actions::NONE);
        assert!(cpu.want(two));
    }
}
