//! Facts of the instruction set: numbers, fields, encodings.
//!
//! The modules say what the architecture is, so that the hypervisor, the
//! bare-metal test suite and the host tests share one definition of each
//! fact; nothing here acts but `access`, which only the machine has. It is a
//! crate of its own, since a bare-metal program can't link another one's start
//! code, heap and panic handler.
//!
//! Sources: *LoongArch Reference Manual, Volume 1* (v1.10) for the base
//! architecture; for LVZ, whose volume is unpublished, what Linux's KVM for
//! LoongArch relies on (arch/loongarch/include/asm/loongarch.h and kvm/).

#![cfg_attr(target_os = "none", no_std)]

#[cfg(target_arch = "loongarch64")]
pub mod access;
pub mod csr;
pub mod exception;
pub mod gcsr;
pub mod gpr;
pub mod insn;
