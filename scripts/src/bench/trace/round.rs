//! A round of tests/wake: from one of its marks to the next.
//!
//! What is counted of it doesn't hang on where a tick of the timer happens to fall: each
//! CPU counts from the mark until it sleeps again. Sleepers have no tick left by then:
//! the pause before a round is longer than one.

use std::collections::BTreeMap;

use super::{Exits, add};

/// What a round took.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Round {
    /// Exits until each CPU sleeps again.
    pub exits: Exits,
    /// The hypervisor's instructions until then, by the reason of the exit.
    pub instructions: Exits,
    /// Exits of the CPU that wakes, until all are woken.
    pub waker_exits: u64,
    /// The least instructions of that CPU from one exit to the next until then, the guest's
    /// and the hypervisor's: what a wake takes of who wakes.
    pub send_instructions: Option<u64>,
}

/// How often the CPU that wakes goes to sleep: when it waits for the answer, and after it.
const WAKER_SLEEPS: u32 = 2;

/// A round that isn't over.
#[derive(Debug, Default)]
pub struct Open {
    round: Round,
    waker: u32,
    /// What the waker had executed at its last exit.
    sent: Option<u64>,
    /// All are woken.
    woken: bool,
    /// How often each CPU has gone to sleep.
    slept: BTreeMap<u32, u32>,
}

impl Open {
    /// Begins at the mark of the CPU `waker`.
    pub fn new(waker: u32) -> Self {
        Self {
            waker,
            ..Self::default()
        }
    }

    /// All are woken.
    pub fn woken(&mut self) {
        self.woken = true;
    }

    /// The CPU `cpu`, which has executed `instructions`, leaves the guest.
    pub fn exit(&mut self, cpu: u32, instructions: u64, reason: &str) {
        if !self.awake(cpu) {
            return;
        }
        add(&mut self.round.exits, reason, 1);
        if cpu == self.waker && !self.woken {
            self.sends(instructions);
        }
        if reason == "idle" {
            *self.slept.entry(cpu).or_default() += 1;
        }
    }

    /// The CPU that wakes leaves the guest while it does so.
    fn sends(&mut self, instructions: u64) {
        let round = &mut self.round;
        round.waker_exits += 1;
        let before = self.sent.replace(instructions);
        let spent = before.map(|before| instructions.saturating_sub(before));
        let least = round.send_instructions.into_iter().chain(spent).min();
        round.send_instructions = least;
    }

    /// The CPU `cpu` enters the guest, `instructions` after an exit for `reason`.
    pub fn enter(&mut self, cpu: u32, reason: &str, instructions: u64) {
        if self.awake(cpu) {
            add(&mut self.round.instructions, reason, instructions);
        }
    }

    /// It is over.
    pub fn end(self) -> Round {
        self.round
    }

    /// Whether the CPU hasn't gone to sleep for good.
    fn awake(&self, cpu: u32) -> bool {
        let most = if cpu == self.waker { WAKER_SLEEPS } else { 1 };
        self.slept.get(&cpu).copied().unwrap_or(0) < most
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_after_a_cpu_sleeps_is_not_of_the_round() {
        let mut open = Open::new(0);
        for executed in [1000, 2300, 3500] {
            open.exit(0, executed, "hypercall");
            open.enter(0, "hypercall", 60);
        }
        open.woken();
        open.enter(1, "idle", 400);
        for cpu in [0, 1, 1, 0, 0] {
            open.exit(cpu, 4000, "idle");
            open.enter(cpu, "idle", 10);
        }
        let round = open.end();
        let exits = [("hypercall", 3), ("idle", 3)];
        assert_eq!(
            round.exits,
            exits.map(|(name, n)| (name.to_owned(), n)).into()
        );
        // The waker's first sleep, and the other's, which began before the round.
        assert_eq!(round.instructions["idle"], 410);
        assert_eq!(round.instructions["hypercall"], 180);
        assert_eq!(
            (round.waker_exits, round.send_instructions),
            (3, Some(1200))
        );
    }
}
