//! The one screen that all VMs and the hypervisor write to.
//!
//! It shows one VM as it comes, or every VM line by line with its name in
//! front. What a VM prints while another one is shown is kept, up to a
//! bound, until it is its turn.
//!
//! The output is slower than those who print: what it can't take at once
//! waits in a queue, and it interrupts when it can take more. VMs may fill
//! half of the queue; what is beyond stays with each VM, whose UART then says
//! that it is busy, and is shown in turn, so that no CPU waits and none of
//! them can keep the others from printing. The other half is the
//! hypervisor's, which waits only if that is full too.
//!
//! Threats: a guest prints what and how much it likes: what is kept of it
//! has a fixed size, and a new line of the hypervisor always begins on a
//! fresh line, so no guest can pretend to be it while lines are shown. While
//! a VM is shown as it comes, its bytes are its own, escape sequences
//! included.
//!
//! In the monitor the user types below what is printed: a line that comes in
//! meanwhile takes the place of the one being typed, which is shown anew
//! below it. Spaces wipe it out, since not every terminal knows more.

use super::held::{Held, LINE_BYTES};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::fmt::{self, Write};

/// Takes bytes, one at a time.
pub trait Output {
    /// Takes one byte, if it can at once; else false.
    fn offer(&mut self, byte: u8) -> bool;

    /// Whether it is to interrupt as soon as it can take more.
    fn tell_of_room(&mut self, wanted: bool);
}

/// What the output hasn't taken yet, in bytes: at most, and from where on VMs
/// have to wait.
const QUEUE_BYTES: usize = 4096;
const VM_BYTES: usize = QUEUE_BYTES / 2;

/// Longest line that can be typed, in bytes, and what may stand before it.
pub const TYPED_BYTES: usize = 128;
const PROMPT_BYTES: usize = 32;

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

/// The screen, on `O`.
#[derive(Debug)]
pub struct Screen<O> {
    out: O,
    focus: Focus,
    fresh: bool,
    queue: VecDeque<u8>,
    /// The output's interrupt is taken; until it is, output is waited for.
    interrupts: bool,
    /// A VM's output has been left for later.
    waiting: bool,
    /// What the user types in the monitor, and what stands before it; empty
    /// while nothing is asked for.
    row: Vec<u8>,
}

