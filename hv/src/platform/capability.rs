//! Whether a CPU has what running guests takes, told from its words.
//!
//! Sources: *LoongArch Reference Manual, Volume 1*, table 2-1; for LVZ,
//! `kvm_arch_enable_virtualization_cpu` of Linux 7.2,
//! arch/loongarch/kvm/main.c.

use crate::isa::csr::{GCFG, GSTAT};
use crate::mm::stage2::ROOT_SHIFT;
use core::ops::RangeInclusive;
use tock_registers::LocalRegisterCopy;

/// CPUCFG word 1: IOCSR instructions.
const CPUCFG1_IOCSR: u32 = 1 << 3;
/// CPUCFG word 1: PALEN, bits of a physical address less one.
const CPUCFG1_PALEN: u32 = 4;
/// CPUCFG word 2: LVZ.
const CPUCFG2_LVZ: u32 = 1 << 10;
/// CPUCFG word 2: the constant timer.
const CPUCFG2_LLFTP: u32 = 1 << 14;
/// CPUCFG word 2: the instructions that walk page tables.
const CPUCFG2_LSPW: u32 = 1 << 21;
/// GCFG.GCIP: value 2 of GCI, only the dangerous cache operations exit.
const GCI_DANGEROUS_OFFERED: u64 = 1 << 2;
/// GCFG.MATP: value 1 of MATC, the host's memory type counts.
const MATC_HOST_OFFERED: u64 = 1 << 1;
/// Widths of a physical address that second-stage tables are made for.
const PHYSICAL_BITS: RangeInclusive<u32> = ROOT_SHIFT + 1..=48;
/// Bits of the fields that hold a guest identifier, in GSTAT, GTLBC and
/// `invtlb`'s operand: a CPU that says more has no place for them.
const MOST_GID_BITS: u32 = 8;

/// What a machine lacks for running guests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    /// The CPU has no LVZ.
    Lvz,
    /// CPUs can't reach each other (CPUCFG word 1, IOCSR).
    Iocsr,
    /// There is no timer that takes the CPU back (CPUCFG word 2, LLFTP).
    Timer,
    /// A TLB miss can't be answered (CPUCFG word 2, LSPW).
    Walk,
    /// Physical addresses have so many bits (CPUCFG word 1, PALEN).
    PhysicalBits(u32),
    /// There are no guest identifiers (GSTAT.GIDBIT is 0).
    Identifiers,
    /// Cache operations of guests can't be confined (GCFG.GCIP).
    CacheControl,
    /// Guests can't be kept from choosing memory types (GCFG.MATP).
    MemoryType,
}

impl core::fmt::Display for Missing {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::Lvz => "this CPU has no LVZ (CPUCFG word 2, bit 10)",
            Self::Iocsr => "this CPU has no IOCSR (CPUCFG word 1, bit 3)",
            Self::Timer => "this CPU has no constant timer (CPUCFG word 2, bit 14)",
            Self::Walk => "this CPU has no page walk instructions (CPUCFG word 2, bit 21)",
            Self::PhysicalBits(bits) => {
                let (least, most) = PHYSICAL_BITS.into_inner();
                return write!(
                    f,
                    "physical addresses of {bits} bits (CPUCFG word 1, PALEN): \
                     {least} to {most} are possible"
                );
            }
            Self::Identifiers => "LVZ without guest identifiers (GSTAT.GIDBIT is 0)",
            Self::CacheControl => "LVZ without control of cache operations (GCFG.GCIP, value 2)",
            Self::MemoryType => "LVZ without control of memory types (GCFG.MATP, value 1)",
        })
    }
}

/// The guest side's configuration: only a CPU with LVZ has these registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GuestSide {
    /// GCFG.
    pub gcfg: u64,
    /// GSTAT.
    pub gstat: u64,
}

