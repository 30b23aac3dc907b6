//! `cpucfg`: what the guest's CPU says it can do.
//!
//! A table per VM: the host's words less what a guest can't have (LVZ) and
//! what isn't kept for it (performance counters, binary translation,
//! message interrupts, the hardware's page walker, memory-order controls),
//! and the hypervisor's own area. A bit is 1 exactly where its instructions
//! work; every word that isn't defined reads 0.
//!
//! Sources: *LoongArch Reference Manual, Volume 1*, table 2-1;
//! `_kvm_get_cpucfg_mask` of Linux 7.2, arch/loongarch/kvm/vcpu.c.

use guest_pv::abi::cpucfg::{FEATURES, PvFeatures, SIGNATURE, SIGNATURE_VALUE};

/// Words that have a definition.
const WORDS: usize = 21;

/// Word 1 less MSG_INT (26).
const WORD_1: u32 = 0x03ff_ffff;
/// Word 2: floating point and vectors (9:0), the constant timer (17:14),
/// software page walk, atomics (22:21), and 30:25. Without LVZ (13:10),
/// binary translation (20:18), the hardware's page walk (24).
const WORD_2: u32 = 0x7e63_c3ff;
/// Word 3: 23:0 less the store buffer (1) and the memory-order controls
/// (18, 19, 22).
const WORD_3: u32 = 0x00b3_fffd;
/// Word 16: which caches there are.
const WORD_16: u32 = 0x0001_ffff;
/// Words 17 to 20: the shape of a cache.
const CACHE_WORD: u32 = 0x7fff_ffff;

/// The configuration words of a VM's CPUs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpucfgTable {
    words: [u32; WORDS],
    features: PvFeatures,
}

impl CpucfgTable {
    /// The words of a host, as `host` reads them, filtered for a VM that is
    /// offered `features`.
    #[must_use]
    pub fn filtered(host: impl Fn(u32) -> u32, features: PvFeatures) -> Self {
        let mut words = [0; WORDS];
        for (index, word) in (0..).zip(&mut words) {
            *word = host(index) & mask(index);
        }
        Self { words, features }
    }

    /// Word `word`, of which the low 32 bits count.
    #[inline]
    #[must_use]
    pub fn read(&self, word: u64) -> u32 {
        let word = word as u32;
        match self.words.get(word as usize) {
            Some(&value) => value,
            None => self.read_paravirtual(word),
        }
    }

    #[cold]
    #[inline(never)]
    const fn read_paravirtual(&self, word: u32) -> u32 {
        match word {
            SIGNATURE => SIGNATURE_VALUE,
            FEATURES => self.features.bits(),
            _ => 0,
        }
    }

    /// What the VM is offered.
    #[must_use]
    pub const fn features(&self) -> PvFeatures {
        self.features
    }

    /// Whether the guest has floating point, LSX and LASX.
    #[must_use]
    pub fn units(&self) -> [bool; 3] {
        let word = self.read(2);
        [0, 6, 7].map(|bit| word >> bit & 1 == 1)
    }

    /// Width of a physical address in bits (word 1, PALEN).
    #[must_use]
    pub fn physical_bits(&self) -> u32 {
        (self.read(1) >> 4 & 0xff) + 1
    }
}

const fn mask(word: u32) -> u32 {
    match word {
        0 | 4 | 5 => u32::MAX,
        1 => WORD_1,
        2 => WORD_2,
        3 => WORD_3,
        16 => WORD_16,
        17..=20 => CACHE_WORD,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all_ones() -> CpucfgTable {
        CpucfgTable::filtered(|_| u32::MAX, PvFeatures::IPI)
    }

    #[test]
    fn what_a_guest_cannot_have_is_zero() {
        let table = all_ones();
        for (word, bit) in [
            (1, 26),
            (2, 10),
            (2, 11),
            (2, 12),
            (2, 13),
            (2, 18),
            (2, 19),
            (2, 20),
            (2, 24),
            (3, 1),
            (3, 18),
            (6, 0),
        ] {
            assert_eq!(table.read(word) >> bit & 1, 0, "word {word} bit {bit}");
        }
        for word in 7..16 {
            assert_eq!(table.read(word), 0);
        }
    }

    #[test]
    fn nothing_is_offered_that_the_host_lacks() {
        let table = CpucfgTable::filtered(|_| 0, PvFeatures::empty());
        for word in 0..=32 {
            assert_eq!(table.read(word), 0);
        }
        assert_eq!(table.units(), [false; 3]);
        assert_eq!(all_ones().units(), [true; 3]);
    }

    #[test]
    fn the_area_holds_signature_and_features_and_nothing_else() {
        let table = all_ones();
        assert_eq!(table.read(0x4000_0000), 0x004d_564b);
        assert_eq!(table.read(0x4000_0004), 2);
        for word in (0x4000_0001..=0x4000_00ff).filter(|word| *word != 0x4000_0004) {
            assert_eq!(table.read(word), 0);
        }
    }

    #[test]
    fn only_the_low_half_of_the_number_counts() {
        let table = all_ones();
        assert_eq!(table.read(0xffff_ffff_0000_0000), u32::MAX);
        assert_eq!(table.read(0x1_4000_0000), SIGNATURE_VALUE);
        assert_eq!(table.read(u64::MAX), 0);
        assert_eq!(table.read(21), 0);
    }

    #[test]
    fn physical_width_is_palen() {
        let table =
            CpucfgTable::filtered(|w| if w == 1 { 47 << 4 } else { 0 }, PvFeatures::empty());
        assert_eq!(table.physical_bits(), 48);
    }
}
