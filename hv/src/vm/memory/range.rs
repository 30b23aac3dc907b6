//! Pages of RAM that a guest has named.

use crate::mm::addr::{Gpa, PAGE_BYTES};
use crate::mm::guest_mem::GuestRam;
use crate::mm::stage2::BLOCK_BYTES;

/// Whole pages of a VM's RAM, at least one and at most a block's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageRange {
    pub(super) gpa: Gpa,
    pub(super) bytes: u64,
}

impl PageRange {
    /// The `bytes` bytes at `gpa`, as a guest has named them; `None` where
    /// they aren't whole pages, more than a block's bytes, or not all RAM.
    #[must_use]
    pub fn new(ram: &GuestRam, gpa: u64, bytes: u64) -> Option<Self> {
        let gpa = Gpa::new(gpa);
        let whole = gpa.is_aligned(PAGE_BYTES) && bytes.is_multiple_of(PAGE_BYTES);
        let range = Self { gpa, bytes };
        let sized = whole && (1..=BLOCK_BYTES).contains(&bytes);
        (sized
            && range
                .pages()
                .all(|page| ram.find(page, PAGE_BYTES).is_some()))
        .then_some(range)
    }

    /// Its pages. An address that doesn't exist is the last one.
    pub(super) fn pages(self) -> impl Iterator<Item = Gpa> {
        let offsets = (0..self.bytes).step_by(PAGE_BYTES as usize);
        offsets.map(move |offset| self.gpa.checked_add(offset).unwrap_or(Gpa::new(u64::MAX)))
    }

    pub(super) fn contains(self, gpa: Gpa) -> bool {
        gpa.offset_from(self.gpa)
            .is_some_and(|offset| offset < self.bytes)
    }

    /// Its parts in one block each: two at most.
    pub(super) fn parts(self) -> impl Iterator<Item = Self> {
        let first = self.bytes.min(BLOCK_BYTES - self.gpa.get() % BLOCK_BYTES);
        let rest = self.gpa.checked_add(first).map(|gpa| Self {
            gpa,
            bytes: self.bytes - first,
        });
        let parts = [
            Some(Self {
                bytes: first,
                ..self
            }),
            rest,
        ];
        parts.into_iter().flatten().filter(|part| part.bytes > 0)
    }

    pub(super) fn is_block(self) -> bool {
        self.bytes == BLOCK_BYTES && self.gpa.is_aligned(BLOCK_BYTES)
    }
}
