//! Counting checks.

use std::time::Instant;

use crate::progress::seconds;

/// The checks of one part so far.
#[derive(Debug)]
pub struct Tally {
    name: String,
    passed: u64,
    failed: u64,
    started: Instant,
}

impl Tally {
    /// An empty tally of the part `name`; says that it starts.
    pub fn new(name: &str) -> Self {
        println!("== {name}");
        Self {
            name: name.to_owned(),
            passed: 0,
            failed: 0,
            started: Instant::now(),
        }
    }

    /// Counts and prints a check that passed.
    pub fn pass(&mut self, check: &str) {
        self.passed += 1;
        println!("PASS {check}");
    }

    /// Counts and prints a check that failed; `why` may have several lines.
    pub fn fail(&mut self, check: &str, why: &str) {
        self.failed += 1;
        println!("FAIL {check}: {}", why.trim_end());
    }

    /// Counts a check by its result: an error's text is why it failed.
    pub fn check(&mut self, check: &str, result: anyhow::Result<()>) {
        match result {
            Ok(()) => self.pass(check),
            Err(error) => self.fail(check, &crate::hint::report(&error)),
        }
    }

    /// Counts checks that another program has made and printed.
    pub fn add(&mut self, passed: u64, failed: u64) {
        self.passed += passed;
        self.failed += failed;
    }

    /// Whether nothing has been counted.
    pub fn is_empty(&self) -> bool {
        self.passed + self.failed == 0
    }

    /// Prints the part's closing line, `NAME: n passed, n failed`.
    pub fn close(&self) {
        eprintln!("{} took {}", self.name, seconds(self.started.elapsed()));
        println!("{}", self.closing_line());
    }

    /// `NAME: n passed, n failed`.
    pub fn closing_line(&self) -> String {
        format!(
            "{}: {} passed, {} failed",
            self.name, self.passed, self.failed
        )
    }
}

/// Prints the sum of all `tallies`, the last line alone as `N passed, N failed`, and
/// returns whether there was a check and none failed.
pub fn summarize(tallies: &[Tally]) -> bool {
    println!("== summary");
    tallies
        .iter()
        .for_each(|tally| println!("{}", tally.closing_line()));
    let (passed, failed) = sum(tallies);
    println!("{passed} passed, {failed} failed");
    passed > 0 && failed == 0
}

/// The sums of passed and failed checks.
fn sum(tallies: &[Tally]) -> (u64, u64) {
    tallies.iter().fold((0, 0), |(passed, failed), tally| {
        (passed + tally.passed, failed + tally.failed)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checks_are_counted_and_summed() {
        let mut one = Tally::new("one");
        assert!(one.is_empty());
        one.pass("a");
        one.check("b", Ok(()));
        one.check("c", Err(anyhow::Error::msg("broken")));
        assert_eq!(one.closing_line(), "one: 2 passed, 1 failed");
        let mut two = Tally::new("two");
        two.add(5, 0);
        assert_eq!(sum(&[one, two]), (7, 1));
    }

    #[test]
    fn nothing_tested_is_not_a_success() {
        assert!(!summarize(&[Tally::new("empty")]));
        let mut good = Tally::new("good");
        good.pass("a");
        assert!(summarize(&[good]));
        let mut bad = Tally::new("bad");
        bad.add(3, 1);
        assert!(!summarize(&[bad]));
    }
}
