//! Accesses that have no business where they go, instructions of units that
//! are off, and those on the TLB: the guest's own exceptions, or nothing.

use crate::check::{Check, Outcome, ensure, equal};
use crate::runtime::devices::{PCH_PIC, UART, read8, read32, write8};
use crate::runtime::trap::catch;
use crate::runtime::{cpucfg, device, memory};
use crate::{csrrd, csrwr};
use core::arch::asm;

/// The checks.
pub const CHECKS: [Check; 6] = [
    Check {
        name: "mmio.edges",
        cpus: 1,
        run: edges,
    },
    Check {
        name: "mmio.units",
        cpus: 1,
        run: units,
    },
    Check {
        name: "mmio.atomics",
        cpus: 1,
        run: atomics,
    },
    Check {
        name: "mmio.cacop",
        cpus: 1,
        run: cache_operations,
    },
    Check {
        name: "units.off",
        cpus: 1,
        run: off,
    },
    Check {
        name: "tlb.operations",
        cpus: 1,
        run: tlb_operations,
    },
];

/// The UART's scratch register, and what is in it.
const SCRATCH: u64 = UART + 7;
const KEPT: u8 = 0x5a;
/// Exception codes.
const ADE: u64 = 8;
const INE: u64 = 13;
const FPD: u64 = 15;
const SXD: u64 = 16;
const ASXD: u64 = 17;
/// Where the VM's RAM ends: it has 64 MiB.
const RAM_END: u64 = 64 << 20;

/// `act` ends in an exception with this code.
fn ends_in(what: &'static str, ecode: u64, act: impl FnOnce()) -> Outcome {
    equal(
        what,
        catch(act).map_or(u64::MAX, |caught| caught.ecode),
        ecode,
    )
}

/// Accesses across the end of a device, of RAM, and of a page between both
/// and nothing.
fn edges() -> Outcome {
    write8(SCRATCH, KEPT);
    // PCH-PIC covers less than the page that it begins; the UART none whole.
    for end in [PCH_PIC + 0x1000, UART + 0x100] {
        for before in 1..8 {
            // SAFETY: ends in an exception, without an effect.
            ends_in("a load across the end", ADE, || unsafe {
                asm!("ld.d {}, {}, 0", out(reg) _, in(reg) device::<u8>(end - before),
                    options(nostack));
            })?;
            // SAFETY: as above.
            ends_in("a store across the end", ADE, || unsafe {
                asm!("st.d {}, {}, 0", in(reg) u64::MAX, in(reg) device::<u8>(end - before),
                    options(nostack));
            })?;
        }
        // Up to the end is inside.
        let _ = read32(end - 4);
    }
    for before in 1..8 {
        let at = memory::<u8>(RAM_END - before);
        // SAFETY: ends in an exception.
        ends_in("a load across the end of RAM", ADE, || unsafe {
            asm!("ld.d {}, {}, 0", out(reg) _, in(reg) at, options(nostack));
        })?;
        // SAFETY: as above; there may be a device behind.
        ends_in("a store across the end of RAM", ADE, || unsafe {
            asm!("st.d {}, {}, 0", in(reg) u64::MAX, in(reg) at, options(nostack));
        })?;
    }
    for page in [0x4000, 0x8000_0000 - 4, 0xffff_ffff_c000 - 4] {
        let at = device::<u8>(0x3000_0000 + page);
        // SAFETY: ends in an exception: nobody is there.
        ends_in("nobody's pages", ADE, || unsafe {
            asm!("ld.d {}, {}, 0", out(reg) _, in(reg) at, options(nostack));
        })?;
    }
    equal(
        "the device is as before",
        read8(SCRATCH).into(),
        KEPT.into(),
    )
}

/// Loads and stores of the units, which no device takes, on whether the unit
/// is loaded or not.
fn units() -> Outcome {
    let word = cpucfg(2);
    let at = device::<u8>(PCH_PIC + 0x40);
    write8(SCRATCH, KEPT);
    csrwr!(EUEN, 7);
    macro_rules! each {
        ($($bit:literal $insn:literal,)*) => {$(
            if word >> $bit & 1 == 1 {
                for _ in 0..2 {
                    // SAFETY: ends in an exception, without an effect.
                    ends_in($insn, ADE, || unsafe {
                        asm!(concat!($insn, ", {}, 0"), in(reg) at, options(nostack));
                    })?;
                }
            }
        )*};
    }
    each!(
        0 "fld.s $f3", 0 "fst.s $f3", 0 "fld.d $f3", 0 "fst.d $f3",
        6 "vld $vr3", 6 "vst $vr3", 6 "vldrepl.b $vr3",
        7 "xvld $xr3", 7 "xvst $xr3",
    );
    csrwr!(EUEN, 0);
    equal(
        "the device is as before",
        read8(SCRATCH).into(),
        KEPT.into(),
    )
}

