//! The end of firmware's boot services, and what is left for `_start`.
//!
//! Source: UEFI Specification 2.10, section 7.4.6 (ExitBootServices): where
//! the memory map has changed meanwhile, it is read again; nothing else of
//! the boot services may be used from the first attempt on.

use super::firmware::Firmware;
use super::refusal::Refusal;
use super::{Found, start};
use crate::platform::efi::{MAP_HEADER_BYTES, guid};
use core::ptr::null_mut;
use uefi_raw::Status;
use uefi_raw::table::boot::MemoryDescriptor;

/// Room for as many descriptors more than there were: each table that is
/// published and the map's own memory may add some.
const SPARE: usize = 64;
/// How often firmware may change the map under our hands.
const ATTEMPTS: u32 = 16;

/// All that is ready, but for the memory map.
pub struct Handover {
    /// struct efi_boot_memmap, and room for its descriptors.
    map: &'static mut [u8],
    options: &'static [u8],
}

/// Publishes what was found.
///
/// # Errors
/// There is no memory for it.
pub fn prepare(firmware: &Firmware, found: &Found) -> Result<Handover, Refusal> {
    let initrd = [found.bundle.as_ptr() as u64, found.bundle.len() as u64];
    publish(firmware, &guid::INITRD, &initrd)?;
    if let Some(moment) = found.moment {
        publish(
            firmware,
            &guid::MOMENT,
            &[moment.seconds as u64, moment.ticks],
        )?;
    }
    if let Some(seed) = found.seed {
        firmware.publish(&guid::RANDOM_SEED, seed)?;
    }
    let Sizes {
        map, descriptor, ..
    } = sizes(firmware, &mut []);
    let room = MAP_HEADER_BYTES as usize + map + SPARE * descriptor;
    let map = firmware.allocate(room)?;
    // SAFETY: what was allocated stays; `go` alone writes it, before anyone
    // reads it.
    let table = unsafe { core::slice::from_raw_parts(map.as_ptr(), map.len()) };
    firmware.publish(&guid::MEMORY_MAP, table)?;
    Ok(Handover {
        map,
        options: found.options,
    })
}

/// Publishes a table of these words.
fn publish(firmware: &Firmware, guid: &[u8; 16], words: &[u64]) -> Result<(), Refusal> {
    let table = firmware.allocate(size_of_val(words))?;
    for (to, word) in table.chunks_exact_mut(8).zip(words) {
        to.copy_from_slice(&word.to_le_bytes());
    }
    firmware.publish(guid, table)
}

/// The memory map's measures.
struct Sizes {
    status: Status,
    /// Bytes of all descriptors.
    map: usize,
    /// Bytes of one.
    descriptor: usize,
    version: u32,
    key: usize,
}

/// Reads the memory map into `into`; where that is too small, only its size.
fn sizes(firmware: &Firmware, into: &mut [u8]) -> Sizes {
    let mut sizes = Sizes {
        status: Status::SUCCESS,
        map: into.len(),
        descriptor: 0,
        version: 0,
        key: 0,
    };
    let at = if into.is_empty() {
        null_mut()
    } else {
        into.as_mut_ptr()
    };
    // SAFETY: firmware writes no more than `map` says, and four numbers.
    sizes.status = unsafe {
        (firmware.boot().get_memory_map)(
            &raw mut sizes.map,
            at.cast::<MemoryDescriptor>(),
            &raw mut sizes.key,
            &raw mut sizes.descriptor,
            &raw mut sizes.version,
        )
    };
    sizes
}

impl Handover {
    /// Ends boot services and starts the hypervisor; comes back where
    /// firmware doesn't let it.
    pub fn go(self, firmware: &Firmware) -> Refusal {
        let Some((header, descriptors)) = self.map.split_at_mut_checked(MAP_HEADER_BYTES as usize)
        else {
            return Refusal::Failed("the memory map", Status::BAD_BUFFER_SIZE);
        };
        let mut status = Status::ABORTED;
        for _ in 0..ATTEMPTS {
            let found = sizes(firmware, descriptors);
            if found.status != Status::SUCCESS {
                return Refusal::Failed("the memory map", found.status);
            }
            // struct efi_boot_memmap: map_size, desc_size, desc_ver.
            let words = [
                found.map as u64,
                found.descriptor as u64,
                u64::from(found.version),
            ];
            for (to, word) in header.chunks_exact_mut(8).zip(words) {
                to.copy_from_slice(&word.to_le_bytes());
            }
            // SAFETY: nothing of firmware's is used any more if it succeeds.
            status = unsafe { (firmware.boot().exit_boot_services)(firmware.image(), found.key) };
            match status {
                Status::SUCCESS => start(self.options, firmware.system_table()),
                Status::INVALID_PARAMETER => {}
                _ => break,
            }
        }
        Refusal::Failed("firmware doesn't end its boot services", status)
    }
}
