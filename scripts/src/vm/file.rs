//! One VM's file: from TOML to the hypervisor's text.

use std::fmt::Write as _;
use std::ops::Range;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, anyhow};
use hv::config::{
    ConfigError, DeviceKind, MAX_PHYSICAL_ID, NOT_A_DEVICE, NOT_A_POLICY, NOT_A_POLL, NOT_A_SIZE,
    NOT_A_WAIT, VmConfig,
};
use serde::Deserialize;
use toml::Spanned;

use crate::context::Context;
use crate::guest::images::{self, Image};

/// The file as it is written. What isn't there has the hypervisor's default.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Text {
    name: Spanned<String>,
    vcpus: Spanned<u64>,
    physical_ids: Option<Spanned<String>>,
    cpus: Option<Spanned<String>>,
    exclusive: Option<Spanned<bool>>,
    memory: Spanned<String>,
    kernel: Spanned<String>,
    initramfs: Option<Spanned<String>>,
    command_line: Option<Spanned<String>>,
    devices: Option<Spanned<Vec<String>>>,
    restart: Option<Spanned<String>>,
    restart_wait_ms: Option<Spanned<u64>>,
    idle_poll_us: Option<Spanned<u64>>,
    #[serde(default)]
    paravirt: Paravirt,
}

/// Paravirtual features: all but `control` are on unless the file says otherwise.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
struct Paravirt {
    ipi: bool,
    steal_time: bool,
    control: bool,
}

impl Default for Paravirt {
    fn default() -> Self {
        Self {
            ipi: true,
            steal_time: true,
            control: false,
        }
    }
}

/// A VM's file that has been read and checked by itself.
#[derive(Debug)]
pub struct VmFile {
    path: PathBuf,
    source: String,
    text: Text,
    /// What the hypervisor makes of it, with its files by path.
    pub config: VmConfig,
}

impl VmFile {
    /// Reads the file at `path`.
    ///
    /// # Errors
    /// It can't be read, or something is wrong in it: file, line and what.
    pub fn read(path: &Path) -> Result<Self> {
        let source = std::fs::read_to_string(path)
            .with_context(|| format!("{} can't be read", path.display()))?;
        Self::parse(path, source)
    }

    fn parse(path: &Path, source: String) -> Result<Self> {
        let text: Text = toml::from_str(&source).map_err(|error| {
            let line = error.span().map_or(1, |span| line_of(&source, span));
            anyhow!("{}:{line}: {}", path.display(), error.message())
        })?;
        let mut file = Self {
            path: path.to_path_buf(),
            source,
            text,
            config: VmConfig::default(),
        };
        for (span, value) in file.strings() {
            if value.contains(['\n', '\r', '\0']) || value.trim() != value {
                let why = "no line breaks, and no space at either end";
                return Err(file.at(&span, why));
            }
        }
        let kernel = file.text.kernel.as_ref();
        let initramfs = file.text.initramfs.as_ref().map(Spanned::as_ref);
        let text = file.compile(kernel, initramfs.map(String::as_str));
        file.config = VmConfig::read(&text).map_err(|error| file.explain(&error))?;
        Ok(file)
    }

    /// The hypervisor's text, with these files as the bundle calls them.
    pub fn compile(&self, kernel: &str, initramfs: Option<&str>) -> String {
        let mut out = String::new();
        let mut line = |key: &str, value: &str| {
            // Writing to a string never fails.
            let _ = writeln!(out, "{key} = {value}");
        };
        let text = &self.text;
        let mut optional = |key, value: &Option<Spanned<String>>| {
            if let Some(value) = value {
                line(key, value.as_ref());
            }
        };
        optional("ids", &text.physical_ids);
        optional("cpus", &text.cpus);
        optional("command_line", &text.command_line);
        optional("restart", &text.restart);
        line("name", text.name.as_ref());
        line("vcpus", &text.vcpus.as_ref().to_string());
        line("memory", text.memory.as_ref());
        line("kernel", kernel);
        if let Some(initramfs) = initramfs {
            line("initramfs", initramfs);
        }
        if let Some(wait) = &text.restart_wait_ms {
            line("restart_wait", &wait.as_ref().to_string());
        }
        if let Some(poll) = &text.idle_poll_us {
            line("idle_poll", &poll.as_ref().to_string());
        }
        if let Some(exclusive) = &text.exclusive {
            line("exclusive", &exclusive.as_ref().to_string());
        }
        match &text.devices {
            Some(devices) => devices
                .as_ref()
                .iter()
                .for_each(|name| line("device", name)),
            None => DeviceKind::ALL
                .iter()
                .for_each(|kind| line("device", kind.name())),
        }
        line("pv_ipi", &text.paravirt.ipi.to_string());
        line("pv_steal_time", &text.paravirt.steal_time.to_string());
        line("control", &text.paravirt.control.to_string());
        out
    }

