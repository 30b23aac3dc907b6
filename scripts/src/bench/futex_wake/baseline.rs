//! What a wake took when the committed baseline was measured.
//!
//! A short measurement of our two columns, one seed, whose figures don't hang on where a
//! tick happens to fall: the lower quartiles of the rounds. They are exact only for the same emulator, kernel and programs; for others
//! the goals hold.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::figures::Figures;
use super::{measure, versions};
use crate::bench::systems::System;
use crate::bench::trace::Exits;
use crate::bench::{Bench, Options};
use crate::cache::write_atomically;
use crate::context::Context;
use crate::run::NEEDS;

/// Where it is, from the repository's root.
const FILE: &str = "tests/wake/baseline.json";

/// The measurement's name: it renews the file.
const NAME: &str = "wake-baseline";

/// Figures of our columns, and what they were measured with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Baseline {
    /// The emulator's version, and the packages'.
    pub versions: Vec<String>,
    columns: BTreeMap<String, Column>,
}

/// Of a round, which wakes all threads and gets an answer.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Column {
    /// Exits of all CPUs, by reason.
    exits: Exits,
    /// Instructions more than on the bare machine until all are woken.
    timed: i64,
    /// Instructions more than on the bare machine until the answer.
    answered: i64,
}

/// What a round may have more without a cause: an instruction a wake, since the counter
/// that the guest reads ticks every ten; and one exit to go idle, since a tick of the timer
/// that falls into another round wakes a CPU once more.
const INSTRUCTIONS: i64 = 17;
const IDLE: i64 = 1;

/// The share of the instructions until the answer that it may have more: which CPU runs
/// beside which, changes with every build, and moved them by a twelfth.
const ANSWER: i64 = 10;

/// How much is measured: little, always the same.
pub fn options() -> Options {
    Options {
        seed: 1,
        seeds: 1,
        repeats: 5,
        rounds: 32,
        systems: vec![System::Paravirtual, System::Native],
        ..Options::default()
    }
}

impl Baseline {
    /// The committed one.
    ///
    /// # Errors
    /// It isn't there, or can't be read.
    pub fn committed(cx: &Context) -> Result<Self> {
        let text = std::fs::read(path(cx));
        let text = text.with_context(|| format!("{FILE} can't be read"))?;
        serde_json::from_slice(&text).with_context(|| format!("{FILE} isn't a baseline"))
    }

    /// Of `figures`, measured with [`options`].
    pub fn of(cx: &Context, figures: &[Figures]) -> Self {
        // Which binary it is, is no part of a version.
        let version = |text: String| text.split(" (").next().unwrap_or_default().to_owned();
        let bare = figures.iter().find(|of| of.system == System::Bare);
        let ours = figures.iter().filter(|of| of.system != System::Bare);
        Self {
            versions: versions(cx).into_iter().map(version).collect(),
            columns: ours
                .map(|of| (of.system.label().to_owned(), Column::of(of, bare)))
                .collect(),
        }
    }

    /// What has become more than in `old`, each in a line.
    pub fn increases(&self, old: &Self) -> Vec<String> {
        let none = Column::default();
        let columns = self.columns.iter();
        columns
            .flat_map(|(name, column)| {
                let lines = column.increases(old.columns.get(name).unwrap_or(&none));
                lines.into_iter().map(move |line| format!("{name}: {line}"))
            })
            .collect()
    }

    /// How to replace the committed one.
    pub fn how_to_renew() -> String {
        format!("`cargo xtask bench {NAME}` writes {FILE} anew, to be committed with the change")
    }
}

impl Column {
    fn of(figures: &Figures, bare: Option<&Figures>) -> Self {
        let more =
            |of: fn(&Figures) -> f64| of(figures) as i64 - bare.map_or(0, |bare| of(bare) as i64);
        Self {
            exits: figures.round_exits.clone(),
            timed: more(|of| of.rounds_ns.lower_quartile),
            answered: more(|of| of.answered_ns.lower_quartile),
        }
    }

