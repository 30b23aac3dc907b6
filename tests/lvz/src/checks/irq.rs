//! Interrupts of the guest: virtual lines, injection, delivery, priority.

use crate::arch::{self, encode};
use crate::check::{Check, Cpu, Failed, Outcome};
use crate::guest::host_run::HostRun;
use crate::guest::programs::{done, forever};
use crate::guest::{DONE, Guest, Own, Program, vectors};
use crate::machine::boot;
use crate::{csrrd, csrwr, csrxchg, ensure, ensure_eq, gcsrrd, gcsrwr, gcsrxchg, program};
use loongarch_isa::csr::Csr;
use loongarch_isa::exception::{Ecode, HARDWARE_INTERRUPTS, INTERRUPTS, Interrupt};
use loongarch_isa::gpr::Gpr;

/// This group.
pub const CHECKS: &[Check] = &[
    Check::every("irq.hwis", hwis),
    Check::every("irq.hwis_delivery", hwis_delivery),
    Check::every("irq.hwis_is_a_level", hwis_is_a_level),
    Check::every("irq.hwi_read_only_in_guest", hwi_read_only_in_guest),
    Check::every("irq.injection", injection),
    Check::every("irq.at_entry", at_entry),
    Check::every("irq.when_ie_is_set", when_ie_is_set),
    Check::every("irq.when_ie_is_written", when_ie_is_written),
    Check::every("irq.when_lie_is_set", when_lie_is_set),
    Check::every("irq.when_swi_is_set", when_swi_is_set),
    Check::every("irq.when_ertn_enables", when_ertn_enables),
    Check::every("irq.ie_off", ie_off),
    Check::every("irq.lie_off", lie_off),
    Check::every("irq.guest_clears_swi", guest_clears_swi),
    Check::every("irq.priority", priority),
    Check::every("irq.single_entry", single_entry),
    Check::every("irq.masked_host_at_entry", masked_host_at_entry),
    Check::every("irq.masked_host_meanwhile", masked_host_meanwhile),
    Check::every("irq.host_first", host_first),
    Check::every("irq.before_idle", before_idle),
];

/// Checks of the host's own interrupts, with or without LVZ.
pub const HOST_CHECKS: &[Check] = &[
    Check::every("irq.host_swi_at_once", host_swi_at_once),
    Check::every("irq.host_unmask_at_once", host_unmask_at_once),
];

/// CRMD with interrupts on.
const MODE_IE: u64 = boot::MODE | 4;
/// All lines.
pub const ALL: u64 = (1 << INTERRUPTS) - 1;
/// The lines that the host injects by gcsrxchg.
const INJECTED: [Interrupt; 5] = [
    Interrupt::SWI0,
    Interrupt::SWI1,
    Interrupt::PMI,
    Interrupt::TI,
    Interrupt::IPI,
];

fn inject(line: Interrupt) {
    gcsrxchg!(ESTAT, line.bit(), line.bit());
}

/// GINTC.HWIS of each line shows as the guest's ESTAT bit two further up, and
/// as no other.
fn hwis(cpu: &mut Cpu) -> Outcome {
    let _guest = Guest::new(cpu);
    for line in 0..HARDWARE_INTERRUPTS {
        csrwr!(GINTC, 1 << line);
        ensure_eq!(
            gcsrrd!(ESTAT),
            Interrupt::hwi(line).bit(),
            "guest ESTAT with HWIS {line}"
        );
        ensure_eq!(csrrd!(GINTC), 1u64 << line, "GINTC");
        csrwr!(GINTC, 0);
        ensure_eq!(gcsrrd!(ESTAT), 0u64, "guest ESTAT without");
    }
    csrwr!(GINTC, 0xff);
    ensure_eq!(gcsrrd!(ESTAT), 0xffu64 << 2, "guest ESTAT with all");
    csrwr!(GINTC, 0);
    Ok(())
}

/// Runs `program` with interrupts on and this line enabled; it must be
/// interrupted.
pub fn interrupted(guest: &mut Guest, program: Program, enable: u64) -> Result<Own, Failed> {
    gcsrwr!(CRMD, MODE_IE);
    gcsrwr!(ECFG, enable);
    guest.start(program).run_to_own(Ecode::Int)
}

