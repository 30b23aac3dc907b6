//! `cargo xtask bench`: the measurements, and the one list they stand in.

mod lvz;

use std::path::Path;

use anyhow::Result;

use crate::context::Context;
use crate::hint::failure;
use crate::setup;

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
    fn run(&self, cx: &Context) -> Result<serde_json::Value>;
}

/// All measurements; a new one is a line here.
pub fn benches() -> Vec<Box<dyn Bench>> {
    vec![Box::new(lvz::Lvz)]
}

/// Runs the measurement `name`; its figures go to the file `json` too, if one is named.
///
/// # Errors
/// There is no such measurement, it fails, or the file can't be written.
pub fn run(cx: &Context, name: &str, json: Option<&Path>) -> Result<()> {
    let benches = benches();
    let found = benches.iter().find(|bench| bench.name() == name);
    let bench = found.ok_or_else(|| {
        failure(
            format!("there is no measurement `{name}`"),
            "`cargo xtask bench --list` names them",
        )
    })?;
    setup::ensure(cx, &bench.needs())?;
    let figures = bench.run(cx)?;
    match json {
        Some(path) => crate::cache::write_atomically(path, &serde_json::to_vec_pretty(&figures)?),
        None => Ok(()),
    }
}

/// Prints the measurements.
pub fn list() {
    for bench in benches() {
        println!("{:8} {}", bench.name(), bench.about());
    }
}
