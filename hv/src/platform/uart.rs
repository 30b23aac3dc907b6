//! The console's 16550: polled for what goes out, with an interrupt for what
//! comes in.
//!
//! Source: 16550A data sheet. Firmware has set the line's speed; it is left
//! alone.

use crate::dev::uart::registers::{
    DATA, DATA_READY, ENABLE_RECEIVE, FIFO_CONTROL, FIFO_ENABLE, HOLDING_EMPTY, INTERRUPT_ENABLE,
    LINE_STATUS, MODEM_CONTROL, OUT2,
};

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

    fn read(&self, register: u64) -> u8 {
        // SAFETY: within the registers that `new`'s caller vouches for.
        unsafe { self.base.add(register as usize).read_volatile() }
    }

    fn write(&mut self, register: u64, value: u8) {
        // SAFETY: as in `read`.
        unsafe { self.base.add(register as usize).write_volatile(value) }
    }

    /// Turns the FIFOs on. That empties them: the earlier, the less is lost
    /// of what the user has typed.
    pub fn set_up(&mut self) {
        self.write(FIFO_CONTROL, FIFO_ENABLE);
    }

    /// Lets a byte that comes in raise the interrupt.
    pub fn interrupt_on_input(&mut self) {
        self.write(MODEM_CONTROL, self.read(MODEM_CONTROL) | OUT2);
        self.write(INTERRUPT_ENABLE, ENABLE_RECEIVE);
    }

    /// Sends one byte, waiting until there is room for it.
    pub fn send(&mut self, byte: u8) {
        while self.read(LINE_STATUS) & HOLDING_EMPTY == 0 {
            core::hint::spin_loop();
        }
        self.write(DATA, byte);
    }

    /// The next byte that has come in, if one has.
    pub fn receive(&mut self) -> Option<u8> {
        (self.read(LINE_STATUS) & DATA_READY != 0).then(|| self.read(DATA))
    }
}
