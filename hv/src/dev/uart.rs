//! A 16550A UART that a guest polls: the VM's console.
//!
//! Threats: a guest may write any byte at any rate; bytes are passed on as
//! they come, one at a time, and nothing is kept here that grows. Not
//! emulated: line speed, modem lines, parity and framing errors, the FIFO's
//! trigger levels (a byte that is sent has left at once, and there is no
//! interrupt: a driver polls).
//!
//! Source: 16550A data sheet.

use crate::isa::insn::Width;
use spin::Mutex;

/// Where the bytes that a guest sends go.
pub trait Sink {
    /// Takes one byte.
    fn send(&self, byte: u8);
}

/// Line control: the divisor latch is seen at offsets 0 and 1.
const DIVISOR_LATCH: u8 = 1 << 7;
/// Line status: both the holding register and the shifter are empty.
const TRANSMITTER_EMPTY: u8 = 3 << 5;
/// Interrupt identification: FIFOs on, no interrupt pending.
const NO_INTERRUPT: u8 = 0xc1;
/// Modem status: carrier, data set ready, clear to send.
const MODEM_READY: u8 = 0xb0;

/// Registers that only remember what was written.
#[derive(Debug, Default)]
struct Registers {
    interrupt_enable: u8,
    line_control: u8,
    modem_control: u8,
    scratch: u8,
    divisor: [u8; 2],
}

/// The UART.
#[derive(Debug, Default)]
pub struct Uart {
    registers: Mutex<Registers>,
}

impl Uart {
    /// A UART as after reset.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Reads the register at `offset`; wider reads have it in their low byte.
    pub fn read(&self, offset: u64, _width: Width) -> u64 {
        let registers = self.registers.lock();
        let latch = registers.line_control & DIVISOR_LATCH != 0;
        let [low, high] = registers.divisor;
        u64::from(match offset {
            0 if latch => low,
            1 if latch => high,
            1 => registers.interrupt_enable,
            2 => NO_INTERRUPT,
            3 => registers.line_control,
            4 => registers.modem_control,
            5 => TRANSMITTER_EMPTY,
            6 => MODEM_READY,
            7 => registers.scratch,
            _ => 0,
        })
    }

    /// Writes the low byte of `value` to the register at `offset`.
    pub fn write(&self, offset: u64, _width: Width, value: u64, sink: &impl Sink) {
        let byte = value as u8;
        let mut registers = self.registers.lock();
        let latch = registers.line_control & DIVISOR_LATCH != 0;
        let [low, high] = &mut registers.divisor;
        match offset {
            0 if latch => *low = byte,
            1 if latch => *high = byte,
            0 => sink.send(byte),
            1 => registers.interrupt_enable = byte & 0xf,
            3 => registers.line_control = byte,
            4 => registers.modem_control = byte & 0x1f,
            7 => registers.scratch = byte,
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::cell::RefCell;

    #[derive(Default)]
    struct Sent(RefCell<Vec<u8>>);

    impl Sink for Sent {
        fn send(&self, byte: u8) {
            self.0.borrow_mut().push(byte);
        }
    }

    #[test]
    fn bytes_go_out_in_their_order() {
        let (uart, sent) = (Uart::new(), Sent::default());
        for byte in *b"hello" {
            assert_eq!(uart.read(5, Width::Byte), 0x60);
            uart.write(0, Width::Byte, u64::from(byte) | 0xff00, &sent);
        }
        assert_eq!(*sent.0.borrow(), b"hello");
    }

    #[test]
    fn divisor_latch_hides_the_data_register() {
        let (uart, sent) = (Uart::new(), Sent::default());
        uart.write(3, Width::Byte, 0x83, &sent);
        uart.write(0, Width::Byte, 0x36, &sent);
        uart.write(1, Width::Byte, 1, &sent);
        assert_eq!(
            (uart.read(0, Width::Byte), uart.read(1, Width::Byte)),
            (0x36, 1)
        );
        uart.write(3, Width::Byte, 3, &sent);
        assert_eq!(
            (uart.read(0, Width::Byte), uart.read(1, Width::Byte)),
            (0, 0)
        );
        assert!(sent.0.borrow().is_empty());
    }

    #[test]
    fn every_offset_answers() {
        let (uart, sent) = (Uart::new(), Sent::default());
        for offset in 0..0x100 {
            for width in [Width::Byte, Width::Half, Width::Word, Width::Double] {
                uart.write(offset, width, 0x5a, &sent);
                let _ = uart.read(offset, width);
            }
        }
        assert_eq!(uart.read(7, Width::Byte), 0x5a);
        assert_eq!(uart.read(0xff, Width::Double), 0);
    }
}
