//! The second stage's tables and TLB: page sizes, flags, capacity.

use super::stage2::{GPA, access, read};
use crate::arch::tlb;
use crate::check::{Check, Cpu, Outcome};
use crate::guest::memory::{self, page};
use crate::guest::programs::{jump, load};
use crate::guest::table::{Shape, Table, flag};
use crate::guest::{DONE, Guest, Program, log};
use crate::machine::{LOW_RAM, cached};
use crate::{csrwr, ensure, ensure_eq, program};
use loongarch_isa::exception::Ecode;
use loongarch_isa::gpr::Gpr;

/// This group.
pub const CHECKS: &[Check] = &[
    Check::every("stage2.huge_flags", huge_flags),
    Check::every("stage2.huge_flags_again", huge_flags_again),
    Check::every("stage2.huge_two_guests", huge_two_guests),
    Check::every("stage2.directory_flags", directory_flags),
    Check::every("stage2.software_bits", software_bits),
    Check::every("stage2.pages_4k", pages_4k),
    Check::every("stage2.huge_16k", huge_16k),
    Check::every("stage2.huge_4k", huge_4k),
    Check::every("stage2.huge_4k_upper", huge_4k_upper),
    Check::every("stage2.stlb_used", stlb_used),
    Check::every("stage2.host_stlb_used", host_stlb_used),
];

/// NX, NR and RPLV of a huge page's entry survive the walk.
fn huge_flags(cpu: &mut Cpu) -> Outcome {
    for (flags, program, ecode) in [
        (flag::NX, jump as Program, Ecode::Pnx),
        (flag::NR, load, Ecode::Pnr),
        (flag::RPLV | flag::PLV3, load, Ecode::Ppi),
    ] {
        let mut guest = Guest::new(cpu);
        let stage2 = &mut guest.vm.stage2;
        stage2.map_huge(&mut guest.tables, GPA, FREE, flag::ALL | flags, 1);
        access(&mut guest, program, GPA + 0x1238).expect(ecode)?;
    }
    Ok(())
}

program!(
    /// Loads at a0, then stores at a2.
    load_store: "ld.d $a1, $a0, 0", "st.d $a1, $a2, 0", "hvcl 0x10",
);
program!(
    /// Loads at a0, then jumps to a2.
    load_jump: "ld.d $a1, $a0, 0", "jirl $zero, $a2, 0",
);
program!(
    /// Stores at a0, then loads at a2.
    store_load: "st.d $a1, $a0, 0", "ld.d $a1, $a2, 0", "hvcl 0x10",
);

/// What a huge page forbids stays forbidden in its other small pages right
/// after an access that it allows, when its entry is the last one used.
fn huge_flags_again(cpu: &mut Cpu) -> Outcome {
    let writable = flag::V | flag::D | flag::CACHED;
    for (flags, program, ecode) in [
        (flag::V | flag::CACHED, load_store as Program, Ecode::Pme),
        (writable | flag::NX, load_jump, Ecode::Pnx),
        (writable | flag::NR, store_load, Ecode::Pnr),
    ] {
        let mut guest = Guest::new(cpu);
        let stage2 = &mut guest.vm.stage2;
        stage2.map_huge(&mut guest.tables, GPA, FREE, flags, 1);
        let own = 0x40 * cpu.index as u64;
        guest.set(Gpr::A2, cached(GPA) + (1 << 20) + own);
        let exit = access(&mut guest, program, GPA + own);
        exit.expect(ecode)?;
        ensure_eq!(exit.badv, GPA + (1 << 20) + own, "BADV");
    }
    Ok(())
}

/// Two guests whose huge pages at one address lead to different places take
/// turns, and each goes on where it is at home.
fn huge_two_guests(cpu: &mut Cpu) -> Outcome {
    let mut guest = Guest::new(cpu);
    let own = 0x40 * cpu.index as u64;
    let homes = [FREE, FREE + (32 << 20)];
    let mut vms = [guest.vm, guest.another_vm()];
    for (vm, home) in vms.iter_mut().zip(homes) {
        memory::store(home + own, home);
        vm.stage2
            .map_huge(&mut guest.tables, GPA, home, flag::ALL, 1);
    }
    for round in 0..20 {
        guest.vm = vms[round % 2];
        ensure_eq!(read(&mut guest, GPA + own)?, homes[round % 2], "{round}");
    }
    Ok(())
}

/// Flags in a directory entry are no address bits of the next table.
fn directory_flags(cpu: &mut Cpu) -> Outcome {
    let mut guest = Guest::new(cpu);
    memory::store(page(0), 0x41);
    guest.map(GPA, page(0), flag::ALL);
    for level in [2, 1] {
        *guest.vm.stage2.entry(&mut guest.tables, GPA, level) |= flag::NOT_HUGE;
    }
    ensure_eq!(read(&mut guest, GPA)?, 0x41u64, "what was read");
    Ok(())
}

/// Bits that software keeps in an entry mean nothing to the hardware, in
/// pages and in huge pages.
fn software_bits(cpu: &mut Cpu) -> Outcome {
    let mut guest = Guest::new(cpu);
    memory::store(page(0), 0x42);
    guest.map(GPA, page(0), flag::ALL | flag::SOFTWARE);
    ensure_eq!(read(&mut guest, GPA)?, 0x42u64, "in a page");
    let (gpa, offset) = (GPA + (64 << 20), 0x40000 + 8 * cpu.index as u64);
    memory::store(FREE + offset, 0x43);
    let flags = flag::ALL | flag::SOFTWARE;
    guest
        .vm
        .stage2
        .map_huge(&mut guest.tables, gpa, FREE, flags, 1);
    ensure_eq!(read(&mut guest, gpa + offset)?, 0x43u64, "in a huge page");
    Ok(())
}

