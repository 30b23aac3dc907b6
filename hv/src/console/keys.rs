//! What the keyboard means: bytes for a VM, or a wish of the user.
//!
//! Ctrl-A is the escape: the key after it is for the hypervisor. While the
//! monitor is shown, keys make up a line there.

use super::screen::{Focus, TYPED_BYTES};

/// The escape key: Ctrl-A.
const ESCAPE: u8 = 1;
/// Ctrl-D, as the first key of a line in the monitor: leave it.
const END: u8 = 4;
/// Backspace, as terminals send it.
const ERASE: [u8; 2] = [8, 127];

/// What the keys after the escape do, for the help.
pub const HELP: [&str; 7] = [
    "Ctrl-A h    this help",
    "Ctrl-A n    the next VM",
    "Ctrl-A 0-9  the VM of this number",
    "Ctrl-A l    every VM, line by line",
    "Ctrl-A m    the monitor (type `help` there)",
    "Ctrl-A x    switch the machine off",
    "Ctrl-A a    a Ctrl-A for the VM",
];

/// What is to be done after a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act<'a> {
    /// Nothing.
    Nothing,
    /// The VM that gets input gets this byte.
    Guest(u8),
    /// Show the help.
    Help,
    /// Show the next VM.
    Next,
    /// Show the VM of this number.
    Vm(usize),
    /// Show every VM, line by line.
    Lines,
    /// Show the monitor.
    Monitor,
    /// Leave the monitor.
    Leave,
    /// Switch the machine off.
    Off,
    /// Echo this byte in the monitor.
    Echo(u8),
    /// Take the last character in the monitor back.
    Erase,
    /// The monitor has got this line.
    Line(&'a str),
}

/// Keys that have been pressed and whose meaning isn't complete.
#[derive(Debug)]
pub struct Keys {
    escaped: bool,
    line: [u8; TYPED_BYTES],
    used: usize,
}

impl Default for Keys {
    fn default() -> Self {
        Self::new()
    }
}

impl Keys {
    /// None yet.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            escaped: false,
            line: [0; TYPED_BYTES],
            used: 0,
        }
    }

    /// Takes a byte of the keyboard while `focus` is shown.
    pub fn press(&mut self, byte: u8, focus: Focus) -> Act<'_> {
        if self.escaped {
            self.escaped = false;
            return Self::escape(byte);
        }
        if byte == ESCAPE {
            self.escaped = true;
            return Act::Nothing;
        }
        match focus {
            Focus::Monitor => self.edit(byte),
            Focus::Lines | Focus::Vm(_) => Act::Guest(byte),
        }
    }

    const fn escape(byte: u8) -> Act<'static> {
        match byte {
            b'h' | b'?' => Act::Help,
            b'n' => Act::Next,
            b'0'..=b'9' => Act::Vm((byte - b'0') as usize),
            b'l' => Act::Lines,
            b'm' => Act::Monitor,
            b'x' => Act::Off,
            b'a' | ESCAPE => Act::Guest(ESCAPE),
            _ => Act::Nothing,
        }
    }

    fn edit(&mut self, byte: u8) -> Act<'_> {
        match byte {
            b'\r' | b'\n' => {
                let line = self.line.get(..self.used).unwrap_or_default();
                self.used = 0;
                // Only printable ASCII gets into the line.
                Act::Line(core::str::from_utf8(line).unwrap_or_default())
            }
            END if self.used == 0 => Act::Leave,
            _ if ERASE.contains(&byte) && self.used > 0 => {
                self.used -= 1;
                Act::Erase
            }
            b' '..=b'~' => match self.line.get_mut(self.used) {
                Some(place) => {
                    *place = byte;
                    self.used += 1;
                    Act::Echo(byte)
                }
                None => Act::Nothing,
            },
            _ => Act::Nothing,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_follows_the_escape_is_ours() {
        let mut keys = Keys::new();
        let vm = Focus::Vm(0);
        for byte in [b'h', 3, 4, b'\r', 0, 255] {
            assert_eq!(keys.press(byte, vm), Act::Guest(byte));
        }
        for (byte, act) in [
            (b'h', Act::Help),
            (b'n', Act::Next),
            (b'7', Act::Vm(7)),
            (b'l', Act::Lines),
            (b'm', Act::Monitor),
            (b'x', Act::Off),
            (b'a', Act::Guest(1)),
            (1, Act::Guest(1)),
            (b'q', Act::Nothing),
        ] {
            assert_eq!(keys.press(ESCAPE, vm), Act::Nothing);
            assert_eq!(keys.press(byte, vm), act);
            assert_eq!(keys.press(b'z', vm), Act::Guest(b'z'));
        }
    }

    #[test]
    fn lines_of_the_monitor_can_be_corrected() {
        let mut keys = Keys::new();
        for (byte, act) in [
            (127, Act::Nothing),
            (b'l', Act::Echo(b'l')),
            (b'x', Act::Echo(b'x')),
            (8, Act::Erase),
            (4, Act::Nothing),
            (b's', Act::Echo(b's')),
            (b'\r', Act::Line("ls")),
            (b'\r', Act::Line("")),
            (4, Act::Leave),
        ] {
            assert_eq!(keys.press(byte, Focus::Monitor), act);
        }
    }

    #[test]
    fn a_line_has_an_end() {
        let mut keys = Keys::new();
        for _ in 0..TYPED_BYTES {
            assert_eq!(keys.press(b'a', Focus::Monitor), Act::Echo(b'a'));
        }
        assert_eq!(keys.press(b'a', Focus::Monitor), Act::Nothing);
        let line = "a".repeat(TYPED_BYTES);
        assert_eq!(keys.press(b'\n', Focus::Monitor), Act::Line(&line));
    }
}
