//! The RAM of a VM: blocks from the frame allocator, as large as there are.

use crate::config::VmConfig;
use crate::mm::addr::{Hpa, PAGE_BYTES};
use crate::mm::frame;
use crate::mm::guest_mem::{GuestRam, RamRegion};
use crate::mm::phys::PhysMem;
use crate::vm::memory::{BLOCK_PAGES, RamFrames};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use spin::Mutex;

/// The machine's free frames, once they are known.
pub type Source = Mutex<Option<frame::Frames>>;

/// Where a block is, and its pages.
type Block = (Hpa, u64);

/// Frames that go back to their source when they are dropped.
pub struct Frames {
    source: &'static Source,
    parts: Vec<Block>,
    /// The nodes that more of them are to come from.
    nodes: Vec<u32>,
}

impl fmt::Debug for Frames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.parts).finish()
    }
}

impl Drop for Frames {
    fn drop(&mut self) {
        if let Some(frames) = self.source.lock().as_mut() {
            for &(at, pages) in &self.parts {
                frames.give(at, pages);
            }
        }
    }
}

impl Frames {
    /// Notes `pages` pages at `at`, a power of two, by blocks at most; false
    /// where the heap has no room for that.
    fn note(&mut self, at: Hpa, pages: u64) -> bool {
        let step = pages.min(BLOCK_PAGES);
        if self.parts.try_reserve((pages / step) as usize).is_err() {
            return false;
        }
        let parts = (0..pages / step).map(|part| part * step * PAGE_BYTES);
        let parts = parts.filter_map(|offset| Some((at.checked_add(offset)?, step)));
        self.parts.extend(parts);
        true
    }

    /// Takes a block of the first of `sizes`, in pages, that there is on one
    /// of its nodes, or else on any; whether it is on another node, too.
    fn find(&self, sizes: impl Iterator<Item = u64> + Clone) -> Option<(Block, bool)> {
        let mut frames = self.source.lock();
        let frames = frames.as_mut()?;
        let near = self.nodes.iter().find_map(|&node| {
            let mut sizes = sizes.clone();
            sizes.find_map(|pages| Some((frames.take_of(node, pages)?, pages)))
        });
        let any = |pages| Some((frames.take(pages)?, pages));
        let block = near.or_else(|| sizes.clone().find_map(any))?;
        Some((block, near.is_none()))
    }

    /// Takes the largest block of at most `left` pages that there is; whether
    /// it is on another node, too.
    fn take(&mut self, left: u64) -> Result<(Block, bool), &'static str> {
        let orders = 0..left.checked_ilog2().map_or(0, |order| order + 1);
        let found = self.find(orders.rev().map(|order| 1 << order));
        // No lock is held: the heap may have to grow, which takes frames too.
        let ((hpa, pages), elsewhere) = found.ok_or(OUT_OF_RAM)?;
        if self.note(hpa, pages) {
            return Ok(((hpa, pages), elsewhere));
        }
        if let Some(frames) = self.source.lock().as_mut() {
            frames.give(hpa, pages);
        }
        Err(OUT_OF_HEAP)
    }
}

/// Why there is no VM.
const OUT_OF_RAM: &str = "out of RAM";
/// See [`OUT_OF_RAM`].
const OUT_OF_HEAP: &str = "no heap left for what is noted of its RAM";

impl RamFrames for Frames {
    fn give_block(&mut self, hpa: Hpa) {
        let block = (hpa, BLOCK_PAGES);
        let noted = self.parts.iter().position(|part| *part == block);
        if let Some(place) = noted
            && let Some(frames) = self.source.lock().as_mut()
        {
            frames.give(hpa, BLOCK_PAGES);
            self.parts.swap_remove(place);
        }
    }

    fn take_block(&mut self) -> Option<Hpa> {
        let (block, _) = self.find(core::iter::once(BLOCK_PAGES))?;
        self.parts.push(block);
        Some(block.0)
    }
}

/// Takes RAM for a VM that runs on CPUs of these nodes, the first before the
/// others, in blocks as large as there are; what the VM sees of it is zero.
/// Where its nodes haven't enough, other nodes give the rest.
///
/// # Errors
/// What there isn't enough of; `source` has all of its frames again.
pub fn take(
    config: &VmConfig,
    nodes: &[u32],
    source: &'static Source,
    memory: &mut impl PhysMem,
) -> Result<(Frames, GuestRam), String> {
    let mut taken = Frames {
        source,
        parts: Vec::new(),
        nodes: nodes.to_vec(),
    };
    let mut regions = Vec::new();
    let mut far = 0;
    for (gpa, bytes) in config.ram() {
        let mut done = 0;
        while done < bytes {
            let ((hpa, pages), elsewhere) = taken.take((bytes - done) / PAGE_BYTES)?;
            let gpa = gpa.checked_add(done).ok_or("RAM beyond 64 bits")?;
            let bytes = pages * PAGE_BYTES;
            regions.try_reserve(1).map_err(|_| OUT_OF_HEAP)?;
            regions.push(RamRegion { gpa, hpa, bytes });
            done += bytes;
            far += if elsewhere { bytes } else { 0 };
        }
    }
    let lowest = regions.iter().map(|region| region.hpa).min();
    taken.report(&config.name, far, lowest);
    let ram = GuestRam::uncleared(regions, memory).map_err(|error| format!("{error:?}"))?;
    Ok((taken, ram))
}

impl Frames {
    /// Says where the RAM of the VM called `name` is, on a machine with
    /// several nodes: `far` bytes of it aren't on the VM's, and its lowest
    /// address is `lowest`.
    fn report(&self, name: &str, far: u64, lowest: Option<Hpa>) {
        let frames = self.source.lock();
        let several = frames.as_ref().map(|frames| frames.nodes().len() > 1);
        let nodes = &self.nodes;
        drop(frames);
        if far > 0 {
            let mib = far.div_ceil(1 << 20);
            log::warn!("VM {name}: {mib} MiB of its RAM aren't on its CPUs' nodes {nodes:?}");
        } else if let (Some(true), Some(lowest)) = (several, lowest) {
            log::info!("VM {name}: its RAM is on nodes {nodes:?}, from {lowest} on");
        }
    }
}

#[cfg(test)]
mod tests;
