//! `cargo xtask run`: the hypervisor and its VMs, on this terminal.

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;

use crate::context::Context;
use crate::guest::images::{self, Image};
use crate::guest::machine::{self, Machine};
use crate::hint::failure;
use crate::hypervisor::Hypervisor;
use crate::qemu::{Qemu, Timing};
use crate::setup;
use crate::vm::Bundle;

/// On the bare kernel's command line: 16 CPUs share the few of this machine, and what
/// waits for its turn there must not look stuck.
const PATIENCE: &str = "watchdog_thresh=60 rcupdate.rcu_cpu_stall_timeout=120";

/// The VM that is started if none is named.
const DEFAULT_VM: &str = "boards/qemu-virt/vm/debian.toml";

/// Memory of the machine that runs Linux without the hypervisor, in MiB: what it has,
/// and the least that it boots with.
const BARE_MIB: u32 = 4096;
const LEAST_BARE_MIB: u32 = 2048;

/// The setup steps that the hypervisor with Linux guests needs.
pub const NEEDS: [&str; 3] = ["target", "qemu", images::STEP];

/// What is to run, and what the machine is like.
#[derive(Debug, Args)]
pub struct Options {
    /// A VM to start, as this TOML file describes it; may be given several times.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["bare", "kvm_guest"])]
    vm: Vec<PathBuf>,
    /// How many CPUs the machine has.
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=64))]
    cpus: u32,
    /// How much memory it has, in MiB; else what the VMs need.
    #[arg(long, value_parser = clap::value_parser!(u32).range(256..=262_144))]
    mem: Option<u32>,
    /// More of the hypervisor's command line, such as `log=debug`.
    #[arg(long, default_value = "", conflicts_with_all = ["bare", "kvm_guest"])]
    append: String,
    /// Start Linux on the machine itself, with KVM, instead of the hypervisor.
    #[arg(long)]
    bare: bool,
    /// The same, and in it a KVM guest at once.
    #[arg(long)]
    kvm_guest: bool,
}

/// Boots the machine on this terminal and waits until it ends.
///
/// # Errors
/// Something it needs can't be set up, a VM's file is at fault, or QEMU fails.
pub fn run(cx: &Context, options: &Options) -> Result<()> {
    if options.bare || options.kvm_guest {
        return bare(cx, options);
    }
    setup::ensure(cx, &NEEDS)?;
    let files = match options.vm.as_slice() {
        [] => vec![cx.repo(DEFAULT_VM)],
        files => files.to_vec(),
    };
    let bundle = Bundle::read(cx, &files)?;
    let room = bundle.room(options.cpus, options.mem)?;
    let hypervisor = Hypervisor::build(cx)?;
    let machine = hypervisor.with_vms(&bundle, room, Timing::Threads, &options.append)?;
    let (cpus, mem) = (room.cpus, room.memory_mib);
    eprintln!(
        "Loongvisor on {cpus} emulated CPUs, {mem} MiB: {}",
        bundle.summary()
    );
    eprintln!("Ctrl-A h helps, Ctrl-A x switches off; Ctrl-T x ends QEMU at once");
    finish(machine.args(["-echr", "20"]))
}

/// Linux on the machine itself.
fn bare(cx: &Context, options: &Options) -> Result<()> {
    setup::ensure(cx, &machine::NEEDS)?;
    let start = if options.kvm_guest {
        " start=kvm-guest"
    } else {
        ""
    };
    let memory_mib = options.mem.unwrap_or(BARE_MIB);
    if memory_mib < LEAST_BARE_MIB {
        let what = format!("Linux on the machine itself doesn't fit into {memory_mib} MiB");
        return Err(failure(
            what,
            format!("give it --mem {LEAST_BARE_MIB} or more"),
        ));
    }
    let machine = Machine {
        cpus: options.cpus,
        memory_mib,
        timing: Timing::Threads,
        lvz: true,
        image: Image::KvmHost,
        append: format!("{PATIENCE}{start}"),
    };
    let (cpus, mem) = (machine.cpus, machine.memory_mib);
    eprintln!(
        "Linux on {cpus} emulated CPUs with LVZ, {mem} MiB of memory; Ctrl-A x leaves, Ctrl-A h helps"
    );
    finish(machine.qemu(cx, &machine.image.path(cx)))
}

/// Runs `machine` on this terminal until it ends.
fn finish(machine: Qemu) -> Result<()> {
    let status = machine.on_terminal()?;
    if status.success() {
        return Ok(());
    }
    Err(failure(
        format!("QEMU ended with {status}"),
        "see what it printed above",
    ))
}
