//! The packages that building QEMU, the guests' images and boards' device trees needs.
//!
//! As root they are installed; otherwise the error is the one line to type.

use anyhow::{Context as _, Result};

use crate::context::Context;
use crate::hash::Inputs;
use crate::hint::{Advise, failure};
use crate::process;
use crate::step::{Output, Step};

/// What is needed, by the names that Debian 12 and 13 share.
const PACKAGES: [&str; 16] = [
    "bison",
    "ca-certificates",
    "debian-archive-keyring",
    "device-tree-compiler",
    "dpkg-dev",
    "flex",
    "gcc",
    "libc6-dev",
    "libfdt-dev",
    "libglib2.0-dev",
    "libpixman-1-dev",
    "libzstd-dev",
    "ninja-build",
    "patch",
    "pkg-config",
    "python3-venv",
];

/// The step `packages`.
pub struct Packages;

impl Step for Packages {
    fn name(&self) -> &'static str {
        "packages"
    }

    fn about(&self) -> &'static str {
        "Debian's packages that the builds need"
    }

    fn inputs(&self, _cx: &Context, inputs: &mut Inputs) -> Result<()> {
        PACKAGES.iter().for_each(|name| inputs.add("package", name));
        Ok(())
    }

    fn intact(&self, _cx: &Context) -> Result<bool> {
        Ok(missing()?.is_empty())
    }

    fn disk_mib(&self) -> u64 {
        300
    }

    fn run(&self, _cx: &Context, out: &mut Output) -> Result<()> {
        let missing = missing()?;
        if !missing.is_empty() {
            install(&missing, out)?;
        }
        out.set_result("installed");
        Ok(())
    }
}

/// Installs `names`, if this is root.
fn install(names: &[&str], out: &mut Output) -> Result<()> {
    let line = format!(
        "apt-get update && apt-get install --no-install-recommends {}",
        names.join(" ")
    );
    if !rustix::process::geteuid().is_root() {
        let what = format!("packages are missing: {}", names.join(", "));
        return Err(failure(what, format!("sudo sh -c '{line}'")));
    }
    out.task.doing(&format!("installing {}", names.join(", ")));
    for args in [
        vec!["update"],
        [
            vec!["install", "--yes", "--no-install-recommends"],
            names.to_vec(),
        ]
        .concat(),
    ] {
        let mut apt = process::command("apt-get");
        apt.args(args).env("DEBIAN_FRONTEND", "noninteractive");
        out.log
            .run(&mut apt, |_| ())
            .context("Debian's packages could not be installed")
            .advise(format!(
                "check the network and /etc/apt; by hand it is: {line}"
            ))?;
    }
    Ok(())
}

/// Those of [`PACKAGES`] that aren't installed.
///
/// # Errors
/// There is no dpkg on this machine.
fn missing() -> Result<Vec<&'static str>> {
    let mut query = process::command("dpkg-query");
    query
        .args(["--show", "--showformat=${db:Status-Abbrev} ${Package}\\n"])
        .args(PACKAGES);
    // It ends with 1 if it doesn't know one of them: what it prints counts.
    let answer = query
        .output()
        .context("there is no dpkg-query")
        .advise("use a Debian 12 or 13 machine")?;
    Ok(missing_in(&String::from_utf8_lossy(&answer.stdout)))
}

/// Those of [`PACKAGES`] that aren't installed by what dpkg-query has printed.
fn missing_in(printed: &str) -> Vec<&'static str> {
    let installed = |name: &str| {
        printed
            .lines()
            .any(|line| line.trim() == format!("ii  {name}"))
    };
    PACKAGES
        .into_iter()
        .filter(|name| !installed(name))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_installed_counts() {
        let all: String = PACKAGES
            .iter()
            .map(|name| format!("ii  {name}\n"))
            .collect();
        assert!(missing_in(&all).is_empty());
        assert_eq!(missing_in(&all.replace("ii  flex", "rc  flex")), ["flex"]);
        assert_eq!(missing_in(&all.replace("ii  patch\n", "")), ["patch"]);
    }
}
