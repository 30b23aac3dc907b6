//! Native inter-processor interrupts and mailboxes.
//!
//! Each vCPU has one [`Core`]; a vCPU accesses its own, and any other by the
//! send registers. The interrupt line is a level, status & enable ≠ 0, and
//! is computed when it is delivered, so that it can't disagree with the
//! registers; whoever may have changed it says so.
//!
//! Threats: any vCPU may write anything to any other of its VM, at the same
//! time: every register is a word of its own, changed in one step, and no
//! access waits. A send register written through a send register does
//! nothing: there is one level. Not emulated: blocking (the sender never
//! waits), and sends to ids that no vCPU has, which are dropped.
//!
//! Source: Loongson 3A5000 manual, chapter on inter-processor interrupts.

use crate::dev::lane::byte_mask;
use crate::isa::insn::Width;
use core::sync::atomic::{AtomicU32, Ordering};
use guest_pv::abi::iocsr::{
    ANY_SEND, IPI_CLEAR, IPI_ENABLE, IPI_SEND, IPI_SET, IPI_STATUS, MAIL_SEND, MAILBOX,
    MAILBOX_BYTES,
};

/// First offset of the window.
pub const BASE: u32 = IPI_STATUS;
/// Bytes of the window: up to the end of ANY_SEND.
pub const BYTES: u32 = ANY_SEND + 8 - BASE;

/// 32-bit words of the mailboxes.
const MAIL_WORDS: usize = MAILBOX_BYTES as usize / 4;

/// The IPI registers of one vCPU.
#[derive(Debug, Default)]
pub struct Core {
    status: AtomicU32,
    enable: AtomicU32,
    mail: [AtomicU32; MAIL_WORDS],
}

/// Offset in [`Core`] of the pending vectors, 32 bits.
pub const STATUS: usize = core::mem::offset_of!(Core, status);
/// Offset in [`Core`] of the enabled vectors, 32 bits.
pub const ENABLE: usize = core::mem::offset_of!(Core, enable);

/// What a write wants done beyond the registers that it reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "the line would not follow its registers"]
pub enum Effect {
    /// Nothing.
    None,
    /// The line of the accessed vCPU may have changed.
    Line,
    /// A send register was written: carry it out on the target.
    Send(Send),
}

/// A write to a send register, taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Send {
    /// Physical id of the target, 0 to 1023.
    pub target: u32,
    /// Offset of the 32-bit register that is written there.
    pub offset: u32,
    /// What is written.
    pub data: u32,
    /// Bytes that keep their old value, bit 0 for the lowest.
    pub keep: u32,
}

impl Send {
    /// IPI_SEND: sets a vector's status bit.
    const fn ipi(value: u32) -> Self {
        Self {
            target: value >> 16 & 0x3ff,
            offset: IPI_SET,
            data: 1 << (value & 0x1f),
            keep: 0,
        }
    }

    /// MAIL_SEND and ANY_SEND share their fields, but for the offset.
    const fn register(value: u64, offset: u32) -> Self {
        Self {
            target: (value >> 16 & 0x3ff) as u32,
            offset,
            data: (value >> 32) as u32,
            keep: (value >> 27 & 0xf) as u32,
        }
    }
}

impl Core {
    /// Whether the interrupt line is high.
    #[must_use]
    pub fn line(&self) -> bool {
        // Who asks has just written, or taken the post of one who did.
        let enable = self.enable.load(Ordering::Relaxed);
        self.status.load(Ordering::Relaxed) & enable != 0
    }

    /// The pending vectors, enabled or not.
    #[must_use]
    pub fn status(&self) -> u32 {
        self.status.load(Ordering::SeqCst)
    }

    /// Mailbox `mailbox` (0 to 3); 0 for any other.
    #[must_use]
    pub fn mailbox(&self, mailbox: usize) -> u64 {
        let half = |index| self.mail.get(index).map_or(0, load);
        u64::from(half(2 * mailbox)) | u64::from(half(2 * mailbox + 1)) << 32
    }

    /// Back to the state after reset.
    pub fn reset(&self) {
        let words = [&self.status, &self.enable].into_iter();
        words
            .chain(&self.mail)
            .for_each(|word| word.store(0, Ordering::SeqCst));
    }

    /// Reads `width` bytes at `offset` of the IOCSR space, zero-extended.
    /// An access that isn't aligned, or that has no register, reads 0 there.
    #[inline]
    #[must_use]
    pub fn read(&self, offset: u32, width: Width) -> u64 {
        if width == Width::Word && offset.is_multiple_of(4) {
            return self.word(offset).into();
        }
        self.read_any(offset, width)
    }

