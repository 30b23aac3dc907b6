//! The constant timers: the host's, and the guest's, which runs in both modes.
//!
//! An emulator's clock may stand still for a while on a busy machine, so
//! nothing here asks that something happens soon, only that it doesn't happen
//! too early, and that it happens.

use crate::arch::{self, counter, delay};
use crate::check::{Check, Cpu, Outcome};
use crate::guest::programs::forever;
use crate::guest::{DONE, Guest};
use crate::machine::boot;
use crate::{csrrd, csrwr, ensure, ensure_eq, gcsrrd, gcsrwr, gcsrxchg, program};
use loongarch_isa::csr::Csr;
use loongarch_isa::exception::{Ecode, Interrupt};
use loongarch_isa::gpr::Gpr;

/// Checks of the host's timer, with or without LVZ.
pub const HOST_CHECKS: &[Check] = &[
    Check::every("timer.host_one_shot", |_| one_shot(&HOST)),
    Check::every("timer.host_one_shot_stays_fired", |_| stays_fired(&HOST)),
    Check::every("timer.host_periodic", |_| periodic(&HOST)),
    Check::every("timer.host_counts_down", |_| counts_down(&HOST)),
    Check::every("timer.host_stop", |_| stop(&HOST)),
    Check::every("timer.host_zero", |_| zero(&HOST)),
    Check::every("timer.host_periodic_zero", |_| periodic_zero(&HOST)),
];

/// This group.
pub const CHECKS: &[Check] = &[
    Check::every("timer.guest_one_shot", |_| one_shot(&GUEST)),
    Check::every("timer.guest_one_shot_stays_fired", |_| stays_fired(&GUEST)),
    Check::every("timer.guest_periodic", |_| periodic(&GUEST)),
    Check::every("timer.guest_counts_down", |_| counts_down(&GUEST)),
    Check::every("timer.guest_stop", |_| stop(&GUEST)),
    Check::every("timer.guest_zero", |_| zero(&GUEST)),
    Check::every("timer.guest_periodic_zero", |_| periodic_zero(&GUEST)),
    Check::every("timer.tval_write", tval_write),
    Check::every("timer.tval_zero_fires", tval_zero_fires),
    Check::every("timer.tval_zero_rearms_nothing", tval_zero_rearms_nothing),
    Check::every("timer.tval_when_off", tval_when_off),
    Check::every("timer.ticlr_in_guest", ticlr_in_guest),
    Check::every("timer.interrupts_guest", interrupts_guest),
    Check::every("timer.ticks_in_guest", ticks_in_guest),
    Check::every("timer.fires_across_modes", fires_across_modes),
    Check::every("timer.two_timers", two_timers),
    Check::every("timer.estat_exchange", estat_exchange),
];

/// TCFG.EN.
pub const EN: u64 = 1;
/// TCFG.PERIODIC.
pub const PERIODIC: u64 = 2;
/// TVAL of a one-shot that has fired.
pub const FIRED: u64 = (1 << 48) - 1;
/// The timer's line.
pub const TI: u64 = Interrupt::TI.bit();
/// Longer than any timer here needs, also where threads of the emulator have to
/// wait for a processor: 20 s.
pub const LONG: u64 = 20_000_000 * arch::TICKS_PER_US;
/// Reading the clock and the timer takes a while: the least that counts as
/// too early, in ticks.
pub const SLACK: u64 = 8;

/// One of the two timers, as the host reaches it.
pub struct Timer {
    configure: fn(u64) -> u64,
    configuration: fn() -> u64,
    value: fn() -> u64,
    status: fn() -> u64,
    acknowledge: fn(),
}

/// The host's.
const HOST: Timer = Timer {
    configure: |value| csrwr!(TCFG, value),
    configuration: || csrrd!(TCFG),
    value: || csrrd!(TVAL),
    status: || csrrd!(ESTAT),
    acknowledge: || {
        csrwr!(TICLR, 1);
    },
};

/// The guest's.
pub const GUEST: Timer = Timer {
    configure: |value| gcsrwr!(TCFG, value),
    configuration: || gcsrrd!(TCFG),
    value: || gcsrrd!(TVAL),
    status: || gcsrrd!(ESTAT),
    acknowledge: || {
        gcsrwr!(TICLR, 1);
    },
};

impl Timer {
    /// Whether its interrupt is pending.
    pub fn pending(&self) -> bool {
        (self.status)() & TI != 0
    }

