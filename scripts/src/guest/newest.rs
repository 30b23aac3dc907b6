//! The newest kernel that Debian has for LoongArch: for long tests, beside the images' own.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context as _, Result};

use super::images::only_folder_in;
use super::{packages, zboot};
use crate::apt::{Apt, Kind, summary};
use crate::cache::{make_folder, write_atomically};
use crate::context::Context;
use crate::hash::Inputs;
use crate::step::{Output, Step};

/// The name of the step.
pub const STEP: &str = "newest-kernel";

/// Where the newest is.
const SUITE: &str = "sid";
/// What leads to it, whatever its version, and how the package that holds it begins.
const PACKAGE: &str = "linux-image-loong64";
const HOLDER: &str = "linux-binary-";

/// The kernel, once the step is done.
pub fn kernel(cx: &Context) -> PathBuf {
    cx.cache.output(STEP).join("kernel")
}

/// The step `newest-kernel`.
pub struct NewestKernel;

impl Step for NewestKernel {
    fn name(&self) -> &'static str {
        STEP
    }

    fn about(&self) -> &'static str {
        "Debian's newest kernel for LoongArch, to test with"
    }

    fn is_wanted(&self) -> bool {
        false
    }

    fn inputs(&self, _cx: &Context, inputs: &mut Inputs) -> Result<()> {
        inputs.add("suite", SUITE);
        inputs.add("package", PACKAGE);
        Ok(())
    }

    fn disk_mib(&self) -> u64 {
        100
    }

    fn run(&self, cx: &Context, out: &mut Output) -> Result<()> {
        let apt = Apt::open(cx, Kind::Loong64, &[SUITE])?;
        let found = apt.fetch_closure(out, &[PACKAGE], |name| name.starts_with(HOLDER))?;
        let tree = out.folder().join("tree");
        make_folder(&tree)?;
        for package in &found {
            packages::extract(package, &tree)?;
        }
        let modules = only_folder_in(&tree.join("usr/lib/modules"))?;
        let packed = fs::read(modules.join("vmlinuz")).context("the package has no kernel")?;
        write_atomically(&out.folder().join("kernel"), &zboot::unpack(&packed)?)?;
        fs::remove_dir_all(&tree)?;
        out.set_result(summary(&found).trim().to_owned());
        Ok(())
    }
}
