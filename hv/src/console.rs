//! The console: log lines, whole and one at a time.

use crate::dev::uart::Sink;
use crate::platform::uart::Uart;
use alloc::string::String;
use core::fmt::{self, Write};
use log::{LevelFilter, Log, Metadata, Record};
use spin::Mutex;

static UART: Mutex<Option<Uart>> = Mutex::new(None);

struct Logger;

static LOGGER: Logger = Logger;

impl Log for Logger {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.level() <= log::max_level()
    }

    fn log(&self, record: &Record<'_>) {
        if self.enabled(record.metadata()) {
            let level = record.level().as_str();
            print(format_args!("[hv {level:<5}] {}\n", record.args()));
        }
    }

    fn flush(&self) {}
}

/// From here on the console is `uart`, and log lines up to `level` appear.
pub fn set_up(uart: Uart, level: LevelFilter) {
    *UART.lock() = Some(uart);
    // An error means that the logger is set already: by an earlier call.
    let _ = log::set_logger(&LOGGER);
    log::set_max_level(level);
}

/// Prints `text` in one piece.
pub fn print(text: fmt::Arguments<'_>) {
    if let Some(uart) = UART.lock().as_mut() {
        // The UART's writer never fails.
        let _ = uart.write_fmt(text);
    }
}

/// The next byte that has come in, if one has.
pub fn receive() -> Option<u8> {
    UART.lock().as_mut()?.receive()
}

/// Takes the console from whoever holds it: the machine is going down.
///
/// # Safety
/// No other CPU runs any more, or what it prints may be garbled.
pub unsafe fn seize() {
    // SAFETY: the lock's holder, if any, never goes on.
    unsafe { UART.force_unlock() };
}

/// Longest line of a guest that is printed in one piece, in bytes.
const LINE_BYTES: usize = 256;

/// What a guest prints, gathered to whole lines with its VM's name in front.
#[derive(Debug)]
pub struct LineBuffer {
    name: String,
    line: Mutex<Line>,
}

#[derive(Debug)]
struct Line {
    bytes: [u8; LINE_BYTES],
    used: usize,
}

impl LineBuffer {
    /// An empty line of the VM called `name`.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self {
            name: name.into(),
            line: Mutex::new(Line {
                bytes: [0; LINE_BYTES],
                used: 0,
            }),
        }
    }

    /// Takes a byte; hands `print` the line's bytes when it is complete.
    fn push(&self, byte: u8, print: impl FnOnce(&[u8])) {
        let mut line = self.line.lock();
        let Line { bytes, used } = &mut *line;
        if byte != b'\n'
            && byte != b'\r'
            && let Some(place) = bytes.get_mut(*used)
        {
            *place = byte;
            *used += 1;
        }
        if byte == b'\n' || *used == LINE_BYTES {
            print(bytes.get(..*used).unwrap_or_default());
            *used = 0;
        }
    }
}

impl Sink for LineBuffer {
    fn send(&self, byte: u8) {
        self.push(byte, |line| {
            if let Some(uart) = UART.lock().as_mut() {
                let all = [self.name.as_bytes(), b"| ", line, b"\r\n"];
                all.into_iter().flatten().for_each(|&byte| uart.send(byte));
            }
        });
    }
}

/// The log level that a command line's `log=` names: off, error, warn, info,
/// debug or trace; info where there is none. `Err` holds an unknown name.
///
/// # Errors
/// The word that is no level.
pub fn level(command_line: &str) -> Result<LevelFilter, &str> {
    let words = command_line.split_ascii_whitespace();
    match words
        .filter_map(|word| word.strip_prefix("log="))
        .next_back()
    {
        None => Ok(LevelFilter::Info),
        Some(name) => name.parse().map_err(|_| name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_printed_whole() {
        let buffer = LineBuffer::new("a");
        let mut lines = Vec::new();
        let long = "x".repeat(LINE_BYTES + 3);
        for byte in format!("one\r\n\n{long}\n").bytes() {
            buffer.push(byte, |line| lines.push(line.to_vec()));
        }
        let lengths: Vec<usize> = lines.iter().map(Vec::len).collect();
        assert_eq!(lengths, [3, 0, LINE_BYTES, 3]);
        assert_eq!(lines[0], b"one");
    }

    #[test]
    fn level_is_the_last_one_named() {
        assert_eq!(level(""), Ok(LevelFilter::Info));
        assert_eq!(level("a log=debug b"), Ok(LevelFilter::Debug));
        assert_eq!(level("log=debug log=off"), Ok(LevelFilter::Off));
        assert_eq!(level("catalog=trace"), Ok(LevelFilter::Info));
        assert_eq!(level("log=loud"), Err("loud"));
    }
}
