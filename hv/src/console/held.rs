//! What a VM has printed and the screen hasn't shown: a bounded queue.
//!
//! Threat: a guest prints as much as it likes. Where nobody looks, the oldest
//! is lost; where the VM is shown, its UART tells it to wait, and only a guest
//! that doesn't loses anything. Either way the user is told.

use alloc::collections::VecDeque;
use alloc::string::String;

/// Longest line that is printed in one piece, in bytes.
pub const LINE_BYTES: usize = 256;
/// What is kept of a VM, in bytes.
pub const KEPT_BYTES: usize = 4096;
/// What a guest may still send once its UART has told it to wait: the FIFO.
const FIFO_BYTES: usize = 16;

/// What a VM has printed and the screen hasn't shown.
#[derive(Debug)]
pub struct Held {
    /// The VM's name.
    pub name: String,
    /// Its number.
    pub number: usize,
    bytes: VecDeque<u8>,
    lost: bool,
}

impl Held {
    /// Nothing yet of VM `number`, called `name`.
    #[must_use]
    pub fn new(number: usize, name: &str) -> Self {
        Self {
            name: name.into(),
            number,
            bytes: VecDeque::with_capacity(KEPT_BYTES + FIFO_BYTES),
            lost: false,
        }
    }

    /// Keeps a byte; where there is no room, the oldest is lost.
    pub fn keep(&mut self, byte: u8) {
        if self.bytes.len() == KEPT_BYTES + FIFO_BYTES {
            self.bytes.pop_front();
            self.lost = true;
        }
        self.bytes.push_back(byte);
    }

    /// Whether all that a guest sends before it looks again will be kept.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.bytes.len() <= KEPT_BYTES
    }

    /// Whether nothing is kept.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Takes the oldest byte.
    pub fn pop(&mut self) -> Option<u8> {
        self.bytes.pop_front()
    }

    /// How many bytes the first line has, its end included; `None` where it
    /// isn't complete. One that is too long ends after [`LINE_BYTES`].
    #[must_use]
    pub fn line(&self) -> Option<usize> {
        let mut bytes = self.bytes.iter().take(LINE_BYTES);
        let end = bytes.position(|&byte| byte == b'\n').map(|at| at + 1);
        end.or_else(|| (self.bytes.len() >= LINE_BYTES).then_some(LINE_BYTES))
    }

    /// How many bytes are kept.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether something has been lost before what is kept now; told once.
    pub fn lost(&mut self) -> bool {
        core::mem::take(&mut self.lost)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(text: &str) -> Held {
        let mut held = Held::new(0, "a");
        text.bytes().for_each(|byte| held.keep(byte));
        held
    }

    #[test]
    fn a_line_has_an_end() {
        assert_eq!(held("").line(), None);
        assert_eq!(held("ab").line(), None);
        assert_eq!(held("ab\r\nc\n").line(), Some(4));
        assert_eq!(held(&"x".repeat(LINE_BYTES - 1)).line(), None);
        assert_eq!(held(&"x".repeat(LINE_BYTES + 9)).line(), Some(LINE_BYTES));
    }

    #[test]
    fn what_a_guest_sends_before_it_looks_is_kept() {
        let mut held = held(&"x".repeat(KEPT_BYTES));
        let room = held.bytes.capacity();
        assert!(held.has_room());
        held.keep(b'y');
        assert!(!held.has_room());
        (1..FIFO_BYTES).for_each(|_| held.keep(b'y'));
        assert!(!held.lost());
        held.keep(b'z');
        assert!(held.lost() && !held.lost());
        assert_eq!(held.len(), KEPT_BYTES + FIFO_BYTES);
        assert_eq!(held.bytes.capacity(), room);
    }
}
