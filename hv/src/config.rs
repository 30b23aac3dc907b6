//! What a VM is to be: its configuration, read and checked.
//!
//! A configuration is text, one `key = value` a line, `#` for comments, in a
//! file of the bundle whose name ends in `.vm`. Everything that can be told
//! from it and from the machine is checked before a VM exists, and refused
//! with what and why.

use crate::dev::layout;
use crate::mm::addr::{Gpa, PAGE_BYTES, overlap};
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

/// Most vCPUs of a VM: what one hypercall can address.
pub const MAX_VCPUS: usize = 128;
/// Physical CPU ids are below this: 10 bits, as IPI_SEND has them.
pub const MAX_PHYSICAL_ID: u32 = 1024;
/// Where a VM's RAM below its devices ends, as on QEMU's `virt`.
pub const LOW_RAM_END: u64 = 0x1000_0000;
/// Where the rest of its RAM begins.
pub const HIGH_RAM: u64 = 0x8000_0000;

/// A kind of device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceKind {
    /// A 16550A UART, the VM's console.
    Uart,
    /// PCH-PIC, the controller of the other devices' interrupts.
    PchPic,
    /// PCH-MSI, the target of message-signalled interrupts.
    PchMsi,
    /// The real-time clock.
    Rtc,
    /// The power controller: off and reset.
    Power,
    /// Legacy I/O ports with nothing behind them.
    Ports,
}

impl DeviceKind {
    /// Every kind, those that are accessed most first.
    pub const ALL: [Self; 6] = [
        Self::PchPic,
        Self::Uart,
        Self::PchMsi,
        Self::Rtc,
        Self::Power,
        Self::Ports,
    ];

    /// Bytes that it covers.
    #[must_use]
    pub const fn bytes(self) -> u64 {
        self.default_range().bytes
    }

    /// Its name in a configuration.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Uart => "uart",
            Self::PchPic => "pch-pic",
            Self::PchMsi => "pch-msi",
            Self::Rtc => "rtc",
            Self::Power => "power",
            Self::Ports => "ports",
        }
    }

    /// Where it is unless the configuration says otherwise.
    #[must_use]
    pub const fn default_range(self) -> layout::Range {
        match self {
            Self::Uart => layout::UART,
            Self::PchPic => layout::PCH_PIC,
            Self::PchMsi => layout::PCH_MSI,
            Self::Rtc => layout::RTC,
            Self::Power => layout::POWER,
            Self::Ports => layout::PORTS,
        }
    }
}

/// A device and its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Device {
    /// What it is.
    pub kind: DeviceKind,
    /// Its first guest physical address.
    pub base: Gpa,
}

/// A VM as it is to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VmConfig {
    /// Its name, as the console shows it.
    pub name: String,
    /// Physical ids of its vCPUs, in their order; as many as it has vCPUs.
    pub ids: Vec<u32>,
    /// Indices of the machine's CPUs that it runs on; empty for all.
    pub cpus: Vec<usize>,
    /// Bytes of RAM.
    pub memory: u64,
    /// The bundle's file that it starts: an ELF, or a Linux kernel image.
    pub kernel: String,
    /// The bundle's file that is the kernel's first file system.
    pub initramfs: Option<String>,
    /// What that file gets as its command line.
    pub command_line: String,
    /// Its devices.
    pub devices: Vec<Device>,
    /// Whether the paravirtual IPI is offered.
    pub pv_ipi: bool,
}

