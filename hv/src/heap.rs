//! The hypervisor's own heap.
//!
//! A part of the image at first, so that the memory map can be read at all;
//! then some RAM on top, and more of it where that doesn't do: what VMs leave
//! ([`Frames::keep`]). It doesn't shrink. Nothing on an exit path allocates.
//!
//! The frames' own book-keeping allocates while they are locked, when no RAM
//! can be had: so the heap grows before it is quite full.
//!
//! [`Frames::keep`]: crate::mm::frame::Frames::keep

use crate::mm::addr::PAGE_BYTES;
use crate::mm::frame::FRAMES;
use crate::mm::phys::cached;
use buddy_system_allocator::Heap;
use core::alloc::{GlobalAlloc, Layout};
use core::ptr::NonNull;
use spin::Mutex;

/// Bytes of heap before RAM is known.
const FIRST_BYTES: usize = 1 << 20;

/// Bytes that are left for the frames' own book-keeping.
const LEFT_BYTES: usize = 256 << 10;
/// Bytes that it grows by at least.
const GROWTH_BYTES: usize = 1 << 20;

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
        let mut block = self.alloc(layout);
        if block.is_none() || self.left() < LEFT_BYTES {
            grow(layout);
            block = block.or_else(|| self.alloc(layout));
        }
        block.map_or(core::ptr::null_mut(), NonNull::as_ptr)
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        if let Some(block) = NonNull::new(block) {
            // SAFETY: the caller got it from `alloc` with this layout.
            unsafe { self.0.lock().dealloc(block, layout) };
        }
    }
}

impl Locked {
    fn alloc(&self, layout: Layout) -> Option<NonNull<u8>> {
        self.0.lock().alloc(layout).ok()
    }

    /// Bytes that aren't in use.
    fn left(&self) -> usize {
        let heap = self.0.lock();
        heap.stats_total_bytes() - heap.stats_alloc_actual()
    }
}

/// Adds RAM, enough for an allocation like `layout` if there is; none while
/// the frames are locked.
#[cold]
fn grow(layout: Layout) {
    let bytes = layout.size().max(layout.align()).max(GROWTH_BYTES);
    let pages = (bytes as u64).div_ceil(PAGE_BYTES).next_power_of_two();
    let block = FRAMES
        .try_lock()
        .and_then(|mut frames| frames.as_mut()?.take_kept(pages));
    if let Some(block) = block {
        // SAFETY: the allocator gave the block, and it is never given back.
        unsafe { add(cached(block) as usize, (pages * PAGE_BYTES) as usize) };
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
