//! Calls to the hypervisor, with types.
//!
//! Each of them is one exit. They may only be made where
//! [`crate::detect::features`] has found the feature, or, for Loongvisor's
//! own, any feature at all: without a hypervisor `hvcl` is no instruction.
//!
//! Source: [`crate::abi::hypercall`] and [`crate::abi::vendor`].

use crate::abi::hypercall::{CallError, NOTIFY, NOTIFY_STEAL_TIME, SEND_IPI};
use crate::abi::steal::{ADDRESS_RESERVED, ADDRESS_VALID};
use crate::abi::vendor::{self, ExitReason};
use crate::machine::Machine;

/// Raises SWI0 on each CPU whose physical id is `base` + a bit of `set`. Ids
/// that no CPU has are skipped.
///
/// An [`crate::ipi::Ipi`] calls this itself; the interrupt alone says nothing
/// of what is wanted.
///
/// # Errors
/// [`CallError::InvalidCode`]: the hypervisor doesn't offer it.
#[inline]
pub fn send_ipi(machine: &impl Machine, set: u128, base: u64) -> Result<(), CallError> {
    let (low, high) = (set as u64, (set >> 64) as u64);
    // SAFETY: raises interrupts, whose handlers are sound at any time.
    let a0 = unsafe { machine.hypercall(SEND_IPI, [low, high, base]) };
    CallError::check(a0).map(drop)
}

/// Gives the hypervisor the place of this CPU's steal-time record: `address`
/// is physical, a multiple of 64.
///
/// # Errors
/// [`CallError::InvalidCode`]: the hypervisor doesn't offer it.
/// [`CallError::InvalidParameter`]: the address isn't a multiple of 64, or
/// not one of this machine's RAM.
///
/// # Safety
/// The 64 bytes at `address` belong to the hypervisor, which writes them at
/// any time, until [`forget_steal_time`].
pub unsafe fn register_steal_time(machine: &impl Machine, address: u64) -> Result<(), CallError> {
    if address & (ADDRESS_VALID | ADDRESS_RESERVED) != 0 {
        return Err(CallError::InvalidParameter);
    }
    let arguments = [NOTIFY_STEAL_TIME, address | ADDRESS_VALID, 0];
    // SAFETY: the caller has given the record away.
    CallError::check(unsafe { machine.hypercall(NOTIFY, arguments) }).map(drop)
}

/// Takes this CPU's steal-time record back: the hypervisor writes it no more.
///
/// # Errors
/// [`CallError::InvalidCode`]: the hypervisor doesn't offer it.
pub fn forget_steal_time(machine: &impl Machine) -> Result<(), CallError> {
    // SAFETY: an address that isn't valid is never written to.
    CallError::check(unsafe { machine.hypercall(NOTIFY, [NOTIFY_STEAL_TIME, 0, 0]) }).map(drop)
}

/// Whether the hypervisor is Loongvisor: then the calls below are offered.
#[must_use]
pub fn is_loongvisor(machine: &impl Machine) -> bool {
    // SAFETY: reads a number.
    unsafe { machine.hypercall(vendor::IDENTIFY, [0; 3]) == vendor::SIGNATURE }
}

/// Loongvisor: does nothing. What an exit costs at least.
///
/// # Errors
/// [`CallError::InvalidCode`]: the hypervisor isn't Loongvisor.
pub fn null(machine: &impl Machine) -> Result<(), CallError> {
    // SAFETY: does nothing.
    CallError::check(unsafe { machine.hypercall(vendor::NULL, [0; 3]) }).map(drop)
}

/// Loongvisor: how often this CPU has left the guest for `reason`.
///
/// # Errors
/// [`CallError::InvalidCode`]: the hypervisor isn't Loongvisor.
pub fn exit_count(machine: &impl Machine, reason: ExitReason) -> Result<u64, CallError> {
    // SAFETY: reads a number.
    CallError::check(unsafe { machine.hypercall(vendor::EXIT_COUNT, [reason as u64, 0, 0]) })
}

