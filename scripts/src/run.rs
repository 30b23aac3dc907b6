//! `cargo xtask run`: the hypervisor and its VMs, on this terminal.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use clap::Args;
use hv::platform::board::Board;
use tempfile::NamedTempFile;

use crate::context::Context;
use crate::guest::images::{self, Image};
use crate::guest::machine::{self, Machine};
use crate::hint::failure;
use crate::hypervisor::Hypervisor;
use crate::image;
use crate::image::boot::{self, Disk};
use crate::qemu::{Qemu, Timing};
use crate::setup;
use crate::suite::WITH_LVZ;
use crate::vm::{Bundle, OWN_MIB, Room};

/// On the bare kernel's command line: 16 CPUs share the few of this machine, and what
/// waits for its turn there must not look stuck.
const PATIENCE: &str = "watchdog_thresh=60 rcupdate.rcu_cpu_stall_timeout=120";

/// The keys that a user at the hypervisor's console needs.
const KEYS: &str = "Ctrl-A h helps, Ctrl-A x switches off; Ctrl-T x ends QEMU at once";

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
    /// Boot by way of UEFI firmware, from an image made for this.
    #[arg(long)]
    firmware: bool,
    /// Boot this image, made by `cargo xtask image`, by way of UEFI firmware.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["vm", "append", "firmware"])]
    image: Option<PathBuf>,
    /// What the firmware finds the image on.
    #[arg(long, value_enum, default_value_t = Disk::Usb)]
    disk: Disk,
    /// Start Linux on the machine itself, with KVM, instead of the hypervisor.
    #[arg(long, conflicts_with_all = ["firmware", "image"])]
    bare: bool,
    /// The same, and in it a KVM guest at once.
    #[arg(long, conflicts_with_all = ["firmware", "image"])]
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
    if let Some(path) = &options.image {
        return from_image(cx, options, path, &path.display().to_string());
    }
    setup::ensure(cx, &NEEDS)?;
    let bundle = Bundle::of_files(cx, &options.vm)?;
    let room = bundle.room(options.cpus, options.mem)?;
    let hypervisor = Hypervisor::build(cx)?;
    if options.firmware {
        let parts = image::parts(&hypervisor, Board::QemuVirt, &bundle, &options.append)?;
        let file = NamedTempFile::new_in(cx.cache.kept("runs")?)?;
        image::write(file.path(), &parts.of_a_stick())?;
        let what = format!("an image with {}", bundle.summary());
        return from_image(cx, options, file.path(), &what);
    }
    let machine = hypervisor.with_vms(&bundle, room, Timing::Threads, &options.append)?;
    let (cpus, mem) = (room.cpus, room.memory_mib);
    eprintln!(
        "Loongvisor on {cpus} emulated CPUs, {mem} MiB: {}",
        bundle.summary()
    );
    eprintln!("{KEYS}");
    finish(machine.args(["-echr", "20"]))
}

/// The image at `path`, called `what`, by way of firmware.
fn from_image(cx: &Context, options: &Options, path: &Path, what: &str) -> Result<()> {
    let vms = image::memory_of(path)?;
    setup::ensure(cx, &boot::NEEDS)?;
    let needed = u32::try_from(vms + OWN_MIB + boot::FIRMWARE_MIB);
    let needed = needed.context("the VMs want too much memory")?;
    let room = Room {
        cpus: options.cpus,
        memory_mib: options.mem.unwrap_or(needed.next_multiple_of(256)),
    };
    let (cpus, mem) = (room.cpus, room.memory_mib);
    eprintln!("{what}, by UEFI firmware, on {cpus} emulated CPUs, {mem} MiB");
    eprintln!("{KEYS}");
    let machine = boot::machine(cx, WITH_LVZ, room, Timing::Threads, path, options.disk);
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
