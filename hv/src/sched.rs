//! Which vCPU a physical CPU runs next.
//!
//! Each CPU has queues of its own. Those that are ready run in turn, a time
//! slice each; who loses its CPU before its slice is over goes on with the
//! rest of it, before the others. Who wakes goes in front of them all for a
//! short burst, so that an interrupt doesn't wait for the slices of vCPUs
//! that have nothing to do with it. A CPU with one vCPU has no slice to end
//! and needs no timer of its own.
//!
//! Nobody gets more than its share by waking. Each tick that a vCPU runs is
//! paid off in as many ticks as the CPU has vCPUs, n; one that wakes with
//! more than a burst unpaid takes its turn behind those that are ready. So
//! of any W ticks a vCPU has at most W / n and two bursts in front of others,
//! which leaves for the turns what bounds everybody's wait: see
//! [`Scheduler::longest_wait`]. One that runs no more than every n-th tick,
//! and no more than a burst at a time, waits for the bursts of others alone.
//!
//! vCPUs are named by their place in the CPU's list. Room for all of them is
//! made when they are admitted, so nothing here allocates afterwards.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// A vCPU's place in its CPU's list.
pub type Slot = usize;

/// Bursts in a time slice.
const BURSTS: u64 = 8;

#[derive(Clone, Copy, Debug)]
struct Sleeper {
    slot: Slot,
    deadline: Option<u64>,
}

/// What a vCPU has had and may have, in ticks.
#[derive(Clone, Copy, Debug, Default)]
struct Account {
    /// Left of its slice or burst.
    left: u64,
    /// When it woke, and how long it has run since.
    woke: u64,
    ran: u64,
    /// When all that it ran before is paid off.
    paid: u64,
}

/// What has become of the vCPU that got the CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// There is none, or it has left.
    Gone,
    Runs,
    /// It has given the CPU back and can go on.
    Ready,
    Sleeps,
}

/// The vCPU that has the CPU, or had it last.
#[derive(Clone, Copy, Debug)]
struct Turn {
    slot: Slot,
    since: u64,
    /// When its slice or burst is over.
    end: u64,
    /// It woke, and is in front of those that are ready.
    burst: bool,
    state: State,
}

/// The vCPUs of one CPU.
#[derive(Debug)]
pub struct Scheduler {
    woken: VecDeque<Slot>,
    ready: VecDeque<Slot>,
    sleepers: Vec<Sleeper>,
    accounts: Vec<Account>,
    turn: Turn,
    count: u64,
    slice: u64,
}

impl Scheduler {
    /// No vCPU yet, and room for `room`; a time slice is `slice` ticks.
    #[must_use]
    pub fn new(slice: u64, room: usize) -> Self {
        Self {
            woken: VecDeque::with_capacity(room),
            ready: VecDeque::with_capacity(room),
            sleepers: Vec::with_capacity(room),
            accounts: Vec::with_capacity(room),
            turn: Turn {
                slot: 0,
                since: 0,
                end: 0,
                burst: false,
                state: State::Gone,
            },
            count: 0,
            slice,
        }
    }

    /// A new vCPU: ready to run, or asleep until `begins` (in ticks).
    pub fn admit(&mut self, slot: Slot, begins: Option<u64>) {
        let room = slot + 1;
        self.woken.reserve(room);
        self.ready.reserve(room);
        self.sleepers.reserve(room);
        let all = room.max(self.accounts.len());
        self.accounts.resize(all, Account::default());
        if let Some(account) = self.accounts.get_mut(slot) {
            *account = Account::default();
            account.left = self.slice;
        }
        self.count += 1;
        match begins {
            None => self.ready.push_back(slot),
            deadline => self.sleepers.push(Sleeper { slot, deadline }),
        }
    }

    /// The vCPU that has the CPU gives it back and can go on.
    pub const fn ready(&mut self) {
        self.turn.state = State::Ready;
    }

    /// The vCPU that has the CPU sleeps, until `deadline` (in ticks) at most.
    pub fn sleep(&mut self, deadline: Option<u64>) {
        self.turn.state = State::Sleeps;
        let slot = self.turn.slot;
        self.sleepers.push(Sleeper { slot, deadline });
    }

    /// The vCPU that has the CPU leaves it.
    pub fn leave(&mut self) {
        self.turn.state = State::Gone;
        self.count = self.count.saturating_sub(1);
    }

    /// Whether the vCPU that has the CPU is its only one.
    #[must_use]
    pub const fn alone(&self) -> bool {
        self.count == 1
    }

