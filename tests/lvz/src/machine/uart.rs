//! The serial port, as the suite's only output.
//!
//! Source: 16550A data sheet; UART0 at 0x1fe001e0 on QEMU's `virt` board.

use super::device;
use core::fmt;

const BASE: u64 = 0x1fe0_01e0;
/// Transmitter holding register.
const THR: u64 = 0;
/// Line status register.
const LSR: u64 = 5;
/// LSR: the holding register is empty.
const LSR_THRE: u8 = 1 << 5;

/// The port. Only the CPU that prints may use it at a time.
pub struct Uart;

fn put(byte: u8) {
    let status: *const u8 = device(BASE + LSR);
    let holding: *mut u8 = device(BASE + THR);
    // SAFETY: both are registers of UART0, mapped by the uncached window
    // that `boot` set up; accessing them touches no memory of ours.
    unsafe {
        while status.read_volatile() & LSR_THRE == 0 {}
        holding.write_volatile(byte);
    }
}

impl fmt::Write for Uart {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        text.bytes().for_each(put);
        Ok(())
    }
}

/// Prints a line on the serial port.
#[macro_export]
macro_rules! println {
    ($($arg:tt)*) => {{
        use core::fmt::Write;
        // The port's writer never fails.
        let _ = writeln!($crate::machine::uart::Uart, $($arg)*);
    }};
}
