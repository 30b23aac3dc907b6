//! The real-time clock: the time of day, and a counter at 32,768 Hz.
//!
//! Both run on the guest's counter, from the time of day that the machine
//! gave when the VM was made; a guest may set them, for itself alone. So a
//! machine whose counter is deterministic has a deterministic clock.
//!
//! Threats: a guest may write any date; what isn't one is dropped or, beyond
//! the end of a month, counts on. Not emulated: alarms (the match registers
//! keep their value, and there is no interrupt) and trimming.
//!
//! Source: Loongson 7A1000 manual, chapter on the real-time clock; Linux,
//! drivers/rtc/rtc-loongson.c for what a guest needs.

pub mod date;

use super::lane::Lane;
use crate::isa::insn::Width;
use date::Date;
use spin::Mutex;

/// Trim of the time of day.
const TOY_TRIM: u64 = 0x20;
/// Sets the time of day: month to second, and year.
const TOY_WRITE: [u64; 2] = [0x24, 0x28];
/// The time of day, likewise.
pub const TOY_READ: [u64; 2] = [0x2c, 0x30];
/// Alarms by time of day.
const TOY_MATCH: [u64; 3] = [0x34, 0x38, 0x3c];
/// What is turned on.
pub const CONTROL: u64 = 0x40;
/// Trim of the counter.
const COUNTER_TRIM: u64 = 0x60;
/// Sets the counter.
const COUNTER_WRITE: u64 = 0x64;
/// The counter.
const COUNTER_READ: u64 = 0x68;
/// Alarms by counter.
const COUNTER_MATCH: [u64; 3] = [0x6c, 0x70, 0x74];

/// Control: the crystal, the time of day, the counter.
pub const CRYSTAL: u32 = 1 << 8;
/// Control: the time of day is on.
pub const TOY_ON: u32 = 1 << 11;
const COUNTER_ON: u32 = 1 << 13;

/// Steps of the counter a second.
const COUNTER_HZ: u64 = 32_768;
/// Years are counted from here.
const FIRST_YEAR: u32 = 1900;
/// Bits of the year's register that count.
const YEAR_MASK: u32 = 0x3fff;

/// Where the time of day comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimeSource {
    /// Seconds from 1970 to the moment when the guest's counter was 0.
    pub began: i64,
    /// Steps of the guest's counter a second; above 0.
    pub hz: u64,
}

/// The clock.
#[derive(Debug)]
pub struct Rtc {
    source: TimeSource,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// Added to the time of day, in seconds.
    toy_offset: i64,
    /// Month to second as last written, until the year is written too: the
    /// day may be one that only that year has.
    half_written: Option<u32>,
    /// Added to the counter.
    counter_offset: u32,
    control: u32,
    /// Trims and matches, which only keep their value.
    kept: [u32; 8],
}

/// The two registers of a date, with tenths of a second.
fn registers(date: &Date, tenths: u32) -> [u32; 2] {
    let time = date.hour << 16 | date.minute << 10 | date.second << 4 | tenths;
    let day = date.month << 26 | date.day << 21;
    [day | time, date.year.wrapping_sub(FIRST_YEAR)]
}

/// The date in the two registers; `None` where the month is none.
#[must_use]
pub fn date_of([low, high]: [u32; 2]) -> Option<Date> {
    let field = |shift: u32, bits: u32| low >> shift & ((1 << bits) - 1);
    let month = field(26, 6);
    (1..=12).contains(&month).then(|| Date {
        year: FIRST_YEAR + (high & YEAR_MASK),
        month,
        day: field(21, 5).max(1),
        hour: field(16, 5),
        minute: field(10, 6),
        second: field(4, 6),
    })
}

impl Rtc {
    /// A clock that runs, as firmware leaves it.
    #[must_use]
    pub fn new(source: TimeSource) -> Self {
        let state = State {
            toy_offset: 0,
            half_written: None,
            counter_offset: 0,
            control: CRYSTAL | TOY_ON | COUNTER_ON,
            kept: [0; 8],
        };
        Self {
            source,
            state: Mutex::new(state),
        }
    }

