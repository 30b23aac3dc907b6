//! The physical ids that one hypercall reaches: a window of 128, which grows
//! in both directions as ids are added.
//!
//! Source of the rule: Linux, kernel/paravirt.c (`pv_send_ipi_mask`): an id
//! goes into the open window if that stays narrow enough; else the window is
//! sent, and the id opens the next one. Windows never look back.

use crate::abi::hypercall::IPI_SET_BITS;
use crate::cpu::PhysicalId;

/// Ids that lie less than 128 apart. Never empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    first: u32,
    last: u32,
    set: u128,
}

impl Window {
    /// A window with one id.
    #[must_use]
    pub const fn new(id: PhysicalId) -> Self {
        let id = id.number();
        Self {
            first: id,
            last: id,
            set: 1,
        }
    }

    /// Adds `id`, if the window stays narrow enough; whether it did.
    #[must_use]
    pub fn add(&mut self, id: PhysicalId) -> bool {
        let id = id.number();
        let (first, last) = (self.first.min(id), self.last.max(id));
        if last - first >= IPI_SET_BITS {
            return false;
        }
        self.set = self.set << (self.first - first) | 1 << (id - first);
        (self.first, self.last) = (first, last);
        true
    }

    /// The id that bit 0 of [`Window::set`] stands for: the smallest.
    #[must_use]
    pub const fn base(&self) -> u32 {
        self.first
    }

    /// The ids, relative to the base.
    #[must_use]
    pub const fn set(&self) -> u128 {
        self.set
    }

    /// The ids themselves, in rising order.
    pub fn ids(self) -> impl Iterator<Item = PhysicalId> {
        let offsets = (0..IPI_SET_BITS).filter(move |bit| self.set >> bit & 1 == 1);
        offsets.filter_map(move |bit| PhysicalId::new(self.first + bit))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn id(number: u32) -> PhysicalId {
        PhysicalId::new(number).unwrap()
    }

    fn grown(ids: &[u32]) -> Window {
        let mut window = Window::new(id(ids[0]));
        assert!(ids[1..].iter().all(|&next| window.add(id(next))));
        window
    }

    #[test]
    fn a_window_grows_upwards_to_128_ids() {
        let mut window = grown(&[400, 401, 527]);
        assert_eq!((window.base(), window.set()), (400, 1 << 127 | 3));
        assert!(!window.add(id(528)) && !window.add(id(399)));
        assert_eq!(window, grown(&[400, 401, 527]));
    }

    #[test]
    fn a_window_grows_downwards_to_128_ids() {
        let mut window = grown(&[527, 526, 400]);
        assert_eq!(
            (window.base(), window.set()),
            (400, 1 << 127 | 1 << 126 | 1)
        );
        assert!(!window.add(id(528)) && !window.add(id(399)));
    }

    #[test]
    fn a_window_grows_both_ways_and_fills_up_inside() {
        let window = grown(&[500, 400, 527, 450, 400]);
        assert_eq!(window.base(), 400);
        assert!(window.ids().eq([400, 450, 500, 527].map(id)));
    }

    #[test]
    fn the_ends_of_the_id_space_are_ids_like_others() {
        assert!(grown(&[0, 127]).ids().eq([0, 127].map(id)));
        assert!(grown(&[1023, 896]).ids().eq([896, 1023].map(id)));
    }
}
