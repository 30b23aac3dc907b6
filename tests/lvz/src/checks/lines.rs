//! Physical hardware lines and the guest: HWIP and HWIC.
//!
//! The lines are raised by messages to the interrupt controller, which the
//! board routes to CPU 0's first four lines.

use super::irq::{ALL, interrupted};
use crate::check::{Check, Cpu, Outcome};
use crate::guest::Guest;
use crate::guest::programs::forever;
use crate::guest::table::flag;
use crate::machine::{device, eiointc};
use crate::{csrrd, csrwr, ensure_eq, gcsrrd, gcsrwr, program};
use loongarch_isa::csr::GINTC;
use loongarch_isa::exception::Interrupt;
use loongarch_isa::gpr::Gpr;

/// This group.
pub const CHECKS: &[Check] = &[
    Check::boot("irq.hwip", hwip),
    Check::boot("irq.hwip_in_guest", hwip_in_guest),
    Check::boot("irq.hwip_off", hwip_off),
    Check::boot("irq.hwic", hwic),
];

/// A physical line passed on by HWIP shows in the guest's ESTAT at its own
/// bit, and goes when the device's does.
fn hwip(cpu: &mut Cpu) -> Outcome {
    let mut guest = Guest::new(cpu);
    eiointc::set_up();
    for line in 0..eiointc::LINES {
        let bit = Interrupt::hwi(line).bit();
        csrwr!(GINTC, GINTC::HWIP.val(1 << line).value);
        ensure_eq!(gcsrrd!(ESTAT), 0u64, "guest ESTAT before");
        eiointc::raise(line);
        let seen = (csrrd!(ESTAT) & 0x3fc, gcsrrd!(ESTAT));
        let outcome = interrupted(&mut guest, forever, bit);
        eiointc::acknowledge(line);
        let after = gcsrrd!(ESTAT) & ALL;
        csrwr!(GINTC, 0);
        ensure_eq!(seen.0, bit, "host ESTAT");
        ensure_eq!(seen.1 & ALL, bit, "guest ESTAT");
        ensure_eq!(outcome?.is, bit, "guest ESTAT.IS at the interrupt");
        ensure_eq!(after, 0u64, "guest ESTAT after");
        gcsrwr!(ESTAT, 0);
    }
    Ok(())
}

program!(
    /// Writes a1 to the device register at a0.
    poke: "st.w $a1, $a0, 0", "b .",
);

/// A line that rises while the guest runs, by the guest's own doing.
fn hwip_in_guest(cpu: &mut Cpu) -> Outcome {
    let mut guest = Guest::new(cpu);
    eiointc::set_up();
    let window = eiointc::MSI_WINDOW;
    guest.map(window, window, flag::V | flag::D);
    for line in 0..eiointc::LINES {
        csrwr!(GINTC, GINTC::HWIP.val(1 << line).value);
        guest.set(Gpr::A0, device::<u32>(window) as u64);
        guest.set(Gpr::A1, eiointc::vector(line).into());
        let bit = Interrupt::hwi(line).bit();
        let outcome = interrupted(&mut guest, poke, bit);
        eiointc::acknowledge(line);
        csrwr!(GINTC, 0);
        ensure_eq!(outcome?.is, bit, "guest ESTAT.IS");
    }
    Ok(())
}

/// Without HWIP, or with another line's, the guest sees nothing of it.
fn hwip_off(cpu: &mut Cpu) -> Outcome {
    let _guest = Guest::new(cpu);
    eiointc::set_up();
    for line in 0..eiointc::LINES {
        eiointc::raise(line);
        let without = gcsrrd!(ESTAT);
        csrwr!(GINTC, GINTC::HWIP.val(0xff & !(1 << line)).value);
        let others = gcsrrd!(ESTAT);
        csrwr!(GINTC, 0);
        eiointc::acknowledge(line);
        ensure_eq!(without, 0u64, "guest ESTAT without HWIP, line {line}");
        ensure_eq!(
            others,
            0u64,
            "guest ESTAT with the other lines' HWIP, line {line}"
        );
    }
    Ok(())
}

/// D-GINTC: injecting a line whose HWIC is set clears the host's pending bit.
fn hwic(cpu: &mut Cpu) -> Outcome {
    let _guest = Guest::new(cpu);
    eiointc::set_up();
    for line in 0..eiointc::LINES {
        let bit = Interrupt::hwi(line).bit();
        eiointc::raise(line);
        csrwr!(GINTC, 1 << line);
        let kept = csrrd!(ESTAT) & bit;
        csrwr!(GINTC, 0);
        csrwr!(
            GINTC,
            (GINTC::HWIC.val(1 << line) + GINTC::HWIS.val(1 << line)).value
        );
        let (host, guest) = (csrrd!(ESTAT) & bit, gcsrrd!(ESTAT));
        csrwr!(GINTC, 0);
        eiointc::acknowledge(line);
        ensure_eq!(kept, bit, "host ESTAT without HWIC");
        ensure_eq!(host, 0u64, "host ESTAT with HWIC");
        ensure_eq!(guest, bit, "guest ESTAT");
    }
    Ok(())
}
