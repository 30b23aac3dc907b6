//! The RAM of a VM: blocks from the frame allocator, as large as there are.

use crate::config::VmConfig;
use crate::mm::addr::{Hpa, PAGE_BYTES};
use crate::mm::guest_mem::{GuestRam, RamRegion};
use crate::mm::phys::Cached;
use crate::start::FRAMES;
use crate::vm::memory::{BLOCK_PAGES, RamFrames};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// Frames that go back to the allocator when they are dropped.
#[derive(Debug)]
pub struct Frames {
    parts: Vec<(Hpa, u64)>,
    /// The nodes that more of them are to come from.
    nodes: Vec<u32>,
}

impl Drop for Frames {
    fn drop(&mut self) {
        if let Some(frames) = FRAMES.lock().as_mut() {
            for &(at, pages) in &self.parts {
                frames.give(at, pages);
            }
        }
    }
}

impl Frames {
    /// Notes `pages` pages at `at`, a power of two, by blocks at most.
    fn note(&mut self, at: Hpa, pages: u64) {
        let step = pages.min(BLOCK_PAGES);
        let parts = (0..pages / step).map(|part| part * step * PAGE_BYTES);
        let parts = parts.filter_map(|offset| Some((at.checked_add(offset)?, step)));
        self.parts.extend(parts);
    }
}

impl RamFrames for Frames {
    fn give_block(&mut self, hpa: Hpa) {
        let block = (hpa, BLOCK_PAGES);
        let noted = self.parts.iter().position(|part| *part == block);
        if let Some(place) = noted
            && let Some(frames) = FRAMES.lock().as_mut()
        {
            frames.give(hpa, BLOCK_PAGES);
            self.parts.swap_remove(place);
        }
    }

    fn take_block(&mut self) -> Option<Hpa> {
        let mut frames = FRAMES.lock();
        let frames = frames.as_mut()?;
        let mut nodes = self.nodes.iter();
        let near = nodes.find_map(|&node| frames.take_of(node, BLOCK_PAGES));
        let hpa = near.or_else(|| frames.take(BLOCK_PAGES))?;
        self.parts.push((hpa, BLOCK_PAGES));
        Some(hpa)
    }
}

/// Takes RAM for a VM that runs on CPUs of these nodes, the first before the
/// others, in blocks as large as there are; what the VM sees of it is zero.
/// Where its nodes haven't enough, other nodes give the rest.
pub fn take(
    config: &VmConfig,
    nodes: &[u32],
    memory: &mut Cached,
) -> Result<(Frames, GuestRam), String> {
    let mut taken = Frames {
        parts: Vec::new(),
        nodes: nodes.to_vec(),
    };
    let mut regions = Vec::new();
    let mut far = 0;
    for (gpa, bytes) in config.ram() {
        let mut done = 0;
        while done < bytes {
            let left = (bytes - done) / PAGE_BYTES;
            let near = nodes.iter().find_map(|&node| take_block(left, Some(node)));
            let block = near.or_else(|| take_block(left, None));
            let (hpa, pages) = block.ok_or("out of RAM")?;
            taken.note(hpa, pages);
            let gpa = gpa.checked_add(done).ok_or("RAM beyond 64 bits")?;
            let bytes = pages * PAGE_BYTES;
            regions.push(RamRegion { gpa, hpa, bytes });
            done += bytes;
            far += if near.is_none() { bytes } else { 0 };
        }
    }
    report(
        config,
        nodes,
        far,
        regions.iter().map(|region| region.hpa).min(),
    );
    let ram = GuestRam::uncleared(regions, memory).map_err(|error| format!("{error:?}"))?;
    Ok((taken, ram))
}

/// Says where a VM's RAM is, on a machine with several nodes: `far` bytes of
/// it aren't on the VM's, and its lowest address is `lowest`.
fn report(config: &VmConfig, nodes: &[u32], far: u64, lowest: Option<Hpa>) {
    let several = FRAMES
        .lock()
        .as_ref()
        .map(|frames| frames.nodes().len() > 1);
    let name = &config.name;
    if far > 0 {
        let mib = far.div_ceil(1 << 20);
        log::warn!("VM {name}: {mib} MiB of its RAM aren't on its CPUs' nodes {nodes:?}");
    } else if let (Some(true), Some(lowest)) = (several, lowest) {
        log::info!("VM {name}: its RAM is on nodes {nodes:?}, from {lowest} on");
    }
}

/// The largest block of at most `left` pages that there is, on one node or
/// on any.
fn take_block(left: u64, node: Option<u32>) -> Option<(Hpa, u64)> {
    let mut frames = FRAMES.lock();
    let frames = frames.as_mut()?;
    let mut pages = 1 << left.checked_ilog2()?;
    while pages > 0 {
        let block = match node {
            Some(node) => frames.take_of(node, pages),
            None => frames.take(pages),
        };
        if let Some(hpa) = block {
            return Some((hpa, pages));
        }
        pages /= 2;
    }
    None
}
