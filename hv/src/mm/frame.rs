//! Frames: which physical pages are free.
//!
//! Built once from the machine's memory map less what is taken already, then
//! a buddy allocator: a VM's RAM comes in blocks as large as they get, so
//! that it can be mapped in large blocks too.

use super::addr::{Hpa, PAGE_BYTES, PAGE_SHIFT};
use alloc::vec::Vec;
use buddy_system_allocator::FrameAllocator;
use core::alloc::Layout;
use spin::Mutex;

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
        Self::new(page_from(self.start), self.end / PAGE_BYTES * PAGE_BYTES)
    }

    /// The whole pages that it touches.
    #[must_use]
    pub const fn outer_pages(self) -> Self {
        Self::new(self.start / PAGE_BYTES * PAGE_BYTES, page_from(self.end))
    }
}

/// Where the first whole page from `at` on begins; in the last page of the
/// address space, where that ends.
const fn page_from(at: u64) -> u64 {
    match at.checked_next_multiple_of(PAGE_BYTES) {
        Some(start) => start,
        None => u64::MAX,
    }
}

/// The whole pages of `ram` that no range of `taken` touches, by rising
/// address, none empty, and each once even where firmware names it twice.
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
    free.sort_by_key(|range| range.start);
    let mut covered = 0;
    for range in &mut free {
        range.start = range.start.max(covered);
        covered = covered.max(range.end);
    }
    free.retain(|range| range.bytes() > 0);
    free
}

/// Largest block: 2^34 pages, more than 48 bits of address hold.
const ORDERS: usize = 35;

/// The free frames of a node.
struct Node {
    number: u32,
    buddy: FrameAllocator<ORDERS>,
    free: u64,
    /// What it was given.
    ranges: Vec<Range>,
}

/// The free frames of the machine, by the nodes that its memory belongs to.
#[derive(Default)]
pub struct Frames {
    nodes: Vec<Node>,
    /// Pages that [`Frames::take`] leaves.
    kept: u64,
    /// For tests: after so many [`Frames::take`] gives none.
    #[cfg(test)]
    pub limit: Option<u64>,
}

/// The free frames of the machine that this runs on, once they are known.
pub static FRAMES: Mutex<Option<Frames>> = Mutex::new(None);

impl Frames {
    /// Frames of these ranges of node 0, as [`free_ranges`] gives them.
    #[must_use]
    pub fn new(ranges: &[Range]) -> Self {
        let mut frames = Self::default();
        frames.add(ranges, &[]);
        frames
    }

    /// Adds ranges, as [`free_ranges`] gives them; `nodes` says which node a
    /// part of the address space belongs to, and the rest is node 0's.
    pub fn add(&mut self, ranges: &[Range], nodes: &[(Range, u32)]) {
        for range in ranges {
            let mut rest = alloc::vec![*range];
            for &(place, number) in nodes {
                let inside = |range: &Range| {
                    let (start, end) = (range.start.max(place.start), range.end.min(place.end));
                    Range::new(start, end).inner_pages()
                };
                for part in rest.iter().map(inside) {
                    self.add_to(number, part);
                }
                rest = free_ranges(&rest, &[place]);
            }
            rest.iter().for_each(|part| self.add_to(0, *part));
        }
    }

    /// Adds a range to the node `number`.
    fn add_to(&mut self, number: u32, range: Range) {
        if range.bytes() == 0 {
            return;
        }
        let (first, end) = (range.start >> PAGE_SHIFT, range.end >> PAGE_SHIFT);
        let node = self.node(number);
        node.buddy.add_frame(first as usize, end as usize);
        node.free += end - first;
        node.ranges.push(range);
    }

    fn node(&mut self, number: u32) -> &mut Node {
        let known = self.nodes.iter().position(|node| node.number == number);
        let index = known.unwrap_or_else(|| {
            self.nodes.push(Node {
                number,
                buddy: FrameAllocator::new(),
                free: 0,
                ranges: Vec::new(),
            });
            self.nodes.len() - 1
        });
        &mut self.nodes[index]
    }

    /// Free pages.
    #[must_use]
    pub fn free(&self) -> u64 {
        self.nodes.iter().map(|node| node.free).sum()
    }

    /// The numbers of the nodes that have memory.
    #[must_use]
    pub fn nodes(&self) -> Vec<u32> {
        self.nodes.iter().map(|node| node.number).collect()
    }

    /// Keeps the last `pages` free pages for [`Frames::take_kept`].
    pub const fn keep(&mut self, pages: u64) {
        self.kept = pages;
    }

    /// Free pages that [`Frames::take`] may give.
    #[must_use]
    pub fn to_take(&self) -> u64 {
        self.free().saturating_sub(self.kept)
    }

    /// Takes `pages` contiguous pages of any node, a power of two, aligned to
    /// their size; their content is whatever it was. `None` where there is no
    /// such run, or only what is kept, or for 0 or another number.
    pub fn take(&mut self, pages: u64) -> Option<Hpa> {
        self.may_take(pages).then(|| self.take_kept(pages))?
    }

