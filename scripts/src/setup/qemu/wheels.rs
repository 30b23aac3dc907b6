//! Meson, which builds QEMU, from the Python package index.
//!
//! Debian 12's meson is too old, and Debian's QEMU source lacks the copies that QEMU's
//! own release has in python/wheels. The files are pinned by hash, and lie where
//! QEMU's configure looks for them, so that it needs no network itself.

use std::fs;

use anyhow::{Context as _, Result};

use super::{GIVEN_BINARY, given};
use crate::context::Context;
use crate::hash::Inputs;
use crate::hint::Advise;
use crate::process;
use crate::step::{Output, Step};

/// Debian's own Python: what stands first in PATH may lack the module venv.
pub const PYTHON: &str = "/usr/bin/python3";

/// The packages with their hashes, in pip's format. The versions are those that QEMU
/// 10.0's pythondeps.toml names.
const REQUIREMENTS: &str = "\
meson==1.5.0 --hash=sha256:52b34f4903b882df52ad0d533146d4b992c018ea77399f825579737672ae7b20
pycotap==1.3.1 --hash=sha256:1c3a25b3ff89e48f4e00f1f71dbbc1642b4f65c65d416524d07e73492fff25ea
";

/// The step `wheels`.
pub struct Wheels;

impl Step for Wheels {
    fn name(&self) -> &'static str {
        "wheels"
    }

    fn about(&self) -> &'static str {
        "meson, to build QEMU"
    }

    fn needs(&self, _cx: &Context) -> Vec<&'static str> {
        vec!["packages"]
    }

    fn is_wanted(&self) -> bool {
        given(GIVEN_BINARY).is_none()
    }

    fn inputs(&self, _cx: &Context, inputs: &mut Inputs) -> Result<()> {
        inputs.add("requirements", REQUIREMENTS);
        Ok(())
    }

    fn disk_mib(&self) -> u64 {
        50
    }

    fn run(&self, cx: &Context, out: &mut Output) -> Result<()> {
        let work = cx.cache.kept("wheels")?;
        let (requirements, venv) = (work.join("requirements.txt"), work.join("venv"));
        fs::write(&requirements, REQUIREMENTS)?;
        out.task.doing("making a Python environment");
        let mut make = process::command(PYTHON);
        out.log
            .run(make.args(["-m", "venv", "--clear"]).arg(&venv), |_| ())?;
        out.task.doing("fetching");
        let mut pip = process::command(venv.join("bin/pip"));
        pip.args([
            "download",
            "--no-deps",
            "--only-binary=:all:",
            "--require-hashes",
            "--quiet",
        ]);
        pip.arg("--dest")
            .arg(out.folder())
            .arg("-r")
            .arg(&requirements);
        out.log
            .run(&mut pip, |_| ())
            .context("meson could not be fetched from the Python package index")
            .advise("check the network and pip's settings, then run the same command again")
    }
}