/// What is wrong with a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConfigError {
    /// The line isn't `key = value`, or the value can't be read.
    Syntax(usize, &'static str),
    /// The line's key isn't known.
    UnknownKey(usize, String),
    /// A key that must be there isn't.
    Missing(&'static str),
    /// No vCPU, or more than [`MAX_VCPUS`].
    Vcpus(usize),
    /// As many physical ids as vCPUs are needed.
    IdCount(usize, usize),
    /// A physical id that is too large or given twice.
    Id(u32),
    /// The machine has no CPU of this index.
    NoCpu(usize),
    /// RAM of this size isn't a multiple of 16 KiB above 0.
    MemorySize(u64),
    /// More RAM than is free: wanted, free.
    TooMuchMemory(u64, u64),
    /// The bundle has no such file.
    NoFile(String),
    /// A device ends beyond the guest's 48-bit physical space.
    OutOfSpace(&'static str, Gpa),
    /// A device shares addresses with another one or with RAM.
    Overlap(&'static str, Gpa, &'static str),
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Syntax(line, what) => write!(f, "line {line}: {what}"),
            Self::UnknownKey(line, key) => write!(f, "line {line}: unknown key {key}"),
            Self::Missing(key) => write!(f, "{key} is missing"),
            Self::Vcpus(count) => write!(f, "{count} vCPUs: 1 to {MAX_VCPUS} are possible"),
            Self::IdCount(ids, vcpus) => write!(f, "{ids} physical ids for {vcpus} vCPUs"),
            Self::Id(id) => write!(
                f,
                "physical id {id} is given twice or not below {MAX_PHYSICAL_ID}"
            ),
            Self::NoCpu(index) => write!(f, "the machine has no CPU {index}"),
            Self::MemorySize(bytes) => {
                write!(f, "{bytes} bytes of RAM: not a multiple of 16 KiB above 0")
            }
            Self::TooMuchMemory(wanted, free) => {
                write!(
                    f,
                    "{} MiB of RAM wanted, {} MiB free",
                    wanted >> 20,
                    free >> 20
                )
            }
            Self::NoFile(name) => write!(f, "no file {name} in the bundle"),
            Self::OutOfSpace(device, at) => write!(f, "{device} at {at} is beyond 48 bits"),
            Self::Overlap(device, at, other) => write!(f, "{device} at {at} overlaps {other}"),
        }
    }
}

/// What a configuration is checked against.
#[derive(Clone, Copy)]
pub struct Limits<'a> {
    /// CPUs of the machine.
    pub cpus: usize,
    /// Bytes of free RAM.
    pub memory: u64,
    /// Whether the bundle has a file.
    pub has_file: &'a dyn Fn(&str) -> bool,
}

impl VmConfig {
    /// Reads a configuration; it still has to be checked.
    ///
    /// # Errors
    /// [`ConfigError::Syntax`], [`ConfigError::UnknownKey`],
    /// [`ConfigError::Missing`].
    pub fn read(text: &str) -> Result<Self, ConfigError> {
        let mut reader = Reader::default();
        for (index, line) in text.lines().enumerate() {
            let line = line.trim();
            if !line.is_empty() && !line.starts_with('#') {
                reader.line(index + 1, line)?;
            }
        }
        reader.finish()
    }

    /// Checks it against the machine, before anything is made of it.
    ///
    /// # Errors
    /// The first thing that can't be met.
    pub fn check(&self, limits: &Limits<'_>) -> Result<(), ConfigError> {
        if self.ids.is_empty() || self.ids.len() > MAX_VCPUS {
            return Err(ConfigError::Vcpus(self.ids.len()));
        }
        for (index, &id) in self.ids.iter().enumerate() {
            let twice = self.ids.iter().skip(index + 1).any(|&other| other == id);
            if id >= MAX_PHYSICAL_ID || twice {
                return Err(ConfigError::Id(id));
            }
        }
        if let Some(&index) = self.cpus.iter().find(|&&index| index >= limits.cpus) {
            return Err(ConfigError::NoCpu(index));
        }
        if self.memory == 0 || !self.memory.is_multiple_of(PAGE_BYTES) {
            return Err(ConfigError::MemorySize(self.memory));
        }
        if self.memory > limits.memory {
            return Err(ConfigError::TooMuchMemory(self.memory, limits.memory));
        }
        let mut files = self.initramfs.iter().chain([&self.kernel]);
        if let Some(missing) = files.find(|file| !(limits.has_file)(file)) {
            return Err(ConfigError::NoFile(missing.clone()));
        }
        self.check_devices()
    }

