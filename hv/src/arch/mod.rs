//! The machine's own instructions: every `asm!` of the hypervisor is here, but
//! for the registers that any program of the machine accesses (`isa::access`).
//!
//! The hypervisor runs at privilege level 0 with interrupts off, in direct
//! map windows: it needs no TLB entry, and whatever interrupts it is looked
//! at, not taken, except while the CPU is idle.

pub mod bank;
pub mod boot;
pub mod cpu;
mod header;
pub mod iocsr;
pub mod leftovers;
pub mod lvz;
pub mod memory;
mod stubs;
pub mod tlb;
pub mod trap;
pub mod units;
pub mod world_switch;
