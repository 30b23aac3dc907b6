//! Entering the guest and leaving it.

use crate::arch::{self, code, encode};
use crate::check::{Check, Cpu, Outcome};
use crate::guest::host_run::HostRun;
use crate::guest::programs::{done, for_a_while, forever};
use crate::guest::{DONE, Guest, PIE};
use crate::machine::{boot, phys_of};
use crate::{csrrd, csrwr, csrxchg, ensure, ensure_eq, gcsrrd, gcsrwr, program};
use loongarch_isa::csr::Csr;
use loongarch_isa::exception::{Ecode, Interrupt};
use loongarch_isa::gpr::Gpr;

/// This group.
pub const CHECKS: &[Check] = &[
    Check::every("entry.registers", registers),
    Check::every("entry.registers_at_gspr", registers_at_gspr),
    Check::every("entry.registers_at_interrupt", registers_at_interrupt),
    Check::every("entry.host_mode_at_exit", host_mode_at_exit),
    Check::every("entry.pvm", pvm),
    Check::every("entry.guest_mode_kept", guest_mode_kept),
    Check::every("entry.era", era),
    Check::every("entry.hvcl_codes", hvcl_codes),
    Check::every("entry.direct_addressing", direct_addressing),
    Check::every("entry.level3", level3),
    Check::every("entry.guest_ertn", guest_ertn),
    Check::every("entry.guest_ertn_to_level3", guest_ertn_to_level3),
    Check::every("entry.without_pvm", without_pvm),
    Check::every("entry.every_gid", every_gid),
    Check::every("entry.pending_at_entry", pending_at_entry),
    Check::every("entry.takes_cpu_back", takes_cpu_back),
    Check::every(
        "entry.takes_cpu_back_with_guest_ie",
        takes_cpu_back_with_guest_ie,
    ),
    Check::every("entry.pie_off", pie_off),
    Check::every("entry.masked_interrupt", masked_interrupt),
    Check::every("entry.many", many),
];

/// Random values in all registers come back from `hvcl` as they went in.
fn registers(cpu: &mut Cpu) -> Outcome {
    let mut guest = Guest::new(cpu);
    for _ in 0..32 {
        for n in 0..32 {
            guest.set(Gpr::from_field(n), cpu.rng.next());
        }
        let before = guest.world.gprs;
        guest.start(done).run_to_hvc(DONE)?;
        compare(&guest, &before)?;
    }
    Ok(())
}

fn compare(guest: &Guest, before: &loongarch_isa::gpr::Gprs) -> Outcome {
    for n in 0..32 {
        let r = Gpr::from_field(n);
        ensure_eq!(guest.get(r), before.get(r), "r{n}");
    }
    Ok(())
}

/// The emulated instruction's own registers hold what was computed just
/// before it, and nothing else changed.
fn registers_at_gspr(cpu: &mut Cpu) -> Outcome {
    let mut guest = Guest::new(cpu);
    for _ in 0..32 {
        for n in 0..32 {
            guest.set(Gpr::from_field(n), cpu.rng.next());
        }
        let (rd, rj) = (cpu.rng.below(32) as u32, cpu.rng.below(31) as u32 + 1);
        let (rd, rj) = (Gpr::from_field(rd), Gpr::from_field(rj));
        let mut want = guest.world.gprs;
        want.set(rj, want.get(rj).wrapping_add(7));
        guest.world.pc = code::write(&[encode::addi_d(rj, rj, 7), encode::cpucfg(rd, rj)]);
        guest.run().expect(Ecode::Gspr)?;
        compare(&guest, &want)?;
    }
    Ok(())
}

/// An interrupt of the host loses no register of the guest.
fn registers_at_interrupt(cpu: &mut Cpu) -> Outcome {
    let mut guest = Guest::new(cpu);
    let line = Interrupt::TI.bit();
    for _ in 0..16 {
        for n in 0..32 {
            guest.set(Gpr::from_field(n), cpu.rng.next());
        }
        let before = guest.world.gprs;
        let enabled = csrxchg!(ECFG, line, line);
        csrwr!(TCFG, (cpu.rng.below(64) * 4) | 1);
        let exit = guest.start(forever).enter();
        csrwr!(TCFG, 0);
        csrwr!(TICLR, 1);
        csrxchg!(ECFG, enabled, line);
        exit.expect(Ecode::Int)?;
        compare(&guest, &before)?;
    }
    Ok(())
}

