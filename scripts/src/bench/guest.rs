//! `cargo xtask bench guest`: what ordinary work costs in a guest.
//!
//! The same loads, each of one kind, on the machine, in our guests and in KVM's; the
//! figures are instructions of all CPUs, since one is a virtual nanosecond. Of the seeds'
//! figures the median counts: what a load does that spins or races hangs on who comes
//! first. A guest of ours above a limit is a failure.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use super::systems::{Lab, Run, System};
use super::{Bench, Options};
use crate::bench::futex_wake::Summary;
use crate::context::Context;
use crate::guest::job::Job;
use crate::hint::failure;
use crate::progress::Progress;
use crate::run::NEEDS;

/// Its name.
const NAME: &str = "guest";

/// How many seeds.
const SEEDS: u64 = 3;

/// How much of each load is done.
const WORK: u32 = 10;

/// The loads, in the order of the table, and how many times the machine's own time a
/// guest of ours may take.
const LOADS: [(&str, f64); 11] = [
    ("hash", 1.01),
    ("count", 1.01),
    ("fork", 1.1),
    ("exec", 1.1),
    ("mmap", 1.1),
    ("build", 1.1),
    ("pipe", f64::INFINITY),
    ("hackbench", f64::INFINITY),
    ("messaging", f64::INFINITY),
    ("switch", f64::INFINITY),
    ("futex", f64::INFINITY),
];

/// What precedes the names of the loads that count.
const ROUND: &str = "then-";

/// The measurement `guest`.
pub struct Guest;

/// By load, a figure of each seed.
type PerLoad = BTreeMap<&'static str, Vec<f64>>;

/// What a system came to.
struct Measured {
    system: System,
    /// Nanoseconds.
    times: PerLoad,
    /// Exits of all CPUs.
    exits: PerLoad,
}

impl Measured {
    fn new(system: System) -> Self {
        let (times, exits) = (PerLoad::new(), PerLoad::new());
        Self {
            system,
            times,
            exits,
        }
    }

    /// Adds the figures of a seed: all of them, of loads that ended well.
    fn add(&mut self, run: &Run) -> Result<()> {
        for (load, _) in LOADS {
            self.times.entry(load).or_default().push(time(run, load)?);
            self.exits.entry(load).or_default().push(exits(run, load));
        }
        Ok(())
    }
}

/// Of the figures of `load`.
fn summary(of: &PerLoad, load: &str) -> Option<Summary> {
    Summary::of(of.get(load)?)
}

/// How many times the time of `bare` the load takes: the median of the seeds.
fn ratio(of: &Measured, bare: &Measured, load: &str) -> f64 {
    let time = |of: &Measured| summary(&of.times, load).map_or(f64::NAN, |of| of.median);
    time(of) / time(bare)
}

/// The least and the most that the seeds give for it.
fn span(of: &Measured, bare: &Measured, load: &str) -> [f64; 2] {
    let times = |of: &Measured| of.times.get(load).cloned().unwrap_or_default();
    let pairs = times(of).into_iter().zip(times(bare));
    let ratios: Vec<f64> = pairs.map(|(of, bare)| of / bare).collect();
    Summary::of(&ratios).map_or([f64::NAN; 2], |of| [of.minimum, of.maximum])
}

impl Bench for Guest {
    fn name(&self) -> &'static str {
        NAME
    }

    fn about(&self) -> &'static str {
        "ordinary work: bare metal, and guests"
    }

    fn needs(&self) -> Vec<&'static str> {
        NEEDS.to_vec()
    }

    fn run(&self, cx: &Context, options: &Options) -> Result<Value> {
        let job = Job::new(cx, "guest-cost.sh", &[("WORK", WORK.to_string())])?;
        let lab = Lab::new(cx)?;
        let seeds = options.seeds(SEEDS);
        let mut measured = Vec::new();
        for system in options.systems() {
            let mut task = Progress::detect().task(system.label());
            let mut of = Measured::new(system);
            for seed in seeds.clone() {
                task.doing(&format!("seed {seed}"));
                let run = system.run(&lab, NAME, seed, &job, &mut |_| ())?;
                of.add(&run)
                    .with_context(|| format!("{}, seed {seed}", system.label()))?;
            }
            task.finish("measured");
            measured.push(of);
        }
        print!("{}", table(&measured));
        judge(&measured)?;
        let systems = measured.iter();
        let rows =
            systems.map(|of| json!({ "system": of.system, "ns": of.times, "exits": of.exits }));
        Ok(json!({
            "seeds": seeds.collect::<Vec<_>>(),
            "work": WORK,
            "limits": BTreeMap::from(LOADS),
            "systems": rows.collect::<Vec<_>>(),
        }))
    }
}

/// The time of a load that ended well.
fn time(run: &Run, load: &str) -> Result<f64> {
    let value = |fact: &str| -> Option<&str> {
        let name = format!("{ROUND}{load}");
        let mut facts = run.report.facts(fact);
        let words = facts.find(|words| words.first() == Some(&name))?;
        words.get(1).map(String::as_str)
    };
    let status = value("status").with_context(|| format!("{load} didn't run"))?;
    ensure!(status == "0", "{load} ended with status {status}");
    let ns = value("time").and_then(|ns| ns.parse().ok());
    ns.with_context(|| format!("{load} has no time"))
}

