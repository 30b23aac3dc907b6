//! The console's 16550, polled.
//!
//! Source: 16550A data sheet. Firmware has set the line's speed; it is left
//! alone.

use core::fmt;

/// Offset of the receiver buffer and transmitter holding register.
const DATA: usize = 0;
/// Offset of the line status register.
const LINE_STATUS: usize = 5;
/// Line status: a byte has come in.
const DATA_READY: u8 = 1 << 0;
/// Line status: a byte can go out.
const HOLDING_EMPTY: u8 = 1 << 5;

/// A 16550 with byte-wide registers, side by side.
#[derive(Debug)]
pub struct Uart {
    base: *mut u8,
}

// SAFETY: the registers may be used from any CPU, by one at a time: `&mut`.
unsafe impl Send for Uart {}

impl Uart {
    /// The UART at `base`.
    ///
    /// # Safety
    /// Eight bytes at `base` are the registers of a 16550 for as long as the
    /// value is used, and nobody else uses them.
    #[must_use]
    pub const unsafe fn new(base: *mut u8) -> Self {
        Self { base }
    }

    fn read(&self, register: usize) -> u8 {
        // SAFETY: within the registers that `new`'s caller vouches for.
        unsafe { self.base.add(register).read_volatile() }
    }

    /// Sends one byte, waiting until there is room for it.
    pub fn send(&mut self, byte: u8) {
        while self.read(LINE_STATUS) & HOLDING_EMPTY == 0 {
            core::hint::spin_loop();
        }
        // SAFETY: as in `read`.
        unsafe { self.base.add(DATA).write_volatile(byte) }
    }

    /// The next byte that has come in, if one has.
    pub fn receive(&mut self) -> Option<u8> {
        (self.read(LINE_STATUS) & DATA_READY != 0).then(|| self.read(DATA))
    }
}

impl fmt::Write for Uart {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            if byte == b'\n' {
                self.send(b'\r');
            }
            self.send(byte);
        }
        Ok(())
    }
}
