//! Sensitive instructions of the guest: GSPR, or the guest's own exception.

use crate::arch::{code, encode, iocsr};
use crate::check::{Check, Cpu, Failed, Outcome};
use crate::guest::switch::Exit;
use crate::guest::{DONE, Guest};
use crate::machine::boot;
use crate::{csrwr, ensure_eq, gcsrwr};
use loongarch_isa::csr::{Csr, GCFG, GTLBC};
use loongarch_isa::exception::Ecode;
use loongarch_isa::gcsr::{Home, OF_THE_HOST, home};
use loongarch_isa::gpr::Gpr;

/// This group.
pub const CHECKS: &[Check] = &[
    Check::every("gspr.cpucfg", cpucfg),
    Check::every("gspr.cpucfg_level3", cpucfg_level3),
    Check::every("gspr.iocsr", iocsr_forms),
    Check::every("gspr.iocsr_no_effect", iocsr_no_effect),
    Check::every("gspr.idle", idle),
    Check::every("gspr.cacop_gci0", cacop_gci0),
    Check::every("gspr.cacop_gci1", cacop_gci1),
    Check::every("gspr.cacop_gci2", cacop_gci2),
    Check::every("gspr.csr_read", csr_read),
    Check::every("gspr.csr_write", csr_write),
    Check::every("gspr.csr_exchange", csr_exchange),
    Check::every("gspr.csr_of_the_host", csr_of_the_host),
    Check::every("gspr.csr_any_number", csr_any_number),
    Check::every("gspr.dbcl", dbcl),
    Check::every("gspr.resume", resume),
    Check::every("gspr.rdtime", rdtime),
    Check::every("gspr.lvz_instructions", lvz_instructions),
    Check::every("gspr.lvz_instructions_level3", lvz_instructions_level3),
    Check::every("gspr.level3", level3),
    Check::every("gspr.tlb_without_toti", tlb_without_toti),
    Check::every("gspr.tlb_with_toti", tlb_with_toti),
];

/// Runs `word` in the guest and returns the exit; GPRs stay.
pub fn run(guest: &mut Guest, word: u32) -> Exit {
    guest.world.pc = code::write(&[word, encode::hvcl(DONE as u32)]);
    guest.run()
}

/// Fails unless `word` exits as GSPR, with its address and itself.
pub fn expect_gspr(guest: &mut Guest, word: u32) -> Outcome {
    let start = code::write(&[word, encode::hvcl(DONE as u32)]);
    guest.world.pc = start;
    let exit = guest.run();
    if exit.ecode() != Ecode::Gspr.number() {
        return Err(crate::check::fail(format_args!(
            "{word:#010x}: ecode {} badi {:#x}, expected GSPR",
            exit.ecode(),
            exit.badi
        )));
    }
    ensure_eq!(exit.badi, word, "BADI");
    ensure_eq!(exit.era, start, "ERA of {word:#010x}");
    Ok(())
}

/// Fails unless `word` is the guest's own exception, with itself in BADI.
pub fn expect_own(guest: &mut Guest, word: u32, ecode: Ecode) -> Outcome {
    guest.world.pc = code::write(&[word, encode::hvcl(DONE as u32)]);
    let own = guest.run_to_own(ecode).map_err(|Failed| note(word))?;
    ensure_eq!(own.badi, word, "guest's BADI");
    Ok(())
}

/// Adds the instruction to what the inner check wrote down.
fn note(word: u32) -> Failed {
    crate::check::add(format_args!(" ({word:#010x})"))
}

/// Fails unless `word` runs without an exit.
pub fn expect_none(guest: &mut Guest, word: u32) -> Outcome {
    let exit = run(guest, word);
    exit.expect_hvc(DONE).map_err(|Failed| note(word))
}

/// `cpucfg` exits whatever its operand.
fn cpucfg(cpu: &mut Cpu) -> Outcome {
    let mut guest = Guest::new(cpu);
    for index in [0, 1, 2, 3, 20, 48, 0x4000_0000, 0x4000_0004, cpu.rng.next()] {
        guest.set(Gpr::A1, index);
        expect_gspr(&mut guest, encode::cpucfg(Gpr::A0, Gpr::A1))?;
    }
    expect_gspr(&mut guest, encode::cpucfg(Gpr::ZERO, Gpr::ZERO))
}

/// Also from level 3.
fn cpucfg_level3(cpu: &mut Cpu) -> Outcome {
    let mut guest = Guest::new(cpu);
    gcsrwr!(CRMD, boot::MODE | 3);
    guest.set(Gpr::A1, 2);
    expect_gspr(&mut guest, encode::cpucfg(Gpr::A0, Gpr::A1))
}

/// All eight forms exit.
fn iocsr_forms(cpu: &mut Cpu) -> Outcome {
    let mut guest = Guest::new(cpu);
    guest.set(Gpr::A1, 0x1000);
    for form in 0..8 {
        expect_gspr(&mut guest, encode::iocsr(form, Gpr::A0, Gpr::A1))?;
    }
    Ok(())
}

