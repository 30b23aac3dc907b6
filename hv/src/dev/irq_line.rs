//! Interrupt lines: their numbers, and what drives them.
//!
//! A device's interrupt has three numbers on its way to a vCPU: the input of
//! PCH-PIC that it drives, the vector of EIOINTC that this input sends, and
//! the HWI line that this vector raises. Each is a type of its own, so that
//! none can stand for another.
//!
//! Source: Loongson 7A1000 manual, chapter on interrupts; Loongson 3A5000
//! manual, chapter on extended I/O interrupts.

use crate::isa::exception::Interrupt;

macro_rules! numbered {
    ($(#[$doc:meta])* $name:ident, $count:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub struct $name(u8);

        impl $name {
            /// How many there are.
            pub const COUNT: u8 = $count;

            /// Number `number`; `None` beyond the last.
            #[must_use]
            pub const fn new(number: u8) -> Option<Self> {
                if number < Self::COUNT {
                    Some(Self(number))
                } else {
                    None
                }
            }

            /// Its number.
            #[must_use]
            pub const fn number(self) -> u8 {
                self.0
            }
        }
    };
}

numbered! {
    /// An input of PCH-PIC, 0 to 63.
    PchPicInput, 64
}

numbered! {
    /// A hardware interrupt line of a vCPU, 0 to 7.
    Hwi, 8
}

impl PchPicInput {
    /// Input `NUMBER`, which is checked as the program is built.
    #[must_use]
    pub const fn of<const NUMBER: u8>() -> Self {
        const { assert!(NUMBER < Self::COUNT) };
        Self(NUMBER)
    }

    /// Its bit in PCH-PIC's registers.
    #[must_use]
    pub const fn bit(self) -> u64 {
        1 << self.0
    }
}

impl Hwi {
    /// The line in a vCPU's ESTAT.
    #[must_use]
    pub const fn interrupt(self) -> Interrupt {
        Interrupt::hwi(self.0)
    }
}

/// A vector of EIOINTC, 0 to 255.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EiointcVector(u8);

impl EiointcVector {
    /// Vector `number`.
    #[must_use]
    pub const fn new(number: u8) -> Self {
        Self(number)
    }

    /// Its number.
    #[must_use]
    pub const fn number(self) -> u8 {
        self.0
    }
}

/// A line that a device drives. It is a level: what is set stays so.
pub trait IrqLine {
    /// Raises the line (`true`) or lowers it.
    fn set(&self, high: bool);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_end_where_their_controller_does() {
        assert_eq!(PchPicInput::new(63).map(PchPicInput::bit), Some(1 << 63));
        assert_eq!(PchPicInput::new(64), None);
        assert_eq!(Hwi::new(7).map(Hwi::number), Some(7));
        assert_eq!(Hwi::new(8), None);
        assert_eq!(EiointcVector::new(255).number(), 255);
    }

    #[test]
    fn hwi_0_is_bit_2_of_estat() {
        let lines = (0..Hwi::COUNT).filter_map(Hwi::new);
        let bits = lines.map(|hwi| hwi.interrupt().bit());
        assert_eq!(bits.fold(0, |all, bit| all | bit), 0x3fc);
    }
}
