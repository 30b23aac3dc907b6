//! A guest's memory, as the hypervisor reaches it for the guest.
//!
//! An address or length that a guest chose becomes a [`GuestBuf`] once, by a
//! check against the VM's RAM; from there on it can't leave it.

use super::addr::{Gpa, Hpa, PAGE_BYTES, overlap};
use super::phys::PhysMem;
use alloc::vec::Vec;

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

/// Why regions don't make a VM's RAM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RamError {
    /// A region is empty, unaligned, or ends beyond 2⁶⁴.
    Malformed(RamRegion),
    /// Two regions share a guest physical address.
    Overlap(RamRegion, RamRegion),
}

/// The RAM of a VM.
#[derive(Debug, Default)]
pub struct GuestRam {
    regions: Vec<RamRegion>,
}

impl GuestRam {
    /// RAM of these regions, in any order.
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
        Ok(Self { regions })
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
    /// they adjoin; false where the RAM ends before that.
    #[must_use]
    pub fn write(&self, memory: &mut impl PhysMem, mut gpa: Gpa, mut from: &[u8]) -> bool {
        while !from.is_empty() {
            let next = self.regions.iter().find_map(|region| {
                let offset = gpa.offset_from(region.gpa)?;
                let left = region.bytes.checked_sub(offset)?;
                (left > 0).then_some(left)
            });
            let bytes = next.map_or(0, |left| left.min(from.len() as u64));
            let Some(buffer) = GuestBuf::new(self, gpa, bytes) else {
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
    /// The `bytes` bytes at `gpa`; `None` where they aren't all RAM of one
    /// region.
    #[must_use]
    pub fn new(ram: &GuestRam, gpa: Gpa, bytes: u64) -> Option<Self> {
        let hpa = ram.find(gpa, bytes)?;
        Some(Self { hpa, bytes })
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
}
