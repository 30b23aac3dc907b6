//! `cargo xtask bench guest`: what ordinary work costs in a guest.
//!
//! The same loads, each of one kind, on the machine, in our guests and in KVM's; the
//! figures are instructions of all CPUs, since one is a virtual nanosecond.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use super::systems::{Lab, Run, System};
use super::{Bench, Options};
use crate::context::Context;
use crate::guest::job::Job;
use crate::progress::Progress;
use crate::run::NEEDS;

/// Its name.
const NAME: &str = "guest";

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

/// Nanoseconds by load.
type Times = BTreeMap<&'static str, f64>;

/// Exits of all CPUs by load.
type Exits = BTreeMap<&'static str, u64>;

/// What a system came to.
struct Measured {
    system: System,
    times: Times,
    exits: Exits,
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
        let measured = options
            .systems()
            .into_iter()
            .map(|system| {
                let task = Progress::detect().task(system.label());
                let run = system.run(&lab, NAME, options.seed, &job, &mut |_| ())?;
                task.finish("measured");
                Ok(Measured {
                    system,
                    times: times(&run).with_context(|| system.label())?,
                    exits: exits_of(&run),
                })
            })
            .collect::<Result<Vec<_>>>()?;
        print!("{}", table(&measured));
        let systems = measured.iter();
        let rows =
            systems.map(|of| json!({ "system": of.system, "ns": of.times, "exits": of.exits }));
        Ok(json!({
            "seed": options.seed,
            "work": WORK,
            "limits": BTreeMap::from(LOADS),
            "systems": rows.collect::<Vec<_>>(),
        }))
    }
}

/// The times that a run reported: all of them, of loads that ended well.
fn times(run: &Run) -> Result<Times> {
    let value = |fact: &str, load: &str| -> Option<&str> {
        let name = format!("{ROUND}{load}");
        let mut facts = run.report.facts(fact);
        let words = facts.find(|words| words.first() == Some(&name))?;
        words.get(1).map(String::as_str)
    };
    let mut times = Times::new();
    for (load, _) in LOADS {
        let status = value("status", load).with_context(|| format!("{load} didn't run"))?;
        ensure!(status == "0", "{load} ended with status {status}");
        let ns = value("time", load).and_then(|ns| ns.parse().ok());
        times.insert(load, ns.with_context(|| format!("{load} has no time"))?);
    }
    Ok(times)
}

/// The exits while each load ran.
fn exits_of(run: &Run) -> Exits {
    let count = |(load, _)| {
        let counts = run.windows.get(&format!("{ROUND}{load}"));
        (load, counts.map_or(0, |counts| counts.exits.values().sum()))
    };
    LOADS.into_iter().map(count).collect()
}

/// The results, for people: a line a load, of times of the machine's own and of exits.
fn table(measured: &[Measured]) -> String {
    let mut text = format!("{:9} {:>13}", "", "bare, instr");
    for of in measured.iter().skip(1) {
        text += &format!(" {:>28}", of.system.label());
    }
    text += "   limit\n";
    text += &format!("{:23}", "");
    for _ in measured.iter().skip(1) {
        text += &format!(" {:>17} {:>10}", "÷ bare", "exits");
    }
    text += "\n";
    for (load, limit) in LOADS {
        let time = |of: &Measured| of.times.get(load).copied().unwrap_or(f64::NAN);
        let bare = measured.first().map_or(f64::NAN, time);
        text += &format!("{load:9} {bare:13.0}");
        let mut missed = false;
        for of in measured.iter().skip(1) {
            let ratio = time(of) / bare;
            missed |= ratio > limit && !of.system.is_kvm();
            let exits = of.exits.get(load).copied().unwrap_or(0);
            text += &format!(" {ratio:17.3} {exits:10}");
        }
        if limit.is_finite() {
            text += &format!("   {limit}");
        }
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
        let good = times(&run(&facts("", "0"))).unwrap();
        assert_eq!(good.len(), LOADS.len());
        assert_eq!(good["hash"], 100.0);
        assert!(times(&run(&facts("fork", "0"))).is_err());
        assert!(times(&run(&facts("", "1"))).is_err());
    }

    #[test]
    fn a_limit_that_is_missed_is_marked() {
        let of = |system: System, ns: f64| Measured {
            system,
            times: Times::from(LOADS.map(|(load, _)| (load, ns))),
            exits: Exits::from(LOADS.map(|(load, _)| (load, 77))),
        };
        let line = |ours: f64| {
            let systems = [
                of(System::Bare, 100.0),
                of(System::Paravirtual, ours),
                of(System::Kvm, 300.0),
            ];
            table(&systems).lines().nth(2).unwrap().to_owned()
        };
        assert!(line(102.0).ends_with("missed"), "{}", line(102.0));
        assert!(line(101.0).ends_with("1.01"), "{}", line(101.0));
        assert!(line(101.0).contains(" 1.010         77 "));
    }

    #[test]
    fn exits_are_those_of_the_rounds_that_count() {
        let mut run = run("");
        let exits = BTreeMap::from([("idle".to_owned(), 3), ("memory".to_owned(), 4)]);
        let counts = Counts {
            exits,
            ..Counts::default()
        };
        run.windows.insert("then-fork".to_owned(), counts);
        let exits = exits_of(&run);
        assert_eq!((exits["fork"], exits["exec"]), (7, 0));
    }
}
