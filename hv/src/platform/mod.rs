//! The physical side: what machine this is, and its devices.

pub mod efi;
pub mod fdt;
#[cfg(target_arch = "loongarch64")]
pub mod ipi;
#[cfg(target_arch = "loongarch64")]
pub mod power;
#[cfg(target_arch = "loongarch64")]
pub mod secondary;
pub mod uart;
