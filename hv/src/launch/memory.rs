//! The RAM of a VM: blocks from the frame allocator, as large as there are.

use crate::config::VmConfig;
use crate::mm::addr::{Hpa, PAGE_BYTES};
use crate::mm::guest_mem::{GuestRam, RamRegion};
use crate::mm::phys::Cached;
use crate::start::FRAMES;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// Frames that go back to the allocator when they are dropped.
#[derive(Debug, Default)]
pub struct Frames(Vec<(Hpa, u64)>);

impl Drop for Frames {
    fn drop(&mut self) {
        if let Some(frames) = FRAMES.lock().as_mut() {
            for &(at, pages) in &self.0 {
                frames.give(at, pages);
            }
        }
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
    let mut taken = Frames::default();
    let mut regions = Vec::new();
    let mut far = 0;
    for (gpa, bytes) in config.ram() {
        let mut done = 0;
        while done < bytes {
            let left = (bytes - done) / PAGE_BYTES;
            let near = nodes.iter().find_map(|&node| take_block(left, Some(node)));
            let block = near.or_else(|| take_block(left, None));
            let (hpa, pages) = block.ok_or("out of RAM")?;
            taken.0.push((hpa, pages));
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
