//! `cargo xtask bench latency`: how late an urgent task is woken beside a neighbour that
//! wakes tasks all the time.
//!
//! Two systems of four CPUs each on one machine: on one, cyclictest; on the other, as
//! long, hackbench, whose processes wake each other by IPIs. On the machine itself both
//! run in one Linux, on CPUs of their own. One virtual clock runs for all CPUs, by the
//! instructions of all of them: a latency has the neighbour's instructions in it, which on
//! parallel hardware pass meanwhile. What compares is one column with another.

use anyhow::{Context as _, Result, ensure};
use serde::Serialize;
use serde_json::{Value, json};

use super::systems::{Lab, Run, Shape, System};
use super::{Bench, Options};
use crate::context::Context;
use crate::guest::job::Job;
use crate::progress::Progress;
use crate::run::NEEDS;

/// Its name.
const NAME: &str = "latency";

/// How often each of four threads sleeps, and how much the neighbour does meanwhile.
const LOOPS: u32 = 200;
const STORM: u32 = 15_000;

/// What must have happened in this order, or there was no storm while it was measured.
const ORDER: [&str; 4] = [
    "fact storm begins",
    "fact latency begins",
    "fact latency ends 0",
    "fact storm ends 0",
];

/// The measurement `latency`.
pub struct Latency;

/// Microseconds of virtual time, over all threads.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
struct Late {
    /// The least.
    minimum: f64,
    /// The average of the threads' averages.
    average: f64,
    /// The most.
    maximum: f64,
}

impl Bench for Latency {
    fn name(&self) -> &'static str {
        NAME
    }

    fn about(&self) -> &'static str {
        "cyclictest beside a neighbour that storms with IPIs"
    }

    fn needs(&self) -> Vec<&'static str> {
        NEEDS.to_vec()
    }

    fn run(&self, cx: &Context, options: &Options) -> Result<Value> {
        let lab = Lab::new(cx)?;
        let variables = [("LOOPS", LOOPS.to_string()), ("STORM", STORM.to_string())];
        let job = Job::new(cx, "latency.sh", &variables)?;
        let mut measured = Vec::new();
        for system in options.systems() {
            let mut task = Progress::detect().task(system.label());
            let mut see = |line: &str| {
                if let Some((_, what)) = line.split_once("fact ") {
                    task.doing(what);
                }
            };
            let run = system.run_as(&lab, NAME, options.seed, &job, Shape::Beside, &mut see)?;
            task.finish("measured");
            measured.push((system, late(&run).with_context(|| system.label())?));
        }
        print!("{}", table(&measured));
        let rows = measured
            .iter()
            .map(|(system, late)| json!({ "system": system, "us": late }));
        Ok(json!({
            "seed": options.seed,
            "loops": LOOPS,
            "storm": STORM,
            "systems": rows.collect::<Vec<_>>(),
        }))
    }
}

/// What a run reported; it counts only with the storm around it.
fn late(run: &Run) -> Result<Late> {
    let mut rest = run.console.as_str();
    for what in ORDER {
        let (_, after) = rest.split_once(what).with_context(|| {
            format!(
                "`{what}` isn't where it should be, of: {}",
                ORDER.join(", ")
            )
        })?;
        rest = after;
    }
    let number = |word: &String| word.parse::<f64>().ok();
    let threads: Vec<Vec<f64>> = run
        .report
        .facts("late")
        .map(|words| words.iter().filter_map(number).collect())
        .collect();
    ensure!(
        !threads.is_empty() && threads.iter().all(|thread| thread.len() == 3),
        "cyclictest has measured nothing"
    );
    let column = |index: usize| threads.iter().filter_map(move |thread| thread.get(index));
    let count = threads.len() as f64;
    Ok(Late {
        minimum: column(0).copied().fold(f64::INFINITY, f64::min),
        average: column(1).fold(0.0, |sum, us| sum + us) / count,
        maximum: column(2).copied().fold(0.0, f64::max),
    })
}

/// The results, for people.
fn table(measured: &[(System, Late)]) -> String {
    let mut text = format!(
        "{:28} {:>8} {:>8} {:>8}\n",
        "late, µs of virtual time", "least", "average", "most"
    );
    for (system, late) in measured {
        let (label, least) = (system.label(), late.minimum);
        text += &format!(
            "{label:28} {least:8.0} {:8.0} {:8.0}\n",
            late.average, late.maximum
        );
    }
    text + "one clock for all CPUs: what the neighbour does meanwhile is in it\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guest::report::Report;

    fn run(console: &str) -> Run {
        Run {
            report: Report::read(console),
            console: console.to_owned(),
            ..Run::default()
        }
    }

    const GOOD: &str = "fact storm begins\nfact latency begins\nfact latency ends 0\n\
                        fact late 3 10 40\nfact late 5 20 90\nneighbour| fact storm ends 0\n";

    #[test]
    fn the_worst_thread_counts() {
        let (minimum, average, maximum) = (3.0, 15.0, 90.0);
        let expected = Late {
            minimum,
            average,
            maximum,
        };
        assert_eq!(late(&run(GOOD)).unwrap(), expected);
        assert!(table(&[(System::Bare, expected)]).contains("      90\n"));
    }

    #[test]
    fn without_a_storm_around_it_nothing_counts() {
        assert!(late(&run(&GOOD.replace("storm ends 0", "storm ends 1"))).is_err());
        let early = GOOD.replace("fact storm begins\n", "") + "fact storm begins\n";
        assert!(late(&run(&early)).is_err());
        assert!(late(&run(&GOOD.replace("late 5 20 90", "late"))).is_err());
    }
}
