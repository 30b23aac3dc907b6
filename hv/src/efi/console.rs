//! Firmware's console, for what goes wrong before the hypervisor has its own.

use core::fmt;
use uefi_raw::Status;
use uefi_raw::protocol::console::SimpleTextOutputProtocol;

/// Characters that are handed over at once.
const AT_ONCE: usize = 64;

/// Firmware's console.
#[derive(Debug)]
pub struct Console(*mut SimpleTextOutputProtocol);

impl Console {
    /// The console with this protocol; null where there is none.
    pub const fn new(protocol: *mut SimpleTextOutputProtocol) -> Self {
        Self(protocol)
    }

    /// Prints UCS-2 that ends with 0.
    fn output(&self, text: &[u16]) -> fmt::Result {
        if self.0.is_null() {
            return Ok(());
        }
        // SAFETY: firmware's protocol, while boot services last.
        let status = unsafe { ((*self.0).output_string)(self.0, text.as_ptr()) };
        if status == Status::SUCCESS {
            Ok(())
        } else {
            Err(fmt::Error)
        }
    }
}

impl fmt::Write for Console {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let mut buffer = [0; AT_ONCE];
        let mut length = 0;
        for character in text.chars() {
            // Room for a carriage return, a character and the end.
            if length + 3 > buffer.len() {
                self.output(&buffer)?;
                (buffer, length) = ([0; AT_ONCE], 0);
            }
            let units = if character == '\n' {
                &['\r', '\n'][..]
            } else {
                &[character]
            };
            for unit in units {
                buffer[length] = u16::try_from(u32::from(*unit)).unwrap_or(u16::from(b'?'));
                length += 1;
            }
        }
        self.output(&buffer)
    }
}
