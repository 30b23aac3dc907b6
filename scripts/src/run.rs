//! `cargo xtask run`: the machine, on this terminal.

use anyhow::Result;
use clap::Args;

use crate::context::Context;
use crate::guest::images::Image;
use crate::guest::machine::{Machine, NEEDS};
use crate::hint::failure;
use crate::qemu::Timing;
use crate::setup;

/// On the kernel's command line: 16 CPUs share the few of this machine, and what waits
/// for its turn there must not look stuck.
const PATIENCE: &str = "watchdog_thresh=60 rcupdate.rcu_cpu_stall_timeout=120";

/// What the machine is like.
#[derive(Debug, Args)]
pub struct Options {
    /// How many CPUs it has.
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=64))]
    cpus: u32,
    /// How much memory it has, in MiB.
    #[arg(long, default_value_t = 4096, value_parser = clap::value_parser!(u32).range(2048..=262_144))]
    mem: u32,
    /// Start a KVM guest at once.
    #[arg(long)]
    kvm_guest: bool,
}

/// Boots the machine on this terminal and waits until it ends.
///
/// # Errors
/// Something it needs can't be set up, or QEMU fails.
pub fn run(cx: &Context, options: &Options) -> Result<()> {
    setup::ensure(cx, &NEEDS)?;
    let start = if options.kvm_guest {
        " start=kvm-guest"
    } else {
        ""
    };
    let machine = Machine {
        cpus: options.cpus,
        memory_mib: options.mem,
        timing: Timing::Threads,
        lvz: true,
        image: Image::KvmHost,
        append: format!("{PATIENCE}{start}"),
    };
    let (cpus, mem) = (options.cpus, options.mem);
    eprintln!(
        "Linux on {cpus} emulated CPUs with LVZ, {mem} MiB of memory; Ctrl-A x leaves, Ctrl-A h helps"
    );
    let status = machine.qemu(cx, &machine.image.path(cx)).on_terminal()?;
    if status.success() {
        return Ok(());
    }
    Err(failure(
        format!("QEMU ended with {status}"),
        "see what it printed above",
    ))
}
