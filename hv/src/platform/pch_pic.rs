//! The machine's PCH-PIC: one input, the console's, to EIOINTC.
//!
//! Source: Loongson 7A1000 manual, chapter on interrupts.

use crate::mm::addr::Hpa;
use crate::mm::phys::uncached;
use crate::platform::machine::PchPicRoute;

/// Offset of the mask, one bit an input.
const MASK: u64 = 0x20;
/// Offset of the enable bits of messages to EIOINTC.
const MESSAGE_ENABLE: u64 = 0x40;
/// Offset of the edge bits.
const EDGE: u64 = 0x60;
/// Offset of the bits that clear a latched edge.
const CLEAR: u64 = 0x80;
/// Offset of the routes, one byte an input.
const ROUTE: u64 = 0x100;
/// Offset of the vectors, one byte an input.
const VECTOR: u64 = 0x200;
/// Offset of the polarity bits: 1 is active low.
const POLARITY: u64 = 0x3e0;
/// Route: to the first message line.
const FIRST_LINE: u8 = 1;

/// Masks every input of the PCH-PIC at `base`, and forgets the edges that it
/// has latched: what firmware has used must not reach anyone.
pub fn silence(base: Hpa) {
    for half in [0, 4] {
        // SAFETY: the machine's description says that a PCH-PIC is there.
        unsafe {
            let word = |offset| at(base, offset + half).cast::<u32>();
            word(MASK).write_volatile(u32::MAX);
            word(MESSAGE_ENABLE).write_volatile(0);
            word(CLEAR).write_volatile(u32::MAX);
        }
    }
}

/// Offset of the bits that disable the legacy controller's inputs.
const LEGACY_DISABLE: u64 = 0x2c;

/// Disables every input of the processor's legacy controller (LIOINTC) at
/// `base`: nothing of its is used. Source: Linux,
/// drivers/irqchip/irq-loongson-liointc.c.
pub fn silence_legacy(base: Hpa) {
    // SAFETY: the machine's description says that the controller is there.
    unsafe {
        at(base, LEGACY_DISABLE)
            .cast::<u32>()
            .write_volatile(u32::MAX)
    };
}

/// Lets `route`'s input, a level that is active high, send its vector.
pub fn enable(route: &PchPicRoute) {
    let input = route.input;
    let (half, bit) = (
        u64::from(input.number() / 32 * 4),
        1 << (input.number() % 32),
    );
    let byte = u64::from(input.number());
    change(route.base, EDGE + half, bit, false);
    change(route.base, POLARITY + half, bit, false);
    // SAFETY: the device tree says that a PCH-PIC is there.
    unsafe {
        at(route.base, ROUTE + byte).write_volatile(FIRST_LINE);
        at(route.base, VECTOR + byte).write_volatile(route.vector.number());
    }
    change(route.base, MESSAGE_ENABLE + half, bit, true);
    change(route.base, MASK + half, bit, false);
}

fn at(base: Hpa, offset: u64) -> *mut u8 {
    uncached(Hpa::new(base.get() + offset))
}

/// Sets or clears a bit of the 32-bit register at `offset`.
fn change(base: Hpa, offset: u64, bit: u32, set: bool) {
    let register = at(base, offset).cast::<u32>();
    // SAFETY: as in `enable`; only one CPU does this, once.
    unsafe {
        let others = register.read_volatile() & !bit;
        register.write_volatile(if set { others | bit } else { others });
    }
}
