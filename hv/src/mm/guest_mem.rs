//! A guest's memory, as the hypervisor reaches it for the guest.
//!
//! An address or length that a guest chose becomes a [`GuestBuf`] once, by a
//! check against the VM's RAM; from there on it can't leave it.
//!
//! What a VM gets of RAM has had other users. Clearing gigabytes before it
//! starts would be most of what a start takes, so whole blocks are cleared
//! when they are first used, by the guest or for it: until then they are
//! fresh, and mapped nowhere.

use super::addr::{Gpa, Hpa, PAGE_BYTES, overlap};
use super::phys::PhysMem;
use super::stage2::BLOCK_BYTES;
use alloc::vec::Vec;
use spin::Mutex;

/// A range of a VM's RAM that is contiguous in the host too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RamRegion {
    /// Where the guest sees it.
    pub gpa: Gpa,
    /// Where it is.
    pub hpa: Hpa,
    /// Its length, a multiple of 16 KiB.
    pub bytes: u64,
}

impl RamRegion {
    /// Its parts between multiples of a block's size in the guest's space.
    fn pieces(self) -> impl Iterator<Item = Self> {
        let mut done = 0;
        core::iter::from_fn(move || {
            let left = self.bytes.checked_sub(done).filter(|&left| left > 0)?;
            let gpa = self.gpa.checked_add(done)?;
            let hpa = self.hpa.checked_add(done)?;
            let bytes = left.min(BLOCK_BYTES - gpa.get() % BLOCK_BYTES);
            done += bytes;
            Some(Self { gpa, hpa, bytes })
        })
    }

    /// Whether one entry of the second stage maps it, so that mapping it
    /// takes no table.
    const fn is_block(&self) -> bool {
        self.bytes == BLOCK_BYTES
            && self.gpa.is_aligned(BLOCK_BYTES)
            && self.hpa.is_aligned(BLOCK_BYTES)
    }

    fn contains(&self, gpa: Gpa) -> bool {
        gpa.offset_from(self.gpa)
            .is_some_and(|offset| offset < self.bytes)
    }
}

/// Why regions don't make a VM's RAM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RamError {
    /// A region is empty, unaligned, or ends beyond 2⁶⁴.
    Malformed(RamRegion),
    /// Two regions share a guest physical address.
    Overlap(RamRegion, RamRegion),
    /// The heap has no room for what is noted of each block.
    NoHeap,
}

/// The RAM of a VM.
#[derive(Debug, Default)]
pub struct GuestRam {
    regions: Vec<RamRegion>,
    /// Blocks that nobody has used yet, in any order.
    fresh: Mutex<Vec<RamRegion>>,
}

impl GuestRam {
    /// RAM of these regions, in any order, which is in use as it is.
    ///
    /// # Errors
    /// See [`RamError`].
    pub fn new(mut regions: Vec<RamRegion>) -> Result<Self, RamError> {
        for region in &regions {
            let aligned = region.gpa.is_aligned(PAGE_BYTES)
                && region.hpa.is_aligned(PAGE_BYTES)
                && region.bytes.is_multiple_of(PAGE_BYTES);
            let ends = region.gpa.checked_add(region.bytes).is_some()
                && region.hpa.checked_add(region.bytes).is_some();
            if region.bytes == 0 || !aligned || !ends {
                return Err(RamError::Malformed(*region));
            }
        }
        regions.sort_by_key(|region| region.gpa);
        for pair in regions.windows(2) {
            if let [a, b] = pair
                && overlap(a.gpa.get(), a.bytes, b.gpa.get(), b.bytes)
            {
                return Err(RamError::Overlap(*a, *b));
            }
        }
        let fresh = Mutex::default();
        Ok(Self { regions, fresh })
    }

    /// RAM of these regions, in any order, that holds what others left:
    /// blocks are cleared when they are first used, what is no whole block is
    /// cleared now.
    ///
    /// # Errors
    /// See [`RamError`].
    pub fn uncleared(regions: Vec<RamRegion>, memory: &mut impl PhysMem) -> Result<Self, RamError> {
        let ram = Self::new(regions)?;
        let mut fresh = Vec::new();
        let blocks = ram.blocks().count();
        fresh
            .try_reserve_exact(blocks)
            .map_err(|_| RamError::NoHeap)?;
        for piece in ram.regions.iter().flat_map(|region| region.pieces()) {
            if piece.is_block() {
                fresh.push(piece);
            } else {
                memory.zero(piece.hpa, piece.bytes);
            }
        }
        *ram.fresh.lock() = fresh;
        Ok(ram)
    }

