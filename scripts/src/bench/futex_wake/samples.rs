//! The times that `perf bench futex wake` prints, and what they come to.
//!
//! perf prints a line for each repeat,
//! `[Run 1]: Wokeup 16 of 16 threads in 0.0570 ms`, and an average, which is left: one
//! tick that falls into one repeat moves an average, but no quartile.

use serde::Serialize;

/// The times in milliseconds of the repeats that woke all of `threads` threads, in
/// the order they were printed.
pub fn times(printed: &str, threads: u32) -> Vec<f64> {
    let woken = format!("{threads} of {threads} threads in");
    printed
        .lines()
        .filter_map(|line| line.trim_start().strip_prefix("[Run "))
        .filter_map(|line| {
            line.split_once("]: Wokeup ")?
                .1
                .strip_prefix(woken.as_str())
        })
        .filter_map(|rest| rest.trim().strip_suffix(" ms")?.trim().parse().ok())
        .collect()
}

/// Minimum, quartiles and maximum of some figures.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Summary {
    /// How many figures there are.
    pub count: usize,
    /// The smallest.
    pub minimum: f64,
    /// A quarter is at most this.
    pub lower_quartile: f64,
    /// Half is at most this.
    pub median: f64,
    /// Three quarters are at most this.
    pub upper_quartile: f64,
    /// The largest.
    pub maximum: f64,
}

impl Summary {
    /// Of `figures`, none of which is NaN; `None` where there are none.
    pub fn of(figures: &[f64]) -> Option<Self> {
        let mut sorted = figures.to_vec();
        sorted.sort_by(f64::total_cmp);
        // The nearest rank: always a figure that was measured.
        let at = |quarter: usize| {
            let rank = (sorted.len() * quarter).div_ceil(4).max(1);
            sorted.get(rank - 1).copied()
        };
        Some(Self {
            count: sorted.len(),
            minimum: at(0)?,
            lower_quartile: at(1)?,
            median: at(2)?,
            upper_quartile: at(3)?,
            maximum: at(4)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_wakes_count() {
        let printed = "\
# Running 'futex/wake' benchmark:\n\
Run summary [PID 9]: blocking on 16 threads (at [private] futex 0x1), waking up 1 at a time.\n\
\n\
[Run 1]: Wokeup 16 of 16 threads in 0.0570 ms\r\n\
guest [Run 2]: Wokeup 16 of 16 threads in 0.1 ms\n\
[Run 3]: Wokeup 15 of 16 threads in 0.0100 ms\n\
[Run 4]: Wokeup 16 of 16 threads in 1.5000 ms\n\
Wokeup 16 of 16 threads in 0.7 ms (+-20.87%)\n";
        assert_eq!(times(printed, 16), [0.057, 1.5]);
        assert!(times(printed, 8).is_empty());
    }

    #[test]
    fn quartiles_are_figures_that_were_measured() {
        let summary = Summary::of(&[4.0, 1.0, 3.0, 2.0]).unwrap();
        assert_eq!(
            (summary.minimum, summary.lower_quartile, summary.median),
            (1.0, 1.0, 2.0)
        );
        assert_eq!((summary.upper_quartile, summary.maximum), (3.0, 4.0));
        let one = Summary::of(&[7.0]).unwrap();
        assert_eq!((one.minimum, one.median, one.maximum), (7.0, 7.0, 7.0));
        assert_eq!(Summary::of(&[]), None);
    }
}
