//! Several VMs' files, checked together, in the one piece that the hypervisor reads.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, anyhow, bail};
use hv::bundle::MAX_NAME;
use hv::config::Limits;

use super::file::VmFile;
use super::{DEFAULT_VM, kernel};
use crate::context::Context;

/// What the machine has.
#[derive(Debug, Clone, Copy)]
pub struct Room {
    /// How many CPUs.
    pub cpus: u32,
    /// How much memory, in MiB.
    pub memory_mib: u32,
}

/// What the hypervisor keeps for itself, in MiB: its image, heap and tables.
pub const OWN_MIB: u64 = 64;

/// VMs and their files.
#[derive(Debug)]
pub struct Bundle {
    vms: Vec<VmFile>,
    /// Contents by the name in the bundle.
    files: BTreeMap<String, Vec<u8>>,
    /// The hypervisor's texts.
    texts: Vec<(String, String)>,
}

impl Bundle {
    /// The VMs that the files at `paths` describe.
    ///
    /// # Errors
    /// A file can't be read, or something is wrong in it or in a file that it names.
    pub fn read(cx: &Context, paths: &[PathBuf]) -> Result<Self> {
        let vms = paths.iter().map(|path| VmFile::read(path));
        let mut bundle = Self {
            vms: vms.collect::<Result<_>>()?,
            files: BTreeMap::new(),
            texts: Vec::new(),
        };
        let mut names = BTreeMap::new();
        for vm in &bundle.vms {
            let kernel = vm.kernel(cx);
            let kernel = add(&mut bundle.files, &mut names, &kernel, kernel::prepare)
                .map_err(|error| vm.at_file(false, &format!("{error:#}")))?;
            if bundle
                .files
                .get(&kernel)
                .is_some_and(|file| kernel::is_linux(file))
            {
                vm.check_for_linux()?;
            }
            let initramfs = vm
                .initramfs(cx)
                .map(|path| add(&mut bundle.files, &mut names, &path, Ok))
                .transpose()
                .map_err(|error| vm.at_file(true, &format!("{error:#}")))?;
            let text = vm.compile(&kernel, initramfs.as_deref());
            bundle.texts.push((format!("{}.vm", vm.config.name), text));
        }
        Ok(bundle)
    }

    /// The VMs that the files at `paths` describe; [`DEFAULT_VM`] if there are none.
    ///
    /// # Errors
    /// As [`Bundle::read`].
    pub fn of_files(cx: &Context, paths: &[PathBuf]) -> Result<Self> {
        match paths {
            [] => Self::read(cx, &[cx.repo(DEFAULT_VM)]),
            paths => Self::read(cx, paths),
        }
    }

    /// Checks that the VMs can run together on a machine like `room`.
    ///
    /// # Errors
    /// The first thing that can't be met, with its file and line.
    pub fn check(&self, room: Room) -> Result<()> {
        let own = (OWN_MIB << 20) + self.bytes();
        let mut free = (u64::from(room.memory_mib) << 20).saturating_sub(own);
        for (index, vm) in self.vms.iter().enumerate() {
            let limits = Limits {
                cpus: room.cpus as usize,
                memory: free,
                has_file: &|_| true,
            };
            let fits = vm.config.check(&limits);
            fits.map_err(|error| vm.explain(&error))?;
            free -= vm.config.memory;
            for other in self.vms.iter().take(index) {
                let clash = vm.config.check_beside(&other.config);
                clash.map_err(|error| vm.explain(&error))?;
            }
        }
        Ok(())
    }

    /// A machine of `cpus` CPUs and `memory_mib`, or else with memory enough, on which
    /// the VMs are checked to fit.
    ///
    /// # Errors
    /// As [`Bundle::check`], or they want too much memory.
    pub fn room(&self, cpus: u32, memory_mib: Option<u32>) -> Result<Room> {
        let needed = u32::try_from(self.needs_mib()).context("the VMs want too much memory")?;
        let room = Room {
            cpus,
            memory_mib: memory_mib.unwrap_or(needed.next_multiple_of(256)),
        };
        self.check(room)?;
        Ok(room)
    }

    /// How much memory a machine needs for the VMs, in MiB.
    pub fn needs_mib(&self) -> u64 {
        let vms: u64 = self.vms.iter().map(|vm| vm.config.memory).sum();
        OWN_MIB + (vms + self.bytes()).div_ceil(1 << 20)
    }

