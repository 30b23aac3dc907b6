//! The machine under the suite: QEMU's `virt` board, without firmware.
//!
//! Sources: include/hw/loongarch/virt.h and include/hw/pci-host/ls7a.h of
//! QEMU 10.0 for the addresses.

pub mod boot;
pub mod cmdline;
pub mod eiointc;
pub mod ipi;
pub mod power;
pub mod rng;
pub mod smp;
pub mod uart;

/// Most CPUs the suite runs on.
pub const MAX_CPUS: usize = 16;
/// Bits of an address that a direct map window passes on: 47:0.
pub const PHYS_MASK: u64 = (1 << 48) - 1;
/// Bytes of low RAM, from physical address 0.
pub const LOW_RAM: u64 = 256 << 20;

const UNCACHED: u64 = 0x8000 << 48;
const CACHED: u64 = 0x9000 << 48;

/// The cached virtual address of a physical one.
pub const fn cached(phys: u64) -> u64 {
    CACHED | phys
}

/// The physical address of something in the cached window.
pub fn phys_of<T: ?Sized>(what: *const T) -> u64 {
    what.cast::<()>() as u64 & PHYS_MASK
}

/// A device register at a physical address.
pub fn device<T>(phys: u64) -> *mut T {
    (UNCACHED | phys) as *mut T
}
