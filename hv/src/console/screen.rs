//! The one screen that all VMs and the hypervisor write to.
//!
//! It shows one VM as it comes, or every VM line by line with its name in
//! front. What a VM prints while another one is shown is kept, up to a
//! bound, until it is its turn.
//!
//! Threats: a guest prints what and how much it likes: what is kept of it
//! has a fixed size, and a new line of the hypervisor always begins on a
//! fresh line, so no guest can pretend to be it while lines are shown. While
//! a VM is shown as it comes, its bytes are its own, escape sequences
//! included.

use alloc::collections::VecDeque;
use alloc::string::String;
use core::fmt::{self, Write};

/// Takes bytes, one at a time.
pub trait Output {
    /// Takes one byte.
    fn send(&mut self, byte: u8);
}

/// What the screen shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Focus {
    /// Every VM, line by line.
    Lines,
    /// The VM of this number, as it comes.
    Vm(usize),
    /// The monitor.
    Monitor,
}

/// Longest line that is printed in one piece, in bytes.
const LINE_BYTES: usize = 256;
/// What is kept of a VM that isn't shown, in bytes.
const KEPT_BYTES: usize = 4096;

/// What a VM has printed and the screen hasn't shown.
#[derive(Debug)]
pub struct Held {
    name: String,
    number: usize,
    bytes: VecDeque<u8>,
    lost: bool,
}

impl Held {
    /// Nothing yet of the VM called `name`.
    #[must_use]
    pub fn new(number: usize, name: &str) -> Self {
        Self {
            name: name.into(),
            number,
            bytes: VecDeque::with_capacity(KEPT_BYTES),
            lost: false,
        }
    }

    fn keep(&mut self, byte: u8) {
        if self.bytes.len() == KEPT_BYTES {
            self.bytes.pop_front();
            self.lost = true;
        }
        self.bytes.push_back(byte);
    }
}

/// The screen, on `O`.
#[derive(Debug)]
pub struct Screen<O> {
    out: O,
    focus: Focus,
    fresh: bool,
}

impl<O: Output> Screen<O> {
    /// A screen that shows all VMs.
    #[must_use]
    pub const fn new(out: O) -> Self {
        Self {
            out,
            focus: Focus::Lines,
            fresh: true,
        }
    }

    /// What it shows.
    #[must_use]
    pub const fn focus(&self) -> Focus {
        self.focus
    }

    /// What it is written on.
    pub const fn out(&mut self) -> &mut O {
        &mut self.out
    }

    /// Shows every VM, or the monitor.
    pub fn show(&mut self, focus: Focus) {
        self.focus = focus;
    }

    /// Shows one VM, and what has been kept of it.
    pub fn show_vm(&mut self, held: &mut Held) {
        if self.focus == Focus::Vm(held.number) {
            return;
        }
        self.focus = Focus::Vm(held.number);
        if held.lost {
            self.line(format_args!("(part of what {} printed is lost)", held.name));
            held.lost = false;
        }
        while let Some(byte) = held.bytes.pop_front() {
            self.raw(byte);
        }
    }

    /// Takes a byte that a VM prints.
    pub fn guest(&mut self, held: &mut Held, byte: u8) {
        match self.focus {
            Focus::Vm(number) if number == held.number => self.raw(byte),
            Focus::Lines => {
                if byte != b'\r' && byte != b'\n' {
                    held.keep(byte);
                }
                if byte == b'\n' || held.bytes.len() >= LINE_BYTES {
                    self.flush(held);
                }
            }
            _ => held.keep(byte),
        }
    }

    /// Prints what is kept of a VM, line by line.
    pub fn flush(&mut self, held: &mut Held) {
        if held.lost {
            self.line(format_args!("(part of what {} printed is lost)", held.name));
            held.lost = false;
        }
        self.begin();
        self.prefix(held);
        let mut left = held.bytes.len();
        while let Some(byte) = held.bytes.pop_front() {
            left -= 1;
            match byte {
                b'\r' => {}
                b'\n' if left == 0 => {}
                b'\n' => {
                    self.end();
                    self.prefix(held);
                }
                byte => self.raw(byte),
            }
        }
        self.end();
    }

