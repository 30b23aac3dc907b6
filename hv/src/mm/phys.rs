//! Physical memory: the one place that touches it by address.
//!
//! Everything else reads and writes through [`PhysMem`], so that it runs on
//! the host over fake memory.

use super::addr::Hpa;

/// Physical memory that the caller has a right to: frames it took from the
/// allocator, or the RAM of a VM.
pub trait PhysMem {
    /// Copies from `at` on into `into`.
    fn read(&self, at: Hpa, into: &mut [u8]);
    /// Copies `from` to `at` and on.
    fn write(&mut self, at: Hpa, from: &[u8]);
    /// Sets `bytes` from `at` on to zero.
    fn zero(&mut self, at: Hpa, bytes: u64);
}

/// Memory that firmware's tables lie in, to be read where they are.
pub trait Pointed {
    /// Where the byte at `at` is seen.
    fn pointer(&self, at: Hpa) -> *const u8;

    /// Copies from `at` on into `into`.
    fn look(&self, at: Hpa, into: &mut [u8]) {
        let from = self.pointer(at);
        // SAFETY: whoever made the value vouches for what firmware's tables
        // name.
        unsafe { core::ptr::copy_nonoverlapping(from, into.as_mut_ptr(), into.len()) }
    }
}

/// Memory from address 0 on, for tests.
#[cfg(test)]
pub struct FakeMem(pub Vec<u8>);

#[cfg(test)]
impl FakeMem {
    fn range(at: Hpa, bytes: u64) -> core::ops::Range<usize> {
        let start = at.get() as usize;
        start..start + bytes as usize
    }
}

#[cfg(test)]
impl PhysMem for FakeMem {
    fn read(&self, at: Hpa, into: &mut [u8]) {
        into.copy_from_slice(&self.0[Self::range(at, into.len() as u64)]);
    }

    fn write(&mut self, at: Hpa, from: &[u8]) {
        self.0[Self::range(at, from.len() as u64)].copy_from_slice(from);
    }

    fn zero(&mut self, at: Hpa, bytes: u64) {
        self.0[Self::range(at, bytes)].fill(0);
    }
}

#[cfg(test)]
impl Pointed for FakeMem {
    fn pointer(&self, at: Hpa) -> *const u8 {
        &raw const self.0[at.get() as usize]
    }
}

#[cfg(target_arch = "loongarch64")]
pub use window::{Cached, FrameTables, Identity, cached, uncached};

#[cfg(target_arch = "loongarch64")]
mod window {
    use super::{Hpa, PhysMem, Pointed};
    use crate::mm::frame::FRAMES;
    use crate::mm::stage2::TableSource;

    /// Address bits 63:60 of the direct map window that is cached.
    const CACHED: u64 = 0x9000_0000_0000_0000;
    /// Address bits 63:60 of the direct map window for device registers.
    const UNCACHED: u64 = 0x8000_0000_0000_0000;

    /// The address in the cached window under which `hpa` is seen.
    #[must_use]
    pub const fn cached(hpa: Hpa) -> *mut u8 {
        (CACHED | hpa.get()) as *mut u8
    }

    /// The address in the uncached window under which `hpa` is seen.
    #[must_use]
    pub const fn uncached(hpa: Hpa) -> *mut u8 {
        (UNCACHED | hpa.get()) as *mut u8
    }

    /// The machine's RAM, through the cached window.
    #[derive(Clone, Copy, Debug)]
    pub struct Cached(());

    impl Cached {
        /// Access to all RAM.
        ///
        /// # Safety
        /// Whoever holds it reads and writes only memory that the frame
        /// allocator gave to it, or that no Rust object lies in.
        #[must_use]
        pub const unsafe fn new() -> Self {
            Self(())
        }
    }

    impl PhysMem for Cached {
        fn read(&self, at: Hpa, into: &mut [u8]) {
            // SAFETY: the creator of `Cached` vouches for the range; a guest
            // may write it at the same time, so the copy is of raw bytes.
            unsafe { core::ptr::copy_nonoverlapping(cached(at), into.as_mut_ptr(), into.len()) }
        }

        fn write(&mut self, at: Hpa, from: &[u8]) {
            // SAFETY: as in `read`.
            unsafe { crate::arch::memory::copy(from.as_ptr(), cached(at), from.len()) }
        }

        fn zero(&mut self, at: Hpa, bytes: u64) {
            // SAFETY: as in `read`.
            unsafe { crate::arch::memory::clear(cached(at), bytes as usize) }
        }
    }

    impl Pointed for Cached {
        fn pointer(&self, at: Hpa) -> *const u8 {
            cached(at)
        }
    }

    /// The machine's RAM where firmware sees it: at its physical addresses.
    #[derive(Clone, Copy, Debug)]
    pub struct Identity(());

    impl Identity {
        /// Access to all RAM, while firmware's boot services last.
        ///
        /// # Safety
        /// Whoever holds it only reads, and what firmware's tables name.
        #[must_use]
        pub const unsafe fn new() -> Self {
            Self(())
        }
    }

    impl Pointed for Identity {
        fn pointer(&self, at: Hpa) -> *const u8 {
            at.get() as *const u8
        }
    }

    /// Second-stage tables in frames of the machine, from this node's while it
    /// has any.
    #[derive(Debug)]
    pub struct FrameTables(Cached, u32);

    impl FrameTables {
        /// Tables that are reached through `memory`, on `node`.
        #[must_use]
        pub const fn new(memory: Cached, node: u32) -> Self {
            Self(memory, node)
        }
    }

    impl TableSource for FrameTables {
        fn take(&mut self, pages: u64) -> Option<Hpa> {
            let mut frames = FRAMES.lock();
            let frames = frames.as_mut()?;
            let near = frames.take_of(self.1, pages);
            near.or_else(|| frames.take(pages))
        }

        fn give(&mut self, table: Hpa, pages: u64) {
            if let Some(frames) = FRAMES.lock().as_mut() {
                frames.give(table, pages);
            }
        }

        fn read(&self, at: Hpa) -> u64 {
            // SAFETY: an aligned word of a table that `take` gave; a walk of
            // the hardware may read it at the same time.
            unsafe { cached(at).cast::<u64>().read_volatile() }
        }

        fn write(&mut self, at: Hpa, value: u64) {
            // SAFETY: as in `read`.
            unsafe { cached(at).cast::<u64>().write_volatile(value) }
        }
    }
}