    fn read_any(&self, offset: u32, width: Width) -> u64 {
        let word = u64::from(self.word(offset & !3)) >> (offset % 4 * 8);
        let high = match width {
            Width::Double => u64::from(self.word((offset & !3).wrapping_add(4))) << 32,
            _ => 0,
        };
        width.zero_extend(word | high)
    }

    /// The 32-bit register at `offset`.
    #[inline(always)]
    fn word(&self, offset: u32) -> u32 {
        match offset {
            IPI_STATUS => load(&self.status),
            IPI_ENABLE => load(&self.enable),
            _ => self.mail_word(offset).map_or(0, load),
        }
    }

    fn mail_word(&self, offset: u32) -> Option<&AtomicU32> {
        self.mail.get(offset.checked_sub(MAILBOX)? as usize / 4)
    }

    /// Writes the low `width` bytes of `value` at `offset` of the IOCSR
    /// space, as the vCPU itself does.
    #[inline]
    pub fn write(&self, offset: u32, width: Width, value: u64) -> Effect {
        if width == Width::Word && offset < MAILBOX {
            return self.write_word(offset & !3, value as u32, 0);
        }
        self.write_any(offset, width, value)
    }

    fn write_any(&self, offset: u32, width: Width, value: u64) -> Effect {
        match (offset, width) {
            (IPI_SEND, _) => Effect::Send(Send::ipi(width.zero_extend(value) as u32)),
            (MAIL_SEND, _) => {
                let value = width.zero_extend(value);
                let offset = MAILBOX + (value as u32 >> 2 & 7) * 4;
                Effect::Send(Send::register(value, offset))
            }
            (ANY_SEND, _) => {
                let value = width.zero_extend(value);
                Effect::Send(Send::register(value, value as u32 & 0xffff))
            }
            (_, Width::Double) => {
                let low = self.write_word(offset & !3, value as u32, 0);
                let high = self.write_word((offset & !3).wrapping_add(4), (value >> 32) as u32, 0);
                if low == Effect::None { high } else { low }
            }
            (_, Width::Word) => self.write_word(offset & !3, value as u32, 0),
            (_, Width::Byte | Width::Half) => {
                let shift = offset % 4;
                let bytes = (1u32 << width.bytes()) - 1;
                let data = (width.zero_extend(value) as u32) << (shift * 8);
                self.write_word(offset & !3, data, !(bytes << shift) & 0xf)
            }
        }
    }

    /// Writes the 32-bit register at `offset`, less the bytes that `keep`
    /// names: what a send register does to its target.
    #[inline]
    pub fn write_word(&self, offset: u32, data: u32, keep: u32) -> Effect {
        let written = !byte_mask(keep);
        let data = data & written;
        match offset {
            IPI_SET => {
                self.status.fetch_or(data, Ordering::SeqCst);
                Effect::Line
            }
            IPI_CLEAR => {
                self.status.fetch_and(!data, Ordering::SeqCst);
                Effect::Line
            }
            IPI_ENABLE => {
                merge(&self.enable, data, written);
                Effect::Line
            }
            _ => {
                if let Some(word) = self.mail_word(offset) {
                    merge(word, data, written);
                }
                Effect::None
            }
        }
    }
}

/// The vCPU's own reading: the fence before its next entry orders it.
fn load(word: &AtomicU32) -> u32 {
    word.load(Ordering::Relaxed)
}

/// Replaces the bits `written` of `word` by those of `data`.
fn merge(word: &AtomicU32, data: u32, written: u32) {
    let new = |old| Some(old & !written | data);
    // The closure never declines, so this never fails.
    let _ = word.fetch_update(Ordering::SeqCst, Ordering::SeqCst, new);
}

#[cfg(test)]
mod tests {
    use super::*;
    use Width::{Byte, Double, Half, Word};

    #[test]
    fn line_is_status_and_enable() {
        let core = Core::default();
        assert_eq!(core.write(IPI_SET, Word, 4), Effect::Line);
        assert!(!core.line());
        assert_eq!(core.write(IPI_ENABLE, Word, 0xffff_ffff), Effect::Line);
        assert!(core.line());
        assert_eq!(core.read(IPI_STATUS, Word), 4);
        assert_eq!(core.write(IPI_ENABLE, Word, !4), Effect::Line);
        assert!(!core.line());
        assert_eq!(core.write(IPI_CLEAR, Word, 4), Effect::Line);
        assert_eq!(core.status(), 0);
    }

