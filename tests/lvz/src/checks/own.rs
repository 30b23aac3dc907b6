//! Exceptions of the guest's own: they go to the guest's vectors, and the
//! host sees nothing of them but the `hvcl` at the end.

use crate::arch::{code, encode};
use crate::check::{Check, Cpu, Outcome};
use crate::guest::memory::{self, page};
use crate::guest::programs::{LOAD, STORE, jump, load, store, store_then_load};
use crate::guest::table::{Shape, flag};
use crate::guest::{DONE, Guest, Own, Program, REFILL, vectors};
use crate::machine::boot;
use crate::{csrwr, ensure_eq, gcsrrd, gcsrwr, program};
use loongarch_isa::csr::{Csr, EUEN};
use loongarch_isa::exception::{ADE_FETCH, ADE_MEMORY, Ecode};
use loongarch_isa::gpr::Gpr;

/// This group.
pub const CHECKS: &[Check] = &[
    Check::every("own.syscall", syscall),
    Check::every("own.break", breakpoint),
    Check::every("own.undefined", undefined),
    Check::every("own.privileged", privileged),
    Check::every("own.bound_check", bound_check),
    Check::every("own.address_fetch", address_fetch),
    Check::every("own.address_memory", address_memory),
    Check::every("own.floating_point", floating_point),
    Check::every("own.vector_spacing", vector_spacing),
    Check::every("own.page_load", page_load),
    Check::every("own.page_store", page_store),
    Check::every("own.page_fetch", page_fetch),
    Check::every("own.page_modified", page_modified),
    Check::every("own.page_not_readable", page_not_readable),
    Check::every("own.not_readable_after_store", not_readable_after_store),
    Check::every("own.directory_flags", directory_flags),
    Check::every("own.page_not_executable", page_not_executable),
    Check::every("own.page_level", page_level),
    Check::every("own.page_restricted_level", page_restricted_level),
    Check::every("own.refill_state", refill_state),
    Check::every("own.refill_runs", refill_runs),
    Check::every("own.refill_4k", refill_4k),
    Check::every("own.refill_huge", refill_huge),
    Check::every("own.refill_upper_half", refill_upper_half),
];

/// Runs one instruction at both levels; it must be the guest's own exception,
/// with all of its state.
fn one(cpu: &mut Cpu, word: u32, ecode: Ecode, levels: &[u64]) -> Outcome {
    for &level in levels {
        let mut guest = Guest::new(cpu);
        gcsrwr!(CRMD, boot::MODE | 4 | level);
        let start = code::write(&[word, encode::hvcl(DONE as u32)]);
        guest.world.pc = start;
        let own = guest.run_to_own(ecode)?;
        ensure_eq!(own.esubcode, 0u64, "EsubCode");
        ensure_eq!(own.era, start, "ERA");
        ensure_eq!(own.badi, word, "BADI");
        ensure_eq!(own.prmd & 7, 4 | level, "PRMD");
        ensure_eq!(own.crmd & 7, 0u64, "CRMD.IE and PLV");
    }
    Ok(())
}

fn syscall(cpu: &mut Cpu) -> Outcome {
    one(cpu, encode::SYSCALL | 0x123, Ecode::Sys, &[0, 3])
}

fn breakpoint(cpu: &mut Cpu) -> Outcome {
    one(cpu, encode::BREAK | 0x456, Ecode::Brk, &[0, 3])
}

fn undefined(cpu: &mut Cpu) -> Outcome {
    one(cpu, encode::UNDEFINED, Ecode::Ine, &[0, 3])
}

fn privileged(cpu: &mut Cpu) -> Outcome {
    one(cpu, encode::csrrd(Gpr::A0, Csr::CRMD), Ecode::Ipe, &[3])
}

/// `asrtle.d $a0, $a1` with a0 > a1.
fn bound_check(cpu: &mut Cpu) -> Outcome {
    const ASRTLE_A0_A1: u32 = 0x0001_1480;
    let mut guest = Guest::new(cpu);
    let word = ASRTLE_A0_A1;
    guest.world.pc = code::write(&[word, encode::hvcl(DONE as u32)]);
    guest.set(Gpr::A0, 2).set(Gpr::A1, 1);
    let own = guest.run_to_own(Ecode::Bce)?;
    ensure_eq!(own.badi, word, "BADI");
    Ok(())
}

/// An address that is neither in a window nor sign-extended from 48 bits.
const NOWHERE: u64 = 0x0001_0000_0000_0000;

fn address_fetch(cpu: &mut Cpu) -> Outcome {
    let mut guest = Guest::new(cpu);
    guest.set(Gpr::A0, NOWHERE);
    let own = guest.start(jump).run_to_own(Ecode::Ade)?;
    ensure_eq!(own.esubcode, ADE_FETCH, "EsubCode");
    ensure_eq!(own.era, NOWHERE, "ERA");
    ensure_eq!(own.badv, NOWHERE, "BADV");
    Ok(())
}

