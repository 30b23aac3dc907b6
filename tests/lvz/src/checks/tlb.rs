//! TLB instructions of the host, on its own entries and on second stages'.

use super::entries::{self, Entry, MTLB_ENTRIES, Side, read_host};
use crate::arch::tlb;
use crate::check::{Check, Cpu, Outcome};
use crate::guest::host_run::HostRun;
use crate::guest::memory::{self, page};
use crate::guest::programs::load;
use crate::guest::table::flag;
use crate::guest::{DONE, Guest};
use crate::machine::boot;
use crate::{csrwr, csrxchg, ensure, ensure_eq, gcsrwr, program};
use loongarch_isa::csr::{GTLBC, TLBIDX};
use loongarch_isa::exception::Ecode;
use loongarch_isa::gpr::Gpr;

/// This group.
pub const CHECKS: &[Check] = &[
    Check::every("tlb.read_back", read_back),
    Check::every("tlb.trgp", trgp),
    Check::every("tlb.every_gid", every_gid),
    Check::every("tlb.search_by_tgid", search_by_tgid),
    Check::every("tlb.usetgid_off", usetgid_off),
    Check::every("tlb.written_entry_translates", written_entry_translates),
    Check::every("tlb.replaced_entry", replaced_entry),
    Check::every("tlb.replaced_odd_page", replaced_odd_page),
    Check::every("tlb.replaced_level3", replaced_level3),
    Check::every("tlb.replaced_second_stage", replaced_second_stage),
    Check::every("tlb.changed_window", changed_window),
    Check::every("tlb.changed_guest_window", changed_guest_window),
    Check::every("tlb.index_beyond", index_beyond),
];

const ADDRESS: u64 = 0x12_3456_8000;

fn host_entry() -> Entry {
    Entry {
        side: Side::Host,
        gid: 0,
        asid: 5,
        global: false,
        address: ADDRESS,
    }
}

/// `tlbrd` gives what `tlbwr` wrote.
fn read_back(_: &mut Cpu) -> Outcome {
    entries::empty();
    host_entry().write(3);
    let got = read_host(3);
    let other = read_host(4);
    entries::empty();
    ensure!(!got.empty, "entry is empty");
    ensure_eq!(got.ps, 14u64, "PS");
    ensure_eq!(got.high, ADDRESS, "TLBEHI");
    ensure_eq!(got.low, 0x7000_0013u64, "TLBELO0");
    ensure_eq!(got.asid, 5u64, "ASID");
    ensure!(other.empty, "the next entry isn't empty");
    Ok(())
}

/// D-TRGP: whose entry `tlbrd` read; 0 for the host's and for none.
fn trgp(_: &mut Cpu) -> Outcome {
    entries::empty();
    host_entry().write(3);
    let guest = Entry {
        side: Side::Second,
        gid: 0x9c,
        ..host_entry()
    };
    guest.write(4);
    let got = [4, 3, 4, 5].map(|index| read_host(index).trgp);
    entries::empty();
    ensure_eq!(got[0], 0x9cu64 << 16 | 1, "guest's entry");
    ensure_eq!(got[1], 0u64, "host's entry");
    ensure_eq!(got[2], 0x9cu64 << 16 | 1, "guest's entry again");
    ensure_eq!(got[3], 0u64, "no entry");
    Ok(())
}

/// An entry keeps each of the 255 GIDs.
fn every_gid(_: &mut Cpu) -> Outcome {
    for gid in 1..256 {
        let side = Side::Second;
        Entry {
            side,
            gid,
            ..host_entry()
        }
        .write(gid % MTLB_ENTRIES);
        let got = read_host(gid % MTLB_ENTRIES).trgp;
        ensure_eq!(got, gid << 16 | 1, "TRGP");
    }
    entries::empty();
    Ok(())
}

/// `tlbsrch` finds the entries of TGID only.
fn search_by_tgid(_: &mut Cpu) -> Outcome {
    entries::empty();
    let side = Side::Second;
    let mine = Entry {
        side,
        gid: 7,
        ..host_entry()
    };
    let other = Entry {
        side,
        gid: 8,
        ..host_entry()
    };
    mine.write(3);
    let found = [mine.found(), other.found(), host_entry().found()];
    entries::empty();
    ensure!(
        found == [true, false, false],
        "GIDs 7, 8, 0 found: {found:?}"
    );
    Ok(())
}