/// Each virtual line interrupts the guest.
fn hwis_delivery(cpu: &mut Cpu) -> Outcome {
    let mut guest = Guest::new(cpu);
    for line in 0..HARDWARE_INTERRUPTS {
        let bit = Interrupt::hwi(line).bit();
        csrwr!(GINTC, 1 << line);
        let own = interrupted(&mut guest, forever, bit)?;
        ensure_eq!(own.is, bit, "guest ESTAT.IS");
        ensure_eq!(own.era, forever as *const () as u64, "guest ERA");
        ensure_eq!(own.prmd & 7, 4u64, "guest PRMD");
    }
    csrwr!(GINTC, 0);
    Ok(())
}

/// A virtual line that nobody withdraws interrupts again after `ertn`; one
/// that is withdrawn doesn't.
fn hwis_is_a_level(cpu: &mut Cpu) -> Outcome {
    let mut guest = Guest::new(cpu);
    csrwr!(GINTC, 2);
    interrupted(&mut guest, done, ALL)?;
    for _ in 0..3 {
        guest.skip().run_to_own(Ecode::Int)?;
    }
    csrwr!(GINTC, 0);
    guest.skip().run_to_hvc(DONE)?;
    Ok(())
}

program!(
    /// All ones and then zero to ESTAT, which is read to a0 and a1.
    write_estat:
    "addi.d $t0, $zero, -1",
    "csrwr $t0, {estat}",
    "csrrd $a0, {estat}",
    "csrwr $zero, {estat}",
    "csrrd $a1, {estat}",
    "hvcl 0x10",
    estat = const Csr::ESTAT.number(),
);

/// The guest can write SWI0 and SWI1 of its ESTAT, no other line.
fn hwi_read_only_in_guest(cpu: &mut Cpu) -> Outcome {
    let mut guest = Guest::new(cpu);
    csrwr!(GINTC, 0x81);
    guest.start(write_estat).run_to_hvc(DONE)?;
    csrwr!(GINTC, 0);
    let lines = Interrupt::hwi(0).bit() | Interrupt::hwi(7).bit();
    ensure_eq!(guest.get(Gpr::A0), lines | 3, "after all ones");
    ensure_eq!(guest.get(Gpr::A1), lines, "after zero");
    Ok(())
}

/// SWI0, SWI1, PMI, TI and IPI, injected by the host, interrupt the guest.
fn injection(cpu: &mut Cpu) -> Outcome {
    let mut guest = Guest::new(cpu);
    for line in INJECTED {
        inject(line);
        let own = interrupted(&mut guest, forever, line.bit())?;
        ensure_eq!(own.is, line.bit(), "guest ESTAT.IS");
        gcsrxchg!(ESTAT, 0, line.bit());
    }
    Ok(())
}

/// An interrupt that is pending at entry comes before the first instruction.
fn at_entry(cpu: &mut Cpu) -> Outcome {
    let mut guest = Guest::new(cpu);
    inject(Interrupt::SWI0);
    let own = interrupted(&mut guest, done, 1)?;
    ensure_eq!(own.era, done as *const () as u64, "guest ERA");
    Ok(())
}

/// The exception must have come right after the second instruction.
fn right_after(own: &Own, program: Program) -> Outcome {
    ensure_eq!(own.era, program as *const () as u64 + 8, "guest ERA");
    Ok(())
}

program!(
    set_ie:
    "li.w $t0, 4",
    "csrxchg $t0, $t0, {crmd}",
    "hvcl 0x11",
    crmd = const Csr::CRMD.number(),
);

/// A pending interrupt is taken as soon as the guest sets CRMD.IE.
fn when_ie_is_set(cpu: &mut Cpu) -> Outcome {
    let mut guest = Guest::new(cpu);
    inject(Interrupt::IPI);
    gcsrwr!(ECFG, ALL);
    let own = guest.start(set_ie).run_to_own(Ecode::Int)?;
    right_after(&own, set_ie)
}

program!(
    write_crmd:
    "li.w $t0, {mode}",
    "csrwr $t0, {crmd}",
    "hvcl 0x11",
    mode = const MODE_IE,
    crmd = const Csr::CRMD.number(),
);

/// The same by csrwr, with a line of GINTC.
fn when_ie_is_written(cpu: &mut Cpu) -> Outcome {
    let mut guest = Guest::new(cpu);
    csrwr!(GINTC, 4);
    gcsrwr!(ECFG, ALL);
    let own = guest.start(write_crmd).run_to_own(Ecode::Int)?;
    csrwr!(GINTC, 0);
    right_after(&own, write_crmd)
}

program!(
    set_lie:
    "li.w $t0, 0xfff",
    "csrwr $t0, {ecfg}",
    "hvcl 0x11",
    ecfg = const Csr::ECFG.number(),
);