fn address_memory(cpu: &mut Cpu) -> Outcome {
    for program in [load as Program, store] {
        let mut guest = Guest::new(cpu);
        guest.set(Gpr::A0, NOWHERE + 8);
        let own = guest.start(program).run_to_own(Ecode::Ade)?;
        ensure_eq!(own.esubcode, ADE_MEMORY, "EsubCode");
        ensure_eq!(own.era, program as *const () as u64, "ERA");
        ensure_eq!(own.badv, NOWHERE + 8, "BADV");
    }
    Ok(())
}

program!(
    /// 1.0 / 0.0 with that exception enabled (FCSR0 bit 3).
    divide:
    "li.w $t0, 8",
    "movgr2fcsr $fcsr0, $t0",
    "lu52i.d $t0, $zero, 0x3ff",
    "movgr2fr.d $f0, $t0",
    "movgr2fr.d $f1, $zero",
    "fdiv.d $f2, $f0, $f1",
    "hvcl 0x10",
);

/// A floating-point exception, with the unit on in host and guest.
fn floating_point(cpu: &mut Cpu) -> Outcome {
    let mut guest = Guest::new(cpu);
    csrwr!(EUEN, EUEN::FPE::SET.value);
    gcsrwr!(EUEN, EUEN::FPE::SET.value);
    let result = guest.start(divide).run_to_own(Ecode::Fpe);
    csrwr!(EUEN, 0);
    ensure_eq!(result?.era, divide as *const () as u64 + 20, "ERA");
    Ok(())
}

/// The guest's ECFG.VS spreads the guest's vectors.
fn vector_spacing(cpu: &mut Cpu) -> Outcome {
    let mut guest = Guest::new(cpu);
    gcsrwr!(ECFG, 1 << 16);
    for (word, ecode) in [
        (encode::SYSCALL, Ecode::Sys),
        (encode::BREAK, Ecode::Brk),
        (encode::UNDEFINED, Ecode::Ine),
    ] {
        guest.world.pc = code::write(&[word]);
        guest.run_to_own(ecode)?;
        let vector = (guest.world.exit.era - vectors as *const () as u64) / 8;
        ensure_eq!(vector, ecode.number(), "vector");
    }
    Ok(())
}

/// A guest-virtual address without a window.
const GVA: u64 = 0x10_0000_8000;

/// Maps [`GVA`] to a data page with these flags, runs `program` on it at this
/// level and returns the guest's exception.
fn fault(
    cpu: &mut Cpu,
    flags: u64,
    program: Program,
    level: u64,
    ecode: Ecode,
) -> Result<Own, crate::check::Failed> {
    let mut guest = Guest::new(cpu);
    let mut table = guest.first_stage(Shape::P16K);
    table.map(&mut guest.tables, GVA, page(0), flags);
    gcsrwr!(CRMD, boot::MODE | level);
    let address = GVA + 0x128;
    guest.set(Gpr::A0, address);
    let own = guest.start(program).run_to_own(ecode)?;
    ensure_eq!(own.badv, address, "BADV");
    ensure_eq!(gcsrrd!(TLBEHI), address & !0x1fff, "TLBEHI");
    ensure_eq!(own.prmd & 3, level, "PRMD.PPLV");
    let era = if program as *const () == jump as *const () {
        address
    } else {
        program as *const () as u64
    };
    ensure_eq!(own.era, era, "ERA");
    Ok(own)
}

fn page_load(cpu: &mut Cpu) -> Outcome {
    let own = fault(cpu, 0, load, 0, Ecode::Pil)?;
    ensure_eq!(own.badi, LOAD, "BADI");
    Ok(())
}

fn page_store(cpu: &mut Cpu) -> Outcome {
    let own = fault(cpu, 0, store, 0, Ecode::Pis)?;
    ensure_eq!(own.badi, STORE, "BADI");
    Ok(())
}

fn page_fetch(cpu: &mut Cpu) -> Outcome {
    fault(cpu, 0, jump, 0, Ecode::Pif).map(|_| ())
}

fn page_modified(cpu: &mut Cpu) -> Outcome {
    fault(cpu, flag::V | flag::CACHED, store, 0, Ecode::Pme).map(|_| ())
}

fn page_not_readable(cpu: &mut Cpu) -> Outcome {
    fault(cpu, flag::ALL | flag::NR, load, 0, Ecode::Pnr).map(|_| ())
}

fn page_not_executable(cpu: &mut Cpu) -> Outcome {
    fault(cpu, flag::ALL | flag::NX, jump, 0, Ecode::Pnx).map(|_| ())
}

/// A page of level 0 is out of reach for level 3.
fn page_level(cpu: &mut Cpu) -> Outcome {
    fault(cpu, flag::ALL, load, 3, Ecode::Ppi).map(|_| ())
}

/// With RPLV a page of level 3 is out of reach for level 0.
fn page_restricted_level(cpu: &mut Cpu) -> Outcome {
    let flags = flag::ALL | flag::PLV3 | flag::RPLV;
    fault(cpu, flags, load, 0, Ecode::Ppi).map(|_| ())
}

