//! The hypervisor's binary: nothing but the library, started.
//!
//! The first instruction is the library's `_start` (`arch::boot`), which the
//! linker script names.
#![cfg_attr(target_os = "none", no_std, no_main)]

#[cfg(target_os = "none")]
use hv as _;

#[cfg(not(target_os = "none"))]
fn main() {
    eprintln!("loongvisor runs on a bare LoongArch machine, not under an operating system");
}