/// D-USETGID: with USETGID = 0 TGID means nothing.
fn usetgid_off(_: &mut Cpu) -> Outcome {
    entries::empty();
    let usetgid = GTLBC::USETGID::SET.value;
    csrxchg!(GTLBC, 0, usetgid);
    let side = Side::Second;
    Entry {
        side,
        gid: 7,
        ..host_entry()
    }
    .write(3);
    csrxchg!(GTLBC, usetgid, usetgid);
    let (reading, found) = (read_host(3), host_entry().found());
    entries::empty();
    ensure_eq!(reading.trgp, 0u64, "TRGP");
    ensure!(found, "the host doesn't find the entry");
    Ok(())
}

const GPA: u64 = 0x1_0000_0000;

/// Writes a pair to the STLB of the host's array, way 0. What guests run on
/// is in huge pages, whose refills take random entries of the MTLB only.
fn write_pair(gid: u64, address: u64, even: u64, odd: u64) {
    let set = address >> 15 & 0xff;
    entries::select(gid);
    csrwr!(TLBIDX, (TLBIDX::INDEX.val(set) + TLBIDX::PS.val(14)).value);
    csrwr!(TLBEHI, address);
    csrwr!(TLBELO0, even);
    csrwr!(TLBELO1, odd);
    tlb::write();
    entries::select(0);
}

/// A second-stage entry written by hand translates for its guest.
fn written_entry_translates(cpu: &mut Cpu) -> Outcome {
    let mut guest = Guest::new(cpu);
    memory::store(page(0), 0x600d);
    write_pair(guest.vm.gid, GPA, page(0) | flag::ALL, 0);
    guest.set(Gpr::A0, crate::machine::cached(GPA));
    guest.start(load).run_to_hvc(DONE)?;
    ensure_eq!(guest.get(Gpr::A1), 0x600du64, "what the guest loaded");
    guest.set(Gpr::A0, crate::machine::cached(GPA + 0x4000));
    guest.start(load).run().expect(Ecode::Pil)
}

/// Reads a mapped address of the host.
fn host_read(address: u64) -> u64 {
    // SAFETY: the callers map this address to a data page.
    unsafe { (address as *const u64).read_volatile() }
}

/// Reads the odd or the even page of a pair of this page size through an MTLB
/// entry, overwrites the entry, reads again.
fn replaced(ps: u64, odd: bool) -> Outcome {
    memory::store(page(0), 0x50);
    memory::store(page(1), 0x51);
    entries::empty();
    let write = |phys: u64| {
        csrwr!(
            TLBIDX,
            (TLBIDX::INDEX.val(entries::MTLB) + TLBIDX::PS.val(ps)).value
        );
        csrwr!(TLBEHI, GPA);
        csrwr!(TLBELO0, phys | flag::ALL);
        csrwr!(TLBELO1, phys | flag::ALL);
        tlb::write();
    };
    let address = GPA + (u64::from(odd) << ps);
    write(page(0));
    let first = host_read(address);
    write(page(1));
    let second = host_read(address);
    entries::empty();
    ensure_eq!(first, 0x50u64, "by the first entry");
    ensure_eq!(second, 0x51u64, "by the entry that replaced it");
    Ok(())
}

/// A host entry that `tlbwr` replaces is gone at once.
fn replaced_entry(_: &mut Cpu) -> Outcome {
    replaced(14, false)?;
    replaced(12, false)
}

/// Its odd page too, in small pages as well, which an emulator may forget one
/// by one.
fn replaced_odd_page(_: &mut Cpu) -> Outcome {
    replaced(14, true)?;
    replaced(12, true)
}

program!(load_and_trap: "ld.d $a1, $a0, 0", "syscall 0");