/// The width in bits of the guest identifiers of a CPU whose configuration
/// words `cpucfg` reads, and whose guest side `guest_side` reads, if it has
/// one.
///
/// # Errors
/// The first thing that it lacks.
pub fn identifier_bits(
    cpucfg: impl Fn(u32) -> u32,
    guest_side: impl FnOnce() -> GuestSide,
) -> Result<u32, Missing> {
    let has = |word, bit, missing| (cpucfg(word) & bit != 0).then_some(()).ok_or(missing);
    has(2, CPUCFG2_LVZ, Missing::Lvz)?;
    has(1, CPUCFG1_IOCSR, Missing::Iocsr)?;
    has(2, CPUCFG2_LLFTP, Missing::Timer)?;
    has(2, CPUCFG2_LSPW, Missing::Walk)?;
    let physical_bits = (cpucfg(1) >> CPUCFG1_PALEN & 0xff) + 1;
    if !PHYSICAL_BITS.contains(&physical_bits) {
        return Err(Missing::PhysicalBits(physical_bits));
    }
    let GuestSide { gcfg, gstat } = guest_side();
    let gcfg = LocalRegisterCopy::<u64, GCFG::Register>::new(gcfg);
    if gcfg.read(GCFG::GCIP) & GCI_DANGEROUS_OFFERED == 0 {
        return Err(Missing::CacheControl);
    }
    if gcfg.read(GCFG::MATP) & MATC_HOST_OFFERED == 0 {
        return Err(Missing::MemoryType);
    }
    let gstat = LocalRegisterCopy::<u64, GSTAT::Register>::new(gstat);
    match gstat.read(GSTAT::GIDBIT) as u32 {
        0 => Err(Missing::Identifiers),
        bits => Ok(bits.min(MOST_GID_BITS)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Exactly what is needed: words 1 and 2, GCFG, GSTAT, as their bits lie
    /// in the manual.
    const NEEDED: [u64; 4] = [
        47 << 4 | 1 << 3,
        1 << 21 | 1 << 14 | 1 << 10,
        1 << 18 | 1 << 1,
        8 << 4,
    ];

    fn of([word_1, word_2, gcfg, gstat]: [u64; 4]) -> Result<u32, Missing> {
        let cpucfg = |word| match word {
            1 => word_1 as u32,
            2 => word_2 as u32,
            _ => u32::MAX,
        };
        identifier_bits(cpucfg, || {
            assert_ne!(word_2 & 1 << 10, 0, "without LVZ there is no such register");
            GuestSide { gcfg, gstat }
        })
    }

    /// Every bit of every word, from nothing but what is needed and from all
    /// ones: exactly those that are needed are missed, each by its name.
    #[test]
    fn each_bit_that_is_needed_is_missed_and_no_other() {
        let missed = |word, bit| match (word, bit) {
            (0, 3) => Some(Missing::Iocsr),
            (1, 10) => Some(Missing::Lvz),
            (1, 14) => Some(Missing::Timer),
            (1, 21) => Some(Missing::Walk),
            (2, 1) => Some(Missing::MemoryType),
            (2, 18) => Some(Missing::CacheControl),
            (3, 7) => Some(Missing::Identifiers),
            _ => None,
        };
        assert_eq!(of(NEEDED), Ok(8));
        let palen = 0xff << 4;
        let all = [!palen | 47 << 4, u64::MAX, u64::MAX, NEEDED[3]];
        for full in [NEEDED, all] {
            for word in 0..4 {
                for bit in (0..32).filter(|bit| word != 0 || 1 << bit & palen == 0) {
                    let mut words = full;
                    words[word] &= !(1 << bit);
                    let expected = missed(word, bit).map_or(Ok(8), Err);
                    assert_eq!(of(words), expected, "word {word} bit {bit}");
                }
            }
        }
    }

    #[test]
    fn addresses_are_as_wide_as_tables_allow() {
        for bits in 1..=256u32 {
            let mut words = NEEDED;
            words[0] = u64::from(bits - 1) << 4 | 1 << 3;
            let expected = if (37..=48).contains(&bits) {
                Ok(8)
            } else {
                Err(Missing::PhysicalBits(bits))
            };
            assert_eq!(of(words), expected);
        }
    }

    #[test]
    fn identifiers_fit_their_fields() {
        for bits in 0..64u64 {
            let mut words = NEEDED;
            words[3] = bits << 4;
            let expected = match bits {
                0 => Err(Missing::Identifiers),
                _ => Ok(bits.min(8) as u32),
            };
            assert_eq!(of(words), expected, "{bits}");
        }
    }

    #[test]
    fn each_says_something_else() {
        let all = [
            Missing::Lvz,
            Missing::Iocsr,
            Missing::Timer,
            Missing::Walk,
            Missing::PhysicalBits(36),
            Missing::Identifiers,
            Missing::CacheControl,
            Missing::MemoryType,
        ];
        let mut texts = all.map(|missing| missing.to_string()).to_vec();
        texts.sort();
        texts.dedup();
        assert_eq!(texts.len(), all.len());
        assert!(
            texts
                .iter()
                .all(|text| text.len() > 20 && !text.contains('\n'))
        );
    }
}
