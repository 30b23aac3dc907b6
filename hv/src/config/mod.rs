//! What a VM is to be: its configuration, read and checked.
//!
//! A configuration is text, one `key = value` a line, `#` for comments, in a
//! file of the bundle whose name ends in `.vm`. Everything that can be told
//! from it and from the machine is checked before a VM exists, and refused
//! with what and why.

mod device;
mod error;
pub mod pace;
pub mod placement;
mod read;

pub use device::{Device, DeviceKind};
pub use error::ConfigError;
pub use read::{NOT_A_DEVICE, NOT_A_POLICY, NOT_A_POLL, NOT_A_SIZE, NOT_A_WAIT, list};

use crate::mm::addr::{Gpa, PAGE_BYTES, overlap};
use crate::vcpu::StopReason;
use alloc::string::String;
use alloc::vec::Vec;
use read::Reader;

/// Most vCPUs of a VM: what one hypercall can address.
pub const MAX_VCPUS: usize = 128;
/// Physical CPU ids are below this: 10 bits, as IPI_SEND has them.
pub const MAX_PHYSICAL_ID: u32 = 1024;
/// Most bytes of a configuration: it may stand in the heap more than once.
pub const MAX_TEXT: usize = 64 << 10;
/// Most devices of a VM.
pub const MAX_DEVICES: usize = 32;
/// Most characters of a VM's name.
pub const MAX_NAME: usize = 32;
/// Longest time that an idle vCPU polls, in microseconds.
pub const MAX_IDLE_POLL: u64 = 10_000;
/// How long it does unless the configuration says otherwise: not at all. What
/// sleeps is woken by an IPI, and so is a CPU that runs; with 20 microseconds
/// a pipe between two processes took twice as many instructions.
pub const DEFAULT_IDLE_POLL: u64 = 0;
/// The longest that a VM may be made to wait before it starts anew, in
/// milliseconds, and what it is unless the configuration says otherwise.
pub const MAX_RESTART_WAIT: u64 = 3_600_000;
/// See [`MAX_RESTART_WAIT`].
pub const DEFAULT_RESTART_WAIT: u64 = 1000;
/// Where a VM's RAM below its devices ends, as on QEMU's `virt`.
pub const LOW_RAM_END: u64 = 0x1000_0000;
/// Where the rest of its RAM begins.
pub const HIGH_RAM: u64 = 0x8000_0000;

/// When a VM that has ended starts anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Restart {
    /// Not by itself.
    Never,
    /// When it has reset itself.
    #[default]
    Reset,
    /// Whatever ended it, but for the user.
    Always,
}

impl Restart {
    /// Every policy.
    pub const ALL: [Self; 3] = [Self::Never, Self::Reset, Self::Always];

    /// Its name in a configuration.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Never => "never",
            Self::Reset => "reset",
            Self::Always => "always",
        }
    }

    /// Whether a VM that `reason` has ended starts anew.
    #[must_use]
    pub const fn after(self, reason: StopReason) -> bool {
        match reason {
            StopReason::Stopped => false,
            StopReason::Restarted => true,
            StopReason::Reset => !matches!(self, Self::Never),
            StopReason::Asked(_) | StopReason::PowerOff => matches!(self, Self::Always),
        }
    }
}

/// A VM as it is to be.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct VmConfig {
    /// Its name, as the console shows it.
    pub name: String,
    /// Physical ids of its vCPUs, in their order; as many as it has vCPUs.
    pub ids: Vec<u32>,
    /// Indices of the machine's CPUs that it runs on; empty for all.
    pub cpus: Vec<usize>,
    /// Whether no other VM may run on those CPUs.
    pub exclusive: bool,
    /// When it starts anew.
    pub restart: Restart,
    /// How long it waits at most before it starts anew by itself, where it
    /// ends at once again and again, in milliseconds; 0: it doesn't wait.
    pub restart_wait: u64,
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
    /// Whether it is told how much of its time others took.
    pub pv_steal_time: bool,
    /// Whether it is offered the calls by which it changes its own memory and
    /// where its vCPUs run.
    pub control: bool,
    /// How long an idle vCPU that has its CPU for itself looks for posts
    /// before the CPU sleeps, in microseconds, up to [`MAX_IDLE_POLL`].
    pub idle_poll: u64,
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
    /// [`ConfigError::Long`], [`ConfigError::Syntax`],
    /// [`ConfigError::UnknownKey`], [`ConfigError::Missing`].
    pub fn read(text: &str) -> Result<Self, ConfigError> {
        if text.len() > MAX_TEXT {
            return Err(ConfigError::Long(text.len()));
        }
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
        for (place, cpu) in self.cpus.iter().enumerate() {
            if self.cpus.iter().skip(place + 1).any(|other| other == cpu) {
                return Err(ConfigError::CpuTwice(*cpu));
            }
        }
        if self.exclusive && self.cpus.is_empty() {
            return Err(ConfigError::NothingToClaim);
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

    /// Checks that it can run beside `other`.
    ///
    /// # Errors
    /// [`ConfigError::Claimed`], [`ConfigError::Name`].
    pub fn check_beside(&self, other: &Self) -> Result<(), ConfigError> {
        if self.name == other.name {
            return Err(ConfigError::Name(other.name.clone()));
        }
        let mut shared = self.cpus.iter().filter(|cpu| other.cpus.contains(cpu));
        match shared.next() {
            Some(&cpu) if self.exclusive || other.exclusive => {
                Err(ConfigError::Claimed(cpu, other.name.clone()))
            }
            _ => Ok(()),
        }
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
        if self.devices.len() > MAX_DEVICES {
            return Err(ConfigError::Devices(self.devices.len()));
        }
        for (index, device) in self.devices.iter().enumerate() {
            let (base, bytes) = (device.base.get(), device.kind.bytes());
            if base > (1 << 48) - bytes {
                return Err(ConfigError::OutOfSpace(device.kind.name(), device.base));
            }
            let others = self.devices.iter().skip(index + 1);
            // All but the UART have their state in the VM, or a name in the
            // device tree that stands for one.
            let mut like = others.clone().filter(|other| other.kind == device.kind);
            if device.kind != DeviceKind::Uart && like.next().is_some() {
                return Err(ConfigError::Second(device.kind.name()));
            }
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

#[cfg(test)]
mod tests;
