//! Part `host`: everything that is tested without a LoongArch machine.
//!
//! Formatting and lints of the whole workspace, and the tests of every crate that runs
//! on the host, each crate counted on its own.

use std::process::Command;

use anyhow::{Context as _, Result};
use serde_json::Value;

use super::{Options, Part, Tally, names};
use crate::context::Context;
use crate::process::{self, Log, tail};
use crate::setup::target::TARGET;

/// The part `host`.
pub struct Host;

/// A step of this part.
type Step = fn(&Work<'_>, &mut Tally) -> Result<()>;

/// The steps, by the names that `--only` knows.
const STEPS: [(&str, Step); 3] = [
    ("lints", |work, tally| {
        work.lints(tally);
        Ok(())
    }),
    ("tests", |work, tally| work.tests(tally)),
    ("loom", |work, tally| {
        work.loom(tally);
        Ok(())
    }),
];

/// Crates that only run on the bare machine. Every other one must have tests.
const BARE_ONLY: [&str; 3] = ["lvz-suite", "test-guests", "wake"];

/// Crates with models for loom, where in the crate those are, and whether all their
/// interleavings take minutes.
const UNDER_LOOM: [(&str, &str, bool); 2] = [
    ("hv", "--release --test loom", true),
    ("guest-pv", "--lib --test loom", false),
];

/// How much of a failed test's output is shown, in lines.
const SHOWN: usize = 40;

impl Part for Host {
    fn name(&self) -> &'static str {
        "host"
    }

    fn about(&self) -> &'static str {
        "formatting, lints, and the tests that run on the host"
    }

    fn steps(&self) -> Vec<&'static str> {
        names(&STEPS)
    }

    fn needs(&self) -> Vec<&'static str> {
        vec!["packages", "target"]
    }

    fn run(&self, cx: &Context, options: &Options, tally: &mut Tally) -> Result<()> {
        let log = Log::create(cx.cache.log("test-host"))?;
        let work = Work { cx, log, options };
        options.run_steps(&STEPS, |step| step(&work, tally))
    }
}

/// What the steps work with.
struct Work<'a> {
    cx: &'a Context,
    log: Log,
    options: &'a Options,
}

impl Work<'_> {
    /// cargo with the arguments `words`.
    fn cargo(&self, words: &str) -> Command {
        let mut cargo = process::command("cargo");
        cargo.args(words.split(' ')).current_dir(self.cx.repo(""));
        cargo
    }

    fn lints(&self, tally: &mut Tally) {
        let lint = |what: &str| self.cargo(&format!("clippy {what} -- -D warnings"));
        let bare = format!("--workspace --exclude xtask --target {TARGET}");
        let format = self.cargo("fmt --all --check");
        check(&self.log, tally, "formatting", format);
        let host = lint("--workspace --all-targets");
        check(&self.log, tally, "lints for the host", host);
        check(&self.log, tally, "lints for the bare machine", lint(&bare));
        for (whose, what) in [("bare machine", bare.as_str()), ("host", "--package xtask")] {
            let private = "--no-deps --document-private-items";
            let mut docs = self.cargo(&format!("doc {private} {what}"));
            docs.env("RUSTDOCFLAGS", "-D warnings");
            let name = format!("documentation for the {whose}");
            check(&self.log, tally, &name, docs);
        }
    }

    fn tests(&self, tally: &mut Tally) -> Result<()> {
        let metadata = process::output(&mut self.cargo("metadata --no-deps --format-version 1"))?;
        for name in crates(&metadata)? {
            let test = format!("test --package {name} --profile {}", profile(&name));
            tests(&self.log, tally, &name, self.cargo(&test));
        }
        Ok(())
    }

    fn loom(&self, tally: &mut Tally) {
        for (name, what, slow) in UNDER_LOOM {
            let mut loom = self.cargo(&format!("test --package {name} {what}"));
            loom.env("RUSTFLAGS", "--cfg loom");
            if slow && !self.options.long {
                // Interleavings with more forced switches than this are the long form's.
                loom.env("LOOM_MAX_PREEMPTIONS", "3");
            }
            tests(&self.log, tally, &format!("{name} under loom"), loom);
        }
    }
}