/// A pending interrupt is taken as soon as the guest enables its line.
fn when_lie_is_set(cpu: &mut Cpu) -> Outcome {
    let mut guest = Guest::new(cpu);
    inject(Interrupt::SWI1);
    gcsrwr!(CRMD, MODE_IE);
    let own = guest.start(set_lie).run_to_own(Ecode::Int)?;
    right_after(&own, set_lie)
}

program!(
    set_swi:
    "li.w $t0, 1",
    "csrxchg $t0, $t0, {estat}",
    "hvcl 0x11",
    estat = const Csr::ESTAT.number(),
);

/// The guest's own SWI0 is taken as soon as it is set.
fn when_swi_is_set(cpu: &mut Cpu) -> Outcome {
    let mut guest = Guest::new(cpu);
    let own = interrupted(&mut guest, set_swi, 1)?;
    right_after(&own, set_swi)
}

program!(
    enable_by_ertn:
    "la.pcrel $t0, 1f",
    "csrwr $t0, {era}",
    "ertn",
    "1: hvcl 0x11",
    era = const Csr::ERA.number(),
);

/// A pending interrupt is taken when the guest's `ertn` sets IE, at the
/// address it returns to.
fn when_ertn_enables(cpu: &mut Cpu) -> Outcome {
    let mut guest = Guest::new(cpu);
    inject(Interrupt::TI);
    gcsrwr!(ECFG, ALL);
    gcsrwr!(PRMD, 4);
    let own = guest.start(enable_by_ertn).run_to_own(Ecode::Int)?;
    ensure_eq!(
        own.era,
        enable_by_ertn as *const () as u64 + 16,
        "guest ERA"
    );
    Ok(())
}

/// Makes every line pending.
fn all_pending() {
    INJECTED.into_iter().for_each(inject);
    csrwr!(GINTC, 0xff);
}

/// With CRMD.IE = 0 nothing interrupts the guest.
fn ie_off(cpu: &mut Cpu) -> Outcome {
    let mut guest = Guest::new(cpu);
    all_pending();
    gcsrwr!(ECFG, ALL);
    let outcome = guest.start(done).run_to_hvc(DONE);
    csrwr!(GINTC, 0);
    outcome.map(|_| ())
}

/// With no line enabled nothing does either.
fn lie_off(cpu: &mut Cpu) -> Outcome {
    let mut guest = Guest::new(cpu);
    all_pending();
    gcsrwr!(CRMD, MODE_IE);
    let outcome = guest.start(done).run_to_hvc(DONE);
    csrwr!(GINTC, 0);
    outcome.map(|_| ())
}

program!(
    /// Clears SWI0 and returns from the interrupt, to ERA.
    clear_swi:
    "li.w $t0, 1",
    "csrxchg $zero, $t0, {estat}",
    "ertn",
    estat = const Csr::ESTAT.number(),
);

/// The guest clears an injected SWI0 by itself, and that is the end of it.
fn guest_clears_swi(cpu: &mut Cpu) -> Outcome {
    let mut guest = Guest::new(cpu);
    inject(Interrupt::SWI0);
    interrupted(&mut guest, done, 1)?;
    let exit = guest.start(clear_swi).run_to_hvc(DONE)?;
    ensure_eq!(exit.era, done as *const () as u64, "ERA");
    ensure_eq!(gcsrrd!(ESTAT) & ALL, 0u64, "guest ESTAT.IS");
    Ok(())
}

/// Withdraws a line, whichever way it was raised.
fn withdraw(line: u8) {
    gcsrxchg!(ESTAT, 0, 1 << line);
    if let Some(hwi @ 0..8) = line.checked_sub(2) {
        csrxchg!(GINTC, 0, 1 << hwi);
    }
}

/// Of all lines the highest number comes first, each at its own vector.
fn priority(cpu: &mut Cpu) -> Outcome {
    let mut guest = Guest::new(cpu);
    all_pending();
    for line in (0..INTERRUPTS).rev() {
        gcsrwr!(CRMD, MODE_IE);
        gcsrwr!(ECFG, ALL | 1 << 16);
        let outcome = guest.start(done).run_to_own(Ecode::Int);
        withdraw(line);
        if outcome.is_err() {
            csrwr!(GINTC, 0);
        }
        outcome?;
        let vector = (guest.world.exit.era - vectors as *const () as u64) / 8;
        ensure_eq!(vector, 64 + u64::from(line), "vector");
    }
    gcsrwr!(CRMD, MODE_IE);
    guest.start(done).run_to_hvc(DONE)?;
    Ok(())
}

