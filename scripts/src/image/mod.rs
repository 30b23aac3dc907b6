//! `cargo xtask image`: the hypervisor and its VMs, ready for a board.

pub mod boot;
pub mod content;
pub mod disk;
mod trees;

use std::fmt::Display;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use clap::{Args, ValueEnum};
use hv::config::VmConfig;
use hv::platform::board::Board;

use crate::cache::{make_folder, write_atomically};
use crate::context::Context;
use crate::guest::images;
use crate::hint::failure;
use crate::hypervisor::Hypervisor;
use crate::setup;
use crate::vm::{Bundle, Room};
use content::{BUNDLE, Parts};
use disk::File;

/// A board, as it is named on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BoardName(Board);

impl ValueEnum for BoardName {
    fn value_variants<'a>() -> &'a [Self] {
        const { &[Self(Board::QemuVirt), Self(Board::Ls3c5000)] }
    }

    fn to_possible_value(&self) -> Option<clap::builder::PossibleValue> {
        Some(self.0.name().into())
    }
}

/// The largest machine that an image may meet: four processors of 16 cores. How many
/// CPUs and how much memory there are, the hypervisor finds out, and refuses the VMs
/// that don't fit.
const LARGEST: Room = Room {
    cpus: 64,
    memory_mib: u32::MAX,
};

/// What goes into an image, and where it goes.
#[derive(Debug, Args)]
pub struct Options {
    /// The machine that it is for.
    #[arg(long)]
    board: BoardName,
    /// A VM to start, as this TOML file describes it; may be given several times.
    #[arg(long, value_name = "FILE")]
    vm: Vec<PathBuf>,
    /// More of the hypervisor's options, such as `log=debug`.
    #[arg(long, default_value = "")]
    append: String,
    /// A device tree for a board whose firmware has no usable one: a source (.dts) or a
    /// blob. It counts before whatever firmware says.
    #[arg(long, value_name = "FILE")]
    devicetree: Option<PathBuf>,
    /// Write a disk image here: `dd` puts it on a USB stick.
    #[arg(short, long, value_name = "FILE", required_unless_present = "files")]
    output: Option<PathBuf>,
    /// Write the files for an EFI partition into this folder, with entries for boot
    /// loaders.
    #[arg(long, value_name = "DIR")]
    files: Option<PathBuf>,
}

/// Makes the image, or the loose files, or both.
///
/// # Errors
/// Something that is needed can't be set up, a VM's file is at fault, or the place to
/// write to can't be written.
pub fn run(cx: &Context, options: &Options) -> Result<()> {
    if let Some(path) = &options.output {
        refuse_device(path)?;
    }
    setup::ensure(cx, &["packages", "target", images::STEP])?;
    let tree = options.devicetree.as_deref().map(trees::read).transpose()?;
    let bundle = Bundle::of_files(cx, &options.vm)?;
    bundle.check(LARGEST)?;
    let hypervisor = Hypervisor::build(cx)?;
    let parts = || {
        let parts = parts(&hypervisor, options.board.0, &bundle, &options.append)?;
        let tree = tree.clone();
        anyhow::Ok(Parts { tree, ..parts })
    };
    if let Some(path) = &options.output {
        let bytes = write(path, &parts()?.of_a_stick())?;
        let (shown, mib) = (path.display(), bytes >> 20);
        let board = options.board.0.name();
        println!("{shown}: {mib} MiB for {board}, {}", bundle.summary());
        println!("to a stick: dd if={shown} of=/dev/sdX bs=4M conv=fsync");
    }
    if let Some(folder) = &options.files {
        write_loose(folder, &parts()?.loose())?;
        let shown = folder.display();
        println!("{shown}: copy what is in it to the EFI partition");
    }
    Ok(())
}

/// What an image for `board` with the VMs of `bundle` is made of.
///
/// # Errors
/// The hypervisor's file can't be read, or the bundle can't be made.
pub fn parts(
    hypervisor: &Hypervisor,
    board: Board,
    bundle: &Bundle,
    append: &str,
) -> Result<Parts> {
    if append.contains(['\n', '\r', '\0']) {
        bail!("options stand on one line");
    }
    let application = hypervisor.efi()?;
    let shown = application.display();
    Ok(Parts {
        board,
        application: fs::read(&application).with_context(|| format!("{shown} can't be read"))?,
        bundle: bundle.write()?,
        summary: bundle.summary(),
        append: append.to_owned(),
        tree: None,
    })
}

