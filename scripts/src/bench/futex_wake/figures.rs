//! A column's figures, over all seeds.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use serde::{Deserialize, Serialize};

use super::doze::Doze;
use super::model::{Counts, Reading};
use super::part::{GuestPart, Interrupts};
use super::samples::Summary;
use crate::bench::systems::{Run, System};
use crate::bench::trace::{self, Round};

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
    /// What the usual round takes that wakes all threads.
    pub round: Usual,
    /// Threads that perf wakes in a repeat.
    pub threads: u32,
}

/// What a wake takes of all CPUs, from the call that wakes until the woken thread sleeps
/// again.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Wake {
    /// Exits from guest mode by reason.
    pub exits: BTreeMap<String, f64>,
    /// The hypervisor's instructions, from each exit to the next entry, by its reason.
    pub instructions: BTreeMap<String, f64>,
    /// IPIs that physical CPUs sent.
    pub physical_ipis: f64,
    /// Interrupts that the measured kernel's CPUs got from each other.
    pub interrupts: f64,
    /// Those that they got from their timers.
    pub ticks: f64,
}

impl Wake {
    /// Exits for any reason.
    pub fn all_exits(&self) -> f64 {
        self.exits.values().fold(0.0, |sum, exits| sum + exits)
    }

    /// The hypervisor's instructions after exits for any reason.
    pub fn all_instructions(&self) -> f64 {
        let each = self.instructions.values();
        each.fold(0.0, |sum, instructions| sum + instructions)
    }
}

/// What the usual round takes, from its mark until each CPU sleeps again: of each figure
/// the median of all rounds, which no tick moves that falls into one or the other.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usual {
    /// Exits by reason.
    pub exits: trace::Exits,
    /// The hypervisor's instructions by the reason of the exit.
    pub instructions: trace::Exits,
    /// Exits of the CPU that wakes, until all are woken.
    pub waker_exits: u64,
    /// The least instructions of that CPU from one exit to the next until then, the guest's
    /// and the hypervisor's, in rounds with these exits.
    pub send_instructions: u64,
}

