//! The stable counter in the guest.

use crate::arch;
use crate::check::{Check, Cpu, Outcome};
use crate::guest::{DONE, Guest};
use crate::machine::boot;
use crate::{csrwr, ensure, ensure_eq, gcsrwr, program};
use loongarch_isa::gpr::Gpr;

/// This group.
pub const CHECKS: &[Check] = &[
    Check::every("counter.offset", offset),
    Check::every("counter.offset_at_level3", offset_at_level3),
    Check::every("counter.halves", halves),
    Check::every("counter.timer_id", timer_id),
    Check::every("counter.cntc_is_storage", cntc_is_storage),
    Check::every("counter.host_has_no_offset", host_has_no_offset),
    Check::every("counter.monotonic", monotonic),
];

program!(read: "rdtime.d $a0, $a1", "hvcl 0x10");

/// The guest's counter, less the host's just before; an error if it isn't
/// between the host's before and after.
fn difference(guest: &mut Guest, offset: u64) -> Outcome {
    csrwr!(GCNTC, offset);
    let before = arch::counter();
    let outcome = guest.start(read).run_to_hvc(DONE);
    let after = arch::counter();
    csrwr!(GCNTC, 0);
    outcome?;
    let seen = guest.get(Gpr::A0).wrapping_sub(offset);
    ensure!(
        (before..=after).contains(&seen),
        "offset {offset:#x}: {seen} is not from {before} to {after}"
    );
    Ok(())
}

const OFFSETS: [u64; 6] = [
    0,
    1,
    1 << 40,
    u64::MAX,
    0_u64.wrapping_sub(1 << 40),
    1 << 63,
];

/// rdtime in the guest is the host's counter plus GCNTC.
fn offset(cpu: &mut Cpu) -> Outcome {
    let mut guest = Guest::new(cpu);
    OFFSETS
        .into_iter()
        .try_for_each(|by| difference(&mut guest, by))
}

/// At level 3 too.
fn offset_at_level3(cpu: &mut Cpu) -> Outcome {
    let mut guest = Guest::new(cpu);
    gcsrwr!(CRMD, boot::MODE | 3);
    OFFSETS
        .into_iter()
        .try_for_each(|by| difference(&mut guest, by))
}

program!(read_halves:
    "rdtimeh.w $a0, $zero",
    "rdtimel.w $a1, $zero",
    "rdtimeh.w $a2, $zero",
    "hvcl 0x10",
);

/// rdtimeh.w and rdtimel.w show the same sum.
fn halves(cpu: &mut Cpu) -> Outcome {
    let mut guest = Guest::new(cpu);
    let offset = 0x0000_0005_8000_0000u64;
    csrwr!(GCNTC, offset);
    let before = arch::counter().wrapping_add(offset);
    let outcome = guest.start(read_halves).run_to_hvc(DONE);
    let after = arch::counter().wrapping_add(offset);
    csrwr!(GCNTC, 0);
    outcome?;
    let (high, low) = (guest.get(Gpr::A0), guest.get(Gpr::A1));
    if high == guest.get(Gpr::A2) {
        let seen = high << 32 | low & 0xffff_ffff;
        ensure!(
            (before..=after).contains(&seen),
            "{seen} is not from {before} to {after}"
        );
        ensure_eq!(
            low,
            low as i32 as i64 as u64,
            "sign extension of the low half"
        );
    }
    Ok(())
}

/// The second operand of rdtime gets the guest's TID.
fn timer_id(cpu: &mut Cpu) -> Outcome {
    let mut guest = Guest::new(cpu);
    csrwr!(TID, 0x111);
    gcsrwr!(TID, 0x222);
    let outcome = guest.start(read).run_to_hvc(DONE);
    csrwr!(TID, 0);
    outcome?;
    ensure_eq!(guest.get(Gpr::A1), 0x222u64, "TID");
    Ok(())
}

/// D-CNTC: the guest's CNTC changes nothing.
fn cntc_is_storage(cpu: &mut Cpu) -> Outcome {
    let mut guest = Guest::new(cpu);
    gcsrwr!(CNTC, 1 << 50);
    difference(&mut guest, 0)?;
    difference(&mut guest, 1 << 45)
}

/// GCNTC doesn't move the host's counter.
fn host_has_no_offset(_: &mut Cpu) -> Outcome {
    let before = arch::counter();
    csrwr!(GCNTC, 1 << 60);
    let with = arch::counter();
    csrwr!(GCNTC, 0);
    ensure!(with - before < 1 << 59, "it moved by {}", with - before);
    Ok(())
}

program!(
    /// Reads the counter a1 times; a0 = 0 unless it ever went back.
    watch:
    "move $a0, $zero",
    "rdtime.d $t0, $zero",
    "1: rdtime.d $t1, $zero",
    "bgeu $t1, $t0, 2f",
    "addi.d $a0, $a0, 1",
    "2: move $t0, $t1",
    "addi.d $a1, $a1, -1",
    "bnez $a1, 1b",
    "hvcl 0x10",
);

/// It never goes back, across exits neither.
fn monotonic(cpu: &mut Cpu) -> Outcome {
    let mut guest = Guest::new(cpu);
    let mut last = 0;
    for _ in 0..20 {
        guest.set(Gpr::A1, 200);
        guest.start(watch).run_to_hvc(DONE)?;
        ensure_eq!(guest.get(Gpr::A0), 0u64, "steps back");
        let now = guest.get(Gpr::T0);
        ensure!(now >= last, "{now} after {last}");
        last = now;
    }
    Ok(())
}