    /// Its whole blocks, by rising guest address.
    pub fn blocks(&self) -> impl Iterator<Item = RamRegion> {
        let pieces = self.regions.iter().flat_map(|region| region.pieces());
        pieces.filter(RamRegion::is_block)
    }

    /// The blocks that nobody has used yet.
    #[cfg(test)]
    #[must_use]
    pub fn fresh(&self) -> Vec<RamRegion> {
        self.fresh.lock().clone()
    }

    /// Does `act` with each block that nobody has used yet.
    ///
    /// # Errors
    /// The first of `act`'s.
    pub fn each_fresh<E>(&self, act: impl FnMut(&RamRegion) -> Result<(), E>) -> Result<(), E> {
        self.fresh.lock().iter().try_for_each(act)
    }

    /// If `gpa` lies in a fresh block, `begin` is to clear and map it: where
    /// it gives true the block is in use from then on. Whoever else uses the
    /// block first waits until `begin` is done. Whether it was fresh.
    pub fn first_use(&self, gpa: Gpa, begin: impl FnOnce(&RamRegion) -> bool) -> bool {
        let mut fresh = self.fresh.lock();
        let found = fresh.iter().position(|block| block.contains(gpa));
        let Some(block) = found.and_then(|index| Some((index, fresh.get(index)?))) else {
            return false;
        };
        let (index, block) = block;
        if begin(block) {
            fresh.swap_remove(index);
        }
        true
    }

    /// Clears the fresh blocks that `bytes` bytes at `gpa` reach into, before
    /// the hypervisor writes there. No guest may run yet: they aren't mapped.
    fn prepare(&self, memory: &mut impl PhysMem, gpa: Gpa, bytes: u64) {
        self.fresh.lock().retain(|block| {
            let reached = overlap(gpa.get(), bytes, block.gpa.get(), block.bytes);
            if reached {
                memory.zero(block.hpa, block.bytes);
            }
            !reached
        });
    }

    /// The `bytes` bytes at `gpa`, for the hypervisor to write before the
    /// guest runs; `None` where they aren't all RAM of one region.
    #[must_use]
    pub fn buffer(&self, memory: &mut impl PhysMem, gpa: Gpa, bytes: u64) -> Option<GuestBuf> {
        let buffer = GuestBuf::new(self, gpa, bytes)?;
        self.prepare(memory, gpa, bytes);
        Some(buffer)
    }

    /// The regions, by rising guest address.
    #[must_use]
    pub fn regions(&self) -> &[RamRegion] {
        &self.regions
    }

    /// The host's address of `bytes` bytes at `gpa`, where they all lie in
    /// one region.
    #[must_use]
    pub fn find(&self, gpa: Gpa, bytes: u64) -> Option<Hpa> {
        self.regions.iter().find_map(|region| {
            let offset = gpa.offset_from(region.gpa)?;
            let left = region.bytes.checked_sub(offset)?;
            (left > 0 && bytes <= left).then(|| region.hpa.checked_add(offset))?
        })
    }

    /// Copies `from` to `gpa` and on, from one region into the next where
    /// they adjoin, before the guest runs; false where the RAM ends before
    /// that.
    #[must_use]
    pub fn write(&self, memory: &mut impl PhysMem, mut gpa: Gpa, mut from: &[u8]) -> bool {
        while !from.is_empty() {
            let next = self.regions.iter().find_map(|region| {
                let offset = gpa.offset_from(region.gpa)?;
                let left = region.bytes.checked_sub(offset)?;
                (left > 0).then_some(left)
            });
            let bytes = next.map_or(0, |left| left.min(from.len() as u64));
            let Some(buffer) = self.buffer(memory, gpa, bytes) else {
                return false;
            };
            let (_, rest) = from.split_at(buffer.write(memory, from));
            let Some(end) = gpa.checked_add(bytes) else {
                return rest.is_empty();
            };
            (gpa, from) = (end, rest);
        }
        true
    }
}

/// Bytes of a guest's RAM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GuestBuf {
    hpa: Hpa,
    bytes: u64,
}

impl GuestBuf {
    /// The `bytes` bytes at `gpa`, of blocks in use; `None` where they aren't
    /// all RAM of one region.
    #[must_use]
    pub fn new(ram: &GuestRam, gpa: Gpa, bytes: u64) -> Option<Self> {
        let hpa = ram.find(gpa, bytes)?;
        Some(Self { hpa, bytes })
    }

    /// The `bytes` bytes at `offset` of the page of a guest's RAM that is at
    /// `page`; `None` where they don't lie in it.
    #[must_use]
    pub fn within_page(page: Hpa, offset: u64, bytes: u64) -> Option<Self> {
        let page = Self {
            hpa: page,
            bytes: PAGE_BYTES,
        };
        page.part(offset, bytes)
    }

