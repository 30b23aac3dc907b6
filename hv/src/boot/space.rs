//! What lies where in a guest's RAM before its first instruction.
//!
//! Kernel, initramfs and tables each claim whole pages; the memory map that
//! the guest gets is made of the same claims, so it covers every byte of RAM
//! exactly once and names nothing else.

use crate::mm::addr::PAGE_BYTES;
use crate::mm::frame::{Range, free_ranges};
use crate::mm::guest_mem::GuestRam;
use alloc::vec::Vec;
use uefi_raw::table::boot::MemoryType;

/// A range of guest physical addresses and what it holds.
pub type Claim = (Range, MemoryType);

/// The RAM of a guest, and what has been put into it.
#[derive(Clone, Debug)]
pub struct Space {
    ram: Vec<Range>,
    claims: Vec<Claim>,
}

impl Space {
    /// All of `ram`, with nothing in it.
    #[must_use]
    pub fn new(ram: &GuestRam) -> Self {
        let mut ranges: Vec<Range> = Vec::new();
        for region in ram.regions() {
            let start = region.gpa.get();
            let end = start.saturating_add(region.bytes);
            match ranges.last_mut() {
                // Apart in the machine, in one piece for the guest.
                Some(last) if last.end == start => last.end = end,
                _ => ranges.push(Range::new(start, end)),
            }
        }
        Self {
            ram: ranges,
            claims: Vec::new(),
        }
    }

    /// The ranges of RAM, by rising address.
    #[must_use]
    pub fn ram(&self) -> &[Range] {
        &self.ram
    }

    /// Claims the pages that `range` touches; false where they aren't all
    /// free RAM.
    #[must_use]
    pub fn claim(&mut self, range: Range, kind: MemoryType) -> bool {
        if range.bytes() == 0 || range.end > u64::MAX - PAGE_BYTES {
            return false;
        }
        let pages = range.outer_pages();
        let inside = |free: &Range| free.start <= pages.start && pages.end <= free.end;
        let fits = self.free().iter().any(inside);
        if fits {
            self.claims.push((pages, kind));
        }
        fits
    }

    /// Claims `bytes` bytes at the lowest free place from `from` on; returns
    /// its address.
    pub fn claim_low(&mut self, bytes: u64, from: u64, kind: MemoryType) -> Option<u64> {
        let free = self.free();
        let at = free.iter().find_map(|free| {
            let start = free.start.max(from.checked_next_multiple_of(PAGE_BYTES)?);
            (Range::new(start, free.end).bytes() >= bytes).then_some(start)
        })?;
        let end = at.checked_add(bytes)?;
        self.claim(Range::new(at, end), kind).then_some(at)
    }

    /// Every byte of RAM once, by rising address.
    #[must_use]
    pub fn map(&self) -> Vec<Claim> {
        let free = self.free().into_iter();
        let mut map: Vec<Claim> = free
            .map(|range| (range, MemoryType::CONVENTIONAL))
            .chain(self.claims.iter().copied())
            .collect();
        map.sort_by_key(|(range, _)| range.start);
        map
    }

    fn free(&self) -> Vec<Range> {
        let taken: Vec<Range> = self.claims.iter().map(|(range, _)| *range).collect();
        free_ranges(&self.ram, &taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mm::addr::{Gpa, Hpa};
    use crate::mm::guest_mem::RamRegion;
    use proptest::prelude::*;

    /// Four pages from 0 on, in two pieces, and four from 0x8000_0000 on.
    fn space() -> Space {
        let region = |gpa, pages| RamRegion {
            gpa: Gpa::new(gpa),
            hpa: Hpa::new(gpa + 0x10_0000),
            bytes: pages * PAGE_BYTES,
        };
        let regions = vec![region(0, 1), region(PAGE_BYTES, 3), region(0x8000_0000, 4)];
        Space::new(&GuestRam::new(regions).unwrap())
    }

    #[test]
    fn pieces_that_adjoin_are_one_range() {
        let whole = Range::new(0, 4 * PAGE_BYTES);
        assert_eq!(space().ram()[0], whole);
        assert!(space().claim(whole, MemoryType::LOADER_CODE));
    }

    #[test]
    fn nothing_is_claimed_twice_or_outside() {
        let mut space = space();
        let kind = MemoryType::LOADER_DATA;
        assert!(space.claim(Range::new(1, 2), kind));
        for (start, end) in [
            (0, 1),
            (PAGE_BYTES - 1, PAGE_BYTES + 1),
            (3 * PAGE_BYTES, 5 * PAGE_BYTES),
            (5, 5),
            (u64::MAX - 1, u64::MAX),
        ] {
            assert!(!space.claim(Range::new(start, end), kind), "{start:#x}");
        }
    }

    #[test]
    fn places_are_the_lowest_that_fit() {
        let mut space = space();
        let kind = MemoryType::LOADER_DATA;
        assert_eq!(space.claim_low(5, 1, kind), Some(PAGE_BYTES));
        assert_eq!(space.claim_low(3 * PAGE_BYTES, 0, kind), Some(0x8000_0000));
        let next = 0x8000_0000 + 3 * PAGE_BYTES;
        assert_eq!(
            space.claim_low(PAGE_BYTES, 4 * PAGE_BYTES, kind),
            Some(next)
        );
        assert_eq!(space.claim_low(u64::MAX, 0, kind), None);
        assert_eq!(space.claim_low(1, u64::MAX, kind), None);
    }

    proptest! {
        #[test]
        fn the_map_covers_every_byte_of_ram_once(
            wishes in prop::collection::vec((0u64..0x2_0000, 0u64..0x9000_0000), 0..12),
        ) {
            let mut space = space();
            for (bytes, from) in wishes {
                space.claim_low(bytes, from, MemoryType::LOADER_DATA);
            }
            let mut rest = space.ram().to_vec();
            for (range, _) in space.map() {
                prop_assert_eq!(rest[0].start, range.start);
                rest[0].start = range.end;
                if rest[0].bytes() == 0 {
                    prop_assert_eq!(rest[0].end, range.end);
                    rest.remove(0);
                }
            }
            prop_assert!(rest.is_empty());
        }
    }
}
