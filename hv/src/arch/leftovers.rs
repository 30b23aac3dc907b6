//! What firmware leaves in a CPU, and how it is forgotten.
//!
//! Firmware has used the timer, enabled interrupts, filled the TLB and talked
//! by mailboxes. [`super::boot`] has dealt with what would be in its own way:
//! interrupts, windows, units.
//!
//! Source: *LoongArch Reference Manual, Volume 1*, chapters 5 to 7; Loongson
//! 3A5000 manual, chapter on inter-processor interrupts.

use super::iocsr;
use crate::isa::csr::TICLR;
use crate::isa::exception::Interrupt;
use crate::isa::{csr_exchange, csr_write};
use core::arch::asm;
use guest_pv::abi::iocsr::{IPI_CLEAR, IPI_ENABLE, MAILBOX};

/// Mailboxes of a CPU.
const MAILBOXES: u32 = 4;
/// Bytes of one.
const MAILBOX_BYTES: u32 = 8;

/// Stops this CPU's timer, takes back what is pending, and empties its TLB
/// and its mailboxes. Nothing here needs any of them yet.
pub fn forget() {
    let soft = Interrupt::SWI0.bit() | Interrupt::SWI1.bit();
    // SAFETY: the hypervisor has no TLB entry, and uses timer, interrupts and
    // mailboxes from later on only.
    unsafe {
        csr_write!(ECFG, 0);
        csr_write!(TCFG, 0);
        csr_write!(TICLR, TICLR::CLR::SET.value);
        csr_exchange!(ESTAT, 0, soft);
        asm!("invtlb 0, $zero, $zero", options(nostack));
        iocsr::write_32(IPI_ENABLE, 0);
        iocsr::write_32(IPI_CLEAR, u32::MAX);
        for mailbox in 0..MAILBOXES {
            iocsr::write_64(MAILBOX + mailbox * MAILBOX_BYTES, 0);
        }
    }
}