    /// The VMs, for a person.
    pub fn summary(&self) -> String {
        let one = |vm: &VmFile| {
            let (name, count) = (&vm.config.name, vm.config.ids.len());
            format!("{name} ({count} vCPUs, {} MiB)", vm.config.memory >> 20)
        };
        self.vms.iter().map(one).collect::<Vec<_>>().join(", ")
    }

    /// The bundle's bytes.
    ///
    /// # Errors
    /// There are too many files.
    pub fn write(&self) -> Result<Vec<u8>> {
        let texts = self
            .texts
            .iter()
            .map(|(name, text)| (name.as_str(), text.as_bytes()));
        let files = self
            .files
            .iter()
            .map(|(name, file)| (name.as_str(), file.as_slice()));
        let all: Vec<(&str, &[u8])> = texts.chain(files).collect();
        hv::bundle::write(&all).map_err(|error| anyhow!("{error}"))
    }

    /// Bytes of all files together.
    fn bytes(&self) -> u64 {
        self.files.values().map(|file| file.len() as u64).sum()
    }
}

/// Adds the file at `path`, as `prepare` makes it, unless it is there already; returns
/// its name in the bundle.
fn add(
    files: &mut BTreeMap<String, Vec<u8>>,
    names: &mut BTreeMap<PathBuf, String>,
    path: &Path,
    prepare: impl FnOnce(Vec<u8>) -> Result<Vec<u8>>,
) -> Result<String> {
    if let Some(name) = names.get(path) {
        return Ok(name.clone());
    }
    let shown = path.display();
    let made = shown.to_string().contains("/@");
    let hint = if made {
        " (`setup` makes @kernel, @shell and @bench)"
    } else {
        ""
    };
    let file = std::fs::read(path).with_context(|| format!("{shown} can't be read{hint}"))?;
    if file.is_empty() {
        bail!("{shown} is empty");
    }
    let file = prepare(file).with_context(|| format!("{shown} can't be used"))?;
    let name = free_name(files, path);
    names.insert(path.to_path_buf(), name.clone());
    files.insert(name.clone(), file);
    Ok(name)
}

