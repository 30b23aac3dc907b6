//! Taking a guest's timer out and putting it back: no interrupt is lost, none
//! invented.
//!
//! The order is that of KVM. Short times are given to TVAL while TCFG holds a
//! long one: a busy machine may take any time between two instructions, and a
//! short period would really end then.

use super::timer::{EN, FIRED, GUEST, LONG, PERIODIC, SLACK, TI};
use crate::arch::{counter, delay};
use crate::check::{Check, Cpu, Outcome};
use crate::{ensure, ensure_eq, gcsrrd, gcsrwr};

/// This group.
pub const CHECKS: &[Check] = &[
    Check::every("timer.restore_running", restore_running),
    Check::every("timer.restore_pending", restore_pending),
    Check::every("timer.restore_acknowledged", restore_acknowledged),
    Check::every("timer.restore_random", restore_random),
];

/// The timer of a guest that isn't loaded.
struct Saved {
    configuration: u64,
    value: u64,
    status: u64,
}

/// Takes the guest's timer out. It is stopped first, so that it can't fire
/// between the look at TVAL and the one at ESTAT.
fn save() -> Saved {
    let configuration = gcsrwr!(TCFG, 0);
    let value = gcsrrd!(TVAL);
    let status = gcsrwr!(ESTAT, 0);
    Saved {
        configuration,
        value,
        status,
    }
}

/// Puts it back, in the order of KVM: TCFG = 0, ESTAT, TCFG, TVAL.
fn restore(saved: &Saved) {
    gcsrwr!(TCFG, 0);
    gcsrwr!(ESTAT, saved.status);
    gcsrwr!(TCFG, saved.configuration);
    let fired = saved.configuration & PERIODIC == 0 && saved.value > saved.configuration;
    if !fired {
        gcsrwr!(TVAL, saved.value);
        return;
    }
    gcsrwr!(TVAL, 0);
    if saved.status & TI == 0 {
        GUEST.wait();
        gcsrwr!(TICLR, 1);
    }
}

/// A timer with this many ticks left, taken out and put back; `None` if it
/// fired before it was out.
fn out_and_in(remaining: u64) -> Option<Outcome> {
    GUEST.reset();
    start(remaining);
    let saved = save();
    if saved.value == FIRED {
        return None;
    }
    delay(3000);
    let while_out = GUEST.pending();
    let begin = counter();
    restore(&saved);
    let fired = GUEST.wait();
    let elapsed = counter() - begin;
    GUEST.reset();
    Some(went_on(&saved, while_out, fired, elapsed))
}

fn went_on(saved: &Saved, while_out: bool, fired: bool, elapsed: u64) -> Outcome {
    ensure!(!while_out, "it fired while it was out");
    ensure!(fired, "no interrupt");
    let value = saved.value;
    ensure!(elapsed + SLACK >= value, "after {elapsed} of {value}");
    ensure!(elapsed < 3 * LONG, "after its whole value");
    Ok(())
}

/// A running timer goes on where it was.
fn restore_running(_: &mut Cpu) -> Outcome {
    // A busy machine may take any time between two instructions.
    let mut attempts = (0..10).map(|n| 2000 << n);
    let outcome = attempts.find_map(out_and_in);
    outcome.unwrap_or_else(|| Err(crate::check::fail(format_args!("it always fired first"))))
}

/// A one-shot that had fired, its interrupt pending: one interrupt afterwards.
fn restore_pending(_: &mut Cpu) -> Outcome {
    GUEST.reset();
    start(1000);
    let fired = GUEST.wait();
    restore(&save());
    let pending = GUEST.pending();
    gcsrwr!(TICLR, 1);
    delay(3000);
    let (again, value) = (GUEST.pending(), gcsrrd!(TVAL));
    GUEST.reset();
    ensure!(fired && pending, "the interrupt was lost");
    ensure!(!again, "a second interrupt");
    ensure_eq!(value, FIRED, "TVAL");
    Ok(())
}

/// One that had fired and was acknowledged: none.
fn restore_acknowledged(_: &mut Cpu) -> Outcome {
    GUEST.reset();
    start(1000);
    let fired = GUEST.wait();
    gcsrwr!(TICLR, 1);
    restore(&save());
    let at_once = GUEST.pending();
    delay(3000);
    let (later, value) = (GUEST.pending(), gcsrrd!(TVAL));
    GUEST.reset();
    ensure!(fired, "no interrupt in the first place");
    ensure!(!at_once && !later, "an interrupt was invented");
    ensure_eq!(value, FIRED, "TVAL");
    Ok(())
}

/// Starts a one-shot with this many ticks left.
fn start(remaining: u64) {
    gcsrwr!(TCFG, (4 * LONG) | EN);
    gcsrwr!(TVAL, remaining);
}

/// Whether the interrupt is there; takes it.
fn take() -> u64 {
    let pending = GUEST.pending();
    if pending {
        gcsrwr!(TICLR, 1);
    }
    u64::from(pending)
}

/// One-shots of random length, taken out and put back at random moments: each
/// gives exactly one interrupt.
fn restore_random(cpu: &mut Cpu) -> Outcome {
    for round in 0..40 {
        GUEST.reset();
        start(400 + cpu.rng.below(16000));
        let mut interrupts = 0;
        for _ in 0..cpu.rng.below(4) {
            delay(cpu.rng.below(3000));
            if cpu.rng.below(2) == 0 {
                interrupts += take();
            }
            restore(&save());
        }
        if interrupts == 0 {
            GUEST.wait();
            interrupts += take();
        }
        delay(500);
        interrupts += take();
        ensure_eq!(interrupts, 1u64, "interrupts in round {round}");
    }
    GUEST.reset();
    Ok(())
}
