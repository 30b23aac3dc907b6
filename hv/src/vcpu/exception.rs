//! Exceptions that the hypervisor gives to a guest.
//!
//! What hardware does when an exception is taken, done by hand on the
//! guest's registers: its mode is saved and becomes level 0 with interrupts
//! off, its cause is recorded, and it goes on at its vector.
//!
//! Source: *LoongArch Reference Manual, Volume 1*, section 6.2.3.

use crate::isa::csr::{CRMD, ECFG, ESTAT, PRMD};
use crate::isa::exception::{ADE_FETCH, ADE_MEMORY, Ecode};
use tock_registers::LocalRegisterCopy;

/// An exception to be given to a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exception {
    /// Its code.
    pub ecode: Ecode,
    /// Its sub-code.
    pub esubcode: u64,
    /// The address at fault, where the code has one.
    pub badv: Option<u64>,
    /// The instruction at fault.
    pub badi: u32,
}

impl Exception {
    /// The instruction doesn't exist.
    #[must_use]
    pub const fn no_such_instruction(badi: u32) -> Self {
        Self {
            ecode: Ecode::Ine,
            esubcode: 0,
            badv: None,
            badi,
        }
    }

    /// Nothing can be loaded from or stored to `address`.
    #[must_use]
    pub const fn bad_address(address: u64, badi: u32) -> Self {
        Self {
            ecode: Ecode::Ade,
            esubcode: ADE_MEMORY,
            badv: Some(address),
            badi,
        }
    }

    /// Nothing can be fetched at the guest's own `pc`.
    #[must_use]
    pub const fn bad_fetch(pc: u64, badi: u32) -> Self {
        Self {
            ecode: Ecode::Ade,
            esubcode: ADE_FETCH,
            badv: Some(pc),
            badi,
        }
    }
}

/// The guest's registers that an exception reads and writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExceptionState {
    /// Current mode.
    pub crmd: u64,
    /// Previous mode.
    pub prmd: u64,
    /// Configuration, of which VS counts.
    pub ecfg: u64,
    /// Status: code and sub-code are replaced.
    pub estat: u64,
    /// Return address.
    pub era: u64,
    /// Address at fault.
    pub badv: u64,
    /// Instruction at fault.
    pub badi: u64,
    /// Entry.
    pub eentry: u64,
    /// The guest's pc.
    pub pc: u64,
}

/// The guest's registers after it has taken `exception`.
#[must_use]
pub fn inject(before: &ExceptionState, exception: &Exception) -> ExceptionState {
    let mut crmd = LocalRegisterCopy::<u64, CRMD::Register>::new(before.crmd);
    let mut prmd = LocalRegisterCopy::<u64, PRMD::Register>::new(before.prmd);
    prmd.modify(
        PRMD::PPLV.val(crmd.read(CRMD::PLV))
            + PRMD::PIE.val(crmd.read(CRMD::IE))
            + PRMD::PWE.val(crmd.read(CRMD::WE)),
    );
    crmd.modify(CRMD::PLV.val(0) + CRMD::IE::CLEAR + CRMD::WE::CLEAR);
    let mut estat = LocalRegisterCopy::<u64, ESTAT::Register>::new(before.estat);
    estat.modify(
        ESTAT::ECODE.val(exception.ecode.number()) + ESTAT::ESUBCODE.val(exception.esubcode),
    );
    let ecfg = LocalRegisterCopy::<u64, ECFG::Register>::new(before.ecfg);
    let spacing = match ecfg.read(ECFG::VS) {
        0 => 0,
        vs => 4u64 << vs,
    };
    ExceptionState {
        crmd: crmd.get(),
        prmd: prmd.get(),
        estat: estat.get(),
        era: before.pc,
        badv: exception.badv.unwrap_or(before.badv),
        badi: u64::from(exception.badi),
        pc: before
            .eentry
            .wrapping_add(exception.ecode.number() * spacing),
        ..*before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A guest in user mode, mapped addressing, interrupts and watchpoints
    /// on, two lines pending.
    fn user() -> ExceptionState {
        ExceptionState {
            crmd: 0x2b7,
            prmd: 0,
            ecfg: 0x1fff,
            estat: 0x0003_0801,
            era: 1,
            badv: 2,
            badi: 3,
            eentry: 0x9000_0000_0001_0000,
            pc: 0x12_0000,
        }
    }

    #[test]
    fn mode_is_saved_and_becomes_the_highest() {
        let after = inject(&user(), &Exception::no_such_instruction(0xdead_beef));
        assert_eq!(after.crmd, 0xb0);
        assert_eq!(after.prmd, 0xf);
        assert_eq!(after.era, 0x12_0000);
        assert_eq!(after.pc, 0x9000_0000_0001_0000);
    }

    #[test]
    fn cause_is_recorded_and_pending_lines_stay() {
        let after = inject(&user(), &Exception::bad_address(0x2fff_ffff, 0x28c0_0085));
        assert_eq!(after.estat, 8 << 16 | 1 << 22 | 0x801);
        assert_eq!((after.badv, after.badi), (0x2fff_ffff, 0x28c0_0085));
        let fetch = inject(&user(), &Exception::bad_fetch(0x12_0000, 0));
        assert_eq!(fetch.estat, 8 << 16 | 0x801);
        assert_eq!(fetch.badv, 0x12_0000);
    }

    #[test]
    fn codes_without_an_address_keep_the_old_one() {
        let after = inject(&user(), &Exception::no_such_instruction(7));
        assert_eq!((after.badv, after.badi), (2, 7));
    }

    #[test]
    fn vectors_are_spaced_as_the_guest_asks() {
        for (vs, bytes) in [(0, 0), (1, 8), (3, 32), (7, 512)] {
            let before = ExceptionState {
                ecfg: vs << 16,
                ..user()
            };
            let after = inject(&before, &Exception::no_such_instruction(0));
            assert_eq!(after.pc - before.eentry, 13 * bytes, "VS {vs}");
        }
    }

    #[test]
    fn an_entry_at_the_end_of_the_space_wraps_like_hardware() {
        let before = ExceptionState {
            ecfg: 7 << 16,
            eentry: u64::MAX - 0xfff,
            ..user()
        };
        let after = inject(&before, &Exception::no_such_instruction(0));
        assert_eq!(after.pc, before.eentry.wrapping_add(13 * 512));
    }
}
