//! What exits only where GCFG asks for it: TIT, TOP and TOE.

use super::gspr::{expect_gspr, expect_none, expect_own, run, tlb_words};
use crate::arch::encode;
use crate::check::{Check, Cpu, Outcome};
use crate::guest::memory::page;
use crate::guest::programs::{forever, load};
use crate::guest::table::Shape;
use crate::guest::{Guest, REFILL};
use crate::machine::boot;
use crate::{csrwr, ensure_eq, gcsrrd, gcsrwr};
use loongarch_isa::csr::{Csr, GCFG};
use loongarch_isa::exception::Ecode;
use loongarch_isa::gpr::Gpr;

/// This group.
pub const CHECKS: &[Check] = &[
    Check::every("gspr.tit", tit),
    Check::every("gspr.top", top),
    Check::every("gspr.toe", toe),
    Check::every("gspr.toe_page_fault", toe_page_fault),
    Check::every("gspr.toe_refill", toe_refill),
    Check::every("gspr.toe_interrupt", toe_interrupt),
];

/// D-TIT: with TIT = 1 accesses of TCFG, TVAL and TICLR exit.
fn tit(cpu: &mut Cpu) -> Outcome {
    let mut guest = Guest::new(cpu);
    csrwr!(GCFG, GCFG::TIT::SET.value);
    for csr in [Csr::TCFG, Csr::TVAL, Csr::TICLR] {
        expect_gspr(&mut guest, encode::csrrd(Gpr::A0, csr))?;
        expect_gspr(&mut guest, encode::csrxchg(Gpr::A0, Gpr::A1, csr))?;
    }
    for csr in [Csr::TID, Csr::CNTC, Csr::ESTAT] {
        expect_none(&mut guest, encode::csrrd(Gpr::A0, csr))?;
    }
    csrwr!(GCFG, 0);
    expect_none(&mut guest, encode::csrrd(Gpr::A0, Csr::TVAL))
}

/// D-TOP: with TOP = 1 every privileged instruction at guest level 0 exits;
/// others don't.
fn top(cpu: &mut Cpu) -> Outcome {
    let mut guest = Guest::new(cpu);
    csrwr!(GCFG, (GCFG::TOP::SET + GCFG::GCI.val(2)).value);
    let words = [
        encode::csrrd(Gpr::A0, Csr::CRMD),
        encode::csrwr(Gpr::A0, Csr::save(0)),
        encode::csrxchg(Gpr::A0, Gpr::A1, Csr::save(0)),
        encode::ERTN,
        encode::cacop(8, Gpr::A1),
    ];
    for word in words.into_iter().chain(tlb_words()) {
        expect_gspr(&mut guest, word)?;
    }
    expect_none(&mut guest, encode::addi_d(Gpr::A0, Gpr::A0, 1))?;
    csrwr!(GCFG, GCFG::GCI.val(2).value);
    expect_none(&mut guest, encode::csrrd(Gpr::A0, Csr::CRMD))
}

/// D-TOE: with TOE = 1 the guest's own exceptions exit, with their own code.
fn toe(cpu: &mut Cpu) -> Outcome {
    let mut guest = Guest::new(cpu);
    csrwr!(GCFG, GCFG::TOE::SET.value);
    for (word, ecode) in [
        (encode::SYSCALL, Ecode::Sys),
        (encode::BREAK, Ecode::Brk),
        (encode::UNDEFINED, Ecode::Ine),
    ] {
        let exit = run(&mut guest, word);
        ensure_eq!(exit.ecode(), ecode.number(), "ecode of {word:#010x}");
        ensure_eq!(exit.badi, word, "BADI");
        ensure_eq!(gcsrrd!(ESTAT), 0u64, "guest ESTAT");
    }
    csrwr!(GCFG, 0);
    expect_own(&mut guest, encode::SYSCALL, Ecode::Sys)
}

const GVA: u64 = 0x10_0000_8000;

/// A page fault of the guest's exits with the guest-virtual address in BADV.
fn toe_page_fault(cpu: &mut Cpu) -> Outcome {
    let mut guest = Guest::new(cpu);
    let mut table = guest.first_stage(Shape::P16K);
    table.map(&mut guest.tables, GVA, page(0), 0);
    csrwr!(GCFG, GCFG::TOE::SET.value);
    guest.set(Gpr::A0, GVA + 0x10);
    let exit = guest.start(load).run();
    csrwr!(GCFG, 0);
    exit.expect(Ecode::Pil)?;
    ensure_eq!(exit.badv, GVA + 0x10, "BADV");
    ensure_eq!(exit.era, load as *const () as u64, "ERA");
    ensure_eq!(gcsrrd!(ESTAT), 0u64, "guest ESTAT");
    Ok(())
}

/// The guest's TLB refill doesn't exit.
fn toe_refill(cpu: &mut Cpu) -> Outcome {
    let mut guest = Guest::new(cpu);
    csrwr!(GCFG, GCFG::TOE::SET.value);
    guest.set(Gpr::A0, GVA);
    let outcome = guest.start(load).run_to_hvc(REFILL);
    csrwr!(GCFG, 0);
    outcome.map(|_| ())
}

/// Nor do the guest's interrupts.
fn toe_interrupt(cpu: &mut Cpu) -> Outcome {
    let mut guest = Guest::new(cpu);
    csrwr!(GCFG, GCFG::TOE::SET.value);
    gcsrwr!(ESTAT, 1);
    gcsrwr!(ECFG, 1);
    gcsrwr!(CRMD, boot::MODE | 4);
    let outcome = guest.start(forever).run_to_own(Ecode::Int);
    csrwr!(GCFG, 0);
    outcome.map(|_| ())
}