    /// Makes the sleepers ready that `wakes` picks, which gets slot and
    /// whether the deadline has come at `now`.
    pub fn wake(&mut self, now: u64, mut wakes: impl FnMut(Slot, bool) -> bool) {
        if self.turn.state == State::Sleeps {
            self.turn.state = State::Gone;
            self.settle(now);
        }
        let mut index = 0;
        while let Some(sleeper) = self.sleepers.get(index).copied() {
            let late = sleeper.deadline.is_some_and(|deadline| deadline <= now);
            if wakes(sleeper.slot, late) {
                self.sleepers.swap_remove(index);
                self.woke(sleeper.slot, now);
            } else {
                index += 1;
            }
        }
    }

    /// Puts what a vCPU that has gone to sleep by `now` ran on its account:
    /// this can wait until then.
    fn settle(&mut self, now: u64) {
        let turn = self.turn;
        let (slice, burst, count) = (self.slice, self.burst(), self.count);
        let Some(account) = self.accounts.get_mut(turn.slot) else {
            return;
        };
        // No more is kept than a turn after a burst leaves unpaid: who had
        // an idle CPU to itself doesn't pay for that.
        let most = now.saturating_add(count * (slice + 2 * burst));
        let ran = account.ran.saturating_add(now.saturating_sub(turn.since));
        let since = account.paid.max(account.woke);
        account.paid = since.saturating_add(ran.saturating_mul(count)).min(most);
    }

    /// Queues one that has woken at `now`.
    fn woke(&mut self, slot: Slot, now: u64) {
        let burst = self.burst();
        let credit = now.saturating_add(self.count * burst);
        let Some(account) = self.accounts.get_mut(slot) else {
            return;
        };
        (account.woke, account.ran) = (now, 0);
        if account.paid <= credit {
            account.left = burst;
            self.woken.push_back(slot);
        } else {
            account.left = self.slice;
            self.ready.push_back(slot);
        }
    }

    const fn burst(&self) -> u64 {
        self.slice / BURSTS
    }

    /// The vCPU to run from `now` on, after [`Scheduler::wake`]; the caller
    /// says what becomes of it by `ready`, `sleep` or `leave`.
    pub fn pick(&mut self, now: u64) -> Option<Slot> {
        if self.turn.state == State::Ready {
            self.turn.state = State::Gone;
            self.put_back(now);
        }
        let (slot, burst) = match self.woken.pop_front() {
            Some(slot) => (slot, true),
            None => (self.ready.pop_front()?, false),
        };
        let left = self.accounts.get(slot).map_or(0, |account| account.left);
        self.turn = Turn {
            slot,
            since: now,
            end: now.saturating_add(left),
            burst,
            state: State::Runs,
        };
        Some(slot)
    }

    /// Queues a vCPU that has given the CPU back at `now`: to go on with what
    /// is left, or for a whole slice, behind all others.
    fn put_back(&mut self, now: u64) {
        let turn = self.turn;
        let Some(account) = self.accounts.get_mut(turn.slot) else {
            return;
        };
        account.ran = account.ran.wrapping_add(now.wrapping_sub(turn.since));
        if now >= turn.end {
            account.left = self.slice;
            self.ready.push_back(turn.slot);
            return;
        }
        account.left = turn.end - now;
        if turn.burst {
            self.woken.push_front(turn.slot);
        } else {
            self.ready.push_front(turn.slot);
        }
    }

    /// When this CPU must look again, in ticks: at the first deadline of a
    /// sleeper, and if another vCPU is ready, when the slice or burst of the
    /// picked one ends. `None` where nothing but a post can change anything.
    #[must_use]
    pub fn next_event(&self) -> Option<u64> {
        let others = !(self.ready.is_empty() && self.woken.is_empty());
        let ends = others && self.turn.state == State::Runs;
        let end = ends.then_some(self.turn.end);
        let deadlines = self.sleepers.iter().filter_map(|sleeper| sleeper.deadline);
        deadlines.chain(end).min()
    }

    /// The most ticks that a vCPU which is ready waits, as long as no CPU
    /// comes or goes. Of W ticks all others have at most
    /// (n - 1) (W / n + 2 bursts) in front of it, and a slice each before its turn.
    #[must_use]
    pub const fn longest_wait(&self) -> u64 {
        self.count * self.count.saturating_sub(1) * (self.slice + 2 * self.burst())
    }
}

#[cfg(test)]
mod tests;
