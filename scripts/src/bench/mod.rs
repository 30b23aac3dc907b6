//! `cargo xtask bench`: the measurements, and the one list they stand in.

pub mod exits;
pub mod futex_wake;
mod guest;
mod latency;
mod lvz;
pub mod systems;
pub mod trace;

use std::ops::Range;
use std::path::PathBuf;

use anyhow::Result;
use clap::Args;

use self::systems::System;
use crate::context::Context;
use crate::hint::failure;
use crate::setup;

/// How to measure, and where to write the results. Not all measurements use all.
#[derive(Debug, Default, Args)]
pub struct Options {
    /// Write the figures to this file too.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Draw the distribution into this file.
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
    /// Write the initramfs that measures on a board to this file, and measure nothing.
    #[arg(long, value_name = "FILE")]
    pub initramfs: Option<PathBuf>,
    /// Take the figures from this file, which --json wrote, and measure nothing.
    #[arg(long, value_name = "FILE", conflicts_with = "json")]
    pub from: Option<PathBuf>,
    /// The first seed of deterministic runs.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// How many seeds, instead of 5, or of 3 in `guest`.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1000))]
    pub seeds: Option<u64>,
    /// Write the counts anew that a test compares with.
    #[arg(long)]
    pub renew: bool,
    /// Repeats with each seed.
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub repeats: u32,
    /// Rounds of the program that counts exits, with each seed.
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub rounds: u32,
    /// Only these systems, beside the bare machine: pv, native, kvm-pv, kvm.
    #[arg(long = "system", value_name = "NAME", value_parser = systems::named)]
    pub systems: Vec<System>,
    /// The cost model's clock, instead of a 3C5000's.
    #[arg(long, value_name = "N")]
    pub clock_mhz: Option<f64>,
    /// The cost model's instructions a cycle, instead of the calibrated.
    #[arg(long, value_name = "N")]
    pub ipc: Option<f64>,
    /// The cost model's cycles an exit, instead of the calibrated.
    #[arg(long, value_name = "N")]
    pub exit_cycles: Option<f64>,
}

impl Options {
    /// The seeds of deterministic runs, `usual` of them where the command line doesn't say.
    pub fn seeds(&self, usual: u64) -> Range<u64> {
        self.seed..self.seed.saturating_add(self.seeds.unwrap_or(usual))
    }

    /// The systems to measure, in the table's order; the bare machine is always one.
    pub fn systems(&self) -> Vec<System> {
        let wanted = |system: &System| {
            self.systems.is_empty() || *system == System::Bare || self.systems.contains(system)
        };
        System::ALL.into_iter().filter(wanted).collect()
    }
}

/// One measurement.
pub trait Bench {
    /// Its name, an argument of `cargo xtask bench`.
    fn name(&self) -> &'static str;

    /// What it measures, in a few words.
    fn about(&self) -> &'static str;

    /// The setup steps that must be done before.
    fn needs(&self) -> Vec<&'static str>;

    /// Measures, prints a table, and returns the figures.
    ///
    /// # Errors
    /// It can't be measured.
    fn run(&self, cx: &Context, options: &Options) -> Result<serde_json::Value>;
}

/// All measurements; a new one is a line here.
pub fn benches() -> Vec<Box<dyn Bench>> {
    vec![
        Box::new(exits::Exits),
        Box::new(lvz::Lvz),
        Box::new(futex_wake::FutexWake),
        Box::new(futex_wake::baseline::Renew),
        Box::new(guest::Guest),
        Box::new(latency::Latency),
    ]
}

/// Runs the measurement `name`; its figures go to a file too, if one is named.
///
/// # Errors
/// There is no such measurement, it fails, or the file can't be written.
pub fn run(cx: &Context, name: &str, options: &Options) -> Result<()> {
    let benches = benches();
    let found = benches.iter().find(|bench| bench.name() == name);
    let bench = found.ok_or_else(|| {
        failure(
            format!("there is no measurement `{name}`"),
            "`cargo xtask bench --list` names them",
        )
    })?;
    setup::ensure(cx, &bench.needs())?;
    let figures = bench.run(cx, options)?;
    match &options.json {
        Some(path) => crate::cache::write_atomically(path, &serde_json::to_vec_pretty(&figures)?),
        None => Ok(()),
    }
}

/// Prints the measurements.
pub fn list() {
    for bench in benches() {
        println!("{:13} {}", bench.name(), bench.about());
    }
}