    /// Reads `width` bytes at `offset` when the guest's counter is `now`;
    /// zero-extended.
    pub fn read(&self, offset: u64, width: Width, now: u64) -> u64 {
        let state = self.state.lock();
        let word = |at| u64::from(state.read(at, &self.source, now));
        let start = offset & !7;
        Lane::new(offset, width).read(word(start) | word(start + 4) << 32)
    }

    /// Writes the low `width` bytes of `value` at `offset` when the guest's
    /// counter is `now`.
    pub fn write(&self, offset: u64, width: Width, value: u64, now: u64) {
        let lane = Lane::new(offset, width);
        let mut state = self.state.lock();
        for (at, shift) in [(offset & !7, 0), ((offset & !7) + 4, 32)] {
            if (lane.mask() >> shift) as u32 != 0 {
                let old = u64::from(state.read(at, &self.source, now)) << shift;
                let new = (lane.merge(old, value) >> shift) as u32;
                state.write(at, new, &self.source, now);
            }
        }
    }
}

impl TimeSource {
    /// `now` in steps of `hz` a second.
    fn steps(&self, now: u64, hz: u64) -> u64 {
        (u128::from(now) * u128::from(hz) / u128::from(self.hz.max(1))) as u64
    }

    /// The time of day, `offset` seconds ahead.
    fn date(&self, now: u64, offset: i64) -> Date {
        let passed = self.steps(now, 1).cast_signed();
        Date::of(self.began.saturating_add(passed).saturating_add(offset))
    }
}

impl State {
    const fn on(&self, what: u32) -> bool {
        self.control & CRYSTAL != 0 && self.control & what != 0
    }

    fn read(&self, at: u64, source: &TimeSource, now: u64) -> u32 {
        if let Some(index) = kept(at) {
            return self.kept.get(index).copied().unwrap_or_default();
        }
        match at {
            CONTROL => self.control,
            COUNTER_READ if self.on(COUNTER_ON) => {
                let steps = source.steps(now, COUNTER_HZ) as u32;
                steps.wrapping_add(self.counter_offset)
            }
            _ if TOY_READ.contains(&at) && self.on(TOY_ON) => {
                let tenths = source.steps(now, 10) % 10;
                let date = source.date(now, self.toy_offset);
                let [low, high] = registers(&date, tenths as u32);
                if at == TOY_READ[0] { low } else { high }
            }
            _ => 0,
        }
    }

    fn write(&mut self, at: u64, value: u32, source: &TimeSource, now: u64) {
        if let Some(kept) = kept(at).and_then(|index| self.kept.get_mut(index)) {
            *kept = value;
            return;
        }
        match at {
            CONTROL => self.control = value,
            COUNTER_WRITE if self.on(COUNTER_ON) => {
                let steps = source.steps(now, COUNTER_HZ) as u32;
                self.counter_offset = value.wrapping_sub(steps);
            }
            _ if TOY_WRITE.contains(&at) && self.on(TOY_ON) => {
                self.set_date(at, value, source, now);
            }
            _ => {}
        }
    }

    /// Half of the date is written; the other half stays.
    fn set_date(&mut self, at: u64, value: u32, source: &TimeSource, now: u64) {
        let [low, high] = registers(&source.date(now, self.toy_offset), 0);
        let new = if at == TOY_WRITE[0] {
            self.half_written = Some(value);
            [value, high]
        } else {
            [self.half_written.take().unwrap_or(low), value]
        };
        if let Some(date) = date_of(new) {
            self.toy_offset = date.seconds() - source.date(now, 0).seconds();
        }
    }
}

