//! Second-stage tables: guest physical to host physical addresses.
//!
//! Three levels with 16 KiB pages: a root whose entries cover 64 GiB, a
//! directory whose entries cover 32 MiB (one block, a pair of 16 MiB pages
//! in the TLB), and a table of pages. The root is wide enough for the whole
//! guest physical space, so that no address aliases another one. A
//! directory's entry is never 0: what isn't mapped leads to a shared table
//! of absent pages, since the walker would take 0 for an address.
//!
//! A change that takes something away, or that a TLB may hold as absent,
//! returns what has to be invalidated; until the caller has done so on every
//! CPU the old mapping may still be in use, and tables that fell out of use
//! are kept until [`Stage2::reclaim`].
//!
//! Source of the walk: *LoongArch Reference Manual, Volume 1*, section 5.4.5.

use super::addr::{Gpa, Hpa, PAGE_BYTES, PAGE_SHIFT};
use super::pte::{Access, Pte};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;
use core::sync::atomic::{Ordering, fence};

/// Index bits of a table of one page: 2048 entries of 8 bytes.
pub const TABLE_BITS: u32 = PAGE_SHIFT - 3;
/// Address bits below a directory's entry.
pub const BLOCK_SHIFT: u32 = PAGE_SHIFT + TABLE_BITS;
/// Bytes of a block: 32 MiB.
pub const BLOCK_BYTES: u64 = 1 << BLOCK_SHIFT;
/// Address bits below a root's entry.
pub const ROOT_SHIFT: u32 = BLOCK_SHIFT + TABLE_BITS;

/// Where tables come from and how they are read and written.
pub trait TableSource {
    /// Takes `pages` contiguous pages, a power of two, aligned to their
    /// size, of any content. `None` where there are none left.
    fn take(&mut self, pages: u64) -> Option<Hpa>;
    /// Gives back what `take` gave.
    fn give(&mut self, table: Hpa, pages: u64);
    /// Reads the 8 bytes at `at`, within a table.
    fn read(&self, at: Hpa) -> u64;
    /// Writes the 8 bytes at `at`, within a table, in one access.
    fn write(&mut self, at: Hpa, value: u64);
}

impl<S: TableSource + ?Sized> TableSource for Box<S> {
    fn take(&mut self, pages: u64) -> Option<Hpa> {
        (**self).take(pages)
    }

    fn give(&mut self, table: Hpa, pages: u64) {
        (**self).give(table, pages);
    }

    fn read(&self, at: Hpa) -> u64 {
        (**self).read(at)
    }

    fn write(&mut self, at: Hpa, value: u64) {
        (**self).write(at, value);
    }
}

/// Why a change was refused; nothing has changed then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapError {
    /// An address or the length isn't a multiple of 16 KiB, or is 0.
    Unaligned,
    /// Beyond the guest physical space, or beyond the host's 48 bits.
    OutOfRange,
    /// Something in the range is mapped already.
    Mapped,
    /// No frame left for a table. A vCPU that ran meanwhile may have seen
    /// part of the range: invalidate everything if one did.
    OutOfFrames,
}

/// What every CPU's TLB must forget before a change counts as done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a TLB may still hold the old mapping"]
pub enum Invalidate {
    /// The pair of pages that holds this address.
    Pair(Gpa),
    /// Everything of this VM.
    All,
}

/// What an address leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Translation {
    /// The host's address of the very byte.
    pub hpa: Hpa,
    /// What the guest may do there.
    pub access: Access,
    /// Whether a block maps it.
    pub block: bool,
}

/// The tables of one VM.
pub struct Stage2<S: TableSource> {
    source: S,
    root: Hpa,
    no_pages: Hpa,
    no_tables: Hpa,
    gpa_bits: u32,
    retired: Vec<Hpa>,
}

impl<S: TableSource> fmt::Debug for Stage2<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { root, gpa_bits, .. } = self;
        write!(f, "Stage2 {{ root: {root}, gpa_bits: {gpa_bits} }}")
    }
}

/// A change to the leaves of a range.
#[derive(Clone, Copy)]
enum Change {
    Remove,
    Protect(Access),
}