    /// Waits for the interrupt; false if it doesn't come.
    pub fn wait(&self) -> bool {
        let start = counter();
        while !self.pending() {
            if counter().wrapping_sub(start) > LONG {
                break;
            }
        }
        self.pending()
    }

    /// Off, nothing pending.
    pub fn reset(&self) {
        (self.configure)(0);
        (self.acknowledge)();
    }
}

/// A one-shot fires once, not too early.
fn one_shot(timer: &Timer) -> Outcome {
    timer.reset();
    for ticks in [400u64, 4000, 40000] {
        let start = counter();
        (timer.configure)(ticks | EN);
        let fired = timer.wait();
        let elapsed = counter() - start;
        timer.reset();
        ensure!(fired, "{ticks} ticks: no interrupt");
        ensure!(elapsed + SLACK >= ticks, "{ticks} ticks: after {elapsed}");
    }
    Ok(())
}

/// A fired one-shot keeps EN, its TVAL is all ones, and it fires no more once
/// acknowledged.
fn stays_fired(timer: &Timer) -> Outcome {
    timer.reset();
    (timer.configure)(400 | EN);
    let fired = timer.wait();
    let (configuration, value) = ((timer.configuration)(), (timer.value)());
    (timer.acknowledge)();
    let cleared = !timer.pending();
    delay(4000);
    let (again, later) = (timer.pending(), (timer.value)());
    timer.reset();
    ensure!(fired, "no interrupt");
    ensure_eq!(configuration, 400 | EN, "TCFG");
    ensure_eq!(value, FIRED, "TVAL");
    ensure!(cleared, "still pending after TICLR");
    ensure!(!again, "fired twice");
    ensure_eq!(later, FIRED, "TVAL later");
    Ok(())
}

/// A periodic timer fires again and again, TVAL never above its value.
fn periodic(timer: &Timer) -> Outcome {
    const PERIOD: u64 = 2000;
    timer.reset();
    let start = counter();
    (timer.configure)(PERIOD | PERIODIC | EN);
    let (mut fired, mut highest) = (0, 0);
    while fired < 5 && timer.wait() {
        highest = (timer.value)().max(highest);
        (timer.acknowledge)();
        fired += 1;
    }
    let elapsed = counter() - start;
    let configuration = (timer.configuration)();
    timer.reset();
    ensure_eq!(fired as u64, 5u64, "interrupts");
    ensure!(elapsed + SLACK >= 5 * PERIOD, "5 periods took {elapsed}");
    ensure!(highest <= PERIOD, "TVAL {highest}");
    ensure_eq!(configuration, PERIOD | PERIODIC | EN, "TCFG");
    Ok(())
}

/// TVAL counts with the stable counter.
fn counts_down(timer: &Timer) -> Outcome {
    timer.reset();
    (timer.configure)((4 * LONG) | EN);
    let (clock, value) = (counter(), (timer.value)());
    delay(2000);
    let (value_later, clock_later) = ((timer.value)(), counter());
    timer.reset();
    ensure!(value <= 4 * LONG, "TVAL {value} at first");
    let counted = value - value_later;
    ensure!(counted + SLACK >= 2000, "TVAL counted {counted}");
    ensure!(
        counted <= clock_later - clock + SLACK,
        "TVAL counted {counted}"
    );
    Ok(())
}

/// TCFG.EN = 0 stops it and invents no interrupt.
fn stop(timer: &Timer) -> Outcome {
    timer.reset();
    (timer.configure)((4 * LONG) | EN);
    (timer.configure)(4 * LONG);
    let value = (timer.value)();
    delay(2000);
    let (later, pending) = ((timer.value)(), timer.pending());
    timer.reset();
    ensure!(!pending, "it fired");
    ensure_eq!(later, value, "TVAL");
    Ok(())
}

/// A one-shot of 0 ticks fires.
fn zero(timer: &Timer) -> Outcome {
    timer.reset();
    (timer.configure)(EN);
    let fired = timer.wait();
    timer.reset();
    ensure!(fired, "no interrupt");
    Ok(())
}

/// D-TVAL: a periodic timer of 0 ticks fires once.
fn periodic_zero(timer: &Timer) -> Outcome {
    timer.reset();
    (timer.configure)(PERIODIC | EN);
    let first = timer.wait();
    (timer.acknowledge)();
    delay(2000);
    let second = timer.pending();
    timer.reset();
    ensure!(first, "no interrupt");
    ensure!(!second, "a second interrupt");
    Ok(())
}

