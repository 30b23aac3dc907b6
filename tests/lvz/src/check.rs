//! What a check is, how it fails, and how checks are run.
//!
//! A check is a function that returns `Err` after writing down why; the
//! machine is then as it was before (each check restores what it changed).
//! The scope says on which CPUs it runs.

use crate::machine::cmdline::Options;
use crate::machine::rng::Rng;
use crate::machine::{MAX_CPUS, smp};
use crate::println;
use core::cell::UnsafeCell;
use core::fmt::{self, Write};
use core::sync::atomic::{AtomicUsize, Ordering};

/// The check failed; the reason is on the CPU's desk, see [`failure`].
#[derive(Debug)]
pub struct Failed;

/// How a check ends.
pub type Outcome = Result<(), Failed>;

/// A check's function, and any other work for one CPU.
pub type Task = fn(&mut Cpu) -> Outcome;

/// On which CPUs a check runs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// On CPU 0 only, while the others sleep.
    Boot,
    /// On every CPU at the same time; it passes if it passes on all.
    Every,
    /// On CPU 0, which gives work to others; there must be two at least.
    Several,
}

/// A check.
pub struct Check {
    /// Group and name, with a dot between; one word.
    pub name: &'static str,
    /// On which CPUs.
    pub scope: Scope,
    /// What to run.
    pub run: Task,
}

impl Check {
    /// A check for CPU 0 alone.
    pub const fn boot(name: &'static str, run: Task) -> Check {
        let scope = Scope::Boot;
        Check { name, scope, run }
    }

    /// A check for every CPU at once.
    pub const fn every(name: &'static str, run: Task) -> Check {
        let scope = Scope::Every;
        Check { name, scope, run }
    }

    /// A check that takes at least two CPUs.
    pub const fn several(name: &'static str, run: Task) -> Check {
        let scope = Scope::Several;
        Check { name, scope, run }
    }

    /// Whether it can be run on this many CPUs.
    pub fn fits(&self, cpus: usize) -> bool {
        self.scope != Scope::Several || cpus >= 2
    }
}

/// The CPU that a check runs on.
pub struct Cpu {
    /// Its index, which is its physical id.
    pub index: usize,
    /// Randomness of its own.
    pub rng: Rng,
}

impl Cpu {
    /// The CPU with this index, before its first task.
    pub fn new(index: usize) -> Cpu {
        let rng = Rng::new(0, index as u64);
        Cpu { index, rng }
    }

    /// Runs a task with a fresh random stream, so that each check can be
    /// repeated alone.
    pub fn run(&mut self, task: Task) -> Outcome {
        self.rng = Rng::new(SEED.load(Ordering::Relaxed) as u64, self.index as u64);
        task(self)
    }
}

/// The seed of all streams.
static SEED: AtomicUsize = AtomicUsize::new(0);

/// Longest reason, in bytes; the rest is cut off.
const REASON: usize = 240;

/// Text of a limited length.
pub struct Text {
    bytes: [u8; REASON],
    used: usize,
}

impl Write for Text {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let free = &mut self.bytes[self.used..];
        let take = text.len().min(free.len());
        free[..take].copy_from_slice(&text.as_bytes()[..take]);
        self.used += take;
        Ok(())
    }
}

struct Desk(UnsafeCell<Text>);

// SAFETY: a CPU writes its own desk in its own task; CPU 0 reads it only
// after `smp::join` saw that task's end (acquire after release).
unsafe impl Sync for Desk {}

static DESKS: [Desk; MAX_CPUS] = [const {
    Desk(UnsafeCell::new(Text {
        bytes: [0; REASON],
        used: 0,
    }))
}; MAX_CPUS];

/// Writes down why this CPU's check failed.
pub fn fail(reason: fmt::Arguments<'_>) -> Failed {
    // SAFETY: this CPU's own desk, see `Sync` above; nothing else of this
    // CPU holds a reference to it.
    let text = unsafe { &mut *DESKS[smp::this_cpu()].0.get() };
    text.used = 0;
    // Writing into `Text` never fails.
    let _ = text.write_fmt(reason);
    Failed
}

/// Adds to what this CPU's failed check has written down.
pub fn add(more: fmt::Arguments<'_>) -> Failed {
    // SAFETY: as in `fail`.
    let text = unsafe { &mut *DESKS[smp::this_cpu()].0.get() };
    let _ = text.write_fmt(more);
    Failed
}

/// Why the last check on `cpu` failed. Only after that check has ended.
pub fn failure(cpu: usize) -> &'static str {
    // SAFETY: the task on `cpu` has ended, see `Sync` above.
    let text = unsafe { &*DESKS[cpu].0.get() };
    core::str::from_utf8(&text.bytes[..text.used]).unwrap_or("?")
}

/// Fails the check unless the condition holds.
#[macro_export]
macro_rules! ensure {
    ($condition:expr, $($arg:tt)+) => {
        if !$condition {
            return Err($crate::check::fail(format_args!($($arg)+)));
        }
    };
}

/// Fails the check unless both values are equal; prints them in hexadecimal.
#[macro_export]
macro_rules! ensure_eq {
    ($got:expr, $want:expr, $($arg:tt)+) => {{
        let (got, want) = (u64::from($got), u64::from($want));
        if got != want {
            return Err($crate::check::fail(format_args!(
                "{}: got {:#x}, expected {:#x}",
                format_args!($($arg)+), got, want
            )));
        }
    }};
}

/// Runs one check; on failure returns the CPU whose reason counts.
fn run(check: &Check, cpu: &mut Cpu, cpus: usize) -> Result<(), usize> {
    let others = match check.scope {
        Scope::Every => 1..cpus,
        Scope::Boot | Scope::Several => 0..0,
    };
    for other in others.clone() {
        smp::give(other, check.run);
    }
    let mut result = cpu.run(check.run).map_err(|Failed| 0);
    for other in others {
        if smp::join(other).is_err() && result.is_ok() {
            result = Err(other);
        }
    }
    result
}

/// Runs all checks that fit, prints a line for each and a line of totals.
pub fn run_all(checks: impl Iterator<Item = &'static Check>, cpus: usize, options: &Options) {
    SEED.store(options.seed as usize, Ordering::Relaxed);
    let mut cpu = Cpu::new(0);
    let (mut passed, mut failed) = (0, 0);
    for check in checks.filter(|c| c.fits(cpus) && c.name.contains(options.only)) {
        if options.verbose {
            println!("RUN {}", check.name);
        }
        match run(check, &mut cpu, cpus) {
            Ok(()) => {
                passed += 1;
                println!("PASS {}", check.name);
            }
            Err(at) => {
                failed += 1;
                println!("FAIL {}: cpu {at}: {}", check.name, failure(at));
            }
        }
    }
    println!("lvz: {passed} passed, {failed} failed");
}
