//! What guest user mode can't do.

use crate::check::{Check, Outcome, ensure, equal};
use crate::runtime::trap::{Caught, catch};
use core::arch::asm;
use guest_pv::abi::hypercall::{CODE_SERVICE, CallError, SEND_IPI};
use guest_pv::abi::vendor;
use loongarch_isa::csr::Csr;

/// The checks.
pub const CHECKS: [Check; 2] = [
    Check {
        name: "user.hypercall",
        cpus: 1,
        run: hypercall,
    },
    Check {
        name: "user.privileged",
        cpus: 1,
        run: privileged,
    },
];

/// The direct map window for every level: code and stack in user mode.
const WINDOW_FOR_ALL: u64 = 0x9000_0000_0000_001f;
const WINDOW: u64 = 0x9000_0000_0000_0011;
/// SYS and IPE.
const SYSCALL: u64 = 11;
const PRIVILEGE: u64 = 14;

/// Runs `insn` at level 3 with a0 to a3 as given, then comes back by a
/// system call; a0 and what came.
macro_rules! in_user_mode {
    ($insn:literal, $arguments:expr) => {{
        let [a0, a1, a2, a3]: [u64; 4] = $arguments;
        let mut result = a0;
        crate::csrwr!(dmw(1), WINDOW_FOR_ALL);
        // SAFETY: the code is between here and the system call, which the
        // handler brings back to level 0.
        let caught = catch(|| unsafe {
            asm!(
                "csrwr {prmd}, {csr_prmd}",
                "la.pcrel {at}, 2f",
                "csrwr {at}, {csr_era}",
                "ertn",
                "2:",
                $insn,
                "syscall 0",
                prmd = inout(reg) 3u64 => _,
                at = out(reg) _,
                code = const CODE_SERVICE,
                csr_prmd = const Csr::PRMD.number(),
                csr_era = const Csr::ERA.number(),
                inlateout("$a0") a0 => result,
                in("$a1") a1, in("$a2") a2, in("$a3") a3,
                options(nostack),
            );
        });
        crate::csrwr!(dmw(1), WINDOW);
        (result, caught)
    }};
}

fn is(caught: Option<Caught>, ecode: u64) -> Outcome {
    ensure("an exception", caught.is_some())?;
    equal("code", caught.map_or(0, |caught| caught.ecode), ecode)?;
    equal(
        "level before",
        caught.map_or(0, |caught| caught.prmd & 3),
        3,
    )
}

fn hypercall() -> Outcome {
    let refused = CallError::InvalidCode.register();
    for function in [vendor::NULL, vendor::STOP, SEND_IPI, vendor::NULL_GENERAL] {
        let (result, caught) = in_user_mode!("hvcl {code}", [function, 1, 0, 0]);
        is(caught, SYSCALL)?;
        equal("result", result, refused)?;
    }
    equal("no SWI0", crate::csrrd!(ESTAT) & 1, 0)
}

/// A privileged instruction in user mode is the guest kernel's business.
fn privileged() -> Outcome {
    let (_, caught) = in_user_mode!("andi $zero, $zero, {code}\nidle 0\n", [0; 4]);
    is(caught, PRIVILEGE)
}
