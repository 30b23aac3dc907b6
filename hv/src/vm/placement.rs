//! Which of the machine's CPUs runs a vCPU, and which one is to.
//!
//! Whoever wants a vCPU elsewhere leaves a note and posts
//! [`Posts::CONTROL`]. The CPU that has the vCPU reads the note before it
//! enters the guest, takes the vCPU off, registers and all, and hands it on;
//! nobody waits for that. A later note replaces an earlier one.

use super::{Notifier, VcpuShared, Vm};
use crate::vcpu::postbox::Posts;
use core::sync::atomic::{AtomicU32, Ordering};

/// Where a vCPU is, and where it is wanted: physical ids of CPUs.
#[derive(Debug)]
pub struct Placement {
    home: AtomicU32,
    wanted: AtomicU32,
}

impl Placement {
    /// It begins on `cpu`.
    #[must_use]
    pub const fn new(cpu: u32) -> Self {
        Self {
            home: AtomicU32::new(cpu),
            wanted: AtomicU32::new(cpu),
        }
    }

    /// The CPU that has it, or had it a moment ago.
    #[must_use]
    pub fn home(&self) -> u32 {
        self.home.load(Ordering::Relaxed)
    }

    /// The CPU that it is to go to, `None` where it is there.
    #[must_use]
    pub fn destination(&self) -> Option<u32> {
        let wanted = self.wanted.load(Ordering::SeqCst);
        (wanted != self.home()).then_some(wanted)
    }

    /// It is handed to `cpu`, by the CPU that has it.
    pub fn set_home(&self, cpu: u32) {
        self.home.store(cpu, Ordering::Relaxed);
    }
}

/// Why a vCPU can't be moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MoveError {
    /// No vCPU has this physical id.
    NoVcpu,
    /// The VM may not run on that CPU.
    NotAllowed,
}

impl core::fmt::Display for MoveError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::NoVcpu => "it has no vCPU with this id",
            Self::NotAllowed => "it may not run on that CPU",
        })
    }
}

impl Vm {
    /// Lets the vCPU with physical id `id` go on on the machine's CPU `cpu`,
    /// soon.
    ///
    /// # Errors
    /// See [`MoveError`].
    pub fn move_vcpu(&self, id: u64, cpu: u32, notifier: &impl Notifier) -> Result<(), MoveError> {
        let vcpu: &VcpuShared = self.by_id(id).ok_or(MoveError::NoVcpu)?;
        if !self.cpus.contains(&cpu) {
            return Err(MoveError::NotAllowed);
        }
        vcpu.placement.wanted.store(cpu, Ordering::SeqCst);
        vcpu.post(Posts::CONTROL, notifier);
        Ok(())
    }

    /// Physical ids of the machine's CPUs that its vCPUs may run on.
    #[must_use]
    pub fn cpus(&self) -> &[u32] {
        &self.cpus
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_note_counts_until_the_vcpu_is_there() {
        let placement = Placement::new(3);
        assert_eq!((placement.home(), placement.destination()), (3, None));
        placement.wanted.store(1, Ordering::SeqCst);
        placement.wanted.store(2, Ordering::SeqCst);
        assert_eq!((placement.home(), placement.destination()), (3, Some(2)));
        placement.set_home(2);
        assert_eq!((placement.home(), placement.destination()), (2, None));
    }
}
