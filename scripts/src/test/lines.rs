//! The lines a bare-metal test program prints: `PASS name`, `FAIL name: why`, and at the
//! end `part: n passed, n failed`.
//!
//! A program that stops half-way prints no failure, so a transcript only counts as
//! passed if its closing line is there, agrees with what stands before it, and every
//! check that the program has declared stands there exactly once.

use std::collections::BTreeMap;

/// The checks of one run.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Transcript {
    /// Every check with its outcome, in the order of the lines: why it failed, or none.
    pub checks: Vec<(String, Option<String>)>,
    /// What is wrong with the run as a whole; empty if nothing is.
    pub faults: Vec<String>,
}

impl Transcript {
    /// Reads all that a run of `part` printed. `declared` names the checks that must
    /// have run.
    pub fn parse(part: &str, text: &str, declared: &[String]) -> Self {
        let mut transcript = Self::default();
        let mut closing = None;
        for line in text.lines().map(str::trim_end) {
            if let Some(name) = line.strip_prefix("PASS ") {
                transcript.checks.push((name.to_owned(), None));
            } else if let Some(rest) = line.strip_prefix("FAIL ") {
                let (name, why) = rest
                    .split_once(": ")
                    .unwrap_or((rest, "it doesn't say why"));
                transcript
                    .checks
                    .push((name.to_owned(), Some(why.to_owned())));
            } else if let Some(counts) = closing_line(part, line) {
                closing = Some(counts);
            }
        }
        transcript.find_faults(closing, declared);
        transcript
    }

    /// How many checks passed and failed.
    pub fn counts(&self) -> (u64, u64) {
        let failed = self.checks.iter().filter(|(_, why)| why.is_some()).count() as u64;
        (self.checks.len() as u64 - failed, failed)
    }

    fn find_faults(&mut self, closing: Option<(u64, u64)>, declared: &[String]) {
        match closing {
            None => self.faults.push("the run has no closing line".to_owned()),
            Some(counts) if counts != self.counts() => {
                let (passed, failed) = counts;
                self.faults.push(format!(
                    "the closing line says {passed} passed, {failed} failed, the lines don't"
                ));
            }
            Some(_) => (),
        }
        let mut times: BTreeMap<&str, u32> = BTreeMap::new();
        self.checks
            .iter()
            .for_each(|(name, _)| *times.entry(name).or_default() += 1);
        let missing = declared
            .iter()
            .filter(|name| !times.contains_key(name.as_str()));
        self.faults
            .extend(missing.map(|name| format!("the check {name} did not run")));
        let repeated = times.iter().filter(|(_, times)| **times > 1);
        self.faults
            .extend(repeated.map(|(name, times)| format!("the check {name} ran {times} times")));
    }
}

/// The counts of the line `part: n passed, n failed`.
fn closing_line(part: &str, line: &str) -> Option<(u64, u64)> {
    let counts = line.strip_prefix(part)?.strip_prefix(": ")?;
    let (passed, failed) = counts.strip_suffix(" failed")?.split_once(" passed, ")?;
    Some((passed.parse().ok()?, failed.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(text: &str, declared: &[&str]) -> Vec<String> {
        let declared: Vec<String> = declared.iter().map(|name| (*name).to_owned()).collect();
        Transcript::parse("lvz", text, &declared).faults
    }

    const GOOD: &str =
        "boot\r\nPASS a.one\r\nFAIL a.two: got 1: expected 2\r\nlvz: 1 passed, 1 failed\r\n";

    #[test]
    fn a_complete_run_has_its_checks_and_no_fault() {
        let transcript = Transcript::parse("lvz", GOOD, &["a.one".to_owned(), "a.two".to_owned()]);
        let why = Some("got 1: expected 2".to_owned());
        assert_eq!(
            transcript.checks,
            [("a.one".to_owned(), None), ("a.two".to_owned(), why)]
        );
        assert_eq!((transcript.counts(), transcript.faults.len()), ((1, 1), 0));
    }

    #[test]
    fn a_run_that_stops_half_way_is_at_fault() {
        assert_eq!(faults("PASS a\n", &["a"]), ["the run has no closing line"]);
        assert_eq!(faults("", &[]), ["the run has no closing line"]);
        assert_eq!(
            faults("PASS a\nother: 1 passed, 0 failed\n", &["a"]),
            ["the run has no closing line"]
        );
    }

    #[test]
    fn missing_and_repeated_checks_are_faults() {
        assert_eq!(
            faults("PASS a\nlvz: 1 passed, 0 failed\n", &["a", "b"]),
            ["the check b did not run"]
        );
        assert_eq!(
            faults("PASS a\nPASS a\nlvz: 2 passed, 0 failed\n", &["a"]),
            ["the check a ran 2 times"]
        );
    }

    #[test]
    fn a_closing_line_must_agree() {
        let text = "PASS a\nlvz: 2 passed, 0 failed\n";
        assert_eq!(
            faults(text, &["a"]),
            ["the closing line says 2 passed, 0 failed, the lines don't"]
        );
    }
}
