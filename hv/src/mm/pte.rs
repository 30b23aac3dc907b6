//! Entries of the second-stage tables.
//!
//! The hardware walks them with `lddir` and `ldpte` and takes a leaf as it
//! stands for a TLB entry, so a leaf has TLBELO's fields. An entry of a
//! directory is the bare address of the next table (a flag there would
//! corrupt the next address), or, with the block bit set, a leaf itself.
//!
//! Source: *LoongArch Reference Manual, Volume 1*, section 5.4.5 and
//! figure 7-14; memory type and privilege level as Linux's KVM sets them
//! (arch/loongarch/kvm/mmu.c).

use super::addr::{Hpa, PAGE_BYTES};
use crate::isa::csr::TLBELO;
use tock_registers::LocalRegisterCopy;

/// Bit 6 of a directory's entry: a leaf that covers the entry's whole range.
const BLOCK: u64 = 1 << 6;
/// Address bits 47:14 of an entry.
const ADDRESS: u64 = (1 << 48) - PAGE_BYTES;
/// TLBELO.MAT for coherent cached memory.
const MAT_CACHED: u64 = 1;

/// What a guest may do with a page besides reading it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// Stores are allowed.
    pub write: bool,
    /// Fetches are allowed.
    pub execute: bool,
}

impl Access {
    /// Everything: what a VM's RAM gets.
    pub const ALL: Self = Self {
        write: true,
        execute: true,
    };
    /// Loads only.
    pub const READ: Self = Self {
        write: false,
        execute: false,
    };
}

/// An entry, of any level. The level decides which readings make sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct Pte(u64);

impl Pte {
    /// A last-level entry that maps nothing.
    pub const ABSENT: Self = Self(0);

    /// The entry with this value, as read from a table.
    #[must_use]
    pub const fn new(value: u64) -> Self {
        Self(value)
    }

    /// The value to write to a table.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// A last-level entry that maps the page at `hpa`; address bits outside
    /// 47:14 are dropped.
    #[must_use]
    pub fn page(hpa: Hpa, access: Access) -> Self {
        let mut entry = LocalRegisterCopy::<u64, TLBELO::Register>::new(hpa.get() & ADDRESS);
        entry.modify(TLBELO::V::SET + TLBELO::MAT.val(MAT_CACHED));
        if access.write {
            entry.modify(TLBELO::D::SET);
        }
        if !access.execute {
            entry.modify(TLBELO::NX::SET);
        }
        Self(entry.get())
    }

    /// A directory's entry that maps the block at `hpa`.
    #[must_use]
    pub fn block(hpa: Hpa, access: Access) -> Self {
        Self(Self::page(hpa, access).0 | BLOCK)
    }

    /// A directory's entry that leads to the table at `hpa`.
    #[must_use]
    pub const fn table(hpa: Hpa) -> Self {
        Self(hpa.get() & ADDRESS)
    }

    /// Whether a directory's entry is a leaf.
    #[must_use]
    pub const fn is_block(self) -> bool {
        self.0 & BLOCK != 0
    }

    /// Whether a leaf maps anything.
    #[must_use]
    pub const fn is_valid(self) -> bool {
        self.0 & 1 != 0
    }

    /// The address of the page, block or next table.
    #[must_use]
    pub const fn address(self) -> Hpa {
        Hpa::new(self.0 & ADDRESS)
    }

    /// What a valid leaf allows.
    #[must_use]
    pub fn access(self) -> Access {
        let entry = LocalRegisterCopy::<u64, TLBELO::Register>::new(self.0);
        Access {
            write: entry.is_set(TLBELO::D),
            execute: !entry.is_set(TLBELO::NX),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_have_the_bits_of_the_manual() {
        let hpa = Hpa::new(0x9000_4000);
        assert_eq!(Pte::page(hpa, Access::ALL).get(), 0x9000_4013);
        assert_eq!(Pte::page(hpa, Access::READ).get(), 0x4000_0000_9000_4011);
        assert_eq!(Pte::block(hpa, Access::ALL).get(), 0x9000_4053);
    }

    #[test]
    fn directory_entries_carry_no_flag() {
        let entry = Pte::table(Hpa::new(0xffff_9000_7fff));
        assert_eq!(entry.get(), 0xffff_9000_4000);
        assert!(!entry.is_block());
    }

    #[test]
    fn leaves_give_back_what_made_them() {
        for write in [false, true] {
            for execute in [false, true] {
                let access = Access { write, execute };
                let entry = Pte::block(Hpa::new(0x8000_0000), access);
                assert_eq!(entry.access(), access);
                assert_eq!(entry.address(), Hpa::new(0x8000_0000));
                assert!(entry.is_block() && entry.is_valid());
            }
        }
        assert!(!Pte::ABSENT.is_valid());
    }
}