impl<S: TableSource> Stage2<S> {
    /// Tables for `gpa_bits` bits of guest physical address (37 to 48), in
    /// which nothing is mapped.
    ///
    /// # Errors
    /// [`MapError::OutOfRange`] for another width, [`MapError::OutOfFrames`].
    pub fn new(source: S, gpa_bits: u32) -> Result<Self, MapError> {
        if !(ROOT_SHIFT + 1..=48).contains(&gpa_bits) {
            return Err(MapError::OutOfRange);
        }
        let mut new = Self {
            source,
            root: Hpa::new(0),
            no_pages: Hpa::new(0),
            no_tables: Hpa::new(0),
            gpa_bits,
            retired: Vec::new(),
        };
        new.no_pages = new.table(1, Pte::ABSENT)?;
        new.no_tables = new.table(1, Pte::table(new.no_pages))?;
        new.root = new.table(new.root_pages(), Pte::table(new.no_tables))?;
        Ok(new)
    }

    /// The root, for CSR.PGDL.
    #[must_use]
    pub const fn root(&self) -> Hpa {
        self.root
    }

    /// Index bits of the root, for PWCL's directory 2.
    #[must_use]
    pub const fn root_bits(&self) -> u32 {
        self.gpa_bits - ROOT_SHIFT
    }

    /// Maps `bytes` at `gpa` to `hpa`, in blocks where both allow it.
    ///
    /// # Errors
    /// See [`MapError`].
    pub fn map(
        &mut self,
        gpa: Gpa,
        hpa: Hpa,
        bytes: u64,
        access: Access,
    ) -> Result<Invalidate, MapError> {
        // What the caller has put there is seen by whoever sees the mapping.
        fence(Ordering::Release);
        self.check(gpa, bytes)?;
        let host_end = hpa.checked_add(bytes).ok_or(MapError::OutOfRange)?;
        if !hpa.is_aligned(PAGE_BYTES) {
            return Err(MapError::Unaligned);
        }
        if host_end.get() > 1 << 48 {
            return Err(MapError::OutOfRange);
        }
        if self.any_mapped(gpa, bytes) {
            return Err(MapError::Mapped);
        }
        let mut done = 0;
        while done < bytes {
            let (at, to) = (Gpa::new(gpa.get() + done), Hpa::new(hpa.get() + done));
            match self.map_one(at, to, bytes - done, access) {
                Ok(step) => done += step,
                Err(error) => {
                    // Named in the errors: the caller invalidates.
                    let _ = self.change(gpa, done, Change::Remove)?;
                    return Err(error);
                }
            }
        }
        Ok(scope(gpa, bytes))
    }

    /// Takes `bytes` at `gpa` away; what isn't mapped stays so.
    ///
    /// # Errors
    /// [`MapError::OutOfFrames`] where a block had to be split and couldn't
    /// be; the part before it is unmapped.
    pub fn unmap(&mut self, gpa: Gpa, bytes: u64) -> Result<Invalidate, MapError> {
        self.check(gpa, bytes)?;
        self.change(gpa, bytes, Change::Remove)
    }

    /// Changes what a guest may do with `bytes` at `gpa`; what isn't mapped
    /// stays so.
    ///
    /// # Errors
    /// As [`Stage2::unmap`].
    pub fn protect(
        &mut self,
        gpa: Gpa,
        bytes: u64,
        access: Access,
    ) -> Result<Invalidate, MapError> {
        self.check(gpa, bytes)?;
        self.change(gpa, bytes, Change::Protect(access))
    }

    /// Gives back the tables that fell out of use. The caller has carried
    /// out every [`Invalidate`] returned so far, on every CPU.
    pub fn reclaim(&mut self) {
        while let Some(table) = self.retired.pop() {
            self.source.give(table, 1);
        }
    }

    /// What `gpa` leads to, `None` where nothing is mapped.
    #[must_use]
    pub fn translate(&self, gpa: Gpa) -> Option<Translation> {
        if gpa.get() >> self.gpa_bits != 0 {
            return None;
        }
        let directory = self.source.read(self.root_entry(gpa));
        let entry = Pte::new(
            self.source
                .read(entry_at(Pte::new(directory), gpa, BLOCK_SHIFT)),
        );
        let (leaf, bytes) = if entry.is_block() {
            (entry, BLOCK_BYTES)
        } else {
            let page = self.source.read(entry_at(entry, gpa, PAGE_SHIFT));
            (Pte::new(page), PAGE_BYTES)
        };
        leaf.is_valid().then(|| Translation {
            hpa: Hpa::new(leaf.address().get() | gpa.get() & (bytes - 1)),
            access: leaf.access(),
            block: entry.is_block(),
        })
    }