/// The name of the file at `path`, shortened and numbered as it must be.
fn free_name(files: &BTreeMap<String, Vec<u8>>, path: &Path) -> String {
    let base = path.file_name().map_or_else(String::new, |name| {
        let safe = |c: char| if c.is_ascii_graphic() { c } else { '_' };
        name.to_string_lossy().chars().map(safe).collect()
    });
    let base: String = base.chars().take(MAX_NAME - 8).collect();
    let base = base.strip_suffix(".vm").unwrap_or(&base).to_owned();
    let numbered = (2..).map(|number| format!("{base}-{number}"));
    std::iter::once(base.clone())
        .chain(numbered)
        .find(|name| !files.contains_key(name))
        .unwrap_or(base)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A Linux image of 4 KiB, as far as its headers go.
    fn image() -> Vec<u8> {
        let mut file = vec![0; 0x1000];
        let mut put = |at: usize, bytes: &[u8]| file[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, b"MZ");
        put(8, &0x20_0400u64.to_le_bytes());
        put(16, &0x1000u64.to_le_bytes());
        put(24, &0x20_0000u64.to_le_bytes());
        put(56, &0x8182_23cdu32.to_le_bytes());
        put(60, &0x40u32.to_le_bytes());
        put(0x40, b"PE\0\0\x64\x62");
        file
    }

    struct Folder {
        cx: Context,
        folder: tempfile::TempDir,
    }

    impl Folder {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            std::fs::write(folder.path().join("k"), image()).unwrap();
            std::fs::write(folder.path().join("rd"), b"cpio").unwrap();
            let cx = Context::for_tests(folder.path());
            Self { cx, folder }
        }

        fn bundle(&self, vms: &[(&str, &str)]) -> Result<Bundle> {
            let path = |(name, more): &(&str, &str)| {
                let text = format!("name = \"{name}\"\nvcpus = 1\nmemory = \"256M\"\n{more}\n");
                let text = if more.contains("kernel") {
                    text
                } else {
                    text + "kernel = \"k\"\n"
                };
                let path = self
                    .folder
                    .path()
                    .join(format!("{name}-{}.toml", text.len()));
                std::fs::write(&path, text).unwrap();
                path
            };
            Bundle::read(&self.cx, &vms.iter().map(path).collect::<Vec<_>>())
        }

        fn refusal(&self, vms: &[(&str, &str)]) -> String {
            let room = Room {
                cpus: 4,
                memory_mib: 1024,
            };
            let checked = self.bundle(vms).and_then(|bundle| bundle.check(room));
            let text = format!("{:#}", checked.unwrap_err());
            let folder = format!("{}/", self.folder.path().display());
            text.replace(&folder, "")
        }
    }

    #[test]
    fn a_file_that_two_vms_name_travels_once() {
        let folder = Folder::new();
        let vms = [("a", "initramfs = \"rd\""), ("b", "")];
        let bytes = folder.bundle(&vms).unwrap().write().unwrap();
        let bundle = hv::bundle::Bundle::read(&bytes).unwrap();
        let names: Vec<&str> = bundle.files().map(|(name, _)| name).collect();
        assert_eq!(names, ["a.vm", "b.vm", "k", "rd"]);
        assert_eq!(bundle.file("k"), Some(Ok(image().as_slice())));
    }

    #[test]
    fn what_cannot_run_together_is_refused() {
        let folder = Folder::new();
        let claim = "cpus = \"1\"\nexclusive = true";
        let why = folder.refusal(&[("a", claim), ("b", "cpus = \"0-1\"")]);
        assert!(why.contains(":4: CPU 1 is the VM a's too"), "{why}");
        let why = folder.refusal(&[("a", ""), ("a", "# again")]);
        assert!(why.contains(":1: another VM is called a"), "{why}");
        let why = folder.refusal(&[("a", "cpus = \"4\"")]);
        assert!(why.contains(":4: the machine has no CPU 4"), "{why}");
        let vms = [("a", ""), ("b", ""), ("c", ""), ("d", "")];
        let why = folder.refusal(&vms);
        assert!(
            why.starts_with("d-") && why.contains(":3: 256 MiB of RAM wanted"),
            "{why}"
        );
    }

    #[test]
    fn what_the_hypervisor_would_refuse_is_refused_here() {
        let folder = Folder::new();
        for (more, why) in [
            (
                "devices = [\"pch-pic\", \"pch-pic@0x18100000\"]",
                ":4: a VM has one pch-pic",
            ),
            (
                "devices = [\"uart@0x1000\"]",
                ":4: uart at 0x1000 overlaps RAM",
            ),
            ("cpus = \"0,1,0\"", ":4: CPU 0 is named twice"),
            (
                "physical-ids = \"1024\"",
                ":4: physical id 1024 is given twice or not below",
            ),
        ] {
            let found = folder.refusal(&[("a", more)]);
            assert!(found.contains(why), "{found}");
        }
    }

    #[test]
    fn files_at_fault_are_named() {
        let folder = Folder::new();
        std::fs::write(folder.folder.path().join("half"), &image()[..0x50]).unwrap();
        std::fs::write(folder.folder.path().join("empty"), b"").unwrap();
        let mut arm = image();
        arm[0x44..0x46].copy_from_slice(&0xaa64u16.to_le_bytes());
        std::fs::write(folder.folder.path().join("arm"), arm).unwrap();
        for (more, why) in [
            ("kernel = \"none\"", ":4: none can't be read"),
            ("kernel = \"half\"", ":4: half can't be used: truncated"),
            ("kernel = \"rd\"", ":4: rd can't be used: neither an ELF"),
            (
                "kernel = \"arm\"",
                ":4: arm can't be used: a kernel for another machine",
            ),
            ("initramfs = \"empty\"", ":4: empty is empty"),
            ("physical-ids = \"5\"", ":4: Linux boots only if the first"),
        ] {
            let found = folder.refusal(&[("a", more)]);
            assert!(found.contains(why), "{found}");
        }
    }

    #[test]
    fn the_memory_that_is_needed_is_enough() {
        let folder = Folder::new();
        let bundle = folder.bundle(&[("a", ""), ("b", "")]).unwrap();
        let needs = |memory_mib| Room {
            cpus: 1,
            memory_mib,
        };
        let least = u32::try_from(bundle.needs_mib()).unwrap();
        assert!(bundle.check(needs(least)).is_ok());
        assert!(bundle.check(needs(least - 2)).is_err());
    }
}
