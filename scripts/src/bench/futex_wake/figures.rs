//! A column's figures, over all seeds.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use serde::{Deserialize, Serialize};

use super::model::{Counts, Reading};
use super::part::GuestPart;
use super::samples::Summary;
use crate::bench::systems::{Run, System};
use crate::bench::trace;

/// The marks around tests/wake, waking and not.
const WAKE: &str = "wake";
const REST: &str = "rest";

/// What a column has come to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// Whose it is.
    pub system: System,
    /// The kernel's version and perf's.
    pub versions: [String; 2],
    /// How each seed's machine was started, without its files' places.
    pub commands: Vec<String>,
    /// Milliseconds of all of perf's repeats, in the order of seeds and repeats.
    pub perf_ms: Vec<f64>,
    /// Of these.
    pub summary: Summary,
    /// Nanoseconds in which tests/wake woke all threads.
    pub rounds_ns: Summary,
    /// Nanoseconds until the last of them had answered.
    pub answered_ns: Summary,
    /// Of one wake, on the average.
    pub wake: Wake,
    /// Exits of a round that wakes all threads, by reason: the lower quartile.
    pub round_exits: trace::Exits,
    /// Exits of the CPU that wakes, in that time, by the wake: the median.
    pub waker_exits: f64,
    /// Threads that perf wakes in a repeat.
    pub threads: u32,
}

/// What a wake takes of all CPUs, from the call that wakes until the woken thread sleeps
/// again.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Wake {
    /// Exits from guest mode by reason.
    pub exits: BTreeMap<String, f64>,
    /// IPIs that physical CPUs sent.
    pub physical_ipis: f64,
    /// Interrupts that the measured kernel's CPUs got from each other.
    pub interrupts: f64,
}

impl Wake {
    /// Exits for any reason.
    pub fn all_exits(&self) -> f64 {
        self.exits.values().fold(0.0, |sum, exits| sum + exits)
    }
}

impl Figures {
    /// The figures of `runs`, one a seed.
    ///
    /// # Errors
    /// A run has measured nothing, or not what the others have.
    pub fn of(system: System, runs: &[Run]) -> Result<Self> {
        let parts = runs
            .iter()
            .map(|run| GuestPart::read(&run.report.text))
            .collect::<Result<Vec<_>>>()?;
        let first = parts.first().context("no run")?;
        let versions = [first.kernel.clone(), first.perf.clone()];
        let threads = first.threads;
        for part in &parts {
            ensure!(
                part.threads == threads && [&part.kernel, &part.perf] == versions.each_ref(),
                "runs of different kernels or shapes"
            );
        }
        let all = |of: fn(&GuestPart) -> &[u64]| {
            let all = parts.iter().flat_map(of);
            let all: Vec<f64> = all.map(|&ns| ns as f64).collect();
            Summary::of(&all).context("no round was measured")
        };
        let perf_ms: Vec<f64> = parts.iter().flat_map(|part| part.perf_ms.clone()).collect();
        Ok(Self {
            system,
            versions,
            commands: runs.iter().map(|run| run.command.clone()).collect(),
            summary: Summary::of(&perf_ms).context("no wake was measured")?,
            perf_ms,
            rounds_ns: all(|part| &part.rounds_ns)?,
            answered_ns: all(|part| &part.answered_ns)?,
            wake: wake(runs, &parts)?,
            round_exits: round_exits(runs),
            waker_exits: waker_exits(runs) / f64::from(threads),
            threads,
        })
    }

    /// Instructions of the cleanest of perf's repeats, and exits of as many wakes.
    pub fn counts(&self, reading: Reading) -> Counts {
        let exits = match reading {
            Reading::All => self.wake.all_exits(),
            Reading::Waker => self.waker_exits,
        };
        Counts {
            // A virtual nanosecond is an instruction.
            instructions: self.summary.minimum * 1e6,
            exits: exits * f64::from(self.threads),
        }
    }