/// The exit arrives at level 0, interrupts off, in the host's addressing
/// mode; PRMD has the mode that the entry set.
fn host_mode_at_exit(cpu: &mut Cpu) -> Outcome {
    let mut guest = Guest::new(cpu);
    gcsrwr!(CRMD, 8 | 3 | 4);
    guest.world.pc = phys_of(done as *const ());
    let exit = guest.run_to_hvc(DONE)?;
    ensure_eq!(exit.crmd, boot::MODE, "CRMD at the exit");
    ensure_eq!(exit.prmd & 7, PIE, "PRMD at the exit");
    Ok(())
}

/// At the exit PVM still reads 1, VM reads 0, GID and TGID are the guest's.
fn pvm(cpu: &mut Cpu) -> Outcome {
    let mut guest = Guest::new(cpu);
    let exit = guest.start(done).run_to_hvc(DONE)?;
    ensure_eq!(exit.gstat & 3, 2u64, "GSTAT.VM and PVM at the exit");
    ensure_eq!(
        exit.gstat >> 16 & 0xff,
        guest.vm.gid,
        "GSTAT.GID at the exit"
    );
    ensure_eq!(
        exit.gtlbc >> 16 & 0xff,
        guest.vm.gid,
        "GTLBC.TGID at the exit"
    );
    ensure_eq!(csrrd!(GSTAT) & 3, 0u64, "GSTAT.VM and PVM afterwards");
    Ok(())
}

/// An exit and an entry change none of the guest's mode and exception state.
fn guest_mode_kept(cpu: &mut Cpu) -> Outcome {
    let mut guest = Guest::new(cpu);
    gcsrwr!(CRMD, boot::MODE | 3);
    gcsrwr!(PRMD, 7);
    gcsrwr!(ERA, 0x1234);
    gcsrwr!(BADV, 0x5678);
    gcsrwr!(BADI, 0x9abc);
    gcsrwr!(ESTAT, 0x3f << 16);
    guest.start(done).run_to_hvc(DONE)?;
    guest.start(done).run_to_hvc(DONE)?;
    ensure_eq!(gcsrrd!(CRMD), boot::MODE | 3, "CRMD");
    ensure_eq!(gcsrrd!(PRMD), 7u64, "PRMD");
    ensure_eq!(gcsrrd!(ERA), 0x1234u64, "ERA");
    ensure_eq!(gcsrrd!(BADV), 0x5678u64, "BADV");
    ensure_eq!(gcsrrd!(BADI), 0x9abcu64, "BADI");
    ensure_eq!(gcsrrd!(ESTAT), 0x3fu64 << 16, "ESTAT");
    Ok(())
}

/// ERA is the address of the `hvcl`, BADI its word.
fn era(cpu: &mut Cpu) -> Outcome {
    let mut guest = Guest::new(cpu);
    for before in 0..8 {
        let mut words = [encode::addi_d(Gpr::A0, Gpr::A0, 1); 9];
        words[before] = encode::hvcl(DONE as u32);
        let start = code::write(&words);
        guest.world.pc = start;
        guest.set(Gpr::A0, 0);
        let exit = guest.run_to_hvc(DONE)?;
        ensure_eq!(exit.era, start + 4 * before as u64, "ERA");
        ensure_eq!(exit.badi, words[before], "BADI");
        ensure_eq!(guest.get(Gpr::A0), before as u64, "instructions before it");
    }
    Ok(())
}

/// All 15 bits of the code arrive.
fn hvcl_codes(cpu: &mut Cpu) -> Outcome {
    let mut guest = Guest::new(cpu);
    let bits = (0..15).map(|bit| 1 << bit);
    let random = core::iter::repeat_with(|| cpu.rng.below(0x8000)).take(16);
    for code in bits.chain([0, 0x7fff, 0x100, 0x101, 0x102]).chain(random) {
        guest.world.pc = code::write(&[encode::hvcl(code as u32)]);
        guest.run_to_hvc(code)?;
    }
    Ok(())
}

