//! A bus: which device an address belongs to.
//!
//! The same type serves guest physical addresses and IOCSR offsets. Windows
//! may not overlap; an address that is in none is nobody's.

use crate::mm::addr::{Gpa, IocsrAddr, overlap};
use alloc::vec::Vec;

/// An address that a bus can have.
pub trait BusAddress: Copy {
    /// The address as a number.
    fn value(self) -> u64;
}

impl BusAddress for Gpa {
    fn value(self) -> u64 {
        self.get()
    }
}

impl BusAddress for IocsrAddr {
    fn value(self) -> u64 {
        self.get()
    }
}

/// A device's window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Window<A, D> {
    base: A,
    bytes: u64,
    device: D,
}

/// A place in a device's window.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a, D> {
    /// The device.
    pub device: &'a D,
    /// Offset in its window.
    pub offset: u64,
    /// Bytes from there to the window's end, above 0.
    pub left: u64,
}

/// The window would overlap another one, ends beyond 2⁶⁴, or is empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Occupied;

/// Devices of type `D` by address of type `A`.
#[derive(Debug)]
pub struct Bus<A, D> {
    windows: Vec<Window<A, D>>,
}

impl<A, D> Default for Bus<A, D> {
    fn default() -> Self {
        let windows = Vec::new();
        Self { windows }
    }
}

impl<A: BusAddress, D> Bus<A, D> {
    /// Adds `device` in the `bytes` bytes from `base` on.
    ///
    /// # Errors
    /// [`Occupied`].
    pub fn add(&mut self, base: A, bytes: u64, device: D) -> Result<(), Occupied> {
        let taken = |w: &Window<A, D>| overlap(base.value(), bytes, w.base.value(), w.bytes);
        let end = base.value().checked_add(bytes);
        if bytes == 0 || end.is_none() || self.windows.iter().any(taken) {
            return Err(Occupied);
        }
        self.windows.push(Window {
            base,
            bytes,
            device,
        });
        Ok(())
    }

    /// The device that has all of the `bytes` bytes at `at`, and the offset
    /// in its window.
    #[inline]
    pub fn find(&self, at: A, bytes: u64) -> Option<(&D, u64)> {
        let place = self.place(at)?;
        (bytes <= place.left).then_some((place.device, place.offset))
    }

    /// What is at `at`.
    #[inline(always)]
    pub fn place(&self, at: A) -> Option<Place<'_, D>> {
        self.windows.iter().find_map(|window| {
            // Below the window it wraps to an offset beyond its end.
            let offset = at.value().wrapping_sub(window.base.value());
            let left = window.bytes.wrapping_sub(offset);
            (offset < window.bytes).then_some(Place {
                device: &window.device,
                offset,
                left,
            })
        })
    }

    /// Every device.
    pub fn devices(&self) -> impl Iterator<Item = &D> {
        self.windows.iter().map(|window| &window.device)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_lead_to_their_device_and_offset() {
        let mut bus = Bus::default();
        bus.add(Gpa::new(0x1000), 0x100, 'a').unwrap();
        bus.add(Gpa::new(0x1100), 0x10, 'b').unwrap();
        for (at, bytes, found) in [
            (0xfff, 1, None),
            (0xfff, 8, None),
            (0x1000, 8, Some(('a', 0))),
            (0x10f8, 8, Some(('a', 0xf8))),
            (0x10fc, 8, None),
            (0x1100, 1, Some(('b', 0))),
            (0x110f, 1, Some(('b', 15))),
            (0x1110, 1, None),
            (u64::MAX, 8, None),
        ] {
            let result = bus.find(Gpa::new(at), bytes).map(|(d, o)| (*d, o));
            assert_eq!(result, found, "{at:#x}");
        }
    }

    #[test]
    fn windows_do_not_overlap() {
        let mut bus = Bus::default();
        bus.add(IocsrAddr::new(0x1000), 0x100, ()).unwrap();
        for (base, bytes) in [(0x10ff, 1), (0xfff, 2), (0, u64::MAX), (0x1000, 0)] {
            assert_eq!(bus.add(IocsrAddr::new(base), bytes, ()), Err(Occupied));
        }
        assert_eq!(bus.add(IocsrAddr::new(0x1100), 1, ()), Ok(()));
        assert_eq!(bus.add(IocsrAddr::new(u64::MAX - 1), 2, ()), Err(Occupied));
        assert_eq!(bus.devices().count(), 2);
    }
}
