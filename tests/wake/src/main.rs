//! Wakes threads that sleep on a futex, one at a time, again and again.
//!
//! What `perf bench futex wake` times, without what it does around: perf makes its
//! threads anew for each repeat, so whoever counts exits or interrupts from outside
//! counts mostly that. These threads are made once. A round wakes all of them, each
//! bound to a CPU of its own as perf's are, and the last one wakes the first thread.
//!
//! `wake THREADS ROUNDS wake|rest` prints a line for each round, `wake N TIMED WHOLE`:
//! the nanoseconds of the wakes, which perf has too, and those until the answer of the
//! last. With `rest` the same is done but for the wakes: what it costs, a machine costs
//! that wakes nobody. Exits that nobody else takes mark where a round begins and where
//! all are woken. A program without a library, for Linux on LoongArch.
#![cfg_attr(target_os = "none", no_std, no_main)]

#[cfg(not(target_os = "none"))]
fn main() {
    eprintln!("wake runs on Linux for LoongArch only");
}

#[cfg(target_os = "none")]
mod linux;
#[cfg(target_os = "none")]
mod rounds;