    fn increases(&self, old: &Self) -> Vec<String> {
        let mut lines = Vec::new();
        let mut compare = |what: &str, new: i64, old: i64, error: i64| {
            if new > old + error {
                lines.push(format!("{what} a round: {new}, were {old}"));
            }
        };
        compare(
            "instructions added in perf's time",
            self.timed,
            old.timed,
            INSTRUCTIONS,
        );
        compare(
            "instructions added until the answer",
            self.answered,
            old.answered,
            old.answered / ANSWER,
        );
        let sum = |exits: &Exits| exits.values().fold(0, |sum, count| sum + *count as i64);
        compare("exits", sum(&self.exits), sum(&old.exits), IDLE);
        let reasons: BTreeSet<_> = self.exits.keys().collect();
        for reason in reasons {
            let count = |exits: &Exits| exits.get(reason).map_or(0, |count| *count as i64);
            compare(
                &format!("exits for {reason}"),
                count(&self.exits),
                count(&old.exits),
                if reason == "idle" { IDLE } else { 0 },
            );
        }
        lines
    }
}

fn path(cx: &Context) -> PathBuf {
    cx.repo(FILE)
}

/// The measurement that renews the committed baseline.
pub struct Renew;

impl Bench for Renew {
    fn name(&self) -> &'static str {
        NAME
    }

    fn about(&self) -> &'static str {
        "renews the baseline that the test `wake` compares with"
    }

    fn needs(&self) -> Vec<&'static str> {
        NEEDS.to_vec()
    }

    fn run(&self, cx: &Context, _options: &Options) -> Result<Value> {
        let baseline = Baseline::of(cx, &measure(cx, &options())?);
        let mut text = serde_json::to_vec_pretty(&baseline)?;
        text.push(b'\n');
        write_atomically(&path(cx), &text)?;
        println!("{}", String::from_utf8_lossy(&text).trim_end());
        Ok(serde_json::to_value(baseline)?)
    }
}

#[cfg(test)]
mod tests {
    use super::super::figures::tests::figures;
    use super::*;

    fn column(idle: u64, timed: i64) -> Column {
        Column {
            exits: Exits::from([("idle".to_owned(), idle)]),
            timed,
            answered: 5000,
        }
    }

    fn baseline(column: Column) -> Baseline {
        Baseline {
            versions: vec!["QEMU 1".to_owned()],
            columns: BTreeMap::from([("ours".to_owned(), column)]),
        }
    }

    #[test]
    fn any_increase_is_found_and_nothing_else() {
        let old = baseline(column(29, 1100));
        let against = |new: Column| baseline(new).increases(&old);
        assert!(against(column(29, 1100)).is_empty());
        assert!(against(column(28, 1000)).is_empty());
        assert!(against(column(30, 1117)).is_empty());
        assert_eq!(
            against(column(29, 1118)),
            ["ours: instructions added in perf's time a round: 1118, were 1100"]
        );
        assert_eq!(against(column(31, 1100)).len(), 2);
        let mut other = column(28, 1100);
        other.exits.insert("memory".to_owned(), 1);
        assert_eq!(
            against(other),
            ["ours: exits for memory a round: 1, were 0"]
        );
    }

    #[test]
    fn a_column_is_what_it_has_more_than_the_bare_machine() {
        let (bare, mut ours) = (
            figures(System::Bare, &[20.0], 0.0),
            figures(System::Native, &[25.0], 1.0),
        );
        ours.round_exits.insert("idle".to_owned(), 7);
        let column = Column::of(&ours, Some(&bare));
        assert_eq!((column.timed, column.answered), (5, 5));
        assert_eq!(column.exits["idle"], 7);
    }

    #[test]
    fn the_committed_one_can_be_read() {
        let cache = tempfile::tempdir().unwrap();
        let baseline = Baseline::committed(&Context::for_tests(cache.path())).unwrap();
        assert_eq!(baseline.columns.len(), options().systems.len());
        assert!(baseline.increases(&baseline).is_empty());
    }
}