/// Loongvisor: how often this CPU has called `function`; 0 stands for all
/// calls that were refused.
///
/// # Errors
/// [`CallError::InvalidCode`]: the hypervisor isn't Loongvisor.
/// [`CallError::InvalidParameter`]: there is no such function.
pub fn call_count(machine: &impl Machine, function: u64) -> Result<u64, CallError> {
    // SAFETY: reads a number.
    CallError::check(unsafe { machine.hypercall(vendor::CALL_COUNT, [function, 0, 0]) })
}

/// Loongvisor: how long this CPU was ready while others had its physical CPU,
/// in ns, since the machine began; with or without a steal-time record.
///
/// # Errors
/// [`CallError::InvalidCode`]: the hypervisor isn't Loongvisor.
pub fn stolen(machine: &impl Machine) -> Result<u64, CallError> {
    // SAFETY: reads a number.
    CallError::check(unsafe { machine.hypercall(vendor::STOLEN, [0; 3]) })
}

/// Loongvisor, where the VM may control itself: gives the `bytes` bytes of RAM
/// at physical address `address` back, whole pages of 16 KiB, at most 32 MiB.
///
/// # Errors
/// [`CallError::InvalidCode`]: it isn't offered.
/// [`CallError::InvalidParameter`]: not such a range, or not all RAM.
/// [`CallError::InUse`]: a steal-time record lies in it.
/// [`CallError::NoMemory`]: the hypervisor has none to note it.
///
/// # Safety
/// Nothing uses that memory until [`claim_memory`].
pub unsafe fn release_memory(
    machine: &impl Machine,
    address: u64,
    bytes: u64,
) -> Result<(), CallError> {
    // SAFETY: the caller has given the memory up.
    CallError::check(unsafe { machine.hypercall(vendor::MEMORY_RELEASE, [address, bytes, 0]) })
        .map(drop)
}

/// Loongvisor, where the VM may control itself: what was given back of the
/// `bytes` bytes at `address` is there again, and zero.
///
/// # Errors
/// As [`release_memory`]; [`CallError::NoMemory`]: the machine has none left.
pub fn claim_memory(machine: &impl Machine, address: u64, bytes: u64) -> Result<(), CallError> {
    // SAFETY: only what isn't there is changed.
    CallError::check(unsafe { machine.hypercall(vendor::MEMORY_CLAIM, [address, bytes, 0]) })
        .map(drop)
}

/// Loongvisor, where the VM may control itself: from now on the `bytes` bytes
/// at `address` may be used only as `access` says, [`vendor::PROTECT_WRITE`]
/// and [`vendor::PROTECT_EXECUTE`].
///
/// # Errors
/// As [`release_memory`].
///
/// # Safety
/// Nothing uses that memory in any other way.
pub unsafe fn protect_memory(
    machine: &impl Machine,
    address: u64,
    bytes: u64,
    access: u64,
) -> Result<(), CallError> {
    let arguments = [address, bytes, access];
    // SAFETY: the caller's duty, as documented.
    CallError::check(unsafe { machine.hypercall(vendor::MEMORY_PROTECT, arguments) }).map(drop)
}

/// Loongvisor, where the VM may control itself: the CPU with physical id `id`
/// goes on on number `place` of the machine's CPUs that the VM may run on.
///
/// # Errors
/// [`CallError::InvalidCode`]: it isn't offered.
/// [`CallError::InvalidParameter`]: there is no such CPU, of either kind.
pub fn move_vcpu(machine: &impl Machine, id: u32, place: u64) -> Result<(), CallError> {
    let arguments = [id.into(), place, 0];
    // SAFETY: nothing but time tells where a CPU runs.
    CallError::check(unsafe { machine.hypercall(vendor::MOVE_VCPU, arguments) }).map(drop)
}

/// Loongvisor: stops the whole VM, with `code` as its exit code. Returns only
/// where the hypervisor isn't Loongvisor.
pub fn stop(machine: &impl Machine, code: u64) {
    // SAFETY: nothing of this machine runs after it.
    unsafe { machine.hypercall(vendor::STOP, [code, 0, 0]) };
}
