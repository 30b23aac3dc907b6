//! Exceptions of the suite itself: none is expected.
//!
//! What a check makes trap on purpose, it runs through the world switch, in
//! host or in guest mode, and gets the exception back as a value.

use crate::{csrrd, csrwr};
use core::arch::naked_asm;

/// Where the host's exceptions go outside of the world switch.
#[unsafe(naked)]
extern "C" fn entry() -> ! {
    naked_asm!(
        ".p2align 12",
        "bstrins.d $sp, $zero, 3, 0",
        "b {report}",
        report = sym report,
    )
}

extern "C" fn report() -> ! {
    panic!(
        "exception in the host: estat {:#x} era {:#x} badv {:#x} badi {:#x} tlbrera {:#x}",
        csrrd!(ESTAT),
        csrrd!(ERA),
        csrrd!(BADV),
        csrrd!(BADI),
        csrrd!(TLBRERA),
    );
}

/// Directs this CPU's exceptions to the report: one entry for all.
pub fn set_up() {
    csrwr!(ECFG, 0);
    csrwr!(EENTRY, entry as *const () as u64);
}
