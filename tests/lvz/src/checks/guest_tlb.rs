//! TLB instructions of the guest on its own entries, and gtlb* of the host on
//! them.

use super::entries::{self, Entry, Side, read_guest};
use crate::arch::tlb;
use crate::check::{Check, Cpu, Outcome};
use crate::guest::memory::{self, page};
use crate::guest::programs::{done, load};
use crate::guest::table::{Shape, flag};
use crate::guest::{DONE, Guest, Program, fresh_gid, reset_bank};
use crate::{csrrd, csrxchg, ensure, ensure_eq, gcsrrd, gcsrwr, program};
use loongarch_isa::csr::{Csr, TLBIDX};
use loongarch_isa::gpr::Gpr;

/// This group.
pub const CHECKS: &[Check] = &[
    Check::every("tlb.guest_write_read_search", guest_write_read_search),
    Check::every("tlb.guest_fill", guest_fill),
    Check::every("tlb.guest_clear", guest_clear),
    Check::every("tlb.guest_flush", guest_flush),
    Check::every("tlb.guest_asids", guest_asids),
    Check::every("tlb.guest_entries_by_gid", guest_entries_by_gid),
    Check::every("tlb.guest_cant_see_others", guest_cant_see_others),
    Check::every("tlb.gtlb_write_read_search", gtlb_write_read_search),
    Check::every("tlb.gtlb_fill", gtlb_fill),
    Check::every("tlb.gtlb_clear", gtlb_clear),
    Check::every("tlb.gtlb_flush", gtlb_flush),
];

const ADDRESS: u64 = 0x12_3456_8000;

program!(
    /// Writes an entry from the guest's registers, makes them forget it, reads
    /// it (to a0, a1) and searches it (to a2).
    write_read_search:
    "tlbwr",
    "csrwr $zero, {low0}",
    "csrwr $zero, {low1}",
    "tlbrd",
    "csrrd $a0, {high}",
    "csrrd $a1, {low0}",
    "csrwr $zero, {index}",
    "tlbsrch",
    "csrrd $a2, {index}",
    "hvcl 0x10",
    index = const Csr::TLBIDX.number(),
    high = const Csr::TLBEHI.number(),
    low0 = const Csr::TLBELO0.number(),
    low1 = const Csr::TLBELO1.number(),
);

/// Puts an entry into the guest's TLB registers.
fn guest_registers(index: u64, address: u64, low: u64, asid: u64) {
    gcsrwr!(
        TLBIDX,
        (TLBIDX::INDEX.val(entries::MTLB + index) + TLBIDX::PS.val(14)).value
    );
    gcsrwr!(TLBEHI, address);
    gcsrwr!(TLBELO0, low);
    gcsrwr!(TLBELO1, low);
    gcsrwr!(ASID, asid);
}

/// The guest's tlbwr, tlbrd and tlbsrch, with no exit; the host's registers
/// and TRGP stay out of it.
fn guest_write_read_search(cpu: &mut Cpu) -> Outcome {
    let mut guest = Guest::new(cpu);
    let host = (csrrd!(TLBIDX), csrrd!(TLBELO0), csrrd!(TRGP));
    guest_registers(9, ADDRESS, 0x7000_0013, 6);
    guest.start(write_read_search).run_to_hvc(DONE)?;
    ensure_eq!(guest.get(Gpr::A0), ADDRESS, "TLBEHI read");
    ensure_eq!(guest.get(Gpr::A1), 0x7000_0013u64, "TLBELO0 read");
    let found = guest.get(Gpr::A2);
    ensure_eq!(found & 0x8000_0fff, entries::MTLB + 9, "TLBIDX found");
    ensure_eq!(csrrd!(TLBIDX), host.0, "host TLBIDX");
    ensure_eq!(csrrd!(TLBELO0), host.1, "host TLBELO0");
    ensure_eq!(csrrd!(TRGP), host.2, "TRGP");
    Ok(())
}

program!(
    /// Fills an entry, forgets its place and searches it (to a2).
    fill:
    "tlbfill",
    "csrwr $zero, {index}",
    "tlbsrch",
    "csrrd $a2, {index}",
    "hvcl 0x10",
    index = const Csr::TLBIDX.number(),
);

