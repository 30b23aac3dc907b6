//! Memory set aside for each CPU: page tables and data pages.

use super::table::Pool;
use crate::machine::{MAX_CPUS, cached, phys_of, smp};
use core::cell::UnsafeCell;

/// Bytes of a data page, and the largest table.
pub const PAGE: u64 = 16 << 10;
/// Tables a CPU.
const TABLES: usize = 96;
/// Data pages a CPU.
pub const PAGES: usize = 32;

type Page = [u64; PAGE as usize / 8];

#[repr(C, align(16384))]
struct Arena {
    tables: [UnsafeCell<Page>; TABLES],
    pages: [UnsafeCell<Page>; PAGES],
}

// SAFETY: a CPU touches only the arena of its own index (`page_of` gives
// addresses of others', which are accessed with volatile accesses only).
unsafe impl Sync for Arena {}

static ARENAS: [Arena; MAX_CPUS] = [const {
    Arena {
        tables: [const { UnsafeCell::new([0; PAGE as usize / 8]) }; TABLES],
        pages: [const { UnsafeCell::new([0; PAGE as usize / 8]) }; PAGES],
    }
}; MAX_CPUS];

/// The tables of this CPU; a new one forgets all tables given before.
pub struct Tables {
    used: u64,
}

impl Tables {
    /// All of them free.
    pub const fn new() -> Tables {
        Tables { used: 0 }
    }
}

impl Pool for Tables {
    fn table(&mut self, bytes: u64) -> &'static mut [u64] {
        assert!(bytes <= PAGE && bytes.is_power_of_two());
        let start = self.used.next_multiple_of(bytes);
        self.used = start + bytes;
        assert!(self.used <= TABLES as u64 * PAGE, "out of page tables");
        let base = ARENAS[smp::this_cpu()].tables.as_ptr() as *mut u64;
        // SAFETY: a range of this CPU's tables that this pool gives out only
        // once. An older pool's ranges are dead: a check makes one pool.
        let table = unsafe {
            core::slice::from_raw_parts_mut(base.add(start as usize / 8), bytes as usize / 8)
        };
        table.fill(0);
        table
    }
}

/// Physical address of data page `n` (below [`PAGES`]) of CPU `cpu`.
pub fn page_of(cpu: usize, n: usize) -> u64 {
    phys_of(ARENAS[cpu].pages[n].get())
}

/// Physical address of data page `n` of this CPU.
pub fn page(n: usize) -> u64 {
    page_of(smp::this_cpu(), n)
}

/// Reads 64 bits at a physical address in a data page.
pub fn load(phys: u64) -> u64 {
    // SAFETY: data pages are RAM in the cached window that Rust holds no
    // reference to; volatile, since guests and other CPUs write there.
    unsafe { (cached(phys) as *const u64).read_volatile() }
}

/// Writes 64 bits at a physical address in a data page.
pub fn store(phys: u64, value: u64) {
    // SAFETY: as in `load`.
    unsafe { (cached(phys) as *mut u64).write_volatile(value) }
}
