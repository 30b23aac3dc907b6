//! Accesses to control and status registers whose number is known when the
//! suite is compiled: `csrrd!(ECFG)`, `gcsrwr!(save(3), 1)`. For the others
//! there is [`super::code`].

/// `csrwr!(NAME, value)`: writes a host register, returns its old value.
#[macro_export]
macro_rules! csrwr {
    ($csr:ident $(($n:expr))?, $value:expr) => {{
        let value: u64 = $value;
        // SAFETY: the caller restores what its own code depends on.
        unsafe { loongarch_isa::csr_write!($csr $(($n))?, value) }
    }};
}

/// `csrxchg!(NAME, value, mask)`: writes some bits, returns the old value.
#[macro_export]
macro_rules! csrxchg {
    ($csr:ident $(($n:expr))?, $value:expr, $mask:expr) => {{
        let (value, mask): (u64, u64) = ($value, $mask);
        // SAFETY: the caller restores what its own code depends on.
        unsafe { loongarch_isa::csr_exchange!($csr $(($n))?, value, mask) }
    }};
}

/// `gcsrwr!(NAME, value)`: writes a guest register, returns its old value.
#[macro_export]
macro_rules! gcsrwr {
    ($csr:ident $(($n:expr))?, $value:expr) => {{
        let value: u64 = $value;
        // SAFETY: the caller restores what its own code depends on.
        unsafe { loongarch_isa::gcsr_write!($csr $(($n))?, value) }
    }};
}

/// `gcsrxchg!(NAME, value, mask)`: writes some bits of a guest register,
/// returns its old value.
#[macro_export]
macro_rules! gcsrxchg {
    ($csr:ident $(($n:expr))?, $value:expr, $mask:expr) => {{
        let (value, mask): (u64, u64) = ($value, $mask);
        // SAFETY: the caller restores what its own code depends on.
        unsafe { loongarch_isa::gcsr_exchange!($csr $(($n))?, value, mask) }
    }};
}
