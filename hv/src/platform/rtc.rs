//! The machine's clock: the time of day.
//!
//! Read when a VM is made; from then on its counter tells its time. Where
//! nobody says where the clock is, as with ACPI, its time when firmware last
//! read it counts, and the counter since.
//!
//! Source: as in [`crate::dev::rtc`], which is the same device's model.

use crate::arch::cpu;
use crate::dev::rtc::{CONTROL, CRYSTAL, TOY_ON, TOY_READ, date_of};
use crate::mm::addr::Hpa;
use crate::mm::phys::uncached;
use crate::platform::efi::Moment;
use spin::{Mutex, Once};

static CLOCK: Once<Mutex<Hpa>> = Once::new();
static MOMENT: Once<Moment> = Once::new();

/// Remembers what time it was once.
pub fn set_moment(moment: Moment) {
    MOMENT.call_once(|| moment);
}

/// The time by that and the counter; 0 without it.
fn since_moment() -> i64 {
    let since = |moment: &Moment| {
        let ticks = cpu::ticks().wrapping_sub(moment.ticks);
        let seconds = ticks / cpu::ticks_per_second().max(1);
        moment.seconds.saturating_add_unsigned(seconds)
    };
    MOMENT.get().map_or(0, since)
}

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
        return since_moment();
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
