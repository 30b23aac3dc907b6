//! What an image was made for, and whether this machine is that.
//!
//! An image says `board=NAME` in its options. A board is told by the name of its
//! processor, which every LoongArch machine has in IOCSR 0x20: an image for another
//! one is refused before anything of the machine is touched, since the console's
//! and the interrupt controllers' addresses need not be where the image takes
//! them to be.
//!
//! Sources: Linux, arch/loongarch/kernel/cpu-probe.c (the name's register and
//! layout); QEMU 10.0, hw/loongarch/virt.c (`virt` calls itself a 3A5000).

use crate::command_line;
use core::fmt;

/// A kind of machine that images are made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Board {
    /// QEMU's `virt` machine.
    QemuVirt,
    /// A server with 3C5000 processors.
    Ls3c5000,
}

/// Why an image doesn't belong on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WrongBoard<'a> {
    /// No board has this name.
    Unknown(&'a str),
    /// The image is for another machine than one with a processor of this name.
    Other(Board, CpuName),
}

/// The processor's name, as IOCSR 0x20 has it: text, filled up with zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuName(pub u64);

impl Board {
    /// Every board.
    pub const ALL: [Self; 2] = [Self::QemuVirt, Self::Ls3c5000];

    /// Its name, in options and on the host tool's command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::QemuVirt => "qemu-virt",
            Self::Ls3c5000 => "3c5000",
        }
    }

    /// The board called `name`.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|board| board.name() == name)
    }

    /// How its processor's name begins; letters may follow for a variant.
    const fn processor(self) -> &'static str {
        match self {
            Self::QemuVirt => "3A5000",
            Self::Ls3c5000 => "3C5000",
        }
    }
}

impl fmt::Display for CpuName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.0.to_le_bytes();
        let printable = bytes.iter().take_while(|byte| byte.is_ascii_graphic());
        printable
            .map(|&byte| char::from(byte))
            .try_for_each(|c| write!(f, "{c}"))
    }
}

impl fmt::Display for WrongBoard<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(name) => write!(f, "board={name}: no such board"),
            Self::Other(board, found) => write!(
                f,
                "this image is for the board {} (processor {}), and this machine's processor is {found}",
                board.name(),
                board.processor()
            ),
        }
    }
}

/// This machine's processor.
#[cfg(target_arch = "loongarch64")]
#[must_use]
pub fn this() -> CpuName {
    CpuName(crate::arch::iocsr::read_64(guest_pv::abi::iocsr::CPU_NAME))
}

/// Whether the options in `line` fit a machine with the processor `found`. Options
/// that name no board fit every machine.
///
/// # Errors
/// See [`WrongBoard`].
pub fn check(line: &str, found: CpuName) -> Result<(), WrongBoard<'_>> {
    let Some(name) = command_line::values(line, "board").next() else {
        return Ok(());
    };
    let board = Board::named(name).ok_or(WrongBoard::Unknown(name))?;
    let begins = found
        .0
        .to_le_bytes()
        .starts_with(board.processor().as_bytes());
    begins.then_some(()).ok_or(WrongBoard::Other(board, found))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cpu(name: &[u8; 8]) -> CpuName {
        CpuName(u64::from_le_bytes(*name))
    }

    #[test]
    fn an_image_fits_its_own_board() {
        assert_eq!(
            check("log=debug board=qemu-virt", cpu(b"3A5000\0\0")),
            Ok(())
        );
        assert_eq!(check("board=3c5000", cpu(b"3C5000L\0")), Ok(()));
        assert_eq!(check("console=lines", cpu(b"3C6000\0\0")), Ok(()));
    }

    #[test]
    fn another_board_is_named_with_what_was_found() {
        let why = check("board=3c5000", cpu(b"3A5000\0\0")).unwrap_err();
        assert_eq!(
            why.to_string(),
            "this image is for the board 3c5000 (processor 3C5000), and this machine's processor is 3A5000"
        );
        let why = check("board=toaster", cpu(b"3A5000\0\0")).unwrap_err();
        assert_eq!(why.to_string(), "board=toaster: no such board");
    }

    #[test]
    fn an_odd_name_is_printed_as_far_as_it_is_text() {
        assert_eq!(cpu(b"3A\x1b[2J\0\0").to_string(), "3A");
        assert_eq!(CpuName(u64::MAX).to_string(), "");
    }
}
