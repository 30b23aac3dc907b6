//! The instructions that exit to the hypervisor, decoded.
//!
//! An exit for a sensitive instruction or for a device access brings the
//! instruction word in BADI; [`decode`] turns it into an [`Insn`]. What it
//! doesn't know is `None`, and the guest's own fault.
//!
//! Sources: *LoongArch Reference Manual, Volume 1*, appendix B, for the
//! encodings of the base architecture; `hvcl` and the GCSR group as the
//! LLVM assembler writes them.

use super::csr::Csr;
use super::gpr::{Gpr, Gprs};

/// Words with all operands zero.
pub mod opcode {
    /// `cpucfg rd, rj`.
    pub const CPUCFG: u32 = 0x0000_6c00;
    /// `hvcl code15`.
    pub const HVCL: u32 = 0x002b_8000;
    /// `csrrd`, `csrwr`, `csrxchg`: rj field 0, 1, a mask register.
    pub const CSR: u32 = 0x0400_0000;
    /// `gcsrrd`, `gcsrwr`, `gcsrxchg`, likewise.
    pub const GCSR: u32 = 0x0500_0000;
    /// `cacop code, rj, si12`.
    pub const CACOP: u32 = 0x0600_0000;
    /// `iocsrrd.{b,h,w,d}`, then `iocsrwr.{b,h,w,d}`, 0x400 apart.
    pub const IOCSR: u32 = 0x0648_0000;
    /// `idle level15`.
    pub const IDLE: u32 = 0x0648_8000;
}

/// How many bytes an access moves, as a power of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Width {
    /// One byte.
    Byte,
    /// Two bytes.
    Half,
    /// Four bytes.
    Word,
    /// Eight bytes.
    Double,
}

impl Width {
    const ALL: [Width; 4] = [Width::Byte, Width::Half, Width::Word, Width::Double];

    /// The width that the low two bits of `field` encode.
    const fn from_field(field: u32) -> Width {
        Width::ALL[(field & 3) as usize]
    }

    /// Bytes: 1, 2, 4 or 8.
    pub const fn bytes(self) -> usize {
        1 << self as usize
    }

    /// The low bytes of `value`, zero-extended to 64 bits.
    pub const fn zero_extend(self, value: u64) -> u64 {
        value & (u64::MAX >> (64 - 8 * self.bytes()))
    }

    /// The low bytes of `value`, sign-extended to 64 bits.
    pub const fn sign_extend(self, value: u64) -> u64 {
        let unused = 64 - 8 * self.bytes();
        ((value << unused) as i64 >> unused) as u64
    }
}

/// What a CSR instruction does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CsrOp {
    /// `csrrd`: rd gets the register.
    Read,
    /// `csrwr`: the register gets rd, rd the old value.
    Write,
    /// `csrxchg`: the bits that `mask` selects are exchanged, rd gets the
    /// whole old value.
    Exchange {
        /// The register that holds the mask.
        mask: Gpr,
    },
}

/// A decoded instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Insn {
    /// Reads a configuration word.
    Cpucfg {
        /// Gets the word.
        rd: Gpr,
        /// Holds its number, in the low 32 bits.
        rj: Gpr,
    },
    /// Accesses a control and status register.
    Csr {
        /// What it does.
        op: CsrOp,
        /// The register accessed.
        csr: Csr,
        /// Value in and old value out.
        rd: Gpr,
    },
    /// A cache operation.
    Cacop {
        /// Which cache (2:0) and operation (4:3).
        code: u8,
        /// Base of the address or index.
        rj: Gpr,
        /// Signed offset, −2048 to 2047.
        offset: i16,
    },
    /// Reads an IOCSR; 1, 2 and 4 bytes sign-extend.
    IocsrRead {
        /// How many bytes.
        width: Width,
        /// Gets the value.
        rd: Gpr,
        /// Holds the address, in the low 32 bits.
        rj: Gpr,
    },
    /// Writes an IOCSR.
    IocsrWrite {
        /// How many bytes.
        width: Width,
        /// Holds the value.
        rd: Gpr,
        /// Holds the address, in the low 32 bits.
        rj: Gpr,
    },
    /// Waits for an interrupt.
    Idle,
    /// Calls the hypervisor.
    Hvcl {
        /// The code, 0 to 0x7fff.
        code: u16,
    },
    /// Loads from memory.
    Load {
        /// How many bytes.
        width: Width,
        /// Whether the value is sign-extended to 64 bits.
        signed: bool,
        /// Gets the value.
        rd: Gpr,
    },
    /// Stores to memory.
    Store {
        /// How many bytes.
        width: Width,
        /// Holds the value.
        rd: Gpr,
    },
}

/// Bits `low` to `low + width - 1` of `word`.
const fn bits(word: u32, low: u32, width: u32) -> u32 {
    (word >> low) & (u32::MAX >> (32 - width))
}

const fn rd(word: u32) -> Gpr {
    Gpr::from_field(word)
}

const fn rj(word: u32) -> Gpr {
    Gpr::from_field(word >> 5)
}

/// Whether a word is `idle`.
#[inline(always)]
#[must_use]
pub const fn is_idle(word: u32) -> bool {
    word >> 15 == opcode::IDLE >> 15
}