/// Writes a disk with `files` to `path`; returns its bytes.
///
/// # Errors
/// The files don't fit a FAT, or `path` can't be written.
pub fn write(path: &Path, files: &[File]) -> Result<u64> {
    let shown = path.display();
    let disk = disk::image(files).with_context(|| format!("{shown} can't be made"))?;
    write_atomically(&std::path::absolute(path)?, &disk)?;
    Ok(disk.len() as u64)
}

/// Writes `files` into `folder`.
fn write_loose(folder: &Path, files: &[File]) -> Result<()> {
    for file in files {
        let path = folder.join(file.path);
        make_folder(path.parent().context("a file lies in a folder")?)?;
        fs::write(&path, &file.content)
            .with_context(|| format!("can't write {}", path.display()))?;
    }
    Ok(())
}

/// Only files are written: a mistyped disk would be lost at once.
fn refuse_device(path: &Path) -> Result<()> {
    match fs::metadata(path) {
        Ok(found) if !found.is_file() => {
            let what = format!("{} isn't a file", path.display());
            Err(failure(
                what,
                "write a file, and copy that to the disk with dd",
            ))
        }
        _ => Ok(()),
    }
}

/// How much memory the VMs in the image at `path` have together, in MiB.
///
/// # Errors
/// It can't be read, or isn't an image with a bundle.
pub fn memory_of(path: &Path) -> Result<u64> {
    let shown = path.display();
    let disk = fs::read(path).with_context(|| format!("{shown} can't be read"))?;
    let read = || -> Result<u64> {
        let bundle = disk::read(&disk, BUNDLE)?;
        let bundle = hv::bundle::Bundle::read(&bundle)
            .map_err(|error| anyhow::anyhow!("{BUNDLE}: {error}"))?;
        let memory = bundle.configurations().map(|(name, text)| {
            let wrong = |error: &dyn Display| anyhow::anyhow!("{BUNDLE}: {name}: {error}");
            let text = text.map_err(|error| wrong(&error))?;
            let config = VmConfig::read(&String::from_utf8_lossy(text));
            let config = config.map_err(|error| wrong(&error))?;
            Ok(config.memory >> 20)
        });
        memory.sum()
    };
    read().with_context(|| format!("{shown} is no image of `cargo xtask image`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_board_can_be_named() {
        let names = BoardName::value_variants().iter().map(|name| name.0);
        assert_eq!(names.collect::<Vec<_>>(), Board::ALL);
    }

    #[test]
    fn a_device_is_not_overwritten() {
        let why = refuse_device(Path::new("/dev/null")).unwrap_err();
        assert!(format!("{why:#}").contains("/dev/null isn't a file"));
        assert!(refuse_device(Path::new("/nonexistent/x.img")).is_ok());
    }

    #[test]
    fn an_image_says_how_much_memory_its_vms_have() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.img");
        let vm = b"name = a\nvcpus = 1\nmemory = 64M\nkernel = k\n";
        let bundle = hv::bundle::write(&[("a.vm", vm), ("b.vm", vm), ("k", b"x")]).unwrap();
        let file = |content| {
            vec![File {
                path: BUNDLE,
                content,
            }]
        };
        write(&path, &file(bundle.clone())).unwrap();
        assert_eq!(memory_of(&path).unwrap(), 128);
        let mut damaged = bundle.clone();
        let place = bundle.windows(vm.len()).position(|window| window == vm);
        damaged[place.unwrap()] ^= 1;
        for (bundle, said) in [
            (bundle[..40].to_vec(), "truncated"),
            (damaged, "a.vm: bad checksum"),
        ] {
            write(&path, &file(bundle)).unwrap();
            let why = format!("{:#}", memory_of(&path).unwrap_err());
            let said =
                format!("x.img is no image of `cargo xtask image`: loongvisor/bundle: {said}");
            assert!(why.contains(&said), "{why}");
        }
    }
}
