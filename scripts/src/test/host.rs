//! Part `host`: everything that is tested without a LoongArch machine.
//!
//! Formatting and lints of the whole workspace, and the tests of every crate that runs
//! on the host, each crate counted on its own.

use std::process::Command;

use anyhow::Result;

use super::{Options, Part, Tally};
use crate::context::Context;
use crate::process::{self, Log, tail};
use crate::setup::target::TARGET;

/// The part `host`.
pub struct Host;

/// Crates with tests that run on the host.
const CRATES: [&str; 3] = ["xtask", "hv", "guest-pv"];

/// How much of a failed test's output is shown, in lines.
const SHOWN: usize = 40;

impl Part for Host {
    fn name(&self) -> &'static str {
        "host"
    }

    fn about(&self) -> &'static str {
        "formatting, lints, and the tests that run on the host"
    }

    fn needs(&self) -> Vec<&'static str> {
        vec!["packages", "target"]
    }

    fn run(&self, cx: &Context, options: &Options, tally: &mut Tally) -> Result<()> {
        let log = Log::create(cx.cache.log("test-host"))?;
        let cargo = |args: &[&str]| {
            let mut cargo = process::command("cargo");
            cargo.args(args).current_dir(cx.repo(""));
            cargo
        };
        let lints = ["--", "-D", "warnings"];
        let host = [&["clippy", "--workspace", "--all-targets"], &lints[..]].concat();
        let bare = [
            "clippy",
            "--workspace",
            "--exclude",
            "xtask",
            "--target",
            TARGET,
        ];
        check(
            &log,
            tally,
            "formatting",
            cargo(&["fmt", "--all", "--check"]),
        );
        check(&log, tally, "lints for the host", cargo(&host));
        check(
            &log,
            tally,
            "lints for the bare machine",
            cargo(&[&bare, &lints[..]].concat()),
        );
        for name in CRATES {
            tests(
                &log,
                tally,
                name,
                cargo(&["test", "--package", name, "--profile", profile(name)]),
            );
        }
        let mut loom = cargo(&["test", "--package", "hv", "--release", "--test", "loom"]);
        loom.env("RUSTFLAGS", "--cfg loom");
        if !options.long {
            // Interleavings with more forced switches than this are the long form's.
            loom.env("LOOM_MAX_PREEMPTIONS", "3");
        }
        tests(&log, tally, "hv under loom", loom);
        Ok(())
    }
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