/// Whether a word, if it is sensitive at all, is `cacop`, an IOCSR access or
/// `idle`.
#[inline(always)]
#[must_use]
pub const fn is_privileged(word: u32) -> bool {
    word >> 24 == opcode::IDLE >> 24
}

/// Decodes a sensitive instruction or `hvcl`; `None` for any other word.
#[inline(always)]
pub const fn decode_sensitive(word: u32) -> Option<Insn> {
    match word >> 24 {
        0x00 => decode_unprivileged(word),
        0x04 => Some(decode_csr(word)),
        0x06 => decode_privileged(word),
        _ => None,
    }
}

/// Decodes one instruction word, or `None` for one that never exits.
#[inline]
pub const fn decode(word: u32) -> Option<Insn> {
    match word >> 24 {
        0x00 | 0x04 | 0x06 => decode_sensitive(word),
        _ => decode_memory(word),
    }
}

/// Decodes a load or store of a general register; `None` for any other word.
#[inline(always)]
pub const fn decode_memory(word: u32) -> Option<Insn> {
    match word >> 24 {
        0x24..=0x27 => Some(decode_pointer_access(word)),
        0x28..=0x2a => decode_offset_access(word),
        0x38 => decode_indexed_access(word),
        _ => None,
    }
}

/// The address that a load or store of a general register accesses, by the
/// registers that it had before it; of any other word, no particular one.
#[must_use]
pub const fn address(word: u32, gprs: &Gprs) -> u64 {
    let offset = match word >> 24 {
        0x24..=0x27 => ((bits(word, 10, 14) << 18) as i32 >> 16) as u64,
        0x38 => gprs.get(Gpr::from_field(word >> 10)),
        _ => ((bits(word, 10, 12) << 20) as i32 >> 20) as u64,
    };
    gprs.get(rj(word)).wrapping_add(offset)
}

#[inline(always)]
const fn decode_unprivileged(word: u32) -> Option<Insn> {
    if word >> 10 == opcode::CPUCFG >> 10 {
        let (rd, rj) = (rd(word), rj(word));
        Some(Insn::Cpucfg { rd, rj })
    } else if word >> 15 == opcode::HVCL >> 15 {
        let code = bits(word, 0, 15) as u16;
        Some(Insn::Hvcl { code })
    } else {
        None
    }
}

#[inline(always)]
const fn decode_csr(word: u32) -> Insn {
    let op = match rj(word).number() {
        0 => CsrOp::Read,
        1 => CsrOp::Write,
        _ => CsrOp::Exchange { mask: rj(word) },
    };
    let (csr, rd) = (Csr::from_field(word >> 10), rd(word));
    Insn::Csr { op, csr, rd }
}

/// `cacop`, the IOCSR group and `idle`.
#[inline(always)]
const fn decode_privileged(word: u32) -> Option<Insn> {
    if word >> 22 == opcode::CACOP >> 22 {
        let code = bits(word, 0, 5) as u8;
        let offset = (bits(word, 10, 12) as i16) << 4 >> 4;
        let rj = rj(word);
        Some(Insn::Cacop { code, rj, offset })
    } else if word >> 13 == opcode::IOCSR >> 13 {
        let width = Width::from_field(word >> 10);
        let (rd, rj) = (rd(word), rj(word));
        Some(match bits(word, 12, 1) {
            0 => Insn::IocsrRead { width, rd, rj },
            _ => Insn::IocsrWrite { width, rd, rj },
        })
    } else if is_idle(word) {
        Some(Insn::Idle)
    } else {
        None
    }
}

/// `ldptr.w`, `stptr.w`, `ldptr.d`, `stptr.d`: 0x24 to 0x27.
#[inline(always)]
const fn decode_pointer_access(word: u32) -> Insn {
    let width = Width::from_field(2 | bits(word, 25, 1));
    let rd = rd(word);
    match bits(word, 24, 1) {
        0 => signed_load(width, rd),
        _ => Insn::Store { width, rd },
    }
}

/// `ld.{b,h,w,d}`, `st.{b,h,w,d}`, `ld.{bu,hu,wu}`: bits 31:22 from 0x0a0.
#[inline(always)]
const fn decode_offset_access(word: u32) -> Option<Insn> {
    decode_access(bits(word, 24, 2), word >> 22, rd(word))
}

/// The same with an index register: bits 31:18 from 0xe00, bits 17:15 zero.
#[inline(always)]
const fn decode_indexed_access(word: u32) -> Option<Insn> {
    if bits(word, 22, 2) != 0 || bits(word, 15, 3) != 0 {
        return None;
    }
    decode_access(bits(word, 20, 2), word >> 18, rd(word))
}

/// `group` 0 loads, 1 stores, 2 loads without sign (no double word there).
#[inline(always)]
const fn decode_access(group: u32, width: u32, rd: Gpr) -> Option<Insn> {
    let width = Width::from_field(width);
    let signed = false;
    match (group, width) {
        (0, _) => Some(signed_load(width, rd)),
        (1, _) => Some(Insn::Store { width, rd }),
        (2, Width::Byte | Width::Half | Width::Word) => Some(Insn::Load { width, signed, rd }),
        _ => None,
    }
}

const fn signed_load(width: Width, rd: Gpr) -> Insn {
    let signed = true;
    Insn::Load { width, signed, rd }
}

#[cfg(test)]
mod tests;
