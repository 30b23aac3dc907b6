//! What a check is and how checks are run.

use crate::println;
use core::fmt;

/// How a check ends: why it failed is text.
pub type Outcome = Result<(), Failure>;

/// Two values that differ, or a condition that doesn't hold.
#[derive(Debug)]
pub struct Failure {
    what: &'static str,
    got: u64,
    want: u64,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, got, want } = self;
        write!(f, "{what}: got {got:#x}, expected {want:#x}")
    }
}

/// Fails unless `got` is `want`.
pub fn equal(what: &'static str, got: u64, want: u64) -> Outcome {
    if got == want {
        Ok(())
    } else {
        Err(Failure { what, got, want })
    }
}

/// Fails unless `holds`.
pub fn ensure(what: &'static str, holds: bool) -> Outcome {
    equal(what, holds.into(), 1)
}

/// A check.
pub struct Check {
    /// Group and name.
    pub name: &'static str,
    /// How many vCPUs it takes at least.
    pub cpus: usize,
    /// What to run, on the boot vCPU.
    pub run: fn() -> Outcome,
}

/// Runs the checks whose name contains `only` and that `cpus` are enough
/// for; prints a line each and the totals. How many failed.
pub fn run_all(checks: &[&[Check]], only: &str, cpus: usize) -> u64 {
    let (mut passed, mut failed) = (0, 0);
    let fits = |check: &&Check| check.cpus <= cpus && check.name.contains(only);
    for check in checks.iter().copied().flatten().filter(fits) {
        match (check.run)() {
            Ok(()) => {
                passed += 1;
                println!("PASS {}", check.name);
            }
            Err(why) => {
                failed += 1;
                println!("FAIL {}: {why}", check.name);
            }
        }
    }
    println!("guest: {passed} passed, {failed} failed");
    failed
}