impl Usual {
    fn of(rounds: &[&Round]) -> Self {
        let median = |of: &dyn Fn(&Round) -> u64| {
            let counts: Vec<f64> = rounds.iter().map(|round| of(round) as f64).collect();
            Summary::of(&counts).map_or(0, |of| of.median as u64)
        };
        let by_reason = |of: fn(&Round) -> &trace::Exits| {
            let reasons: BTreeSet<_> = rounds.iter().flat_map(|round| of(round).keys()).collect();
            let usual = reasons.into_iter().map(|reason| {
                let count = |round: &Round| of(round).get(reason).copied().unwrap_or(0);
                (reason.clone(), median(&count))
            });
            usual.filter(|(_, count)| *count > 0).collect()
        };
        let waker_exits = median(&|round| round.waker_exits);
        let exits = by_reason(|round| &round.exits);
        // A round with others has a send that isn't one.
        let usual = rounds.iter().filter(|round| round.exits == exits);
        let sends = usual.filter(|round| round.waker_exits == waker_exits);
        Self {
            instructions: by_reason(|round| &round.instructions),
            send_instructions: sends.filter_map(|r| r.send_instructions).min().unwrap_or(0),
            exits,
            waker_exits,
        }
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
            round: usual(runs),
            threads,
        })
    }

    /// Instructions of the cleanest of perf's repeats, and exits of as many wakes.
    pub fn counts(&self, reading: Reading) -> Counts {
        Counts {
            // A virtual nanosecond is an instruction.
            instructions: self.summary.minimum * 1e6,
            exits: match reading {
                Reading::All => self.wake.all_exits() * f64::from(self.threads),
                Reading::Waker => self.round.waker_exits as f64,
            },
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

/// The columns in the file `path` of figures, and the guests of our own.
///
/// # Errors
/// It can't be read, or has none.
pub fn read(path: &Path) -> Result<(Vec<Figures>, Vec<Doze>)> {
    #[derive(Deserialize)]
    struct File {
        columns: Vec<Figures>,
        doze: Vec<Doze>,
    }
    let name = path.display();
    let text = std::fs::read(path).with_context(|| format!("{name} can't be read"))?;
    let file: File = serde_json::from_slice(&text)
        .with_context(|| format!("{name} has no figures of this measurement"))?;
    Ok((file.columns, file.doze))
}

/// The usual one of all rounds that wake.
fn usual(runs: &[Run]) -> Usual {
    let windows = runs.iter().filter_map(|run| run.windows.get(WAKE));
    let rounds: Vec<_> = windows.flat_map(|counts| &counts.rounds).collect();
    Usual::of(&rounds)
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
        ensure!(
            with.exits.is_empty() == with.instructions.is_empty(),
            "the emulator doesn't say what its CPUs execute: it is older than its addition"
        );
        add(&mut sum.exits, [&with.exits, &without.exits]);
        add(
            &mut sum.instructions,
            [&with.instructions, &without.instructions],
        );
        sum.physical_ipis += with.ipis as f64 - without.ipis as f64;
        sum.interrupts += more(part.ipis)?;
        sum.ticks += more(part.ticks)?;
        wakes += part.rounds_ns.len() as f64 * f64::from(part.threads + 1);
    }
    let both = sum.exits.values_mut().chain(sum.instructions.values_mut());
    both.for_each(|count| *count /= wakes);
    sum.physical_ipis /= wakes;
    sum.interrupts /= wakes;
    sum.ticks /= wakes;
    Ok(sum)
}

/// The interrupts that there were more while threads were woken.
fn more(of: Interrupts) -> Result<f64> {
    let counted = of.wake.zip(of.rest);
    let (wake, rest) = counted.context("the kernel's interrupts weren't counted")?;
    Ok(wake as f64 - rest as f64)
}

/// Adds to `sum` what the first has more than the second.
fn add(sum: &mut BTreeMap<String, f64>, [with, without]: [&trace::Exits; 2]) {
    let reasons: BTreeSet<_> = with.keys().chain(without.keys()).collect();
    for reason in reasons {
        let of = |exits: &trace::Exits| exits.get(reason).map_or(0.0, |&n| n as f64);
        *sum.entry(reason.clone()).or_default() += of(with) - of(without);
    }
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
                instructions: BTreeMap::from([("idle".to_owned(), 400.0 * exits)]),
                ..Wake::default()
            },
            round: Usual {
                waker_exits: (exits * 16.0) as u64,
                ..Usual::default()
            },
            threads: 16,
        }
    }

    fn run(wake: u64, rest: u64, ms: &str) -> Run {
        let text = format!(
            "{{\"benchmark\":\"futex-wake\",\"cpus\":2,\"threads\":1,\"kernel\":\"k\",\"perf\":\"p\",\
             \"perf_ms\":[{ms}],\"rounds_ns\":[30,20],\"answered_ns\":[70,80],\
             \"ipis\":{{\"wake\":9,\"rest\":1}},\"ticks\":{{\"wake\":7,\"rest\":3}}}}\n"
        );
        let counts = |count: u64| Counts {
            exits: BTreeMap::from([("idle".to_owned(), count)]),
            instructions: BTreeMap::from([("idle".to_owned(), 100 * count)]),
            rounds: [1, 2, 5, 2]
                .map(|n| Round {
                    exits: BTreeMap::from([("idle".to_owned(), n)]),
                    instructions: BTreeMap::from([("idle".to_owned(), 10 * n)]),
                    waker_exits: 2 + n,
                    send_instructions: Some(1000 * n),
                })
                .into(),
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
        assert_eq!(figures.wake.instructions["idle"], 300.0);
        assert_eq!(figures.round.exits["idle"], 2);
        assert_eq!(figures.round.instructions["idle"], 20);
        assert_eq!(figures.round.waker_exits, 4);
        assert_eq!(figures.round.send_instructions, 2000);
        assert_eq!((figures.wake.interrupts, figures.wake.ticks), (2.0, 1.0));
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
        let text = serde_json::json!({ "columns": all, "doze": [], "more": 1 }).to_string();
        std::fs::write(file.path(), text).unwrap();
        assert_eq!(read(file.path()).unwrap(), (all, Vec::new()));
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