/// TVAL, written by the host, is what remains.
fn tval_write(_: &mut Cpu) -> Outcome {
    GUEST.reset();
    gcsrwr!(TCFG, LONG | EN);
    let start = counter();
    gcsrwr!(TVAL, 3000);
    let value = gcsrrd!(TVAL);
    let fired = GUEST.wait();
    let elapsed = counter() - start;
    GUEST.reset();
    ensure!(value <= 3000 || value == FIRED, "TVAL {value}");
    ensure!(fired, "no interrupt");
    ensure!(elapsed + SLACK >= 3000, "after {elapsed} ticks");
    ensure!(elapsed < LONG, "after the whole value");
    Ok(())
}

/// Writing 0 to TVAL of a running one-shot makes it fire.
fn tval_zero_fires(_: &mut Cpu) -> Outcome {
    GUEST.reset();
    gcsrwr!(TCFG, (LONG * 4) | EN);
    gcsrwr!(TVAL, 0);
    let fired = GUEST.wait();
    let (configuration, value) = (gcsrrd!(TCFG), gcsrrd!(TVAL));
    GUEST.reset();
    ensure!(fired, "no interrupt");
    ensure_eq!(configuration, (LONG * 4) | EN, "TCFG");
    ensure_eq!(value, FIRED, "TVAL");
    Ok(())
}

/// That arms no further period, and TICLR leaves TVAL alone.
fn tval_zero_rearms_nothing(_: &mut Cpu) -> Outcome {
    GUEST.reset();
    gcsrwr!(TCFG, 1000 | EN);
    gcsrwr!(TVAL, 0);
    let fired = GUEST.wait();
    gcsrwr!(TICLR, 1);
    let value = gcsrrd!(TVAL);
    delay(5000);
    let again = GUEST.pending();
    GUEST.reset();
    ensure!(fired, "no interrupt");
    ensure_eq!(value, FIRED, "TVAL after TICLR");
    ensure!(!again, "a second interrupt");
    Ok(())
}

/// D-TVAL: with the timer off TVAL is storage and fires nothing.
fn tval_when_off(_: &mut Cpu) -> Outcome {
    GUEST.reset();
    for value in [0u64, 4, FIRED, 123_456] {
        gcsrwr!(TVAL, value);
        delay(200);
        ensure_eq!(gcsrrd!(TVAL), value, "TVAL");
        ensure!(!GUEST.pending(), "it fired");
    }
    gcsrwr!(TVAL, 0);
    Ok(())
}

program!(
    /// Clears the timer interrupt and reads ESTAT to a0, TICLR to a1.
    acknowledge:
    "li.w $t0, 1",
    "csrwr $t0, {ticlr}",
    "csrrd $a0, {estat}",
    "csrrd $a1, {ticlr}",
    "hvcl 0x10",
    ticlr = const Csr::TICLR.number(),
    estat = const Csr::ESTAT.number(),
);

/// The guest's TICLR clears the guest's timer interrupt, reads 0, and leaves
/// the host's alone.
fn ticlr_in_guest(cpu: &mut Cpu) -> Outcome {
    let mut guest = Guest::new(cpu);
    csrwr!(TCFG, EN);
    let fired = HOST.wait();
    csrwr!(TCFG, 0);
    gcsrxchg!(ESTAT, TI, TI);
    guest.start(acknowledge);
    let exit = guest.enter();
    let host = HOST.pending();
    HOST.reset();
    exit.expect_hvc(DONE)?;
    ensure_eq!(guest.get(Gpr::A0), 0u64, "guest ESTAT");
    ensure_eq!(guest.get(Gpr::A1), 0u64, "TICLR");
    ensure!(fired && host, "the host's interrupt went");
    Ok(())
}

program!(
    /// Starts the timer with a0 and waits.
    start_timer:
    "csrwr $a0, {tcfg}",
    "b .",
    tcfg = const Csr::TCFG.number(),
);

/// Timer on, interrupts on, the timer's line enabled.
fn listen() {
    gcsrwr!(CRMD, boot::MODE | 4);
    gcsrwr!(ECFG, TI);
}

/// The guest's timer, started by the guest, interrupts the guest by itself.
fn interrupts_guest(cpu: &mut Cpu) -> Outcome {
    let mut guest = Guest::new(cpu);
    listen();
    for ticks in [40u64, 400, 4000] {
        let start = counter();
        guest.set(Gpr::A0, ticks | EN);
        gcsrwr!(CRMD, boot::MODE | 4);
        let own = guest.start(start_timer).run_to_own(Ecode::Int)?;
        let elapsed = counter() - start;
        ensure_eq!(own.is, TI, "guest ESTAT.IS");
        ensure!(elapsed + SLACK >= ticks, "{ticks} ticks: after {elapsed}");
        ensure_eq!(gcsrrd!(TVAL), FIRED, "TVAL");
        gcsrwr!(TICLR, 1);
    }
    GUEST.reset();
    Ok(())
}

