//! What the steps of a part work with that runs VMs on the hypervisor.

use anyhow::Result;

use super::Options;
use crate::context::Context;
use crate::guest::images::Image;
use crate::guest::job::Job;
use crate::hypervisor::Hypervisor;
use crate::qemu::{Qemu, Timing};
use crate::vm::{Files, LinuxVm};

/// It.
pub struct Rig<'a> {
    /// Where things are.
    pub cx: &'a Context,
    /// The hypervisor, with the test guests' program.
    pub hypervisor: Hypervisor,
    /// How the part is to run.
    pub options: &'a Options,
}

impl<'a> Rig<'a> {
    /// Builds the hypervisor and the test guests.
    ///
    /// # Errors
    /// One of them doesn't compile.
    pub fn new(cx: &'a Context, options: &'a Options) -> Result<Self> {
        let hypervisor = Hypervisor::build(cx)?;
        Ok(Self {
            cx,
            hypervisor,
            options,
        })
    }

    /// The first seed of deterministic runs.
    pub fn seed(&self) -> u64 {
        self.options.seed.unwrap_or(1)
    }

    /// Deterministic time, from the first seed.
    pub fn timing(&self) -> Timing {
        Timing::Deterministic { seed: self.seed() }
    }

    /// The same, where an instruction takes 2 to the power of `shift` nanoseconds.
    pub fn slow(&self, shift: u8) -> Timing {
        let seed = self.seed();
        Timing::Slow { seed, shift }
    }

    /// The machine of `cpus` CPUs that runs `vms`, with Debian's kernel, `image`, and `job`
    /// where there is one. It is to be started before another one is made.
    ///
    /// # Errors
    /// A VM is at fault, or a file can't be written.
    pub fn linux(
        &self,
        image: Image,
        job: Option<&Job>,
        vms: &[LinuxVm],
        cpus: u32,
        timing: Timing,
    ) -> Result<Qemu> {
        let files = Files::new(self.cx, image, job)?;
        files.machine(self.cx, &self.hypervisor, vms, cpus, timing)
    }
}