    #[test]
    fn status_is_read_only_and_set_and_clear_read_nothing() {
        let core = Core::default();
        assert_eq!(core.write(IPI_STATUS, Word, 0xff), Effect::None);
        assert_eq!(core.write(IPI_SET, Word, 0xff), Effect::Line);
        for (offset, value) in [
            (IPI_STATUS, 0xff),
            (IPI_SET, 0),
            (IPI_CLEAR, 0),
            (IPI_SEND, 0),
        ] {
            assert_eq!(core.read(offset, Word), value);
        }
    }

    #[test]
    fn mailboxes_at_every_width_and_offset() {
        let core = Core::default();
        for index in 0..4 {
            let value = 0x0807_0605_0403_0201 + u64::from(index) * 0x1010_1010_1010_1010;
            assert_eq!(core.write(MAILBOX + 8 * index, Double, value), Effect::None);
        }
        assert_eq!(core.mailbox(0), 0x0807_0605_0403_0201);
        assert_eq!(core.mailbox(3), 0x3837_3635_3433_3231);
        assert_eq!(core.mailbox(4), 0);
        for byte in 0..8 {
            assert_eq!(core.read(MAILBOX + byte, Byte), u64::from(byte) + 1);
        }
        assert_eq!(core.read(MAILBOX + 2, Half), 0x0403);
        assert_eq!(core.read(MAILBOX + 4, Word), 0x0807_0605);
        assert_eq!(core.read(MAILBOX + 4, Double), 0x1413_1211_0807_0605);
        // The last half is there, what follows it isn't.
        assert_eq!(core.read(MAILBOX + 28, Double), 0x3837_3635);
    }

    #[test]
    fn narrow_writes_change_only_their_bytes() {
        let core = Core::default();
        let _ = core.write(MAILBOX, Word, 0xffff_ffff);
        let _ = core.write(MAILBOX + 1, Byte, 0x1234);
        assert_eq!(core.mailbox(0), 0xffff_34ff);
        let _ = core.write(MAILBOX + 2, Half, 0xabcd);
        assert_eq!(core.mailbox(0), 0xabcd_34ff);
        let _ = core.write(IPI_ENABLE + 3, Byte, 0x80);
        assert_eq!(core.read(IPI_ENABLE, Word), 0x8000_0000);
        assert_eq!(core.write(IPI_SET + 1, Byte, 1), Effect::Line);
        assert_eq!(core.status(), 0x100);
    }

    #[test]
    fn sends_are_taken_apart() {
        let core = Core::default();
        let send = |offset, width, value| core.write(offset, width, value);
        let ipi = Send {
            target: 5,
            offset: IPI_SET,
            data: 8,
            keep: 0,
        };
        assert_eq!(send(IPI_SEND, Word, 0x8005_0003), Effect::Send(ipi));
        let mail = Send {
            target: 1,
            offset: MAILBOX + 4,
            data: 0xdead_beef,
            keep: 5,
        };
        assert_eq!(
            send(MAIL_SEND, Double, 0xdead_beef_2801_0004),
            Effect::Send(mail)
        );
        // 32 bits have no data.
        let mail = Send { data: 0, ..mail };
        assert_eq!(
            send(MAIL_SEND, Word, 0xdead_beef_2801_0004),
            Effect::Send(mail)
        );
        let any = Send {
            target: 1023,
            offset: 0x1008,
            data: 1,
            keep: 0,
        };
        assert_eq!(send(ANY_SEND, Double, 0x1_03ff_1008), Effect::Send(any));
    }

    #[test]
    fn a_send_to_a_send_register_ends_there() {
        let core = Core::default();
        for offset in [IPI_SEND, MAIL_SEND, ANY_SEND, 0, 0xffff_fffc] {
            assert_eq!(core.write_word(offset, 0xffff_ffff, 0), Effect::None);
        }
        assert_eq!((core.status(), core.mailbox(0)), (0, 0));
    }

    #[test]
    fn kept_bytes_keep_their_value() {
        let core = Core::default();
        let _ = core.write_word(MAILBOX, 0x1122_3344, 0);
        let _ = core.write_word(MAILBOX, 0xaabb_ccdd, 0b0101);
        assert_eq!(core.mailbox(0), 0xaa22_cc44);
        let _ = core.write_word(MAILBOX, 0, 0b1111);
        assert_eq!(core.mailbox(0), 0xaa22_cc44);
    }

    #[test]
    fn every_offset_of_the_window_answers() {
        let core = Core::default();
        for offset in 0..BYTES + 16 {
            for width in [Byte, Half, Word, Double] {
                let _ = core.write(BASE + offset, width, u64::MAX);
                let _ = core.read(BASE + offset, width);
                let _ = core.read(offset.wrapping_sub(8), width);
            }
        }
        core.reset();
        assert_eq!((core.status(), core.line(), core.mailbox(3)), (0, false, 0));
    }
}
