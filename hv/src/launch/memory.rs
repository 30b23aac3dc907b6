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

/// Takes RAM for a VM, in blocks as large as there are; what the VM sees of
/// it is zero.
pub fn take(config: &VmConfig, memory: &mut Cached) -> Result<(Frames, GuestRam), String> {
    let mut taken = Frames::default();
    let mut regions = Vec::new();
    for (gpa, bytes) in config.ram() {
        let mut done = 0;
        while done < bytes {
            let left = (bytes - done) / PAGE_BYTES;
            let (hpa, pages) = take_block(left).ok_or("out of RAM")?;
            taken.0.push((hpa, pages));
            let gpa = gpa.checked_add(done).ok_or("RAM beyond 64 bits")?;
            let bytes = pages * PAGE_BYTES;
            regions.push(RamRegion { gpa, hpa, bytes });
            done += bytes;
        }
    }
    let ram = GuestRam::uncleared(regions, memory).map_err(|error| format!("{error:?}"))?;
    Ok((taken, ram))
}

/// The largest block of at most `left` pages that there is.
fn take_block(left: u64) -> Option<(Hpa, u64)> {
    let mut frames = FRAMES.lock();
    let frames = frames.as_mut()?;
    let mut pages = 1 << left.checked_ilog2()?;
    while pages > 0 {
        if let Some(hpa) = frames.take(pages) {
            return Some((hpa, pages));
        }
        pages /= 2;
    }
    None
}
