//! Loads and stores on a device's address.
//!
//! The instruction word says the width, the register and whether a load
//! extends the sign. What isn't a plain load or store of a general register
//! (an atomic, a vector, floating point, `cacop`, `preld`) has no business
//! there.

use crate::isa::gpr::{Gpr, Gprs};
use crate::isa::insn::{self, Insn, Width};
use crate::vcpu::exit::AccessKind;

/// An access, taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// A load; [`complete`] gives the register its value.
    Load {
        /// How many bytes.
        width: Width,
        /// Whether the value is sign-extended.
        signed: bool,
        /// Gets the value.
        rd: Gpr,
    },
    /// A store.
    Store {
        /// How many bytes.
        width: Width,
        /// What is stored, in its low bytes; above them it is 0.
        value: u64,
    },
}

impl Access {
    /// The access of instruction `word`, which faulted on an access of this
    /// kind. `None` where it isn't a plain load or store, or not of `kind`.
    #[inline(always)]
    #[must_use]
    pub fn decode(word: u32, kind: AccessKind, gprs: &Gprs) -> Option<Self> {
        match (insn::decode_memory(word)?, kind) {
            (Insn::Load { width, signed, rd }, AccessKind::Load) => {
                Some(Self::Load { width, signed, rd })
            }
            (Insn::Store { width, rd }, AccessKind::Store) => {
                let value = width.zero_extend(gprs.get(rd));
                Some(Self::Store { width, value })
            }
            _ => None,
        }
    }

    /// Bytes that it moves.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        match self {
            Self::Load { width, .. } | Self::Store { width, .. } => width.bytes() as u64,
        }
    }
}

/// Gives a load's register what a device answered.
#[inline(always)]
pub fn complete(gprs: &mut Gprs, rd: Gpr, width: Width, signed: bool, value: u64) {
    let value = if signed {
        width.sign_extend(value)
    } else {
        width.zero_extend(value)
    };
    gprs.set(rd, value);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// ld.w a1, a0, 0.
    const LD_W: u32 = 0x2880_0085;
    /// st.b a1, a0, 0.
    const ST_B: u32 = 0x2900_0085;

    #[test]
    fn loads_and_stores_of_the_right_kind() {
        let mut gprs = Gprs::new();
        gprs.set(Gpr::A1, 0x1234);
        let load = Access::decode(LD_W, AccessKind::Load, &gprs).unwrap();
        let expected = Access::Load {
            width: Width::Word,
            signed: true,
            rd: Gpr::A1,
        };
        assert_eq!((load, load.bytes()), (expected, 4));
        let store = Access::decode(ST_B, AccessKind::Store, &gprs).unwrap();
        let expected = Access::Store {
            width: Width::Byte,
            value: 0x34,
        };
        assert_eq!((store, store.bytes()), (expected, 1));
    }

    #[test]
    fn the_instruction_must_agree_with_the_fault() {
        let gprs = Gprs::new();
        assert_eq!(Access::decode(LD_W, AccessKind::Store, &gprs), None);
        assert_eq!(Access::decode(ST_B, AccessKind::Load, &gprs), None);
        assert_eq!(Access::decode(LD_W, AccessKind::Fetch, &gprs), None);
    }

    #[test]
    fn instructions_that_have_no_business_there() {
        let gprs = Gprs::new();
        for word in [
            0x2b00_0085,
            0x3860_0085,
            0x2c00_0085,
            0x2000_0085,
            0x0600_0085,
            0,
        ] {
            for kind in [AccessKind::Load, AccessKind::Store] {
                assert_eq!(Access::decode(word, kind, &gprs), None, "{word:#x}");
            }
        }
    }

    #[test]
    fn loads_extend_as_they_say() {
        let mut gprs = Gprs::new();
        for (width, signed, value) in [
            (Width::Byte, true, 0xffff_ffff_ffff_ff80),
            (Width::Byte, false, 0x80),
            (Width::Half, true, 0xffff_ffff_ffff_8080),
            (Width::Half, false, 0x8080),
            (Width::Word, true, 0xffff_ffff_8080_8080),
            (Width::Word, false, 0x8080_8080),
            (Width::Double, true, 0x8080_8080_8080_8080),
        ] {
            complete(&mut gprs, Gpr::A0, width, signed, 0x8080_8080_8080_8080);
            assert_eq!(gprs.get(Gpr::A0), value);
        }
        complete(&mut gprs, Gpr::ZERO, Width::Byte, false, 1);
        assert_eq!(gprs.get(Gpr::ZERO), 0);
    }
}
