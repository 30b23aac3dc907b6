//! The second stage: faults, refills, several guests.

use crate::arch::{self, tlb};
use crate::check::{Check, Cpu, Failed, Outcome};
use crate::guest::memory::{self, page};
use crate::guest::programs::{LOAD, STORE, done, jump, load, store, store_then_load};
use crate::guest::switch::Exit;
use crate::guest::table::{Shape, Table, flag};
use crate::guest::{DONE, Guest, Program, log};
use crate::machine::{boot, cached};
use crate::{csrrd, csrwr, csrxchg, ensure, ensure_eq, gcsrwr};
use loongarch_isa::csr::TCFG;
use loongarch_isa::exception::{Ecode, Interrupt};
use loongarch_isa::gpr::Gpr;

/// This group.
pub const CHECKS: &[Check] = &[
    Check::every("stage2.load", load_fault),
    Check::every("stage2.store", store_fault),
    Check::every("stage2.fetch", fetch_fault),
    Check::every("stage2.modified", modified),
    Check::every("stage2.not_readable", not_readable),
    Check::every("stage2.not_readable_after_store", not_readable_after_store),
    Check::every("stage2.not_executable", not_executable),
    Check::every("stage2.level", level),
    Check::every("stage2.guest_level3", guest_level3),
    Check::every("stage2.every_guest_mode", every_guest_mode),
    Check::every("stage2.walk_fault", walk_fault),
    Check::every(
        "stage2.walk_reads_guest_physical",
        walk_reads_guest_physical,
    ),
    Check::every("stage2.refill_state", refill_state),
    Check::every("stage2.invalid_pair", invalid_pair),
    Check::every("stage2.dirty_once", dirty_once),
    Check::every("stage2.remap", remap),
    Check::every("stage2.neighbour_of_a_pair", neighbour_of_a_pair),
    Check::every("stage2.two_guests", two_guests),
    Check::every("stage2.host_apart", host_apart),
    Check::every("stage2.gid_zero", gid_zero),
    Check::every("stage2.nothing_there", nothing_there),
];

/// A guest-physical address above all RAM, in pages of our own.
pub const GPA: u64 = 0x1_0000_0000;

/// Runs `program` with a guest address (in a0) of guest-physical `gpa`.
pub fn access(guest: &mut Guest, program: Program, gpa: u64) -> Exit {
    guest.set(Gpr::A0, cached(gpa));
    guest.start(program).run()
}

/// Reads guest-physical `gpa` in the guest.
pub fn read(guest: &mut Guest, gpa: u64) -> Result<u64, Failed> {
    access(guest, load, gpa).expect_hvc(DONE)?;
    Ok(guest.get(Gpr::A1))
}

/// A second-stage fault at [`GPA`] + offset, in a page with these flags (or
/// absent with 0).
fn fault(cpu: &mut Cpu, program: Program, flags: u64, ecode: Ecode) -> Result<Exit, Failed> {
    let mut guest = Guest::new(cpu);
    if flags != 0 {
        guest.map(GPA, page(0), flags);
    }
    for offset in [0x3ff8, 0, 0x128] {
        let exit = access(&mut guest, program, GPA + offset);
        exit.expect(ecode)?;
        ensure_eq!(exit.badv, GPA + offset, "BADV");
        ensure_eq!(crate::gcsrrd!(ESTAT), 0u64, "guest ESTAT");
        if program as *const () == jump as *const () {
            ensure_eq!(exit.era, cached(GPA + offset), "ERA");
        } else {
            ensure_eq!(exit.era, program as *const () as u64, "ERA");
        }
    }
    Ok(guest.world.exit)
}

fn load_fault(cpu: &mut Cpu) -> Outcome {
    ensure_eq!(fault(cpu, load, 0, Ecode::Pil)?.badi, LOAD, "BADI");
    Ok(())
}

fn store_fault(cpu: &mut Cpu) -> Outcome {
    ensure_eq!(fault(cpu, store, 0, Ecode::Pis)?.badi, STORE, "BADI");
    Ok(())
}

fn fetch_fault(cpu: &mut Cpu) -> Outcome {
    fault(cpu, jump, 0, Ecode::Pif).map(|_| ())
}

fn modified(cpu: &mut Cpu) -> Outcome {
    let exit = fault(cpu, store, flag::V | flag::CACHED, Ecode::Pme)?;
    ensure_eq!(exit.badi, STORE, "BADI");
    Ok(())
}

/// NR of the table survives the walk by lddir and ldpte.
fn not_readable(cpu: &mut Cpu) -> Outcome {
    let exit = fault(cpu, load, flag::ALL | flag::NR, Ecode::Pnr)?;
    ensure_eq!(exit.badi, LOAD, "BADI");
    Ok(())
}

