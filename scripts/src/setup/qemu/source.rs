//! QEMU's pristine source.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use super::addition::Addition;
use super::{GIVEN_BINARY, GIVEN_SOURCE, given};
use crate::apt::{Apt, Kind, SourceVersion};
use crate::context::Context;
use crate::hash::{Inputs, sha256_of_file};
use crate::hint::{Advise, failure};
use crate::process;
use crate::step::{Output, Step};

/// Suites with a QEMU of the addition's series.
const SUITES: [&str; 2] = ["trixie", "bookworm-backports"];

/// SHA-256 of the tarballs the addition was tried with, from their signed `.dsc` files.
const KNOWN_TARBALLS: [(&str, &str); 2] = [
    (
        "qemu_10.0.2+ds.orig.tar.xz",
        "0901da33844a331bf8b3602b9c1fbd178e60b737c8e3ade678255bd090c9b9f1",
    ),
    (
        "qemu_10.0.13+ds.orig.tar.xz",
        "6a0888e806c2ffc0c5f0733e974f9aea55491950d3c47c98669c8b236dde59ae",
    ),
];

/// The step `qemu-source`: the unpacked source, in the folder [`TREE`].
pub struct Source;

/// Where the source lies in the step's folder.
pub const TREE: &str = "tree";

impl Step for Source {
    fn name(&self) -> &'static str {
        "qemu-source"
    }

    fn about(&self) -> &'static str {
        "QEMU's source"
    }

    fn needs(&self, _cx: &Context) -> Vec<&'static str> {
        vec!["packages"]
    }

    fn is_wanted(&self) -> bool {
        given(GIVEN_BINARY).is_none()
    }

    fn inputs(&self, cx: &Context, inputs: &mut Inputs) -> Result<()> {
        let addition = Addition::read(cx)?;
        inputs.add("versions", addition.versions.join(" "));
        inputs.add("series", addition.series);
        match given(GIVEN_SOURCE) {
            Some(path) => add_identity(inputs, &path),
            None => Ok(()),
        }
    }

    fn disk_mib(&self) -> u64 {
        1000
    }

    fn run(&self, cx: &Context, out: &mut Output) -> Result<()> {
        let addition = Addition::read(cx)?;
        let archive = match given(GIVEN_SOURCE) {
            Some(path) => companion(&path).unwrap_or(path),
            None => fetch(cx, &addition, out)?,
        };
        check_tarballs(&archive)?;
        out.task.doing("unpacking");
        let tree = out.folder().join(TREE);
        unpack(&archive, &tree, out)
            .with_context(|| format!("{} can't be unpacked", archive.display()))?;
        let version =
            fs::read_to_string(tree.join("VERSION")).context("the source names no version")?;
        if let Some(warning) = addition.accept(version.trim())? {
            out.task.line(&warning);
        }
        let name = archive.file_name().unwrap_or_default().to_string_lossy();
        out.set_result(format!(
            "QEMU {} from {name} ({})",
            version.trim(),
            &sha256_of_file(&archive)?[..12]
        ));
        Ok(())
    }
}

/// Adds what tells whether the file `path` is still the same: its path, size and time.
///
/// # Errors
/// There is no such file.
pub fn add_identity(inputs: &mut Inputs, path: &Path) -> Result<()> {
    let found = fs::metadata(path)
        .with_context(|| format!("can't look at {}", path.display()))
        .advise(format!(
            "let {GIVEN_SOURCE} and {GIVEN_BINARY} name files, or unset them"
        ))?;
    inputs.add("path", path.as_os_str().as_encoded_bytes());
    inputs.add("size", found.len().to_le_bytes());
    inputs.add("time", format!("{:?}", found.modified()?));
    Ok(())
}

/// Fetches Debian's source into the cache and returns its `.dsc` file.
fn fetch(cx: &Context, addition: &Addition, out: &mut Output) -> Result<PathBuf> {
    let apt = Apt::open(cx, Kind::Source, &SUITES)?;
    let folder = cx.cache.kept("qemu-archive")?;
    for stale in crate::hash::files_below(&folder)? {
        if stale.extension().is_some_and(|end| end == "dsc") {
            fs::remove_file(stale)?;
        }
    }
    let choose = |offered: &[SourceVersion]| addition.choose(offered);
    let (_, dsc) = apt.fetch_source(out, "qemu", &folder, choose)?;
    Ok(dsc)
}

/// The `.dsc` beside a given orig tarball of Debian's, if there is one: without
/// Debian's own patches such a tarball can't be configured.
fn companion(tarball: &Path) -> Option<PathBuf> {
    let name = tarball.file_name()?.to_str()?;
    let start = name.split_once(".orig.tar")?.0;
    let files = fs::read_dir(tarball.parent()?).ok()?;
    let mut paths = files.filter_map(|entry| Some(entry.ok()?.path()));
    paths.find(|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with(start) && name.ends_with(".dsc")
    })
}

/// Compares the known tarballs beside `archive` with their hashes. The hashes that a
/// `.dsc` gives are checked when it is unpacked.
fn check_tarballs(archive: &Path) -> Result<()> {
    let folder = archive.parent().unwrap_or(Path::new("."));
    for (name, expected) in KNOWN_TARBALLS {
        let path = folder.join(name);
        if path.is_file() && sha256_of_file(&path)? != expected {
            let what = format!(
                "{} differs from Debian's: its SHA-256 is not {expected}",
                path.display()
            );
            return Err(failure(what, "remove the file and fetch it again"));
        }
    }
    Ok(())
}

/// Unpacks `archive`, a `.dsc` with its companions or a tarball, as `tree`.
fn unpack(archive: &Path, tree: &Path, out: &mut Output) -> Result<()> {
    if archive.extension().is_some_and(|end| end == "dsc") {
        // apt-get has checked the signed index; the signature of the uploader would
        // need a keyring of its own.
        let mut unpack = process::command("dpkg-source");
        return out.log.run(
            unpack
                .args(["--no-check", "--extract"])
                .arg(archive)
                .arg(tree),
            |_| (),
        );
    }
    fs::create_dir(tree)?;
    let mut tar = process::command("tar");
    out.log.run(
        tar.args(["--strip-components=1", "-xf"])
            .arg(archive)
            .arg("-C")
            .arg(tree),
        |_| (),
    )?;
    if tree.join("meson.build").is_file() {
        return Ok(());
    }
    Err(failure(
        format!("{} is not QEMU's source", archive.display()),
        format!("unset {GIVEN_SOURCE}"),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_debian_tarball_is_used_with_its_dsc() {
        let folder = tempfile::tempdir().unwrap();
        let tarball = folder.path().join("qemu_10.0.13+ds.orig.tar.xz");
        assert_eq!(companion(&tarball), None);
        let dsc = folder.path().join("qemu_10.0.13+ds-0+deb13u1.dsc");
        fs::write(&dsc, "").unwrap();
        fs::write(folder.path().join("qemu_10.0.2+ds-2.dsc"), "").unwrap();
        assert_eq!(companion(&tarball), Some(dsc));
        assert_eq!(companion(&folder.path().join("qemu-10.0.13.tar.xz")), None);
    }

    #[test]
    fn a_known_tarball_with_another_content_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let dsc = folder.path().join("qemu.dsc");
        check_tarballs(&dsc).unwrap();
        fs::write(folder.path().join(KNOWN_TARBALLS[0].0), "not a tarball").unwrap();
        let text = crate::hint::report(&check_tarballs(&dsc).unwrap_err());
        assert!(
            text.contains("differs from Debian's") && text.contains("what to do"),
            "{text}"
        );
    }
}
