//! Switching the machine off.

use crate::arch::trap;
use crate::console;
use crate::mm::addr::Hpa;
use crate::mm::phys::uncached;
use crate::platform::fdt::PowerOff;
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
        let register = uncached(Hpa::new(power_off.register));
        // SAFETY: the device tree says that this register does just that.
        unsafe { register.write_volatile(power_off.value) };
    }
    trap::halt()
}