    fn prefix(&mut self, held: &Held) {
        for byte in held.name.bytes().chain(*b"| ") {
            self.raw(byte);
        }
    }

    /// Prints one line, on a line of its own.
    pub fn line(&mut self, text: fmt::Arguments<'_>) {
        self.begin();
        // Writing to the screen never fails.
        let _ = self.write_fmt(text);
        self.end();
    }

    /// Prints a byte as it is.
    pub fn raw(&mut self, byte: u8) {
        self.out.send(byte);
        self.fresh = byte == b'\n';
    }

    fn begin(&mut self) {
        if !self.fresh {
            self.end();
        }
    }

    fn end(&mut self) {
        self.raw(b'\r');
        self.raw(b'\n');
    }
}

impl<O: Output> Write for Screen<O> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            if byte == b'\n' {
                self.raw(b'\r');
            }
            self.raw(byte);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Output for Vec<u8> {
        fn send(&mut self, byte: u8) {
            self.push(byte);
        }
    }

    fn screen() -> (Screen<Vec<u8>>, Held, Held) {
        let held = |number, name| Held::new(number, name);
        (Screen::new(Vec::new()), held(0, "a"), held(1, "b"))
    }

    fn print(screen: &mut Screen<Vec<u8>>, held: &mut Held, text: &str) {
        text.bytes().for_each(|byte| screen.guest(held, byte));
    }

    fn shown(screen: &mut Screen<Vec<u8>>) -> String {
        String::from_utf8(std::mem::take(screen.out())).unwrap()
    }

    #[test]
    fn lines_are_printed_whole_with_their_name() {
        let (mut screen, mut a, mut b) = screen();
        print(&mut screen, &mut a, "one\r\ntw");
        print(&mut screen, &mut b, "other\n\n");
        print(&mut screen, &mut a, "o\n");
        assert_eq!(
            shown(&mut screen),
            "a| one\r\nb| other\r\nb| \r\na| two\r\n"
        );
        print(&mut screen, &mut a, &"x".repeat(LINE_BYTES + 1));
        let long = format!("a| {}\r\n", "x".repeat(LINE_BYTES));
        assert_eq!(shown(&mut screen), long);
    }

    #[test]
    fn a_vm_that_is_shown_needs_no_end_of_line() {
        let (mut screen, mut a, mut b) = screen();
        print(&mut screen, &mut a, "logi");
        screen.show_vm(&mut a);
        print(&mut screen, &mut a, "n: ");
        print(&mut screen, &mut b, "unseen\n");
        assert_eq!(shown(&mut screen), "login: ");
        screen.show_vm(&mut b);
        assert_eq!(shown(&mut screen), "unseen\n");
        screen.show_vm(&mut b);
        assert_eq!(shown(&mut screen), "");
    }

    #[test]
    fn the_hypervisor_begins_on_a_line_of_its_own() {
        let (mut screen, mut a, _) = screen();
        screen.show_vm(&mut a);
        print(&mut screen, &mut a, "$ ");
        screen.line(format_args!("[hv] x"));
        screen.line(format_args!("[hv] y"));
        assert_eq!(shown(&mut screen), "$ \r\n[hv] x\r\n[hv] y\r\n");
    }

    #[test]
    fn what_is_kept_has_an_end() {
        let (mut screen, mut a, _) = screen();
        screen.show(Focus::Monitor);
        let room = a.bytes.capacity();
        print(&mut screen, &mut a, &"y".repeat(3 * KEPT_BYTES));
        assert_eq!(
            (shown(&mut screen).as_str(), a.bytes.capacity()),
            ("", room)
        );
        screen.show_vm(&mut a);
        let text = shown(&mut screen);
        assert!(text.starts_with("(part of what a printed is lost)\r\n"));
        assert!(text.ends_with(&"y".repeat(KEPT_BYTES)));
    }

    #[test]
    fn what_was_kept_is_shown_as_lines_too() {
        let (mut screen, mut a, _) = screen();
        screen.show(Focus::Monitor);
        print(&mut screen, &mut a, "one\r\ntwo\r\n");
        screen.show(Focus::Lines);
        screen.flush(&mut a);
        assert_eq!(shown(&mut screen), "a| one\r\na| two\r\n");
    }
}
