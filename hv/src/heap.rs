//! The hypervisor's own heap.
//!
//! A part of the image at first, so that the memory map can be read at all;
//! then some RAM on top. Nothing on an exit path allocates.

use buddy_system_allocator::Heap;
use core::alloc::{GlobalAlloc, Layout};
use core::ptr::NonNull;
use spin::Mutex;

/// Bytes of heap before RAM is known.
const FIRST_BYTES: usize = 1 << 20;

#[repr(align(16384))]
struct First([u8; FIRST_BYTES]);

static mut FIRST: First = First([0; FIRST_BYTES]);

struct Locked(Mutex<Heap<32>>);

/// Cleared by `_start` together with [`FIRST`]: the heap that the part for
/// firmware (`crate::efi`) has used is gone then. An initial value that isn't
/// zero wouldn't be accepted in that section.
#[global_allocator]
#[unsafe(link_section = ".bss.heap")]
static HEAP: Locked = Locked(Mutex::new(Heap::new()));

// SAFETY: the buddy allocator hands out disjoint blocks of the layout asked
// for, out of memory that `add` was given.
unsafe impl GlobalAlloc for Locked {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let block = self.0.lock().alloc(layout);
        block.map_or(core::ptr::null_mut(), NonNull::as_ptr)
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        if let Some(block) = NonNull::new(block) {
            // SAFETY: the caller got it from `alloc` with this layout.
            unsafe { self.0.lock().dealloc(block, layout) };
        }
    }
}

/// Begins the heap. Once, before the first allocation.
pub fn set_up() {
    // SAFETY: nothing else refers to FIRST.
    unsafe { add(&raw mut FIRST.0 as usize, FIRST_BYTES) };
}

/// Bytes that are in use.
pub fn in_use() -> usize {
    HEAP.0.lock().stats_alloc_actual()
}

/// Adds `bytes` bytes at `start`.
///
/// # Safety
/// The memory is valid, and nobody else's from now on.
pub unsafe fn add(start: usize, bytes: usize) {
    // SAFETY: the caller's duty, as documented.
    unsafe { HEAP.0.lock().add_to_heap(start, start + bytes) };
}
