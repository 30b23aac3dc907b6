//! The command line that QEMU's `-append` gives: `mode=…` and `seed=…`.

use core::ffi::CStr;

/// What the suite was asked to do.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Run every check.
    Suite,
    /// Print how many checks there are, and their names.
    List,
    /// Measure guest speed against host speed.
    Bench,
    /// Run a long guest to be saved and loaded in the middle.
    VmState,
    /// Check that without LVZ nothing of it shows.
    Off,
}

/// The parsed command line.
#[derive(Clone, Copy)]
pub struct Options {
    /// What to do.
    pub mode: Mode,
    /// Seed of all randomness, 1 if none is given.
    pub seed: u64,
    /// Only checks whose name contains this.
    pub only: &'static str,
    /// Also say which check starts.
    pub verbose: bool,
}

impl Options {
    /// Parses words separated by spaces; what it doesn't know is refused.
    pub fn parse(line: &'static str) -> Result<Options, &'static str> {
        let mut options = Options {
            mode: Mode::Suite,
            seed: 1,
            only: "",
            verbose: false,
        };
        for word in line.split_ascii_whitespace() {
            let (key, value) = word.split_once('=').ok_or(word)?;
            match (key, value) {
                ("mode", "suite") => options.mode = Mode::Suite,
                ("mode", "list") => options.mode = Mode::List,
                ("mode", "bench") => options.mode = Mode::Bench,
                ("mode", "vmstate") => options.mode = Mode::VmState,
                ("mode", "off") => options.mode = Mode::Off,
                ("seed", number) => options.seed = number.parse().map_err(|_| word)?,
                ("only", part) => options.only = part,
                ("verbose", "1") => options.verbose = true,
                _ => return Err(word),
            }
        }
        Ok(options)
    }
}

/// The command line at `pointer` in the cached window; empty if it isn't
/// UTF-8.
///
/// # Safety
///
/// `pointer` must be what QEMU passed in a1, not overwritten since: a
/// terminated string that stays where it is.
pub unsafe fn at(pointer: *const core::ffi::c_char) -> &'static str {
    // SAFETY: the caller passes on QEMU's pointer to a terminated string.
    unsafe { CStr::from_ptr(pointer) }.to_str().unwrap_or("")
}
