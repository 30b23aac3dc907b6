//! Floating point and vectors: exits by the host's EUEN, the guest's own
//! exceptions by the guest's, one register file.

use crate::arch::{code, encode};
use crate::check::{Check, Cpu, Outcome};
use crate::guest::host_run::HostRun;
use crate::guest::{DONE, Guest, Program};
use crate::{csrwr, ensure_eq, gcsrwr, program};
use loongarch_isa::csr::EUEN;
use loongarch_isa::exception::Ecode;
use loongarch_isa::gpr::Gpr;

/// This group.
pub const CHECKS: &[Check] = &[
    Check::every("unit.host_off_fp", host_off_fp),
    Check::every("unit.host_off_lsx", host_off_lsx),
    Check::every("unit.host_off_lasx", host_off_lasx),
    Check::every("unit.host_first", host_first),
    Check::every("unit.guest_off", guest_off),
    Check::every("unit.both_on", both_on),
    Check::every("unit.before_memory", before_memory),
    Check::every("unit.lazy_retry", lazy_retry),
    Check::every("unit.one_register_file", one_register_file),
    Check::every("unit.fcsr_and_fcc", fcsr_and_fcc),
];

/// Everything but binary translation, which QEMU's la464 has not.
const ALL: u64 = 7;

/// One instruction a unit: `fadd.d $f0, $f1, $f2`, `vadd.d $vr0, $vr1, $vr2`,
/// `xvadd.d $xr0, $xr1, $xr2`, with its bit in EUEN.
const UNITS: [(u32, Ecode, u64); 3] = [
    (0x0101_0820, Ecode::Fpd, 1),
    (0x700b_8820, Ecode::Sxd, 2),
    (0x740b_8820, Ecode::Asxd, 4),
];

/// More of floating point: `fld.d $f0, $a0, 0`, `movgr2fr.d $f0, $a0`,
/// `fcmp.ceq.d $fcc0, $f0, $f1`, `movgr2fcsr $fcsr0, $zero`.
const MORE_FP: [u32; 4] = [0x2b80_0080, 0x0114_a880, 0x0c22_0400, 0x0114_c000];

/// Runs `word` with these units on in host and guest and returns the exit.
fn run(guest: &mut Guest, word: u32, host: u64, own: u64) -> crate::guest::switch::Exit {
    csrwr!(EUEN, host);
    gcsrwr!(EUEN, own);
    guest.world.pc = code::write(&[word, encode::hvcl(DONE as u32)]);
    let exit = guest.run();
    csrwr!(EUEN, 0);
    exit
}

/// With the guest's unit on and the host's off, the instruction exits.
fn host_off(cpu: &mut Cpu, unit: usize) -> Outcome {
    let (word, ecode, bit) = UNITS[unit];
    let mut guest = Guest::new(cpu);
    let exit = run(&mut guest, word, ALL & !bit, ALL);
    exit.expect(ecode)?;
    ensure_eq!(exit.era, guest.world.pc, "ERA");
    ensure_eq!(exit.badi, word, "BADI");
    Ok(())
}

fn host_off_fp(cpu: &mut Cpu) -> Outcome {
    host_off(cpu, 0)?;
    let mut guest = Guest::new(cpu);
    for word in MORE_FP {
        guest.set(Gpr::A0, host_off_fp as *const () as u64);
        run(&mut guest, word, 0, 1).expect(Ecode::Fpd)?;
    }
    Ok(())
}

fn host_off_lsx(cpu: &mut Cpu) -> Outcome {
    host_off(cpu, 1)
}

fn host_off_lasx(cpu: &mut Cpu) -> Outcome {
    host_off(cpu, 2)
}

/// With both off it is the host's exit, not the guest's exception.
fn host_first(cpu: &mut Cpu) -> Outcome {
    let mut guest = Guest::new(cpu);
    for (word, ecode, _) in UNITS {
        run(&mut guest, word, 0, 0).expect(ecode)?;
        ensure_eq!(crate::gcsrrd!(ESTAT), 0u64, "guest ESTAT");
    }
    Ok(())
}

/// With the host's on and the guest's off it is the guest's own exception.
fn guest_off(cpu: &mut Cpu) -> Outcome {
    for (word, ecode, bit) in UNITS {
        let mut guest = Guest::new(cpu);
        csrwr!(EUEN, ALL);
        gcsrwr!(EUEN, ALL & !bit);
        guest.world.pc = code::write(&[word, encode::hvcl(DONE as u32)]);
        let own = guest.run_to_own(ecode);
        csrwr!(EUEN, 0);
        ensure_eq!(own?.badi, word, "guest BADI");
    }
    Ok(())
}

/// With both on it runs.
fn both_on(cpu: &mut Cpu) -> Outcome {
    let mut guest = Guest::new(cpu);
    for (word, _, _) in UNITS {
        run(&mut guest, word, ALL, ALL).expect_hvc(DONE)?;
    }
    Ok(())
}

