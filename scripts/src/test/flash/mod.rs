//! Part `flash`: images for boards, booted by UEFI firmware that no one here wrote.
//!
//! The images are those that `cargo xtask image` makes, the firmware is Debian's. All
//! runs are deterministic but for the moment that a key is pressed.

mod boots;
mod elsewhere;
mod refusals;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use tempfile::TempDir;

use super::{Options, Part, Tally, names};
use crate::context::Context;
use crate::guest::images::{self, Image};
use crate::hypervisor::Hypervisor;
use crate::image::disk::File;
use crate::image::{self, boot};
use crate::qemu::Timing;
use crate::setup::firmware::{FIRMWARE, GRUB, SYSTEMD_BOOT};
use crate::vm::{Bundle, Files, LinuxVm, Room};

/// The part `flash`.
pub struct Flash;

/// How long firmware may take to get to a line, on a machine that is busy.
const LIMIT: Duration = Duration::from_secs(240);

/// A step of this part.
type Step = fn(&Stage<'_>, &Options, &mut Tally) -> Result<()>;

/// The steps, by the names that `--only` knows.
const STEPS: [(&str, Step); 3] = [
    ("boots", boots::run),
    ("elsewhere", |stage, _, tally| {
        elsewhere::run(stage, tally);
        Ok(())
    }),
    ("refusals", refusals::run),
];

impl Part for Flash {
    fn name(&self) -> &'static str {
        "flash"
    }

    fn about(&self) -> &'static str {
        "images for boards, booted by UEFI firmware"
    }

    fn steps(&self) -> Vec<&'static str> {
        names(&STEPS)
    }

    fn needs(&self) -> Vec<&'static str> {
        let loaders = [FIRMWARE, GRUB, SYSTEMD_BOOT].map(|file| file.step());
        [&["target", "qemu", images::STEP][..], &loaders].concat()
    }

    fn run(&self, cx: &Context, options: &Options, tally: &mut Tally) -> Result<()> {
        let stage = Stage::new(cx, options)?;
        options.run_steps(&STEPS, |step| step(&stage, options, tally))
    }
}

/// What every check of this part works with.
struct Stage<'a> {
    cx: &'a Context,
    hypervisor: Hypervisor,
    vms: Files,
    folder: TempDir,
    timing: Timing,
}

impl<'a> Stage<'a> {
    fn new(cx: &'a Context, options: &Options) -> Result<Self> {
        Ok(Self {
            cx,
            hypervisor: Hypervisor::build(cx)?,
            vms: Files::new(cx, Image::Shell, None)?,
            folder: TempDir::with_prefix("loongvisor-")?,
            timing: Timing::Deterministic {
                seed: options.seed.unwrap_or(1),
            },
        })
    }

    /// A Linux VM of as many vCPUs as the machine has CPUs, and a machine with room
    /// for it and the firmware.
    fn linux(&self, cpus: u32) -> Result<(Bundle, Room)> {
        let vms = [LinuxVm::new("board", cpus, 512)];
        let bundle = Bundle::read(self.cx, &self.vms.of(&vms)?)?;
        let memory_mib = u32::try_from(bundle.needs_mib() + boot::FIRMWARE_MIB)?;
        let room = bundle.room(cpus, Some(memory_mib.next_multiple_of(256)))?;
        Ok((bundle, room))
    }

    /// An image of `files`, that lasts as long as this does.
    fn image(&self, files: &[File]) -> Result<PathBuf> {
        let path = self.folder.path().join("image");
        image::write(&path, files)?;
        Ok(path)
    }
}
