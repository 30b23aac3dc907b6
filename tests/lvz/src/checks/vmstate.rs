//! A long guest that checks itself, to be saved and loaded in the middle.
//!
//! Everything that an emulator has to put into a saved machine is in use:
//! the guest's bank, both stages' TLB entries, injected lines, the counter's
//! offset, the guest's timer, a floating-point register. Most of the time is
//! spent in guest mode. Progress is a line `VMSTATE step n` on CPU 0.

use super::entries::{self, Entry};
use crate::arch::{self, counter};
use crate::check::{Check, Cpu, Outcome};
use crate::guest::memory::{self, page};
use crate::guest::programs::count_ticks;
use crate::guest::table::flag;
use crate::guest::{DONE, Guest, log};
use crate::machine::{boot, cached};
use crate::{csrrd, csrwr, ensure, ensure_eq, gcsrrd, gcsrwr, println, program};
use loongarch_isa::csr::{Csr, EUEN, GCFG};
use loongarch_isa::exception::Interrupt;
use loongarch_isa::gpr::Gpr;

/// This group.
pub const CHECKS: &[Check] = &[Check::every("vmstate.long_guest", long_guest)];

/// Steps of the run.
const STEPS: u64 = 60;
/// Iterations of the guest's program a step.
const ITERATIONS: u64 = 2_000_000;
/// Period of the guest's timer: 5 ms.
const PERIOD: u64 = 5000 * arch::TICKS_PER_US;

/// Steps in a row without a tick after which it is waited for. A step takes longer
/// than the period, but under threads the emulator's clock thread may have to wait
/// for a processor meanwhile.
const QUIET_STEPS: u32 = 5;
/// How long then: half a minute.
const PATIENCE: u64 = 30_000_000 * arch::TICKS_PER_US;

/// Lines injected all the time, which the guest doesn't enable; and bits of
/// the other two fields.
const GINTC: u64 = 0x0081_4224;
const GCNTC: u64 = 0x0123_4567_8900;
const GPA: u64 = 0x1_0000_0000;
const GVA: u64 = 0x10_0000_8000;
/// Scalar in f9, and values in the bank and in memory.
const MARK: u64 = 0x5a5a_1234_9876_a5a5;

program!(
    /// a0 = a0 × 6364136223846793005 + 1 + word at a2 + word at a3, a1 times;
    /// then a4 = f9, a5 = counter. Enters with a6 = first value of f9, or 0.
    work:
    "beqz $a6, 1f",
    "movgr2fr.d $f9, $a6",
    "1: li.d $t0, 6364136223846793005",
    "2: mul.d $a0, $a0, $t0",
    "addi.d $a0, $a0, 1",
    "ld.d $t1, $a2, 0",
    "add.d $a0, $a0, $t1",
    "ld.d $t1, $a3, 0",
    "add.d $a0, $a0, $t1",
    "addi.d $a1, $a1, -1",
    "bnez $a1, 2b",
    "movfr2gr.d $a4, $f9",
    "rdtime.d $a5, $zero",
    "hvcl 0x10",
);

/// What `work` comes to from `seed`; `words` is the sum of the two words.
fn expected(seed: u64, words: u64) -> u64 {
    (0..ITERATIONS).fold(seed, |x, _| {
        x.wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1)
            .wrapping_add(words)
    })
}

/// The guest's bank but what the run itself changes.
const KEPT: [Csr; 12] = [
    Csr::BADV,
    Csr::BADI,
    Csr::TLBELO0,
    Csr::TLBELO1,
    Csr::PGDH,
    Csr::TID,
    Csr::CNTC,
    Csr::save(2),
    Csr::save(7),
    Csr::TLBRBADV,
    Csr::TLBRSAVE,
    Csr::CPUID,
];

/// A value for a register, in bits that it keeps.
fn mark(csr: Csr) -> u64 {
    (MARK ^ u64::from(csr.number()) << 20) & super::gcsr::storage(csr)
}

