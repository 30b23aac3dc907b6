//! Images that boot, unattended, to the Linux guest's shell.

use std::fs;

use anyhow::{Context as _, Result, ensure};
use hv::platform::board::Board;

use super::Stage;
use crate::image::boot::{self, Disk};
use crate::image::content::{self, Parts};
use crate::image::disk::{self, File};
use crate::setup::firmware::{GRUB, PackageFile, SYSTEMD_BOOT};
use crate::suite::WITH_LVZ;
use crate::test::linux::session::Session;
use crate::test::{Options, Tally};

/// Where the test's GRUB looks for its menu.
const MENU: &str = "boot/grub/grub.cfg";

/// Who starts the hypervisor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Loader {
    /// The firmware, which finds it where removable disks have it.
    Firmware,
    /// Debian's GRUB, with the bundle as initrd.
    Grub,
    /// Debian's GRUB, which only starts it.
    Chain,
    /// Debian's systemd-boot, with the bundle as initrd.
    SystemdBoot,
}

type Case = (Disk, Loader, u32);

/// What the short form boots.
const SHORT: [Case; 3] = [
    (Disk::Virtio, Loader::Firmware, 1),
    (Disk::Usb, Loader::Firmware, 16),
    (Disk::Virtio, Loader::Grub, 4),
];

/// What the long form boots besides.
const LONG: [Case; 8] = [
    (Disk::Virtio, Loader::Firmware, 4),
    (Disk::Virtio, Loader::Firmware, 16),
    (Disk::Usb, Loader::Firmware, 1),
    (Disk::Usb, Loader::Firmware, 4),
    (Disk::Usb, Loader::Grub, 1),
    (Disk::Virtio, Loader::Grub, 16),
    (Disk::Usb, Loader::Chain, 4),
    (Disk::Virtio, Loader::SystemdBoot, 4),
];

/// Runs the checks.
///
/// # Errors
/// An image can't be made.
pub fn run(stage: &Stage<'_>, options: &Options, tally: &mut Tally) -> Result<()> {
    tally.check("equal inputs give equal images", repeat(stage));
    let more: &[Case] = if options.long { &LONG } else { &[] };
    for case @ (disk, loader, cpus) in SHORT.iter().chain(more) {
        let name = format!("{cpus} CPUs, {disk:?} disk, started by {loader:?}");
        tally.check(&name, boots(stage, *case));
    }
    Ok(())
}

/// The same parts, put together twice.
fn repeat(stage: &Stage<'_>) -> Result<()> {
    let make = || -> Result<Vec<u8>> {
        let (bundle, _) = stage.linux(1)?;
        let parts = crate::image::parts(&stage.hypervisor, Board::QemuVirt, &bundle, "")?;
        disk::image(&parts.of_a_stick())
    };
    ensure!(make()? == make()?, "two images of the same VM differ");
    Ok(())
}

fn boots(stage: &Stage<'_>, (disk, loader, cpus): Case) -> Result<()> {
    let (bundle, room) = stage.linux(cpus)?;
    let parts = crate::image::parts(&stage.hypervisor, Board::QemuVirt, &bundle, "")?;
    let files = match loader {
        Loader::Firmware => parts.of_a_stick(),
        Loader::Grub => with_grub(stage, parts, 0)?,
        Loader::Chain => with_grub(stage, parts, 1)?,
        Loader::SystemdBoot => with_loader(stage, parts.loose(), &SYSTEMD_BOOT)?,
    };
    let image = stage.image(&files)?;
    let machine = boot::machine(stage.cx, WITH_LVZ, room, stage.timing, &image, disk);
    let mut session = Session::start(&machine)?;
    if matches!(loader, Loader::Grub | Loader::Chain) {
        session.wait_for("Booting `Loongvisor")?;
    }
    // By MCFG: Debian's firmware publishes no device tree.
    session.wait_for("PCI configuration space at 0x20000000 to ")?;
    session.log_in()?;
    let count = session.line("nproc")?;
    ensure!(count == cpus.to_string(), "{count} CPUs");
    session.keys("poweroff -f\n")?;
    session.ended()
}

/// The files for an existing EFI partition, on one where GRUB is; `entry` of them is
/// what GRUB starts.
fn with_grub(stage: &Stage<'_>, parts: Parts, entry: usize) -> Result<Vec<File>> {
    let mut files = parts.loose();
    let menu = files.iter().find(|file| file.path == content::GRUB);
    let menu = &menu.context("there is an entry for GRUB")?.content;
    let text = format!(
        "set timeout=0\nset default={entry}\n{}",
        String::from_utf8_lossy(menu)
    );
    files.push(File {
        path: MENU,
        content: text.into_bytes(),
    });
    with_loader(stage, files, &GRUB)
}

/// `files` and `loader`, where firmware looks on a removable disk.
fn with_loader(stage: &Stage<'_>, mut files: Vec<File>, loader: &PackageFile) -> Result<Vec<File>> {
    files.push(File {
        path: content::REMOVABLE,
        content: fs::read(loader.path(stage.cx))?,
    });
    Ok(files)
}