    /// The guest physical ranges of its RAM: address and bytes.
    #[must_use]
    pub fn ram(&self) -> Vec<(Gpa, u64)> {
        let low = self.memory.min(LOW_RAM_END);
        let mut ram = alloc::vec![(Gpa::new(0), low)];
        if self.memory > low {
            ram.push((Gpa::new(HIGH_RAM), self.memory - low));
        }
        ram
    }

    fn check_devices(&self) -> Result<(), ConfigError> {
        for (index, device) in self.devices.iter().enumerate() {
            let (base, bytes) = (device.base.get(), device.kind.bytes());
            if base > (1 << 48) - bytes {
                return Err(ConfigError::OutOfSpace(device.kind.name(), device.base));
            }
            let others = self.devices.iter().skip(index + 1);
            let others = others.map(|d| (d.kind.name(), d.base.get(), d.kind.bytes()));
            let ram = self.ram();
            let ram = ram.iter().map(|(gpa, bytes)| ("RAM", gpa.get(), *bytes));
            for (other, at, length) in others.chain(ram) {
                if overlap(base, bytes, at, length) {
                    return Err(ConfigError::Overlap(device.kind.name(), device.base, other));
                }
            }
        }
        Ok(())
    }
}

#[derive(Default)]
struct Reader {
    name: Option<String>,
    vcpus: Option<usize>,
    ids: Option<Vec<u32>>,
    cpus: Vec<usize>,
    memory: Option<u64>,
    kernel: Option<String>,
    initramfs: Option<String>,
    command_line: String,
    devices: Vec<Device>,
    pv_ipi: bool,
}

impl Reader {
    fn line(&mut self, number: usize, line: &str) -> Result<(), ConfigError> {
        let bad = |what| ConfigError::Syntax(number, what);
        let (key, value) = line.split_once('=').ok_or(bad("no `key = value`"))?;
        let (key, value) = (key.trim(), value.trim());
        match key {
            "name" => self.name = Some(value.into()),
            "vcpus" => self.vcpus = Some(value.parse().map_err(|_| bad("not a number"))?),
            "ids" => self.ids = Some(list(value).ok_or(bad("not a list of numbers"))?),
            "cpus" => self.cpus = list(value).ok_or(bad("not a list of numbers"))?,
            "memory" => self.memory = Some(size(value).ok_or(bad("not a size"))?),
            "kernel" => self.kernel = Some(value.into()),
            "initramfs" => self.initramfs = Some(value.into()),
            "command_line" => self.command_line = value.into(),
            "device" => self.devices.push(device(value).ok_or(bad("not a device"))?),
            "pv_ipi" => self.pv_ipi = value.parse().map_err(|_| bad("not true or false"))?,
            _ => return Err(ConfigError::UnknownKey(number, key.into())),
        }
        Ok(())
    }

    fn finish(self) -> Result<VmConfig, ConfigError> {
        let vcpus = self.vcpus.ok_or(ConfigError::Missing("vcpus"))?;
        if vcpus == 0 || vcpus > MAX_VCPUS {
            return Err(ConfigError::Vcpus(vcpus));
        }
        let ids = self.ids.unwrap_or_else(|| (0..vcpus as u32).collect());
        if ids.len() != vcpus {
            return Err(ConfigError::IdCount(ids.len(), vcpus));
        }
        Ok(VmConfig {
            name: self.name.ok_or(ConfigError::Missing("name"))?,
            ids,
            cpus: self.cpus,
            memory: self.memory.ok_or(ConfigError::Missing("memory"))?,
            kernel: self.kernel.ok_or(ConfigError::Missing("kernel"))?,
            initramfs: self.initramfs,
            command_line: self.command_line,
            devices: self.devices,
            pv_ipi: self.pv_ipi,
        })
    }
}

