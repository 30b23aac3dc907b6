//! Hypercalls.

use core::arch::asm;
use guest_pv::abi::hypercall::CODE_SERVICE;
use guest_pv::abi::vendor;

/// `hvcl CODE` with a0 to a3 as given; returns a0.
pub fn hvcl<const CODE: u16>([a0, a1, a2, a3]: [u64; 4]) -> u64 {
    let result;
    // SAFETY: a call changes a0 alone.
    unsafe {
        asm!("hvcl {}", const CODE, inlateout("$a0") a0 => result,
            in("$a1") a1, in("$a2") a2, in("$a3") a3, options(nostack));
    }
    result
}

/// Calls `function` with one argument.
pub fn call(function: u64, argument: u64) -> u64 {
    hvcl::<CODE_SERVICE>([function, argument, 0, 0])
}

/// The power controller's register, and what switches off.
const POWER: (u64, u8) = (0x100e_001c, 0x34);

/// Stops the VM; under another hypervisor, which doesn't know the call, by
/// switching it off.
pub fn stop(code: u64) -> ! {
    call(vendor::STOP, code);
    let (register, off) = POWER;
    // SAFETY: a device's register, and the end.
    unsafe { super::device::<u8>(register).write_volatile(off) };
    loop {
        core::hint::spin_loop();
    }
}
