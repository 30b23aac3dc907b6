//! A queue of bytes of a fixed size.

/// Up to `N` bytes, first in first out. `N` is a power of two.
#[derive(Debug)]
pub struct Ring<const N: usize> {
    bytes: [u8; N],
    first: usize,
    used: usize,
}

impl<const N: usize> Default for Ring<N> {
    fn default() -> Self {
        const { assert!(N.is_power_of_two()) };
        Self {
            bytes: [0; N],
            first: 0,
            used: 0,
        }
    }
}

impl<const N: usize> Ring<N> {
    /// How many bytes are in it.
    pub const fn len(&self) -> usize {
        self.used
    }

    /// Puts `byte` in; false where there is no room.
    pub fn push(&mut self, byte: u8) -> bool {
        let place = self.bytes.get_mut((self.first + self.used) % N);
        let Some(place) = place.filter(|_| self.used < N) else {
            return false;
        };
        *place = byte;
        self.used += 1;
        true
    }

    /// Takes the oldest byte out.
    pub fn pop(&mut self) -> Option<u8> {
        let used = self.used.checked_sub(1)?;
        let byte = self.bytes.get(self.first).copied();
        self.first = (self.first + 1) % N;
        self.used = used;
        byte
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_is_kept_and_nothing_is_overwritten() {
        let mut ring = Ring::<4>::default();
        for round in 0..10u8 {
            assert!((0..4).all(|index| ring.push(round * 4 + index)));
            assert!(!ring.push(0xff));
            assert_eq!(ring.len(), 4);
            for index in 0..3 {
                assert_eq!(ring.pop(), Some(round * 4 + index));
            }
            assert!(ring.push(0xee));
            assert_eq!(ring.pop(), Some(round * 4 + 3));
            assert_eq!(ring.pop(), Some(0xee));
            assert_eq!((ring.pop(), ring.len()), (None, 0));
        }
    }
}
