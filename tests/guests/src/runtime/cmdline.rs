//! The command line that the hypervisor leaves for the guest.

use core::ffi::{CStr, c_char};

/// Bytes that a command line may have, with the zero at its end.
const MOST: usize = 8 << 10;

/// What the hypervisor left: that lies in RAM which the checks give away.
static mut TEXT: [u8; MOST] = [0; MOST];

/// A command line: words of the form `key=value`.
#[derive(Clone, Copy)]
pub struct Options(&'static str);

impl Options {
    /// The command line at the physical address `at`. Once.
    pub fn new(at: u64) -> Options {
        let text = super::memory::<c_char>(at);
        // SAFETY: the hypervisor left a string there, which nobody changes as
        // yet; and nobody but its one caller has the copy.
        let copy = unsafe {
            let bytes = CStr::from_ptr(text).to_bytes();
            let copy = &raw mut TEXT;
            (&mut *copy)[..bytes.len()].copy_from_slice(bytes);
            &(&*copy)[..bytes.len()]
        };
        Options(core::str::from_utf8(copy).unwrap_or_default())
    }

    /// The value of `key`, or "" where there is none.
    pub fn text(&self, key: &str) -> &'static str {
        let value = |word: &'static str| word.strip_prefix(key)?.strip_prefix('=');
        self.0
            .split_ascii_whitespace()
            .find_map(value)
            .unwrap_or("")
    }

    /// The numbers of `key`, separated by commas.
    pub fn list(&self, key: &str) -> impl Iterator<Item = u64> + use<> {
        self.text(key)
            .split(',')
            .filter_map(|item| item.parse().ok())
    }

    /// The number of `key`, or `otherwise` where there is none.
    pub fn number(&self, key: &str, otherwise: u64) -> u64 {
        self.list(key).next().unwrap_or(otherwise)
    }
}