/// Which of the words that only keep their value is at `at`.
fn kept(at: u64) -> Option<usize> {
    let [toy0, toy1, toy2] = TOY_MATCH;
    let [counter0, counter1, counter2] = COUNTER_MATCH;
    let all = [
        TOY_TRIM,
        COUNTER_TRIM,
        toy0,
        toy1,
        toy2,
        counter0,
        counter1,
        counter2,
    ];
    all.iter().position(|&offset| offset == at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// 1 January 2026.
    const BEGAN: i64 = 1_767_225_600;
    const HZ: u64 = 100_000_000;

    fn clock() -> Rtc {
        Rtc::new(TimeSource {
            began: BEGAN,
            hz: HZ,
        })
    }

    fn toy(clock: &Rtc, now: u64) -> [u32; 2] {
        TOY_READ.map(|at| clock.read(at, Width::Word, now) as u32)
    }

    fn set(clock: &Rtc, registers: [u32; 2], now: u64) {
        for (at, value) in TOY_WRITE.into_iter().zip(registers) {
            clock.write(at, Width::Word, value.into(), now);
        }
    }

    #[test]
    fn time_passes_with_the_guest_s_counter() {
        let clock = clock();
        assert_eq!(toy(&clock, 0), [1 << 26 | 1 << 21, 126]);
        let later = (40 * 86_400 + 3_600 + 61) * HZ + HZ / 10 * 7;
        let day = 2 << 26 | 10 << 21;
        assert_eq!(
            toy(&clock, later),
            [day | 1 << 16 | 1 << 10 | 1 << 4 | 7, 126]
        );
        assert_eq!(clock.read(COUNTER_READ, Width::Word, 2 * HZ), 65_536);
    }

    #[test]
    fn a_guest_sets_its_own_time() {
        let clock = clock();
        let now = 5 * HZ;
        let date = Date {
            year: 2040,
            month: 2,
            day: 29,
            hour: 23,
            minute: 59,
            second: 59,
        };
        set(&clock, registers(&date, 0), now);
        assert_eq!(date_of(toy(&clock, now)), Some(date));
        let next = Date {
            month: 3,
            day: 1,
            hour: 0,
            minute: 0,
            second: 0,
            ..date
        };
        assert_eq!(date_of(toy(&clock, now + HZ)), Some(next));
        clock.write(COUNTER_WRITE, Width::Word, 7, now);
        assert_eq!(clock.read(COUNTER_READ, Width::Word, now), 7);
    }

    #[test]
    fn months_that_are_none_are_dropped() {
        let clock = clock();
        let before = toy(&clock, 0);
        for month in [0, 13, 63] {
            clock.write(TOY_WRITE[0], Width::Word, month << 26 | 1 << 21, 0);
            assert_eq!(toy(&clock, 0), before);
        }
        set(&clock, [u32::MAX >> 6 | 12 << 26, u32::MAX], 0);
        assert_eq!(toy(&clock, 0)[1], 0x4000);
    }

    #[test]
    fn what_is_off_reads_0_and_takes_nothing() {
        let clock = clock();
        assert_eq!(clock.read(CONTROL, Width::Word, 0), 0x2900);
        for control in [0, CRYSTAL, TOY_ON] {
            clock.write(CONTROL, Width::Word, control.into(), 0);
            assert_eq!(toy(&clock, HZ), [0, 0]);
            set(&clock, [1 << 26, 100], HZ);
            assert_eq!(clock.read(COUNTER_READ, Width::Word, HZ), 0);
        }
        clock.write(CONTROL, Width::Word, (CRYSTAL | TOY_ON).into(), HZ);
        assert_eq!(toy(&clock, HZ)[1], 126);
    }

    #[test]
    fn alarms_only_keep_their_value() {
        let clock = clock();
        for (index, at) in TOY_MATCH.into_iter().chain(COUNTER_MATCH).enumerate() {
            clock.write(at, Width::Word, index as u64 + 1, 0);
        }
        clock.write(TOY_MATCH[1], Width::Byte, 0xff, 0);
        let read = TOY_MATCH.map(|at| clock.read(at, Width::Word, 0));
        assert_eq!(read, [1, 0xff, 3]);
        let read = COUNTER_MATCH.map(|at| clock.read(at, Width::Word, 0));
        assert_eq!(read, [4, 5, 6]);
    }

    proptest! {
        #[test]
        fn no_access_is_too_much(
            steps in proptest::collection::vec(
                (0u64..0x110, 0usize..4, any::<u64>(), any::<u64>()), 1..64),
            began: i64, hz: u64,
        ) {
            let clock = Rtc::new(TimeSource { began, hz });
            for (offset, width, value, now) in steps {
                let width = [Width::Byte, Width::Half, Width::Word, Width::Double][width];
                clock.write(offset, width, value, now);
                let read = clock.read(offset, width, now);
                prop_assert_eq!(read, width.zero_extend(read));
            }
        }
    }
}
