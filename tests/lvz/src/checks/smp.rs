//! Several CPUs: kicks, what is each CPU's own, races.

use super::entries::{self, Entry, Side};
use crate::arch::{self, counter, delay, tlb};
use crate::check::{Check, Cpu, Failed, Outcome};
use crate::guest::memory::{self, page, page_of};
use crate::guest::programs::{for_a_while, forever, load};
use crate::guest::table::flag;
use crate::guest::{DONE, Guest, Program};
use crate::machine::ipi::{self, Vector};
use crate::machine::{boot, cached, smp};
use crate::{csrrd, csrwr, csrxchg, ensure, ensure_eq, gcsrrd, gcsrwr, gcsrxchg, program};
use core::sync::atomic::{AtomicU64, Ordering};
use loongarch_isa::exception::{Ecode, Interrupt};
use loongarch_isa::gpr::Gpr;

/// This group.
pub const CHECKS: &[Check] = &[
    Check::every("smp.same_gid", same_gid),
    Check::every("smp.injected_timer_race", injected_timer_race),
    Check::several("smp.kick", kick),
    Check::several("smp.kick_guest_ie", kick_guest_ie),
    Check::several("smp.kick_other", kick_other),
    Check::several("smp.kick_masked", kick_masked),
    Check::several("smp.invtlb_is_local", invtlb_is_local),
    Check::several("smp.gintc_is_local", gintc_is_local),
    Check::several("smp.shared_counter", shared_counter),
    Check::several("smp.shootdown", shootdown),
];

/// Checks of the host's own interrupts, with or without LVZ.
pub const HOST_CHECKS: &[Check] = &[Check::several("smp.estat_race", estat_race)];

const IPI: u64 = Interrupt::IPI.bit();
const GPA: u64 = 0x1_0000_0000;
/// How long one CPU waits for another before it gives up: 30 s.
const PATIENCE: u64 = 30_000_000 * arch::TICKS_PER_US;

/// Turns of two CPUs: whose number it holds may act.
static TURN: AtomicU64 = AtomicU64::new(0);

/// Makes it the turn of CPU `to`, which waits for this number.
fn pass_turn(turn: u64, to: usize) {
    TURN.store(turn, Ordering::Release);
    ipi::send(to, Vector::Wake);
}

fn wait_for_turn(turn: u64) -> Outcome {
    let came = smp::wait_for(PATIENCE, || TURN.load(Ordering::Acquire) == turn);
    ensure!(came, "turn {turn} never came");
    Ok(())
}

/// The same GID on all CPUs, with a page of its own behind the same address:
/// the TLBs are each CPU's own.
fn same_gid(cpu: &mut Cpu) -> Outcome {
    let mut guest = Guest::new(cpu);
    tlb::invalidate::<{ tlb::GUEST }>(77 << 16, 0);
    guest.vm.gid = 77;
    let mine = 0x1000 + cpu.index as u64;
    memory::store(page(0), mine);
    guest.map(GPA, page(0), flag::ALL);
    let mut outcome = Ok(());
    for round in 0..100 {
        if round % 16 == 15 {
            guest.invalidate(GPA);
        }
        guest.set(Gpr::A0, cached(GPA));
        outcome = outcome.and_then(|()| {
            guest.start(load).run_to_hvc(DONE)?;
            ensure_eq!(guest.get(Gpr::A1), mine, "round {round}");
            Ok(())
        });
    }
    tlb::invalidate::<{ tlb::GUEST }>(77 << 16, 0);
    outcome
}

/// A timer that fires in another thread of the emulator while this CPU
/// exchanges ESTAT bits: with the check that KVM makes nothing is lost.
fn injected_timer_race(_: &mut Cpu) -> Outcome {
    for round in 0..200 {
        gcsrwr!(TCFG, 0);
        gcsrwr!(TICLR, 1);
        gcsrwr!(TCFG, (4 * (round % 50)) | 1);
        let start = counter();
        while gcsrrd!(ESTAT) & Interrupt::TI.bit() == 0 && counter() - start < PATIENCE {
            let before = gcsrrd!(TVAL);
            gcsrxchg!(ESTAT, 1, 1);
            gcsrxchg!(ESTAT, 0, 1);
            if gcsrrd!(TVAL) > before {
                gcsrxchg!(ESTAT, Interrupt::TI.bit(), Interrupt::TI.bit());
            }
        }
        let pending = gcsrrd!(ESTAT) & Interrupt::TI.bit() != 0;
        ensure!(pending, "round {round}: the timer interrupt was lost");
    }
    gcsrwr!(TCFG, 0);
    gcsrwr!(ESTAT, 0);
    Ok(())
}

