//! The guest's own control and status registers: `csrrd!(ECFG)`,
//! `csrwr!(save(3), 1)`.

/// `csrwr!(NAME, value)`: writes a register, returns its old value.
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
