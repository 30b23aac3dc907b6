//! `hvcl`: codes, functions, results.
//!
//! The code stands in the instruction, the function in a0, arguments in a1
//! to a5, the result comes back in a0; every other register is kept. A call
//! from guest user mode, an unknown code or function, and a feature that the
//! VM doesn't have all give [`CallError::InvalidCode`] and have no effect.
//!
//! Source: Linux, asm/kvm_para.h (KVM_HCALL_*).

/// `hvcl` code of every call in this module.
pub const CODE_SERVICE: u16 = 0x100;
/// `hvcl` code of a software breakpoint: a no-op here.
pub const CODE_SOFTWARE_BREAKPOINT: u16 = 0x101;
/// `hvcl` code of a call to a user-space VMM: not offered.
pub const CODE_USER_SERVICE: u16 = 0x102;

/// Sends SWI0 to a set of vCPUs. a1, a2: low and high half of a 128-bit
/// set; a3: physical CPU id that bit 0 stands for. Ids without a vCPU are
/// skipped; id arithmetic is 64-bit and never wraps.
pub const SEND_IPI: u64 = 1;
/// Registers a record. a1: 1 << the feature's number; a2: guest physical
/// address, bit 0 set where the record is valid.
pub const NOTIFY: u64 = 2;

/// a1 of [`NOTIFY`] for the steal-time record.
pub const NOTIFY_STEAL_TIME: u64 = 1 << 2;

/// vCPUs that one [`SEND_IPI`] reaches.
pub const IPI_SET_BITS: u32 = 128;

/// Result of a call that was carried out.
pub const SUCCESS: u64 = 0;

/// Why a call was refused; the value is what a0 holds then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i64)]
pub enum CallError {
    /// No such code or function, or it isn't offered to this caller.
    InvalidCode = -1,
    /// An argument is out of its range.
    InvalidParameter = -2,
    /// Loongvisor's own calls: the machine has no memory left for it.
    NoMemory = -3,
    /// Loongvisor's own calls: what it is about is in use.
    InUse = -4,
}

impl CallError {
    /// The refusal as a register value.
    #[must_use]
    pub const fn register(self) -> u64 {
        (self as i64).cast_unsigned()
    }

    /// Reads a0 after a call: `Ok` holds the result.
    ///
    /// # Errors
    /// The refusal, where a0 is the value of one.
    pub const fn check(a0: u64) -> Result<u64, Self> {
        match a0.cast_signed() {
            -1 => Err(Self::InvalidCode),
            -2 => Err(Self::InvalidParameter),
            -3 => Err(Self::NoMemory),
            -4 => Err(Self::InUse),
            _ => Ok(a0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_negative_register_values() {
        assert_eq!(CallError::InvalidCode.register(), u64::MAX);
        assert_eq!(CallError::InvalidParameter.register(), u64::MAX - 1);
    }

    #[test]
    fn check_tells_results_from_refusals() {
        assert_eq!(CallError::check(0), Ok(SUCCESS));
        assert_eq!(CallError::check(7), Ok(7));
        assert_eq!(CallError::check(u64::MAX - 4), Ok(u64::MAX - 4));
        for error in [
            CallError::InvalidCode,
            CallError::InvalidParameter,
            CallError::NoMemory,
            CallError::InUse,
        ] {
            assert_eq!(CallError::check(error.register()), Err(error));
        }
    }
}
