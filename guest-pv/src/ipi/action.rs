//! What is wanted of a CPU.

/// One thing that can be wanted of a CPU, by number. Only [`Action::BOOT`]
/// has a meaning of its own, the others are the kernel's to give.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Action(u8);

impl Action {
    /// To start: always sent natively, for a CPU that hasn't started has no
    /// SWI0 handler.
    pub const BOOT: Self = Self(0);

    /// The action `number`, 0 to 31: as many as IPI vectors.
    #[must_use]
    pub const fn new(number: u32) -> Option<Self> {
        if number < u32::BITS {
            Some(Self(number as u8))
        } else {
            None
        }
    }

    /// Its number, also that of its native IPI vector.
    #[must_use]
    pub const fn number(self) -> u32 {
        self.0 as u32
    }

    /// Its bit in a message word.
    pub(crate) const fn bit(self) -> u32 {
        1 << self.0
    }
}

/// A set of actions. Iterating gives them in the order of their numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use = "what was wanted is lost"]
pub struct Actions(u32);

impl Actions {
    /// No action.
    pub const NONE: Self = Self(0);

    /// The actions whose bits are set in `bits`.
    pub const fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    /// A bit for each action.
    #[must_use]
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// Whether there is none.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether `action` is among them.
    #[must_use]
    pub const fn contains(self, action: Action) -> bool {
        self.0 & action.bit() != 0
    }

    /// Those of both.
    pub const fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl IntoIterator for Actions {
    type Item = Action;
    type IntoIter = Iter;

    fn into_iter(self) -> Iter {
        Iter(self)
    }
}

/// The actions of a set, in the order of their numbers.
#[derive(Clone, Debug)]
pub struct Iter(Actions);

impl Iterator for Iter {
    type Item = Action;

    fn next(&mut self) -> Option<Action> {
        let action = Action::new(self.0.0.trailing_zeros())?;
        self.0.0 &= !action.bit();
        Some(action)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn actions_are_numbered_from_0_to_31() {
        assert_eq!(Action::new(0), Some(Action::BOOT));
        assert_eq!(Action::new(31).unwrap().bit(), 1 << 31);
        assert_eq!(Action::new(32), None);
    }

    #[test]
    fn a_set_gives_each_action_once() {
        let actions = Actions::from_bits(1 << 31 | 1 << 4 | 1);
        assert!(actions.into_iter().map(Action::number).eq([0, 4, 31]));
        assert!(actions.contains(Action::BOOT) && !actions.is_empty());
        assert_eq!(Actions::NONE.into_iter().next(), None);
        assert_eq!(actions.or(Actions::from_bits(2)).bits(), 0x8000_0013);
    }
}
