//! Frames: which physical pages are free.
//!
//! Built once from the machine's memory map less what is taken already, then
//! a buddy allocator: a VM's RAM comes in blocks as large as they get, so
//! that it can be mapped in large blocks too.

use super::addr::{Hpa, PAGE_BYTES, PAGE_SHIFT};
use alloc::vec::Vec;
use buddy_system_allocator::FrameAllocator;
use core::alloc::Layout;

/// A range of physical addresses, `end` not included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// First byte.
    pub start: u64,
    /// One past the last byte.
    pub end: u64,
}

impl Range {
    /// The range from `start` up to `end`; empty where `end` isn't above it.
    #[must_use]
    pub const fn new(start: u64, end: u64) -> Self {
        Self { start, end }
    }

    /// Its length in bytes.
    #[must_use]
    pub const fn bytes(self) -> u64 {
        self.end.saturating_sub(self.start)
    }

    /// The whole pages inside it.
    const fn inner_pages(self) -> Self {
        let start = self.start.div_ceil(PAGE_BYTES) * PAGE_BYTES;
        Self::new(start, self.end / PAGE_BYTES * PAGE_BYTES)
    }

    /// The whole pages that it touches.
    #[must_use]
    pub const fn outer_pages(self) -> Self {
        let end = self.end.div_ceil(PAGE_BYTES) * PAGE_BYTES;
        Self::new(self.start / PAGE_BYTES * PAGE_BYTES, end)
    }
}

/// The whole pages of `ram` that no range of `taken` touches, by rising
/// address, none empty.
#[must_use]
pub fn free_ranges(ram: &[Range], taken: &[Range]) -> Vec<Range> {
    let mut free: Vec<Range> = ram.iter().map(|range| range.inner_pages()).collect();
    for cut in taken.iter().filter(|range| range.bytes() > 0) {
        let cut = cut.outer_pages();
        free = free
            .into_iter()
            .flat_map(|range| {
                let before = Range::new(range.start, range.end.min(cut.start));
                let after = Range::new(range.start.max(cut.end), range.end);
                [before, after]
            })
            .filter(|range| range.bytes() > 0)
            .collect();
    }
    free.retain(|range| range.bytes() > 0);
    free.sort_by_key(|range| range.start);
    free
}

/// Largest block: 2^34 pages, more than 48 bits of address hold.
const ORDERS: usize = 35;

/// The free frames of the machine.
pub struct Frames {
    buddy: FrameAllocator<ORDERS>,
    free: u64,
}

impl Frames {
    /// Frames of these ranges, as [`free_ranges`] gives them.
    #[must_use]
    pub fn new(ranges: &[Range]) -> Self {
        let mut frames = Self {
            buddy: FrameAllocator::new(),
            free: 0,
        };
        for range in ranges {
            let first = range.start >> PAGE_SHIFT;
            let end = range.end >> PAGE_SHIFT;
            frames.buddy.add_frame(first as usize, end as usize);
            frames.free += end.saturating_sub(first);
        }
        frames
    }

    /// Free pages.
    #[must_use]
    pub const fn free(&self) -> u64 {
        self.free
    }

    /// Takes `pages` contiguous pages, a power of two, aligned to their
    /// size; their content is whatever it was. `None` where there is no such
    /// run, or for 0 or another number.
    pub fn take(&mut self, pages: u64) -> Option<Hpa> {
        let layout = Self::layout(pages)?;
        let frame = self.buddy.alloc_aligned(layout)?;
        self.free -= pages;
        Some(Hpa::new((frame as u64) << PAGE_SHIFT))
    }

    /// Gives back `pages` pages at `at`, as [`Frames::take`] gave them.
    pub fn give(&mut self, at: Hpa, pages: u64) {
        if let Some(layout) = Self::layout(pages) {
            self.buddy
                .dealloc_aligned((at.get() >> PAGE_SHIFT) as usize, layout);
            self.free += pages;
        }
    }

    /// The layout, counted in pages, of an aligned run.
    fn layout(pages: u64) -> Option<Layout> {
        let pages = usize::try_from(pages).ok()?;
        pages
            .is_power_of_two()
            .then(|| Layout::from_size_align(pages, pages).ok())?
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const P: u64 = PAGE_BYTES;

    #[test]
    fn taken_ranges_are_cut_out_by_whole_pages() {
        let ram = [Range::new(100 * P, 110 * P), Range::new(1, 10 * P + 1)];
        let taken = [
            Range::new(3 * P + 5, 3 * P + 6),
            Range::new(105 * P, 200 * P),
            Range::new(P, P),
        ];
        let free = free_ranges(&ram, &taken);
        assert_eq!(
            free,
            [
                Range::new(P, 3 * P),
                Range::new(4 * P, 10 * P),
                Range::new(100 * P, 105 * P)
            ]
        );
    }

    #[test]
    fn ranges_below_a_page_give_nothing() {
        assert!(free_ranges(&[Range::new(1, P)], &[]).is_empty());
        assert!(free_ranges(&[Range::new(0, P)], &[Range::new(0, 1)]).is_empty());
    }

    #[test]
    fn runs_are_aligned_to_their_size_and_come_back_whole() {
        let mut frames = Frames::new(&[Range::new(3 * P, 3 * P + 64 * P)]);
        assert_eq!(frames.free(), 64);
        let run = frames.take(32).unwrap();
        assert!(run.is_aligned(32 * P));
        let single = frames.take(1).unwrap();
        assert_eq!(frames.free(), 31);
        assert_eq!(frames.take(32), None);
        frames.give(run, 32);
        frames.give(single, 1);
        assert_eq!(frames.free(), 64);
        assert_eq!(frames.take(32), Some(run));
    }

    #[test]
    fn odd_requests_get_nothing() {
        let mut frames = Frames::new(&[Range::new(P, 9 * P)]);
        assert_eq!(
            (frames.take(0), frames.take(3), frames.take(64)),
            (None, None, None)
        );
        assert_eq!(frames.free(), 8);
    }
}
