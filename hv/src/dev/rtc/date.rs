//! Dates of the Gregorian calendar and seconds since 1970, both in UTC.
//!
//! Days are counted from the first of March, so that the leap day is a
//! year's last and the months before it have a length by formula.

/// A moment, to the second. A day or time beyond its range stands for the
/// moment that lies so far after the month's first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Date {
    /// Year, 0 to [`LAST_YEAR`].
    pub year: u32,
    /// Month, 1 to 12.
    pub month: u32,
    /// Day, from 1 on.
    pub day: u32,
    /// Hour.
    pub hour: u32,
    /// Minute.
    pub minute: u32,
    /// Second.
    pub second: u32,
}

/// The last year that a date may have: more than any register holds.
pub const LAST_YEAR: u32 = 99_999;

const DAY: i64 = 24 * 60 * 60;
/// Days in 400, 100, 4 years and in one, the leap days that end them left out
/// of the last three.
const DAYS_400: i64 = 146_097;
const DAYS_100: i64 = 36_524;
const DAYS_4: i64 = 1_461;
const DAYS_1: i64 = 365;
/// Days from 1 March of year 0 to 1 January 1970.
const EPOCH: i64 = 719_468;

/// Days from the first of March to the first of the month that is `month`
/// months later: five months have 153 days.
const fn days_before(month: i64) -> i64 {
    (153 * month + 2) / 5
}

impl Date {
    /// The moment `seconds` after 1970 began. What is out of range becomes
    /// the nearest that isn't.
    #[must_use]
    pub fn of(seconds: i64) -> Self {
        let first = Self::first(0).seconds();
        let last = Self::first(LAST_YEAR).seconds() + DAYS_1 * DAY - 1;
        let seconds = seconds.clamp(first, last);
        let (day, time) = (seconds.div_euclid(DAY) + EPOCH, seconds.rem_euclid(DAY));
        let (era, day) = (day.div_euclid(DAYS_400), day.rem_euclid(DAYS_400));
        let century = (day / DAYS_100).min(3);
        let day = day - century * DAYS_100;
        let (fours, day) = (day / DAYS_4, day % DAYS_4);
        let single = (day / DAYS_1).min(3);
        let day = day - single * DAYS_1;
        let month = (5 * day + 2) / 153;
        // January and February belong to the next year.
        let (month_of_year, next) = if month < 10 {
            (month + 3, 0)
        } else {
            (month - 9, 1)
        };
        let year = era * 400 + century * 100 + fours * 4 + single + next;
        Self {
            year: year as u32,
            month: month_of_year as u32,
            day: (day - days_before(month) + 1) as u32,
            hour: (time / 3600) as u32,
            minute: (time / 60 % 60) as u32,
            second: (time % 60) as u32,
        }
    }

    const fn first(year: u32) -> Self {
        Self {
            year,
            month: 1,
            day: 1,
            hour: 0,
            minute: 0,
            second: 0,
        }
    }

    /// Seconds since 1970 began.
    #[must_use]
    pub const fn seconds(&self) -> i64 {
        let (month, year) = match self.month as i64 {
            month @ 3.. => (month - 3, self.year as i64),
            month => (month + 9, self.year as i64 - 1),
        };
        let (era, in_era) = (year.div_euclid(400), year.rem_euclid(400));
        let leap_days = in_era / 4 - in_era / 100;
        let days = era * DAYS_400 + in_era * DAYS_1 + leap_days + days_before(month);
        let time = (self.hour as i64 * 60 + self.minute as i64) * 60 + self.second as i64;
        (days + self.day as i64 - 1 - EPOCH) * DAY + time
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn date(year: u32, month: u32, day: u32) -> Date {
        Date {
            month,
            day,
            ..Date::first(year)
        }
    }

    #[test]
    fn known_moments() {
        for (seconds, date) in [
            (0, date(1970, 1, 1)),
            (951_782_400, date(2000, 2, 29)),
            (951_868_800, date(2000, 3, 1)),
            (4_107_542_400, date(2100, 3, 1)),
            (1_767_225_600, date(2026, 1, 1)),
            (
                -1,
                Date {
                    hour: 23,
                    minute: 59,
                    second: 59,
                    ..date(1969, 12, 31)
                },
            ),
        ] {
            assert_eq!(Date::of(seconds), date);
            assert_eq!(date.seconds(), seconds);
        }
    }

    #[test]
    fn days_beyond_the_month_go_on_in_the_next() {
        assert_eq!(Date::of(date(2025, 2, 30).seconds()), date(2025, 3, 2));
        assert_eq!(Date::of(i64::MAX).year, LAST_YEAR);
        assert_eq!(Date::of(i64::MIN), date(0, 1, 1));
    }

    proptest! {
        #[test]
        fn there_and_back(seconds in -62_167_219_200i64..3_093_527_980_800) {
            let date = Date::of(seconds);
            prop_assert_eq!(date.seconds(), seconds);
            prop_assert!((1..=12).contains(&date.month) && (1..=31).contains(&date.day));
            prop_assert!(date.hour < 24 && date.minute < 60 && date.second < 60);
        }
    }
}