/// The exits while a load ran.
fn exits(run: &Run, load: &str) -> f64 {
    let counts = run.windows.get(&format!("{ROUND}{load}"));
    counts.map_or(0, |counts| counts.exits.values().sum::<u64>()) as f64
}

/// Fails where a guest of ours is above a limit.
fn judge(measured: &[Measured]) -> Result<()> {
    let missed: Vec<String> = measured
        .iter()
        .skip(1)
        .flat_map(|of| {
            let above = LOADS.into_iter().filter(|&load| misses(measured, of, load));
            above.map(|(load, limit)| format!("{load} in {}, at most {limit}", of.system.label()))
        })
        .collect();
    if missed.is_empty() {
        return Ok(());
    }
    Err(failure(
        format!("above the limit: {}", missed.join("; ")),
        "the table above says by how much",
    ))
}

/// Whether `of`, a guest of ours, is above the limit of a load.
fn misses(measured: &[Measured], of: &Measured, (load, limit): (&str, f64)) -> bool {
    let bare = measured.first();
    !of.system.is_kvm() && bare.is_some_and(|bare| ratio(of, bare, load) > limit)
}

/// The results, for people: a line a load, of times of the machine's own, the median of
/// the seeds and the span, and of exits.
fn table(measured: &[Measured]) -> String {
    let Some((bare, guests)) = measured.split_first() else {
        return String::new();
    };
    let mut text = format!("{:9} {:>13}", "", "bare, instr");
    for of in guests {
        text += &format!(" {:>32}", of.system.label());
    }
    text += "   limit\n";
    text += &format!("{:23}", "");
    for _ in guests {
        text += &format!(" {:>7} {:>13} {:>10}", "÷ bare", "least–most", "exits");
    }
    text += "\n";
    let median = |of: &PerLoad, load| summary(of, load).map_or(f64::NAN, |of| of.median);
    for (load, limit) in LOADS {
        text += &format!("{load:9} {:13.0}", median(&bare.times, load));
        for of in guests {
            let (ratio, [least, most]) = (ratio(of, bare, load), span(of, bare, load));
            let (span, exits) = (format!("{least:.3}–{most:.3}"), median(&of.exits, load));
            text += &format!(" {ratio:7.3} {span:>13} {exits:10.0}");
        }
        if limit.is_finite() {
            text += &format!("   {limit}");
        }
        let missed = guests.iter().any(|of| misses(measured, of, (load, limit)));
        text += if missed { "  missed\n" } else { "\n" };
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::trace::Counts;
    use crate::guest::report::Report;

    fn run(lines: &str) -> Run {
        Run {
            report: Report::split(lines).0,
            ..Run::default()
        }
    }

    fn facts(skip: &str, status: &str) -> String {
        let loads = LOADS.iter().filter(|(load, _)| *load != skip);
        loads
            .map(|(load, _)| {
                format!(
                    "fact time first-{load} 9\nfact status {ROUND}{load} {status}\nfact time {ROUND}{load} 100\n"
                )
            })
            .collect()
    }

    #[test]
    fn every_load_must_have_run_well() {
        let mut of = Measured::new(System::Bare);
        of.add(&run(&facts("", "0"))).unwrap();
        assert_eq!(of.times.len(), LOADS.len());
        assert_eq!(of.times["hash"], [100.0]);
        assert!(of.add(&run(&facts("fork", "0"))).is_err());
        assert!(of.add(&run(&facts("", "1"))).is_err());
    }

    #[test]
    fn a_limit_that_is_missed_is_marked_and_fails() {
        let of = |system: System, ns: [f64; 3]| Measured {
            system,
            times: PerLoad::from(LOADS.map(|(load, _)| (load, ns.to_vec()))),
            exits: PerLoad::from(LOADS.map(|(load, _)| (load, vec![77.0]))),
        };
        let all = |ours: f64| {
            [
                of(System::Bare, [100.0; 3]),
                of(System::Paravirtual, [90.0, ours, 200.0]),
                of(System::Kvm, [300.0; 3]),
            ]
        };
        let line = |ours: f64| table(&all(ours)).lines().nth(2).unwrap().to_owned();
        assert!(line(102.0).ends_with("missed"), "{}", line(102.0));
        assert!(judge(&all(102.0)).is_err() && judge(&all(101.0)).is_ok());
        assert!(line(101.0).ends_with("1.01"), "{}", line(101.0));
        assert!(line(101.0).contains(" 1.010   0.900–2.000         77 "));
    }

    #[test]
    fn exits_are_those_of_the_rounds_that_count() {
        let mut run = run("");
        let exits_of = BTreeMap::from([("idle".to_owned(), 3), ("memory".to_owned(), 4)]);
        let counts = Counts {
            exits: exits_of,
            ..Counts::default()
        };
        run.windows.insert("then-fork".to_owned(), counts);
        assert_eq!((exits(&run, "fork"), exits(&run, "exec")), (7.0, 0.0));
    }
}
