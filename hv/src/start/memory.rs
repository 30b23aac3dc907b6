//! The machine's RAM: what nobody has taken goes to the frame allocator.

use super::refuse;
use crate::arch::{boot, cpu};
use crate::heap;
use crate::mm::addr::PAGE_BYTES;
use crate::mm::frame::{FRAMES, Frames, Range, free_ranges};
use crate::mm::phys::cached;
use crate::platform::efi::Tables;
use crate::platform::machine::Machine;
use alloc::vec::Vec;

/// Pages that the heap gets out of RAM: 16 MiB.
const HEAP_PAGES: u64 = (16 << 20) / PAGE_BYTES;

/// Pages that no VM gets, but the heap when it grows: 8 MiB. All that one VM
/// takes of it, whatever its configuration, is less.
const KEPT_PAGES: u64 = (8 << 20) / PAGE_BYTES;

/// Gives all RAM that nobody has taken to the frame allocator, and some of
/// it to the heap.
pub fn set_up(machine: &Machine, tables: &Tables) {
    let ram = if tables.ram.is_empty() {
        &machine.ram
    } else {
        &tables.ram
    };
    let mut frames = Frames::default();
    frames.add(&free_ranges(ram, &taken(machine, tables)), &machine.nodes);
    let Some(block) = frames.take(HEAP_PAGES) else {
        refuse("less than 16 MiB of RAM in one piece")
    };
    // SAFETY: the allocator gave the block, and it is never given back.
    unsafe { heap::add(cached(block) as usize, (HEAP_PAGES * PAGE_BYTES) as usize) };
    frames.keep(KEPT_PAGES);
    log::info!("{} MiB of RAM free", (frames.to_take() * PAGE_BYTES) >> 20);
    *FRAMES.lock() = Some(frames);
}

/// Gives the allocator what firmware's boot services have left: no CPU runs
/// their code any more.
pub fn add_left(machine: &Machine, tables: &Tables) {
    let mut taken = taken(machine, tables);
    taken.extend(&tables.ram);
    let left = free_ranges(&tables.left, &taken);
    if let Some(frames) = FRAMES.lock().as_mut() {
        frames.add(&left, &machine.nodes);
    }
}

/// What is someone's already.
fn taken(machine: &Machine, tables: &Tables) -> Vec<Range> {
    let (start, end) = boot::image();
    // Without a map of firmware's, the command line and firmware's tables are
    // below the image.
    let below = if tables.ram.is_empty() { 0 } else { start };
    let mut taken = alloc::vec![Range::new(below, end)];
    taken.extend(&machine.reserved);
    taken.extend(&machine.ecam);
    taken.extend(tables.initrd);
    taken.extend(&tables.held);
    // No address has more bits than the processor's.
    taken.push(Range::new(1 << cpu::physical_bits(), u64::MAX));
    taken
}