/// NX of the table survives the walk.
fn not_executable(cpu: &mut Cpu) -> Outcome {
    fault(cpu, jump, flag::ALL | flag::NX, Ecode::Pnx).map(|_| ())
}

/// A page that can be written but not read can't be read after a write either.
fn not_readable_after_store(cpu: &mut Cpu) -> Outcome {
    let mut guest = Guest::new(cpu);
    guest.map(GPA, page(0), flag::ALL | flag::NR);
    let exit = access(&mut guest, store_then_load, GPA);
    exit.expect(Ecode::Pnr)?;
    ensure_eq!(exit.era, store_then_load as *const () as u64 + 4, "ERA");
    Ok(())
}

/// D-STAGE2: the level checked is 0, so a page for exactly level 3 (RPLV,
/// which survives the walk) is out of reach.
fn level(cpu: &mut Cpu) -> Outcome {
    let flags = flag::ALL | flag::PLV3 | flag::RPLV;
    let exit = fault(cpu, load, flags, Ecode::Ppi)?;
    ensure_eq!(exit.badi, LOAD, "BADI");
    Ok(())
}

/// The guest's own level doesn't matter to the second stage.
fn guest_level3(cpu: &mut Cpu) -> Outcome {
    let mut guest = Guest::new(cpu);
    memory::store(page(0), 0x1234);
    guest.map(GPA, page(0), flag::ALL);
    gcsrwr!(CRMD, boot::MODE | 3);
    ensure_eq!(read(&mut guest, GPA)?, 0x1234u64, "at level 3");
    access(&mut guest, load, GPA + 0x4000).expect(Ecode::Pil)
}

/// Direct addressing, windows and the guest's TLB all go through it.
fn every_guest_mode(cpu: &mut Cpu) -> Outcome {
    let mut guest = Guest::new(cpu);
    memory::store(page(1) + 8, 0x4321);
    guest.map(GPA, page(1), flag::ALL);
    ensure_eq!(read(&mut guest, GPA + 8)?, 0x4321u64, "by a window");
    let gva = 0x10_0000_4000;
    let mut table = guest.first_stage(Shape::P16K);
    table.map(&mut guest.tables, gva, GPA, flag::ALL);
    guest.set(Gpr::A0, gva + 8);
    guest.start(load).run_to_hvc(DONE)?;
    ensure_eq!(guest.get(Gpr::A1), 0x4321u64, "by the guest's TLB");
    gcsrwr!(CRMD, 8);
    guest.set(Gpr::A0, GPA + 8).set(Gpr::A1, 0);
    guest.world.pc = crate::machine::phys_of(load as *const ());
    guest.run_to_hvc(DONE)?;
    ensure_eq!(guest.get(Gpr::A1), 0x4321u64, "in direct addressing");
    let fault = access_by_tlb(&mut guest, &mut table, gva + 0x4000, GPA + 0x8000);
    ensure_eq!(
        fault.badv,
        GPA + 0x8000,
        "BADV of a fault behind the guest's TLB"
    );
    fault.expect(Ecode::Pil)
}

/// Maps `gva` to an absent `gpa` in the guest and loads there.
fn access_by_tlb(guest: &mut Guest, table: &mut Table, gva: u64, gpa: u64) -> Exit {
    gcsrwr!(CRMD, boot::MODE);
    table.map(&mut guest.tables, gva, gpa, flag::ALL);
    guest.set(Gpr::A0, gva);
    guest.start(load).run()
}

/// The guest's page table may itself lie where nothing is mapped: the walk
/// exits with the guest-physical address of the entry.
fn walk_fault(cpu: &mut Cpu) -> Outcome {
    let mut guest = Guest::new(cpu);
    guest.first_stage(Shape::P16K);
    gcsrwr!(PGDL, GPA);
    let gva = 0x10_0000_4000u64;
    guest.set(Gpr::A0, gva);
    let exit = guest.start(load).run();
    exit.expect(Ecode::Pil)?;
    ensure_eq!(exit.badv, GPA + (gva >> 36) * 8, "BADV");
    memory::store(page(2) + (gva >> 36) * 8, 0);
    guest.map(GPA, page(2), flag::ALL);
    guest.invalidate(GPA);
    // Now the walk finds an absent directory: the guest's own page fault.
    guest.run_to_own(Ecode::Pil)?;
    Ok(())
}