    /// Instructions that a wake takes more than in `bare`: in the cleanest of perf's
    /// repeats, which time the calls that wake, and in the median of all until the answer.
    pub fn added(&self, bare: &Self) -> [f64; 2] {
        let threads = f64::from(self.threads);
        let timed = self.summary.minimum - bare.summary.minimum;
        let answered = self.answered_ns.median - bare.answered_ns.median;
        // The answer is a wake too.
        [timed * 1e6 / threads, answered / (threads + 1.0)]
    }
}

/// The columns in the file `path` of figures.
///
/// # Errors
/// It can't be read, or has none.
pub fn read(path: &Path) -> Result<Vec<Figures>> {
    #[derive(Deserialize)]
    struct File {
        columns: Vec<Figures>,
    }
    let name = path.display();
    let text = std::fs::read(path).with_context(|| format!("{name} can't be read"))?;
    let file: File = serde_json::from_slice(&text)
        .with_context(|| format!("{name} has no figures of this measurement"))?;
    Ok(file.columns)
}

/// The lower quartile of the exits of all rounds that wake, by reason.
fn round_exits(runs: &[Run]) -> trace::Exits {
    let windows = runs.iter().filter_map(|run| run.windows.get(WAKE));
    let rounds: Vec<_> = windows.flat_map(|counts| &counts.rounds).collect();
    let reasons: BTreeSet<_> = rounds.iter().flat_map(|round| round.keys()).collect();
    let quartile = |reason: &String| {
        let counts = rounds
            .iter()
            .map(|round| round.get(reason).copied().unwrap_or(0));
        let counts: Vec<f64> = counts.map(|count| count as f64).collect();
        Some((reason.clone(), Summary::of(&counts)?.lower_quartile as u64))
    };
    reasons
        .into_iter()
        .filter_map(quartile)
        .filter(|(_, count)| *count > 0)
        .collect()
}

/// The median of the exits of the CPU that wakes, until all are woken.
fn waker_exits(runs: &[Run]) -> f64 {
    let windows = runs.iter().filter_map(|run| run.windows.get(WAKE));
    let exits: Vec<f64> = windows
        .flat_map(|counts| &counts.waker)
        .map(|&n| n as f64)
        .collect();
    Summary::of(&exits).map_or(0.0, |of| of.median)
}

