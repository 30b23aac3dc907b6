//! Page tables, for the host's own mapped addresses, for second stages and,
//! as data, for guests' first stages.
//!
//! Source: *LoongArch Reference Manual, Volume 1*, section 5.4.5: directory
//! entries are table addresses; with bit 6 set a directory entry is a huge
//! page, whose global bit is bit 12.

use super::refill;
use crate::machine::{cached, phys_of};
use loongarch_isa::csr::{PWCH, PWCL};
use tock_registers::LocalRegisterCopy;

/// Table entry flags, as TLBELO has them.
pub mod flag {
    /// Valid.
    pub const V: u64 = 1;
    /// Writable.
    pub const D: u64 = 1 << 1;
    /// Usable at level 3.
    pub const PLV3: u64 = 3 << 2;
    /// Coherent cached.
    pub const CACHED: u64 = 1 << 4;
    /// A huge page, in a directory entry.
    pub const HUGE: u64 = 1 << 6;
    /// Low bits of a directory entry that mean nothing there.
    pub const NOT_HUGE: u64 = 0xfbf;
    /// Bits 11:7 of a page's entry, which are software's.
    pub const SOFTWARE: u64 = 0xf80;
    /// Not readable.
    pub const NR: u64 = 1 << 61;
    /// Not executable.
    pub const NX: u64 = 1 << 62;
    /// Only for exactly the entry's level.
    pub const RPLV: u64 = 1 << 63;
    /// Readable, writable, executable at level 0.
    pub const ALL: u64 = V | D | CACHED;
}

/// A page size with the walk that goes with it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Page size, as a power of two of bytes.
    pub page: u32,
    /// Index bits a level.
    width: u32,
    /// Directory levels above the tables of pages.
    directories: u32,
}

impl Shape {
    /// 16 KiB pages, 47 bits of address.
    pub const P16K: Shape = Shape {
        page: 14,
        width: 11,
        directories: 2,
    };
    /// 4 KiB pages, 48 bits of address.
    pub const P4K: Shape = Shape {
        page: 12,
        width: 9,
        directories: 3,
    };

    /// Bytes of a page and of a table.
    pub const fn page_bytes(self) -> u64 {
        1 << self.page
    }

    /// Lowest address bit of the index at `level`, 0 for tables of pages.
    pub const fn base(self, level: u32) -> u32 {
        self.page + self.width * level
    }

    /// Index of `address` at `level`.
    const fn index(self, address: u64, level: u32) -> usize {
        (address >> self.base(level) & ((1 << self.width) - 1)) as usize
    }

    /// PWCL for this shape. With two directories the upper one is number 3,
    /// as in Linux: number 2's base field is too narrow for it.
    pub fn pwcl(self) -> u64 {
        let width = u64::from(self.width);
        let mut value = LocalRegisterCopy::<u64, PWCL::Register>::new(0);
        value.write(
            PWCL::PTBASE.val(u64::from(self.page))
                + PWCL::PTWIDTH.val(width)
                + PWCL::DIR1_BASE.val(u64::from(self.base(1)))
                + PWCL::DIR1_WIDTH.val(width),
        );
        if self.directories == 3 {
            value
                .modify(PWCL::DIR2_BASE.val(u64::from(self.base(2))) + PWCL::DIR2_WIDTH.val(width));
        }
        value.get()
    }

    /// PWCH for this shape.
    pub fn pwch(self) -> u64 {
        let mut value = LocalRegisterCopy::<u64, PWCH::Register>::new(0);
        value.write(
            PWCH::DIR3_BASE.val(u64::from(self.base(self.directories)))
                + PWCH::DIR3_WIDTH.val(u64::from(self.width)),
        );
        value.get()
    }

    /// Physical address of the host's refill handler for this shape.
    pub fn host_handler(self) -> u64 {
        match self.directories {
            3 => phys_of(refill::host_4k as *const ()),
            _ => phys_of(refill::host_16k as *const ()),
        }
    }

    /// Physical address of the handler without a log.
    pub fn bare_handler(self) -> u64 {
        match self.directories {
            3 => phys_of(refill::bare_4k as *const ()),
            _ => phys_of(refill::bare_16k as *const ()),
        }
    }
}

/// Where tables are taken from.
pub trait Pool {
    /// Zeroed memory of `bytes`, aligned to `bytes` (a power of two up to
    /// 16 KiB), for a table.
    fn table(&mut self, bytes: u64) -> &'static mut [u64];
}

/// A tree of tables.
#[derive(Clone, Copy)]
pub struct Table {
    shape: Shape,
    root: u64,
}

impl Table {
    /// An empty one.
    pub fn new(shape: Shape, pool: &mut dyn Pool) -> Table {
        let root = phys_of(pool.table(shape.page_bytes()).as_ptr());
        Table { shape, root }
    }

    /// The tree of this shape whose root is elsewhere.
    pub const fn with_root(self, root: u64) -> Table {
        Table { root, ..self }
    }

    /// Physical address of the root.
    pub const fn root(&self) -> u64 {
        self.root
    }

    /// The shape.
    pub const fn shape(&self) -> Shape {
        self.shape
    }

    /// The entry for `address` at `level`; makes the tables above it. Flags
    /// that a directory entry may have are no part of its address.
    pub fn entry(&mut self, pool: &mut dyn Pool, address: u64, level: u32) -> &'static mut u64 {
        let mut table = self.root;
        let mut at = self.shape.directories;
        loop {
            let slot = (cached(table) as *mut u64).wrapping_add(self.shape.index(address, at));
            // SAFETY: `table` is a table of this tree, taken from the pool by
            // this function or `new`, and an index stays below its entries.
            // Other references to the slot end with the statement that used
            // them; the hardware reads it by itself.
            let slot = unsafe { &mut *slot };
            if at == level {
                return slot;
            }
            if *slot == 0 {
                *slot = phys_of(pool.table(self.shape.page_bytes()).as_ptr());
            }
            table = *slot & !(self.shape.page_bytes() - 1);
            at -= 1;
        }
    }

    /// Maps the page of `address` to `phys`.
    pub fn map(&mut self, pool: &mut dyn Pool, address: u64, phys: u64, flags: u64) {
        *self.entry(pool, address, 0) = phys | flags;
    }

    /// Maps the huge page of `address` at directory `level` to `phys`.
    pub fn map_huge(
        &mut self,
        pool: &mut dyn Pool,
        address: u64,
        phys: u64,
        flags: u64,
        level: u32,
    ) {
        *self.entry(pool, address, level) = phys | flags | flag::HUGE;
    }
}
