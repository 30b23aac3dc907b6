//! Offsets and bits of the IOCSR space that a guest sees.
//!
//! The same registers exist on silicon; the hypervisor uses these numbers
//! for the real ones too.
//!
//! Source: Loongson 3A5000 manual, chapters on configuration registers, IPI
//! and extended I/O interrupts; Linux, asm/loongarch.h (LOONGARCH_IOCSR_*)
//! and drivers/irqchip/irq-loongson-eiointc.c (the virtual extension).

use bitflags::bitflags;

/// Version of the configuration space.
pub const VERSION: u32 = 0x0;
/// [`Features`].
pub const FEATURES: u32 = 0x8;
/// Vendor's name, 8 bytes.
pub const VENDOR: u32 = 0x10;
/// Model's name, 8 bytes.
pub const CPU_NAME: u32 = 0x20;
/// Number of nodes.
pub const NODE_COUNT: u32 = 0x408;
/// Miscellaneous functions ([`MISC_EXT_IOI_EN`]).
pub const MISC_FUNC: u32 = 0x420;
/// Temperature of the chip.
pub const TEMPERATURE: u32 = 0x428;
/// Mailbox of the system management controller.
pub const SMC_MAILBOX: u32 = 0x51c;

/// Bit of [`MISC_FUNC`] that turns EIOINTC on.
pub const MISC_EXT_IOI_EN: u64 = 1 << 48;
/// Bit of [`MISC_FUNC`] that makes EIOINTC encode its lines as numbers.
pub const MISC_EXT_IOI_INT_ENCODE: u64 = 1 << 49;

bitflags! {
    /// The feature word at [`FEATURES`].
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Features: u64 {
        /// Chip temperature can be read.
        const TEMPERATURE = 1 << 0;
        /// Node count register.
        const NODE_COUNT = 1 << 1;
        /// Message-signalled interrupts.
        const MSI = 1 << 2;
        /// Extended I/O interrupt controller (EIOINTC).
        const EXT_IOI = 1 << 3;
        /// IPI registers in IOCSR space.
        const CSR_IPI = 1 << 4;
        /// Frequency registers in IOCSR space.
        const FREQUENCY = 1 << 5;
        /// This machine is virtual.
        const VM = 1 << 11;
    }
}

/// IPI vectors that are pending on the accessing CPU, 32 bits, read-only.
pub const IPI_STATUS: u32 = 0x1000;
/// IPI vectors that raise the line, 32 bits.
pub const IPI_ENABLE: u32 = 0x1004;
/// Write 1 to make vectors pending.
pub const IPI_SET: u32 = 0x1008;
/// Write 1 to clear vectors.
pub const IPI_CLEAR: u32 = 0x100c;
/// First byte of the four mailboxes.
pub const MAILBOX: u32 = 0x1020;
/// Bytes of the four mailboxes together.
pub const MAILBOX_BYTES: u32 = 32;
/// Sends a vector to any CPU ([`ipi_send`]).
pub const IPI_SEND: u32 = 0x1040;
/// Writes half a mailbox of any CPU ([`mail_send`]), 64 bits.
pub const MAIL_SEND: u32 = 0x1048;
/// Writes a 32-bit IOCSR register as if by any CPU ([`any_send`]), 64 bits.
pub const ANY_SEND: u32 = 0x1158;

/// EIOINTC: node map.
pub const EIOINTC_NODE_MAP: u32 = 0x14a0;
/// EIOINTC: line of each group of 32 vectors, one byte each.
pub const EIOINTC_IP_MAP: u32 = 0x14c0;
/// EIOINTC: enable, 256 bits.
pub const EIOINTC_ENABLE: u32 = 0x1600;
/// EIOINTC: bounce, 256 bits.
pub const EIOINTC_BOUNCE: u32 = 0x1680;
/// EIOINTC: pending vectors of all CPUs, 256 bits.
pub const EIOINTC_ISR: u32 = 0x1700;
/// EIOINTC: pending vectors of the accessing CPU, write 1 clears.
pub const EIOINTC_CORE_ISR: u32 = 0x1800;
/// EIOINTC: route of each vector, one byte each.
pub const EIOINTC_CORE_MAP: u32 = 0x1c00;

/// Virtual extension of EIOINTC: what it can do ([`VirtEiointc`]), 32 bits.
pub const VIRT_EIOINTC_FEATURES: u32 = 0x4000_0000;
/// Virtual extension of EIOINTC: what is turned on ([`VirtEiointc`]).
pub const VIRT_EIOINTC_CONFIG: u32 = 0x4000_0004;

bitflags! {
    /// Features and configuration of the virtual extension of EIOINTC.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct VirtEiointc: u32 {
        /// The extension exists (features only).
        const EXTENSION = 1 << 0;
        /// The controller can be, or is, turned on.
        const ENABLE = 1 << 1;
        /// A line is encoded as a number rather than as a bit.
        const INT_ENCODE = 1 << 2;
        /// A route is a physical CPU id rather than a set within a node.
        const CPU_ENCODE = 1 << 3;
    }
}

/// Bit of [`IPI_SEND`], [`MAIL_SEND`] and [`ANY_SEND`] with which silicon
/// lets no later access pass the send; a guest's never waits.
pub const SEND_BLOCKING: u32 = 1 << 31;

/// Value to write to [`IPI_SEND`]: `vector` 0–31, `target` 0–1023, without
/// the blocking bit. Higher bits of either are dropped.
#[must_use]
pub const fn ipi_send(target: u32, vector: u32) -> u32 {
    (target & 0x3ff) << 16 | vector & 0x1f
}

/// Value to write to [`MAIL_SEND`]: puts `data` into half `half` (0–7: two
/// a mailbox, low first) of the mailboxes of `target`, all four bytes.
#[must_use]
pub const fn mail_send(target: u32, half: u32, data: u32) -> u64 {
    (data as u64) << 32 | ((target & 0x3ff) as u64) << 16 | ((half & 7) as u64) << 2
}

/// Value to write to [`ANY_SEND`]: writes `data` to the register at
/// `offset` (0–0xffff) of `target`, all four bytes.
#[must_use]
pub const fn any_send(target: u32, offset: u32, data: u32) -> u64 {
    (data as u64) << 32 | ((target & 0x3ff) as u64) << 16 | (offset & 0xffff) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn send_words_have_their_fields_in_place() {
        assert_eq!(ipi_send(5, 3), 0x0005_0003);
        assert_eq!(mail_send(5, 1, 0xdead_beef), 0xdead_beef_0005_0004);
        assert_eq!(any_send(1, IPI_SET, 1), 0x0000_0001_0001_1008);
    }

    #[test]
    fn send_words_keep_to_their_fields() {
        assert_eq!(ipi_send(u32::MAX, u32::MAX), 0x03ff_001f);
        assert_eq!(mail_send(u32::MAX, u32::MAX, 0), 0x03ff_001c);
        assert_eq!(any_send(u32::MAX, u32::MAX, 0), 0x03ff_ffff);
    }

    #[test]
    fn mailboxes_end_where_ipi_send_begins() {
        assert_eq!(MAILBOX + MAILBOX_BYTES, IPI_SEND);
    }
}