/// A load of a register of a unit that is off exits for the unit, wherever
/// its address points.
fn before_memory(cpu: &mut Cpu) -> Outcome {
    let mut guest = Guest::new(cpu);
    guest.set(Gpr::A0, 0x0001_0000_0000_0000);
    run(&mut guest, MORE_FP[0], 0, 1).expect(Ecode::Fpd)
}

program!(
    /// f4 = 1.5 + 2.25, to a0.
    add:
    "li.d $t0, 0x3ff8000000000000",
    "movgr2fr.d $f2, $t0",
    "li.d $t0, 0x4002000000000000",
    "movgr2fr.d $f3, $t0",
    "fadd.d $f4, $f2, $f3",
    "movfr2gr.d $a0, $f4",
    "hvcl 0x10",
);

/// The hook for lazy units: exit, switch on, try again.
fn lazy_retry(cpu: &mut Cpu) -> Outcome {
    let mut guest = Guest::new(cpu);
    gcsrwr!(EUEN, 1);
    guest.start(add).run().expect(Ecode::Fpd)?;
    csrwr!(EUEN, EUEN::FPE::SET.value);
    let outcome = guest.run_to_hvc(DONE);
    csrwr!(EUEN, 0);
    outcome?;
    ensure_eq!(guest.get(Gpr::A0), 3.75f64.to_bits(), "sum");
    Ok(())
}

program!(
    /// Fills xr7 and f8 from a0.
    write_file:
    "xvreplgr2vr.d $xr7, $a0",
    "movgr2fr.d $f8, $a1",
    "hvcl 0x10",
);
program!(
    /// All four parts of xr7 to a0–a3, f8 to a4.
    read_file:
    "xvpickve2gr.d $a0, $xr7, 0",
    "xvpickve2gr.d $a1, $xr7, 1",
    "xvpickve2gr.d $a2, $xr7, 2",
    "xvpickve2gr.d $a3, $xr7, 3",
    "movfr2gr.d $a4, $f8",
    "syscall 0",
);
program!(
    /// The same in the guest.
    read_file_in_guest:
    "xvpickve2gr.d $a0, $xr7, 0",
    "xvpickve2gr.d $a1, $xr7, 1",
    "xvpickve2gr.d $a2, $xr7, 2",
    "xvpickve2gr.d $a3, $xr7, 3",
    "movfr2gr.d $a4, $f8",
    "hvcl 0x10",
);

/// Host and guest share the registers: what the guest left is there for the
/// host, and for the guest again.
fn one_register_file(cpu: &mut Cpu) -> Outcome {
    let mut guest = Guest::new(cpu);
    let (vector, scalar) = (cpu.rng.next(), cpu.rng.next());
    guest.set(Gpr::A0, vector).set(Gpr::A1, scalar);
    with_units(&mut guest, write_file)?;
    csrwr!(EUEN, ALL);
    let run = HostRun::new().program(read_file);
    csrwr!(EUEN, 0);
    ensure_eq!(run.exit().ecode(), Ecode::Sys.number(), "host ecode");
    with_units(&mut guest, read_file_in_guest)?;
    for r in [Gpr::A0, Gpr::A1, Gpr::A2, Gpr::A3] {
        ensure_eq!(run.get(r), vector, "host, r{}", r.number());
        ensure_eq!(guest.get(r), vector, "guest, r{}", r.number());
    }
    ensure_eq!(run.get(Gpr::A4), scalar, "host, f8");
    ensure_eq!(guest.get(Gpr::A4), scalar, "guest, f8");
    Ok(())
}

/// Runs a program to its end with all units on.
fn with_units(guest: &mut Guest, program: Program) -> Outcome {
    csrwr!(EUEN, ALL);
    gcsrwr!(EUEN, ALL);
    let outcome = guest.start(program).run_to_hvc(DONE);
    csrwr!(EUEN, 0);
    outcome.map(|_| ())
}

program!(
    /// FCSR0 rounding mode from a0, FCC3 = 1.
    write_flags:
    "movgr2fcsr $fcsr0, $a0",
    "li.w $t0, 1",
    "movgr2cf $fcc3, $t0",
    "hvcl 0x10",
);
program!(
    read_flags:
    "movfcsr2gr $a0, $fcsr0",
    "movcf2gr $a1, $fcc3",
    "hvcl 0x10",
);

/// FCSR0 and the condition flags survive exits too.
fn fcsr_and_fcc(cpu: &mut Cpu) -> Outcome {
    let mut guest = Guest::new(cpu);
    guest.set(Gpr::A0, 2 << 8);
    with_units(&mut guest, write_flags)?;
    guest.set(Gpr::A0, 0);
    with_units(&mut guest, read_flags)?;
    ensure_eq!(guest.get(Gpr::A0), 2u64 << 8, "FCSR0");
    ensure_eq!(guest.get(Gpr::A1), 1u64, "FCC3");
    guest.set(Gpr::A0, 0);
    with_units(&mut guest, write_flags)
}
