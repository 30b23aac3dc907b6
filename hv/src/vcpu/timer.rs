//! The guest's timer while its vCPU isn't loaded.
//!
//! While it is loaded the timer is hardware's, in guest and in host mode.
//! When it is taken off its CPU the time of its next expiry is noted, and
//! when it comes back the timer is set to what is left: an expiry that fell
//! in between gives one interrupt, and one that had been seen before gives
//! none.
//!
//! Source: *LoongArch Reference Manual, Volume 1*, section 7.6; what a fired
//! one-shot looks like (TVAL of all ones, EN kept) from
//! arch/loongarch/kvm/timer.c of Linux 7.2.

use crate::isa::csr::TCFG;
use crate::isa::exception::Interrupt;
use tock_registers::LocalRegisterCopy;

/// TCFG's start value, in ticks: the register less its two flag bits.
const START_VALUE: u64 = ((1 << 48) - 1) & !3;

/// A guest's timer, taken off the hardware.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SavedTimer {
    /// The guest's TCFG.
    pub tcfg: u64,
    /// The guest's TVAL when it was saved.
    pub tval: u64,
    /// When it was saved, in ticks of the stable counter.
    pub saved_at: u64,
}

/// How to set the hardware's guest timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Restore {
    /// The timer is off: TCFG and TVAL as they were.
    Off {
        /// TVAL.
        tval: u64,
    },
    /// It runs on, with TVAL = `ticks`.
    Running {
        /// TVAL, not 0.
        ticks: u64,
        /// An expiry fell in between: set TI.
        raise: bool,
    },
    /// A one-shot that has fired: TVAL = 0 fires it once more, so that TVAL
    /// reads as all ones again.
    Fired {
        /// It had been acknowledged: clear the TI that comes of it.
        acknowledged: bool,
    },
}

impl SavedTimer {
    fn tcfg(&self) -> LocalRegisterCopy<u64, TCFG::Register> {
        LocalRegisterCopy::new(self.tcfg)
    }

    /// Whether it was a one-shot that had fired.
    fn fired(&self) -> bool {
        !self.tcfg().is_set(TCFG::PERIODIC) && self.tval > self.tcfg & START_VALUE
    }

    /// Whether it runs towards an expiry.
    fn counts(&self) -> bool {
        self.tcfg().is_set(TCFG::EN) && !self.fired()
    }

    /// When it expires next, in ticks of the stable counter; `None` where it
    /// doesn't run.
    #[must_use]
    pub fn deadline(&self) -> Option<u64> {
        self.counts()
            .then(|| self.saved_at.saturating_add(self.tval))
    }

    /// What to do at `now`, given the guest's `estat` as it was saved.
    #[must_use]
    pub fn restore(&self, estat: u64, now: u64) -> Restore {
        if !self.tcfg().is_set(TCFG::EN) {
            return Restore::Off { tval: self.tval };
        }
        if self.fired() {
            let acknowledged = estat & Interrupt::TI.bit() == 0;
            return Restore::Fired { acknowledged };
        }
        let passed = now.saturating_sub(self.saved_at);
        if passed < self.tval {
            let (ticks, raise) = (self.tval - passed, false);
            return Restore::Running { ticks, raise };
        }
        let period = (self.tcfg & START_VALUE).max(1);
        if self.tcfg().is_set(TCFG::PERIODIC) {
            let ticks = period - (passed - self.tval) % period;
            return Restore::Running { ticks, raise: true };
        }
        Restore::Fired {
            acknowledged: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const EN: u64 = 1;
    const PERIODIC: u64 = 2;
    const TI: u64 = 1 << 11;
    const ALL_ONES: u64 = (1 << 48) - 1;

    fn saved(tcfg: u64, tval: u64) -> SavedTimer {
        SavedTimer {
            tcfg,
            tval,
            saved_at: 1000,
        }
    }

    #[test]
    fn a_timer_that_is_off_stays_as_it_was() {
        let timer = saved(0x400, 7);
        assert_eq!(timer.restore(TI, 5000), Restore::Off { tval: 7 });
        assert_eq!(timer.deadline(), None);
    }

    #[test]
    fn a_one_shot_goes_on_with_what_is_left() {
        let timer = saved(0x400 | EN, 0x100);
        assert_eq!(timer.deadline(), Some(1000 + 0x100));
        let left = Restore::Running {
            ticks: 0x100 - 10,
            raise: false,
        };
        assert_eq!(timer.restore(0, 1010), left);
        let last = Restore::Running {
            ticks: 1,
            raise: false,
        };
        assert_eq!(timer.restore(0, 1000 + 0xff), last);
    }

    #[test]
    fn a_one_shot_that_expires_while_out_fires_once() {
        let timer = saved(0x400 | EN, 0x100);
        for now in [1000 + 0x100, 1_000_000] {
            assert_eq!(
                timer.restore(0, now),
                Restore::Fired {
                    acknowledged: false
                }
            );
        }
    }

    #[test]
    fn a_one_shot_that_had_fired_gives_no_second_interrupt() {
        let timer = saved(0x400 | EN, ALL_ONES);
        assert_eq!(timer.deadline(), None);
        assert_eq!(
            timer.restore(0, 9999),
            Restore::Fired { acknowledged: true }
        );
        assert_eq!(
            timer.restore(TI, 9999),
            Restore::Fired {
                acknowledged: false
            }
        );
    }

    #[test]
    fn a_periodic_timer_keeps_its_phase() {
        let timer = saved(0x400 | PERIODIC | EN, 0x100);
        for (passed, ticks) in [(0x100, 0x400), (0x101, 0x3ff), (0x4ff, 1), (0x500, 0x400)] {
            let expected = Restore::Running { ticks, raise: true };
            assert_eq!(timer.restore(0, 1000 + passed), expected, "{passed:#x}");
        }
    }

    #[test]
    fn a_start_value_of_nothing_makes_progress() {
        let periodic = saved(PERIODIC | EN, 0);
        assert_eq!(
            periodic.restore(0, 1000),
            Restore::Running {
                ticks: 1,
                raise: true
            }
        );
        let one_shot = saved(EN, 0);
        assert_eq!(
            one_shot.restore(0, 1000),
            Restore::Fired {
                acknowledged: false
            }
        );
    }

    proptest! {
        #[test]
        fn expiries_agree_with_a_counting_model(
            period in 1u64..50, periodic: bool, left in 0u64..200, passed in 0u64..500,
        ) {
            let tcfg = (period * 4) | if periodic { PERIODIC } else { 0 } | EN;
            let left = left % (period * 4) + 1;
            // Hardware, tick by tick.
            let (mut value, mut expiries) = (left, 0);
            for _ in 0..passed {
                if value == ALL_ONES { break; }
                value -= 1;
                if value == 0 {
                    expiries += 1;
                    value = if periodic { period * 4 } else { ALL_ONES };
                }
            }
            match saved(tcfg, left).restore(0, 1000 + passed) {
                Restore::Running { ticks, raise } => {
                    prop_assert_eq!(ticks, value);
                    prop_assert_eq!(raise, expiries > 0);
                }
                Restore::Fired { acknowledged } => {
                    prop_assert!(!acknowledged && expiries == 1 && value == ALL_ONES);
                }
                Restore::Off { .. } => prop_assert!(false),
            }
        }
    }
}