/// A write that exits has not been done.
fn iocsr_no_effect(cpu: &mut Cpu) -> Outcome {
    const MAILBOX3: u32 = 0x1038;
    let mut guest = Guest::new(cpu);
    iocsr::write64(MAILBOX3, 0x1122_3344_5566_7788);
    guest.set(Gpr::A0, u64::MAX).set(Gpr::A1, MAILBOX3.into());
    for form in 4..8 {
        expect_gspr(&mut guest, encode::iocsr(form, Gpr::A0, Gpr::A1))?;
    }
    let got = iocsr::read64(MAILBOX3);
    iocsr::write64(MAILBOX3, 0);
    ensure_eq!(got, 0x1122_3344_5566_7788u64, "mailbox 3");
    Ok(())
}

/// `idle` exits, whatever its level and the guest's CRMD.IE.
fn idle(cpu: &mut Cpu) -> Outcome {
    let mut guest = Guest::new(cpu);
    for mode in [0, 4] {
        gcsrwr!(CRMD, boot::MODE | mode);
        for level in [0, 1, 0x7fff] {
            expect_gspr(&mut guest, encode::idle(level))?;
        }
    }
    Ok(())
}

/// Runs all 32 cache operations with this GCI; bit n of `exits` says whether
/// operation n (code bits 4:3) exits.
fn cacop(cpu: &mut Cpu, gci: u64, exits: u32) -> Outcome {
    let mut guest = Guest::new(cpu);
    csrwr!(GCFG, GCFG::GCI.val(gci).value);
    for code in 0..32 {
        let word = encode::cacop(code, Gpr::A1);
        guest.set(Gpr::A1, cacop as *const () as u64);
        if exits >> (code >> 3) & 1 != 0 {
            expect_gspr(&mut guest, word)?;
        } else {
            expect_none(&mut guest, word)?;
        }
    }
    Ok(())
}

/// D-CACOP: with GCI 0 every `cacop` exits.
fn cacop_gci0(cpu: &mut Cpu) -> Outcome {
    cacop(cpu, 0, 0b1111)
}

/// With GCI 1 all but hit operations exit.
fn cacop_gci1(cpu: &mut Cpu) -> Outcome {
    cacop(cpu, 1, 0b1011)
}

/// With GCI 2 initialization and custom operations exit.
fn cacop_gci2(cpu: &mut Cpu) -> Outcome {
    cacop(cpu, 2, 0b1001)
}

/// Every number that software emulates, and the numbers around the banks.
fn unbanked() -> impl Iterator<Item = Csr> {
    let all = (0..0x600u16).chain([0x1000, 0x3fff]).filter_map(Csr::new);
    all.filter(|&csr| match home(csr) {
        Home::Software => true,
        Home::Absent => csr.number() & 3 == 1 || csr.number() < 0x100,
        Home::Hardware | Home::HardwareWithMsgint => false,
    })
}

/// csrrd of what isn't banked.
fn csr_read(cpu: &mut Cpu) -> Outcome {
    let mut guest = Guest::new(cpu);
    for csr in unbanked() {
        expect_gspr(&mut guest, encode::csrrd(Gpr::A0, csr))?;
    }
    Ok(())
}

/// csrwr of what isn't banked.
fn csr_write(cpu: &mut Cpu) -> Outcome {
    let mut guest = Guest::new(cpu);
    for csr in unbanked() {
        expect_gspr(&mut guest, encode::csrwr(Gpr::A0, csr))?;
    }
    Ok(())
}

/// csrxchg of what isn't banked.
fn csr_exchange(cpu: &mut Cpu) -> Outcome {
    let mut guest = Guest::new(cpu);
    for csr in unbanked() {
        expect_gspr(&mut guest, encode::csrxchg(Gpr::A0, Gpr::A1, csr))?;
    }
    Ok(())
}

/// The host's LVZ registers exit, and a write of them has no effect.
fn csr_of_the_host(cpu: &mut Cpu) -> Outcome {
    let mut guest = Guest::new(cpu);
    guest.set(Gpr::A0, u64::MAX).set(Gpr::A1, u64::MAX);
    for csr in OF_THE_HOST {
        let before = code::host_read(csr);
        expect_gspr(&mut guest, encode::csrrd(Gpr::A0, csr))?;
        expect_gspr(&mut guest, encode::csrwr(Gpr::A0, csr))?;
        expect_gspr(&mut guest, encode::csrxchg(Gpr::A0, Gpr::A1, csr))?;
        if csr != Csr::GSTAT {
            ensure_eq!(code::host_read(csr), before, "{}", csr.name());
        }
    }
    Ok(())
}

/// Random numbers out of all 16,384.
fn csr_any_number(cpu: &mut Cpu) -> Outcome {
    let mut guest = Guest::new(cpu);
    for _ in 0..200 {
        let csr = Csr::from_field(cpu.rng.next() as u32);
        if matches!(home(csr), Home::Software | Home::Absent) {
            expect_gspr(&mut guest, encode::csrrd(Gpr::A0, csr))?;
        }
    }
    Ok(())
}

/// D-DBCL: `dbcl` exits.
fn dbcl(cpu: &mut Cpu) -> Outcome {
    expect_gspr(&mut Guest::new(cpu), encode::DBCL)
}

