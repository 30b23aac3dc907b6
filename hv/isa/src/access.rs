//! Accesses to the control and status registers, the host's and the guest's.
//!
//! `csr_read!(ECFG)`, `gcsr_write!(save(3), 1)`: the number is part of the
//! instruction, so it is known when the program is built. The one module here
//! that acts: whatever runs on the bare machine needs it, and would write the
//! same again.

use core::arch::asm;

macro_rules! accessors {
    ($read:ident, $write:ident, $exchange:ident, $whose:literal,
     $read_insn:literal, $write_insn:literal, $exchange_insn:literal) => {
        #[doc = concat!("The value of ", $whose, " register `NUMBER`.")]
        #[inline(always)]
        pub fn $read<const NUMBER: u16>() -> u64 {
            let value;
            // SAFETY: reading a register changes nothing.
            unsafe {
                asm!(concat!($read_insn, " {}, {}"), out(reg) value, const NUMBER,
                    options(nomem, nostack, preserves_flags));
            }
            value
        }

        #[doc = concat!("Writes ", $whose, " register `NUMBER`; returns the old value.")]
        ///
        /// # Safety
        /// The caller answers for what the register controls.
        #[inline(always)]
        pub unsafe fn $write<const NUMBER: u16>(mut value: u64) -> u64 {
            // SAFETY: the caller's duty, as documented.
            unsafe {
                asm!(concat!($write_insn, " {}, {}"), inout(reg) value, const NUMBER,
                    options(nostack, preserves_flags));
            }
            value
        }

        #[doc = concat!("Writes the bits `mask` of ", $whose, " register `NUMBER`; returns the old value.")]
        ///
        /// # Safety
        /// As for a write.
        #[inline(always)]
        pub unsafe fn $exchange<const NUMBER: u16>(mut value: u64, mask: u64) -> u64 {
            // SAFETY: the caller's duty, as documented. A mask in r0 or r1
            // would make another instruction of it: hence a fixed register.
            unsafe {
                asm!(concat!($exchange_insn, " {}, $t0, {}"), inout(reg) value, const NUMBER,
                    in("$t0") mask, options(nostack, preserves_flags));
            }
            value
        }
    };
}

accessors!(
    read,
    write,
    exchange,
    "the host's",
    "csrrd",
    "csrwr",
    "csrxchg"
);
accessors!(
    guest_read,
    guest_write,
    guest_exchange,
    "the guest's",
    "gcsrrd",
    "gcsrwr",
    "gcsrxchg"
);

/// `csr_read!(NAME)`: the value of a host register.
#[macro_export]
macro_rules! csr_read {
    ($($csr:tt)+) => {
        $crate::access::read::<{ $crate::csr::Csr::$($csr)+.number() }>()
    };
}

/// `csr_write!(NAME, value)`: writes a host register; unsafe as the register.
#[macro_export]
macro_rules! csr_write {
    ($csr:ident $(($n:expr))?, $value:expr) => {
        $crate::access::write::<{ $crate::csr::Csr::$csr $(($n))?.number() }>($value)
    };
}

/// `csr_exchange!(NAME, value, mask)`: writes some bits of a host register.
#[macro_export]
macro_rules! csr_exchange {
    ($csr:ident $(($n:expr))?, $value:expr, $mask:expr) => {
        $crate::access::exchange::<{ $crate::csr::Csr::$csr $(($n))?.number() }>($value, $mask)
    };
}

/// `gcsr_read!(NAME)`: the value of a guest register.
#[macro_export]
macro_rules! gcsr_read {
    ($($csr:tt)+) => {
        $crate::access::guest_read::<{ $crate::csr::Csr::$($csr)+.number() }>()
    };
}

/// `gcsr_write!(NAME, value)`: writes a guest register; unsafe as the register.
#[macro_export]
macro_rules! gcsr_write {
    ($csr:ident $(($n:expr))?, $value:expr) => {
        $crate::access::guest_write::<{ $crate::csr::Csr::$csr $(($n))?.number() }>($value)
    };
}

/// `gcsr_exchange!(NAME, value, mask)`: writes some bits of a guest register.
#[macro_export]
macro_rules! gcsr_exchange {
    ($csr:ident $(($n:expr))?, $value:expr, $mask:expr) => {
        $crate::access::guest_exchange::<{ $crate::csr::Csr::$csr $(($n))?.number() }>($value, $mask)
    };
}