/// With VS = 0 there is one entry for all lines.
fn single_entry(cpu: &mut Cpu) -> Outcome {
    let mut guest = Guest::new(cpu);
    for line in [Interrupt::SWI0, Interrupt::IPI] {
        inject(line);
        interrupted(&mut guest, done, line.bit())?;
        ensure_eq!(guest.world.exit.era, vectors as *const () as u64, "entry");
        gcsrxchg!(ESTAT, 0, line.bit());
    }
    Ok(())
}

/// Sets the host's SWI0, masked, while `act` runs.
fn with_masked_host_interrupt(act: impl FnOnce() -> Outcome) -> Outcome {
    csrxchg!(ESTAT, 1, 1);
    let outcome = act();
    let still = csrrd!(ESTAT) & 1;
    csrxchg!(ESTAT, 0, 1);
    outcome?;
    ensure_eq!(still, 1u64, "host ESTAT.SWI0");
    Ok(())
}

/// A masked pending interrupt of the host doesn't hide the guest's.
fn masked_host_at_entry(cpu: &mut Cpu) -> Outcome {
    let mut guest = Guest::new(cpu);
    with_masked_host_interrupt(|| {
        for line in INJECTED {
            inject(line);
            interrupted(&mut guest, forever, line.bit())?;
            gcsrxchg!(ESTAT, 0, line.bit());
        }
        Ok(())
    })
}

/// Nor does it keep one out that comes while the guest runs: the guest's own
/// timer.
fn masked_host_meanwhile(cpu: &mut Cpu) -> Outcome {
    let mut guest = Guest::new(cpu);
    with_masked_host_interrupt(|| {
        for _ in 0..4 {
            gcsrwr!(TCFG, (20 * arch::TICKS_PER_US) | 1);
            interrupted(&mut guest, forever, Interrupt::TI.bit())?;
            gcsrwr!(TICLR, 1);
        }
        Ok(())
    })
}

/// With both pending the host's comes first, and the guest's is not lost.
fn host_first(cpu: &mut Cpu) -> Outcome {
    let mut guest = Guest::new(cpu);
    inject(Interrupt::IPI);
    gcsrwr!(CRMD, MODE_IE);
    gcsrwr!(ECFG, ALL);
    csrxchg!(ESTAT, 1, 1);
    let enabled = csrxchg!(ECFG, 1, 1);
    let exit = guest.start(done).enter();
    csrxchg!(ECFG, enabled, 1);
    csrxchg!(ESTAT, 0, 1);
    exit.expect(Ecode::Int)?;
    ensure_eq!(exit.era, done as *const () as u64, "ERA");
    ensure_eq!(gcsrrd!(ESTAT) & ALL, Interrupt::IPI.bit(), "guest ESTAT.IS");
    guest.run_to_own(Ecode::Int)?;
    Ok(())
}

program!(idle: "idle 0", "hvcl 0x10");

/// A pending enabled interrupt comes before `idle` exits.
fn before_idle(cpu: &mut Cpu) -> Outcome {
    let mut guest = Guest::new(cpu);
    inject(Interrupt::SWI1);
    let own = interrupted(&mut guest, idle, 2)?;
    ensure_eq!(own.era, idle as *const () as u64, "guest ERA");
    Ok(())
}

/// Runs one CSR instruction of the host with interrupts on (a0 and a1 are 1);
/// SWI0 must interrupt right after it.
fn host_interrupts_after(word: u32) -> Outcome {
    let words = [word, encode::BREAK];
    let run = HostRun::new().interruptible();
    let exit = run.with(Gpr::A0, 1).with(Gpr::A1, 1).words(&words).exit();
    csrxchg!(ECFG, 0, 1);
    csrxchg!(ESTAT, 0, 1);
    ensure_eq!(exit.ecode(), Ecode::Int.number(), "ecode");
    ensure!(exit.badi != u64::from(encode::BREAK), "it ran on");
    ensure_eq!(exit.era & 0x3fff, 4u64, "ERA in the page");
    Ok(())
}

/// The host's own SWI0 interrupts as soon as it is set.
fn host_swi_at_once(_: &mut Cpu) -> Outcome {
    csrxchg!(ECFG, 1, 1);
    host_interrupts_after(encode::csrxchg(Gpr::A0, Gpr::A1, Csr::ESTAT))
}

/// A pending line interrupts as soon as ECFG enables it.
fn host_unmask_at_once(_: &mut Cpu) -> Outcome {
    csrxchg!(ESTAT, 1, 1);
    host_interrupts_after(encode::csrxchg(Gpr::A0, Gpr::A1, Csr::ECFG))
}