    fn root_pages(&self) -> u64 {
        (8u64 << self.root_bits()).div_ceil(PAGE_BYTES)
    }

    fn root_entry(&self, gpa: Gpa) -> Hpa {
        Hpa::new(self.root.get() + (gpa.get() >> ROOT_SHIFT) * 8)
    }

    fn check(&self, gpa: Gpa, bytes: u64) -> Result<(), MapError> {
        if bytes == 0 || !gpa.is_aligned(PAGE_BYTES) || !bytes.is_multiple_of(PAGE_BYTES) {
            return Err(MapError::Unaligned);
        }
        match gpa.checked_add(bytes) {
            Some(end) if end.get() <= 1 << self.gpa_bits => Ok(()),
            _ => Err(MapError::OutOfRange),
        }
    }

    fn any_mapped(&self, gpa: Gpa, bytes: u64) -> bool {
        let mut done = 0;
        while done < bytes {
            let at = Gpa::new(gpa.get() + done);
            let entry = self.directory_entry(at);
            if entry.is_block() || self.translate(at).is_some() {
                return true;
            }
            let step = if entry.address() == self.no_pages {
                BLOCK_BYTES - at.get() % BLOCK_BYTES
            } else {
                PAGE_BYTES
            };
            done += step;
        }
        false
    }

    /// The directory's entry for `gpa`, which lies in the guest's space.
    fn directory_entry(&self, gpa: Gpa) -> Pte {
        let directory = self.source.read(self.root_entry(gpa));
        Pte::new(
            self.source
                .read(entry_at(Pte::new(directory), gpa, BLOCK_SHIFT)),
        )
    }

    /// A new table of `pages` pages, each entry `fill`.
    fn table(&mut self, pages: u64, fill: Pte) -> Result<Hpa, MapError> {
        let table = self.source.take(pages).ok_or(MapError::OutOfFrames)?;
        for offset in (0..pages * PAGE_BYTES).step_by(8) {
            self.source
                .write(Hpa::new(table.get() + offset), fill.get());
        }
        Ok(table)
    }

    /// Maps one block or one page; returns its bytes.
    fn map_one(&mut self, gpa: Gpa, hpa: Hpa, bytes: u64, access: Access) -> Result<u64, MapError> {
        let at = self.directory_entry_for_writing(gpa)?;
        let block = gpa.is_aligned(BLOCK_BYTES) && hpa.is_aligned(BLOCK_BYTES);
        let table = Pte::new(self.source.read(at));
        if block && bytes >= BLOCK_BYTES {
            self.source.write(at, Pte::block(hpa, access).get());
            self.retire(table);
            return Ok(BLOCK_BYTES);
        }
        let table = self.page_table(at, table)?;
        let page = Pte::page(hpa, access);
        self.source
            .write(entry_at(table, gpa, PAGE_SHIFT), page.get());
        Ok(PAGE_BYTES)
    }

    /// Where the directory's entry for `gpa` is, in a directory of its own.
    fn directory_entry_for_writing(&mut self, gpa: Gpa) -> Result<Hpa, MapError> {
        let at = self.root_entry(gpa);
        let mut directory = Pte::new(self.source.read(at));
        if directory.address() == self.no_tables {
            directory = Pte::table(self.table(1, Pte::table(self.no_pages))?);
            fence(Ordering::Release);
            self.source.write(at, directory.get());
        }
        Ok(entry_at(directory, gpa, BLOCK_SHIFT))
    }

    /// The page table that the directory's entry at `at`, now `entry`, leads
    /// to; made first where there is none, or where a block must be split.
    fn page_table(&mut self, at: Hpa, entry: Pte) -> Result<Pte, MapError> {
        if !entry.is_block() && entry.address() != self.no_pages {
            return Ok(entry);
        }
        let table = self.table(1, Pte::ABSENT)?;
        if entry.is_block() {
            for offset in (0..BLOCK_BYTES).step_by(PAGE_BYTES as usize) {
                let page = Pte::page(Hpa::new(entry.address().get() + offset), entry.access());
                let slot = Hpa::new(table.get() + offset / PAGE_BYTES * 8);
                self.source.write(slot, page.get());
            }
        }
        // One store: a walk meets the old entry or the whole new table.
        fence(Ordering::Release);
        self.source.write(at, Pte::table(table).get());
        Ok(Pte::table(table))
    }