    /// Checks what Linux, its kernel, wants besides.
    ///
    /// # Errors
    /// The boot vCPU's physical id isn't 0. Linux, up to 7.2 at least, asks the CPU that
    /// boots for its id only where there are ACPI tables (arch/loongarch/kernel/acpi.c,
    /// `boot_cpu_id`); with a device tree it takes 0 for it, whatever the tree says. With
    /// `5,7,9` it faults before its console is up, since its CPU 0 belongs to no node;
    /// with `5,0,7` it waits in vain for the CPU 5, which it runs on.
    pub fn check_for_linux(&self) -> Result<()> {
        match (self.config.ids.first(), &self.text.physical_ids) {
            (Some(1..MAX_PHYSICAL_ID), Some(ids)) => Err(self.at(
                &ids.span(),
                "Linux boots only if the first physical id is 0: it takes that for its own",
            )),
            _ => Ok(()),
        }
    }

    /// Every string of the file that goes into the hypervisor's text, and its place.
    fn strings(&self) -> Vec<(Range<usize>, &str)> {
        let text = &self.text;
        let needed = [&text.name, &text.memory, &text.kernel];
        let optional = [
            &text.physical_ids,
            &text.cpus,
            &text.initramfs,
            &text.command_line,
            &text.restart,
        ];
        let strings = needed.into_iter().chain(optional.into_iter().flatten());
        let mut all: Vec<_> = strings.map(|s| (s.span(), s.as_ref().as_str())).collect();
        if let Some(devices) = &text.devices {
            let names = devices.as_ref().iter();
            all.extend(names.map(|name| (devices.span(), name.as_str())));
        }
        all
    }

    /// The path of the kernel's file.
    pub fn kernel(&self, cx: &Context) -> PathBuf {
        self.resolve(cx, self.text.kernel.as_ref())
    }

    /// The path of the initramfs's file.
    pub fn initramfs(&self, cx: &Context) -> Option<PathBuf> {
        let name = self.text.initramfs.as_ref()?;
        Some(self.resolve(cx, name.as_ref()))
    }

    /// A path beside this file, or one of the files that `setup` makes.
    fn resolve(&self, cx: &Context, name: &str) -> PathBuf {
        match name {
            "@kernel" => images::kernel(cx),
            "@shell" => Image::Shell.path(cx),
            "@bench" => Image::Bench.path(cx),
            _ => self.path.parent().unwrap_or(Path::new("")).join(name),
        }
    }

    /// An error of the hypervisor's rules, at the key that is at fault.
    pub fn explain(&self, error: &ConfigError) -> anyhow::Error {
        let text = &self.text;
        let span = |value: &Option<Spanned<String>>| value.as_ref().map(Spanned::span);
        let span = match error {
            ConfigError::Syntax(_, what) => return self.explain_syntax(what),
            ConfigError::UnknownKey(..) | ConfigError::Missing(_) | ConfigError::Long(_) => None,
            ConfigError::Vcpus(_) => Some(text.vcpus.span()),
            ConfigError::IdCount(..) | ConfigError::Id(_) => span(&text.physical_ids),
            ConfigError::NoCpu(_) | ConfigError::CpuTwice(_) | ConfigError::Claimed(..) => {
                span(&text.cpus)
            }
            ConfigError::NothingToClaim => text.exclusive.as_ref().map(Spanned::span),
            ConfigError::MemorySize(_) | ConfigError::TooMuchMemory(..) => Some(text.memory.span()),
            ConfigError::NoFile(_) => Some(text.kernel.span()),
            ConfigError::Name(_) | ConfigError::BadName => Some(text.name.span()),
            ConfigError::OutOfSpace(..)
            | ConfigError::Overlap(..)
            | ConfigError::Second(_)
            | ConfigError::Devices(_) => text.devices.as_ref().map(Spanned::span),
        };
        self.at(&span.unwrap_or(0..0), &error.to_string())
    }

    /// A value that the hypervisor can't read: which one, only its words tell.
    fn explain_syntax(&self, what: &str) -> anyhow::Error {
        let text = &self.text;
        let lists = text.physical_ids.iter().chain(&text.cpus);
        let bad_list = |list: &&Spanned<String>| hv::config::list::<u32>(list.as_ref()).is_none();
        let span = match what {
            NOT_A_SIZE => Some(text.memory.span()),
            NOT_A_DEVICE => text.devices.as_ref().map(Spanned::span),
            NOT_A_POLICY => text.restart.as_ref().map(Spanned::span),
            NOT_A_WAIT => text.restart_wait_ms.as_ref().map(Spanned::span),
            NOT_A_POLL => text.idle_poll_us.as_ref().map(Spanned::span),
            _ => lists.into_iter().find(bad_list).map(Spanned::span),
        };
        self.at(&span.unwrap_or(0..0), what)
    }