/// The names of the workspace's crates with tests for the host, by cargo's metadata.
fn crates(metadata: &str) -> Result<Vec<String>> {
    let metadata: Value = serde_json::from_str(metadata)?;
    let packages = metadata["packages"]
        .as_array()
        .context("cargo names no packages")?;
    let names = packages
        .iter()
        .filter_map(|package| package["name"].as_str());
    Ok(names
        .filter(|name| !BARE_ONLY.contains(name))
        .map(str::to_owned)
        .collect())
}

/// The profile to test a crate in: the host tool's dependencies are built already.
fn profile(name: &str) -> &'static str {
    if name == "xtask" { "tool" } else { "dev" }
}

/// Counts `command` as one check.
fn check(log: &Log, tally: &mut Tally, name: &str, mut command: Command) {
    tally.check(name, log.run(&mut command, |_| ()));
}

/// Runs `command`, a `cargo test` of the crate `name`, and counts its tests.
fn tests(log: &Log, tally: &mut Tally, name: &str, mut command: Command) {
    let mut output = Vec::new();
    let ran = log.run(&mut command, |line| output.push(line.to_owned()));
    let found = Found::parse(&output);
    for failure in &found.failures {
        println!("FAIL {name}: {failure}");
    }
    println!("{name}: {} passed, {} failed", found.passed, found.failed);
    tally.add(found.passed, found.failed);
    if let (Err(error), 0) = (&ran, found.failed) {
        tally.fail(name, &crate::hint::report(error));
    } else if found.failed > 0 {
        println!("{}", tail(&output.join("\n"), SHOWN));
    } else if found.passed == 0 {
        tally.fail(name, "no test ran");
    }
}

/// What the output of `cargo test` says.
#[derive(Debug, Default, PartialEq, Eq)]
struct Found {
    passed: u64,
    failed: u64,
    failures: Vec<String>,
}

impl Found {
    /// Adds up the result lines of all test programs, and gathers the names of the tests
    /// that failed.
    fn parse(lines: &[String]) -> Self {
        let mut found = Self::default();
        for line in lines {
            if let Some((passed, failed)) = result_line(line) {
                found.passed += passed;
                found.failed += failed;
            }
            let failure = line
                .strip_prefix("test ")
                .and_then(|rest| rest.strip_suffix(" ... FAILED"));
            found.failures.extend(failure.map(str::to_owned));
        }
        found
    }
}

/// Passed and failed of a line `test result: ok. 44 passed; 0 failed; …`.
fn result_line(line: &str) -> Option<(u64, u64)> {
    let counts = line.strip_prefix("test result: ")?.split_once(". ")?.1;
    let count = |word: &str| {
        let part = counts
            .split(';')
            .find_map(|part| part.trim().strip_suffix(word))?;
        part.trim().parse().ok()
    };
    Some((count("passed")?, count("failed")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Found {
        Found::parse(&text.lines().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn all_test_programs_of_a_crate_are_added_up() {
        let found = parse(
            "running 2 tests\ntest a::b ... ok\ntest a::c ... FAILED\n\n\
             test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.01s\n\
             test result: ok. 7 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s\n",
        );
        assert_eq!(
            found,
            Found {
                passed: 8,
                failed: 1,
                failures: vec!["a::c".to_owned()]
            }
        );
    }

    #[test]
    fn every_crate_but_the_bare_ones_is_tested() {
        let metadata =
            r#"{"packages": [{"name": "hv"}, {"name": "lvz-suite"}, {"name": "xtask"}]}"#;
        assert_eq!(crates(metadata).unwrap(), ["hv", "xtask"]);
        assert!(crates("{}").is_err());
    }

    #[test]
    fn other_output_counts_nothing() {
        assert_eq!(
            parse("error: could not compile `hv`\ntest result: unknown\n"),
            Found::default()
        );
    }

    #[test]
    fn a_run_without_tests_fails() {
        let folder = tempfile::tempdir().unwrap();
        let log = Log::create(folder.path().join("log")).unwrap();
        let mut tally = Tally::new("none");
        let mut echo = process::command("echo");
        echo.arg("test result: ok. 0 passed; 0 failed; 0 ignored");
        tests(&log, &mut tally, "empty", echo);
        assert_eq!(tally.closing_line(), "none: 0 passed, 1 failed");
        tests(&log, &mut tally, "broken", process::command("false"));
        assert_eq!(tally.closing_line(), "none: 0 passed, 2 failed");
    }
}
