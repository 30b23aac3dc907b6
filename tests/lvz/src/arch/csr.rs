//! Accesses to control and status registers whose number is known when the
//! suite is compiled: `csrrd!(ECFG)`, `gcsrwr!(save(3), 1)`. For the others
//! there is [`super::code`].

use core::arch::asm;

macro_rules! accessors {
    ($read:ident, $write:ident, $exchange:ident, $whose:literal,
     $read_insn:literal, $write_insn:literal, $exchange_insn:literal) => {
        #[doc = concat!("The value of ", $whose, " register `NUMBER`.")]
        pub fn $read<const NUMBER: u16>() -> u64 {
            let value;
            // SAFETY: reads a register; no read of one changes memory.
            unsafe { asm!(concat!($read_insn, " {}, {}"), out(reg) value, const NUMBER, options(nostack)) };
            value
        }

        #[doc = concat!("Writes ", $whose, " register `NUMBER`; returns the old value.")]
        pub fn $write<const NUMBER: u16>(mut value: u64) -> u64 {
            // SAFETY: the caller restores what its own code depends on, as
            // the module `arch` asks for.
            unsafe { asm!(concat!($write_insn, " {}, {}"), inout(reg) value, const NUMBER, options(nostack)) };
            value
        }

        #[doc = concat!("Writes the bits `mask` of ", $whose, " register `NUMBER`; returns the old value.")]
        pub fn $exchange<const NUMBER: u16>(mut value: u64, mask: u64) -> u64 {
            // SAFETY: as for a write. The register class can't be r0 or r1,
            // which would make another instruction of it.
            unsafe {
                asm!(
                    concat!($exchange_insn, " {}, $t0, {}"),
                    inout(reg) value, const NUMBER, in("$t0") mask,
                    options(nostack)
                );
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

/// `csrrd!(NAME)`: the value of a host register.
#[macro_export]
macro_rules! csrrd {
    ($($csr:tt)+) => {
        $crate::arch::csr::read::<{ loongarch_isa::csr::Csr::$($csr)+.number() }>()
    };
}

/// `csrwr!(NAME, value)`: writes a host register, returns its old value.
#[macro_export]
macro_rules! csrwr {
    ($csr:ident $(($n:expr))?, $value:expr) => {
        $crate::arch::csr::write::<{ loongarch_isa::csr::Csr::$csr $(($n))?.number() }>($value)
    };
}

/// `csrxchg!(NAME, value, mask)`: writes some bits, returns the old value.
#[macro_export]
macro_rules! csrxchg {
    ($csr:ident $(($n:expr))?, $value:expr, $mask:expr) => {
        $crate::arch::csr::exchange::<{ loongarch_isa::csr::Csr::$csr $(($n))?.number() }>($value, $mask)
    };
}

/// `gcsrrd!(NAME)`: the value of a guest register.
#[macro_export]
macro_rules! gcsrrd {
    ($($csr:tt)+) => {
        $crate::arch::csr::guest_read::<{ loongarch_isa::csr::Csr::$($csr)+.number() }>()
    };
}

/// `gcsrwr!(NAME, value)`: writes a guest register, returns its old value.
#[macro_export]
macro_rules! gcsrwr {
    ($csr:ident $(($n:expr))?, $value:expr) => {
        $crate::arch::csr::guest_write::<{ loongarch_isa::csr::Csr::$csr $(($n))?.number() }>($value)
    };
}

/// `gcsrxchg!(NAME, value, mask)`: writes some bits of a guest register,
/// returns its old value.
#[macro_export]
macro_rules! gcsrxchg {
    ($csr:ident $(($n:expr))?, $value:expr, $mask:expr) => {
        $crate::arch::csr::guest_exchange::<{ loongarch_isa::csr::Csr::$csr $(($n))?.number() }>($value, $mask)
    };
}
