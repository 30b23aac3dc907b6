//! What the guest's part of the measurement prints: a line of JSON.
//!
//! tests/linux/futex-wake.sh prints the same line on a board.

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;

/// Its name in the line.
const BENCHMARK: &str = "futex-wake";

/// The figures of one run.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct GuestPart {
    benchmark: String,
    /// CPUs that the kernel has.
    pub cpus: u32,
    /// Threads that are woken.
    pub threads: u32,
    /// The kernel's version.
    pub kernel: String,
    /// perf's.
    pub perf: String,
    /// Milliseconds of each of perf's repeats that woke all threads.
    pub perf_ms: Vec<f64>,
    /// Nanoseconds in which tests/wake woke all threads, by round.
    pub rounds_ns: Vec<u64>,
    /// Nanoseconds until it was woken in turn by the last of them.
    pub answered_ns: Vec<u64>,
    /// Interrupts by which the kernel's CPUs woke each other.
    pub ipis: Interrupts,
    /// Those of its timers.
    pub ticks: Interrupts,
}

/// Interrupts that the kernel counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub struct Interrupts {
    /// While tests/wake woke threads.
    pub wake: Option<u64>,
    /// While it did all the rest.
    pub rest: Option<u64>,
}

impl GuestPart {
    /// The line among `printed`, whose threads are one to a CPU.
    ///
    /// # Errors
    /// There is none, or it has no figures.
    pub fn read(printed: &str) -> Result<Self> {
        let parts = printed
            .lines()
            .filter_map(|line| serde_json::from_str::<Self>(line.trim()).ok());
        let part = parts
            .rev()
            .find(|part| part.benchmark == BENCHMARK)
            .context("no line of JSON was printed")?;
        ensure!(
            part.threads > 0 && !part.perf_ms.is_empty(),
            "no wake was measured"
        );
        ensure!(
            part.rounds_ns.len() == part.answered_ns.len(),
            "rounds without an answer"
        );
        Ok(part)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = "{\"benchmark\":\"futex-wake\",\"cpus\":16,\"threads\":16, \
        \"kernel\":\"7.2.12\",\"perf\":\"7.2\", \"perf_ms\":[0.0220,0.0570],\"rounds_ns\":[21000], \
        \"answered_ns\":[60000], \"ipis\":{\"wake\":1020,\"rest\":null}, \"ticks\":{\"wake\":7,\"rest\":3}}";

    #[test]
    fn the_line_is_found_among_others() {
        let part =
            GuestPart::read(&format!("[    1.0] hello\n{{\"a\":1}}\n{LINE}\r\nend\n")).unwrap();
        assert_eq!((part.cpus, part.threads), (16, 16));
        assert_eq!(part.perf_ms, [0.022, 0.057]);
        assert_eq!(part.ipis.wake, Some(1020));
        assert_eq!(part.ipis.rest, None);
        assert_eq!(part.ticks.rest, Some(3));
    }

    #[test]
    fn what_measured_nothing_is_refused() {
        assert!(GuestPart::read("").is_err());
        assert!(GuestPart::read(&LINE.replace("0.0220,0.0570", "")).is_err());
        assert!(GuestPart::read(&LINE.replace("[60000]", "[]")).is_err());
        assert!(GuestPart::read(&LINE.replace("futex-wake", "other")).is_err());
    }
}