/// 4 KiB pages in the second stage.
fn pages_4k(cpu: &mut Cpu) -> Outcome {
    let mut guest = Guest::shaped(cpu, Shape::P4K);
    for n in 0..8u64 {
        let phys = page(0) + (7 - n) * 0x1000;
        memory::store(phys + 0x10, 0x900 + n);
        guest.map(GPA + n * 0x1000, phys, flag::ALL);
    }
    for n in [0, 7, 3, 4, 1, 2, 6, 5] {
        let got = read(&mut guest, GPA + n * 0x1000 + 0x10)?;
        ensure_eq!(got, 0x900 + n, "page {n}");
    }
    access(&mut guest, load, GPA + 0x8000).expect(Ecode::Pil)
}

/// Reads both halves of a huge page at directory `level`, which maps
/// `base`, through both halves of its TLB pair.
fn huge(cpu: &mut Cpu, shape: Shape, level: u32, base: u64, offsets: &[u64]) -> Outcome {
    let mut guest = Guest::shaped(cpu, shape);
    let gpa = 0x40_0000_0000;
    guest
        .vm
        .stage2
        .map_huge(&mut guest.tables, gpa, base, flag::ALL, level);
    for &offset in offsets {
        let offset = offset + 0x40 * cpu.index as u64;
        memory::store(base + offset, base ^ offset);
        let got = read(&mut guest, gpa + offset)?;
        ensure_eq!(got, base ^ offset, "offset {offset:#x}");
    }
    Ok(())
}

/// RAM that neither the image nor anything else uses: from 128 MiB on.
const FREE: u64 = 128 << 20;

/// 32 MiB pages.
fn huge_16k(cpu: &mut Cpu) -> Outcome {
    const HALF: u64 = 16 << 20;
    let offsets = [0x10000, HALF + 0x10000, HALF - 0x1000, 2 * HALF - 0x1000];
    huge(cpu, Shape::P16K, 1, FREE, &offsets)
}

/// 2 MiB pages.
fn huge_4k(cpu: &mut Cpu) -> Outcome {
    const HALF: u64 = 1 << 20;
    let offsets = [0x11000, HALF + 0x11000, HALF - 0x1000, 2 * HALF - 0x1000];
    huge(cpu, Shape::P4K, 1, FREE, &offsets)
}

/// A 1 GiB page, from the directory above.
fn huge_4k_upper(cpu: &mut Cpu) -> Outcome {
    let offsets = [FREE + 0x20000, LOW_RAM - 0x10000];
    huge(cpu, Shape::P4K, 2, 0, &offsets)
}

/// Pages that [`stlb_used`] touches: 256 pairs, one a set of the STLB.
const MANY: u64 = 512;

program!(
    /// Loads from a1 pages of 16 KiB, from a0 on.
    touch:
    "li.d $t0, 0x4000",
    "1: ld.d $t1, $a0, 0",
    "add.d $a0, $a0, $t0",
    "addi.d $a1, $a1, -1",
    "bnez $a1, 1b",
    "hvcl 0x10",
);

/// With STLBPS = 14 the pages of a guest fit into the STLB: the second pass
/// over 512 of them needs no refill.
fn stlb_used(cpu: &mut Cpu) -> Outcome {
    let mut guest = Guest::new(cpu);
    for n in 0..MANY {
        guest.map(GPA + n * 0x4000, page(0), flag::ALL);
    }
    let mut refills = [0; 2];
    for count in &mut refills {
        let before = log().count;
        guest.set(Gpr::A0, cached(GPA)).set(Gpr::A1, MANY);
        guest.start(touch).run_to_hvc(DONE)?;
        *count = log().count - before;
    }
    ensure!(refills[0] >= MANY / 2, "first pass: {} refills", refills[0]);
    // What the guest runs on is in random MTLB entries of its own.
    ensure!(refills[1] <= 2, "second pass: {} refills", refills[1]);
    Ok(())
}

/// The same for the host's own mapped addresses.
fn host_stlb_used(cpu: &mut Cpu) -> Outcome {
    let mut guest = Guest::new(cpu);
    let mut host = Table::new(Shape::P16K, &mut guest.tables);
    for n in 0..MANY {
        host.map(&mut guest.tables, GPA + n * 0x4000, page(0), flag::ALL);
    }
    let empty = csrwr!(PGDL, host.root());
    let mut refills = [0; 2];
    for count in &mut refills {
        let before = log().count;
        for n in 0..MANY {
            // SAFETY: the host's table maps this address to a data page.
            unsafe { ((GPA + n * 0x4000) as *const u64).read_volatile() };
        }
        *count = log().count - before;
    }
    csrwr!(PGDL, empty);
    tlb::invalidate::<{ tlb::ALL }>(0, 0);
    ensure_eq!(refills[0], MANY / 2, "refills of the first pass");
    ensure_eq!(refills[1], 0u64, "refills of the second pass");
    Ok(())
}