/// A guest in direct addressing starts at its guest-physical pc.
fn direct_addressing(cpu: &mut Cpu) -> Outcome {
    let mut guest = Guest::new(cpu);
    gcsrwr!(CRMD, 8);
    guest.world.pc = phys_of(done as *const ());
    let exit = guest.run_to_hvc(DONE)?;
    ensure_eq!(exit.era, phys_of(done as *const ()), "ERA");
    ensure_eq!(gcsrrd!(CRMD), 8u64, "guest CRMD");
    Ok(())
}

/// D-HVCL: `hvcl` exits from level 3 too, and the guest stays there.
fn level3(cpu: &mut Cpu) -> Outcome {
    let mut guest = Guest::new(cpu);
    gcsrwr!(CRMD, boot::MODE | 3);
    guest.start(done).run_to_hvc(DONE)?;
    ensure_eq!(gcsrrd!(CRMD) & 3, 3u64, "guest CRMD.PLV");
    Ok(())
}

program!(
    /// Skips an instruction by `ertn`.
    ertn_ahead:
    "la.pcrel $t0, 1f",
    "csrwr $t0, {era}",
    "ertn",
    "hvcl 0x11",
    "1: hvcl 0x10",
    era = const Csr::ERA.number(),
);

/// `ertn` in the guest uses the guest's ERA and PRMD and stays in the guest.
fn guest_ertn(cpu: &mut Cpu) -> Outcome {
    let mut guest = Guest::new(cpu);
    gcsrwr!(PRMD, 4);
    let exit = guest.start(ertn_ahead).run_to_hvc(DONE)?;
    ensure_eq!(gcsrrd!(CRMD) & 7, 4u64, "guest CRMD.IE and PLV");
    ensure_eq!(exit.era, ertn_ahead as *const () as u64 + 20, "ERA");
    Ok(())
}

program!(
    /// Goes on by `ertn` to a system call.
    ertn_to_syscall:
    "la.pcrel $t0, 1f",
    "csrwr $t0, {era}",
    "ertn",
    "1: syscall 0",
    era = const Csr::ERA.number(),
);

/// The guest's `ertn` to level 3, and back by a system call of its own.
fn guest_ertn_to_level3(cpu: &mut Cpu) -> Outcome {
    let mut guest = Guest::new(cpu);
    gcsrwr!(PRMD, 7);
    let own = guest.start(ertn_to_syscall).run_to_own(Ecode::Sys)?;
    ensure_eq!(own.prmd & 7, 7u64, "guest PRMD");
    ensure_eq!(own.crmd & 7, 0u64, "guest CRMD");
    Ok(())
}

/// Without PVM `ertn` stays in the host.
fn without_pvm(_: &mut Cpu) -> Outcome {
    let run = HostRun::new().words(&[encode::csrrd(Gpr::A0, Csr::EENTRY), encode::SYSCALL]);
    ensure_eq!(run.exit().ecode(), Ecode::Sys.number(), "ecode");
    ensure_eq!(run.exit().gstat & 3, 0u64, "GSTAT.VM and PVM");
    ensure!(
        run.get(Gpr::A0) != gcsrrd!(EENTRY),
        "it saw the guest's EENTRY"
    );
    Ok(())
}

/// A guest runs under each GID from 1 to 255.
fn every_gid(cpu: &mut Cpu) -> Outcome {
    let mut guest = Guest::new(cpu);
    for gid in 1..256 {
        guest.vm.gid = gid;
        let exit = guest.start(done).run_to_hvc(DONE)?;
        ensure_eq!(exit.gstat >> 16 & 0xff, gid, "GSTAT.GID");
    }
    arch::tlb::invalidate::<{ arch::tlb::ALL_GUESTS }>(0, 0);
    Ok(())
}

/// Lets the host's timer expire, and leaves its interrupt pending.
fn make_timer_pending() {
    csrwr!(TCFG, 4 | 1);
    while csrrd!(ESTAT) & Interrupt::TI.bit() == 0 {}
    csrwr!(TCFG, 0);
}

/// An interrupt that is pending at entry exits before the first instruction.
fn pending_at_entry(cpu: &mut Cpu) -> Outcome {
    let mut guest = Guest::new(cpu);
    let line = Interrupt::TI.bit();
    make_timer_pending();
    let enabled = csrxchg!(ECFG, line, line);
    let exit = guest.start(done).enter();
    csrxchg!(ECFG, enabled, line);
    csrwr!(TICLR, 1);
    exit.expect(Ecode::Int)?;
    ensure_eq!(exit.estat & line, line, "ESTAT.TI");
    ensure_eq!(exit.era, done as *const () as u64, "ERA");
    Ok(())
}

