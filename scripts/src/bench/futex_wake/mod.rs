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

pub mod baseline;
mod doze;
mod figures;
mod goals;
mod model;
pub mod part;
mod plot;
mod results;
mod samples;
mod table;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use self::figures::Figures;
pub use self::results::Results;
pub use self::samples::Summary;
use super::systems::{CPUS, Lab};
use super::{Bench, Options};
use crate::bare;
use crate::cache::write_atomically;
use crate::context::Context;
use crate::guest::images::Image;
use crate::guest::job::Job;
use crate::progress::Progress;
use crate::run::NEEDS;
use crate::step::Stamp;

/// Its name.
const NAME: &str = "futex-wake";

/// How many seeds.
const SEEDS: u64 = 5;

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
        if let Some(path) = &options.initramfs {
            write_atomically(path, &board(cx)?)?;
            println!("{}: boot a LoongArch kernel with it", path.display());
            return Ok(Value::Null);
        }
        let (figures, doze) = match &options.from {
            Some(path) => figures::read(path)?,
            None => (measure(cx, options)?, doze::measure(cx, options.seed)?),
        };
        let results = Results::of(figures, options)?.beside(doze);
        print!("{}", results.table());
        if let Some(path) = &options.svg {
            write_atomically(path, results.svg()?.as_bytes())?;
        }
        Ok(results.json(cx))
    }
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
    let seeds = options.seeds(SEEDS);
    let total = systems.len() as u64 * (seeds.end - seeds.start);
    let mut task = Progress::detect().task(NAME);
    let mut done = 0;
    let mut all = Vec::new();
    for system in systems {
        let mut runs = Vec::new();
        for seed in seeds.clone() {
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
        let expected = u64::from(options.repeats) * (seeds.end - seeds.start);
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
    part(cx, &variables)
}

/// The guest's part, with `variables` set.
fn part(cx: &Context, variables: &[(&str, String)]) -> Result<Job> {
    let program = std::fs::read(bare::build(cx, "wake")?)?;
    Job::new(cx, "futex-wake.sh", variables)?.with_file("wake", program)
}

/// An initramfs that measures on whatever machine it is booted, in a VM or not, prints
/// the line of JSON and gives a shell.
///
/// # Errors
/// A part of it can't be built or read.
pub fn board(cx: &Context) -> Result<Vec<u8>> {
    let mut initramfs = part(cx, &[("HOLD", "yes".to_owned())])?.bytes();
    initramfs.extend(std::fs::read(Image::Bench.path(cx))?);
    Ok(initramfs)
}
