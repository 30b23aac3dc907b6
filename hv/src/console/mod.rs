//! The console: one UART for the hypervisor's lines, the VMs' output and the
//! user's keys.
//!
//! Locks: a VM's `Port`, then `SCREEN`. Neither is held while anything else
//! is done.

pub mod command;
pub mod held;
pub mod keys;
pub mod screen;

use crate::command_line;
use crate::dev::uart::Sink;
use crate::platform::uart::Uart;
use core::fmt;
use held::Held;
use log::{LevelFilter, Log, Metadata, Record};
use screen::{Focus, Output, Screen};
use spin::Mutex;

static SCREEN: Mutex<Option<Screen<Uart>>> = Mutex::new(None);

struct Logger;

static LOGGER: Logger = Logger;

impl Log for Logger {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.level() <= log::max_level()
    }

    fn log(&self, record: &Record<'_>) {
        if self.enabled(record.metadata()) {
            let level = record.level().as_str();
            print(format_args!("[hv {level:<5}] {}", record.args()));
        }
    }

    fn flush(&self) {}
}

impl Output for Uart {
    fn offer(&mut self, byte: u8) -> bool {
        Self::offer(self, byte)
    }

    fn tell_of_room(&mut self, wanted: bool) {
        Self::tell_of_room(self, wanted);
    }
}

/// From here on the console is `uart`, and log lines up to `level` appear.
pub fn set_up(mut uart: Uart, level: LevelFilter) {
    uart.set_up();
    *SCREEN.lock() = Some(Screen::new(uart));
    // An error means that the logger is set already: by an earlier call.
    let _ = log::set_logger(&LOGGER);
    log::set_max_level(level);
}

/// Prints a line in one piece.
pub fn print(text: fmt::Arguments<'_>) {
    with_screen(|screen| screen.line(text));
}

/// Does something with the screen, once there is one.
pub fn with_screen<R>(with: impl FnOnce(&mut Screen<Uart>) -> R) -> Option<R> {
    SCREEN.lock().as_mut().map(with)
}

/// What the screen shows.
#[must_use]
pub fn focus() -> Focus {
    with_screen(|screen| screen.focus()).unwrap_or(Focus::Lines)
}

/// From here on this CPU takes the UART's interrupt: when a byte comes in,
/// and when what waits can go out.
pub fn use_interrupt() {
    with_screen(|screen| {
        screen.out().interrupt_on_input();
        screen.set_interrupts(true);
    });
}

/// From here on somebody looks at times whether the UART would interrupt:
/// its interrupt goes nowhere. Output waits for the line.
pub fn use_polling() {
    with_screen(|screen| screen.out().interrupt_on_input());
}

/// Whether the UART interrupts; asked again after everything that it may
/// want has been done.
#[must_use]
pub fn interrupts() -> bool {
    with_screen(|screen| screen.out().interrupts()).unwrap_or(false)
}

/// Waits until everything has gone out: the machine is going down.
pub fn finish() {
    with_screen(|screen| {
        screen.asked();
        screen.set_interrupts(false);
    });
}

/// The next byte that has come in, if one has.
#[must_use]
pub fn receive() -> Option<u8> {
    with_screen(|screen| screen.out().receive()).flatten()
}

/// Takes the console from whoever holds it: the machine is going down.
///
/// # Safety
/// No other CPU runs any more, or what it prints may be garbled.
pub unsafe fn seize() {
    // SAFETY: the lock's holder, if any, never goes on.
    unsafe { SCREEN.force_unlock() };
    finish();
}

/// Where a VM's output goes; it outlives the VM's restarts.
#[derive(Debug)]
pub struct Port {
    held: Mutex<Held>,
}

impl Port {
    /// The port of VM `number`, called `name`.
    #[must_use]
    pub fn new(number: usize, name: &str) -> Self {
        let held = Mutex::new(Held::new(number, name));
        Self { held }
    }

    /// Shows this VM alone, as it prints.
    pub fn show(&self) {
        let mut held = self.held.lock();
        with_screen(|screen| screen.show_vm(&mut held));
    }

    /// Prints what is kept of the VM, if it is shown and as far as there is
    /// room.
    pub fn pump(&self) {
        let mut held = self.held.lock();
        with_screen(|screen| screen.pump(&mut held));
    }

    /// The VM has ended: so has the line that it had begun.
    pub fn finish(&self) {
        let mut held = self.held.lock();
        with_screen(|screen| screen.finish(&mut held));
    }
}

impl Sink for Port {
    fn send(&self, byte: u8) {
        let mut held = self.held.lock();
        with_screen(|screen| screen.guest(&mut held, byte));
    }

    fn is_ready(&self) -> bool {
        let held = self.held.lock();
        with_screen(|screen| screen.is_ready(&held)).unwrap_or(true)
    }
}

/// The log level that a command line's `log=` names: off, error, warn, info,
/// debug or trace; info where there is none. `Err` holds an unknown name.
///
/// # Errors
/// The word that is no level.
pub fn level(command_line: &str) -> Result<LevelFilter, &str> {
    match command_line::values(command_line, "log").next_back() {
        None => Ok(LevelFilter::Info),
        Some(name) => name.parse().map_err(|_| name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn level_is_the_last_one_named() {
        assert_eq!(level(""), Ok(LevelFilter::Info));
        assert_eq!(level("a log=debug b"), Ok(LevelFilter::Debug));
        assert_eq!(level("log=debug log=off"), Ok(LevelFilter::Off));
        assert_eq!(level("catalog=trace"), Ok(LevelFilter::Info));
        assert_eq!(level("log=loud"), Err("loud"));
    }
}