    /// Takes pages as [`Frames::take`] does, of node `number` only.
    pub fn take_of(&mut self, number: u32, pages: u64) -> Option<Hpa> {
        self.may_take(pages).then_some(())?;
        let node = self.nodes.iter_mut().find(|node| node.number == number);
        node?.take(pages)
    }

    /// Takes pages as [`Frames::take`] does, of those that are kept too.
    pub fn take_kept(&mut self, pages: u64) -> Option<Hpa> {
        self.nodes.iter_mut().find_map(|node| node.take(pages))
    }

    fn may_take(&mut self, pages: u64) -> bool {
        #[cfg(test)]
        if let Some(limit) = &mut self.limit {
            if *limit == 0 {
                return false;
            }
            *limit -= 1;
        }
        pages <= self.to_take()
    }

    /// Gives back `pages` pages at `at`, as [`Frames::take`] gave them.
    pub fn give(&mut self, at: Hpa, pages: u64) {
        let (node, layout) = (self.node_of(at), layout(pages));
        if let (Some(node), Some(layout)) = (node, layout) {
            let frame = (at.get() >> PAGE_SHIFT) as usize;
            node.buddy.dealloc_aligned(frame, layout);
            node.free += pages;
        }
    }

    /// The node that has given the frame at `at`.
    fn node_of(&mut self, at: Hpa) -> Option<&mut Node> {
        let holds = |range: &Range| (range.start..range.end).contains(&at.get());
        let mut nodes = self.nodes.iter_mut();
        nodes.find(|node| node.ranges.iter().any(holds))
    }
}

impl Node {
    fn take(&mut self, pages: u64) -> Option<Hpa> {
        let frame = self.buddy.alloc_aligned(layout(pages)?)?;
        self.free -= pages;
        Some(Hpa::new((frame as u64) << PAGE_SHIFT))
    }
}

/// The layout, counted in pages, of an aligned run.
fn layout(pages: u64) -> Option<Layout> {
    let pages = usize::try_from(pages).ok()?;
    pages
        .is_power_of_two()
        .then(|| Layout::from_size_align(pages, pages).ok())?
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
    fn what_is_named_twice_is_there_once() {
        let ram = [
            Range::new(4 * P, 12 * P),
            Range::new(0, 6 * P),
            Range::new(8 * P, 9 * P),
            Range::new(4 * P, 12 * P),
        ];
        let free = free_ranges(&ram, &[]);
        assert_eq!(free, [Range::new(0, 6 * P), Range::new(6 * P, 12 * P)]);
    }

    #[test]
    fn the_address_space_has_an_end() {
        let last = u64::MAX - P + 1;
        assert_eq!(free_ranges(&[Range::new(u64::MAX - 1, u64::MAX)], &[]), []);
        let ram = [Range::new(last - P, u64::MAX)];
        assert_eq!(free_ranges(&ram, &[]), [Range::new(last - P, last)]);
        assert_eq!(free_ranges(&ram, &[Range::new(0, u64::MAX)]), []);
        let mut frames = Frames::default();
        frames.add(&[Range::new(P, 2 * P)], &[(Range::new(P, u64::MAX), 1)]);
        assert_eq!(frames.take_of(1, 1), Some(Hpa::new(P)));
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

    #[test]
    fn frames_belong_to_their_nodes() {
        // Node 1 as on boards of several sockets: above 2⁴⁴.
        let high = 1 << 44;
        let nodes = [
            (Range::new(0, 8 * P), 0),
            (Range::new(high, high + 8 * P), 1),
        ];
        let mut frames = Frames::default();
        frames.add(
            &[Range::new(0, 8 * P), Range::new(high, high + 4 * P)],
            &nodes,
        );
        assert_eq!((frames.free(), frames.nodes()), (12, vec![0, 1]));
        let far = frames.take_of(1, 4).unwrap();
        assert_eq!(far, Hpa::new(high));
        assert_eq!((frames.take_of(1, 1), frames.take_of(2, 1)), (None, None));
        assert!(frames.take(8).is_some());
        frames.give(far, 4);
        assert_eq!((frames.take(4), frames.free()), (Some(far), 0));
    }

    #[test]
    fn what_is_kept_is_only_for_those_who_ask_for_it() {
        let mut frames = Frames::new(&[Range::new(P, 17 * P)]);
        frames.keep(4);
        assert_eq!((frames.free(), frames.to_take()), (16, 12));
        let taken = frames.take(8).unwrap();
        assert_eq!((frames.take(8), frames.take_of(0, 8)), (None, None));
        assert!(frames.take_of(0, 4).is_some() && frames.take(1).is_none());
        assert!(frames.take_kept(2).is_some() && frames.take(1).is_none());
        frames.give(taken, 8);
        assert_eq!((frames.free(), frames.to_take()), (10, 6));
    }

    #[test]
    fn what_no_node_claims_is_node_0_s() {
        let mut frames = Frames::default();
        let nodes = [(Range::new(2 * P, 4 * P), 3)];
        frames.add(&[Range::new(0, 8 * P)], &nodes);
        assert_eq!(frames.take_of(3, 2), Some(Hpa::new(2 * P)));
        assert_eq!(frames.take_of(3, 1), None);
        assert_eq!(frames.take_of(0, 4), Some(Hpa::new(4 * P)));
        assert_eq!(frames.free(), 2);
    }
}
