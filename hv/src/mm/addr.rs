//! Address types: one per address space, so that they can't be mixed up.
//!
//! A guest's virtual and physical addresses, the machine's own physical
//! addresses and IOCSR offsets are all numbers; a mistake between them is a
//! hole in the VM's wall.

use core::fmt;

/// Base page of first-stage, second-stage and host tables: 16 KiB.
pub const PAGE_SHIFT: u32 = 14;
/// Bytes of a base page.
pub const PAGE_BYTES: u64 = 1 << PAGE_SHIFT;

macro_rules! address {
    ($($(#[$doc:meta])* $name:ident,)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        #[repr(transparent)]
        pub struct $name(u64);

        impl $name {
            /// The address with this value.
            #[must_use]
            pub const fn new(value: u64) -> Self {
                Self(value)
            }

            /// The address as a number.
            #[must_use]
            pub const fn get(self) -> u64 {
                self.0
            }

            /// The address `bytes` further on, or `None` past 2⁶⁴ − 1.
            #[must_use]
            pub const fn checked_add(self, bytes: u64) -> Option<Self> {
                match self.0.checked_add(bytes) {
                    Some(value) => Some(Self(value)),
                    None => None,
                }
            }

            /// The bytes from `base` up to this address, or `None` below it.
            #[must_use]
            pub const fn offset_from(self, base: Self) -> Option<u64> {
                self.0.checked_sub(base.0)
            }

            /// Whether the address is a multiple of `bytes`, a power of two.
            #[must_use]
            pub const fn is_aligned(self, bytes: u64) -> bool {
                self.0 & (bytes - 1) == 0
            }

            /// The next lower multiple of `bytes`, a power of two.
            #[must_use]
            pub const fn align_down(self, bytes: u64) -> Self {
                Self(self.0 & !(bytes - 1))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({:#x})"), self.0)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:#x}", self.0)
            }
        }
    )*};
}

address! {
    /// Guest virtual address.
    Gva,
    /// Guest physical address.
    Gpa,
    /// Physical address of the machine itself.
    Hpa,
    /// Offset in a CPU's IOCSR space.
    IocsrAddr,
}

/// Whether [a, a + a_bytes) and [b, b + b_bytes) share a byte. Ends past
/// 2⁶⁴ are meant as they stand: nothing wraps.
#[must_use]
pub const fn overlap(a: u64, a_bytes: u64, b: u64, b_bytes: u64) -> bool {
    let (a, a_end) = (a as u128, a as u128 + a_bytes as u128);
    let (b, b_end) = (b as u128, b as u128 + b_bytes as u128);
    a < b_end && b < a_end
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_stops_at_the_ends() {
        assert_eq!(Gpa::new(u64::MAX).checked_add(1), None);
        assert_eq!(Gpa::new(1).checked_add(1), Some(Gpa::new(2)));
        assert_eq!(Hpa::new(4).offset_from(Hpa::new(5)), None);
        assert_eq!(Hpa::new(5).offset_from(Hpa::new(4)), Some(1));
    }

    #[test]
    fn alignment_is_to_powers_of_two() {
        let address = Gpa::new(0x1_4001);
        assert!(!address.is_aligned(PAGE_BYTES));
        assert_eq!(address.align_down(PAGE_BYTES), Gpa::new(0x1_4000));
        assert!(address.align_down(PAGE_BYTES).is_aligned(PAGE_BYTES));
    }

    #[test]
    fn overlap_needs_a_shared_byte() {
        assert!(overlap(0, 2, 1, 1));
        assert!(!overlap(0, 1, 1, 1));
        assert!(!overlap(5, 0, 5, 0));
        assert!(!overlap(u64::MAX, 1, 0, u64::MAX));
        assert!(overlap(u64::MAX, 2, u64::MAX, 1));
    }

    #[test]
    fn addresses_print_their_type() {
        assert_eq!(
            format!("{:?} {}", Gpa::new(16), Hpa::new(16)),
            "Gpa(0x10) 0x10"
        );
    }
}
