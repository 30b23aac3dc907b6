//! Inter-processor interrupts and mailboxes, by IOCSR.
//!
//! Source: *Loongson 3A5000 Processor Reference Manual*, section 10.2.

use crate::arch::iocsr;

const STATUS: u32 = 0x1000;
const ENABLE: u32 = 0x1004;
const CLEAR: u32 = 0x100c;
const IPI_SEND: u32 = 0x1040;
const MAIL_SEND: u32 = 0x1048;
/// The send registers: wait until the message has been delivered.
const BLOCKING: u64 = 1 << 31;

/// Which of the 32 interrupts of a CPU.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Vector {
    /// Starts a CPU that waits in the boot stub.
    Boot = 0,
    /// Wakes a CPU that waits for another one's work.
    Wake = 1,
    /// For the checks.
    Check = 2,
}

impl Vector {
    /// The vector's bit in the status register.
    pub const fn bit(self) -> u32 {
        1 << self as u32
    }
}

/// Interrupts CPU `target`.
pub fn send(target: usize, vector: Vector) {
    iocsr::write32(
        IPI_SEND,
        (BLOCKING | (target as u64) << 16) as u32 | vector as u32,
    );
}

/// Writes mailbox 0 of CPU `target`, the high half first.
pub fn mail(target: usize, value: u64) {
    for half in [1u64, 0] {
        let data = value >> (32 * half) & 0xffff_ffff;
        iocsr::write64(
            MAIL_SEND,
            data << 32 | BLOCKING | (target as u64) << 16 | half << 2,
        );
    }
}

/// Lets this CPU's interrupts through to ESTAT, all 32 of them.
pub fn enable() {
    iocsr::write32(ENABLE, u32::MAX);
}

/// The vectors that are pending here.
pub fn pending() -> u32 {
    iocsr::read32(STATUS)
}

/// Withdraws these vectors.
pub fn clear(vectors: u32) {
    iocsr::write32(CLEAR, vectors);
}
