//! Switching the machine off, by the register that its description names.
//!
//! Not by firmware's `ResetSystem`: it would be called without its boot
//! services' page tables, so in direct addressing, where one memory type holds
//! for all. Either RAM would be read past the caches, beside lines of the
//! hypervisor's that aren't written back, or the registers of the power
//! controller would be cached. The emulator knows no memory types: it would
//! show nothing of that. A machine without a register stops, and says so.

use crate::arch::trap;
use crate::console;
use crate::mm::addr::Hpa;
use crate::mm::phys::uncached;
use crate::platform::machine::PowerOff;
use spin::Once;

static POWER_OFF: Once<PowerOff> = Once::new();

/// Remembers how to switch off.
pub fn set(power_off: PowerOff) {
    POWER_OFF.call_once(|| power_off);
}

/// Switches the machine off; halts this CPU where nobody knows how.
pub fn off() -> ! {
    console::finish();
    if let Some(power_off) = POWER_OFF.get() {
        write(power_off);
    }
    trap::halt()
}

fn write(power_off: &PowerOff) {
    let register = uncached(Hpa::new(power_off.register));
    let PowerOff { keep, value, .. } = *power_off;
    // SAFETY: the machine's description says that this register does just
    // that, and how wide it is.
    unsafe {
        match power_off.width {
            1 => {
                let kept = u32::from(register.read_volatile()) & keep;
                register.write_volatile((kept | value) as u8);
            }
            2 => {
                let register = register.cast::<u16>();
                let kept = u32::from(register.read_volatile()) & keep;
                register.write_volatile((kept | value) as u16);
            }
            _ => {
                let register = register.cast::<u32>();
                register.write_volatile(register.read_volatile() & keep | value);
            }
        }
    }
}
