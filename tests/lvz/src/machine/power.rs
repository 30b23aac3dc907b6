//! Switching the machine off.
//!
//! Source: include/hw/acpi/generic_event_device.h of QEMU 10.0: the GED's
//! registers follow its event selector (4 bytes) and the memory hotplug
//! registers (24 bytes).

use super::device;

/// The GED's sleep control register.
const SLEEP_CONTROL: u64 = 0x100e_0000 + 4 + 24;
/// Sleep type 5 (soft off) in bits 4:2, sleep enable in bit 5.
const SOFT_OFF: u8 = 5 << 2 | 1 << 5;

/// Switches the machine off.
pub fn off() -> ! {
    let register: *mut u8 = device(SLEEP_CONTROL);
    loop {
        // SAFETY: the GED's register, mapped by the uncached window; the
        // write ends the machine and touches no memory of ours.
        unsafe { register.write_volatile(SOFT_OFF) };
    }
}