program!(
    /// The guest's vector: counts in s0 down to 0, then `hvcl`.
    count_ticks:
    ".p2align 12",
    "li.w $t0, 1",
    "csrwr $t0, {ticlr}",
    "addi.d $s0, $s0, -1",
    "beqz $s0, 1f",
    "ertn",
    "1: hvcl 0x10",
    ticlr = const Csr::TICLR.number(),
);

/// Ten periods, counted in the guest, with no exit in between.
fn ticks_in_guest(cpu: &mut Cpu) -> Outcome {
    const PERIOD: u64 = 1000 * arch::TICKS_PER_US;
    let s0 = Gpr::from_field(23);
    let mut guest = Guest::new(cpu);
    gcsrwr!(EENTRY, count_ticks as *const () as u64);
    listen();
    guest.set(s0, 10);
    let start = counter();
    gcsrwr!(TCFG, PERIOD | PERIODIC | EN);
    let outcome = guest.start(forever).run_to_hvc(DONE);
    let elapsed = counter() - start;
    GUEST.reset();
    outcome?;
    ensure!(elapsed + SLACK >= 10 * PERIOD, "10 periods took {elapsed}");
    Ok(())
}

program!(
    /// Waits until ESTAT shows the bits of a0.
    until_pending:
    "1: csrrd $t0, {estat}",
    "and $t0, $t0, $a0",
    "beqz $t0, 1b",
    "hvcl 0x10",
    estat = const Csr::ESTAT.number(),
);

/// A timer started in the host fires while the guest runs, and one started
/// there fires in the host.
fn fires_across_modes(cpu: &mut Cpu) -> Outcome {
    let mut guest = Guest::new(cpu);
    gcsrwr!(TCFG, 1000 | EN);
    guest.set(Gpr::A0, TI);
    guest.start(until_pending).run_to_hvc(DONE)?;
    GUEST.reset();
    guest.set(Gpr::A0, 1000 | EN);
    guest.start(set_timer).run_to_hvc(DONE)?;
    let in_host = GUEST.wait();
    GUEST.reset();
    ensure!(in_host, "not in the host");
    Ok(())
}

program!(
    /// Starts the timer with a0.
    set_timer:
    "csrwr $a0, {tcfg}",
    "hvcl 0x10",
    tcfg = const Csr::TCFG.number(),
);

/// Host and guest timer run at the same time, each with its own interrupt.
fn two_timers(cpu: &mut Cpu) -> Outcome {
    let _guest = Guest::new(cpu);
    HOST.reset();
    gcsrwr!(TCFG, 1000 | EN);
    csrwr!(TCFG, 1_000_000 | EN);
    let guest_first = GUEST.wait();
    let remaining = csrrd!(TVAL);
    gcsrwr!(TICLR, 1);
    csrwr!(TCFG, 1000 | EN);
    let host_then = HOST.wait();
    let guest_again = GUEST.pending();
    HOST.reset();
    GUEST.reset();
    ensure!(guest_first, "no interrupt of the guest's");
    ensure!(
        remaining <= 1_000_000 || remaining == FIRED,
        "host TVAL {remaining}"
    );
    ensure!(host_then, "no interrupt of the host's");
    ensure!(!guest_again, "the host's interrupt is the guest's too");
    Ok(())
}

/// Injecting SWI0 by exchange while the timer is about to fire loses no timer
/// interrupt, with the check that KVM makes.
fn estat_exchange(cpu: &mut Cpu) -> Outcome {
    for round in 0..100 {
        GUEST.reset();
        gcsrwr!(TCFG, (cpu.rng.below(100) * 4) | EN);
        let start = counter();
        while gcsrrd!(ESTAT) & TI == 0 {
            let before = gcsrrd!(TVAL);
            gcsrxchg!(ESTAT, counter() & 1, 1);
            if gcsrrd!(TVAL) > before {
                gcsrxchg!(ESTAT, TI, TI);
            }
            if counter() - start > LONG {
                GUEST.reset();
                return Err(crate::check::fail(format_args!("round {round}: lost")));
            }
        }
    }
    gcsrwr!(ESTAT, 0);
    GUEST.reset();
    Ok(())
}
