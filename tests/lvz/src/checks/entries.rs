//! TLB entries at chosen places, for the checks of TLB instructions.
//!
//! The MTLB's entries are written by index. Those of the host and of second
//! stages are in one array, told apart by GID; the first-stage entries of
//! guests are in another, reached by gtlb* with the guest's registers.

use crate::arch::tlb;
use crate::{csrrd, csrwr, csrxchg, gcsrrd, gcsrwr};
use loongarch_isa::csr::{ASID, GSTAT, GTLBC, TLBIDX};

/// First index of the MTLB.
pub const MTLB: u64 = 2048;
/// Entries of the MTLB.
pub const MTLB_ENTRIES: u64 = 64;
/// Page size of all entries here: 16 KiB pairs.
const PS: u64 = 14;

/// Which array an entry is in, and whose it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// The host's own, GID 0.
    Host,
    /// A guest's second stage.
    Second,
    /// A guest's first stage.
    First,
}

/// One entry.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// The array.
    pub side: Side,
    /// Its guest; 0 for the host's.
    pub gid: u64,
    /// Its ASID.
    pub asid: u64,
    /// Its global bit.
    pub global: bool,
    /// Its address, aligned to a pair.
    pub address: u64,
}

/// Makes TLB instructions of the host mean this GID.
pub fn select(gid: u64) {
    let field = GTLBC::TGID.val(gid);
    csrxchg!(GTLBC, field.value, field.mask());
}

/// Makes gtlb* mean this GID.
fn select_guest(gid: u64) {
    let field = GSTAT::GID.val(gid);
    csrxchg!(GSTAT, field.value, field.mask());
}

fn index_word(index: u64) -> u64 {
    (TLBIDX::INDEX.val(MTLB + index) + TLBIDX::PS.val(PS)).value
}

impl Entry {
    /// A first-stage entry that isn't global.
    pub fn first(gid: u64, asid: u64, address: u64) -> Entry {
        Entry {
            side: Side::First,
            gid,
            asid,
            global: false,
            address,
        }
    }

    /// The low half of both pages: valid, at a made-up place.
    fn low(&self) -> u64 {
        0x7000_0013 | u64::from(self.global) << 6
    }

    /// Writes it to MTLB entry `index` (0 to 63) of its array.
    pub fn write(&self, index: u64) {
        self.write_to(index, self.low());
    }

    /// The same with this low half for both pages.
    pub fn write_to(&self, index: u64, low: u64) {
        if self.side == Side::First {
            select_guest(self.gid);
            gcsrwr!(TLBIDX, index_word(index));
            gcsrwr!(TLBEHI, self.address);
            gcsrwr!(TLBELO0, low);
            gcsrwr!(TLBELO1, low);
            gcsrwr!(ASID, self.asid);
            tlb::guest_entry_write();
            select_guest(0);
        } else {
            select(self.gid);
            csrwr!(TLBIDX, index_word(index));
            csrwr!(TLBEHI, self.address);
            csrwr!(TLBELO0, low);
            csrwr!(TLBELO1, low);
            csrwr!(ASID, self.asid);
            tlb::write();
            select(0);
            csrwr!(ASID, 0);
        }
    }

    /// Whether its search finds it.
    pub fn found(&self) -> bool {
        let index = if self.side == Side::First {
            select_guest(self.gid);
            gcsrwr!(TLBEHI, self.address);
            gcsrwr!(ASID, self.asid);
            tlb::guest_search();
            select_guest(0);
            gcsrrd!(TLBIDX)
        } else {
            select(self.gid);
            csrwr!(TLBEHI, self.address);
            csrwr!(ASID, self.asid);
            tlb::search();
            select(0);
            csrwr!(ASID, 0);
            csrrd!(TLBIDX)
        };
        index & TLBIDX::NE::SET.value == 0
    }
}

/// What `tlbrd` or `gtlbrd` gives for an index.
#[derive(Debug, PartialEq, Eq)]
pub struct Reading {
    /// TLBIDX.NE.
    pub empty: bool,
    /// TLBIDX.PS.
    pub ps: u64,
    /// TLBEHI.
    pub high: u64,
    /// TLBELO0.
    pub low: u64,
    /// ASID.
    pub asid: u64,
    /// TRGP.
    pub trgp: u64,
}

/// Reads MTLB entry `index` of the host's array with `tlbrd`.
pub fn read_host(index: u64) -> Reading {
    csrwr!(TLBIDX, index_word(index));
    tlb::read();
    let word = csrrd!(TLBIDX);
    let reading = Reading {
        empty: word & TLBIDX::NE::SET.value != 0,
        ps: word >> 24 & 0x3f,
        high: csrrd!(TLBEHI),
        low: csrrd!(TLBELO0),
        asid: csrrd!(ASID) & ASID::ASID.mask,
        trgp: csrrd!(TRGP),
    };
    csrwr!(ASID, 0);
    reading
}

/// Reads MTLB entry `index` of the first-stage array, as guest `gid`, with
/// `gtlbrd`.
pub fn read_guest(index: u64, gid: u64) -> Reading {
    select_guest(gid);
    gcsrwr!(TLBIDX, index_word(index));
    tlb::guest_entry_read();
    select_guest(0);
    let word = gcsrrd!(TLBIDX);
    Reading {
        empty: word & TLBIDX::NE::SET.value != 0,
        ps: word >> 24 & 0x3f,
        high: gcsrrd!(TLBEHI),
        low: gcsrrd!(TLBELO0),
        asid: gcsrrd!(ASID) & ASID::ASID.mask,
        trgp: csrrd!(TRGP),
    }
}

/// Everything out of both arrays.
pub fn empty() {
    tlb::invalidate::<{ tlb::ALL }>(0, 0);
    tlb::invalidate::<{ tlb::ALL_GUESTS }>(0, 0);
}
