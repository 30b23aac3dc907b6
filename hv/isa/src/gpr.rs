//! General registers: numbers, and a file of them in which r0 stays 0.
//!
//! Source: *LoongArch Reference Manual, Volume 1*, section 2.1.1; the
//! ABI's names from the *LoongArch Toolchain Conventions*.

/// The number of a general register, 0 to 31.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Gpr(u8);

macro_rules! names {
    ($($(#[$doc:meta])* $name:ident = $number:literal,)*) => {
        impl Gpr {
            $($(#[$doc])* pub const $name: Gpr = Gpr($number);)*
        }
    };
}

names! {
    /// Always 0.
    ZERO = 0,
    /// Return address.
    RA = 1,
    /// Thread pointer.
    TP = 2,
    /// Stack pointer.
    SP = 3,
    /// First argument and result.
    A0 = 4,
    /// Second argument and result.
    A1 = 5,
    /// Third argument.
    A2 = 6,
    /// Fourth argument.
    A3 = 7,
    /// Fifth argument.
    A4 = 8,
    /// Sixth argument.
    A5 = 9,
    /// Seventh argument.
    A6 = 10,
    /// Eighth argument.
    A7 = 11,
    /// Temporary.
    T0 = 12,
    /// Temporary.
    T1 = 13,
    /// Temporary.
    T2 = 14,
    /// Temporary.
    T3 = 15,
}

impl Gpr {
    /// The register with this number, or `None` above 31.
    pub const fn new(number: u8) -> Option<Gpr> {
        if number < 32 { Some(Gpr(number)) } else { None }
    }

    /// The register in the low five bits of `field`, as an instruction
    /// decoder has them.
    pub const fn from_field(field: u32) -> Gpr {
        Gpr((field & 31) as u8)
    }

    /// The number, 0 to 31.
    pub const fn number(self) -> u8 {
        self.0
    }
}

/// The 32 general registers of a guest. Writes to r0 vanish.
///
/// `repr(C)`: assembly stores register n at n × 8.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Gprs([u64; 32]);

impl Gprs {
    /// All zero.
    pub const fn new() -> Gprs {
        Gprs([0; 32])
    }

    /// The value of `register`; 0 for r0, whatever memory holds.
    pub const fn get(&self, register: Gpr) -> u64 {
        match register.0 {
            0 => 0,
            n => self.0[(n & 31) as usize],
        }
    }

    /// Gives `register` a value; r0 keeps its 0.
    pub const fn set(&mut self, register: Gpr, value: u64) {
        if register.0 != 0 {
            self.0[(register.0 & 31) as usize] = value;
        }
    }
}

impl Default for Gprs {
    fn default() -> Gprs {
        Gprs::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_to_r0_vanish() {
        let mut gprs = Gprs::new();
        gprs.set(Gpr::ZERO, 5);
        assert_eq!(gprs.get(Gpr::ZERO), 0);
        assert_eq!(gprs, Gprs::new());
    }

    #[test]
    fn every_other_register_keeps_its_own_value() {
        let mut gprs = Gprs::new();
        for n in 1..32 {
            gprs.set(Gpr::from_field(n), u64::from(n) << 40);
        }
        for n in 1..32 {
            assert_eq!(gprs.get(Gpr::from_field(n)), u64::from(n) << 40);
        }
        assert_eq!(Gpr::new(32), None);
        assert_eq!(Gpr::from_field(33), Gpr::RA);
    }
}
