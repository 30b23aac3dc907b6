//! Exception codes and interrupt lines.
//!
//! A code with its sub-code names the cause of an exception; an interrupt
//! line is a bit of ESTAT.IS and of ECFG.LIE.
//!
//! Sources: *LoongArch Reference Manual, Volume 1*, tables 7-8 and 6-1; for
//! the LVZ codes 22 to 24 asm/loongarch.h of Linux 7.2.

use super::csr::ESTAT;
use tock_registers::LocalRegisterCopy;

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $number:literal,)*) => {
        /// Exception code: ESTAT.Ecode, 6 bits.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum Ecode {
            $($(#[$doc])* $name = $number,)*
        }

        impl Ecode {
            /// The code with this number, or `None` where the architecture
            /// leaves the number reserved.
            pub const fn new(number: u64) -> Option<Ecode> {
                match number {
                    $($number => Some(Ecode::$name),)*
                    _ => None,
                }
            }
        }
    };
}

codes! {
    /// Interrupt.
    Int = 0,
    /// Page invalid, load.
    Pil = 1,
    /// Page invalid, store.
    Pis = 2,
    /// Page invalid, fetch.
    Pif = 3,
    /// Page modified: a store to a page that isn't dirty.
    Pme = 4,
    /// Page not readable.
    Pnr = 5,
    /// Page not executable.
    Pnx = 6,
    /// Page privilege level illegal.
    Ppi = 7,
    /// Address error: sub-code 0 fetch, 1 load or store.
    Ade = 8,
    /// Address not aligned.
    Ale = 9,
    /// Bound check.
    Bce = 10,
    /// System call.
    Sys = 11,
    /// Breakpoint.
    Brk = 12,
    /// Instruction non-existent.
    Ine = 13,
    /// Instruction privilege error.
    Ipe = 14,
    /// Floating point disabled.
    Fpd = 15,
    /// 128-bit vectors disabled.
    Sxd = 16,
    /// 256-bit vectors disabled.
    Asxd = 17,
    /// Floating point: sub-code 0 basic, 1 vector.
    Fpe = 18,
    /// Watchpoint: sub-code 0 fetch, 1 load or store.
    Wpe = 19,
    /// Binary translation disabled.
    Btd = 20,
    /// Binary translation.
    Bte = 21,
    /// LVZ: guest-sensitive privileged resource.
    Gspr = 22,
    /// LVZ: hypercall.
    Hvc = 23,
    /// LVZ: guest register changed: sub-code 0 by software, 1 by hardware.
    Gcm = 24,
}

/// Sub-code of [`Ecode::Ade`] for a fetch.
pub const ADE_FETCH: u64 = 0;
/// Sub-code of [`Ecode::Ade`] for a load or store.
pub const ADE_MEMORY: u64 = 1;

impl Ecode {
    /// The number, 0 to 63.
    pub const fn number(self) -> u64 {
        self as u64
    }

    /// The code in a value of ESTAT, or `None` where it is reserved.
    pub fn of_estat(estat: u64) -> Option<Ecode> {
        let estat = LocalRegisterCopy::<u64, ESTAT::Register>::new(estat);
        Ecode::new(estat.read(ESTAT::ECODE))
    }
}

/// An interrupt line: bit of ESTAT.IS and ECFG.LIE, 0 to 12. The higher
/// number has the higher priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Interrupt(u8);

/// How many interrupt lines ESTAT has.
pub const INTERRUPTS: u8 = 13;
/// How many of them are hardware lines.
pub const HARDWARE_INTERRUPTS: u8 = 8;

impl Interrupt {
    /// Software interrupt 0.
    pub const SWI0: Interrupt = Interrupt(0);
    /// Software interrupt 1.
    pub const SWI1: Interrupt = Interrupt(1);
    /// Performance counter overflow.
    pub const PMI: Interrupt = Interrupt(10);
    /// Timer.
    pub const TI: Interrupt = Interrupt(11);
    /// Inter-processor interrupt.
    pub const IPI: Interrupt = Interrupt(12);

    /// The line with this number, or `None` above 12.
    pub const fn new(number: u8) -> Option<Interrupt> {
        if number < INTERRUPTS {
            Some(Interrupt(number))
        } else {
            None
        }
    }

    /// Hardware line `n`, 0 to 7: number 2 and up.
    pub const fn hwi(n: u8) -> Interrupt {
        assert!(n < HARDWARE_INTERRUPTS);
        Interrupt(2 + n)
    }

    /// The number, 0 to 12.
    pub const fn number(self) -> u8 {
        self.0
    }

    /// The line's bit in ESTAT and ECFG.
    pub const fn bit(self) -> u64 {
        1 << self.0
    }

    /// The vector that ECFG.VS ≠ 0 gives this line: they follow the 64
    /// exception codes.
    pub const fn vector(self) -> u64 {
        64 + self.0 as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_round_trip_and_the_rest_is_reserved() {
        for number in 0..64 {
            match Ecode::new(number) {
                Some(code) => assert_eq!(code.number(), number),
                None => assert!(number > 24),
            }
        }
    }

    #[test]
    fn code_of_a_status_word_ignores_lines_and_sub_code() {
        assert_eq!(Ecode::of_estat(0x7fc0_1fff), Some(Ecode::Int));
        assert_eq!(Ecode::of_estat(22 << 16 | 0x800), Some(Ecode::Gspr));
        assert_eq!(Ecode::of_estat(0x3f << 16), None);
    }

    #[test]
    fn line_zero_is_an_interrupt_like_the_others() {
        assert_eq!(Interrupt::new(0), Some(Interrupt::SWI0));
        assert_eq!(Interrupt::SWI0.bit(), 1);
        assert_eq!(Interrupt::hwi(0).bit(), 4);
        assert_eq!(Interrupt::hwi(7).bit(), 1 << 9);
        assert_eq!(Interrupt::IPI.bit(), 1 << 12);
        assert_eq!(Interrupt::new(13), None);
        assert!(Interrupt::IPI > Interrupt::TI);
    }
}