/// lddir and ldpte of the guest read at guest-physical addresses: where the
/// second stage sends them, not where the numbers point in the host.
fn walk_reads_guest_physical(cpu: &mut Cpu) -> Outcome {
    let mut guest = Guest::new(cpu);
    let mut table = guest.first_stage(Shape::P16K);
    let (gva, right, wrong) = (0x10_0000_4000, page(3), page(4));
    memory::store(right, 0x600d);
    memory::store(wrong, 0xbad);
    table.map(&mut guest.tables, gva, right, flag::ALL);
    // The guest's root is a guest-physical page that lies elsewhere: its
    // number in the host is a table that leads to the wrong page.
    let mut decoy = Table::new(Shape::P16K, &mut guest.tables);
    decoy.map(&mut guest.tables, gva, wrong, flag::ALL);
    let root = decoy.root();
    // The decoy's root lies in a 32 MiB page of the identity map; a map of
    // its own for that region, page by page, sends just the root elsewhere.
    let region = root & !((32 << 20) - 1);
    *guest.vm.stage2.entry(&mut guest.tables, region, 1) = 0;
    for gpa in (region..region + (32 << 20)).step_by(Shape::P16K.page_bytes() as usize) {
        let phys = if gpa == root { table.root() } else { gpa };
        guest.map(gpa, phys, flag::ALL);
    }
    gcsrwr!(PGDL, root);
    guest.set(Gpr::A0, gva);
    guest.start(load).run_to_hvc(DONE)?;
    ensure_eq!(guest.get(Gpr::A1), 0x600du64, "what the guest loaded");
    Ok(())
}

/// The host's refill exception for the second stage: TLBRBADV is the
/// guest-physical address, PVM is 1, the host is in direct addressing.
fn refill_state(cpu: &mut Cpu) -> Outcome {
    let mut guest = Guest::new(cpu);
    guest.map(GPA, page(0), flag::ALL);
    let before = log().count;
    read(&mut guest, GPA + 0x218)?;
    let log = log();
    ensure!(log.count > before, "no refill");
    ensure_eq!(log.badv, GPA + 0x218, "TLBRBADV");
    ensure_eq!(log.gstat & 3, 2u64, "GSTAT.VM and PVM");
    ensure_eq!(log.crmd & 0x1f, 8u64, "CRMD");
    ensure_eq!(log.prmd & 7, 4u64, "TLBRPRMD");
    ensure_eq!(log.era, load as *const () as u64 | 1, "TLBRERA");
    Ok(())
}

/// An absent page is filled as an invalid pair: it faults until the pair is
/// invalidated, for its own GID and address.
fn invalid_pair(cpu: &mut Cpu) -> Outcome {
    let mut guest = Guest::new(cpu);
    memory::store(page(0), 0x77);
    access(&mut guest, load, GPA).expect(Ecode::Pil)?;
    guest.map(GPA, page(0), flag::ALL);
    access(&mut guest, load, GPA).expect(Ecode::Pil)?;
    tlb::invalidate::<{ tlb::GUEST_ADDRESS }>(guest.vm.gid << 16, GPA + (1 << 20));
    access(&mut guest, load, GPA).expect(Ecode::Pil)?;
    tlb::invalidate::<{ tlb::GUEST_ADDRESS }>((guest.vm.gid ^ 1) << 16, GPA);
    access(&mut guest, load, GPA).expect(Ecode::Pil)?;
    guest.invalidate(GPA);
    ensure_eq!(read(&mut guest, GPA)?, 0x77u64, "after the invalidation");
    Ok(())
}

/// A read-only page gives one fault on the first write and, made writable and
/// invalidated, no more.
fn dirty_once(cpu: &mut Cpu) -> Outcome {
    let mut guest = Guest::new(cpu);
    memory::store(page(0), 1);
    guest.map(GPA, page(0), flag::V | flag::CACHED);
    ensure_eq!(read(&mut guest, GPA)?, 1u64, "read-only");
    guest.set(Gpr::A1, 2);
    access(&mut guest, store, GPA).expect(Ecode::Pme)?;
    guest.map(GPA, page(0), flag::ALL);
    guest.invalidate(GPA);
    access(&mut guest, store, GPA).expect_hvc(DONE)?;
    ensure_eq!(memory::load(page(0)), 2u64, "memory");
    Ok(())
}

/// After a remap and an invalidation the guest reads the new page.
fn remap(cpu: &mut Cpu) -> Outcome {
    let mut guest = Guest::new(cpu);
    for n in 0..8 {
        memory::store(page(n), 0x100 + n as u64);
    }
    for n in [0, 1, 7, 3, 2, 6, 4, 5] {
        guest.map(GPA, page(n), flag::ALL);
        guest.invalidate(GPA);
        ensure_eq!(read(&mut guest, GPA)?, 0x100 + n as u64, "page {n}");
    }
    Ok(())
}