/// Kicks of one check.
const KICKS: u64 = 12;

/// Kicks CPU 0 whenever it is this CPU's turn (odd numbers).
fn kicker(cpu: &mut Cpu) -> Outcome {
    for round in 0..KICKS {
        wait_for_turn(2 * round + 1)?;
        delay(cpu.rng.below(2000));
        pass_turn(2 * round + 2, 0);
        ipi::send(0, Vector::Check);
    }
    Ok(())
}

/// Takes the IPI that is pending here: whether it is one of a check's. The
/// end of an earlier task may still wake a CPU that doesn't wait any more.
fn take_ipi() -> bool {
    let vectors = ipi::pending();
    ipi::clear(vectors);
    vectors & Vector::Check.bit() != 0
}

/// Runs `program` until a kick comes.
fn kicked(guest: &mut Guest, program: Program) -> Outcome {
    let enabled = csrxchg!(ECFG, IPI, IPI);
    guest.start(program);
    let exit = loop {
        let exit = guest.run();
        if exit.estat & IPI == 0 || take_ipi() {
            break exit;
        }
    };
    csrxchg!(ECFG, enabled, IPI);
    exit.expect(Ecode::Int)?;
    ensure_eq!(exit.estat & IPI, IPI, "ESTAT.IPI");
    Ok(())
}

/// CPU 1 kicks a guest on CPU 0, which runs with this CRMD.
fn kicks(cpu: &mut Cpu, mode: u64) -> Outcome {
    let mut guest = Guest::new(cpu);
    gcsrwr!(CRMD, mode);
    gcsrwr!(ECFG, 0x1fff);
    TURN.store(0, Ordering::Release);
    smp::give(1, kicker);
    let mut outcome = Ok(());
    for round in 0..KICKS {
        pass_turn(2 * round + 1, 1);
        outcome = kicked(&mut guest, forever);
        if outcome.is_err() {
            break;
        }
        outcome = wait_for_turn(2 * round + 2);
    }
    let other = smp::join(1).map_err(|Failed| of_other(1));
    ensure_eq!(gcsrrd!(ESTAT), 0u64, "guest ESTAT");
    outcome.and(other)
}

/// An IPI takes the CPU back from a guest that has its interrupts off.
fn kick(cpu: &mut Cpu) -> Outcome {
    kicks(cpu, boot::MODE)
}

/// And from one that has them on; the guest doesn't see it.
fn kick_guest_ie(cpu: &mut Cpu) -> Outcome {
    kicks(cpu, boot::MODE | 4)
}

/// On the last CPU: a guest that CPU 0 kicks.
fn kicked_here(cpu: &mut Cpu) -> Outcome {
    let mut guest = Guest::new(cpu);
    for round in 0..KICKS {
        pass_turn(2 * round + 1, 0);
        kicked(&mut guest, forever)?;
        wait_for_turn(2 * round + 2)?;
    }
    Ok(())
}

/// CPU 0 kicks guests on every other CPU, one after the other.
fn kick_other(cpu: &mut Cpu) -> Outcome {
    for other in 1..smp::count() {
        TURN.store(0, Ordering::Release);
        smp::give(other, kicked_here);
        let mut outcome = Ok(());
        for round in 0..KICKS {
            outcome = outcome.and_then(|()| wait_for_turn(2 * round + 1));
            delay(cpu.rng.below(500));
            pass_turn(2 * round + 2, other);
            ipi::send(other, Vector::Check);
        }
        smp::join(other).map_err(|Failed| of_other(other))?;
        outcome?;
    }
    Ok(())
}

/// The other CPU's reason, as this one's.
fn of_other(other: usize) -> Failed {
    crate::check::fail(format_args!(
        "cpu {other}: {}",
        crate::check::failure(other)
    ))
}

/// Sends one IPI to CPU 0.
fn send_one(_: &mut Cpu) -> Outcome {
    delay(500);
    ipi::send(0, Vector::Check);
    Ok(())
}

