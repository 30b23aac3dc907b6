//! Why a vCPU left the guest, from the registers that say so.
//!
//! A pure function of three values: what the hardware reports becomes a
//! [`VmExit`] with its operands taken apart.
//!
//! Source: the exit handlers' table of Linux 7.2, arch/loongarch/kvm/exit.c.

use crate::isa::exception::Ecode;
use crate::isa::insn::{self, Insn};
use crate::mm::addr::Gpa;

/// The host's registers after an exit, less ERA, which is the guest's pc.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct ExitInfo {
    /// ESTAT: exception code and pending interrupts of the host.
    pub estat: u64,
    /// BADV: for a second-stage fault, the guest physical address.
    pub badv: u64,
    /// BADI: the instruction that exited; bits above 31 mean nothing.
    pub badi: u64,
}

/// What an access wanted to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessKind {
    /// A load.
    Load,
    /// A store.
    Store,
    /// An instruction fetch.
    Fetch,
}

/// A unit that the host keeps off until the guest uses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Floating point.
    Float,
    /// 128-bit vectors.
    Lsx,
    /// 256-bit vectors.
    Lasx,
    /// Binary translation.
    Lbt,
}

/// Why a vCPU left the guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VmExit {
    /// An interrupt of the physical CPU.
    HostInterrupt,
    /// `hvcl` with this code.
    Hypercall(u16),
    /// A sensitive instruction: `cpucfg`, a CSR outside the guest's bank,
    /// IOCSR, `idle`, `cacop`.
    Sensitive(Insn),
    /// A second-stage fault.
    Memory {
        /// The guest physical address.
        gpa: Gpa,
        /// What was tried.
        kind: AccessKind,
        /// The instruction word.
        word: u32,
    },
    /// The guest's first use of a unit since it was loaded.
    UnitDisabled(Unit),
    /// Nothing that should come: the guest gets an exception for it.
    Unexpected,
}

impl ExitInfo {
    /// The exception code, 0 to 63.
    #[inline(always)]
    #[must_use]
    pub const fn ecode(&self) -> u64 {
        self.estat >> 16 & 0x3f
    }

    /// The instruction word.
    #[inline(always)]
    #[must_use]
    pub const fn word(&self) -> u32 {
        self.badi as u32
    }

    /// The code of an `hvcl`, after [`Ecode::Hvc`].
    #[inline(always)]
    #[must_use]
    pub const fn hypercall(&self) -> u16 {
        (self.badi & 0x7fff) as u16
    }
}

/// Takes an exit apart.
#[must_use]
pub fn decode(info: &ExitInfo) -> VmExit {
    let memory = |kind| VmExit::Memory {
        gpa: Gpa::new(info.badv),
        kind,
        word: info.word(),
    };
    let Some(ecode) = Ecode::new(info.ecode()) else {
        return VmExit::Unexpected;
    };
    match ecode {
        Ecode::Int => VmExit::HostInterrupt,
        Ecode::Gspr => match insn::decode_sensitive(info.word()) {
            None | Some(Insn::Hvcl { .. }) => VmExit::Unexpected,
            Some(insn) => VmExit::Sensitive(insn),
        },
        Ecode::Hvc => VmExit::Hypercall(info.hypercall()),
        Ecode::Pil | Ecode::Pnr | Ecode::Ppi => memory(AccessKind::Load),
        Ecode::Pis | Ecode::Pme => memory(AccessKind::Store),
        Ecode::Pif | Ecode::Pnx => memory(AccessKind::Fetch),
        Ecode::Fpd => VmExit::UnitDisabled(Unit::Float),
        Ecode::Sxd => VmExit::UnitDisabled(Unit::Lsx),
        Ecode::Asxd => VmExit::UnitDisabled(Unit::Lasx),
        Ecode::Btd => VmExit::UnitDisabled(Unit::Lbt),
        _ => VmExit::Unexpected,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::isa::gpr::Gpr;

    fn exit(ecode: u64, badi: u64) -> VmExit {
        decode(&ExitInfo {
            estat: ecode << 16,
            badv: 0x1fe0_01e0,
            badi,
        })
    }

    fn memory(kind: AccessKind, word: u32) -> VmExit {
        let gpa = Gpa::new(0x1fe0_01e0);
        VmExit::Memory { gpa, kind, word }
    }

    #[test]
    fn codes_of_silicon_are_told_apart() {
        assert_eq!(exit(0, 0), VmExit::HostInterrupt);
        assert_eq!(exit(0x17, 0x002b_8100), VmExit::Hypercall(0x100));
        assert_eq!(exit(0x17, 0x002b_ffff), VmExit::Hypercall(0x7fff));
        for (ecode, kind) in [
            (1, AccessKind::Load),
            (2, AccessKind::Store),
            (3, AccessKind::Fetch),
            (4, AccessKind::Store),
            (5, AccessKind::Load),
            (6, AccessKind::Fetch),
            (7, AccessKind::Load),
        ] {
            assert_eq!(exit(ecode, 0x28c0_0085), memory(kind, 0x28c0_0085));
        }
        for (ecode, unit) in [
            (15, Unit::Float),
            (16, Unit::Lsx),
            (17, Unit::Lasx),
            (20, Unit::Lbt),
        ] {
            assert_eq!(exit(ecode, 0), VmExit::UnitDisabled(unit));
        }
    }

    #[test]
    fn sensitive_instructions_come_with_their_operands() {
        let (rd, rj) = (Gpr::from_field(5), Gpr::from_field(4));
        let cpucfg = Insn::Cpucfg { rd, rj };
        assert_eq!(exit(0x16, 0x0000_6c85), VmExit::Sensitive(cpucfg));
        assert_eq!(exit(0x16, 0x0648_8000), VmExit::Sensitive(Insn::Idle));
        // What stands above the word is not part of it.
        assert_eq!(
            exit(0x16, 0xffff_ffff_0648_8000),
            VmExit::Sensitive(Insn::Idle)
        );
    }

    #[test]
    fn everything_else_is_unexpected() {
        for ecode in [8, 9, 10, 11, 12, 13, 14, 18, 19, 21, 24, 25, 63] {
            assert_eq!(exit(ecode, 0), VmExit::Unexpected, "{ecode}");
        }
        // A sensitive exit with an instruction that isn't one.
        for word in [0, 0xffff_ffff, 0x28c0_0085, 0x29c0_0085, 0x002b_8100] {
            assert_eq!(exit(0x16, word), VmExit::Unexpected, "{word:#x}");
        }
    }

    #[test]
    fn pending_lines_and_sub_codes_do_not_matter() {
        let info = ExitInfo {
            estat: 0x7fc0_1fff | 0x17 << 16,
            badv: 0,
            badi: 0x002b_8100,
        };
        assert_eq!(decode(&info), VmExit::Hypercall(0x100));
    }
}
