//! The kernel and the initramfs images that guests and test machines boot.
//!
//! They are made of Debian's files and of tests/linux, and of nothing else: the same
//! inputs give the same bytes. Uncompressed where that fits: emulated CPUs unpack them.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};

use super::cpio::Archive;
use super::elf::Closure;
use super::{lz4, packages, zboot};
use crate::cache::write_atomically;
use crate::context::Context;
use crate::hash::Inputs;
use crate::step::{Output, Step};

/// The name of the step.
pub const STEP: &str = "guest-images";

/// Where an image keeps shared libraries: the first place that Debian's loader looks.
const LIBRARIES: &str = "lib/loongarch64-linux-gnu";

/// The greeting of [`Image::Bench`].
const GUEST_GREETING: &str = "
Linux with perf, stress-ng, hackbench and cyclictest; `poweroff -f` ends it.
";

/// The greeting of [`Image::KvmHost`].
const HOST_GREETING: &str = "
Linux on CPUs with LVZ, with KVM.
  kvm-guest [vCPUs [MiB]]  starts Linux as a guest on this terminal (Ctrl-T x ends it)
  poweroff -f              ends the machine (so does Ctrl-A x)
";

/// An initramfs image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Image {
    /// busybox.
    Shell,
    /// Also perf, stress-ng, hackbench, cyclictest.
    Bench,
    /// busybox, strace and Debian's QEMU, and with it, in /kvm, the kernel and
    /// [`Image::Bench`]: a host for KVM.
    KvmHost,
}

impl Image {
    /// All images.
    const ALL: [Self; 3] = [Self::Shell, Self::Bench, Self::KvmHost];

    /// Its file, once the step is done.
    pub fn path(self, cx: &Context) -> PathBuf {
        cx.cache.output(STEP).join(self.file_name())
    }

    /// The name of its file.
    fn file_name(self) -> &'static str {
        match self {
            Self::Shell => "shell.cpio",
            Self::Bench => "bench.cpio",
            Self::KvmHost => "kvm-host.cpio.lz4",
        }
    }

    /// What its shell says at first.
    fn greeting(self) -> &'static str {
        match self {
            Self::Shell => "",
            Self::Bench => GUEST_GREETING,
            Self::KvmHost => HOST_GREETING,
        }
    }

    /// The programs in it beside busybox.
    fn programs(self) -> &'static [&'static str] {
        match self {
            Self::Shell => &[],
            Self::Bench => &["perf", "stress-ng", "hackbench", "cyclictest"],
            Self::KvmHost => &["qemu-system-loongarch64", "strace"],
        }
    }
}

/// The kernel, a PE image with Linux's header, once the step is done.
pub fn kernel(cx: &Context) -> PathBuf {
    cx.cache.output(STEP).join("kernel")
}

/// The kernel's timer interrupts per second and CPU (`CONFIG_HZ`).
///
/// # Errors
/// The kernel's configuration can't be read or doesn't say.
pub fn kernel_hz(cx: &Context) -> Result<u32> {
    let config = fs::read_to_string(cx.cache.output(STEP).join("config"))?;
    setting(&config, "CONFIG_HZ")
        .context("the kernel's configuration has no CONFIG_HZ")?
        .parse()
        .context("CONFIG_HZ")
}

/// The value of `name` in a kernel's configuration.
fn setting<'a>(config: &'a str, name: &str) -> Option<&'a str> {
    config
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix('='))
}

/// The step `guest-images`.
pub struct Images;

impl Step for Images {
    fn name(&self) -> &'static str {
        STEP
    }

    fn about(&self) -> &'static str {
        "the guests' kernel and initramfs images"
    }

    fn needs(&self, _cx: &Context) -> Vec<&'static str> {
        vec![packages::STEP]
    }

    fn inputs(&self, cx: &Context, inputs: &mut Inputs) -> Result<()> {
        for image in Image::ALL {
            inputs.add(image.file_name(), image.programs().join(" "));
            inputs.add("greeting", image.greeting());
        }
        ["init", "kvm-guest"]
            .iter()
            .try_for_each(|name| inputs.add_file(name, &cx.repo("tests/linux").join(name)))
    }

    fn disk_mib(&self) -> u64 {
        250
    }

    fn run(&self, cx: &Context, out: &mut Output) -> Result<()> {
        let tree = cx.cache.output(packages::STEP);
        let modules = only_folder_in(&tree.join("usr/lib/modules"))?;
        let kernel = zboot::unpack(&read(&modules.join("vmlinuz"))?)?;
        let config = read(&modules.join("config"))?;
        let mut files = vec![("kernel", kernel.clone()), ("config", config)];
        let mut bench = Vec::new();
        for image in Image::ALL {
            out.task.doing(image.file_name());
            let mut archive = archive_of(cx, &tree, image)?;
            if image == Image::KvmHost {
                archive.file("kvm/kernel", kernel.clone())?;
                archive.file("kvm/initrd", std::mem::take(&mut bench))?;
                archive.program("bin/kvm-guest", read(&cx.repo("tests/linux/kvm-guest"))?)?;
                files.push((image.file_name(), lz4::compress(&archive.bytes())));
                continue;
            }
            if image == Image::Bench {
                bench = archive.bytes();
            }
            files.push((image.file_name(), archive.bytes()));
        }
        for (name, content) in &files {
            write_atomically(&out.folder().join(name), content)?;
        }
        out.set_result(summary(&files));
        Ok(())
    }
}

/// The sizes of `files` and a hash of their contents, in one line.
fn summary(files: &[(&str, Vec<u8>)]) -> String {
    let mut inputs = Inputs::default();
    files
        .iter()
        .for_each(|(name, content)| inputs.add(name, content));
    let sizes = files
        .iter()
        .map(|(name, content)| format!("{name} {} KiB", content.len() / 1024));
    format!(
        "{} ({})",
        sizes.collect::<Vec<_>>().join(", "),
        &inputs.finish()[..12]
    )
}

/// The content of `image`, but for what lies in /kvm.
fn archive_of(cx: &Context, tree: &Path, image: Image) -> Result<Archive> {
    let mut archive = Archive::default();
    archive.program("init", read(&cx.repo("tests/linux/init"))?)?;
    for folder in ["dev", "proc", "root", "sys", "tmp"] {
        archive.folder(folder)?;
    }
    // The kernel opens it as the first program's standard streams.
    archive.character_device("dev/console", 5, 1)?;
    archive.file("etc/motd", image.greeting())?;
    let mut closure = Closure::default();
    for name in image.programs().iter().chain(&["busybox"]) {
        let program = tree.join("usr/bin").join(name);
        closure.add(tree, &program)?;
        archive.program(&format!("bin/{name}"), read(&program)?)?;
    }
    for (name, library) in closure.libraries {
        archive.program(&format!("{LIBRARIES}/{name}"), read(&library)?)?;
    }
    for (path, loader) in closure.loaders {
        archive.program(&path, read(&loader)?)?;
    }
    Ok(archive)
}

/// The content of the file `path`.
fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).with_context(|| format!("can't read {}", path.display()))
}

/// The one folder in `folder`: that of the kernel's version.
pub(super) fn only_folder_in(folder: &Path) -> Result<PathBuf> {
    let entries =
        fs::read_dir(folder).with_context(|| format!("no kernel in {}", folder.display()))?;
    let paths = entries
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<Vec<_>>>()?;
    ensure!(
        paths.len() == 1,
        "{} kernels in {}",
        paths.len(),
        folder.display()
    );
    paths.into_iter().next().context("there is one")
}
