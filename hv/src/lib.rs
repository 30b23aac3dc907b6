//! Loongvisor: a type-1 hypervisor for LoongArch machines with LVZ.
//!
//! The library holds everything; the binary only starts it. Whatever doesn't
//! touch the machine is plain safe Rust that is also built and tested on the
//! host: a crate-wide `cfg` that would keep it from there is a mistake.
//!
//! # From reset to a guest
//!
//! `main` → `start` (one CPU: console, memory, the other CPUs awake) →
//! `launch` (the bundle's configurations, checked; VMs made of them) →
//! `processor` (each CPU, for good: pick a vCPU, load it, run it, or sleep).
//!
//! # An exit
//!
//! ```text
//! guest ──exception──► arch::stubs: an IPI sent, received, acknowledged ──────────────► guest
//!                       │ anything else
//!                       ▼
//!                      arch::world_switch ► vcpu::run ► vcpu::handle ► vcpu::emulate ─► guest
//!                       what others want of it: │ postbox              │ dev, vm
//!                       sleeps, is preempted, moves, stops: back to processor
//! ```
//!
//! Nothing on this way allocates, formats, or holds a lock across the entry.
//! Who wants something of a vCPU, another one's IPI, a device's interrupt or
//! the user's stop, posts it to its [`vcpu::postbox`], and kicks its CPU
//! where that is in the guest.
//!
//! # Where to look
//!
//! | module | holds |
//! | --- | --- |
//! | [`vcpu`] | a virtual CPU: exits, emulation, interrupts, timer, steal time |
//! | [`vm`] | what its vCPUs share: memory, devices, physical ids |
//! | [`dev`] | the devices a guest sees |
//! | [`mm`] | addresses, frames, second-stage tables, guest identifiers |
//! | [`sched`] | whose turn it is on a CPU |
//! | [`config`], [`bundle`], [`boot`] | what a VM is to be, and what its guest finds |
//! | [`console`] | the one line that all share, and its keys |
//! | [`platform`] | the machine: what firmware says of it, and its devices |
//! | `arch` | all of the assembly |
#![cfg_attr(target_os = "none", no_std)]

extern crate alloc;

pub use loongarch_isa as isa;

#[cfg(target_arch = "loongarch64")]
pub mod arch;
pub mod boot;
pub mod bundle;
pub mod command_line;
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
