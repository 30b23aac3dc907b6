//! Exits that one vCPU makes alone.

use super::measure;
use crate::csrrd;
use crate::runtime::call::call;
use crate::runtime::{cpucfg, device, iocsr};
use core::arch::asm;
use guest_pv::abi::hypercall::SEND_IPI;
use guest_pv::abi::iocsr::{IPI_CLEAR, IPI_STATUS};
use guest_pv::abi::vendor;

/// PCH-PIC: the mask of its inputs.
pub const PCH_PIC_MASK: u64 = 0x1000_0020;

/// Measures them all.
pub fn run() {
    measure!("guest-part", no_call());
    measure!("call-null", call(vendor::NULL, 0));
    measure!("call-general", call(vendor::NULL_GENERAL, 0));
    measure!("call-unknown", call(0x3fff, 0));
    measure!("send-nobody", call(SEND_IPI, 0));
    measure!("cpucfg", cpucfg(2));
    measure!("csr", csrrd!(IMPCTL1));
    measure!("iocsr-status", iocsr::read_w(IPI_STATUS.into()));
    measure!("iocsr-clear", iocsr::write_w(IPI_CLEAR.into(), 0));
    let pch_pic: *mut u32 = device(PCH_PIC_MASK);
    // SAFETY: a register that is read without an effect.
    measure!("mmio-pch-pic", unsafe { pch_pic.read_volatile() });
}

/// What the guest itself does for a call, with nothing in place of `hvcl`.
#[inline(always)]
fn no_call() {
    // SAFETY: does nothing.
    unsafe {
        asm!("nop", inlateout("$a0") vendor::NULL => _, in("$a1") 0, in("$a2") 0, in("$a3") 0,
            options(nostack));
    }
}
