//! Host code under the world switch: what it traps on comes back as a value.
//!
//! The same switch without PVM: `ertn` stays in host mode, at the level and
//! with the interrupt enable asked for, and the next exception returns.

use super::switch::{Exit, World};
use super::{PIE, Program};
use crate::arch::code;
use crate::{csrrd, csrxchg};
use loongarch_isa::csr::DMW;
use loongarch_isa::gpr::Gpr;

/// Runs code in host mode until its first exception.
pub struct HostRun {
    world: World,
}

impl HostRun {
    /// At level 0 with interrupts off.
    pub fn new() -> HostRun {
        HostRun {
            world: World::new(),
        }
    }

    /// At privilege level `plv` (0 to 3).
    pub fn level(mut self, plv: u64) -> HostRun {
        self.world.prmd = self.world.prmd & !3 | plv;
        self
    }

    /// With interrupts on.
    pub fn interruptible(mut self) -> HostRun {
        self.world.prmd |= PIE;
        self
    }

    /// With this value in a register.
    pub fn with(mut self, register: Gpr, value: u64) -> HostRun {
        self.world.gprs.set(register, value);
        self
    }

    /// Runs `words`, written to the start of this CPU's code page.
    pub fn words(self, words: &[u32]) -> HostExit {
        let pc = code::write(words);
        self.at(pc)
    }

    /// Runs a program.
    pub fn program(self, program: Program) -> HostExit {
        self.at(program as *const () as u64)
    }

    /// Runs from `pc`. The cached window is open to level 3 meanwhile.
    pub fn at(mut self, pc: u64) -> HostExit {
        let user = DMW::PLV3::SET.value;
        csrxchg!(dmw(1), user, user);
        self.world.pc = pc;
        self.world.gtlbc = csrrd!(GTLBC);
        self.world.pgdl = csrrd!(PGDL);
        self.world.enter();
        csrxchg!(dmw(1), 0, user);
        HostExit { world: self.world }
    }
}

/// How it ended.
pub struct HostExit {
    world: World,
}

impl HostExit {
    /// The exception.
    pub fn exit(&self) -> Exit {
        self.world.exit
    }

    /// The value of a register at the exception.
    pub fn get(&self, register: Gpr) -> u64 {
        self.world.gprs.get(register)
    }
}
