//! Loongvisor: a type-1 hypervisor for LoongArch machines with LVZ.
//!
//! The library holds everything; the binary only starts it. Whatever doesn't
//! touch the machine is plain safe Rust that is also built and tested on the
//! host: a crate-wide `cfg` that would keep it from there is a mistake.
#![cfg_attr(target_os = "none", no_std)]

extern crate alloc;

pub use loongarch_isa as isa;

#[cfg(target_arch = "loongarch64")]
pub mod arch;
pub mod boot;
pub mod bundle;
pub mod config;
pub mod console;
pub mod dev;
#[cfg(target_arch = "loongarch64")]
mod efi;
#[cfg(target_arch = "loongarch64")]
mod fatal;
#[cfg(target_arch = "loongarch64")]
mod heap;
#[cfg(target_arch = "loongarch64")]
mod launch;
pub mod mm;
pub mod platform;
#[cfg(target_arch = "loongarch64")]
mod processor;
pub mod sched;
pub mod seed;
#[cfg(target_arch = "loongarch64")]
mod start;
pub mod stats;
pub mod vcpu;
pub mod vm;