/// LL, SC and atomic operations.
fn atomics() -> Outcome {
    let at = device::<u8>(PCH_PIC + 0x40);
    macro_rules! each {
        ($($insn:literal)*) => {$(
            // SAFETY: ends in an exception, without an effect.
            ends_in($insn, ADE, || unsafe {
                asm!(concat!($insn, " {}, {}, {}"), out(reg) _, in(reg) 1, in(reg) at,
                    options(nostack));
            })?;
        )*};
    }
    each!("amswap.w" "amswap.d" "amadd.d" "amor_db.w" "ammax.du" "amxor_db.d");
    // SAFETY: ends in an exception, without an effect.
    ends_in("ll.w", ADE, || unsafe {
        asm!("ll.w {}, {}, 0", out(reg) _, in(reg) at, options(nostack));
    })?;
    // SAFETY: as above.
    ends_in("ll.d", ADE, || unsafe {
        asm!("ll.d {}, {}, 0", out(reg) _, in(reg) at, options(nostack));
    })?;
    // Without a pair SC may fail before it looks where to.
    let before = read32(PCH_PIC + 0x40);
    let mut sc = 1u64;
    // SAFETY: fails or ends in an exception, without an effect.
    let caught = catch(|| unsafe {
        asm!("sc.w {}, {}, 0", inlateout(reg) sc, in(reg) at, options(nostack));
    });
    ensure("sc.w", caught.is_some_and(|c| c.ecode == ADE) || sc == 0)?;
    equal(
        "the register is as before",
        read32(PCH_PIC + 0x40).into(),
        before.into(),
    )
}

/// Cache operations and prefetches of a device's addresses, and of nobody's:
/// done, or the guest's exception.
fn cache_operations() -> Outcome {
    for at in [
        device::<u8>(UART),
        device(0x3000_0000),
        memory(0x3000_0000),
        memory(RAM_END),
    ] {
        macro_rules! each {
            ($($insn:literal)*) => {$(
                // SAFETY: no operation changes memory that a guest sees.
                let caught = catch(|| unsafe {
                    asm!(concat!($insn, ", {}, 0"), in(reg) at, options(nostack));
                });
                let good = caught.is_none_or(|c| matches!(c.ecode, ADE | INE));
                ensure($insn, good)?;
            )*};
        }
        each!("cacop 0" "cacop 1" "cacop 2" "cacop 8" "cacop 9" "cacop 10" "cacop 16");
        each!("cacop 17" "cacop 18" "cacop 24" "cacop 31" "preld 0" "preld 8" "preld 31");
    }
    Ok(())
}

/// The guest's own switches count, whether the hypervisor has the units
/// loaded or not.
fn off() -> Outcome {
    let word = cpucfg(2);
    macro_rules! each {
        ($($bit:literal $on:literal $code:ident $insn:literal,)*) => {$(
            if word >> $bit & 1 == 1 {
                csrwr!(EUEN, $on);
                for _ in 0..2 {
                    // SAFETY: ends in an exception, without an effect.
                    ends_in($insn, $code, || unsafe { asm!($insn, options(nostack)) })?;
                }
                // With the unit on it isn't one.
                csrwr!(EUEN, 7);
                // SAFETY: registers of this vCPU that nothing else uses.
                let caught = catch(|| unsafe { asm!($insn, options(nostack)) });
                ensure("the unit is on", caught.is_none())?;
            }
        )*};
    }
    each!(
        0 0 FPD "movgr2fr.d $f9, $zero", 0 6 FPD "movgr2cf $fcc0, $zero",
        6 0 SXD "vldi $vr9, 0", 6 1 SXD "vldi $vr9, 0",
        7 0 ASXD "xvldi $xr9, 0", 7 3 ASXD "xvldi $xr9, 0",
    );
    csrwr!(EUEN, 0);
    equal("binary translation isn't offered", word >> 18 & 7, 0)?;
    equal("and can't be turned on", csrwr!(EUEN, 0) >> 3, 0)
}

/// Every operation of INVTLB and the others on the TLB: the guest's own, or
/// an exception. Those of a host must not reach anything.
fn tlb_operations() -> Outcome {
    macro_rules! each {
        ($($op:literal)*) => {$(
            for operand in [0u64, 1 << 16, 0xff_ffff, u64::MAX] {
                // SAFETY: the guest runs without the TLB.
                let caught = catch(|| unsafe {
                    asm!(concat!("invtlb ", $op, ", {}, {}"), in(reg) operand,
                        in(reg) operand & !0x3fff, options(nostack));
                });
                let own: bool = $op <= 6;
                let good = caught.map_or(own, |c| !own && c.ecode == INE);
                ensure(concat!("invtlb ", $op), good)?;
            }
        )*};
    }
    each!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31);
    let before = [
        csrrd!(TLBIDX),
        csrrd!(TLBEHI),
        csrrd!(TLBELO0),
        csrrd!(TLBELO1),
        csrrd!(ASID),
    ];
    csrwr!(TLBIDX, 1 << 31);
    // SAFETY: as above; the entry is one that nothing maps.
    unsafe {
        asm!(
            "tlbsrch",
            "tlbrd",
            "tlbwr",
            "tlbfill",
            "tlbclr",
            "tlbflush",
            options(nostack)
        );
    }
    csrwr!(TLBIDX, before[0]);
    csrwr!(TLBEHI, before[1]);
    csrwr!(TLBELO0, before[2]);
    csrwr!(TLBELO1, before[3]);
    csrwr!(ASID, before[4]);
    macro_rules! host_only {
        ($($word:literal)*) => {$(
            // SAFETY: ends in an exception.
            ends_in(concat!("word ", $word), INE, || unsafe {
                asm!(concat!(".word ", $word), options(nostack));
            })?;
        )*};
    }
    // GCSRRD of GCFG, GCSRWR, and the GTLB operations.
    host_only!("0x05014404" "0x05014424" "0x06482801" "0x06482c01" "0x06483001" "0x06483401"
        "0x06482001" "0x06482401");
    Ok(())
}