    /// An error about what stands at `span`.
    pub fn at(&self, span: &Range<usize>, what: &str) -> anyhow::Error {
        let line = line_of(&self.source, span.clone());
        anyhow!("{}:{line}: {what}", self.path.display())
    }

    /// An error about the kernel's or the initramfs's file.
    pub fn at_file(&self, initramfs: bool, what: &str) -> anyhow::Error {
        let span = match &self.text.initramfs {
            Some(name) if initramfs => name.span(),
            _ => self.text.kernel.span(),
        };
        self.at(&span, what)
    }
}

/// The line that `span` begins on, 1 for the first.
fn line_of(source: &str, span: Range<usize>) -> usize {
    let before = source.get(..span.start).unwrap_or(source);
    before.matches('\n').count() + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "name = \"web\"\nvcpus = 2\nphysical-ids = \"0,5\"\nmemory = \"1G\"\n\
                        kernel = \"k\"\ninitramfs = \"i\"\ncommand-line = \"quiet a=b\"\n\
                        cpus = \"0-3\"\nexclusive = true\nrestart = \"always\"\n\
                        devices = [\"uart\"]\nidle-poll-us = 30\n\
                        restart-wait-ms = 60000\n[paravirt]\nipi = false\n";

    fn parse(source: &str) -> Result<VmFile> {
        VmFile::parse(Path::new("f/web.toml"), source.to_owned())
    }

    fn why(change: (&str, &str)) -> String {
        let source = GOOD.replace(change.0, change.1);
        assert_ne!(source, GOOD);
        parse(&source).unwrap_err().to_string()
    }

    #[test]
    fn a_file_becomes_what_the_hypervisor_reads() {
        let file = parse(GOOD).unwrap();
        let config = VmConfig::read(&file.compile("kernel", Some("rd"))).unwrap();
        assert_eq!(
            (config.name.as_str(), config.kernel.as_str()),
            ("web", "kernel")
        );
        assert_eq!(config.initramfs.as_deref(), Some("rd"));
        assert_eq!((config.ids, config.cpus), (vec![0, 5], vec![0, 1, 2, 3]));
        assert_eq!(config.command_line, "quiet a=b");
        assert!(config.exclusive && !config.pv_ipi);
        assert_eq!((config.idle_poll, config.restart_wait), (30, 60_000));
        assert_eq!(config.devices.len(), 1);
    }

    #[test]
    fn what_is_not_said_has_a_default() {
        let source = "name = \"a\"\nvcpus = 3\nmemory = \"1G\"\nkernel = \"k\"\n";
        let config = parse(source).unwrap().config;
        assert_eq!(config.ids, [0, 1, 2]);
        assert_eq!(config.devices.len(), DeviceKind::ALL.len());
        assert!(config.pv_ipi && !config.exclusive && config.cpus.is_empty());
        assert_eq!((config.idle_poll, config.restart_wait), (0, 1000));
    }

    #[test]
    fn errors_name_file_and_line() {
        for (change, what) in [
            (
                ("exclusive", "colour"),
                "f/web.toml:9: unknown field `colour`",
            ),
            (("ipi =", "ipj ="), "f/web.toml:15: unknown field `ipj`"),
            (("vcpus = 2", "vcpus = 129"), "f/web.toml:2: 129 vCPUs"),
            (
                ("vcpus = 2", "vcpus = 3"),
                "f/web.toml:3: 2 physical ids for 3 vCPUs",
            ),
            (("vcpus = 2", "vcpus = \"2\""), "f/web.toml:2: invalid type"),
            (("1G", "1T"), "f/web.toml:4: not a size"),
            (("0-3", "3-0"), "f/web.toml:8: not a list of numbers"),
            (("\"uart\"", "\"toaster\""), "f/web.toml:11: not a device"),
            (
                ("always", "sometimes"),
                "f/web.toml:10: not a restart policy",
            ),
            (("quiet", "quiet\\n"), "f/web.toml:7: no line breaks"),
            (("us = 30", "us = 10001"), "f/web.toml:12: not a number of"),
            (
                ("ms = 60000", "ms = 3600001"),
                "f/web.toml:13: not a number of milliseconds",
            ),
            (("\"web\"", "\"we b\""), "f/web.toml:1: a name"),
            (("kernel =", "kernel"), "f/web.toml:5:"),
        ] {
            let why = why(change);
            assert!(why.starts_with(what), "{why}");
        }
    }

    #[test]
    fn files_lie_beside_the_configuration() {
        let cache = tempfile::tempdir().unwrap();
        let cx = Context::for_tests(cache.path());
        let file = parse(GOOD).unwrap();
        assert_eq!(file.kernel(&cx), Path::new("f/k"));
        let file = parse(&GOOD.replace("\"k\"", "\"@kernel\"")).unwrap();
        assert_eq!(file.kernel(&cx), images::kernel(&cx));
    }
}
