//! The hypervisor with test guests, as a machine to start.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::thread;

use anyhow::{Context as _, Result};
use hv::config::DeviceKind;
use tempfile::TempDir;

use crate::bare;
use crate::cache::write_atomically;
use crate::context::Context;
use crate::qemu::{Qemu, Timing};
use crate::setup::qemu::program;
use crate::suite::WITH_LVZ;
use crate::vm::{Bundle, Room};

/// Memory of the machine, in MiB.
const MEMORY_MIB: u32 = 1024;

/// On the hypervisor's command line: a single VM's output stands line by line too.
const LINES: &str = "console=lines";

/// Name of the test guests' program in a bundle.
const GUEST: &str = "guest.elf";

/// The hypervisor's program, the test guests' program, and the QEMU to run them on.
pub struct Hypervisor {
    qemu: PathBuf,
    image: PathBuf,
    guest: Vec<u8>,
    folder: TempDir,
}

/// A VM with the test guests' program.
#[derive(Debug, Clone)]
pub struct GuestVm {
    /// Its name.
    pub name: &'static str,
    /// Physical ids of its vCPUs.
    pub ids: Vec<u32>,
    /// What the program is to do, besides the ids.
    pub command_line: String,
    /// More lines of its configuration.
    pub more: &'static str,
}

impl GuestVm {
    /// A VM of `vcpus` vCPUs with ids from 0 on.
    pub fn new(name: &'static str, vcpus: u32, command_line: &str) -> Self {
        Self {
            name,
            ids: (0..vcpus).collect(),
            command_line: command_line.to_owned(),
            more: "",
        }
    }

    /// Its configuration.
    pub fn configuration(&self) -> String {
        let ids: Vec<String> = self.ids.iter().map(u32::to_string).collect();
        let (ids, count) = (ids.join(","), self.ids.len());
        let mut text = format!("name = {}\nvcpus = {count}\nids = {ids}\n", self.name);
        // Writing to a string never fails.
        let _ = writeln!(text, "command_line = ids={ids} {}", self.command_line);
        for kind in DeviceKind::ALL {
            let _ = writeln!(text, "device = {}", kind.name());
        }
        text + &format!("memory = 64M\nkernel = {GUEST}\n{}\n", self.more)
    }
}

impl Hypervisor {
    /// Builds the hypervisor and the test guests.
    ///
    /// # Errors
    /// One of them doesn't compile.
    pub fn build(cx: &Context) -> Result<Self> {
        let guest = bare::build(cx, "test-guests")?;
        Ok(Self {
            qemu: program(cx),
            image: bare::build(cx, "hv")?,
            guest: std::fs::read(guest)?,
            folder: TempDir::with_prefix("loongvisor-")?,
        })
    }

    /// The file of the hypervisor's program.
    pub fn image(&self) -> &PathBuf {
        &self.image
    }

    /// The hypervisor as an EFI application: a file beside its ELF, out of the same link.
    ///
    /// # Errors
    /// It can't be written.
    pub fn efi(&self) -> Result<PathBuf> {
        let file = self.image.with_extension("efi");
        write_atomically(&file, &bare::flat_image(&std::fs::read(&self.image)?)?)?;
        Ok(file)
    }

    /// The machine that runs `vms`.
    ///
    /// # Errors
    /// The bundle can't be made or written.
    pub fn machine(&self, vms: &[GuestVm], cpus: u32, timing: Timing) -> Result<Qemu> {
        self.machine_with(&self.guest, vms, cpus, timing)
    }

    /// The machine that runs `vms` with the ELF `program` instead of the test guests'.
    ///
    /// # Errors
    /// As [`Hypervisor::machine`].
    pub fn machine_with(
        &self,
        program: &[u8],
        vms: &[GuestVm],
        cpus: u32,
        timing: Timing,
    ) -> Result<Qemu> {
        let texts: Vec<(String, String)> = vms
            .iter()
            .map(|vm| (format!("{}.vm", vm.name), vm.configuration()))
            .collect();
        let mut files: Vec<(&str, &[u8])> = texts
            .iter()
            .map(|(name, text)| (name.as_str(), text.as_bytes()))
            .collect();
        files.push((GUEST, program));
        let bundle = hv::bundle::write(&files).map_err(|error| anyhow::anyhow!("{error}"))?;
        self.with_initrd(&bundle, cpus, timing)
    }

