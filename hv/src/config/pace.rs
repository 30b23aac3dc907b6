//! How soon a VM that ended may start anew.
//!
//! Threat: a guest that ends as soon as it has started would keep its CPU at
//! making VMs, and the console at saying so. Each short life in a row doubles
//! the time until the next one, up to what the configuration says; one that
//! isn't short makes up for all of them. A Linux that reboots as fast as it can isn't held up.

/// A life below this is short, in milliseconds.
const SHORT_MS: u64 = 200;
/// The first wait, in milliseconds.
const FIRST_MS: u64 = 10;

/// How many short lives a VM has had in a row.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pace {
    short: u32,
}

impl Pace {
    /// A life of `ms` milliseconds has ended; how many milliseconds the next
    /// one has to wait, `longest` at most.
    #[must_use]
    pub fn after(&mut self, ms: u64, longest: u64) -> u64 {
        if ms >= SHORT_MS {
            self.short = 0;
            return 0;
        }
        let wait = FIRST_MS << self.short;
        if wait < longest {
            self.short += 1;
        }
        wait.min(longest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::MAX_RESTART_WAIT;

    #[test]
    fn short_lives_wait_longer_and_longer() {
        let mut pace = Pace::default();
        let waits: Vec<u64> = (0..9).map(|_| pace.after(3, 1000)).collect();
        assert_eq!(waits, [10, 20, 40, 80, 160, 320, 640, 1000, 1000]);
        assert_eq!(pace.after(SHORT_MS, 1000), 0);
        assert_eq!(pace.after(SHORT_MS - 1, 1000), 10);
    }

    #[test]
    fn no_wait_is_longer_than_the_longest() {
        for longest in [0, 5, 10, 11, MAX_RESTART_WAIT] {
            let mut pace = Pace::default();
            let waits: Vec<u64> = (0..1000).map(|_| pace.after(0, longest)).collect();
            assert!(waits.is_sorted(), "{waits:?}");
            assert_eq!(waits.last(), Some(&longest));
        }
    }
}
