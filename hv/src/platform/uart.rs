//! The console's 16550.
//!
//! Source: 16550A data sheet. Firmware has set the line's speed; it is left
//! alone.

use crate::dev::uart::registers::{
    DATA, DATA_READY, ENABLE_RECEIVE, ENABLE_TRANSMIT, FIFO_CONTROL, FIFO_ENABLE, FIFOS_ON,
    HOLDING_EMPTY, INTERRUPT_ENABLE, INTERRUPT_IDENTITY, LINE_STATUS, MODEM_CONTROL, NO_INTERRUPT,
    OUT2,
};
use alloc::collections::VecDeque;

/// A 16550 with byte-wide registers, side by side.
#[derive(Debug)]
pub struct Uart {
    base: *mut u8,
    /// Bytes that it takes once its transmitter is empty.
    capacity: u8,
    /// Bytes that it takes without another look.
    room: u8,
    /// The interrupts that are enabled.
    enabled: u8,
    /// What had come in before the FIFOs were on.
    early: VecDeque<u8>,
}

/// Bytes of the transmitter's FIFO.
const FIFO_BYTES: u8 = 16;

/// Looks at the receiver without a byte after which nobody types: about the
/// time of a byte at 115200 baud, where a look takes a microsecond.
const LOOKS: u32 = 100;
/// The same once somebody has typed: an emulator may take a while, by its
/// host's clock, to bring what it has of the rest.
const MORE_LOOKS: u32 = 200_000;
/// Most bytes that are kept of what comes before the FIFOs are on.
const EARLY_BYTES: usize = 64;

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
        Self {
            base,
            capacity: 1,
            room: 0,
            enabled: 0,
            early: VecDeque::new(),
        }
    }

    fn read(&self, register: u64) -> u8 {
        // SAFETY: within the registers that `new`'s caller vouches for.
        unsafe { self.base.add(register as usize).read_volatile() }
    }

    fn write(&mut self, register: u64, value: u8) {
        // SAFETY: as in `read`.
        unsafe { self.base.add(register as usize).write_volatile(value) }
    }

    /// Turns the FIFOs on, if they aren't. That empties the receiver: what is
    /// in it, and what comes once there is room, is kept.
    pub fn set_up(&mut self) {
        if !self.has_fifos() {
            self.keep_input();
            self.write(FIFO_CONTROL, FIFO_ENABLE);
        }
        if self.has_fifos() {
            self.capacity = FIFO_BYTES;
        }
    }

    /// Receives until nothing has come for a while.
    fn keep_input(&mut self) {
        let (mut looks, mut most) = (0, LOOKS);
        while looks < most && self.early.len() < EARLY_BYTES {
            looks += 1;
            if let Some(byte) = self.take() {
                self.early.push_back(byte);
                (looks, most) = (0, MORE_LOOKS);
            }
        }
    }

    fn has_fifos(&self) -> bool {
        self.read(INTERRUPT_IDENTITY) & FIFOS_ON == FIFOS_ON
    }

    /// Lets a byte that comes in raise the interrupt.
    pub fn interrupt_on_input(&mut self) {
        self.write(MODEM_CONTROL, self.read(MODEM_CONTROL) | OUT2);
        self.enable(ENABLE_RECEIVE, true);
    }

    /// Lets it raise the interrupt when the transmitter is empty, or not.
    pub fn tell_of_room(&mut self, wanted: bool) {
        self.enable(ENABLE_TRANSMIT, wanted);
    }

    fn enable(&mut self, interrupt: u8, on: bool) {
        let enabled = self.enabled & !interrupt | if on { interrupt } else { 0 };
        if enabled != self.enabled {
            self.enabled = enabled;
            self.write(INTERRUPT_ENABLE, enabled);
        }
    }

    /// Whether it interrupts, or would for what is kept from before. Of an empty
    /// transmitter it tells once.
    pub fn interrupts(&mut self) -> bool {
        !self.early.is_empty() || self.read(INTERRUPT_IDENTITY) & NO_INTERRUPT == 0
    }

    /// Sends one byte if there is room for it; else false.
    pub fn offer(&mut self, byte: u8) -> bool {
        if self.room == 0 {
            if self.read(LINE_STATUS) & HOLDING_EMPTY == 0 {
                return false;
            }
            self.room = self.capacity;
        }
        self.room -= 1;
        self.write(DATA, byte);
        true
    }

    /// The next byte that has come in, if one has.
    pub fn receive(&mut self) -> Option<u8> {
        self.early.pop_front().or_else(|| self.take())
    }

    fn take(&mut self) -> Option<u8> {
        (self.read(LINE_STATUS) & DATA_READY != 0).then(|| self.read(DATA))
    }
}
