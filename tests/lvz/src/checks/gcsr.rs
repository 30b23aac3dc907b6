//! gcsrrd, gcsrwr and gcsrxchg: the guest's bank from the host.

use crate::arch::{code, encode};
use crate::check::{Check, Cpu, Failed, Outcome};
use crate::guest::reset_bank;
use crate::machine::rng::Rng;
use crate::{csrrd, csrxchg, ensure, ensure_eq, gcsrrd, gcsrwr, gcsrxchg};
use loongarch_isa::csr::Csr;
use loongarch_isa::gcsr::{HARDWARE, Home, home};
use loongarch_isa::gpr::Gpr;

/// This group. The first check looks at the bank before any other wrote it.
pub const CHECKS: &[Check] = &[
    Check::every("gcsr.initial", initial),
    Check::every("gcsr.write_read", write_read),
    Check::every("gcsr.write_returns_old", write_returns_old),
    Check::every("gcsr.exchange", exchange),
    Check::every("gcsr.no_aliases", no_aliases),
    Check::boot("gcsr.not_in_bank", not_in_bank),
    Check::every("gcsr.estat_bits", estat_bits),
    Check::every("gcsr.estat_is_the_guests", estat_is_the_guests),
    Check::every("gcsr.asidbits", asidbits),
    Check::every("gcsr.pgd", pgd),
    Check::every("gcsr.stlbps", stlbps),
    Check::every("gcsr.r0", r0),
];

/// Bits of a bank register that hold what the host writes, or 0 for the ones
/// with rules of their own (ESTAT, PGD, STLBPS, TICLR).
pub fn storage(csr: Csr) -> u64 {
    const PAGE_FLAGS: u64 = 0x7f | 7 << 61;
    match csr {
        Csr::CRMD => 0x3ff,
        Csr::PRMD | Csr::EUEN => 0xf,
        Csr::MISC => 0x7_feee,
        Csr::ECFG => 0x7_1fff,
        Csr::BADI | Csr::TID => 0xffff_ffff,
        Csr::EENTRY => !0xfff,
        Csr::TLBIDX => 0xbf00_0fff,
        Csr::TLBEHI => 0xffff_ffff_e000,
        Csr::TLBELO0 | Csr::TLBELO1 | Csr::TLBRELO0 | Csr::TLBRELO1 => {
            0xffff_ffff_f000 | PAGE_FLAGS
        }
        Csr::ASID => 0x3ff,
        Csr::PGDL | Csr::PGDH | Csr::TLBRENTRY => 0xffff_ffff_f000,
        Csr::PWCL => 0x3fff_ffff,
        Csr::PWCH => 0xff_ffff,
        Csr::RVACFG => 7,
        Csr::CPUID => 0x1ff,
        Csr::PRCFG1 => 0x7fff,
        Csr::PRCFG2 => 0x3fff_f000,
        Csr::PRCFG3 => 0x3ff_ffff,
        // Never EN: a running timer changes TVAL by itself.
        Csr::TCFG => 0xffff_ffff_fffe,
        Csr::TVAL => 0xffff_ffff_ffff,
        Csr::LLBCTL => 4,
        Csr::TLBRERA => !2,
        Csr::TLBREHI => 0xffff_ffff_e03f,
        Csr::TLBRPRMD => 0x17,
        Csr::ESTAT | Csr::PGD | Csr::STLBPS | Csr::TICLR => 0,
        csr if (Csr::dmw(0)..=Csr::dmw(3)).contains(&csr) => 0xf000_0000_0000_003f,
        // ERA, BADV, the SAVEs, CNTC, TLBRBADV, TLBRSAVE.
        _ => u64::MAX,
    }
}

/// The bank registers that hold what is written, with their bits.
pub fn storage_registers() -> impl Iterator<Item = (Csr, u64)> {
    let all = HARDWARE.into_iter().map(|csr| (csr, storage(csr)));
    all.filter(|&(_, mask)| mask != 0)
}

/// D-ASID: at reset PRCFG1–3 are the host's and ASIDBITS is 10.
fn initial(_: &mut Cpu) -> Outcome {
    ensure_eq!(gcsrrd!(PRCFG1), csrrd!(PRCFG1), "PRCFG1");
    ensure_eq!(gcsrrd!(PRCFG2), csrrd!(PRCFG2), "PRCFG2");
    ensure_eq!(gcsrrd!(PRCFG3), csrrd!(PRCFG3), "PRCFG3");
    ensure_eq!(gcsrrd!(ASID), 10u64 << 16, "ASID");
    Ok(())
}