/// An IPI that the host's ECFG masks doesn't disturb the guest; it is pending
/// afterwards.
fn kick_masked(cpu: &mut Cpu) -> Outcome {
    let mut guest = Guest::new(cpu);
    smp::give(1, send_one);
    guest.set(Gpr::A0, 100 * arch::TICKS_PER_US);
    let outcome = guest.start(for_a_while).run_to_hvc(DONE);
    let other = smp::join(1);
    let came = smp::wait_for(PATIENCE, || ipi::pending() & Vector::Check.bit() != 0);
    ipi::clear(Vector::Check.bit());
    outcome?;
    ensure!(came, "no IPI");
    other
}

/// Everything out of this CPU's TLB.
fn flush_here(_: &mut Cpu) -> Outcome {
    entries::empty();
    Ok(())
}

/// INVTLB on another CPU leaves this one's entries alone.
fn invtlb_is_local(cpu: &mut Cpu) -> Outcome {
    let _guest = Guest::new(cpu);
    entries::empty();
    let all = [(Side::Host, 0), (Side::Second, 9), (Side::First, 9)].map(|(side, gid)| Entry {
        side,
        gid,
        asid: 3,
        global: false,
        address: 0x12_3456_8000,
    });
    all.iter().for_each(|entry| entry.write(7));
    // The host's and the second stage's share an array.
    all[1].write(8);
    all[0].write(7);
    smp::give(1, flush_here);
    smp::join(1)?;
    let found = [all[0].found(), all[1].found(), all[2].found()];
    entries::empty();
    crate::guest::reset_bank(cpu.index);
    ensure!(found == [true; 3], "found: {found:?}");
    Ok(())
}

/// Injects all lines on this CPU, and leaves them.
fn inject_here(_: &mut Cpu) -> Outcome {
    csrwr!(GINTC, 0xff);
    gcsrwr!(ESTAT, 3);
    ensure_eq!(gcsrrd!(ESTAT), 0x3ffu64, "guest ESTAT there");
    Ok(())
}

/// Withdraws them.
fn withdraw_here(_: &mut Cpu) -> Outcome {
    csrwr!(GINTC, 0);
    gcsrwr!(ESTAT, 0);
    Ok(())
}

/// GINTC and the guest's ESTAT are each CPU's own.
fn gintc_is_local(cpu: &mut Cpu) -> Outcome {
    let _guest = Guest::new(cpu);
    smp::give(1, inject_here);
    smp::join(1).map_err(|Failed| of_other(1))?;
    let seen = (csrrd!(GINTC), gcsrrd!(ESTAT));
    smp::give(1, withdraw_here);
    smp::join(1)?;
    ensure_eq!(seen.0, 0u64, "GINTC here");
    ensure_eq!(seen.1, 0u64, "guest ESTAT here");
    Ok(())
}

program!(
    /// Adds 1 to the word at a0, a1 times, by LL and SC; to the word at
    /// a0 + 8 by AM.
    add_up:
    "li.w $t2, 1",
    "addi.d $t3, $a0, 8",
    "1: ll.d $t0, $a0, 0",
    "addi.d $t0, $t0, 1",
    "sc.d $t0, $a0, 0",
    "beqz $t0, 1b",
    "amadd_db.d $zero, $t2, $t3",
    "addi.d $a1, $a1, -1",
    "bnez $a1, 1b",
    "hvcl 0x10",
);

/// Additions of each CPU.
const ADDITIONS: u64 = 2000;

/// Runs [`add_up`] in a guest of this CPU on CPU 0's data page.
fn add_here(cpu: &mut Cpu) -> Outcome {
    let mut guest = Guest::new(cpu);
    guest.map(GPA, page_of(0, 0), flag::ALL);
    guest.set(Gpr::A0, cached(GPA)).set(Gpr::A1, ADDITIONS);
    guest.start(add_up).run_to_hvc(DONE)?;
    Ok(())
}

/// Guests on all CPUs add up in shared memory; nothing is lost.
fn shared_counter(cpu: &mut Cpu) -> Outcome {
    let cpus = smp::count();
    memory::store(page(0), 0);
    memory::store(page(0) + 8, 0);
    (1..cpus).for_each(|other| smp::give(other, add_here));
    let mut outcome = add_here(cpu);
    for other in 1..cpus {
        let of_that = smp::join(other).map_err(|Failed| of_other(other));
        outcome = outcome.and(of_that);
    }
    outcome?;
    let want = ADDITIONS * cpus as u64;
    ensure_eq!(memory::load(page(0)), want, "by LL and SC");
    ensure_eq!(memory::load(page(0) + 8), want, "by AM");
    Ok(())
}