impl<O: Output> Screen<O> {
    /// A screen that shows all VMs.
    #[must_use]
    pub fn new(out: O) -> Self {
        Self {
            out,
            focus: Focus::Lines,
            fresh: true,
            queue: VecDeque::with_capacity(QUEUE_BYTES),
            interrupts: false,
            waiting: false,
            row: Vec::with_capacity(PROMPT_BYTES + TYPED_BYTES),
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

    /// From here on somebody takes the output's interrupt, and calls
    /// [`Self::drain`]; or nobody does any more.
    pub fn set_interrupts(&mut self, taken: bool) {
        self.interrupts = taken;
        self.settle();
    }

    /// Shows every VM, or the monitor.
    pub fn show(&mut self, focus: Focus) {
        self.focus = focus;
    }

    /// Shows one VM, and what has been kept of it.
    pub fn show_vm(&mut self, held: &mut Held) {
        self.focus = Focus::Vm(held.number);
        self.pump(held);
    }

    /// Takes a byte that a VM prints.
    pub fn guest(&mut self, held: &mut Held, byte: u8) {
        held.keep(byte);
        let due = match self.focus {
            Focus::Vm(number) => number == held.number,
            Focus::Lines => byte == b'\n' || held.len() >= LINE_BYTES,
            Focus::Monitor => false,
        };
        // Others that wait come first, when the output's interrupt says so.
        if due && !self.waiting {
            self.pump(held);
        }
    }

    /// Whether a VM may print on; else its output would be lost.
    #[must_use]
    pub fn is_ready(&self, held: &Held) -> bool {
        match self.focus {
            Focus::Vm(number) if number != held.number => true,
            Focus::Monitor => true,
            Focus::Vm(_) | Focus::Lines => held.has_room(),
        }
    }

    /// Prints what is kept of a VM, if it is shown and as far as there is
    /// room.
    pub fn pump(&mut self, held: &mut Held) {
        match self.focus {
            Focus::Vm(number) if number == held.number => self.pump_bytes(held),
            Focus::Lines => self.pump_lines(held),
            Focus::Vm(_) | Focus::Monitor => {}
        }
    }

    fn pump_bytes(&mut self, held: &mut Held) {
        self.tell_of_loss(held);
        while !held.is_empty() {
            if self.queue.len() >= VM_BYTES {
                self.waiting = true;
                return;
            }
            held.pop().into_iter().for_each(|byte| self.raw(byte));
        }
    }

    fn pump_lines(&mut self, held: &mut Held) {
        while let Some(bytes) = held.line() {
            if self.queue.len() >= VM_BYTES {
                self.waiting = true;
                return;
            }
            self.tell_of_loss(held);
            self.line_of(held, bytes);
        }
    }

    fn tell_of_loss(&mut self, held: &mut Held) {
        if held.lost() {
            self.line(format_args!("(part of what {} printed is lost)", held.name));
        }
    }

    /// Prints the next `bytes` of a VM as a line.
    fn line_of(&mut self, held: &mut Held, bytes: usize) {
        self.begin();
        for byte in held.name.bytes().chain(*b"| ") {
            self.raw(byte);
        }
        for _ in 0..bytes {
            let byte = held.pop().filter(|byte| !b"\r\n".contains(byte));
            byte.into_iter().for_each(|byte| self.raw(byte));
        }
        self.end();
    }

    /// A VM has ended: the line that it has begun is shown as it is.
    pub fn finish(&mut self, held: &mut Held) {
        self.pump(held);
        if self.focus == Focus::Lines && !self.waiting && !held.is_empty() {
            self.line_of(held, held.len());
        }
    }

    /// Gives the output what it can take; the VMs that wait are to be pumped
    /// next, each in turn.
    pub fn drain(&mut self) {
        self.waiting = false;
        self.settle();
    }

    /// Prints one line, on a line of its own.
    pub fn line(&mut self, text: fmt::Arguments<'_>) {
        let typing = self.focus == Focus::Monitor && !self.row.is_empty();
        if typing {
            self.wipe_row();
        }
        self.begin();
        // Writing to the screen never fails.
        let _ = self.write_fmt(text);
        self.end();
        if typing {
            self.show_row();
        }
    }

    /// Asks the user for a line, with `prompt` before it; where it has been
    /// asked for already, shows it anew.
    pub fn ask(&mut self, prompt: &str) {
        if self.row.is_empty() {
            self.line(format_args!(""));
            self.row.extend(prompt.bytes().take(PROMPT_BYTES));
        }
        self.begin();
        self.show_row();
    }

    /// The user has typed `byte` there.
    pub fn typed(&mut self, byte: u8) {
        if self.row.len() < self.row.capacity() {
            self.row.push(byte);
            self.raw(byte);
        }
    }

    /// The user has taken the last byte back.
    pub fn erased(&mut self) {
        if self.row.pop().is_some() {
            b"\x08 \x08".iter().for_each(|&byte| self.raw(byte));
        }
    }

    /// The line is complete, or nobody waits for it any more.
    pub fn asked(&mut self) {
        if !self.row.is_empty() {
            self.row.clear();
            self.begin();
        }
    }

    fn wipe_row(&mut self) {
        self.raw(b'\r');
        (0..self.row.len()).for_each(|_| self.raw(b' '));
        self.raw(b'\r');
        self.fresh = true;
    }

    fn show_row(&mut self) {
        for index in 0..self.row.len() {
            let byte = self.row.get(index).copied();
            byte.into_iter().for_each(|byte| self.raw(byte));
        }
    }

    /// Prints a byte as it is. If the queue is full, this waits.
    pub fn raw(&mut self, byte: u8) {
        self.fresh = byte == b'\n';
        self.queue.push_back(byte);
        self.settle();
    }

    /// Empties the queue as far as it must be, or can be at once.
    fn settle(&mut self) {
        let most = if self.interrupts { QUEUE_BYTES - 1 } else { 0 };
        loop {
            while let Some(&byte) = self.queue.front()
                && self.out.offer(byte)
            {
                self.queue.pop_front();
            }
            if self.queue.len() <= most {
                break;
            }
            core::hint::spin_loop();
        }
        let wanted = self.waiting || !self.queue.is_empty();
        self.out.tell_of_room(self.interrupts && wanted);
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
mod tests;
