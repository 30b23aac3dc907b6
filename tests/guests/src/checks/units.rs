//! Floating-point and vector registers: they are each vCPU's own, whatever
//! runs on the CPU in between.

use crate::check::{Check, Outcome, ensure, equal};
use crate::runtime::{call, cpucfg, smp, ticks, ticks_per_second};
use crate::{csrrd, csrwr};
use core::arch::asm;
use core::sync::atomic::{AtomicU64, Ordering};
use guest_pv::abi::vendor::{self, ExitReason};

/// The checks.
pub const CHECKS: [Check; 3] = [
    Check {
        name: "units.lazy",
        cpus: 1,
        run: lazy,
    },
    Check {
        name: "units.kept",
        cpus: 1,
        run: kept,
    },
    Check {
        name: "units.own",
        cpus: 2,
        run: own,
    },
];

/// Floating point, LSX and LASX on, as far as the CPU has them.
fn turn_on() -> u64 {
    let word = cpucfg(2);
    let on = (word & 1) | (word >> 6 & 1) << 1 | (word >> 7 & 1) << 2;
    csrwr!(EUEN, on);
    on
}

fn lazy() -> Outcome {
    let exits = || call::call(vendor::EXIT_COUNT, ExitReason::UnitDisabled as u64);
    ensure("floating point", turn_on() & 1 == 1)?;
    // SAFETY: a register of this vCPU.
    let touch = || unsafe { asm!("movgr2fr.d $f0, $zero", options(nostack)) };
    touch();
    // It is off again once another vCPU has had the CPU.
    let stays_on = |_| {
        let before = exits();
        touch();
        exits() == before
    };
    ensure("no exit once it is on", (0..100).any(stays_on))?;
    csrwr!(EUEN, 0);
    equal("the guest's own switch", csrrd!(EUEN), 0)
}

/// Fills register 7 of the widest unit, waits, and reads it back.
pub fn fill_and_compare(value: u64, wait: impl Fn()) -> u64 {
    let on = turn_on();
    let mut read = [0u64; 4];
    // SAFETY: a register of this vCPU, and a buffer of its own; `wait` is
    // compiled without floating point.
    unsafe {
        if on & 4 != 0 {
            let filled = [value, value + 1, value + 2, value + 3];
            asm!("xvld $xr7, {}, 0", in(reg) filled.as_ptr(), options(nostack));
            wait();
            asm!("xvst $xr7, {}, 0", in(reg) read.as_mut_ptr(), options(nostack));
        } else {
            asm!("movgr2fr.d $f7, {}", in(reg) value, options(nostack));
            wait();
            asm!("movfr2gr.d {}, $f7", out(reg) read[0], options(nostack));
            read = [read[0], value + 1, value + 2, value + 3];
        }
    }
    let wrong = (0..4).filter(|i| read[*i as usize] != value + i).count();
    wrong as u64
}

fn kept() -> Outcome {
    let calls = || {
        for _ in 0..100 {
            call::call(vendor::NULL_GENERAL, 0);
        }
    };
    equal(
        "wrong words",
        fill_and_compare(0x1111_2222_3333_4444, calls),
        0,
    )?;
    set_flags(0x300, 1 << 5);
    calls();
    let (flags, conditions) = flags_now();
    set_flags(0, 0);
    equal("FCSR0", flags, 0x300)?;
    equal("FCC0 to 7", conditions, 1 << 5)
}

/// FCSR0, and FCC0 to 7 as bits.
fn set_flags(flags: u64, conditions: u64) {
    turn_on();
    // SAFETY: registers of this vCPU.
    unsafe {
        asm!("movgr2fcsr $fcsr0, {}", in(reg) flags, options(nostack));
        asm!(".irp n,0,1,2,3,4,5,6,7", "bstrpick.d {t}, {c}, \\n, \\n",
            "movgr2cf $fcc\\n, {t}", ".endr", t = out(reg) _, c = in(reg) conditions,
            options(nostack));
    }
}

/// What [`set_flags`] has set.
fn flags_now() -> (u64, u64) {
    let (flags, conditions);
    // SAFETY: registers of this vCPU.
    unsafe {
        asm!("movfcsr2gr {}, $fcsr0", out(reg) flags, options(nostack));
        asm!("move {c}, $zero", ".irp n,0,1,2,3,4,5,6,7", "movcf2gr {t}, $fcc\\n",
            "bstrins.d {c}, {t}, \\n, \\n", ".endr", t = out(reg) _, c = out(reg) conditions,
            options(nostack));
    }
    (flags, conditions)
}

/// All vCPUs at once, long enough for time slices to end in between.
fn own() -> Outcome {
    static WRONG: AtomicU64 = AtomicU64::new(0);
    WRONG.store(0, Ordering::Relaxed);
    smp::on_all(|index| {
        let wait = || {
            let start = ticks();
            while ticks() - start < ticks_per_second() / 50 {
                core::hint::spin_loop();
            }
        };
        let flags = (index as u64 & 3) << 8;
        set_flags(flags, index as u64);
        let wrong = fill_and_compare((index as u64 + 1) << 32, wait);
        let wrong = wrong + u64::from(flags_now() != (flags, index as u64 & 0xff));
        set_flags(0, 0);
        WRONG.fetch_add(wrong, Ordering::Relaxed);
    });
    equal("wrong words", WRONG.load(Ordering::Relaxed), 0)
}
