//! LL and SC: one LL bit for each mode.

use crate::arch::tlb;
use crate::check::{Check, Cpu, Outcome};
use crate::guest::memory::{self, page};
use crate::guest::programs::done;
use crate::guest::table::{Shape, flag};
use crate::guest::{DONE, Guest, Program, fresh_gid, log};
use crate::machine::cached;
use crate::{csrrd, ensure, ensure_eq, gcsrrd, gcsrwr, gcsrxchg, program};
use core::arch::asm;
use loongarch_isa::csr::{Csr, LLBCTL};
use loongarch_isa::gpr::Gpr;

/// This group.
pub const CHECKS: &[Check] = &[
    Check::every("llsc.pair", pair),
    Check::every("llsc.exit_keeps", exit_keeps),
    Check::every("llsc.host_pair_between", host_pair_between),
    Check::every("llsc.wcllb", wcllb),
    Check::every("llsc.changed_value", changed_value),
    Check::every("llsc.fresh_gid", new_gid),
    Check::every("llsc.guest_ertn_clears", guest_ertn_clears),
    Check::every("llsc.guest_klo", guest_klo),
    Check::every("llsc.guest_refill_keeps", guest_refill_keeps),
    Check::every("llsc.second_stage_refill_keeps", second_stage_refill_keeps),
    Check::every("llsc.entry_clears_the_hosts", entry_clears_the_hosts),
    Check::every("llsc.host_rollb", host_rollb),
];

/// `hvcl` code between LL and SC.
const BETWEEN: u64 = 0x11;

program!(
    /// LL at a0, `hvcl`, SC of the value + 1; a1 = SC's result, a2 = LLBCTL
    /// after LL.
    increment:
    "ll.d $t0, $a0, 0",
    "csrrd $a2, {llbctl}",
    "hvcl 0x11",
    "addi.d $t0, $t0, 1",
    "sc.d $t0, $a0, 0",
    "move $a1, $t0",
    "hvcl 0x10",
    llbctl = const Csr::LLBCTL.number(),
);

/// A guest in the middle of [`increment`] on data page 0, which holds 100.
fn between(cpu: &mut Cpu) -> Result<Guest, crate::check::Failed> {
    let mut guest = Guest::new(cpu);
    memory::store(page(0), 100);
    guest.set(Gpr::A0, cached(page(0)));
    guest.start(increment).run_to_hvc(BETWEEN)?;
    Ok(guest)
}

/// Runs to the end; SC must have succeeded, or failed.
fn finish(guest: &mut Guest, success: bool) -> Outcome {
    guest.skip().run_to_hvc(DONE)?;
    ensure_eq!(guest.get(Gpr::A1), u64::from(success), "SC's result");
    Ok(())
}

const ROLLB: u64 = LLBCTL::ROLLB::SET.value;
const WCLLB: u64 = LLBCTL::WCLLB::SET.value;
const KLO: u64 = LLBCTL::KLO::SET.value;

/// ROLLB shows the LL bit, in the guest and to the host; after SC it is 0.
fn pair(cpu: &mut Cpu) -> Outcome {
    let mut guest = between(cpu)?;
    ensure_eq!(guest.get(Gpr::A2) & ROLLB, ROLLB, "ROLLB in the guest");
    ensure_eq!(gcsrrd!(LLBCTL) & ROLLB, ROLLB, "ROLLB by gcsrrd");
    finish(&mut guest, true)?;
    ensure_eq!(memory::load(page(0)), 101u64, "memory");
    Ok(())
}

/// Exits and entries between LL and SC don't break the pair.
fn exit_keeps(cpu: &mut Cpu) -> Outcome {
    let mut guest = between(cpu)?;
    for _ in 0..3 {
        guest.run_to_hvc(BETWEEN)?;
    }
    finish(&mut guest, true)
}

/// LL in the host, at a physical address.
fn host_ll(phys: u64) -> u64 {
    let value;
    // SAFETY: reads a data page.
    unsafe { asm!("ll.d {}, {}, 0", out(reg) value, in(reg) cached(phys), options(nostack)) };
    value
}

/// SC in the host; returns its result.
fn host_sc(phys: u64, value: u64) -> u64 {
    let result;
    // SAFETY: writes a data page.
    unsafe {
        asm!("sc.d {}, {}, 0", inout(reg) value => result, in(reg) cached(phys), options(nostack));
    }
    result
}

/// The host's own pair, on another page, has nothing to do with the guest's.
fn host_pair_between(cpu: &mut Cpu) -> Outcome {
    let mut guest = between(cpu)?;
    memory::store(page(1), 7);
    let value = host_ll(page(1));
    ensure_eq!(host_sc(page(1), value + 1), 1u64, "host's SC");
    finish(&mut guest, true)?;
    ensure_eq!(memory::load(page(1)), 8u64, "host's page");
    ensure_eq!(memory::load(page(0)), 101u64, "guest's page");
    Ok(())
}

/// The host's write of guest LLBCTL.WCLLB clears the guest's LL bit.
fn wcllb(cpu: &mut Cpu) -> Outcome {
    let mut guest = between(cpu)?;
    gcsrxchg!(LLBCTL, WCLLB, WCLLB);
    ensure_eq!(gcsrrd!(LLBCTL) & ROLLB, 0u64, "ROLLB");
    finish(&mut guest, false)?;
    ensure_eq!(memory::load(page(0)), 100u64, "memory");
    Ok(())
}