    /// The `bytes` bytes at `offset` of the buffer; `None` where it ends
    /// before.
    #[must_use]
    pub fn part(self, offset: u64, bytes: u64) -> Option<Self> {
        let left = self.bytes.checked_sub(offset)?;
        let hpa = self.hpa.checked_add(offset)?;
        (bytes <= left).then_some(Self { hpa, bytes })
    }

    /// Copies the buffer's start out. What `into` has beyond the buffer's
    /// length stays as it is; returns the bytes copied.
    pub fn read(self, memory: &impl PhysMem, into: &mut [u8]) -> usize {
        let (into, _) = into.split_at_mut(into.len().min(self.bytes as usize));
        memory.read(self.hpa, into);
        into.len()
    }

    /// Copies `from` in, as far as the buffer reaches; returns the bytes
    /// copied.
    pub fn write(self, memory: &mut impl PhysMem, from: &[u8]) -> usize {
        let (from, _) = from.split_at(from.len().min(self.bytes as usize));
        memory.write(self.hpa, from);
        from.len()
    }

    /// Sets the whole buffer to zero.
    pub fn zero(self, memory: &mut impl PhysMem) {
        memory.zero(self.hpa, self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Host memory from address `BASE`.
    struct Fake(Vec<u8>);

    const BASE: u64 = 0x4000_0000;

    impl PhysMem for Fake {
        fn read(&self, at: Hpa, into: &mut [u8]) {
            let start = (at.get() - BASE) as usize;
            into.copy_from_slice(&self.0[start..start + into.len()]);
        }

        fn write(&mut self, at: Hpa, from: &[u8]) {
            let start = (at.get() - BASE) as usize;
            self.0[start..start + from.len()].copy_from_slice(from);
        }

        fn zero(&mut self, at: Hpa, bytes: u64) {
            let start = (at.get() - BASE) as usize;
            self.0[start..start + bytes as usize].fill(0);
        }
    }

    fn region(gpa: u64, hpa: u64, bytes: u64) -> RamRegion {
        RamRegion {
            gpa: Gpa::new(gpa),
            hpa: Hpa::new(hpa),
            bytes,
        }
    }

    fn two_pages_apart() -> GuestRam {
        GuestRam::new(vec![
            region(0x8000_0000, BASE + PAGE_BYTES, PAGE_BYTES),
            region(0, BASE, PAGE_BYTES),
        ])
        .unwrap()
    }

    #[test]
    fn only_whole_ranges_in_one_region_are_found() {
        let ram = two_pages_apart();
        for (gpa, bytes, found) in [
            (0, PAGE_BYTES, Some(BASE)),
            (8, PAGE_BYTES - 8, Some(BASE + 8)),
            (8, PAGE_BYTES, None),
            (PAGE_BYTES, 0, None),
            (PAGE_BYTES, 1, None),
            (0x8000_0000, 1, Some(BASE + PAGE_BYTES)),
            (0x7fff_ffff, 1, None),
            (0x7fff_ffff, 2, None),
            (u64::MAX, 1, None),
            (1, u64::MAX, None),
        ] {
            assert_eq!(
                ram.find(Gpa::new(gpa), bytes),
                found.map(Hpa::new),
                "{gpa:#x}"
            );
        }
    }

    #[test]
    fn writes_go_on_in_the_next_region() {
        let ram = GuestRam::new(vec![
            region(PAGE_BYTES, BASE, PAGE_BYTES),
            region(0, BASE + PAGE_BYTES, PAGE_BYTES),
        ])
        .unwrap();
        let mut memory = Fake(vec![0; 2 * PAGE_BYTES as usize]);
        assert!(ram.write(&mut memory, Gpa::new(PAGE_BYTES - 2), &[1, 2, 3]));
        assert_eq!(memory.0[2 * PAGE_BYTES as usize - 2..], [1, 2]);
        assert_eq!(memory.0[..2], [3, 0]);
        assert!(!ram.write(&mut memory, Gpa::new(2 * PAGE_BYTES - 1), &[1, 2]));
        assert!(!ram.write(&mut memory, Gpa::new(u64::MAX), &[1, 2]));
        assert!(ram.write(&mut memory, Gpa::new(u64::MAX), &[]));
    }

    #[test]
    fn regions_that_make_no_sense_are_refused() {
        for bad in [
            region(0, BASE, 0),
            region(1, BASE, PAGE_BYTES),
            region(0, BASE + 1, PAGE_BYTES),
            region(0, BASE, 1),
            region(0u64.wrapping_sub(PAGE_BYTES), BASE, 2 * PAGE_BYTES),
        ] {
            assert_eq!(
                GuestRam::new(vec![bad]).unwrap_err(),
                RamError::Malformed(bad)
            );
        }
        let (a, b) = (
            region(0, BASE, 2 * PAGE_BYTES),
            region(PAGE_BYTES, BASE, PAGE_BYTES),
        );
        assert_eq!(
            GuestRam::new(vec![b, a]).unwrap_err(),
            RamError::Overlap(a, b)
        );
    }

    #[test]
    fn buffers_keep_to_their_length() {
        let ram = two_pages_apart();
        let mut memory = Fake(vec![0xff; 2 * PAGE_BYTES as usize]);
        let buffer = GuestBuf::new(&ram, Gpa::new(PAGE_BYTES - 4), 4).unwrap();
        assert_eq!(buffer.write(&mut memory, &[1, 2, 3, 4, 5, 6]), 4);
        let end = PAGE_BYTES as usize;
        assert_eq!(memory.0[end - 5..end + 1], [0xff, 1, 2, 3, 4, 0xff]);
        let mut out = [9; 6];
        assert_eq!(buffer.read(&memory, &mut out), 4);
        assert_eq!(out, [1, 2, 3, 4, 9, 9]);
        buffer.zero(&mut memory);
        assert_eq!(memory.0[end - 5..end + 1], [0xff, 0, 0, 0, 0, 0xff]);
        assert_eq!(GuestBuf::new(&ram, Gpa::new(PAGE_BYTES - 4), 5), None);
    }

    /// Memory that says what is cleared.
    struct Cleared(Vec<(u64, u64)>);

    impl PhysMem for Cleared {
        fn read(&self, _: Hpa, _: &mut [u8]) {}
        fn write(&mut self, _: Hpa, _: &[u8]) {}
        fn zero(&mut self, at: Hpa, bytes: u64) {
            self.0.push((at.get(), bytes));
        }
    }

    /// 1 page, 2 blocks and a half from 32 MiB - 16 KiB on; their frames are
    /// on boundaries of blocks when the guest's are. And a block whose frames
    /// are not.
    fn uncleared() -> (GuestRam, Cleared) {
        let mut memory = Cleared(Vec::new());
        let bytes = PAGE_BYTES + 5 * BLOCK_BYTES / 2;
        let regions = vec![
            region(
                BLOCK_BYTES - PAGE_BYTES,
                9 * BLOCK_BYTES - PAGE_BYTES,
                bytes,
            ),
            region(8 * BLOCK_BYTES, 20 * BLOCK_BYTES + PAGE_BYTES, BLOCK_BYTES),
        ];
        let ram = GuestRam::uncleared(regions, &mut memory).unwrap();
        (ram, memory)
    }

    #[test]
    fn what_is_no_whole_block_is_cleared_at_once() {
        let (ram, memory) = uncleared();
        let expected = [
            (9 * BLOCK_BYTES - PAGE_BYTES, PAGE_BYTES),
            (11 * BLOCK_BYTES, BLOCK_BYTES / 2),
            (20 * BLOCK_BYTES + PAGE_BYTES, BLOCK_BYTES),
        ];
        assert_eq!(memory.0, expected);
        let block = |n| region(n * BLOCK_BYTES, (8 + n) * BLOCK_BYTES, BLOCK_BYTES);
        assert_eq!(ram.fresh(), [block(1), block(2)]);
    }

    #[test]
    fn a_block_is_cleared_once_by_its_first_user() {
        let (ram, mut memory) = uncleared();
        memory.0.clear();
        let two = Gpa::new(3 * BLOCK_BYTES - 1);
        assert!(ram.first_use(two, |block| block.hpa == Hpa::new(10 * BLOCK_BYTES)));
        assert!(!ram.first_use(two, |_| panic!("it is in use")));
        // Where the first use fails the block stays as it was.
        let one = Gpa::new(BLOCK_BYTES);
        assert!(ram.first_use(one, |_| false));
        assert_eq!(ram.fresh().len(), 1);
        // One byte before it and one in it, written by the hypervisor.
        assert!(ram.write(&mut memory, Gpa::new(BLOCK_BYTES - 1), &[1, 2]));
        assert_eq!(memory.0, [(9 * BLOCK_BYTES, BLOCK_BYTES)]);
        assert!(ram.buffer(&mut memory, one, 8).is_some());
        assert!(!ram.first_use(one, |_| true));
        assert_eq!(memory.0.len(), 1);
        for outside in [0, 8 * BLOCK_BYTES, u64::MAX] {
            assert!(!ram.first_use(Gpa::new(outside), |_| true));
        }
    }
}
