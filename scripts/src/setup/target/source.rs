//! The target's libraries from Debian's package of the compiler's sources.
//!
//! Only this uses an unstable feature of cargo (`build-std`, allowed by
//! RUSTC_BOOTSTRAP); the product is built by the stable toolchain alone.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use super::{Compiler, TARGET};
use crate::apt::{Apt, Kind, Package};
use crate::cache::make_folder;
use crate::context::Context;
use crate::hint::failure;
use crate::process;
use crate::step::Output;

/// Where Debian keeps a compiler of one version after a newer one has come: backports
/// first, whose index is small.
const SUITES: [&str; 4] = ["trixie-backports", "bookworm-backports", "forky", "sid"];

/// The folder, in the step's own, where the libraries are built.
pub const WORK: &str = "work";

/// The libraries a bare-metal program links.
const LIBRARIES: [&str; 3] = ["core", "alloc", "compiler_builtins"];

/// The package whose building builds the libraries.
const MANIFEST: &str = "[package]\nname = \"empty\"\nversion = \"0.0.0\"\nedition = \"2024\"\n[lib]\npath = \"lib.rs\"\n";

/// Builds the libraries in the folder [`WORK`] of the step's own and returns their files.
///
/// # Errors
/// Debian has no source of this compiler's version, or the build fails.
pub fn build(cx: &Context, compiler: &Compiler, out: &mut Output) -> Result<Vec<PathBuf>> {
    let package = find(cx, &compiler.version, out)?;
    let work = out.folder().join(WORK);
    out.task
        .doing(&format!("unpacking rust-src {}", package.version));
    package.extract(&work.join("rust-src"))?;
    let library = work.join(format!(
        "rust-src/usr/src/rustc-{}/library",
        compiler.version
    ));
    if !library.join("core").is_dir() {
        let what = format!(
            "rust-src {} is not the source of rustc {}",
            package.version, compiler.version
        );
        return Err(failure(what, format!("rustup target add {TARGET}")));
    }
    let project = work.join("project");
    write_project(&project, &library)?;
    compile(&project, &library, compiler, out)?;
    let folder = project.join(format!("target/{TARGET}/release/deps"));
    LIBRARIES
        .iter()
        .map(|name| find_library(&folder, name))
        .collect()
}

/// Writes the project, with what the standard library depends on taken from the package:
/// cargo resolves it all, though the three libraries need none of it.
fn write_project(project: &Path, library: &Path) -> Result<()> {
    make_folder(&project.join(".cargo"))?;
    fs::write(project.join("Cargo.toml"), MANIFEST)?;
    fs::write(project.join("lib.rs"), "#![no_std]\n")?;
    let vendor = toml::Value::from(library.join("vendor").display().to_string());
    let sources = format!(
        "[source.crates-io]\nreplace-with = \"vendored\"\n[source.vendored]\ndirectory = {vendor}\n"
    );
    fs::write(project.join(".cargo/config.toml"), sources)?;
    Ok(())
}

/// The package rust-src of exactly `version`.
fn find(cx: &Context, version: &str, out: &mut Output) -> Result<Package> {
    for suite in SUITES {
        let apt = Apt::open(cx, Kind::Host, &[suite])?;
        let versions = apt.versions(out, "rust-src")?;
        if let Some(found) = versions.iter().find(|found| is_of_version(found, version)) {
            let packages = apt.fetch(out, &[&format!("rust-src={found}")])?;
            return packages
                .into_iter()
                .next()
                .context("apt-get named no package");
        }
    }
    let what = format!("Debian has no rust-src {version} in {}", SUITES.join(", "));
    let hint = format!("on a machine that reaches rustup's server: rustup target add {TARGET}");
    Err(failure(what, hint))
}

/// Whether the Debian version `found` is of the upstream version `version`.
fn is_of_version(found: &str, version: &str) -> bool {
    found
        .strip_prefix(version)
        .is_some_and(|rest| rest.starts_with(['+', '-']))
}

/// Builds `project` together with the libraries it needs.
fn compile(project: &Path, library: &Path, compiler: &Compiler, out: &mut Output) -> Result<()> {
    out.task.doing("building core, alloc and compiler_builtins");
    let mut cargo = process::command("cargo");
    cargo.args(["build", "--release", "--offline", "--target", TARGET]);
    cargo.arg(format!("-Zbuild-std={}", LIBRARIES.join(",")));
    // A program without an operating system has no other memcpy.
    cargo.arg("-Zbuild-std-features=compiler-builtins-mem");
    // Paths in panic messages as in the libraries that rustup serves, and like those with
    // what link-time optimization needs, which cargo leaves out of a build without it.
    let remap = format!(
        "--remap-path-prefix={}=/rustc/{}/library",
        library.display(),
        compiler.commit
    );
    let flags = format!("{remap}\x1f-Cembed-bitcode=yes");
    cargo
        .current_dir(project)
        .env("RUSTC_BOOTSTRAP", "1")
        .env("__CARGO_TESTS_ONLY_SRC_ROOT", library);
    cargo
        .env("CARGO_ENCODED_RUSTFLAGS", flags)
        .env("CARGO_TARGET_DIR", project.join("target"));
    out.log.run(&mut cargo, |_| ())
}

/// The library `name` among the results in `folder`.
fn find_library(folder: &Path, name: &str) -> Result<PathBuf> {
    let files = crate::hash::files_below(folder)?;
    let prefix = format!("lib{name}-");
    let fits = |path: &&PathBuf| {
        let file = path.file_name().unwrap_or_default().to_string_lossy();
        file.starts_with(&prefix) && file.ends_with(".rlib")
    };
    files
        .iter()
        .find(fits)
        .cloned()
        .with_context(|| format!("cargo built no library {name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_very_version_fits() {
        assert!(is_of_version("1.95.0+dfsg1-2~bpo13+1", "1.95.0"));
        assert!(is_of_version("1.95.0-1", "1.95.0"));
        assert!(!is_of_version("1.95.1+dfsg1-2", "1.95.0"));
        assert!(!is_of_version("1.95.01-2", "1.95.0"));
    }
}