/// ERA is not advanced; the host emulates and goes on after the instruction.
fn resume(cpu: &mut Cpu) -> Outcome {
    let mut guest = Guest::new(cpu);
    let words = [
        encode::cpucfg(Gpr::A0, Gpr::A1),
        encode::addi_d(Gpr::A0, Gpr::A0, 1),
        encode::hvcl(DONE as u32),
    ];
    let start = code::write(&words);
    guest.world.pc = start;
    for _ in 0..2 {
        let exit = guest.run();
        exit.expect(Ecode::Gspr)?;
        ensure_eq!(exit.era, start, "ERA");
    }
    guest.set(Gpr::A0, 41).skip().run_to_hvc(DONE)?;
    ensure_eq!(guest.get(Gpr::A0), 42u64, "a0");
    Ok(())
}

/// D-CPUCFG: `rdtimel.w`, `rdtimeh.w` and `rdtime.d` never exit, at any level.
fn rdtime(cpu: &mut Cpu) -> Outcome {
    const FORMS: [u32; 3] = [0x0000_6000, 0x0000_6400, 0x0000_6800];
    let mut guest = Guest::new(cpu);
    for mode in [0, 3] {
        gcsrwr!(CRMD, boot::MODE | mode);
        for word in FORMS {
            expect_none(&mut guest, word | 4)?;
        }
    }
    Ok(())
}

/// The LVZ instructions but `hvcl`.
fn lvz_words() -> impl Iterator<Item = u32> {
    let gcsr = [
        encode::gcsrrd(Gpr::A0, Csr::CRMD),
        encode::gcsrwr(Gpr::A0, Csr::save(0)),
        encode::gcsrxchg(Gpr::A0, Gpr::A1, Csr::save(0)),
    ];
    gcsr.into_iter().chain(encode::GUEST_TLB)
}

/// INVTLB's operations for guests' entries, and the undefined ones.
fn lvz_invtlb() -> impl Iterator<Item = u32> {
    (7..32).map(|op| encode::invtlb(op, Gpr::ZERO, Gpr::ZERO))
}

/// D-HVCL, D-INVTLB: in guest mode they don't exist: the guest's own INE.
fn lvz_instructions(cpu: &mut Cpu) -> Outcome {
    for word in lvz_words().chain(lvz_invtlb()) {
        expect_own(&mut Guest::new(cpu), word, Ecode::Ine)?;
    }
    Ok(())
}

/// At level 3 neither.
fn lvz_instructions_level3(cpu: &mut Cpu) -> Outcome {
    for word in lvz_words() {
        let mut guest = Guest::new(cpu);
        gcsrwr!(CRMD, boot::MODE | 3);
        expect_own(&mut guest, word, Ecode::Ine)?;
    }
    Ok(())
}

/// D-PLV3: a privileged instruction at guest level 3 is the guest's IPE.
fn level3(cpu: &mut Cpu) -> Outcome {
    let words = [
        encode::csrrd(Gpr::A0, Csr::CRMD),
        encode::csrwr(Gpr::A0, Csr::save(0)),
        encode::csrxchg(Gpr::A0, Gpr::A1, Csr::ECFG),
        encode::csrrd(Gpr::A0, Csr::IMPCTL1),
        encode::csrrd(Gpr::A0, Csr::GSTAT),
        encode::csrwr(Gpr::A0, Csr::DBG),
        encode::cacop(0, Gpr::A1),
        encode::cacop(8, Gpr::A1),
        encode::idle(0),
        encode::ERTN,
        encode::invtlb(0, Gpr::ZERO, Gpr::ZERO),
    ];
    let iocsr = (0..8).map(|form| encode::iocsr(form, Gpr::A0, Gpr::A1));
    let tlb = encode::TLB.into_iter().chain(lvz_invtlb());
    for word in words.into_iter().chain(iocsr).chain(tlb) {
        let mut guest = Guest::new(cpu);
        gcsrwr!(CRMD, boot::MODE | 3);
        expect_own(&mut guest, word, Ecode::Ipe)?;
    }
    Ok(())
}

/// The guest's TLB instructions that change nothing but its TLB and TLB
/// registers.
pub fn tlb_words() -> impl Iterator<Item = u32> {
    let invtlb = (0..=6).map(|op| encode::invtlb(op, Gpr::ZERO, Gpr::ZERO));
    encode::TLB.into_iter().chain(invtlb)
}

/// With TOTI = 0 the guest's TLB instructions run.
fn tlb_without_toti(cpu: &mut Cpu) -> Outcome {
    let mut guest = Guest::new(cpu);
    gcsrwr!(TLBIDX, 14 << 24 | 1 << 31 | 2048);
    for word in tlb_words() {
        expect_none(&mut guest, word)?;
    }
    Ok(())
}

/// D-TOTI: with TOTI = 1 each of them exits.
fn tlb_with_toti(cpu: &mut Cpu) -> Outcome {
    let mut guest = Guest::new(cpu);
    guest.gtlbc = GTLBC::TOTI::SET.value;
    for word in tlb_words() {
        expect_gspr(&mut guest, word)?;
    }
    Ok(())
}