/// A store by someone else in between makes SC fail.
fn changed_value(cpu: &mut Cpu) -> Outcome {
    let mut guest = between(cpu)?;
    memory::store(page(0), 55);
    finish(&mut guest, false)?;
    ensure_eq!(memory::load(page(0)), 55u64, "memory");
    Ok(())
}

/// A fresh GID with a changed mapping: with WCLLB, as KVM writes it then, SC
/// fails, though the new page holds the same value.
fn new_gid(cpu: &mut Cpu) -> Outcome {
    const GPA: u64 = 0x1_0000_0000;
    let mut guest = Guest::new(cpu);
    memory::store(page(0), 100);
    memory::store(page(1), 100);
    guest.map(GPA, page(0), flag::ALL);
    guest.set(Gpr::A0, cached(GPA));
    guest.start(increment).run_to_hvc(BETWEEN)?;
    guest.map(GPA, page(1), flag::ALL);
    guest.vm.gid = fresh_gid();
    gcsrxchg!(LLBCTL, WCLLB, WCLLB);
    finish(&mut guest, false)?;
    ensure_eq!(memory::load(page(1)), 100u64, "new page");
    Ok(())
}

program!(
    /// Goes to a3 by `ertn`.
    ertn_to:
    "csrwr $a3, {era}",
    "ertn",
    era = const Csr::ERA.number(),
);
program!(store_conditional: "addi.d $t0, $t0, 1", "sc.d $t0, $a0, 0", "move $a1, $t0", "hvcl 0x10");

/// Goes through one `ertn` of the guest and then to SC.
fn through_ertn(guest: &mut Guest, success: bool) -> Outcome {
    guest.set(Gpr::A3, store_conditional as *const () as u64);
    guest.start(ertn_to).run_to_hvc(DONE)?;
    ensure_eq!(guest.get(Gpr::A1), u64::from(success), "SC's result");
    Ok(())
}

/// The guest's `ertn` clears the guest's LL bit.
fn guest_ertn_clears(cpu: &mut Cpu) -> Outcome {
    through_ertn(&mut between(cpu)?, false)
}

/// With LLBCTL.KLO the next `ertn` keeps it, the one after doesn't.
fn guest_klo(cpu: &mut Cpu) -> Outcome {
    let mut guest = between(cpu)?;
    gcsrwr!(LLBCTL, KLO);
    through_ertn(&mut guest, true)?;
    ensure_eq!(gcsrrd!(LLBCTL) & KLO, 0u64, "KLO after the ertn");
    guest.start(increment).run_to_hvc(BETWEEN)?;
    through_ertn(&mut guest, false)
}

program!(
    /// Loads from a3, then SC.
    load_then_sc:
    "ld.d $t1, $a3, 0",
    "addi.d $t0, $t0, 1",
    "sc.d $t0, $a0, 0",
    "move $a1, $t0",
    "hvcl 0x10",
);

/// The `ertn` of the guest's own refill doesn't clear it.
fn guest_refill_keeps(cpu: &mut Cpu) -> Outcome {
    let gva = 0x10_0000_8000;
    let mut guest = between(cpu)?;
    let mut table = guest.first_stage(Shape::P16K);
    table.map(&mut guest.tables, gva, page(1), flag::ALL);
    guest.set(Gpr::A3, gva);
    guest.start(load_then_sc as Program).run_to_hvc(DONE)?;
    ensure_eq!(guest.get(Gpr::A1), 1u64, "SC's result");
    Ok(())
}

/// Nor does that of a second-stage refill, in the host.
fn second_stage_refill_keeps(cpu: &mut Cpu) -> Outcome {
    const GPA: u64 = 0x1_0000_0000;
    let mut guest = between(cpu)?;
    guest.map(GPA, page(1), flag::ALL);
    guest.set(Gpr::A3, cached(GPA));
    let before = log().count;
    guest.start(load_then_sc).run_to_hvc(DONE)?;
    ensure!(log().count > before, "no refill");
    ensure_eq!(guest.get(Gpr::A1), 1u64, "SC's result");
    Ok(())
}

/// D-LLBIT: the `ertn` that enters the guest clears the host's LL bit.
fn entry_clears_the_hosts(cpu: &mut Cpu) -> Outcome {
    let mut guest = Guest::new(cpu);
    memory::store(page(0), 3);
    let value = host_ll(page(0));
    guest.start(done).run_to_hvc(DONE)?;
    ensure_eq!(csrrd!(LLBCTL) & ROLLB, 0u64, "host's ROLLB");
    ensure_eq!(host_sc(page(0), value + 1), 0u64, "host's SC");
    Ok(())
}

/// The host's ROLLB shows the host's bit, not the guest's.
fn host_rollb(cpu: &mut Cpu) -> Outcome {
    let _guest = between(cpu)?;
    ensure_eq!(csrrd!(LLBCTL) & ROLLB, 0u64, "with the guest's LL only");
    gcsrxchg!(LLBCTL, WCLLB, WCLLB);
    let value = host_ll(page(1));
    ensure_eq!(csrrd!(LLBCTL) & ROLLB, ROLLB, "with the host's LL");
    ensure_eq!(gcsrrd!(LLBCTL) & ROLLB, 0u64, "guest's");
    host_sc(page(1), value);
    tlb::invalidate::<{ tlb::ALL_GUESTS }>(0, 0);
    Ok(())
}
