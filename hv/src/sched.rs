//! Which vCPU a physical CPU runs next.
//!
//! Each CPU has a queue of its own: the vCPUs that are ready run in turn, a
//! time slice each; those that sleep wait for a post or for their timer. A
//! CPU with one vCPU has no slice to end and needs no timer of its own.
//!
//! vCPUs are named by their place in the CPU's list. Room for all of them is
//! made when they are admitted, so nothing here allocates afterwards.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// A vCPU's place in its CPU's list.
pub type Slot = usize;

#[derive(Clone, Copy, Debug)]
struct Sleeper {
    slot: Slot,
    deadline: Option<u64>,
}

/// The vCPUs of one CPU.
#[derive(Debug)]
pub struct Scheduler {
    ready: VecDeque<Slot>,
    sleepers: Vec<Sleeper>,
    slice: u64,
}

impl Scheduler {
    /// No vCPU yet; a time slice is `slice` ticks.
    #[must_use]
    pub const fn new(slice: u64) -> Self {
        Self {
            ready: VecDeque::new(),
            sleepers: Vec::new(),
            slice,
        }
    }

    /// A new vCPU, ready to run.
    pub fn admit(&mut self, slot: Slot) {
        self.ready.reserve(slot + 1);
        self.sleepers.reserve(slot + 1);
        self.ready.push_back(slot);
    }

    /// The vCPU that has run can go on: behind all that are ready.
    pub fn ready(&mut self, slot: Slot) {
        self.ready.push_back(slot);
    }

    /// The vCPU that has run sleeps, until `deadline` (in ticks) at most.
    pub fn sleep(&mut self, slot: Slot, deadline: Option<u64>) {
        self.sleepers.push(Sleeper { slot, deadline });
    }

    /// The vCPU to run now; the caller brings it back by `ready` or `sleep`,
    /// or forgets it.
    pub fn pick(&mut self) -> Option<Slot> {
        self.ready.pop_front()
    }

    /// Whether no other vCPU is on this CPU, next to the one that runs.
    #[must_use]
    pub fn alone(&self) -> bool {
        self.ready.is_empty() && self.sleepers.is_empty()
    }

    /// Makes the sleepers ready that `wakes` picks, which gets slot and
    /// whether the deadline has come at `now`.
    pub fn wake(&mut self, now: u64, mut wakes: impl FnMut(Slot, bool) -> bool) {
        let mut index = 0;
        while let Some(sleeper) = self.sleepers.get(index).copied() {
            let late = sleeper.deadline.is_some_and(|deadline| deadline <= now);
            if wakes(sleeper.slot, late) {
                self.sleepers.swap_remove(index);
                self.ready.push_back(sleeper.slot);
            } else {
                index += 1;
            }
        }
    }

    /// When this CPU must look again, in ticks: at the first deadline of a
    /// sleeper, and if another vCPU is ready, when the slice that begins
    /// `now` ends. `None` where nothing but a post can change anything.
    #[must_use]
    pub fn next_event(&self, now: u64) -> Option<u64> {
        let slice_end = (!self.ready.is_empty()).then(|| now.saturating_add(self.slice));
        let deadlines = self.sleepers.iter().filter_map(|sleeper| sleeper.deadline);
        deadlines.chain(slice_end).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(count: usize) -> Scheduler {
        let mut scheduler = Scheduler::new(100);
        (0..count).for_each(|slot| scheduler.admit(slot));
        scheduler
    }

    #[test]
    fn ready_ones_take_turns() {
        let mut scheduler = with(3);
        let mut order = Vec::new();
        for _ in 0..7 {
            let slot = scheduler.pick().unwrap();
            order.push(slot);
            scheduler.ready(slot);
        }
        assert_eq!(order, [0, 1, 2, 0, 1, 2, 0]);
    }

    #[test]
    fn one_alone_needs_no_timer() {
        let mut scheduler = with(1);
        assert_eq!(scheduler.pick(), Some(0));
        assert!(scheduler.alone());
        assert_eq!(scheduler.next_event(5), None);
        scheduler.sleep(0, None);
        assert_eq!((scheduler.pick(), scheduler.next_event(5)), (None, None));
    }

    #[test]
    fn slices_and_deadlines_whichever_comes_first() {
        let mut scheduler = with(3);
        scheduler.pick();
        assert_eq!(scheduler.next_event(1000), Some(1100));
        scheduler.sleep(0, Some(1050));
        assert_eq!(scheduler.pick(), Some(1));
        assert_eq!(scheduler.next_event(1000), Some(1050));
        assert_eq!(scheduler.next_event(900), Some(1000));
        assert_eq!(scheduler.pick(), Some(2));
        assert_eq!(scheduler.next_event(900), Some(1050));
        assert!(!scheduler.alone());
    }

    #[test]
    fn sleepers_wake_when_picked() {
        let mut scheduler = with(3);
        for (slot, deadline) in [(0, Some(10)), (1, None), (2, Some(30))] {
            scheduler.pick();
            scheduler.sleep(slot, deadline);
        }
        scheduler.wake(9, |_, late| late);
        assert_eq!(scheduler.pick(), None);
        scheduler.wake(10, |slot, late| late || slot == 1);
        assert_eq!(scheduler.next_event(0), Some(30));
        let mut woken = [scheduler.pick(), scheduler.pick()];
        woken.sort_unstable();
        assert_eq!(woken, [Some(0), Some(1)]);
        assert_eq!(scheduler.pick(), None);
    }

    #[test]
    fn nothing_allocates_after_admission() {
        let mut scheduler = with(128);
        let room = (scheduler.ready.capacity(), scheduler.sleepers.capacity());
        for round in 0..3 {
            while let Some(slot) = scheduler.pick() {
                scheduler.sleep(slot, Some(round));
            }
            scheduler.wake(round, |_, late| late);
        }
        assert_eq!(
            room,
            (scheduler.ready.capacity(), scheduler.sleepers.capacity())
        );
    }
}
