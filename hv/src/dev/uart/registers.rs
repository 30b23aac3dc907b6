//! The registers of a 16550A, of the model's and of the machine's own.
//!
//! Source: National Semiconductor PC16550D data sheet.

/// Receiver buffer and transmitter holding register; with the divisor latch
/// shown, its low byte.
pub const DATA: u64 = 0;
/// Interrupt enable; with the divisor latch shown, its high byte.
pub const INTERRUPT_ENABLE: u64 = 1;
/// Interrupt identification (read-only).
pub const INTERRUPT_IDENTITY: u64 = 2;
/// FIFO control (write-only).
pub const FIFO_CONTROL: u64 = 2;
/// Line control.
pub const LINE_CONTROL: u64 = 3;
/// Modem control.
pub const MODEM_CONTROL: u64 = 4;
/// Line status.
pub const LINE_STATUS: u64 = 5;
/// Modem status.
pub const MODEM_STATUS: u64 = 6;
/// A register that only remembers.
pub const SCRATCH: u64 = 7;

/// Interrupt identification: none.
pub const NO_INTERRUPT: u8 = 1 << 0;
/// Interrupt identification: FIFOs are on.
pub const FIFOS_ON: u8 = 0xc0;

/// Interrupt enable: a byte has come in.
pub const ENABLE_RECEIVE: u8 = 1 << 0;
/// Interrupt enable: the transmitter has become empty.
pub const ENABLE_TRANSMIT: u8 = 1 << 1;
/// Interrupt enable: an error of the line.
pub const ENABLE_LINE: u8 = 1 << 2;
/// Interrupt enable: a change of the modem's lines.
pub const ENABLE_MODEM: u8 = 1 << 3;

/// FIFO control: FIFOs on; the receiver's trigger level is in bits 7:6.
pub const FIFO_ENABLE: u8 = 1 << 0;
/// FIFO control: empty the receiver's.
pub const FIFO_CLEAR_RECEIVER: u8 = 1 << 1;

/// Line control: the divisor latch is seen at offsets 0 and 1.
pub const DIVISOR_LATCH: u8 = 1 << 7;

/// Modem control: an output that lets the interrupt through where it is
/// wired so.
pub const OUT2: u8 = 1 << 3;
/// Modem control: what is sent comes back.
pub const LOOPBACK: u8 = 1 << 4;

/// Line status: a byte has come in.
pub const DATA_READY: u8 = 1 << 0;
/// Line status: a byte was lost.
pub const OVERRUN: u8 = 1 << 1;
/// Line status: a byte can be sent.
pub const HOLDING_EMPTY: u8 = 1 << 5;
/// Line status: everything has been sent.
pub const TRANSMITTER_EMPTY: u8 = 1 << 6;