/// What level 3 has cached of an entry goes when level 0 replaces it.
fn replaced_level3(_: &mut Cpu) -> Outcome {
    memory::store(page(0), 0x50);
    memory::store(page(1), 0x51);
    entries::empty();
    let user = || {
        let run = HostRun::new().level(3).with(Gpr::A0, GPA);
        run.program(load_and_trap).get(Gpr::A1)
    };
    let flags = flag::ALL | flag::PLV3;
    write_pair(0, GPA, page(0) | flags, 0);
    let first = user();
    write_pair(0, GPA, page(1) | flags, 0);
    let second = user();
    entries::empty();
    ensure_eq!(first, 0x50u64, "by the first entry");
    ensure_eq!(second, 0x51u64, "by the entry that replaced it");
    Ok(())
}

/// What a guest has cached of a second-stage entry goes when the host
/// replaces it by index.
fn replaced_second_stage(cpu: &mut Cpu) -> Outcome {
    let mut guest = Guest::new(cpu);
    for level in [0, 3] {
        gcsrwr!(CRMD, boot::MODE | level);
        for n in 0..4 {
            memory::store(page(n), n as u64);
            write_pair(guest.vm.gid, GPA, page(n) | flag::ALL, 0);
            guest.set(Gpr::A0, crate::machine::cached(GPA));
            guest.start(load).run_to_hvc(DONE)?;
            ensure_eq!(guest.get(Gpr::A1), n as u64, "entry {n} at level {level}");
        }
    }
    Ok(())
}

/// A window of its own for these checks: 0xa000…, level 0, cached.
const WINDOW: u64 = 0xa000_0000_0000_0011;

/// The address of `phys` in it.
fn in_window(phys: u64) -> u64 {
    0xa000 << 48 | phys
}

/// A direct map window that is taken away translates no more.
fn changed_window(_: &mut Cpu) -> Outcome {
    memory::store(page(0), 0x77);
    let read = || {
        HostRun::new()
            .with(Gpr::A0, in_window(page(0)))
            .program(load_and_trap)
    };
    csrwr!(dmw(2), WINDOW);
    let with = read();
    csrwr!(dmw(2), 0);
    let without = read();
    ensure_eq!(
        with.exit().ecode(),
        Ecode::Sys.number(),
        "ecode with the window"
    );
    ensure_eq!(with.get(Gpr::A1), 0x77u64, "what was read");
    ensure_eq!(without.exit().ecode(), Ecode::Ade.number(), "ecode without");
    Ok(())
}

program!(
    /// Loads at a0, takes window 2 away, loads again.
    close_window:
    "ld.d $a1, $a0, 0",
    "csrwr $zero, {dmw2}",
    "ld.d $a2, $a0, 0",
    "hvcl 0x10",
    dmw2 = const loongarch_isa::csr::Csr::dmw(2).number(),
);

/// The guest's too, taken away by the guest or by the host.
fn changed_guest_window(cpu: &mut Cpu) -> Outcome {
    memory::store(page(0), 0x77);
    let mut guest = Guest::new(cpu);
    gcsrwr!(dmw(2), WINDOW);
    guest.set(Gpr::A0, in_window(page(0)));
    let own = guest.start(close_window).run_to_own(Ecode::Ade)?;
    ensure_eq!(guest.get(Gpr::A1), 0x77u64, "what was read");
    ensure_eq!(own.era, close_window as *const () as u64 + 8, "guest ERA");
    gcsrwr!(dmw(2), WINDOW);
    guest.start(load).run_to_hvc(DONE)?;
    gcsrwr!(dmw(2), 0);
    guest.start(load).run_to_own(Ecode::Ade)?;
    Ok(())
}

/// TLBIDX can name more entries than there are: using such a number hurts
/// nothing.
fn index_beyond(_: &mut Cpu) -> Outcome {
    for index in (MTLB_ENTRIES..2048).step_by(61) {
        host_entry().write(index);
        read_host(index);
        csrwr!(TLBIDX, TLBIDX::INDEX.val(entries::MTLB + index).value);
        tlb::guest_flush();
    }
    entries::empty();
    ensure!(!host_entry().found(), "an entry was left");
    Ok(())
}
