//! `cargo xtask`: the project's host tool.
//!
//! It sets a machine up, runs the hypervisor, tests and measures. `setup` is what
//! the other commands call first, so a fresh clone needs no other preparation.

mod apt;
mod bare;
mod bench;
mod cache;
mod cli;
mod context;
mod guest;
mod hash;
mod hint;
mod hypervisor;
mod image;
mod process;
mod progress;
mod qemu;
mod run;
mod setup;
mod step;
mod suite;
mod test;
mod vm;

fn main() -> std::process::ExitCode {
    cli::main()
}
