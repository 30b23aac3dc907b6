//! The machine's clock: the time of day.
//!
//! Read when a VM is made; from then on its counter tells its time.
//!
//! Source: as in [`crate::dev::rtc`], which is the same device's model.

use crate::dev::rtc::{CONTROL, CRYSTAL, TOY_ON, TOY_READ, date_of};
use crate::mm::addr::Hpa;
use crate::mm::phys::uncached;
use spin::{Mutex, Once};

static CLOCK: Once<Mutex<Hpa>> = Once::new();

/// Remembers where the clock is, and turns it on.
///
/// # Safety
/// A Loongson clock's registers are at `base`, and nobody else uses them.
pub unsafe fn set_up(base: Hpa) {
    let clock = CLOCK.call_once(|| Mutex::new(base)).lock();
    let control = register(*clock, CONTROL);
    // SAFETY: the caller vouches for the registers.
    unsafe { control.write_volatile(control.read_volatile() | CRYSTAL | TOY_ON) };
}

fn register(base: Hpa, offset: u64) -> *mut u32 {
    uncached(Hpa::new(base.get() + offset)).cast()
}

/// Seconds since 1970; 0 where no clock tells.
#[must_use]
pub fn seconds() -> i64 {
    let Some(clock) = CLOCK.get() else {
        return 0;
    };
    let base = *clock.lock();
    // SAFETY: `set_up`'s caller vouches for the registers.
    let read = |offset| unsafe { register(base, offset).read_volatile() };
    let [low, high] = TOY_READ;
    // The year before and after: it may change in between.
    let (mut year, mut date) = (read(high), read(low));
    if read(high) != year {
        (date, year) = (read(low), read(high));
    }
    date_of([date, year]).map_or(0, |date| date.seconds())
}
