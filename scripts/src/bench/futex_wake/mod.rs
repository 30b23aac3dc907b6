//! `cargo xtask bench futex-wake`: what a wake-up costs in each system.
//!
//! Debian's kernel and Debian's perf on 16 CPUs, once for each column and seed, on the
//! same QEMU with one instruction a virtual nanosecond. The clock adds up the
//! instructions of all CPUs: a time is work done, not time elapsed on parallel
//! hardware. What exits would add on silicon is a model, and says so; its exits are
//! those of whole repeats, so it puts each of them too low.

mod model;
mod plot;
mod samples;

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anyhow::{Context as _, Result, ensure};
use serde::Serialize;
use serde_json::{Value, json};

use self::model::{Counts, MEASURED, Model};
use self::samples::{Summary, times};
use super::systems::{CPUS, Lab, System};
use super::{Bench, Options};
use crate::cache::write_atomically;
use crate::context::Context;
use crate::guest::job::Job;
use crate::progress::Progress;
use crate::run::NEEDS;

/// Its name.
const NAME: &str = "futex-wake";

/// The measurement `futex-wake`.
pub struct FutexWake;

/// A column's figures over all seeds.
#[derive(Debug, Serialize)]
struct Figures {
    system: System,
    /// Milliseconds of every wake, in the order of seeds and repeats.
    ms: Vec<f64>,
    summary: Summary,
    /// Exits of all vCPUs a repeat, by reason; the start and the end of the threads that
    /// a repeat wakes are in it, which perf doesn't time. `None` where nobody counts.
    exits: Option<BTreeMap<String, f64>>,
}

impl Bench for FutexWake {
    fn name(&self) -> &'static str {
        NAME
    }

    fn about(&self) -> &'static str {
        "perf bench futex wake on 16 CPUs: bare metal, and guests"
    }

    fn needs(&self) -> Vec<&'static str> {
        NEEDS.to_vec()
    }

    fn run(&self, cx: &Context, options: &Options) -> Result<Value> {
        let lab = Lab::new(cx)?;
        let figures = System::ALL
            .into_iter()
            .map(|system| measure(cx, &lab, system, options))
            .collect::<Result<Vec<_>>>()?;
        let model = model(&figures, options)?;
        print!("{}", table(&figures, model));
        if let Some(path) = &options.svg {
            let curves: Vec<_> = figures
                .iter()
                .map(|of| (of.system.label(), of.ms.as_slice()))
                .collect();
            write_atomically(path, plot::svg(&curves)?.as_bytes())?;
        }
        Ok(json!({
            "cpus": CPUS,
            "seeds": options.seeds().collect::<Vec<_>>(),
            "repeats": options.repeats,
            "columns": figures,
            "model": model,
            "model_ms": figures.iter().map(|of| of.counts().map(|c| model.ms(c))).collect::<Vec<_>>(),
            "hardware_ms": MEASURED,
        }))
    }
}

/// Runs `column` with every seed.
fn measure(cx: &Context, lab: &Lab<'_>, system: System, options: &Options) -> Result<Figures> {
    let seeds: Vec<u64> = options.seeds().collect();
    let variables = [
        ("THREADS", CPUS.to_string()),
        ("REPEATS", options.repeats.to_string()),
    ];
    let job = Job::new(cx, "futex-wake.sh", &variables)?;
    let mut task = Progress::detect().task(system.label());
    let mut ms = Vec::new();
    let mut exits = BTreeMap::new();
    for (done, &seed) in seeds.iter().enumerate() {
        task.count(done as u64, seeds.len() as u64, &format!("(seed {seed})"));
        let run = system.run(lab, NAME, seed, &job)?;
        let times = times(&run.report.text, CPUS);
        ensure!(
            times.len() == options.repeats as usize,
            "{}, seed {seed}: {} of {} wakes were measured",
            system.label(),
            times.len(),
            options.repeats
        );
        ms.extend(times);
        for (reason, count) in run.exits {
            *exits.entry(reason).or_default() += count as f64;
        }
    }
    let exits = (system.is_kvm() || system == System::Bare).then(|| {
        let each = exits.into_iter();
        let a_repeat = each.map(|(reason, count): (_, f64)| (reason, count / ms.len() as f64));
        a_repeat.filter(|(_, count)| *count > 0.0).collect()
    });
    task.finish(&format!("{} wakes", ms.len()));
    let summary = Summary::of(&ms).context("no wake was measured")?;
    Ok(Figures {
        system,
        ms,
        summary,
        exits,
    })
}

impl Figures {
    /// Instructions of the cleanest wake, and exits of an average repeat; `None` where
    /// they aren't counted.
    fn counts(&self) -> Option<Counts> {
        Some(Counts {
            // A virtual nanosecond is an instruction.
            instructions: self.summary.minimum * 1e6,
            exits: self.exits.as_ref()?.values().fold(0.0, |sum, n| sum + n),
        })
    }
}