/// The guest's refill exception: everything in the guest's registers, direct
/// addressing in the guest only.
fn refill_state(cpu: &mut Cpu) -> Outcome {
    let mut guest = Guest::new(cpu);
    gcsrwr!(CRMD, boot::MODE | 4 | 3);
    let estat = gcsrrd!(ESTAT);
    guest.set(Gpr::A0, GVA + 0x128);
    let exit = guest.start(load).run_to_hvc(REFILL)?;
    ensure_eq!(exit.crmd, boot::MODE, "host CRMD");
    ensure_eq!(gcsrrd!(TLBRBADV), GVA + 0x128, "TLBRBADV");
    ensure_eq!(gcsrrd!(TLBRERA), load as *const () as u64 | 1, "TLBRERA");
    ensure_eq!(gcsrrd!(TLBRPRMD) & 7, 7u64, "TLBRPRMD");
    ensure_eq!(gcsrrd!(TLBREHI) & !0x1fff, GVA & !0x1fff, "TLBREHI");
    ensure_eq!(gcsrrd!(CRMD) & 0x1f, 8u64, "guest CRMD");
    ensure_eq!(gcsrrd!(ESTAT), estat, "guest ESTAT");
    Ok(())
}

/// Loads through the guest's own paging and compares.
fn walk(cpu: &mut Cpu, shape: Shape, gva: u64) -> Outcome {
    let mut guest = Guest::new(cpu);
    let mut table = guest.first_stage(shape);
    let step = shape.page_bytes();
    for n in 0..8 {
        memory::store(page(n as usize) + 0x40, 0x5000 + n);
        table.map(
            &mut guest.tables,
            gva + n * step,
            page(n as usize),
            flag::ALL,
        );
    }
    for n in [0, 5, 1, 4, 7, 2, 6, 3, 0, 7] {
        guest.set(Gpr::A0, gva + n * step + 0x40);
        guest.start(load).run_to_hvc(DONE)?;
        ensure_eq!(guest.get(Gpr::A1), 0x5000 + n, "page {n}");
    }
    Ok(())
}

/// The guest's refill handler runs in the guest and finds the pages.
fn refill_runs(cpu: &mut Cpu) -> Outcome {
    walk(cpu, Shape::P16K, GVA)
}

/// 4 KiB pages in the guest over 16 KiB pages in the host.
fn refill_4k(cpu: &mut Cpu) -> Outcome {
    walk(cpu, Shape::P4K, GVA)
}

/// The upper half, by PGDH.
fn refill_upper_half(cpu: &mut Cpu) -> Outcome {
    walk(cpu, Shape::P16K, 0xffff_ff00_0000_0000)
}

/// A huge page of the guest's, in both of its halves.
fn refill_huge(cpu: &mut Cpu) -> Outcome {
    const BASE: u64 = 128 << 20;
    let mut guest = Guest::new(cpu);
    let mut table = guest.first_stage(Shape::P16K);
    let gva = 0x20_0000_0000;
    table.map_huge(&mut guest.tables, gva, BASE, flag::ALL, 1);
    for half in [0, 16 << 20] {
        let offset = half + 0x100 * cpu.index as u64;
        memory::store(BASE + offset, 0x77 + half);
        guest.set(Gpr::A0, gva + offset);
        guest.start(load).run_to_hvc(DONE)?;
        ensure_eq!(guest.get(Gpr::A1), 0x77 + half, "half at {half:#x}");
    }
    Ok(())
}

/// A page that can be written but not read can't be read after a write either.
fn not_readable_after_store(cpu: &mut Cpu) -> Outcome {
    let mut guest = Guest::new(cpu);
    let mut table = guest.first_stage(Shape::P16K);
    table.map(&mut guest.tables, GVA, page(0), flag::ALL | flag::NR);
    memory::store(page(0), 0);
    guest.set(Gpr::A0, GVA).set(Gpr::A1, 9);
    let own = guest.start(store_then_load).run_to_own(Ecode::Pnr)?;
    ensure_eq!(own.era, store_then_load as *const () as u64 + 4, "ERA");
    ensure_eq!(memory::load(page(0)), 9u64, "what was written");
    Ok(())
}

/// Flags in a directory entry are no address bits of the next table.
fn directory_flags(cpu: &mut Cpu) -> Outcome {
    let mut guest = Guest::new(cpu);
    let mut table = guest.first_stage(Shape::P16K);
    memory::store(page(0), 0x41);
    table.map(&mut guest.tables, GVA, page(0), flag::ALL);
    for level in [2, 1] {
        *table.entry(&mut guest.tables, GVA, level) |= flag::NOT_HUGE;
    }
    guest.set(Gpr::A0, GVA);
    guest.start(load).run_to_hvc(DONE)?;
    ensure_eq!(guest.get(Gpr::A1), 0x41u64, "what was read");
    Ok(())
}
