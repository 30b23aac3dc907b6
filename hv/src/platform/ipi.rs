//! Interrupts between physical CPUs.
//!
//! Source: Loongson 3A5000 manual, chapter on inter-processor interrupts.

use crate::arch::iocsr;
use crate::isa::csr_exchange;
use crate::isa::exception::Interrupt;
use crate::vcpu::postbox::KICK_VECTOR;
use guest_pv::abi::iocsr::{
    IPI_CLEAR, IPI_ENABLE, IPI_SEND, IPI_STATUS, MAIL_SEND, ipi_send, mail_send,
};

/// What one CPU tells another. Guests' vectors are virtual: none of theirs
/// is one of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Vector {
    /// To a CPU in firmware's parking loop: look at your mailbox.
    Start = 0,
    /// Leave the guest, and look at what has been posted to its vCPU.
    Kick = KICK_VECTOR as u8,
    /// Stop for good: the machine is going down.
    Halt = 2,
    /// Leave the guest, or the idle loop, and look around.
    Wake = 3,
}

impl Vector {
    /// The vector's bit in the status register.
    #[must_use]
    pub const fn bit(self) -> u32 {
        1 << self as u32
    }
}

/// Lets IPIs arrive on this CPU, and discards what firmware left.
pub fn set_up() {
    // SAFETY: the IPI line only ends `idle` or a stay in the guest.
    unsafe {
        iocsr::write_32(IPI_CLEAR, u32::MAX);
        iocsr::write_32(IPI_ENABLE, u32::MAX);
        csr_exchange!(ECFG, Interrupt::IPI.bit(), Interrupt::IPI.bit());
    }
}

/// Sends `vector` to the physical CPU `target`.
#[inline]
pub fn send(target: u32, vector: Vector) {
    // SAFETY: every CPU of the hypervisor takes these vectors at any time.
    unsafe { iocsr::write_32(IPI_SEND, ipi_send(target, vector as u32)) };
}

/// Takes the vectors that have come, as bits ([`Vector::bit`]).
#[inline]
#[must_use]
pub fn take() -> u32 {
    let status = iocsr::read_32(IPI_STATUS);
    // SAFETY: clears what is handed to the caller.
    unsafe { iocsr::write_32(IPI_CLEAR, status) };
    status
}

/// Puts `value` into mailbox `mailbox` (0 to 3) of `target`: the high half
/// first, since a parked CPU looks at the low half of mailbox 0.
pub fn mail(target: u32, mailbox: u32, value: u64) {
    let (low, high) = (value as u32, (value >> 32) as u32);
    // SAFETY: mailboxes are for messages; nothing acts on them by itself.
    unsafe {
        iocsr::write_64(MAIL_SEND, mail_send(target, 2 * mailbox + 1, high));
        iocsr::write_64(MAIL_SEND, mail_send(target, 2 * mailbox, low));
    }
}
