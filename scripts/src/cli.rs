//! The command line of `cargo xtask`.

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

use crate::context::Context;
use crate::hint::report;
use crate::{bench, image, run, setup, step, test};

/// Loongvisor's host tool: sets up, runs, tests and measures.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Make everything that the other commands need (they do so by themselves).
    Setup {
        /// Only these steps, and what they need.
        names: Vec<String>,
        /// List the steps and their state instead.
        #[arg(long)]
        list: bool,
    },
    /// Boot the hypervisor on this terminal, with Linux or other VMs on it.
    Run(run::Options),
    /// Make an image for a board: a USB stick, or files for an EFI partition.
    Image(image::Options),
    /// Test everything, or the named parts.
    Test {
        /// Only these parts.
        names: Vec<String>,
        /// Run the long form of the parts that have one.
        #[arg(long)]
        long: bool,
        /// List the parts and their steps instead.
        #[arg(long)]
        list: bool,
        /// The seed of deterministic runs, to replay one; each part has its own otherwise.
        #[arg(long)]
        seed: Option<u64>,
        /// Only the steps with this in their name; --list shows them.
        #[arg(long, value_name = "TEXT")]
        only: Option<String>,
    },
    /// Measure.
    Bench {
        /// What to measure.
        #[arg(required_unless_present = "list")]
        name: Option<String>,
        /// List the measurements instead.
        #[arg(long)]
        list: bool,
        #[command(flatten)]
        options: bench::Options,
    },
}

/// Runs the command that the arguments name.
pub fn main() -> ExitCode {
    match dispatch(Cli::parse().command) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprint!("{}", report(&error));
            ExitCode::FAILURE
        }
    }
}

/// Runs `command`; returns whether what it tested passed.
fn dispatch(command: Command) -> Result<bool> {
    let cx = Context::from_env()?;
    match command {
        Command::Setup { list: true, .. } => step::list(&cx, &setup::steps())?,
        Command::Setup { names, .. } => setup::run(&cx, &names)?,
        Command::Run(options) => run::run(&cx, &options)?,
        Command::Image(options) => image::run(&cx, &options)?,
        Command::Test { list: true, .. } => test::list(),
        Command::Test {
            names,
            long,
            seed,
            only,
            ..
        } => return test::run(&cx, &names, &test::Options { long, seed, only }),
        Command::Bench {
            name: Some(name),
            options,
            ..
        } => bench::run(&cx, &name, &options)?,
        Command::Bench { .. } => bench::list(),
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