    /// The machine with `initrd` as its initrd.
    ///
    /// # Errors
    /// It can't be written.
    pub fn with_initrd(&self, initrd: &[u8], cpus: u32, timing: Timing) -> Result<Qemu> {
        // One for each thread: they make machines at once.
        let name = format!("bundle-{:?}", thread::current().id());
        let path = self.write(&name, initrd)?;
        let machine = self.bare(WITH_LVZ, cpus, timing).initrd(&path);
        Ok(machine.append(LINES))
    }

    /// The machine that runs the VMs of `bundle`, with `append` on the hypervisor's
    /// command line.
    ///
    /// # Errors
    /// The bundle can't be made or written.
    pub fn with_vms(
        &self,
        bundle: &Bundle,
        room: Room,
        timing: Timing,
        append: &str,
    ) -> Result<Qemu> {
        let path = self.write("vms", &bundle.write()?)?;
        let qemu = Qemu::new(&self.qemu, WITH_LVZ, room.cpus, room.memory_mib, timing);
        Ok(qemu.kernel(&self.image).initrd(&path).append(append))
    }

    /// Writes a file that lasts as long as this does.
    fn write(&self, name: &str, content: &[u8]) -> Result<PathBuf> {
        let path = self.folder.path().join(name);
        std::fs::write(&path, content)
            .with_context(|| format!("{} can't be written", path.display()))?;
        Ok(path)
    }

    /// The machine with CPUs of the model `cpu` and no initrd.
    pub fn bare(&self, cpu: &str, cpus: u32, timing: Timing) -> Qemu {
        Qemu::new(&self.qemu, cpu, cpus, MEMORY_MIB, timing).kernel(&self.image)
    }
}

/// The lines of `printed`, with their ends; not the last one where a machine that goes on
/// has printed only a part of it.
pub fn whole(printed: &str) -> impl Iterator<Item = &str> {
    let lines = printed.split_inclusive('\n');
    lines.filter(|line| line.ends_with('\n'))
}

/// What a VM has printed: its whole lines, without its name in front.
pub fn lines_of(name: &str, printed: &str) -> String {
    let prefix = format!("{name}| ");
    let lines = whole(printed).filter_map(|line| line.strip_prefix(&prefix));
    lines.fold(String::new(), |text, line| {
        text + line.trim_end_matches(['\r', '\n']) + "\n"
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_lines_are_a_vm_s() {
        let printed = "a| one\r\nb| two\r\n[hv INFO ] three\r\na| \r\na| fo";
        assert_eq!(lines_of("a", printed), "one\n\n");
        assert_eq!(lines_of("b", &printed[..printed.len() - 4]), "two\n");
        assert_eq!(lines_of("b", "b| two\r"), "");
    }

    #[test]
    fn a_configuration_names_all_that_a_vm_needs() {
        let mut vm = GuestVm::new("a", 2, "only=x");
        vm.ids = vec![0, 5];
        let config = hv::config::VmConfig::read(&vm.configuration()).unwrap();
        assert_eq!(config.ids, [0, 5]);
        assert_eq!(config.command_line, "ids=0,5 only=x");
        assert_eq!(config.kernel, GUEST);
        assert_eq!(config.devices.len(), DeviceKind::ALL.len());
    }

    #[test]
    fn a_vm_s_lines_are_told_from_the_others() {
        let printed = "[hv INFO ] a| b\r\na| PASS x\r\nb| FAIL y\na| end\n";
        assert_eq!(lines_of("a", printed), "PASS x\nend\n");
        assert_eq!(lines_of("c", printed), "");
    }
}