/// Puts random values into all storage registers and returns them.
pub fn fill(rng: &mut Rng) -> [u64; HARDWARE.len()] {
    let mut values = [0; HARDWARE.len()];
    for (slot, csr) in values.iter_mut().zip(HARDWARE) {
        let mask = storage(csr);
        if mask != 0 {
            *slot = rng.next() & mask;
            code::guest_write(csr, *slot);
        }
    }
    values
}

/// Fails unless all storage registers hold these values.
pub fn expect(values: &[u64; HARDWARE.len()]) -> Result<(), Failed> {
    for (want, csr) in values.iter().zip(HARDWARE) {
        let mask = storage(csr);
        ensure_eq!(code::guest_read(csr) & mask, *want, "guest {}", csr.name());
    }
    Ok(())
}

/// Every bank register that is storage holds what gcsrwr wrote, also the ones
/// that the guest itself can't write.
fn write_read(cpu: &mut Cpu) -> Outcome {
    for (csr, mask) in storage_registers() {
        for value in [mask, 0, cpu.rng.next() & mask] {
            code::guest_write(csr, value);
            ensure_eq!(code::guest_read(csr) & mask, value, "guest {}", csr.name());
        }
    }
    reset_bank(cpu.index);
    Ok(())
}

/// gcsrwr returns the guest's old value.
fn write_returns_old(cpu: &mut Cpu) -> Outcome {
    for (csr, mask) in storage_registers() {
        let (first, second) = (cpu.rng.next() & mask, cpu.rng.next() & mask);
        code::guest_write(csr, first);
        let old = code::guest_write(csr, second);
        ensure_eq!(old & mask, first, "old value of guest {}", csr.name());
    }
    reset_bank(cpu.index);
    Ok(())
}

/// gcsrxchg changes the bits of its mask and returns the whole old value.
fn exchange(cpu: &mut Cpu) -> Outcome {
    for (csr, bits) in storage_registers() {
        let start = cpu.rng.next() & bits;
        code::guest_write(csr, start);
        let (value, mask) = (cpu.rng.next() & bits, cpu.rng.next() & bits);
        let old = code::guest_exchange(csr, value, mask);
        ensure_eq!(old & bits, start, "old value of guest {}", csr.name());
        let want = start & !mask | value & mask;
        let got = code::guest_read(csr) & bits;
        ensure_eq!(got, want, "guest {} after the exchange", csr.name());
    }
    reset_bank(cpu.index);
    Ok(())
}

/// All bank registers hold different values at the same time.
fn no_aliases(cpu: &mut Cpu) -> Outcome {
    let values = fill(&mut cpu.rng);
    expect(&values)?;
    reset_bank(cpu.index);
    Ok(())
}

/// Instructions for one number: write, read and exchange it; what came back
/// is collected in a0. a1 holds an all-ones mask.
fn probes(csr: Csr) -> [u32; 8] {
    let (all, sum) = (Gpr::T0, Gpr::A0);
    [
        encode::addi_d(all, Gpr::ZERO, -1),
        encode::gcsrwr(all, csr),
        encode::or(sum, sum, all),
        encode::gcsrrd(all, csr),
        encode::or(sum, sum, all),
        encode::addi_d(all, Gpr::ZERO, -1),
        encode::gcsrxchg(all, Gpr::A1, csr),
        encode::or(sum, sum, all),
    ]
}

/// D-CSR: a number outside of the bank reads 0, ignores writes and raises
/// nothing, for all of them.
fn not_in_bank(_: &mut Cpu) -> Outcome {
    const BATCH: usize = 500;
    let mut words = [encode::RET; 8 * BATCH + 1];
    let mut numbers = (0..=0x3fff)
        .filter_map(Csr::new)
        .filter(|&csr| matches!(home(csr), Home::Software | Home::Absent));
    loop {
        let mut used = 0;
        let mut last = Csr::CRMD;
        for csr in numbers.by_ref().take(BATCH) {
            words[used..used + 8].copy_from_slice(&probes(csr));
            used += 8;
            last = csr;
        }
        if used == 0 {
            return Ok(());
        }
        words[used] = encode::RET;
        let sum = code::call(&words[..=used], 0, u64::MAX);
        ensure_eq!(sum, 0u64, "some number up to {:#x}", last.number());
    }
}

