//! `cargo xtask bench futex-wake`: what a wake-up costs in each system.
//!
//! Debian's kernel and Debian's perf on 16 CPUs, once for each column and seed, on the
//! same QEMU with one instruction a virtual nanosecond. The clock adds up the
//! instructions of all CPUs: a time is work done, not time elapsed on parallel
//! hardware. What perf times are the calls that wake; what follows on the woken CPUs is
//! outside. So a program of ours, tests/wake, does the same again with threads that live
//! on, and what it takes of all CPUs is counted at the hypervisor's border (`trace`),
//! with the wakes and without: the difference, by the wake, is what a wake takes until
//! the woken thread sleeps again. What exits would add on silicon is a model, and says so.

mod figures;
mod goals;
mod model;
mod part;
mod plot;
mod samples;
mod table;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use self::figures::Figures;
use self::model::{CLOCK_MHZ, MEASURED, Model, Reading};
use super::systems::{CPUS, Lab, System};
use super::{Bench, Options};
use crate::bare;
use crate::cache::write_atomically;
use crate::context::Context;
use crate::guest::job::Job;
use crate::progress::Progress;
use crate::run::NEEDS;
use crate::step::Stamp;

/// Its name.
const NAME: &str = "futex-wake";

/// The measurement `futex-wake`.
pub struct FutexWake;

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
        let figures = measure(cx, options)?;
        let models = models(&figures, options)?;
        print!("{}", table::text(&figures, models));
        if let Some(path) = &options.svg {
            write_atomically(path, plot::svg(&figures)?.as_bytes())?;
        }
        Ok(document(cx, &figures, models, options))
    }
}

/// Every figure, as JSON: nothing in it depends on when or where it was measured.
fn document(cx: &Context, figures: &[Figures], models: [Model; 2], options: &Options) -> Value {
    let modelled = |reading: Reading, model: Model| {
        let ms = figures.iter().map(|of| model.ms(of.counts(reading)));
        json!({ "constants": model, "ms": ms.collect::<Vec<_>>() })
    };
    let [all, waker] = models;
    json!({
        "cpus": CPUS,
        "seeds": options.seeds().collect::<Vec<_>>(),
        "repeats": options.repeats,
        "rounds": options.rounds,
        "versions": versions(cx),
        "columns": figures,
        "models": {
            "exits_of_all_cpus": modelled(Reading::All, all),
            "exits_of_the_waker": modelled(Reading::Waker, waker),
        },
        "hardware_ms": MEASURED,
    })
}

/// What was measured with: the emulator and the packages.
fn versions(cx: &Context) -> Vec<String> {
    let results = ["qemu", crate::guest::packages::STEP]
        .into_iter()
        .filter_map(|step| Stamp::read(&cx.cache, step));
    results.map(|stamp| stamp.result).collect()
}

/// Runs every column with every seed.
///
/// # Errors
/// A run doesn't come to its end, or measures nothing.
pub fn measure(cx: &Context, options: &Options) -> Result<Vec<Figures>> {
    let lab = Lab::new(cx)?;
    let job = job(cx, options)?;
    let systems = options.systems();
    let total = systems.len() as u64 * options.seeds;
    let mut task = Progress::detect().task(NAME);
    let mut done = 0;
    let mut all = Vec::new();
    for system in systems {
        let mut runs = Vec::new();
        for seed in options.seeds() {
            let label = system.label();
            let mut stage =
                |what: &str| task.count(done, total, &format!("{label}, seed {seed}: {what}"));
            stage("boots");
            let mut see = |line: &str| {
                if let Some((_, what)) = line.split_once("stage ") {
                    stage(what);
                }
            };
            let run = system.run(&lab, NAME, seed, &job, &mut see)?;
            runs.push(run);
            done += 1;
        }
        let figures = Figures::of(system, &runs).with_context(|| system.label())?;
        let expected = u64::from(options.repeats) * options.seeds;
        ensure!(
            figures.perf_ms.len() as u64 == expected,
            "{}: {} of {expected} repeats were measured",
            system.label(),
            figures.perf_ms.len(),
        );
        all.push(figures);
    }
    task.finish(&format!("{total} runs"));
    Ok(all)
}

/// What runs in each system.
fn job(cx: &Context, options: &Options) -> Result<Job> {
    let variables = [
        ("THREADS", CPUS.to_string()),
        ("REPEATS", options.repeats.to_string()),
        ("ROUNDS", options.rounds.to_string()),
    ];
    let program = std::fs::read(bare::build(cx, "wake")?)?;
    Job::new(cx, "futex-wake.sh", &variables)?.with_file("wake", program)
}

/// What the model is read with.
const READINGS: [Reading; 2] = [Reading::All, Reading::Waker];

/// The cost models: calibrated where KVM was measured, but for what the command line
/// gives.
fn models(figures: &[Figures], options: &Options) -> Result<[Model; 2]> {
    let find = |wanted: System| figures.iter().find(|of| of.system == wanted);
    let clock = options.clock_mhz.unwrap_or(CLOCK_MHZ);
    let bare = find(System::Bare).context("the bare machine wasn't measured")?;
    let kvm = find(System::KvmParavirtual).zip(find(System::Kvm));
    Ok(READINGS.map(|reading| {
        let bare = bare.counts(reading);
        let calibrated = match kvm {
            Some((with, without)) => {
                let kvm = [with, without].map(|of| of.counts(reading));
                Model::calibrated(bare, kvm, clock)
            }
            None => Model::with_exits_as_before(bare, clock),
        };
        Model {
            ipc: options.ipc.unwrap_or(calibrated.ipc),
            exit_cycles: options.exit_cycles.unwrap_or(calibrated.exit_cycles),
            ..calibrated
        }
    }))
}

#[cfg(test)]
mod tests {
    use super::figures::tests::figures;
    use super::*;

    #[test]
    fn the_command_line_overrides_the_calibration() {
        let all = System::ALL.map(|system| figures(system, &[0.02], 3.0));
        let options = Options {
            exit_cycles: Some(7.0),
            clock_mhz: Some(1000.0),
            ..Options::default()
        };
        let [found, _] = models(&all, &options).unwrap();
        assert_eq!((found.exit_cycles, found.clock_mhz), (7.0, 1000.0));
        assert!(models(&all[1..], &options).is_err());
    }

    #[test]
    fn without_kvm_an_exit_costs_what_it_did() {
        let bare = [figures(System::Bare, &[0.02], 0.0)];
        let [found, _] = models(&bare, &Options::default()).unwrap();
        assert_eq!(found.exit_cycles, model::EXIT_CYCLES);
    }
}
