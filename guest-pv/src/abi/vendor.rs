//! Loongvisor's own hypercalls: statistics and control of the caller's VM.
//!
//! They lie far above KVM's functions: a guest that never uses them sees
//! KVM's ABI and nothing else. They use [`super::hypercall::CODE_SERVICE`]
//! and its registers.

/// First function of the vendor's range.
pub const FIRST: u64 = 0x4000;

/// Does nothing and returns 0: the cheapest exit there is.
pub const NULL: u64 = FIRST;
/// Returns [`SIGNATURE`]: tells Loongvisor from another hypervisor.
pub const IDENTIFY: u64 = FIRST + 1;
/// Returns how often the calling vCPU left the guest for reason a1
/// ([`ExitReason`]); `InvalidParameter` where there is no such reason.
pub const EXIT_COUNT: u64 = FIRST + 2;
/// Returns how often the calling vCPU called function a1 (1, 2, or one of
/// this range, 0 for all others together); `InvalidParameter` for others.
pub const CALL_COUNT: u64 = FIRST + 3;
/// Stops the VM for good, with a1 as its exit code. Doesn't return.
pub const STOP: u64 = FIRST + 4;
/// Does nothing, returns 0, and always takes the general exit path: what
/// [`NULL`] costs without its short cut.
pub const NULL_GENERAL: u64 = FIRST + 5;
/// Returns how long the calling vCPU was ready while another one had its CPU,
/// in ns, since it was made; with or without a steal-time record.
pub const STOLEN: u64 = FIRST + 6;

// The calls below are offered to VMs whose configuration says `control`. They
// act on the caller's own VM.

/// Gives RAM back: the a2 bytes at guest physical address a1, whole pages of
/// 16 KiB and at most 32 MiB. From then on an access there is an address
/// error. The machine can use what makes up a whole 32 MiB of the guest's
/// physical space. `InUse` where a steal-time record lies in it.
///
/// When this call and the two below return, no vCPU uses a mapping from
/// before. Meanwhile the calling vCPU takes interrupts.
pub const MEMORY_RELEASE: u64 = FIRST + 7;
/// Takes RAM again: of the a2 bytes at a1, as in [`MEMORY_RELEASE`], what was
/// given back is there again, and zero. `NoMemory` where the machine has none.
pub const MEMORY_CLAIM: u64 = FIRST + 8;
/// Lets the a2 bytes at a1, as in [`MEMORY_RELEASE`], be used only as a3 says
/// ([`PROTECT_WRITE`], [`PROTECT_EXECUTE`]): other accesses are address
/// errors. What was given back stays so.
pub const MEMORY_PROTECT: u64 = FIRST + 9;
/// Moves the vCPU with physical id a1 to the CPU number a2 of those that the
/// VM may run on; it may still be on its way when the call returns.
/// `InvalidParameter` where there is no such vCPU or CPU.
pub const MOVE_VCPU: u64 = FIRST + 10;

/// [`MEMORY_PROTECT`]: stores are allowed.
pub const PROTECT_WRITE: u64 = 1 << 0;
/// [`MEMORY_PROTECT`]: fetches are allowed.
pub const PROTECT_EXECUTE: u64 = 1 << 1;

/// Functions of the vendor's range.
pub const COUNT: u64 = 11;

/// Result of [`IDENTIFY`]: "LOONGVSR" in memory order.
pub const SIGNATURE: u64 = u64::from_le_bytes(*b"LOONGVSR");

/// Why a vCPU left the guest: index of a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ExitReason {
    /// An interrupt of the physical CPU: its timer, a kick, a device.
    HostInterrupt,
    /// `hvcl`.
    Hypercall,
    /// `cpucfg`.
    Cpucfg,
    /// A CSR that the guest's bank doesn't have.
    Csr,
    /// `iocsrrd` or `iocsrwr`.
    Iocsr,
    /// `idle`.
    Idle,
    /// `cacop`.
    Cacop,
    /// An access to a device's address.
    Mmio,
    /// A second-stage fault on the VM's own memory.
    Memory,
    /// First use of a floating-point or vector unit since the vCPU was loaded.
    UnitDisabled,
    /// Anything else; the guest got an exception for it.
    Other,
}

impl ExitReason {
    /// Every reason, in the order of its index.
    pub const ALL: [Self; 11] = [
        Self::HostInterrupt,
        Self::Hypercall,
        Self::Cpucfg,
        Self::Csr,
        Self::Iocsr,
        Self::Idle,
        Self::Cacop,
        Self::Mmio,
        Self::Memory,
        Self::UnitDisabled,
        Self::Other,
    ];

    /// Name as the console shows it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::HostInterrupt => "host-interrupt",
            Self::Hypercall => "hypercall",
            Self::Cpucfg => "cpucfg",
            Self::Csr => "csr",
            Self::Iocsr => "iocsr",
            Self::Idle => "idle",
            Self::Cacop => "cacop",
            Self::Mmio => "mmio",
            Self::Memory => "memory",
            Self::UnitDisabled => "unit-disabled",
            Self::Other => "other",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_listed_at_their_index() {
        for (index, reason) in ExitReason::ALL.iter().enumerate() {
            assert_eq!(*reason as usize, index);
        }
    }

    #[test]
    fn vendor_functions_are_apart_from_kvms() {
        assert_eq!(super::super::hypercall::NOTIFY, 2);
        assert_eq!((FIRST, MOVE_VCPU), (0x4000, 0x4000 + COUNT - 1));
    }

    #[test]
    fn signature_reads_as_text_in_memory() {
        assert_eq!(&SIGNATURE.to_le_bytes(), b"LOONGVSR");
    }
}