/// A pair with one valid page: the other one faults, whichever comes first.
fn neighbour_of_a_pair(cpu: &mut Cpu) -> Outcome {
    let mut guest = Guest::new(cpu);
    memory::store(page(0), 0x31);
    memory::store(page(1), 0x32);
    guest.map(GPA + 0x4000, page(1), flag::ALL);
    access(&mut guest, load, GPA).expect(Ecode::Pil)?;
    ensure_eq!(read(&mut guest, GPA + 0x4000)?, 0x32u64, "odd page");
    guest.map(GPA, page(0), flag::ALL);
    guest.invalidate(GPA);
    ensure_eq!(read(&mut guest, GPA)?, 0x31u64, "even page");
    ensure_eq!(read(&mut guest, GPA + 0x4000)?, 0x32u64, "odd page again");
    Ok(())
}

/// Two guests with the same guest-physical page in different places take
/// turns without a flush; each sees its own.
fn two_guests(cpu: &mut Cpu) -> Outcome {
    let mut guest = Guest::new(cpu);
    let mut vms = [guest.vm, guest.another_vm()];
    for (n, vm) in vms.iter_mut().enumerate() {
        memory::store(page(n), 0x1111 * (n as u64 + 1));
        vm.stage2.map(&mut guest.tables, GPA, page(n), flag::ALL);
    }
    for round in 0..40 {
        let n = round % 2;
        guest.vm = vms[n];
        ensure_eq!(read(&mut guest, GPA)?, 0x1111 * (n as u64 + 1), "guest {n}");
    }
    Ok(())
}

/// A host-virtual address and a guest-physical one of the same number have
/// nothing to do with each other.
fn host_apart(cpu: &mut Cpu) -> Outcome {
    let mut guest = Guest::new(cpu);
    memory::store(page(0), 0xaaaa);
    memory::store(page(1), 0xbbbb);
    let mut host = Table::new(Shape::P16K, &mut guest.tables);
    host.map(&mut guest.tables, GPA, page(0), flag::ALL);
    guest.map(GPA, page(1), flag::ALL);
    let empty = csrwr!(PGDL, host.root());
    let mut seen = [0; 8];
    for turn in &mut seen {
        // SAFETY: the host's table maps this address to a data page.
        *turn = unsafe { (GPA as *const u64).read_volatile() };
        if let Ok(in_guest) = read(&mut guest, GPA) {
            *turn |= in_guest << 16;
        }
    }
    csrwr!(PGDL, empty);
    tlb::invalidate::<{ tlb::ALL }>(0, 0);
    for turn in seen {
        ensure_eq!(turn, 0xbbbb_aaaau64, "guest and host");
    }
    Ok(())
}

/// D-STAGE2: GID 0 is the host's. A guest with it finds nothing, though each
/// refill brings the host an entry for the very address: it stays where it is
/// until the host's timer ends it.
fn gid_zero(cpu: &mut Cpu) -> Outcome {
    let mut guest = Guest::new(cpu);
    guest.vm.gid = 0;
    let (line, before) = (Interrupt::TI.bit(), log().count);
    let enabled = csrxchg!(ECFG, line, line);
    let mut exit = Exit::default();
    // On a busy machine the time may be over before the entry: more each time.
    for attempt in 0..16 {
        let ticks = (100 * arch::TICKS_PER_US) << attempt;
        csrwr!(TCFG, ticks | TCFG::EN::SET.value);
        exit = guest.start(done).enter();
        csrwr!(TCFG, 0);
        csrwr!(TICLR, 1);
        if log().count > before || !exit.out_of_budget() {
            break;
        }
    }
    csrxchg!(ECFG, enabled, line);
    tlb::invalidate::<{ tlb::ALL }>(0, 0);
    exit.expect(Ecode::Int)?;
    ensure_eq!(exit.era, done as *const () as u64, "ERA");
    ensure!(log().count > before, "no refill");
    Ok(())
}

/// D-ADE: an access to an address at which the machine has nothing is the
/// guest's address error.
fn nothing_there(cpu: &mut Cpu) -> Outcome {
    const HOLE: u64 = 0x3000_0000;
    let mut guest = Guest::new(cpu);
    guest.map(GPA, HOLE, flag::ALL);
    guest.set(Gpr::A0, cached(GPA));
    guest.start(load).run_to_own(Ecode::Ade)?;
    ensure_eq!(csrrd!(GSTAT) & 1, 0u64, "GSTAT.VM");
    Ok(())
}
