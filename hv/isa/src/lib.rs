//! Facts of the instruction set: numbers, fields, encodings.
//!
//! Nothing here acts: the modules say what the architecture is, so that the
//! hypervisor, the bare-metal test suite and the host tests share one
//! definition of each fact. It is a crate of its own, since a bare-metal
//! program can't link another one's start code, heap and panic handler.
//!
//! Sources: *LoongArch Reference Manual, Volume 1* (v1.10) for the base
//! architecture; for LVZ, whose volume is unpublished, what Linux's KVM for
//! LoongArch relies on (arch/loongarch/include/asm/loongarch.h and kvm/).

#![cfg_attr(target_os = "none", no_std)]

pub mod csr;
pub mod exception;
pub mod gcsr;
pub mod gpr;
pub mod insn;
