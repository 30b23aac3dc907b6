//! Debian's packages for LoongArch: a kernel and programs that no one here wrote.
//!
//! The newest that the mirror has are taken, once: versions in these suites move and
//! old ones vanish, so what was fetched stays in the cache until it is deleted. Of the
//! packages only what an image can use is unpacked: the kernel, the programs named
//! here, and shared libraries.

use std::path::{Component, Path};
use std::process::Stdio;

use anyhow::{Context as _, Result, ensure};

use crate::apt::{self, Kind, Package, summary};
use crate::context::Context;
use crate::hash::Inputs;
use crate::process;
use crate::step::{Output, Step};

/// The suites that have LoongArch, in the order they are tried: in the first, packages
/// that don't fit together are held back; the second has what the first may lack.
pub const SUITES: [&str; 2] = ["forky", "sid"];

/// What is asked for.
const PACKAGES: [&str; 7] = [
    "linux-image-loong64",
    "busybox-static",
    "linux-perf",
    "qemu-system-misc",
    "rt-tests",
    "strace",
    "stress-ng",
];

/// The programs that are unpacked, all from `usr/bin`.
const PROGRAMS: [&str; 7] = [
    "busybox",
    "cyclictest",
    "hackbench",
    "perf",
    "qemu-system-loongarch64",
    "strace",
    "stress-ng",
];

/// Beginnings of the names of large packages that come with the dependencies though no
/// program above links to them (drivers loaded at run time, interpreters, an init
/// system, the kernel's modules). An image that lacks a library after all isn't made:
/// the step that makes it names the library.
const UNUSED: [&str; 12] = [
    "dracut",
    "ipxe-",
    "libllvm",
    "libz3-",
    "linux-modules-",
    "mesa-",
    "perl",
    "python3",
    "qemu-system-data",
    "seabios",
    "systemd",
    "udev",
];

/// The step `guest-packages`: a tree with the kernel, the programs and the libraries.
pub struct Packages;

/// The name of the step.
pub const STEP: &str = "guest-packages";

impl Step for Packages {
    fn name(&self) -> &'static str {
        STEP
    }

    fn about(&self) -> &'static str {
        "Debian's kernel and programs for LoongArch"
    }

    fn inputs(&self, _cx: &Context, inputs: &mut Inputs) -> Result<()> {
        let lists = [&SUITES[..], &PACKAGES, &PROGRAMS, &UNUSED];
        lists
            .iter()
            .for_each(|list| inputs.add("list", list.join(" ")));
        Ok(())
    }

    fn disk_mib(&self) -> u64 {
        // 100 MiB of packages, 300 MiB unpacked, and the index.
        600
    }

    fn run(&self, cx: &Context, out: &mut Output) -> Result<()> {
        let packages = apt::from_first_suite(cx, Kind::Loong64, &SUITES, out, |apt, out| {
            apt.fetch_closure(out, &PACKAGES, is_used)
        })?;
        let total = packages.len() as u64;
        for (done, package) in (0..).zip(&packages) {
            out.task.count(done, total, "packages unpacked");
            extract(package, out.folder())
                .with_context(|| format!("{} can't be unpacked", package.file.display()))?;
        }
        for name in PROGRAMS {
            let program = out.folder().join("usr/bin").join(name);
            ensure!(
                program.is_file(),
                "none of the packages has the program {name}"
            );
        }
        std::fs::write(out.folder().join("versions"), summary(&packages))?;
        out.set_result(versions(&packages));
        Ok(())
    }
}

/// Whether the package `name` is wanted.
fn is_used(name: &str) -> bool {
    !UNUSED.iter().any(|start| name.starts_with(start))
}

/// Unpacks the wanted files of `package` into `folder`.
pub(super) fn extract(package: &Package, folder: &Path) -> Result<()> {
    let mut unpacker = process::command("dpkg-deb");
    unpacker
        .arg("--fsys-tarfile")
        .arg(&package.file)
        .stdout(Stdio::piped());
    let mut child = unpacker.spawn().context("can't start dpkg-deb")?;
    let stream = child.stdout.take().context("the output is a pipe")?;
    let mut archive = tar::Archive::new(stream);
    for entry in archive.entries()? {
        let mut entry = entry?;
        if is_wanted(&entry.path()?) {
            entry.unpack_in(folder)?;
        }
    }
    // The archive ends before its padding does: dpkg-deb must be able to write it all.
    std::io::copy(&mut archive.into_inner(), &mut std::io::sink())?;
    let status = child.wait()?;
    ensure!(status.success(), "dpkg-deb failed ({status})");
    Ok(())
}

/// Whether an image can use the file `path` of a package.
fn is_wanted(path: &Path) -> bool {
    let names = path.components().filter_map(|part| match part {
        Component::Normal(name) => name.to_str(),
        _ => None,
    });
    match names.collect::<Vec<_>>()[..] {
        ["usr", "bin", program] => PROGRAMS.contains(&program),
        ["usr", "lib", library] | ["usr", "lib", "loongarch64-linux-gnu", library] => {
            library.contains(".so")
        }
        ["usr", "lib", "modules", _, file] => matches!(file, "vmlinuz" | "config"),
        _ => false,
    }
}

/// The versions that matter, in one line.
fn versions(packages: &[Package]) -> String {
    let of = |name: &str| {
        let found = packages.iter().find(|package| package.name == name);
        found.map_or_else(|| "?".to_owned(), |package| package.version.clone())
    };
    format!(
        "Linux {}, QEMU {}, busybox {}, perf {}",
        of("linux-image-loong64"),
        of("qemu-system-misc"),
        of("busybox-static"),
        of("linux-perf")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_an_image_can_use_is_unpacked() {
        let wanted = [
            "./usr/bin/perf",
            "./usr/lib/loongarch64-linux-gnu/libc.so.6",
            "./usr/lib/modules/7.2.13+deb14-loong64/vmlinuz",
            "./usr/lib/modules/7.2.13+deb14-loong64/config",
        ];
        let unwanted = [
            "./usr/bin/qemu-system-m68k",
            "./usr/share/doc/libc6/copyright",
            "./usr/lib/loongarch64-linux-gnu/gconv/UTF-7.so",
            "./usr/lib/modules/7.2.13+deb14-loong64/System.map",
            "./usr/lib",
        ];
        wanted
            .iter()
            .for_each(|path| assert!(is_wanted(Path::new(path)), "{path}"));
        unwanted
            .iter()
            .for_each(|path| assert!(!is_wanted(Path::new(path)), "{path}"));
    }

    #[test]
    fn large_packages_that_nothing_links_to_are_left_out() {
        assert!(!is_used("libllvm22") && !is_used("systemd-sysv"));
        assert!(is_used("libsystemd0") && is_used("libpython3.14") && is_used("libudev1"));
        assert!(PACKAGES.iter().all(|name| is_used(name)));
    }
}
