//! A set of CPUs, by their index in the kernel's list.
//!
//! 1024 bits in 128 bytes, without allocation: as many CPUs as there are
//! physical ids.

use crate::ipi::NoSuchCpu;
use core::fmt;
use core::ops::{BitAnd, BitOr, Sub};

const WORD_BITS: usize = u64::BITS as usize;
const WORDS: usize = CpuSet::CAPACITY / WORD_BITS;

/// A set of CPUs. `|`, `&` and `-` are union, intersection and difference.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct CpuSet([u64; WORDS]);

impl CpuSet {
    /// CPUs that can be in a set: indices 0 to 1023.
    pub const CAPACITY: usize = 1024;
    /// No CPU.
    pub const EMPTY: Self = Self([0; WORDS]);

    /// CPUs 0 to `count` − 1; all where `count` is beyond
    /// [`CpuSet::CAPACITY`].
    #[must_use]
    pub const fn first(count: usize) -> Self {
        let mut words = [0; WORDS];
        let mut index = 0;
        while index < WORDS && index * WORD_BITS < count {
            let rest = count - index * WORD_BITS;
            words[index] = if rest < WORD_BITS {
                (1 << rest) - 1
            } else {
                u64::MAX
            };
            index += 1;
        }
        Self(words)
    }

    /// The set of `cpu` alone.
    ///
    /// # Errors
    /// `cpu` is beyond [`CpuSet::CAPACITY`].
    pub fn only(cpu: usize) -> Result<Self, NoSuchCpu> {
        let mut set = Self::EMPTY;
        set.insert(cpu).map(|()| set)
    }

    /// Puts `cpu` in.
    ///
    /// # Errors
    /// `cpu` is beyond [`CpuSet::CAPACITY`]: the set stays as it is.
    pub fn insert(&mut self, cpu: usize) -> Result<(), NoSuchCpu> {
        let word = self.0.get_mut(cpu / WORD_BITS).ok_or(NoSuchCpu(cpu))?;
        *word |= 1 << (cpu % WORD_BITS);
        Ok(())
    }

    /// Takes `cpu` out.
    pub fn remove(&mut self, cpu: usize) {
        if let Some(word) = self.0.get_mut(cpu / WORD_BITS) {
            *word &= !(1 << (cpu % WORD_BITS));
        }
    }

    /// Whether `cpu` is in it.
    #[must_use]
    pub fn contains(&self, cpu: usize) -> bool {
        let word = self.0.get(cpu / WORD_BITS);
        word.is_some_and(|word| word >> (cpu % WORD_BITS) & 1 == 1)
    }

    /// Whether no CPU is in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::EMPTY
    }

    /// How many CPUs are in it.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Its CPUs, in rising order.
    #[must_use]
    pub const fn iter(&self) -> Iter {
        Iter {
            words: self.0,
            index: 0,
        }
    }

    fn combine(self, other: Self, with: impl Fn(u64, u64) -> u64) -> Self {
        let mut words = self.0;
        for (word, other) in words.iter_mut().zip(other.0) {
            *word = with(*word, other);
        }
        Self(words)
    }
}

impl BitOr for CpuSet {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        self.combine(other, |word, other| word | other)
    }
}

impl BitAnd for CpuSet {
    type Output = Self;

    fn bitand(self, other: Self) -> Self {
        self.combine(other, |word, other| word & other)
    }
}

impl Sub for CpuSet {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        self.combine(other, |word, other| word & !other)
    }
}

impl fmt::Debug for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self).finish()
    }
}

impl IntoIterator for &CpuSet {
    type Item = usize;
    type IntoIter = Iter;

    fn into_iter(self) -> Iter {
        self.iter()
    }
}

/// The CPUs of a set, in rising order.
#[derive(Clone, Debug)]
pub struct Iter {
    words: [u64; WORDS],
    index: usize,
}

impl Iterator for Iter {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        loop {
            let word = self.words.get_mut(self.index)?;
            if *word != 0 {
                let bit = word.trailing_zeros() as usize;
                *word &= *word - 1;
                return Some(self.index * WORD_BITS + bit);
            }
            self.index += 1;
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    extern crate std;
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;
    use std::vec::Vec;

    fn of(cpus: &BTreeSet<usize>) -> CpuSet {
        let mut set = CpuSet::EMPTY;
        cpus.iter().for_each(|&cpu| set.insert(cpu).unwrap());
        set
    }

    fn cpus() -> impl Strategy<Value = BTreeSet<usize>> {
        prop::collection::btree_set(0..CpuSet::CAPACITY, 0..100)
    }

    proptest! {
        #[test]
        fn a_set_is_what_was_put_in(a in cpus(), b in cpus(), other in 0..2000_usize) {
            let (mut x, y) = (of(&a), of(&b));
            prop_assert_eq!(x.iter().collect::<BTreeSet<_>>(), a.clone());
            prop_assert!(x.iter().is_sorted());
            prop_assert_eq!((x.len(), x.is_empty()), (a.len(), a.is_empty()));
            prop_assert_eq!(x.contains(other), a.contains(&other));
            prop_assert_eq!(x | y, of(&(&a | &b)));
            prop_assert_eq!(x & y, of(&(&a & &b)));
            prop_assert_eq!(x - y, of(&(&a - &b)));
            x.remove(other);
            prop_assert!(!x.contains(other));
        }

        #[test]
        fn the_first_ones_are_those_below(count in 0..1100_usize) {
            let all: Vec<usize> = CpuSet::first(count).iter().collect();
            prop_assert!(all.into_iter().eq(0..count.min(CpuSet::CAPACITY)));
        }
    }

    #[test]
    fn nobody_is_beyond_the_capacity() {
        let mut set = CpuSet::EMPTY;
        assert_eq!(set.insert(1024), Err(NoSuchCpu(1024)));
        assert_eq!(CpuSet::only(usize::MAX), Err(NoSuchCpu(usize::MAX)));
        set.remove(1024);
        assert!(set.is_empty() && !set.contains(1024));
    }

    #[test]
    fn a_set_prints_its_cpus() {
        let set = CpuSet::first(2) | CpuSet::only(1023).unwrap();
        assert_eq!(std::format!("{set:?}"), "{0, 1, 1023}");
    }
}
