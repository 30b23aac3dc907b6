//! Accesses to devices, and to addresses that are nobody's.

use crate::check::{Check, Outcome, ensure, equal};
use crate::runtime::trap::{Caught, catch};
use crate::runtime::{device, memory};
use core::arch::asm;

/// The checks.
pub const CHECKS: [Check; 6] = [
    Check {
        name: "mmio.widths",
        cpus: 1,
        run: widths,
    },
    Check {
        name: "mmio.forms",
        cpus: 1,
        run: forms,
    },
    Check {
        name: "mmio.undecodable",
        cpus: 1,
        run: undecodable,
    },
    Check {
        name: "memory.nobody",
        cpus: 1,
        run: nobody,
    },
    Check {
        name: "memory.fetch",
        cpus: 1,
        run: fetch,
    },
    Check {
        name: "memory.storm",
        cpus: 1,
        run: storm,
    },
];

/// The UART and its scratch register.
const UART: u64 = 0x1fe0_01e0;
const SCRATCH: u64 = UART + 7;
/// PCH-PIC's message enable.
const REMEMBERS: u64 = 0x1000_0040;
/// ADE: code; sub-codes of a fetch and of an access.
const ADE: u64 = 8;
const FETCH: u64 = 0;
const ACCESS: u64 = 1;

fn widths() -> Outcome {
    let at: *mut u8 = device(SCRATCH);
    // SAFETY: the UART's scratch register.
    unsafe {
        at.write_volatile(0x85);
        equal("byte", at.read_volatile().into(), 0x85)?;
        let signed = at.cast::<i8>().read_volatile();
        equal(
            "byte, sign",
            (signed as i64).cast_unsigned(),
            0xffff_ffff_ffff_ff85,
        )
    }
}

/// Every load and store that a device takes, by its own instruction, on a
/// register of PCH-PIC that only remembers.
fn forms() -> Outcome {
    macro_rules! store_then_load {
        ($offset:literal, $value:literal, $store:literal, $load:literal, $want:literal) => {{
            let at: *mut u8 = device(REMEMBERS);
            let value: u64;
            // SAFETY: a register that only remembers.
            unsafe {
                asm!(concat!($store, " {v}, {a}, {i}"), concat!($load, " {r}, {a}, {i}"),
                    v = in(reg) $value as u64, r = out(reg) value, a = in(reg) at,
                    i = const $offset, options(nostack));
            }
            equal(concat!($store, " / ", $load), value, $want)?;
        }};
        (indexed $offset:literal, $value:literal, $store:literal, $load:literal, $want:literal) => {{
            let at: *mut u8 = device(REMEMBERS);
            let value: u64;
            // SAFETY: as above.
            unsafe {
                asm!(concat!($store, " {v}, {a}, {i}"), concat!($load, " {r}, {a}, {i}"),
                    v = in(reg) $value as u64, r = out(reg) value, a = in(reg) at,
                    i = in(reg) $offset as u64, options(nostack));
            }
            equal(concat!($store, " / ", $load), value, $want)?;
        }};
    }
    store_then_load!(7, 0x9a, "st.b", "ld.b", 0xffff_ffff_ffff_ff9a);
    store_then_load!(7, 0x9b, "st.b", "ld.bu", 0x9b);
    store_then_load!(indexed 6, 0x9c, "stx.b", "ldx.b", 0xffff_ffff_ffff_ff9c);
    store_then_load!(indexed 5, 0x9d, "stx.b", "ldx.bu", 0x9d);
    store_then_load!(6, 0xf_ff11, "st.h", "ld.h", 0xffff_ffff_ffff_ff11);
    store_then_load!(4, 0xff12, "st.h", "ld.hu", 0xff12);
    store_then_load!(indexed 2, 0xff13, "stx.h", "ldx.h", 0xffff_ffff_ffff_ff13);
    store_then_load!(indexed 4, 0xff14, "stx.h", "ldx.hu", 0xff14);
    store_then_load!(4, 0xf_8765_4315, "st.w", "ld.w", 0xffff_ffff_8765_4315);
    store_then_load!(0, 0x8765_4316, "st.w", "ld.wu", 0x8765_4316);
    store_then_load!(indexed 4, 0x8765_4317, "stx.w", "ldx.w", 0xffff_ffff_8765_4317);
    store_then_load!(indexed 0, 0x8765_4318, "stx.w", "ldx.wu", 0x8765_4318);
    store_then_load!(4, 0x8765_4319, "stptr.w", "ldptr.w", 0xffff_ffff_8765_4319);
    store_then_load!(
        0,
        0x8877_6655_4433_2211,
        "st.d",
        "ld.d",
        0x8877_6655_4433_2211
    );
    store_then_load!(indexed 0, 0x1122_3344_5566_7788, "stx.d", "ldx.d", 0x1122_3344_5566_7788);
    store_then_load!(
        0,
        0x8070_6050_4030_2010,
        "stptr.d",
        "ldptr.d",
        0x8070_6050_4030_2010
    );
    Ok(())
}

/// The exception that came is ADE for an access to `phys`.
fn expect(caught: Option<Caught>, esubcode: u64, badv: u64) -> Outcome {
    let Some(caught) = caught else {
        return ensure("an exception", false);
    };
    equal("code", caught.ecode, ADE)?;
    equal("sub-code", caught.esubcode, esubcode)?;
    equal("level before", caught.prmd & 3, 0)?;
    equal("address", caught.badv, badv)
}

fn undecodable() -> Outcome {
    let at: *mut u8 = device(SCRATCH - 3);
    // SAFETY: ends in an exception, without an effect.
    let caught = catch(|| unsafe {
        asm!("amadd.w {0}, {1}, {2}", out(reg) _, in(reg) 1, in(reg) at, options(nostack));
    });
    expect(caught, ACCESS, SCRATCH - 3)
}

fn nobody() -> Outcome {
    for phys in [
        0x1000_1000,
        0x1fe0_02e0,
        0x7fff_fff8,
        0x8000_0000,
        0x7fff_ffff_fff8,
        0xffff_ffff_fff8,
    ] {
        let load = catch(|| {
            // SAFETY: ends in an exception.
            unsafe { device::<u64>(phys).read_volatile() };
        });
        expect(load, ACCESS, phys)?;
        // SAFETY: as above.
        let store = catch(|| unsafe { memory::<u64>(phys).write_volatile(1) });
        expect(store, ACCESS, phys)?;
    }
    Ok(())
}

/// A jump to a device, and to nowhere.
fn fetch() -> Outcome {
    for phys in [0x1fe0_01e0, 0x3000_0000] {
        let at = memory::<u8>(phys) as u64;
        // SAFETY: ends in an exception, whose handler returns to ra.
        let caught = catch(|| unsafe {
            asm!("jirl $ra, {}, 0", in(reg) at, clobber_abi("C"));
        });
        expect(caught, FETCH, at)?;
    }
    Ok(())
}

fn storm() -> Outcome {
    for _ in 0..2000 {
        let caught = catch(|| {
            // SAFETY: ends in an exception.
            unsafe { device::<u8>(0x3000_0000).read_volatile() };
        });
        expect(caught, ACCESS, 0x3000_0000)?;
    }
    Ok(())
}