/// D-GESTAT: SWI0, SWI1, PMI, TI, IPI and the codes can be written; the
/// hardware lines not.
fn estat_bits(cpu: &mut Cpu) -> Outcome {
    const WRITABLE: u64 = 0x7fff_1c03;
    gcsrwr!(ESTAT, u64::MAX);
    ensure_eq!(gcsrrd!(ESTAT), WRITABLE, "after all ones");
    gcsrwr!(ESTAT, 0);
    ensure_eq!(gcsrrd!(ESTAT), 0u64, "after zero");
    for bit in [0, 1, 10, 11, 12] {
        let old = gcsrxchg!(ESTAT, 1 << bit, 1 << bit);
        ensure_eq!(old, 0u64, "old value before bit {bit}");
        ensure_eq!(gcsrrd!(ESTAT), 1u64 << bit, "bit {bit} set");
        gcsrxchg!(ESTAT, 0, 1 << bit);
        ensure_eq!(gcsrrd!(ESTAT), 0u64, "bit {bit} cleared");
    }
    gcsrxchg!(ESTAT, 0x3fc, 0x3fc);
    ensure_eq!(gcsrrd!(ESTAT), 0u64, "hardware lines by exchange");
    reset_bank(cpu.index);
    Ok(())
}

/// gcsrwr of ESTAT returns the guest's status, not the host's, and each keeps
/// its own.
fn estat_is_the_guests(cpu: &mut Cpu) -> Outcome {
    csrxchg!(ESTAT, 1, 3);
    gcsrwr!(ESTAT, 2);
    let old = gcsrwr!(ESTAT, 2);
    let host = csrrd!(ESTAT) & 3;
    csrxchg!(ESTAT, 0, 3);
    let guest = gcsrrd!(ESTAT);
    reset_bank(cpu.index);
    ensure_eq!(old, 2u64, "old value");
    ensure_eq!(host, 1u64, "host");
    ensure_eq!(guest, 2u64, "guest");
    Ok(())
}

/// D-ASID: ASIDBITS reads 10 whatever is written.
fn asidbits(cpu: &mut Cpu) -> Outcome {
    gcsrwr!(ASID, u64::MAX);
    ensure_eq!(gcsrrd!(ASID), 10u64 << 16 | 0x3ff, "after all ones");
    gcsrwr!(ASID, 5);
    ensure_eq!(gcsrrd!(ASID), 10u64 << 16 | 5, "after 5");
    reset_bank(cpu.index);
    Ok(())
}

/// PGD is the guest's PGDL or PGDH, by its own faulting address: BADV, or
/// TLBRBADV inside its refill.
fn pgd(cpu: &mut Cpu) -> Outcome {
    let (low, high) = (0x1000_4000u64, 0x2000_8000u64);
    gcsrwr!(PGDL, low);
    gcsrwr!(PGDH, high);
    for (badv, refill, inside, want) in [
        (0, u64::MAX, 0, low),
        (1 << 63, 0, 0, high),
        (0, u64::MAX, 1, high),
        (1 << 63, 0, 1, low),
    ] {
        gcsrwr!(BADV, badv);
        gcsrwr!(TLBRBADV, refill);
        gcsrwr!(TLBRERA, inside);
        let got = gcsrrd!(PGD);
        ensure_eq!(
            got,
            want,
            "badv {badv:#x} tlbrbadv {refill:#x} istlbr {inside}"
        );
    }
    reset_bank(cpu.index);
    Ok(())
}

/// The guest's STLBPS holds what is written.
fn stlbps(cpu: &mut Cpu) -> Outcome {
    gcsrwr!(STLBPS, 12);
    ensure_eq!(gcsrwr!(STLBPS, 14), 12u64, "old value");
    ensure_eq!(gcsrrd!(STLBPS), 14u64, "after 14");
    reset_bank(cpu.index);
    Ok(())
}

/// With r0 as rd a read goes nowhere, a write writes 0 and an exchange clears.
fn r0(cpu: &mut Cpu) -> Outcome {
    let csr = Csr::save(3);
    gcsrwr!(save(3), 0xff);
    code::call(&[encode::gcsrrd(Gpr::ZERO, csr), encode::RET], 0, 0);
    ensure!(gcsrrd!(save(3)) == 0xff, "a read changed the register");
    let words = [encode::gcsrxchg(Gpr::ZERO, Gpr::A1, csr), encode::RET];
    code::call(&words, 0, 0xf);
    ensure_eq!(gcsrrd!(save(3)), 0xf0u64, "after the exchange");
    code::call(&[encode::gcsrwr(Gpr::ZERO, csr), encode::RET], 0, 0);
    ensure_eq!(gcsrrd!(save(3)), 0u64, "after the write");
    reset_bank(cpu.index);
    Ok(())
}
