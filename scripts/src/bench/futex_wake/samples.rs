//! Minimum, quartiles and maximum.
//!
//! No average: one tick that falls into one repeat moves an average, but no quartile.

use serde::{Deserialize, Serialize};

/// Minimum, quartiles and maximum of some figures.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
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