/// The guest's tlbfill puts the entry where its search finds it.
fn guest_fill(cpu: &mut Cpu) -> Outcome {
    let mut guest = Guest::new(cpu);
    guest_registers(0, ADDRESS, 0x7000_0013, 6);
    guest.start(fill).run_to_hvc(DONE)?;
    ensure_eq!(guest.get(Gpr::A2) >> 31 & 1, 0u64, "TLBIDX.NE");
    Ok(())
}

/// Runs `program` after entries of two ASIDs, one global, and of another GID
/// are in the MTLB; returns which are left: bit 0 ASID 6, 1 ASID 7, 2 global,
/// 3 the other GID's.
fn left_after(cpu: &mut Cpu, program: Program) -> Result<u64, crate::check::Failed> {
    let mut guest = Guest::new(cpu);
    let base = Entry::first(guest.vm.gid, 6, ADDRESS);
    let step = 0x8000;
    let all = [
        base,
        Entry {
            asid: 7,
            address: ADDRESS + step,
            ..base
        },
        Entry {
            global: true,
            address: ADDRESS + 2 * step,
            ..base
        },
        Entry {
            gid: guest.vm.gid ^ 0x80,
            address: ADDRESS + 3 * step,
            ..base
        },
    ];
    for (index, entry) in all.iter().enumerate() {
        entry.write(index as u64);
    }
    guest_registers(20, 0, 0, 6);
    guest.start(program).run_to_hvc(DONE)?;
    let left = all.iter().enumerate();
    Ok(left.map(|(n, entry)| u64::from(entry.found()) << n).sum())
}

program!(clear: "tlbclr", "hvcl 0x10");
program!(flush: "tlbflush", "hvcl 0x10");

/// The guest's tlbclr in the MTLB: its non-global entries of this ASID.
fn guest_clear(cpu: &mut Cpu) -> Outcome {
    ensure_eq!(left_after(cpu, done)?, 0b1111u64, "before");
    ensure_eq!(left_after(cpu, clear)?, 0b1110u64, "after tlbclr");
    Ok(())
}

/// The guest's tlbflush in the MTLB: all of its entries, no other guest's.
fn guest_flush(cpu: &mut Cpu) -> Outcome {
    ensure_eq!(left_after(cpu, flush)?, 0b1000u64, "after tlbflush");
    Ok(())
}

/// Two tables with different pages behind [`GVA`], used in turn without a
/// flush; `become_owner` says whose the next table is. Each load must come
/// from its own.
fn take_turns(cpu: &mut Cpu, become_owner: impl Fn(&mut Guest, usize)) -> Outcome {
    let mut guest = Guest::new(cpu);
    let mut roots = [0; 2];
    for (n, root) in roots.iter_mut().enumerate() {
        let mut table = guest.first_stage(Shape::P16K);
        memory::store(page(n), 0x40 + n as u64);
        table.map(&mut guest.tables, GVA, page(n), flag::ALL);
        *root = table.root();
    }
    for round in 0..20 {
        let n = round % 2;
        become_owner(&mut guest, n);
        gcsrwr!(PGDL, roots[n]);
        guest.set(Gpr::A0, GVA);
        guest.start(load).run_to_hvc(DONE)?;
        ensure_eq!(guest.get(Gpr::A1), 0x40 + n as u64, "round {round}");
    }
    Ok(())
}

/// A guest-virtual address without a window.
const GVA: u64 = 0x10_0000_8000;

/// The guest's ASIDs keep its first-stage entries apart, without a flush.
fn guest_asids(cpu: &mut Cpu) -> Outcome {
    take_turns(cpu, |_, n| {
        gcsrwr!(ASID, 100 + n as u64);
    })
}

/// First-stage entries of two guests of the same address and ASID don't mix,
/// though neither is flushed.
fn guest_entries_by_gid(cpu: &mut Cpu) -> Outcome {
    // All guests have the same identity map as second stage.
    let gids = [fresh_gid(), fresh_gid()];
    take_turns(cpu, |guest, n| guest.vm.gid = gids[n])
}