/// Root of CPU 0's second stage, for another CPU.
static SHARED_ROOT: AtomicU64 = AtomicU64::new(0);

/// What [`reader`] last read.
static SEEN: AtomicU64 = AtomicU64::new(0);

program!(
    /// Loads at a0 to a1 for ever.
    load_for_ever: "1: ld.d $a1, $a0, 0", "b 1b",
);

/// Runs a guest on CPU 0's second stage; at each kick it invalidates the page
/// and looks again.
fn reader(cpu: &mut Cpu) -> Outcome {
    let mut guest = Guest::new(cpu);
    let root = SHARED_ROOT.load(Ordering::Acquire);
    guest.vm.stage2 = guest.vm.stage2.with_root(root);
    guest.set(Gpr::A0, cached(GPA));
    for round in 0..KICKS {
        pass_turn(2 * round + 1, 0);
        kicked(&mut guest, load_for_ever)?;
        guest.invalidate(GPA);
        guest.start(load).run_to_hvc(DONE)?;
        SEEN.store(guest.get(Gpr::A1), Ordering::Release);
        ipi::send(0, Vector::Wake);
        wait_for_turn(2 * round + 2)?;
    }
    Ok(())
}

/// CPU 0 remaps a page that a guest on CPU 1 reads all the time, and kicks it
/// to invalidate: afterwards the new page is seen.
fn shootdown(cpu: &mut Cpu) -> Outcome {
    let mut guest = Guest::new(cpu);
    for n in 0..2 {
        memory::store(page(n), n as u64);
    }
    guest.map(GPA, page(1), flag::ALL);
    SHARED_ROOT.store(guest.vm.stage2.root(), Ordering::Release);
    TURN.store(0, Ordering::Release);
    smp::give(1, reader);
    let mut outcome = Ok(());
    for round in 0..KICKS {
        outcome = outcome.and_then(|()| wait_for_turn(2 * round + 1));
        delay(cpu.rng.below(1000));
        let n = round % 2;
        SEEN.store(u64::MAX, Ordering::Release);
        guest.map(GPA, page(n as usize), flag::ALL);
        ipi::send(1, Vector::Check);
        let came = smp::wait_for(PATIENCE, || SEEN.load(Ordering::Acquire) != u64::MAX);
        if outcome.is_ok() && !(came && SEEN.load(Ordering::Acquire) == n) {
            let seen = SEEN.load(Ordering::Acquire);
            let reason = format_args!("round {round}: saw {seen:#x}");
            outcome = Err(crate::check::fail(reason));
        }
        pass_turn(2 * round + 2, 1);
    }
    smp::join(1).map_err(|Failed| of_other(1))?;
    outcome
}

/// IPIs sent by [`sender`].
const IPIS: u64 = 100;

/// Sends an IPI to CPU 0 whenever the last one has arrived.
fn sender(_: &mut Cpu) -> Outcome {
    for round in 0..IPIS {
        wait_for_turn(round)?;
        ipi::send(0, Vector::Check);
        let taken = smp::wait_for(PATIENCE, || TURN.load(Ordering::Acquire) > round);
        ensure!(taken, "IPI {round} was never seen");
    }
    Ok(())
}

/// Writes of ESTAT between two naps, which let an emulator that runs one CPU
/// at a time turn to the other.
const TURNS: u64 = 2000;

/// csrwr of ESTAT while another CPU's IPI sets a bit in it loses no IPI.
fn estat_race(_: &mut Cpu) -> Outcome {
    TURN.store(0, Ordering::Release);
    smp::give(1, sender);
    let mut lost = None;
    for round in 0..IPIS {
        let start = counter();
        let mut turns = 0u64;
        while (csrrd!(ESTAT) & IPI == 0 || !take_ipi()) && lost.is_none() {
            csrxchg!(ESTAT, 1, 1);
            csrxchg!(ESTAT, 0, 1);
            turns += 1;
            if turns.is_multiple_of(TURNS) {
                smp::wait_for(arch::TICKS_PER_US, || false);
            }
            if counter() - start > PATIENCE / 2 {
                lost = Some(round);
            }
        }
        pass_turn(round + 1, 1);
    }
    csrxchg!(ESTAT, 0, 1);
    let other = smp::join(1).map_err(|Failed| of_other(1));
    ensure!(lost.is_none(), "IPI {lost:?} was lost");
    other
}