/// Most numbers that a list may name.
const MAX_LIST: usize = 4096;

/// Numbers and ranges: `0,2,4-7`.
fn list<T: TryFrom<u64>>(text: &str) -> Option<Vec<T>> {
    let mut all = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (parse(first)?, parse(last)?);
        if last < first || last - first >= MAX_LIST as u64 || all.len() >= MAX_LIST {
            return None;
        }
        for number in first..=last {
            all.push(T::try_from(number).ok()?);
        }
    }
    Some(all)
}

/// A number, decimal or with 0x.
fn parse(text: &str) -> Option<u64> {
    let text = text.trim();
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

/// A number of bytes, with K, M or G behind it or not.
fn size(text: &str) -> Option<u64> {
    let (digits, unit) = match text.as_bytes().last()? {
        b'K' => (text.strip_suffix('K')?, 1 << 10),
        b'M' => (text.strip_suffix('M')?, 1 << 20),
        b'G' => (text.strip_suffix('G')?, 1 << 30),
        _ => (text, 1),
    };
    parse(digits)?.checked_mul(unit)
}

/// `kind` or `kind@address`.
fn device(text: &str) -> Option<Device> {
    let (kind, at) = match text.split_once('@') {
        Some((kind, at)) => (kind, Some(parse(at)?)),
        None => (text, None),
    };
    let kind = DeviceKind::ALL.into_iter().find(|k| k.name() == kind)?;
    let base = at.map_or(kind.default_range().base, Gpa::new);
    Some(Device { kind, base })
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "
        # A guest on two CPUs.
        name = tester
        vcpus = 4
        ids = 0,5,64,127
        cpus = 0-1
        memory = 512M
        kernel = guest.elf
        command_line = a=1 b
        device = uart
        pv_ipi = true
    ";

    fn limits(has_file: &dyn Fn(&str) -> bool) -> Limits<'_> {
        Limits {
            cpus: 2,
            memory: 1 << 30,
            has_file,
        }
    }

    fn check(config: &VmConfig) -> Result<(), ConfigError> {
        config.check(&limits(&|name| name == "guest.elf"))
    }

    fn good_with(change: impl FnOnce(&mut VmConfig)) -> Result<(), ConfigError> {
        let mut config = VmConfig::read(GOOD).unwrap();
        change(&mut config);
        check(&config)
    }

    #[test]
    fn a_good_configuration_is_read_and_passes() {
        let config = VmConfig::read(GOOD).unwrap();
        assert_eq!(config.name, "tester");
        assert_eq!(config.ids, [0, 5, 64, 127]);
        assert_eq!(config.cpus, [0, 1]);
        assert_eq!(config.command_line, "a=1 b");
        assert_eq!(config.devices[0].base, Gpa::new(0x1fe0_01e0));
        assert!(config.pv_ipi);
        assert_eq!(
            config.ram(),
            [(Gpa::new(0), LOW_RAM_END), (Gpa::new(HIGH_RAM), 256 << 20)]
        );
        assert_eq!(check(&config), Ok(()));
    }

    #[test]
    fn what_the_machine_cannot_give_is_refused() {
        let cases: [(&str, Result<(), ConfigError>); 9] = [
            ("id too large", good_with(|c| c.ids[3] = 1024)),
            ("id twice", good_with(|c| c.ids[3] = 5)),
            ("cpu", good_with(|c| c.cpus.push(2))),
            ("memory 0", good_with(|c| c.memory = 0)),
            ("memory odd", good_with(|c| c.memory += 1)),
            ("memory", good_with(|c| c.memory = 2 << 30)),
            ("file", good_with(|c| c.kernel = "x".into())),
            ("other file", good_with(|c| c.initramfs = Some("y".into()))),
            ("vcpus", good_with(|c| c.ids = (0..129).collect())),
        ];
        let errors = [
            ConfigError::Id(1024),
            ConfigError::Id(5),
            ConfigError::NoCpu(2),
            ConfigError::MemorySize(0),
            ConfigError::MemorySize((512 << 20) + 1),
            ConfigError::TooMuchMemory(2 << 30, 1 << 30),
            ConfigError::NoFile("x".into()),
            ConfigError::NoFile("y".into()),
            ConfigError::Vcpus(129),
        ];
        for ((name, result), error) in cases.into_iter().zip(errors) {
            assert_eq!(result, Err(error), "{name}");
        }
    }

    #[test]
    fn overlapping_devices_are_refused() {
        let uart = |base| Device {
            kind: DeviceKind::Uart,
            base: Gpa::new(base),
        };
        let twice = good_with(|c| c.devices.push(uart(0x1fe0_02df)));
        let place = Gpa::new(0x1fe0_01e0);
        assert_eq!(twice, Err(ConfigError::Overlap("uart", place, "uart")));
        let in_ram = good_with(|c| c.devices[0] = uart(LOW_RAM_END - 1));
        let place = Gpa::new(LOW_RAM_END - 1);
        assert_eq!(in_ram, Err(ConfigError::Overlap("uart", place, "RAM")));
        assert_eq!(good_with(|c| c.devices.push(uart(0x1fe0_02e0))), Ok(()));
        let place = Gpa::new(u64::MAX);
        let beyond = good_with(|c| c.devices[0] = uart(u64::MAX));
        assert_eq!(beyond, Err(ConfigError::OutOfSpace("uart", place)));
    }

    #[test]
    fn every_device_has_a_place_beside_the_others() {
        let all = good_with(|config| {
            config.devices = DeviceKind::ALL
                .map(|kind| device(kind.name()).unwrap())
                .to_vec();
        });
        assert_eq!(all, Ok(()));
    }

    #[test]
    fn vcpu_counts_end_at_128() {
        let read =
            |n: usize| VmConfig::read(&alloc::format!("name=a\nvcpus={n}\nmemory=1M\nkernel=k"));
        for n in [1, 2, 3, 5, 64, 127, 128] {
            assert_eq!(read(n).unwrap().ids.len(), n);
        }
        for n in [0, 129, 100_000] {
            assert_eq!(read(n), Err(ConfigError::Vcpus(n)));
        }
        let text = alloc::format!("{}", ConfigError::Vcpus(129));
        assert_eq!(text, "129 vCPUs: 1 to 128 are possible");
    }

    #[test]
    fn bad_lines_are_named() {
        for (text, error) in [
            ("name", ConfigError::Syntax(1, "no `key = value`")),
            ("\nvcpus = many", ConfigError::Syntax(2, "not a number")),
            ("memory = 1T", ConfigError::Syntax(1, "not a size")),
            ("ids = 3-1", ConfigError::Syntax(1, "not a list of numbers")),
            (
                "ids = 0-99999",
                ConfigError::Syntax(1, "not a list of numbers"),
            ),
            ("device = toaster", ConfigError::Syntax(1, "not a device")),
            ("colour = red", ConfigError::UnknownKey(1, "colour".into())),
            ("vcpus = 1", ConfigError::Missing("name")),
            ("vcpus = 2\nids = 1", ConfigError::IdCount(1, 2)),
        ] {
            assert_eq!(VmConfig::read(text).unwrap_err(), error, "{text}");
        }
    }

    #[test]
    fn numbers_have_units_and_bases() {
        assert_eq!(size("0x10K"), Some(0x4000));
        assert_eq!(size("16777216G"), Some(1 << 54));
        assert_eq!(size("99999999999G"), None);
        assert_eq!(list::<u32>("1, 3-5,0x10"), Some(vec![1, 3, 4, 5, 16]));
    }
}