/// D-GTLB: a guest's tlbrd of another guest's entry shows none.
fn guest_cant_see_others(cpu: &mut Cpu) -> Outcome {
    let guest = Guest::new(cpu);
    let (gid, asid) = (guest.vm.gid, 6);
    let global = true;
    let entry = Entry {
        global,
        ..Entry::first(gid, asid, ADDRESS)
    };
    entry.write(11);
    let (mine, other) = (read_guest(11, gid), read_guest(11, gid ^ 0x80));
    reset_bank(cpu.index);
    ensure!(!mine.empty, "its own entry is empty");
    ensure!(other.empty, "another's entry shows");
    ensure_eq!(other.low, 0u64, "TLBELO0 of another's entry");
    Ok(())
}

/// gtlbwr, gtlbrd and gtlbsrch work on the first-stage entries of GSTAT.GID
/// with the guest's registers; TRGP.GTLB = 1.
fn gtlb_write_read_search(cpu: &mut Cpu) -> Outcome {
    let guest = Guest::new(cpu);
    let (gid, asid) = (guest.vm.gid, 6);
    let entry = Entry::first(gid, asid, ADDRESS);
    entry.write(11);
    let found = entry.found();
    let index = gcsrrd!(TLBIDX) & 0xfff;
    let got = read_guest(11, gid);
    let none = read_guest(12, gid);
    reset_bank(cpu.index);
    ensure!(found, "gtlbsrch doesn't find it");
    ensure_eq!(index, entries::MTLB + 11, "index found");
    ensure_eq!(got.high, ADDRESS, "TLBEHI");
    ensure_eq!(got.low, 0x7000_0013u64, "TLBELO0");
    ensure_eq!(got.asid, 6u64, "ASID");
    ensure_eq!(got.trgp, gid << 16 | 1, "TRGP");
    ensure_eq!(none.trgp, 0u64, "TRGP of no entry");
    Ok(())
}

/// Makes gtlb* mean `gid` while `act` runs.
fn as_guest(gid: u64, act: fn()) {
    csrxchg!(GSTAT, gid << 16, 0xff << 16);
    act();
    csrxchg!(GSTAT, 0, 0xff << 16);
}

fn gtlb_fill(cpu: &mut Cpu) -> Outcome {
    let guest = Guest::new(cpu);
    guest_registers(0, ADDRESS, 0x7000_0013, 6);
    as_guest(guest.vm.gid, tlb::guest_fill);
    let entry = Entry::first(guest.vm.gid, 6, ADDRESS);
    ensure!(entry.found(), "gtlbsrch doesn't find it");
    let side = Side::Second;
    ensure!(
        !Entry { side, ..entry }.found(),
        "it is in the second stage"
    );
    reset_bank(cpu.index);
    Ok(())
}

/// As [`guest_clear`], from the host.
fn gtlb_clear(cpu: &mut Cpu) -> Outcome {
    gtlb_left(cpu, tlb::guest_clear, 0b110)
}

/// As [`guest_flush`], from the host.
fn gtlb_flush(cpu: &mut Cpu) -> Outcome {
    gtlb_left(cpu, tlb::guest_flush, 0b100)
}

/// What is left after `act` of: ASID 6, global, another GID's.
fn gtlb_left(cpu: &mut Cpu, act: fn(), want: u64) -> Outcome {
    let guest = Guest::new(cpu);
    let gid = guest.vm.gid;
    let base = Entry::first(gid, 6, ADDRESS);
    let all = [
        base,
        Entry {
            global: true,
            address: ADDRESS + 0x8000,
            ..base
        },
        Entry {
            gid: gid ^ 0x80,
            ..base
        },
    ];
    for (index, entry) in all.iter().enumerate() {
        entry.write(index as u64);
    }
    guest_registers(20, 0, 0, 6);
    as_guest(gid, act);
    let left: u64 = all
        .iter()
        .enumerate()
        .map(|(n, e)| u64::from(e.found()) << n)
        .sum();
    reset_bank(cpu.index);
    ensure_eq!(left, want, "entries left");
    Ok(())
}