/// What a wake took on the average: the difference of the rounds that wake and those that
/// don't.
fn wake(runs: &[Run], parts: &[GuestPart]) -> Result<Wake> {
    let mut sum = Wake::default();
    let mut wakes = 0.0;
    for (run, part) in runs.iter().zip(parts) {
        let window = |name: &str| -> Result<&trace::Counts> {
            let found = run.windows.get(name);
            found.with_context(|| format!("nothing was counted at the mark `{name}`"))
        };
        let (with, without) = (window(WAKE)?, window(REST)?);
        let reasons = with.exits.keys().chain(without.exits.keys());
        for reason in reasons.collect::<BTreeSet<_>>() {
            let of = |counts: &trace::Counts| counts.exits.get(reason).map_or(0.0, |&n| n as f64);
            *sum.exits.entry(reason.clone()).or_default() += of(with) - of(without);
        }
        sum.physical_ipis += with.ipis as f64 - without.ipis as f64;
        let counted = |count: Option<u64>| count.context("the kernel's IPIs weren't counted");
        sum.interrupts += counted(part.ipis.wake)? as f64 - counted(part.ipis.rest)? as f64;
        wakes += part.rounds_ns.len() as f64 * f64::from(part.threads + 1);
    }
    sum.exits.values_mut().for_each(|exits| *exits /= wakes);
    sum.physical_ipis /= wakes;
    sum.interrupts /= wakes;
    Ok(sum)
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::bench::trace::Counts;
    use crate::guest::report::Report;

    /// A column whose repeats took `ms` and whose wakes took `exits`.
    pub fn figures(system: System, ms: &[f64], exits: f64) -> Figures {
        let summary = Summary::of(ms).unwrap();
        Figures {
            system,
            versions: ["7.2".to_owned(), "7.2".to_owned()],
            commands: Vec::new(),
            perf_ms: ms.to_vec(),
            summary,
            rounds_ns: summary,
            answered_ns: summary,
            wake: Wake {
                exits: BTreeMap::from([("idle".to_owned(), exits)]),
                ..Wake::default()
            },
            round_exits: trace::Exits::new(),
            waker_exits: exits,
            threads: 16,
        }
    }

    fn run(wake: u64, rest: u64, ms: &str) -> Run {
        let text = format!(
            "{{\"benchmark\":\"futex-wake\",\"cpus\":2,\"threads\":1,\"kernel\":\"k\",\"perf\":\"p\",\
             \"perf_ms\":[{ms}],\"rounds_ns\":[30,20],\"answered_ns\":[70,80],\
             \"ipis\":{{\"wake\":9,\"rest\":1}}}}\n"
        );
        let counts = |count: u64| Counts {
            exits: BTreeMap::from([("idle".to_owned(), count)]),
            rounds: [1, 2, 5]
                .map(|n| BTreeMap::from([("idle".to_owned(), n)]))
                .into(),
            waker: vec![3, 4, 5],
            ipis: count,
        };
        let windows = [
            ("wake".to_owned(), counts(wake)),
            ("rest".to_owned(), counts(rest)),
        ];
        Run {
            report: Report::read(&text),
            windows: windows.into(),
            command: "q".to_owned(),
            console: String::new(),
        }
    }

    #[test]
    fn a_wake_is_the_difference_a_wake_makes() {
        let runs = [run(20, 4, "0.5"), run(10, 2, "0.25,0.75")];
        let figures = Figures::of(System::Native, &runs).unwrap();
        // Two rounds a run, of one thread and the answer: eight wakes.
        assert_eq!(figures.wake.exits["idle"], 3.0);
        assert_eq!(figures.wake.physical_ipis, 3.0);
        assert_eq!(figures.round_exits["idle"], 1);
        assert_eq!(figures.waker_exits, 4.0);
        assert_eq!(figures.wake.interrupts, 2.0);
        assert_eq!(figures.perf_ms, [0.5, 0.25, 0.75]);
        assert_eq!(
            (figures.rounds_ns.minimum, figures.answered_ns.maximum),
            (20.0, 80.0)
        );
        assert_eq!(figures.counts(Reading::All).instructions, 0.25e6);
        assert_eq!(figures.commands, ["q", "q"]);
    }

    #[test]
    fn a_file_of_figures_gives_them_back() {
        let all = vec![
            figures(System::Bare, &[0.021], 0.0),
            figures(System::KvmParavirtual, &[0.03, 0.0475], 1.5),
        ];
        let file = tempfile::NamedTempFile::new().unwrap();
        let text = serde_json::json!({ "columns": all, "more": 1 }).to_string();
        std::fs::write(file.path(), text).unwrap();
        assert_eq!(read(file.path()).unwrap(), all);
        std::fs::write(file.path(), "{}").unwrap();
        assert!(read(file.path()).is_err());
    }

    #[test]
    fn runs_that_lack_something_are_refused() {
        let mut bad = run(20, 4, "0.5");
        bad.windows.remove("rest");
        assert!(Figures::of(System::Native, &[bad]).is_err());
        assert!(Figures::of(System::Native, &[]).is_err());
        let mut other = run(20, 4, "0.5");
        other.report.text = other.report.text.replace("\"k\"", "\"l\"");
        assert!(Figures::of(System::Native, &[run(20, 4, "0.5"), other]).is_err());
    }

    #[test]
    fn what_is_added_is_a_wake_s() {
        let bare = figures(System::Bare, &[0.016], 0.0);
        let mut ours = figures(System::Native, &[0.032], 1.0);
        ours.answered_ns.median = bare.answered_ns.median + 17.0 * 500.0;
        let [timed, answered] = ours.added(&bare);
        assert!(
            (timed - 1000.0).abs() < 1e-6 && answered == 500.0,
            "{timed} {answered}"
        );
    }
}
