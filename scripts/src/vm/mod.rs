//! Virtual machines as the user describes them: a TOML file each.
//!
//! A file is checked here as far as it can be without the machine, by the hypervisor's
//! own rules, and every error names the file and the line. What passes is compiled to
//! the hypervisor's text and travels with its kernel and initramfs as one bundle.

mod bundle;
mod file;
mod kernel;
mod linux;

pub use bundle::{Bundle, OWN_MIB, Room};
pub use linux::{Files, LinuxVm};

/// The VM that is started if none is named.
pub const DEFAULT_VM: &str = "boards/qemu-virt/vm/debian.toml";
