//! Hypercalls.

use crate::check::{Check, Outcome, ensure, equal};
use crate::runtime::call::{call, hvcl};
use crate::runtime::memory;
use guest_pv::abi::hypercall::{CODE_SERVICE, CallError, NOTIFY, SEND_IPI};
use guest_pv::abi::vendor::{self, ExitReason};

/// The checks.
pub const CHECKS: [Check; 6] = [
    Check {
        name: "call.null",
        cpus: 1,
        run: null,
    },
    Check {
        name: "call.identify",
        cpus: 1,
        run: identify,
    },
    Check {
        name: "call.refused",
        cpus: 1,
        run: refused,
    },
    Check {
        name: "call.codes",
        cpus: 1,
        run: codes,
    },
    Check {
        name: "call.registers",
        cpus: 1,
        run: registers,
    },
    Check {
        name: "call.counters",
        cpus: 1,
        run: counters,
    },
];

const REFUSED: u64 = CallError::InvalidCode.register();

fn null() -> Outcome {
    equal("null call", call(vendor::NULL, 0), 0)?;
    equal("null call, general path", call(vendor::NULL_GENERAL, 0), 0)
}

fn identify() -> Outcome {
    equal("identify", call(vendor::IDENTIFY, 0), vendor::SIGNATURE)
}

fn refused() -> Outcome {
    for function in [0, 3, vendor::FIRST + vendor::COUNT, u64::MAX] {
        equal("function", call(function, 1), REFUSED)?;
    }
    equal(
        "breakpoint",
        hvcl::<0x101>([vendor::STOP, 0, 0, 0]),
        REFUSED,
    )?;
    equal(
        "user service",
        hvcl::<0x102>([vendor::NULL, 0, 0, 0]),
        REFUSED,
    )?;
    // All 64 bits of the function's number count.
    for function in [
        SEND_IPI,
        NOTIFY,
        vendor::NULL,
        vendor::NULL_GENERAL,
        vendor::STOP,
    ] {
        for stray in [1 << 15, 1 << 31, 1 << 32, 1 << 63] {
            equal(
                "stray bits",
                hvcl::<0x100>([function | stray, 1, 0, 0]),
                REFUSED,
            )?;
        }
    }
    ensure("no SWI0", crate::csrrd!(ESTAT) & 1 == 0)?;
    equal("code 0", hvcl::<0>([SEND_IPI, 1, 0, 0]), REFUSED)?;
    equal("last code", hvcl::<0x7fff>([SEND_IPI, 1, 0, 0]), REFUSED)
}

/// `hvcl 0` and `jr $ra`.
const HVCL: u32 = 0x002b_8000;
const RETURN: u32 = 0x4c00_0020;
/// RAM of the guest that nothing else uses.
const CODE: u64 = 0x200_0000;

/// Of all codes only that of the service does anything.
fn codes() -> Outcome {
    let at = memory::<u32>(CODE);
    for code in (0..1 << 15).filter(|code| *code != u32::from(CODE_SERVICE)) {
        let result;
        // SAFETY: the two instructions are a function, in memory of their own; a
        // call that is refused changes a0 alone.
        unsafe {
            at.write_volatile(HVCL | code);
            at.add(1).write_volatile(RETURN);
            core::arch::asm!("ibar 0", "jirl $ra, {at}, 0", at = in(reg) at,
                inlateout("$a0") vendor::STOP => result, in("$a1") 1, out("$ra") _,
                options(nostack));
        }
        equal("another code", result, REFUSED)?;
    }
    Ok(())
}

/// Every register but a0 comes back as it was, on every path: that of the
/// null call, the general one, and both of a paravirtual IPI (a1 = 105 and
/// a2 = 106 are a set; 1 and 0 are one id; a3 = 107 is the first id).
fn registers() -> Outcome {
    for function in [vendor::NULL, vendor::NULL_GENERAL, SEND_IPI] {
        let sum: u64;
        // SAFETY: a call changes a0 alone: the check is that it does.
        unsafe {
            core::arch::asm!(
                ".irp n,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,23,24,25,26,27,28,29,30",
                "addi.d $r\\n, $zero, 100 + \\n",
                ".endr",
                "hvcl {code}",
                ".irp n,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,23,24,25,26,27,28,29,30",
                "addi.d $r\\n, $r\\n, -100 - \\n",
                "or $a0, $a0, $r\\n",
                ".endr",
                code = const CODE_SERVICE,
                inlateout("$a0") function => sum,
                out("$a1") _, out("$a2") _, out("$a3") _, out("$a4") _, out("$a5") _,
                out("$a6") _, out("$a7") _, out("$t0") _, out("$t1") _, out("$t2") _,
                out("$t3") _, out("$t4") _, out("$t5") _, out("$t6") _, out("$t7") _,
                out("$t8") _, out("$s0") _, out("$s1") _, out("$s2") _, out("$s3") _,
                out("$s4") _, out("$s5") _, out("$s6") _, out("$s7") _,
                options(nostack),
            );
        }
        equal("registers changed", sum, 0)?;
    }
    Ok(())
}

fn counters() -> Outcome {
    let hypercalls = || call(vendor::EXIT_COUNT, ExitReason::Hypercall as u64);
    let before = hypercalls();
    call(vendor::NULL, 0);
    call(vendor::NULL_GENERAL, 0);
    equal("hypercalls since", hypercalls() - before, 3)?;
    let nulls = call(vendor::CALL_COUNT, vendor::NULL);
    call(vendor::NULL, 0);
    equal(
        "null calls since",
        call(vendor::CALL_COUNT, vendor::NULL) - nulls,
        1,
    )?;
    let bad = CallError::InvalidParameter.register();
    equal("no such reason", call(vendor::EXIT_COUNT, 11), bad)?;
    equal("no such call", call(vendor::CALL_COUNT, 3), bad)?;
    ensure("cpucfg is counted", {
        let count = || call(vendor::EXIT_COUNT, ExitReason::Cpucfg as u64);
        let before = count();
        crate::runtime::cpucfg(0);
        count() == before + 1
    })
}
