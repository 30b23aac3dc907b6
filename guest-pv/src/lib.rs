//! The guest's side of KVM's paravirtual ABI for LoongArch.
//!
//! Loongvisor offers its guests the ABI that mainline Linux speaks, so that
//! an unmodified kernel finds it. Each number and record of it is defined
//! once, in [`abi`]; the hypervisor depends on this crate and uses the same
//! definitions.
#![no_std]

pub mod abi;
