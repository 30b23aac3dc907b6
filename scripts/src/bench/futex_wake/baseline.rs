//! What a wake took when the committed baseline was measured.
//!
//! A short measurement of our two columns, one seed. What is compared is the usual round
//! ([`Usual`]), counted and not timed, so it is the same in every build that does the same:
//! where a tick falls, and which CPU runs beside which, changes with every shift of the
//! hypervisor's code, since the virtual clock counts its instructions from power-on; the
//! median over the rounds doesn't. The figures are of one kernel and one emulator; for
//! others the goals hold.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::figures::{Figures, Usual};
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
    columns: BTreeMap<String, Usual>,
}

/// How much is measured: little, always the same.
pub fn options() -> Options {
    Options {
        seed: 1,
        seeds: Some(1),
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
        let ours = figures.iter().filter(|of| of.system != System::Bare);
        Self {
            versions: versions(cx).into_iter().map(version).collect(),
            columns: ours
                .map(|of| (of.system.label().to_owned(), of.round.clone()))
                .collect(),
        }
    }

    /// What has become more than in `old`, each in a line.
    pub fn increases(&self, old: &Self) -> Vec<String> {
        let none = Usual::default();
        let lines = |(name, new): (&String, &Usual)| {
            let old = counts(old.columns.get(name).unwrap_or(&none));
            let more = counts(new).into_iter().filter_map(move |(what, count)| {
                let before = old.get(&what).copied().unwrap_or(0);
                (count > before).then(|| format!("{what}: {count}, were {before}"))
            });
            more.map(|line| format!("{name}: {line}"))
                .collect::<Vec<_>>()
        };
        self.columns.iter().flat_map(lines).collect()
    }

    /// How to replace the committed one.
    pub fn how_to_renew() -> String {
        format!("`cargo xtask bench {NAME}` writes {FILE} anew, to be committed with the change")
    }
}

/// All counts of a round, by what they count.
fn counts(of: &Usual) -> BTreeMap<String, u64> {
    let by_reason = |what: &'static str, counts: &Exits| -> Vec<(String, u64)> {
        let each = counts.iter();
        each.map(|(reason, count)| (format!("{what} for {reason} a round"), *count))
            .collect()
    };
    let waker = [
        ("exits of the CPU that wakes a round", of.waker_exits),
        ("instructions from a send to the next", of.send_instructions),
    ];
    let waker = waker.map(|(what, count)| (what.to_owned(), count));
    by_reason("exits", &of.exits)
        .into_iter()
        .chain(by_reason("hypervisor instructions", &of.instructions))
        .chain(waker)
        .collect()
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
    use super::*;

    fn column(idle: u64, instructions: u64) -> Usual {
        Usual {
            exits: Exits::from([("idle".to_owned(), idle)]),
            instructions: Exits::from([("idle".to_owned(), instructions)]),
            waker_exits: 15,
            send_instructions: 1300,
        }
    }

    fn baseline(column: Usual) -> Baseline {
        Baseline {
            versions: vec!["QEMU 1".to_owned()],
            columns: BTreeMap::from([("ours".to_owned(), column)]),
        }
    }

    #[test]
    fn any_increase_is_found_and_nothing_else() {
        let old = baseline(column(17, 6936));
        let against = |new: Usual| baseline(new).increases(&old);
        assert!(against(column(17, 6936)).is_empty());
        assert!(against(column(16, 6528)).is_empty());
        assert_eq!(
            against(column(17, 6937)),
            ["ours: hypervisor instructions for idle a round: 6937, were 6936"]
        );
        assert_eq!(against(column(18, 7344)).len(), 2);
        let mut other = column(17, 6936);
        other.send_instructions += 1;
        other.exits.insert("memory".to_owned(), 1);
        assert_eq!(
            against(other),
            [
                "ours: exits for memory a round: 1, were 0",
                "ours: instructions from a send to the next: 1301, were 1300"
            ]
        );
    }

    #[test]
    fn the_committed_one_can_be_read() {
        let cache = tempfile::tempdir().unwrap();
        let baseline = Baseline::committed(&Context::for_tests(cache.path())).unwrap();
        assert_eq!(baseline.columns.len(), options().systems.len());
        assert!(baseline.increases(&baseline).is_empty());
    }
}
