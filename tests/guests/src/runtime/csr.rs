//! The guest's own control and status registers.

use core::arch::asm;

/// The value of register `NUMBER`.
pub fn read<const NUMBER: u16>() -> u64 {
    let value;
    // SAFETY: reading a register changes no memory.
    unsafe { asm!("csrrd {}, {}", out(reg) value, const NUMBER, options(nostack)) };
    value
}

/// Writes register `NUMBER`; returns the old value.
pub fn write<const NUMBER: u16>(mut value: u64) -> u64 {
    // SAFETY: the caller restores what its own code depends on.
    unsafe { asm!("csrwr {}, {}", inout(reg) value, const NUMBER, options(nostack)) };
    value
}

/// Writes the bits `mask` of register `NUMBER`; returns the old value.
pub fn exchange<const NUMBER: u16>(mut value: u64, mask: u64) -> u64 {
    // SAFETY: as for a write; a fixed mask register is never r0 or r1.
    unsafe {
        asm!("csrxchg {}, $t0, {}", inout(reg) value, const NUMBER, in("$t0") mask,
            options(nostack));
    }
    value
}

/// `csrrd!(NAME)`: the value of a register.
#[macro_export]
macro_rules! csrrd {
    ($($csr:tt)+) => {
        $crate::runtime::csr::read::<{ loongarch_isa::csr::Csr::$($csr)+.number() }>()
    };
}

/// `csrwr!(NAME, value)`: writes a register, returns its old value.
#[macro_export]
macro_rules! csrwr {
    ($csr:ident $(($n:expr))?, $value:expr) => {
        $crate::runtime::csr::write::<{ loongarch_isa::csr::Csr::$csr $(($n))?.number() }>($value)
    };
}

/// `csrxchg!(NAME, value, mask)`: writes some bits, returns the old value.
#[macro_export]
macro_rules! csrxchg {
    ($csr:ident $(($n:expr))?, $value:expr, $mask:expr) => {
        $crate::runtime::csr::exchange::<{ loongarch_isa::csr::Csr::$csr $(($n))?.number() }>($value, $mask)
    };
}
