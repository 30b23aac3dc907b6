//! The physical side: what machine this is, and its devices.

pub mod acpi;
pub mod board;
pub mod capability;
pub mod efi;
#[cfg(target_arch = "loongarch64")]
pub mod eiointc;
pub mod fdt;
#[cfg(target_arch = "loongarch64")]
pub mod ipi;
pub mod machine;
#[cfg(target_arch = "loongarch64")]
pub mod pch_pic;
#[cfg(target_arch = "loongarch64")]
pub mod power;
#[cfg(target_arch = "loongarch64")]
pub mod rtc;
#[cfg(target_arch = "loongarch64")]
pub mod secondary;
pub mod uart;
