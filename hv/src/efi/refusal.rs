//! Why firmware keeps the machine.

use crate::bundle::BundleError;
use crate::platform::capability::Missing;
use alloc::string::String;
use core::fmt;
use uefi_raw::Status;

/// What keeps the hypervisor from starting.
#[derive(Debug)]
pub enum Refusal {
    /// The CPU can't run guests.
    Cpu(Missing),
    /// The image is for another board: why.
    Board(String),
    /// The file with a device tree holds none, or only a part of it.
    Tree,
    /// Firmware describes the machine neither by ACPI nor by a device tree.
    NoMachine,
    /// The CPU with this physical id isn't in that description.
    NotInList(u32),
    /// The console that firmware names is no 16550 at an address.
    NoConsole,
    /// No loader gives an initrd, and the file isn't there.
    NoBundle,
    /// What was found isn't a bundle.
    Bundle(BundleError),
    /// Firmware couldn't do this.
    Failed(&'static str, Status),
}

impl Refusal {
    /// What firmware is told.
    pub const fn status(&self) -> Status {
        match self {
            Self::Cpu(_)
            | Self::Board(_)
            | Self::NoMachine
            | Self::NotInList(_)
            | Self::NoConsole => Status::UNSUPPORTED,
            Self::NoBundle => Status::NOT_FOUND,
            Self::Bundle(_) | Self::Tree => Status::VOLUME_CORRUPTED,
            Self::Failed(_, status) => *status,
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cpu(missing) => write!(f, "{missing}"),
            Self::Tree => write!(f, "\\loongvisor\\devicetree holds no whole device tree"),
            Self::Board(why) => write!(f, "{why}"),
            Self::NoMachine => {
                write!(f, "firmware gives no usable ACPI tables and no device tree")
            }
            Self::NotInList(id) => {
                write!(f, "firmware's tables don't list CPU {id}, which runs this")
            }
            Self::NoConsole => write!(f, "the console that firmware names is no 16550 in memory"),
            Self::NoBundle => write!(
                f,
                "no bundle of VMs: no initrd from a boot loader, and no file \\loongvisor\\bundle \
                 beside it"
            ),
            Self::Bundle(error) => write!(f, "the bundle of VMs: {error}"),
            Self::Failed(what, status) => write!(f, "{what}: {status:?}"),
        }
    }
}
