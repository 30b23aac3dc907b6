//! What exits cost, as the guest sees it: batches of equal exits between two
//! readings of the counter.
//!
//! Under a clock that counts instructions (QEMU's -icount shift=0) a
//! nanosecond is an instruction, and what is printed is instructions of the
//! round trip, the guest's own instruction included. The clock counts the
//! instructions of all CPUs.

mod counted;
mod doze;
mod send;
mod single;
mod turns;

use crate::println;
use crate::runtime::ticks_per_second;

/// Exits between two readings, and such batches.
const BATCH: u64 = 16;
const BATCHES: usize = 200;

/// Nanoseconds of `samples` (ticks for `exits` exits), the least and the
/// median, each for one exit.
fn nanoseconds(samples: &mut [u64; BATCHES], exits: u64) -> (u64, u64) {
    samples.sort_unstable();
    let each = |sample: u64| sample * (1_000_000_000 / ticks_per_second()) / exits;
    (each(samples[0]), each(samples[BATCHES / 2]))
}

/// Prints a line `BENCH name min=… median=…` in nanoseconds an exit; the
/// median.
fn report(name: &str, samples: &mut [u64; BATCHES], exits: u64) -> u64 {
    let (min, median) = nanoseconds(samples, exits);
    println!("BENCH {name} min={min} median={median}");
    median
}

/// Measures `exit`, which is put in line sixteen times.
macro_rules! measure {
    ($name:literal, $exit:expr) => {{
        let mut samples = [0; $crate::bench::BATCHES];
        for sample in &mut samples {
            let start = $crate::runtime::ticks();
            $exit;
            $exit;
            $exit;
            $exit;
            $exit;
            $exit;
            $exit;
            $exit;
            $exit;
            $exit;
            $exit;
            $exit;
            $exit;
            $exit;
            $exit;
            $exit;
            *sample = $crate::runtime::ticks() - start;
        }
        $crate::bench::report($name, &mut samples, $crate::bench::BATCH)
    }};
}

use measure;

/// Measures the group `what`: of exits that one vCPU makes alone (`single`),
/// of turns that two vCPUs take and a send to one that sleeps (`hop`), of
/// time slices on one CPU (`switch`), of exits that are counted from outside
/// (`awake`, `asleep`, `slices`), or of wakes that are (`doze`).
pub fn run(what: &str) {
    match what {
        "single" => {
            single::run();
            send::to_self();
        }
        "hop" => {
            turns::hop();
            send::pending();
        }
        "switch" => turns::switch(),
        "awake" => counted::awake(),
        "asleep" => counted::asleep(),
        "slices" => counted::slices(),
        "doze" => doze::run(),
        _ => println!("FAIL bench: no group {what}"),
    }
}