/// Everything set up once.
fn prepare(cpu: &mut Cpu) -> Guest {
    let mut guest = Guest::new(cpu);
    memory::store(page(0), 3);
    memory::store(page(1), 5);
    guest.map(GPA, page(0), flag::ALL);
    first_stage_entry(&guest);
    gcsrwr!(ASID, 6);
    for csr in KEPT {
        arch::code::guest_write(csr, mark(csr));
    }
    csrwr!(GINTC, GINTC);
    csrwr!(GCNTC, GCNTC);
    csrwr!(EUEN, EUEN::FPE::SET.value);
    gcsrwr!(EUEN, EUEN::FPE::SET.value);
    gcsrwr!(EENTRY, count_ticks as *const () as u64);
    gcsrwr!(ECFG, Interrupt::TI.bit());
    gcsrwr!(CRMD, boot::MODE | 4);
    guest.set(Gpr::A2, cached(GPA)).set(Gpr::A3, GVA);
    guest
}

/// The only way to [`GVA`]: a first-stage entry, with no table behind it.
fn first_stage_entry(guest: &Guest) {
    let entry = Entry::first(guest.vm.gid, 6, GVA & !0x7fff);
    entry.write_to(13, page(1) | flag::ALL);
}

/// Whether everything that should stay has stayed.
fn intact(guest: &Guest) -> Outcome {
    for csr in KEPT {
        let got = arch::code::guest_read(csr) & super::gcsr::storage(csr);
        ensure_eq!(got, mark(csr), "guest {}", csr.name());
    }
    ensure_eq!(csrrd!(GINTC), GINTC, "GINTC");
    ensure_eq!(csrrd!(GCNTC), GCNTC, "GCNTC");
    ensure_eq!(
        gcsrrd!(ESTAT) & 0x3fc,
        (GINTC & 0xff) << 2,
        "guest's hardware lines"
    );
    ensure_eq!(gcsrrd!(TCFG), PERIOD | 3, "guest TCFG");
    let gcfg = GCFG::GCI.val(2) + GCFG::MATC.val(1);
    ensure_eq!(csrrd!(GCFG) & gcfg.value, gcfg.value, "GCFG");
    ensure_eq!(csrrd!(GSTAT) >> 16 & 0xff, guest.vm.gid, "GSTAT.GID");
    Ok(())
}

/// One step: the guest works, and its results and state are right. `quiet`
/// counts the steps since the last tick.
fn step(guest: &mut Guest, n: u64, quiet: &mut u32) -> Outcome {
    let ticks = gcsrrd!(save(1));
    guest.set(Gpr::A6, if n == 0 { MARK } else { 0 });
    let before = counter();
    work_from(guest, n)?;
    let after = counter();
    ensure_eq!(guest.get(Gpr::A0), expected(n, 3 + 5), "result");
    ensure_eq!(guest.get(Gpr::A4), MARK, "f9");
    let clock = guest.get(Gpr::A5).wrapping_sub(GCNTC);
    ensure!(
        (before..=after).contains(&clock),
        "counter {clock} is not from {before} to {after}"
    );
    *quiet += 1;
    if *quiet > QUIET_STEPS {
        wait_for_tick(guest, ticks)?;
    }
    if gcsrrd!(save(1)) > ticks {
        *quiet = 0;
    }
    intact(guest)
}

/// The guest works once, from `seed`.
fn work_from(guest: &mut Guest, seed: u64) -> Outcome {
    guest.set(Gpr::A0, seed).set(Gpr::A1, ITERATIONS);
    guest.start(work).run_patiently(DONE).map(|_| ())
}

/// The guest works on until it has had more than `ticks` ticks.
fn wait_for_tick(guest: &mut Guest, ticks: u64) -> Outcome {
    let end = counter() + PATIENCE;
    guest.set(Gpr::A6, 0);
    while gcsrrd!(save(1)) == ticks {
        ensure!(counter() < end, "no tick in half a minute");
        work_from(guest, 0)?;
    }
    Ok(())
}

fn long_guest(cpu: &mut Cpu) -> Outcome {
    let mut guest = prepare(cpu);
    gcsrwr!(TCFG, PERIOD | 3);
    let mut outcome = Ok(());
    let (mut refills, mut quiet) = (0, 0);
    for n in 0..STEPS {
        outcome = outcome.and_then(|()| step(&mut guest, n, &mut quiet));
        if n == 0 {
            refills = log().count;
        }
        if cpu.index == 0 && outcome.is_ok() {
            println!("VMSTATE step {n}");
        }
    }
    let refills = log().count - refills;
    gcsrwr!(TCFG, 0);
    csrwr!(EUEN, 0);
    entries::empty();
    outcome?;
    ensure_eq!(refills, 0u64, "refills after the first step");
    Ok(())
}
