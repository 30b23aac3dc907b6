//! VMs with Debian's kernel, for tests and measurements, as TOML files like a user's.

use std::fs;
use std::path::PathBuf;

use anyhow::Result;
use tempfile::TempDir;

use super::Bundle;
use crate::context::Context;
use crate::guest::images::Image;
use crate::guest::job::Job;
use crate::hypervisor::Hypervisor;
use crate::qemu::{Qemu, Timing};

/// What a test's kernel gets on its command line.
const COMMAND_LINE: &str = "loglevel=4 panic=-1";

/// A VM with Debian's kernel.
#[derive(Debug, Clone)]
pub struct LinuxVm {
    /// Its name.
    pub name: &'static str,
    /// How many vCPUs it has.
    pub vcpus: u32,
    /// Its memory in MiB.
    pub memory_mib: u32,
    /// Its kernel, as its file has it.
    pub kernel: String,
    /// Its kernel's command line.
    pub command_line: String,
    /// More lines of its file.
    pub more: String,
}

impl LinuxVm {
    /// A VM of `vcpus` vCPUs and `memory_mib` MiB.
    pub fn new(name: &'static str, vcpus: u32, memory_mib: u32) -> Self {
        Self {
            name,
            vcpus,
            memory_mib,
            kernel: "@kernel".to_owned(),
            command_line: COMMAND_LINE.to_owned(),
            more: String::new(),
        }
    }

    fn toml(&self) -> String {
        let Self {
            name,
            vcpus,
            memory_mib,
            kernel,
            command_line,
            more,
        } = self;
        format!(
            "name = \"{name}\"\nvcpus = {vcpus}\nmemory = \"{memory_mib}M\"\nkernel = \"{kernel}\"\n\
             initramfs = \"initramfs\"\ncommand-line = \"{command_line}\"\n{more}\n"
        )
    }
}

/// Files that last as long as this does.
pub struct Files {
    folder: TempDir,
}

impl Files {
    /// An initramfs of `image` and the scripts' library, or with `job`.
    ///
    /// # Errors
    /// It can't be written.
    pub fn new(cx: &Context, image: Image, job: Option<&Job>) -> Result<Self> {
        let library = Job::library(cx)?;
        let mut initramfs = job.unwrap_or(&library).bytes();
        initramfs.extend(fs::read(image.path(cx))?);
        let folder = TempDir::with_prefix("loongvisor-")?;
        fs::write(folder.path().join("initramfs"), initramfs)?;
        Ok(Self { folder })
    }

    /// The files of `vms`.
    ///
    /// # Errors
    /// They can't be written.
    pub fn of(&self, vms: &[LinuxVm]) -> Result<Vec<PathBuf>> {
        let write = |vm: &LinuxVm| {
            let path = self.folder.path().join(format!("{}.toml", vm.name));
            fs::write(&path, vm.toml())?;
            Ok(path)
        };
        vms.iter().map(write).collect()
    }

    /// The machine of `cpus` CPUs that runs `vms`.
    ///
    /// # Errors
    /// A file is at fault or can't be written.
    pub fn machine(
        &self,
        cx: &Context,
        hypervisor: &Hypervisor,
        vms: &[LinuxVm],
        cpus: u32,
        timing: Timing,
    ) -> Result<Qemu> {
        let bundle = Bundle::read(cx, &self.of(vms)?)?;
        let room = bundle.room(cpus, None)?;
        hypervisor.with_vms(&bundle, room, timing, "")
    }
}
