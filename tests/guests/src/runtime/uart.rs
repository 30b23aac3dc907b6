//! The VM's console.

use super::device;
use core::fmt;
use core::sync::atomic::{AtomicBool, Ordering};

const BASE: u64 = 0x1fe0_01e0;
/// Line status register: offset, and "there is room".
const LINE_STATUS: u64 = 5;
const HOLDING_EMPTY: u8 = 1 << 5;

static BUSY: AtomicBool = AtomicBool::new(false);

/// The console, while this CPU holds it.
pub struct Uart(());

impl Uart {
    /// Waits until no other CPU prints.
    pub fn take() -> Uart {
        while BUSY.swap(true, Ordering::Acquire) {
            core::hint::spin_loop();
        }
        Uart(())
    }
}

impl Drop for Uart {
    fn drop(&mut self) {
        BUSY.store(false, Ordering::Release);
    }
}

impl fmt::Write for Uart {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let (status, data) = (device::<u8>(BASE + LINE_STATUS), device::<u8>(BASE));
        for byte in text.bytes() {
            // SAFETY: registers of the VM's UART.
            unsafe {
                while status.read_volatile() & HOLDING_EMPTY == 0 {}
                data.write_volatile(byte);
            }
        }
        Ok(())
    }
}

/// Prints a line on the console.
#[macro_export]
macro_rules! println {
    ($($arg:tt)*) => {{
        use core::fmt::Write;
        // The console's writer never fails.
        let _ = writeln!($crate::runtime::uart::Uart::take(), $($arg)*);
    }};
}
