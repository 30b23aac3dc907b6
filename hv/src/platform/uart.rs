//! The console's 16550: polled for what goes out, with an interrupt for what
//! comes in.
//!
//! Source: 16550A data sheet. Firmware has set the line's speed; it is left
//! alone.

/// Offset of the receiver buffer and transmitter holding register.
const DATA: usize = 0;
/// Offset of the interrupt enable register.
const INTERRUPT_ENABLE: usize = 1;
/// Offset of the FIFO control register.
const FIFO_CONTROL: usize = 2;
/// Offset of the modem control register.
const MODEM_CONTROL: usize = 4;
/// Offset of the line status register.
const LINE_STATUS: usize = 5;
/// Interrupt enable: a byte has come in.
const RECEIVED: u8 = 1 << 0;
/// FIFO control: FIFOs on, interrupt at the first byte.
const FIFOS: u8 = 1 << 0;
/// Modem control: OUT2, which lets the interrupt through where it is wired.
const OUT2: u8 = 1 << 3;
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

    fn write(&mut self, register: usize, value: u8) {
        // SAFETY: as in `read`.
        unsafe { self.base.add(register).write_volatile(value) }
    }

    /// Lets a byte that comes in raise the interrupt.
    pub fn interrupt_on_input(&mut self) {
        self.write(FIFO_CONTROL, FIFOS);
        self.write(MODEM_CONTROL, self.read(MODEM_CONTROL) | OUT2);
        self.write(INTERRUPT_ENABLE, RECEIVED);
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
