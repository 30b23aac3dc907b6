//! What can be wrong with a configuration.

use super::{MAX_DEVICES, MAX_NAME, MAX_PHYSICAL_ID, MAX_TEXT, MAX_VCPUS};
use crate::mm::addr::Gpa;
use alloc::string::String;
use core::fmt;

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
    /// A CPU is named twice.
    CpuTwice(usize),
    /// RAM of this size isn't a multiple of 16 KiB above 0.
    MemorySize(u64),
    /// More RAM than is free: wanted, free.
    TooMuchMemory(u64, u64),
    /// The bundle has no such file.
    NoFile(String),
    /// CPUs are claimed, but none is named.
    NothingToClaim,
    /// Another VM, of this name, claims this CPU, or runs on it though it is
    /// claimed here.
    Claimed(usize, String),
    /// The name isn't 1 to [`MAX_NAME`] letters, digits, `-`, `_` or `.`.
    BadName,
    /// Another VM has this name.
    Name(String),
    /// A device ends beyond the guest's 48-bit physical space.
    OutOfSpace(&'static str, Gpa),
    /// A device shares addresses with another one or with RAM.
    Overlap(&'static str, Gpa, &'static str),
    /// There can be only one of this device.
    Second(&'static str),
    /// More than [`MAX_DEVICES`] devices.
    Devices(usize),
    /// More than [`MAX_TEXT`] bytes.
    Long(usize),
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
            Self::CpuTwice(index) => write!(f, "CPU {index} is named twice"),
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
            Self::NothingToClaim => write!(f, "exclusive, but no cpus are named"),
            Self::Claimed(cpu, name) => write!(f, "CPU {cpu} is the VM {name}'s too"),
            Self::BadName => write!(f, "a name has 1 to {MAX_NAME} letters, digits, -, _ or ."),
            Self::Name(name) => write!(f, "another VM is called {name}"),
            Self::OutOfSpace(device, at) => write!(f, "{device} at {at} is beyond 48 bits"),
            Self::Overlap(device, at, other) => write!(f, "{device} at {at} overlaps {other}"),
            Self::Devices(count) => write!(f, "{count} devices: {MAX_DEVICES} are possible"),
            Self::Long(bytes) => write!(f, "{bytes} bytes of text: {MAX_TEXT} are possible"),
            Self::Second(device) => write!(f, "a VM has one {device}, not two"),
        }
    }
}
