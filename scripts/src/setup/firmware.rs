//! Debian's UEFI firmware for QEMU's `virt` machine, and its boot loaders for LoongArch.
//!
//! Each is one file, from packages that hold no program for this machine: what
//! tries an image out before it goes to a board.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context as _, Result};

use crate::apt::{self, Kind, summary};
use crate::cache::make_folder;
use crate::context::Context;
use crate::guest::packages::SUITES;
use crate::hash::Inputs;
use crate::step::{Output, Step};

/// A step that brings one file of one package.
pub struct PackageFile {
    name: &'static str,
    about: &'static str,
    package: &'static str,
    /// Where the package has it.
    path: &'static str,
    /// What it is called in the step's folder.
    file: &'static str,
}

/// The firmware.
pub const FIRMWARE: PackageFile = PackageFile {
    name: "firmware",
    about: "UEFI firmware for the emulated machine",
    package: "qemu-efi-loongarch64",
    path: "usr/share/qemu-efi-loongarch64/QEMU_EFI.fd",
    file: "QEMU_EFI.fd",
};

/// GRUB, one EFI application with all its modules; it reads `/boot/grub/grub.cfg` of
/// the disk that it was loaded from.
pub const GRUB: PackageFile = PackageFile {
    name: "grub",
    about: "GRUB for LoongArch, to test with",
    package: "grub-efi-loong64-unsigned",
    path: "usr/lib/grub/loongarch64-efi/monolithic/gcdloongarch64.efi",
    file: "grub.efi",
};

/// systemd-boot; it reads the folder `/loader` of the partition that it was loaded from.
pub const SYSTEMD_BOOT: PackageFile = PackageFile {
    name: "systemd-boot",
    about: "systemd-boot for LoongArch, to test with",
    package: "systemd-boot-efi",
    path: "usr/lib/systemd/boot/efi/systemd-bootloongarch64.efi",
    file: "systemd-boot.efi",
};

impl PackageFile {
    /// The step's name.
    pub const fn step(&self) -> &'static str {
        self.name
    }

    /// The file, once the step is done.
    pub fn path(&self, cx: &Context) -> PathBuf {
        cx.cache.output(self.name).join(self.file)
    }
}

impl Step for PackageFile {
    fn name(&self) -> &'static str {
        self.name
    }

    fn about(&self) -> &'static str {
        self.about
    }

    fn inputs(&self, _cx: &Context, inputs: &mut Inputs) -> Result<()> {
        inputs.add("package", self.package);
        inputs.add("path", self.path);
        Ok(())
    }

    fn disk_mib(&self) -> u64 {
        50
    }

    fn run(&self, cx: &Context, out: &mut Output) -> Result<()> {
        let packages = apt::from_first_suite(cx, Kind::Loong64, &SUITES, out, |apt, out| {
            apt.fetch(out, &[self.package])
        })?;
        let package = packages.first().context("apt-get named no package")?;
        let tree = out.folder().join("tree");
        make_folder(&tree)?;
        package.extract(&tree)?;
        let (from, to) = (tree.join(self.path), out.folder().join(self.file));
        fs::rename(&from, &to)
            .with_context(|| format!("{} has no file {}", self.package, self.path))?;
        fs::remove_dir_all(&tree)?;
        out.set_result(summary(&packages));
        Ok(())
    }
}