/// The cost model: calibrated, but for what the command line gives.
fn model(figures: &[Figures], options: &Options) -> Result<Model> {
    let counts = |wanted: System| {
        let found = figures.iter().find(|of| of.system == wanted);
        let counts = found.and_then(Figures::counts);
        counts.context("a column is missing")
    };
    let kvm = [counts(System::KvmParavirtual)?, counts(System::Kvm)?];
    let calibrated = Model::calibrated(counts(System::Bare)?, kvm);
    Ok(Model {
        ipc: options.ipc.unwrap_or(calibrated.ipc),
        exit_cycles: options.exit_cycles.unwrap_or(calibrated.exit_cycles),
    })
}

/// The results, for people.
fn table(figures: &[Figures], model: Model) -> String {
    let mut text = format!(
        "{:28} {:>8} {:>8} {:>8} {:>8} {:>7} {:>8} {:>7} {:>9}\n",
        "ms, virtual", "min", "quarter", "median", "3/4", "÷ bare", "+ instr", "exits", "model ms"
    );
    let bare = figures.first().map_or(f64::NAN, |of| of.summary.minimum);
    for of in figures {
        let (s, counts) = (&of.summary, of.counts());
        // Writing to a string never fails.
        let _ = writeln!(
            text,
            "{:28} {:8.4} {:8.4} {:8.4} {:8.4} {:7.2} {:8.0} {:>7} {:>9}",
            of.system.label(),
            s.minimum,
            s.lower_quartile,
            s.median,
            s.upper_quartile,
            s.minimum / bare,
            (s.minimum - bare) * 1e6,
            cell(counts.map(|counts| counts.exits), 1),
            cell(counts.map(|counts| model.ms(counts)), 4)
        );
    }
    text + &model_lines(figures, model)
}

/// A figure of the table, or a dash where there is none.
fn cell(figure: Option<f64>, digits: usize) -> String {
    figure.map_or_else(|| "–".to_owned(), |figure| format!("{figure:.digits$}"))
}

/// What the model is, and how much hangs on its least certain constant.
fn model_lines(figures: &[Figures], model: Model) -> String {
    let ratios = |model: Model| {
        let of = |of: &Figures| of.counts().map(|counts| model.ms(counts));
        let bare = figures.first().and_then(of).unwrap_or(f64::NAN);
        let all = figures.iter().map(of);
        all.map(|ms| cell(ms.map(|ms| ms / bare), 2))
            .collect::<Vec<_>>()
            .join(" ")
    };
    let mut text = format!(
        "model: cycles = instructions / {:.2} + exits × {:.0}, 2.2 GHz; an estimate, no time of hardware\n",
        model.ipc, model.exit_cycles
    );
    for factor in [0.5, 1.0, 2.0] {
        let _ = writeln!(
            text,
            "  exits at {factor} × that: ÷ bare {}",
            ratios(model.with_exits_at(factor))
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(system: System, ms: &[f64], exits: f64) -> Figures {
        Figures {
            system,
            ms: ms.to_vec(),
            summary: Summary::of(ms).unwrap(),
            exits: Some(BTreeMap::from([("all".to_owned(), exits)])),
        }
    }

    #[test]
    fn the_table_compares_with_the_first_column() {
        let all = [
            figures(System::Bare, &[0.02, 0.06], 0.0),
            figures(System::KvmParavirtual, &[0.04, 0.05], 20.0),
            figures(System::Kvm, &[0.05, 0.05], 40.0),
        ];
        let text = table(&all, model(&all, &Options::default()).unwrap());
        let row = text.lines().nth(2).unwrap();
        assert!(row.contains(" 2.00 ") && row.contains(" 20000 "), "{row}");
        assert_eq!(
            text.lines()
                .filter(|line| line.contains("exits at"))
                .count(),
            3
        );
    }

    #[test]
    fn what_is_not_counted_has_no_place_in_the_model() {
        let mut all = System::ALL.map(|system| figures(system, &[0.02], 3.0));
        all[1].exits = None;
        let text = table(&all, model(&all, &Options::default()).unwrap());
        let cells: Vec<&str> = text.lines().nth(2).unwrap().split_whitespace().collect();
        assert_eq!(cells[cells.len() - 2..], ["–", "–"]);
        assert!(text.contains("÷ bare 1.00 – 1.00"), "{text}");
    }

    #[test]
    fn the_command_line_overrides_the_calibration() {
        let all = System::ALL.map(|system| figures(system, &[0.02], 3.0));
        let options = Options {
            exit_cycles: Some(7.0),
            ..Options::default()
        };
        assert_eq!(model(&all, &options).unwrap().exit_cycles, 7.0);
        assert!(model(&all[..1], &options).is_err());
    }
}
