//! The rest of the platform: clock, I/O ports, controllers' odd corners.

use crate::check::{Check, Outcome, ensure, equal};
use crate::runtime::devices::{read8, read16, read32, write8, write32};
use crate::runtime::{ticks, ticks_per_second};

/// The checks.
pub const CHECKS: [Check; 2] = [
    Check {
        name: "rtc.time",
        cpus: 1,
        run: time,
    },
    Check {
        name: "ports.ones",
        cpus: 1,
        run: ports,
    },
];

/// Clock: time of day, year, control, the counter at 32,768 Hz.
const RTC: u64 = 0x100d_0100;
const TIME: u64 = RTC + 0x2c;
const YEAR: u64 = RTC + 0x30;
const CONTROL: u64 = RTC + 0x40;
const COUNTER: u64 = RTC + 0x68;
const SET_YEAR: u64 = RTC + 0x28;

fn time() -> Outcome {
    equal("on", (read32(CONTROL) & 0x900).into(), 0x900)?;
    let (month, day) = (read32(TIME) >> 26, read32(TIME) >> 21 & 31);
    ensure("month", (1..=12).contains(&month))?;
    ensure("day", (1..=31).contains(&day))?;
    // The machine's clock has been read: it is no longer 1970.
    let year = read32(YEAR);
    ensure("year", (2025 - 1900..2100 - 1900).contains(&year))?;
    // The counter is read between two readings of the ticks, at both ends:
    // this vCPU may be away in between.
    let read = || (ticks(), read32(COUNTER), ticks());
    let (begin, first, start) = read();
    while ticks() - start < ticks_per_second() / 128 {
        core::hint::spin_loop();
    }
    let (stop, last, end) = read();
    let steps = |ticks: u64| (ticks * 32_768 / ticks_per_second()) as u32;
    let passed = last.wrapping_sub(first);
    ensure("steps", passed + 1 >= steps(stop - start))?;
    ensure("no more steps", passed <= steps(end - begin) + 1)?;
    write32(SET_YEAR, 140);
    equal("year set", read32(YEAR).into(), 140)?;
    write32(SET_YEAR, year);
    equal("year set back", read32(YEAR).into(), year.into())
}

/// Legacy ports, of which the keyboard controller's are probed by Linux.
fn ports() -> Outcome {
    const PORTS: u64 = 0x1800_4000;
    write8(PORTS + 0x64, 0xaa);
    equal("byte", read8(PORTS + 0x64).into(), 0xff)?;
    equal("half", read16(PORTS + 0xbffe).into(), 0xffff)?;
    equal("word", read32(PORTS).into(), 0xffff_ffff)
}