    fn retire(&mut self, entry: Pte) {
        if !entry.is_block() && entry.address() != self.no_pages {
            self.retired.push(entry.address());
        }
    }

    fn change(&mut self, gpa: Gpa, bytes: u64, change: Change) -> Result<Invalidate, MapError> {
        let mut done = 0;
        let mut split = false;
        while done < bytes {
            let at = Gpa::new(gpa.get() + done);
            let entry = self.directory_entry(at);
            let to_end = BLOCK_BYTES - at.get() % BLOCK_BYTES;
            let whole = to_end == BLOCK_BYTES && bytes - done >= BLOCK_BYTES;
            if !entry.is_block() && entry.address() == self.no_pages {
                done += to_end;
            } else if whole {
                self.change_directory_entry(at, entry, change)?;
                done += BLOCK_BYTES;
            } else {
                split |= entry.is_block();
                self.change_page(at, entry, change)?;
                done += PAGE_BYTES;
            }
        }
        Ok(if split {
            Invalidate::All
        } else {
            scope(gpa, bytes)
        })
    }

    /// Changes all that one directory's entry covers.
    fn change_directory_entry(
        &mut self,
        gpa: Gpa,
        entry: Pte,
        change: Change,
    ) -> Result<(), MapError> {
        let at = self.directory_entry_for_writing(gpa)?;
        match change {
            Change::Remove => {
                self.source.write(at, Pte::table(self.no_pages).get());
                self.retire(entry);
            }
            Change::Protect(access) if entry.is_block() => {
                self.source
                    .write(at, Pte::block(entry.address(), access).get());
            }
            Change::Protect(_) => {
                for offset in (0..BLOCK_BYTES).step_by(PAGE_BYTES as usize) {
                    self.change_page(Gpa::new(gpa.get() + offset), entry, change)?;
                }
            }
        }
        Ok(())
    }

    fn change_page(&mut self, gpa: Gpa, entry: Pte, change: Change) -> Result<(), MapError> {
        let at = self.directory_entry_for_writing(gpa)?;
        let slot = entry_at(self.page_table(at, entry)?, gpa, PAGE_SHIFT);
        let page = Pte::new(self.source.read(slot));
        if page.is_valid() {
            let new = match change {
                Change::Remove => Pte::ABSENT,
                Change::Protect(access) => Pte::page(page.address(), access),
            };
            self.source.write(slot, new.get());
        }
        Ok(())
    }
}

impl<S: TableSource> Drop for Stage2<S> {
    /// Gives every table back: the owner has stopped the VM on every CPU.
    fn drop(&mut self) {
        for (table, pages) in [
            (self.root, self.root_pages()),
            (self.no_tables, 1),
            (self.no_pages, 1),
        ] {
            if table == Hpa::new(0) {
                continue;
            }
            if table == self.root {
                self.give_directories();
            }
            self.source.give(table, pages);
        }
        self.reclaim();
    }
}

impl<S: TableSource> Stage2<S> {
    fn give_directories(&mut self) {
        for index in 0..1u64 << self.root_bits() {
            let directory =
                Pte::new(self.source.read(Hpa::new(self.root.get() + index * 8))).address();
            if directory == self.no_tables {
                continue;
            }
            for offset in (0..PAGE_BYTES).step_by(8) {
                let entry = Pte::new(self.source.read(Hpa::new(directory.get() + offset)));
                self.retire(entry);
            }
            self.source.give(directory, 1);
        }
    }
}

/// Where the entry for `gpa` stands in `table`, whose entries cover
/// 2^`shift` bytes each.
fn entry_at(table: Pte, gpa: Gpa, shift: u32) -> Hpa {
    let index = gpa.get() >> shift & ((1 << TABLE_BITS) - 1);
    Hpa::new(table.address().get() + index * 8)
}

/// What a change of `bytes` at `gpa` invalidates.
fn scope(gpa: Gpa, bytes: u64) -> Invalidate {
    let pair = gpa.align_down(2 * PAGE_BYTES);
    if gpa.get() + bytes <= pair.get() + 2 * PAGE_BYTES {
        Invalidate::Pair(pair)
    } else {
        Invalidate::All
    }
}

#[cfg(test)]
mod tests;