/// Lets a guest that never exits run into the host's timer.
fn run_into_timer(guest: &mut Guest) -> crate::guest::switch::Exit {
    let line = Interrupt::TI.bit();
    let enabled = csrxchg!(ECFG, line, line);
    csrwr!(TCFG, (50 * arch::TICKS_PER_US) | 1);
    let exit = guest.start(forever).enter();
    csrwr!(TCFG, 0);
    csrwr!(TICLR, 1);
    csrxchg!(ECFG, enabled, line);
    exit
}

/// With PIE the host's timer takes the CPU back from a guest that has its
/// interrupts off.
fn takes_cpu_back(cpu: &mut Cpu) -> Outcome {
    let mut guest = Guest::new(cpu);
    let exit = run_into_timer(&mut guest);
    exit.expect(Ecode::Int)?;
    ensure_eq!(
        exit.estat & Interrupt::TI.bit(),
        Interrupt::TI.bit(),
        "ESTAT.TI"
    );
    ensure_eq!(exit.era, forever as *const () as u64, "ERA");
    ensure_eq!(gcsrrd!(CRMD) & 4, 0u64, "guest CRMD.IE");
    Ok(())
}

/// Likewise with the guest's interrupts on, all its lines enabled; and the
/// host's timer is no interrupt of the guest's.
fn takes_cpu_back_with_guest_ie(cpu: &mut Cpu) -> Outcome {
    let mut guest = Guest::new(cpu);
    gcsrwr!(CRMD, boot::MODE | 4);
    gcsrwr!(ECFG, 0x1fff);
    let exit = run_into_timer(&mut guest);
    exit.expect(Ecode::Int)?;
    ensure_eq!(gcsrrd!(ESTAT), 0u64, "guest ESTAT");
    ensure_eq!(gcsrrd!(CRMD), boot::MODE | 4, "guest CRMD");
    Ok(())
}

/// A host that leaves PIE = 0 doesn't get the CPU back by interrupt.
fn pie_off(cpu: &mut Cpu) -> Outcome {
    let mut guest = Guest::new(cpu);
    guest.world.prmd = 0;
    outlast_timer(&mut guest, Interrupt::TI.bit())
}

/// A host interrupt that ECFG masks has no effect on the guest.
fn masked_interrupt(cpu: &mut Cpu) -> Outcome {
    let mut guest = Guest::new(cpu);
    outlast_timer(&mut guest, 0)
}

/// Runs the guest with this line enable, once with the host's timer interrupt
/// pending and once with it coming meanwhile; it must go on to its `hvcl`.
fn outlast_timer(guest: &mut Guest, enable: u64) -> Outcome {
    let line = Interrupt::TI.bit();
    make_timer_pending();
    let enabled = csrxchg!(ECFG, enable, line);
    guest.set(Gpr::A0, 0);
    let pending = guest.start(for_a_while).enter();
    let still = csrrd!(ESTAT) & line;
    csrwr!(TICLR, 1);
    csrwr!(TCFG, (10 * arch::TICKS_PER_US) | 1);
    guest.set(Gpr::A0, 1000 * arch::TICKS_PER_US);
    let meanwhile = guest.start(for_a_while).enter();
    while csrrd!(ESTAT) & line == 0 {}
    csrwr!(TCFG, 0);
    csrwr!(TICLR, 1);
    csrxchg!(ECFG, enabled, line);
    pending.expect_hvc(DONE)?;
    ensure_eq!(still, line, "ESTAT.TI after the guest");
    meanwhile.expect_hvc(DONE)
}

program!(count_calls: "1: addi.d $s0, $s0, 1", "hvcl 0x10", "b 1b");

/// Three thousand exits and entries lose no step.
fn many(cpu: &mut Cpu) -> Outcome {
    let mut guest = Guest::new(cpu);
    let s0 = Gpr::from_field(23);
    guest.start(count_calls);
    for step in 1..=3000u64 {
        guest.run_to_hvc(DONE)?;
        ensure_eq!(guest.get(s0), step, "steps");
        guest.skip();
    }
    Ok(())
}
