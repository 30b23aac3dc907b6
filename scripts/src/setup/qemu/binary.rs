//! The emulator itself: built, or given; tried before it counts.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};
use tempfile::NamedTempFile;

use super::addition::Addition;
use super::source::add_identity;
use super::{GIVEN_BINARY, PROGRAM, addition_folder, build, given};
use crate::context::Context;
use crate::hash::{Inputs, sha256_of_file};
use crate::hint::{Advise, failure};
use crate::process;
use crate::qemu::{self, Timing};
use crate::step::{Output, Step};

/// It makes a machine within this time.
const LIMIT: Duration = Duration::from_secs(120);

/// The step `qemu`: the program [`PROGRAM`] in its folder.
pub struct Qemu;

impl Step for Qemu {
    fn name(&self) -> &'static str {
        "qemu"
    }

    fn about(&self) -> &'static str {
        "QEMU with LVZ"
    }

    fn needs(&self, cx: &Context) -> Vec<&'static str> {
        match given_binary(cx) {
            Some(_) => Vec::new(),
            None => vec!["packages", "wheels", "qemu-source"],
        }
    }

    fn inputs(&self, cx: &Context, inputs: &mut Inputs) -> Result<()> {
        if let Some(path) = given_binary(cx) {
            return add_identity(inputs, &path);
        }
        inputs.add("options", build::OPTIONS.join(" "));
        let addition = addition_folder(cx);
        inputs.add_tree("files", &addition.join("files"))?;
        inputs.add_tree("patches", &addition.join("patches"))
    }

    fn disk_mib(&self) -> u64 {
        if given(GIVEN_BINARY).is_some() {
            1
        } else {
            2000
        }
    }

    fn run(&self, cx: &Context, out: &mut Output) -> Result<()> {
        let program = out.folder().join(PROGRAM);
        match given_binary(cx) {
            Some(path) => {
                let path = std::path::absolute(path)?;
                std::os::unix::fs::symlink(&path, &program)?;
                check(cx, &program, out)
                    .with_context(|| format!("{} can't be used", path.display()))
                    .advise(format!(
                        "let {GIVEN_BINARY} name a QEMU with our LVZ, or unset it to have one built"
                    ))?;
            }
            None => {
                let built = build::build(cx, out)?;
                fs::copy(&built, &program)
                    .with_context(|| format!("can't copy {}", built.display()))?;
                check(cx, &program, out).context("the QEMU that was built doesn't work")?;
            }
        }
        let version = version_of(&program)?;
        out.set_result(format!(
            "QEMU {version} ({})",
            &sha256_of_file(&program)?[..12]
        ));
        Ok(())
    }
}

/// The emulator that the user names, unless it is the one that this step has built: that
/// one would be replaced by a link to itself.
fn given_binary(cx: &Context) -> Option<PathBuf> {
    let own = cx.cache.output("qemu");
    let named = given(GIVEN_BINARY)?;
    let absolute = std::path::absolute(&named).ok();
    (!absolute.is_some_and(|path| path.starts_with(&own))).then_some(named)
}

/// Makes sure that `program` runs, is of a version the addition fits, and has LVZ.
fn check(cx: &Context, program: &Path, out: &mut Output) -> Result<()> {
    let version = version_of(program)?;
    if let Some(warning) = Addition::read(cx)?.accept(&version)? {
        out.task.line(&warning);
    }
    let tree = NamedTempFile::new_in(out.folder())?;
    let made = format!("virt,dumpdtb={}", tree.path().display());
    let machine = qemu::Qemu::new(program, "la464,lvz=on", 1, 512, Timing::Threads);
    let mut running = machine.args(["-M", &made]).spawn()?;
    // It makes the machine, says what it has made, and ends.
    if running.wait(LIMIT)?.success() {
        return Ok(());
    }
    running.console.all(LIMIT);
    let what = format!(
        "QEMU {version} refuses a CPU with LVZ:\n{}",
        running.console.tail(5)
    );
    Err(failure(
        what,
        "build QEMU with the addition in boards/qemu-virt",
    ))
}

/// The version that `program` says it is, `10.0.13`.
fn version_of(program: &Path) -> Result<String> {
    let said = process::output(process::command(program).arg("--version"))?;
    parse_version(&said).with_context(|| {
        format!(
            "this is no QEMU: `{}`",
            said.lines().next().unwrap_or_default()
        )
    })
}

/// The version in the first line of `qemu --version`.
fn parse_version(said: &str) -> Option<String> {
    let rest = said.strip_prefix("QEMU emulator version ")?;
    let version = rest.split([' ', '\n', '(']).next()?;
    version
        .starts_with(|first: char| first.is_ascii_digit())
        .then(|| version.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_read() {
        let debian = "QEMU emulator version 10.0.13 (Debian 1:10.0.13+ds-0+deb13u1)\nCopyright";
        assert_eq!(parse_version(debian).as_deref(), Some("10.0.13"));
        assert_eq!(
            parse_version("QEMU emulator version 10.0.2\n").as_deref(),
            Some("10.0.2")
        );
        assert_eq!(parse_version("bash 5.2"), None);
    }
}
