//! The VM's interrupt controllers and UART, as a driver uses them.
//!
//! Addresses as on QEMU's `virt`. EIOINTC is set up as Linux does it in a
//! VM: routes are physical ids, 64 vectors a line from HWI0 on.

use super::smp::{self, MAX_CPUS};
use super::trap::{HARDWARE_LINES, mask, unmask};
use super::{device, iocsr};
use crate::{csrrd, csrwr};
use core::sync::atomic::{AtomicU64, Ordering};
use guest_pv::abi::iocsr::{
    EIOINTC_CORE_ISR, EIOINTC_CORE_MAP, EIOINTC_ENABLE, EIOINTC_IP_MAP, VIRT_EIOINTC_CONFIG,
    VirtEiointc,
};

/// PCH-PIC's registers.
pub const PCH_PIC: u64 = 0x1000_0000;
/// PCH-PIC: mask, edge, clear, vectors, requests, polarity.
pub const MASK: u64 = PCH_PIC + 0x20;
pub const EDGE: u64 = PCH_PIC + 0x60;
pub const CLEAR: u64 = PCH_PIC + 0x80;
pub const VECTOR: u64 = PCH_PIC + 0x200;
pub const REQUEST: u64 = PCH_PIC + 0x380;
pub const POLARITY: u64 = PCH_PIC + 0x3e0;
/// PCH-MSI's register.
pub const PCH_MSI: u64 = 0x2ff0_0000;
/// The UART's registers.
pub const UART: u64 = 0x1fe0_01e0;
/// The UART's input of PCH-PIC.
pub const UART_INPUT: u64 = 2;

/// Words of 64 vectors.
const WORDS: usize = 4;

/// The hardware lines of this vCPU that are high, as in ESTAT.
pub fn lines() -> u64 {
    csrrd!(ESTAT) & HARDWARE_LINES
}

/// Lets this vCPU take the interrupts that are pending.
pub fn take_interrupts() {
    csrwr!(ECFG, HARDWARE_LINES);
    unmask();
    mask();
    csrwr!(ECFG, 0);
}

/// How often each vCPU has taken each vector.
static TAKEN: [[AtomicU64; 256]; MAX_CPUS] =
    [const { [const { AtomicU64::new(0) }; 256] }; MAX_CPUS];

macro_rules! accessors {
    ($($read:ident $write:ident $type:ty,)*) => {$(
        #[doc = concat!("Reads a device's register of type ", stringify!($type), ".")]
        pub fn $read(at: u64) -> $type {
            // SAFETY: a device's address, emulated; no memory changes.
            unsafe { device::<$type>(at).read_volatile() }
        }

        #[doc = concat!("Writes a device's register of type ", stringify!($type), ".")]
        pub fn $write(at: u64, value: $type) {
            // SAFETY: as for a read.
            unsafe { device::<$type>(at).write_volatile(value) };
        }
    )*};
}

accessors! {
    read8 write8 u8,
    read16 write16 u16,
    read32 write32 u32,
    read64 write64 u64,
}

/// Sets EIOINTC up, every vector enabled and routed to the boot vCPU with
/// physical id `id`, which calls this; PCH-PIC's inputs masked, input n with
/// vector n. Takes what an earlier check has left.
pub fn set_up(id: u64) {
    write64(MASK, u64::MAX);
    write64(CLEAR, u64::MAX);
    write64(EDGE, 0);
    write64(POLARITY, 0);
    let encode = VirtEiointc::CPU_ENCODE.bits();
    iocsr::write_w(VIRT_EIOINTC_CONFIG.into(), encode.into());
    iocsr::write_d(EIOINTC_IP_MAP.into(), 0x0808_0404_0202_0101);
    for word in 0..WORDS as u64 {
        iocsr::write_d(u64::from(EIOINTC_ENABLE) + 8 * word, u64::MAX);
    }
    for vector in 0..=255 {
        route(vector, id);
    }
    for input in 0..64 {
        write8(VECTOR + input, input as u8);
    }
    take(0);
}

/// Routes `vector` to the vCPU with physical id `id`.
pub fn route(vector: u8, id: u64) {
    iocsr::write_b(u64::from(EIOINTC_CORE_MAP) + u64::from(vector), id);
}

/// Sends the message of `vector`.
pub fn message(vector: u8) {
    write32(PCH_MSI, vector.into());
}

/// Takes what is pending on this vCPU, of index `cpu`.
pub fn take(cpu: usize) {
    for (word, first) in (0..256).step_by(64).enumerate() {
        let isr = u64::from(EIOINTC_CORE_ISR) + 8 * word as u64;
        let pending = iocsr::read_d(isr);
        if pending == 0 {
            continue;
        }
        iocsr::write_d(isr, pending);
        for bit in (0..64).filter(|bit| pending >> bit & 1 == 1) {
            TAKEN[cpu][first + bit].fetch_add(1, Ordering::SeqCst);
        }
    }
}

/// How often vCPU `cpu` has taken `vector`.
pub fn taken(cpu: usize, vector: u8) -> u64 {
    TAKEN[cpu][usize::from(vector)].load(Ordering::SeqCst)
}

/// How often all vCPUs together have taken any vector.
pub fn taken_by_all() -> u64 {
    let all = TAKEN.iter().take(smp::count()).flatten();
    all.map(|count| count.load(Ordering::SeqCst)).sum()
}
