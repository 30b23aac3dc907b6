//! What each vCPU finds at its first instruction.

use crate::check::{Check, Outcome, equal};
use crate::runtime::{boot, smp};
use core::sync::atomic::{AtomicU64, Ordering};

/// The checks.
pub const CHECKS: [Check; 1] = [Check {
    name: "start.registers",
    cpus: 1,
    run: registers,
}];

/// a0 and a2 of the boot vCPU.
static ARGUMENTS: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

/// Keeps what the boot vCPU got.
pub fn keep(arguments: [u64; 2]) {
    for (place, argument) in ARGUMENTS.iter().zip(arguments) {
        place.store(argument, Ordering::Relaxed);
    }
}

fn registers() -> Outcome {
    let [one, system_table] = &ARGUMENTS;
    equal("a0", one.load(Ordering::Relaxed), 1)?;
    equal(
        "a2: a plain ELF has no table",
        system_table.load(Ordering::Relaxed),
        0,
    )?;
    for index in 0..smp::count() {
        equal("all others", boot::found(index), 0)?;
    }
    Ok(())
}
