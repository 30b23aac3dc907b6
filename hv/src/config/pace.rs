//! How soon a VM that ended may start anew.
//!
//! Threat: a guest that ends as soon as it has started would keep its CPU at
//! making VMs, and the console at saying so. Each short life in a row doubles
//! the time until the next one, up to a second; one that isn't short makes up
//! for all of them. A Linux that reboots as fast as it can isn't held up.

/// A life below this is short, in milliseconds.
const SHORT_MS: u64 = 200;
/// The first wait, and the longest, in milliseconds.
const FIRST_MS: u64 = 10;
const LONGEST_MS: u64 = 1000;

/// How many short lives a VM has had in a row.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pace {
    short: u32,
}

impl Pace {
    /// A life of `ms` milliseconds has ended; how many milliseconds the next
    /// one has to wait.
    #[must_use]
    pub fn after(&mut self, ms: u64) -> u64 {
        if ms >= SHORT_MS {
            self.short = 0;
            return 0;
        }
        let wait = FIRST_MS.checked_shl(self.short).unwrap_or(LONGEST_MS);
        if wait >= LONGEST_MS {
            return LONGEST_MS;
        }
        self.short += 1;
        wait
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_lives_wait_longer_and_longer() {
        let mut pace = Pace::default();
        let waits: Vec<u64> = (0..9).map(|_| pace.after(3)).collect();
        assert_eq!(waits, [10, 20, 40, 80, 160, 320, 640, 1000, 1000]);
        assert_eq!(pace.after(SHORT_MS), 0);
        assert_eq!(pace.after(SHORT_MS - 1), 10);
        (0..1000).for_each(|_| assert!(pace.after(0) <= LONGEST_MS));
    }
}
