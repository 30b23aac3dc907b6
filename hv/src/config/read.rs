//! The text of a configuration, taken apart.

use super::{
    ConfigError, DEFAULT_IDLE_POLL, DEFAULT_RESTART_WAIT, Device, DeviceKind, MAX_IDLE_POLL,
    MAX_NAME, MAX_RESTART_WAIT, MAX_VCPUS, Restart, VmConfig,
};
use crate::mm::addr::Gpa;
use alloc::string::String;
use alloc::vec::Vec;

/// What a size, a device, a restart policy or a time must look like.
pub const NOT_A_SIZE: &str = "not a size, such as 512M or 2G";
/// See [`NOT_A_SIZE`].
pub const NOT_A_DEVICE: &str = "not a device: pch-pic, uart, pch-msi, rtc, power or ports";
/// See [`NOT_A_SIZE`].
pub const NOT_A_POLICY: &str = "not a restart policy: never, reset or always";
/// See [`NOT_A_SIZE`].
pub const NOT_A_WAIT: &str = "not a number of milliseconds up to 3600000";
/// See [`NOT_A_SIZE`].
pub const NOT_A_POLL: &str = "not a number of microseconds up to 10000";

#[derive(Default)]
pub(super) struct Reader {
    name: Option<String>,
    vcpus: Option<usize>,
    ids: Option<Vec<u32>>,
    cpus: Vec<usize>,
    exclusive: bool,
    restart: Restart,
    restart_wait: Option<u64>,
    memory: Option<u64>,
    kernel: Option<String>,
    initramfs: Option<String>,
    command_line: String,
    devices: Vec<Device>,
    pv_ipi: bool,
    pv_steal_time: bool,
    control: bool,
    idle_poll: Option<u64>,
}

impl Reader {
    pub(super) fn line(&mut self, number: usize, line: &str) -> Result<(), ConfigError> {
        let bad = |what| ConfigError::Syntax(number, what);
        let (key, value) = line.split_once('=').ok_or(bad("no `key = value`"))?;
        let (key, value) = (key.trim(), value.trim());
        match key {
            "name" => self.name = Some(value.into()),
            "vcpus" => self.vcpus = Some(value.parse().map_err(|_| bad("not a number"))?),
            "ids" => self.ids = Some(list(value).ok_or(bad("not a list of numbers"))?),
            "cpus" => self.cpus = list(value).ok_or(bad("not a list of numbers"))?,
            "exclusive" => self.exclusive = value.parse().map_err(|_| bad("not true or false"))?,
            "restart" => self.restart = restart(value).ok_or(bad(NOT_A_POLICY))?,
            "restart_wait" => {
                let wait = number_up_to(value, MAX_RESTART_WAIT);
                self.restart_wait = Some(wait.ok_or(bad(NOT_A_WAIT))?);
            }
            "memory" => self.memory = Some(size(value).ok_or(bad(NOT_A_SIZE))?),
            "kernel" => self.kernel = Some(value.into()),
            "initramfs" => self.initramfs = Some(value.into()),
            "command_line" => self.command_line = value.into(),
            "device" => self.devices.push(device(value).ok_or(bad(NOT_A_DEVICE))?),
            "pv_ipi" => self.pv_ipi = value.parse().map_err(|_| bad("not true or false"))?,
            "pv_steal_time" => {
                self.pv_steal_time = value.parse().map_err(|_| bad("not true or false"))?;
            }
            "control" => self.control = value.parse().map_err(|_| bad("not true or false"))?,
            "idle_poll" => {
                let poll = number_up_to(value, MAX_IDLE_POLL);
                self.idle_poll = Some(poll.ok_or(bad(NOT_A_POLL))?);
            }
            _ => return Err(ConfigError::UnknownKey(number, key.into())),
        }
        Ok(())
    }

    pub(super) fn finish(self) -> Result<VmConfig, ConfigError> {
        let vcpus = self.vcpus.ok_or(ConfigError::Missing("vcpus"))?;
        if vcpus == 0 || vcpus > MAX_VCPUS {
            return Err(ConfigError::Vcpus(vcpus));
        }
        let ids = self.ids.unwrap_or_else(|| (0..vcpus as u32).collect());
        if ids.len() != vcpus {
            return Err(ConfigError::IdCount(ids.len(), vcpus));
        }
        let name = self.name.ok_or(ConfigError::Missing("name"))?;
        if !is_name(&name) {
            return Err(ConfigError::BadName);
        }
        Ok(VmConfig {
            name,
            ids,
            cpus: self.cpus,
            exclusive: self.exclusive,
            restart: self.restart,
            restart_wait: self.restart_wait.unwrap_or(DEFAULT_RESTART_WAIT),
            memory: self.memory.ok_or(ConfigError::Missing("memory"))?,
            kernel: self.kernel.ok_or(ConfigError::Missing("kernel"))?,
            initramfs: self.initramfs,
            command_line: self.command_line,
            devices: self.devices,
            pv_ipi: self.pv_ipi,
            pv_steal_time: self.pv_steal_time,
            control: self.control,
            idle_poll: self.idle_poll.unwrap_or(DEFAULT_IDLE_POLL),
        })
    }
}

/// The console shows names in front of what VMs print: they are plain words.
fn is_name(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    (1..=MAX_NAME).contains(&text.len()) && text.bytes().all(plain)
}

/// Most numbers that a list may name.
const MAX_LIST: u64 = 4096;

/// Numbers and ranges: `0,2,4-7`. `None` for anything else, for a number that
/// doesn't fit, and for more than 4096 of them.
pub fn list<T: TryFrom<u64>>(text: &str) -> Option<Vec<T>> {
    let mut all = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (parse(first)?, parse(last)?);
        let more = last.checked_sub(first)?;
        if more >= MAX_LIST - all.len() as u64 {
            return None;
        }
        for number in first..=last {
            all.push(T::try_from(number).ok()?);
        }
    }
    Some(all)
}

fn number_up_to(text: &str, most: u64) -> Option<u64> {
    text.parse().ok().filter(|number| *number <= most)
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
pub(super) fn size(text: &str) -> Option<u64> {
    let (digits, unit) = match text.as_bytes().last()? {
        b'K' => (text.strip_suffix('K')?, 1 << 10),
        b'M' => (text.strip_suffix('M')?, 1 << 20),
        b'G' => (text.strip_suffix('G')?, 1 << 30),
        _ => (text, 1),
    };
    parse(digits)?.checked_mul(unit)
}

fn restart(text: &str) -> Option<Restart> {
    Restart::ALL
        .into_iter()
        .find(|policy| policy.name() == text)
}

/// `kind` or `kind@address`.
pub(super) fn device(text: &str) -> Option<Device> {
    let (kind, at) = match text.split_once('@') {
        Some((kind, at)) => (kind, Some(parse(at)?)),
        None => (text, None),
    };
    let kind = DeviceKind::ALL.into_iter().find(|k| k.name() == kind)?;
    let base = at.map_or(kind.default_range().base, Gpa::new);
    Some(Device { kind, base })
}
