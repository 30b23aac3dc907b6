//! The guest's side of KVM's paravirtual ABI for LoongArch, for Rust kernels.
//!
//! On silicon an inter-processor interrupt costs the sender one store and the
//! receiver two accesses of IOCSR registers. In a virtual machine each of the
//! three leaves the guest. The paravirtual IPI that KVM defined, and that
//! Loongvisor offers as well, makes that one exit to send, to up to 128 CPUs
//! at once, and none to acknowledge: it arrives as software interrupt 0, and
//! what is wanted stands in a word of memory. With it comes the steal-time
//! record, which tells how long a CPU was ready and did not run.
//!
//! | to do | use |
//! | --- | --- |
//! | find out what the hypervisor offers | [`detect::features`] |
//! | send, receive, start a CPU | [`ipi::Ipi`], with a [`cpu::Cpu`] for each CPU |
//! | name a set of CPUs | [`cpu_set::CpuSet`] |
//! | read the time that was stolen | [`steal::StealRecord`] |
//! | call the hypervisor | [`call`] |
//! | the numbers themselves | [`abi`] |
//!
//! Where a feature isn't offered, on silicon or under another hypervisor,
//! [`ipi::Ipi`] sends native IPIs instead, and its user sees no difference.
//!
//! The crate allocates nothing, and only the module `loongarch`, which exists
//! on LoongArch alone, has assembly: everything else reaches the machine
//! through the trait [`machine::Machine`], so that a kernel's own logic can be
//! tested against a model on any host, as this crate's is.
//!
//! # A kernel with IPIs
//!
//! ```
//! # use guest_pv::machine::Machine;
//! use guest_pv::cpu::{Cpu, PhysicalId};
//! use guest_pv::cpu_set::CpuSet;
//! use guest_pv::ipi::{Action, Ipi};
//!
//! const RESCHEDULE: Action = Action::new(1).unwrap();
//! static CPUS: [Cpu; 4] = [const { Cpu::new() }; 4];
//!
//! /// Early: what the firmware says about the CPUs, then what the
//! /// hypervisor offers. On LoongArch, `machine` is `loongarch::Native`.
//! fn set_up<M: Machine>(machine: M) -> Ipi<'static, M> {
//!     for (cpu, id) in CPUS.iter().zip([0, 1, 4, 5]) {
//!         cpu.set_id(PhysicalId::new(id).unwrap());
//!     }
//!     Ipi::detect(machine, &CPUS)
//! }
//!
//! /// Anywhere.
//! fn kick_the_others<M: Machine>(ipi: &Ipi<'static, M>, this_cpu: usize) {
//!     let mut others = CpuSet::first(CPUS.len());
//!     others.remove(this_cpu);
//!     ipi.send_ipi_mask(&others, RESCHEDULE).unwrap();
//! }
//!
//! /// Interrupt 0, SWI0. Interrupt 12, IPI, calls `handle_ipi` likewise.
//! fn on_swi0<M: Machine>(ipi: &Ipi<'static, M>, this_cpu: usize) {
//!     for action in ipi.handle_swi0(this_cpu) {
//!         if action == RESCHEDULE { /* … */ }
//!     }
//! }
//! ```
//!
//! `examples/kernel` is a whole kernel.
#![no_std]

pub mod abi;
pub mod call;
pub mod cpu;
pub mod cpu_set;
pub mod detect;
pub mod ipi;
#[cfg(target_arch = "loongarch64")]
pub mod loongarch;
pub mod machine;
pub mod steal;
mod sync;
