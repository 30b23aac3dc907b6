//! The EFI system table, as a loader leaves it after boot services ended.
//!
//! Only its configuration tables matter: where the device tree is, where the
//! initrd is, and firmware's memory map.
//!
//! Sources: UEFI Specification 2.10, sections 4.3 and 7.2.3 (layouts);
//! Linux, include/linux/efi.h (the LINUX_EFI_… tables).

use crate::mm::addr::Hpa;
use crate::mm::frame::Range;
use crate::mm::phys::Pointed;
use alloc::string::String;
use alloc::vec::Vec;

/// "IBI SYST".
const SIGNATURE: u64 = 0x5453_5953_2049_4249;
/// Offset of the number of configuration tables.
const TABLE_COUNT: u64 = 104;
/// Offset of the address of the configuration tables.
const TABLES: u64 = 112;
/// Bytes of an entry: GUID and address.
const ENTRY_BYTES: u64 = 24;
/// More entries than any firmware has: the rest is ignored.
const MAX_ENTRIES: u64 = 256;

/// Names of configuration tables, as they lie in memory.
pub mod guid {
    use uefi_raw::guid;

    /// DEVICE_TREE_GUID.
    pub const DEVICE_TREE: [u8; 16] = guid!("b1b621d5-f19c-41a5-830b-d9152c69aae0").to_bytes();
    /// LINUX_EFI_INITRD_MEDIA_GUID.
    pub const INITRD: [u8; 16] = guid!("5568e427-68fc-4f3d-ac74-ca555231cc68").to_bytes();
    /// EFI_ACPI_20_TABLE_GUID.
    pub const ACPI: [u8; 16] = guid!("8868e871-e4f1-11d3-bc22-0080c73c8881").to_bytes();
    /// The hypervisor's own: a [`super::Moment`].
    pub const MOMENT: [u8; 16] = guid!("3c5000a7-8ad6-4b0e-9d8e-5b1f3f6c2d10").to_bytes();
    /// LINUX_EFI_BOOT_MEMMAP_GUID.
    pub const MEMORY_MAP: [u8; 16] = guid!("800f683f-d08b-423a-a293-965c3c6fe2b4").to_bytes();
    /// LINUX_EFI_RANDOM_SEED_TABLE_GUID.
    pub const RANDOM_SEED: [u8; 16] = guid!("1ce1e5bc-7ceb-42f2-81e5-8aadf180f57b").to_bytes();
}

/// Bytes of struct efi_boot_memmap before the descriptors.
pub const MAP_HEADER_BYTES: u64 = 40;
/// More bytes of a seed than any firmware gives: the rest is ignored.
const MAX_SEED_BYTES: usize = 512;
/// Bytes of a descriptor as far as it is known; later versions have more.
const DESCRIPTOR_BYTES: u64 = 40;
/// Bytes of an EFI page.
const EFI_PAGE_BYTES: u64 = 4096;
/// Boot services' code and data: free once these have ended and the other
/// CPUs have left them. Loader code and data isn't: the hypervisor lies there.
const LEFT_TYPES: [u32; 2] = [3, 4];
/// Conventional memory: free.
const FREE_TYPE: u32 = 7;

/// The time of day, and when firmware's clock told it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// Seconds since 1970.
    pub seconds: i64,
    /// The stable counter at that time, in ticks.
    pub ticks: u64,
}

/// Firmware's load options (UCS-2) as text; `None` where they are empty or
/// something else: boot managers also leave records of their own there.
#[must_use]
pub fn load_options(units: &[[u8; 2]]) -> Option<String> {
    let units = units.iter().map(|unit| u16::from_le_bytes(*unit));
    let text: Option<String> = units
        .take_while(|&unit| unit != 0)
        .map(|unit| char::from_u32(unit.into()))
        .map(|unit| unit.filter(|letter| letter.is_ascii_graphic() || *letter == ' '))
        .collect();
    text.filter(|text| !text.trim().is_empty())
}

/// What the system table names.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Tables {
    /// The device tree.
    pub fdt: Option<Hpa>,
    /// The initrd's bytes.
    pub initrd: Option<Range>,
    /// The ACPI tables' root (RSDP).
    pub acpi: Option<Hpa>,
    /// Free RAM; empty where there is no usable map.
    pub ram: Vec<Range>,
    /// RAM that firmware leaves once no CPU runs its code.
    pub left: Vec<Range>,
    /// What the map says is someone's: that counts where it also says the
    /// contrary.
    pub held: Vec<Range>,
    /// The time of day, where firmware told it.
    pub moment: Option<Moment>,
    /// A seed for random numbers; empty where there is none.
    pub seed: Vec<u8>,
}

/// Reads the system table at `table`. `None` where there is none.
#[must_use]
pub fn read(memory: &impl Pointed, table: Hpa) -> Option<Tables> {
    if table.get() == 0 || word(memory, table, 0)? != SIGNATURE {
        return None;
    }
    let count = word(memory, table, TABLE_COUNT)?.min(MAX_ENTRIES);
    let entries = Hpa::new(word(memory, table, TABLES)?);
    let mut found = Tables::default();
    for index in 0..count {
        let entry = entries.checked_add(index * ENTRY_BYTES)?;
        let mut guid = [0; 16];
        memory.look(entry, &mut guid);
        let at = Hpa::new(word(memory, entry, 16)?);
        match guid {
            guid::DEVICE_TREE => found.fdt = Some(at),
            guid::INITRD => found.initrd = initrd(memory, at),
            guid::MEMORY_MAP => {
                [found.ram, found.left, found.held] = ranges(memory, at).unwrap_or_default();
            }
            guid::ACPI => found.acpi = Some(at),
            guid::MOMENT => found.moment = moment(memory, at),
            guid::RANDOM_SEED => found.seed = seed(memory, at).unwrap_or_default(),
            _ => {}
        }
    }
    Some(found)
}

fn word(memory: &impl Pointed, base: Hpa, offset: u64) -> Option<u64> {
    let mut bytes = [0; 8];
    memory.look(base.checked_add(offset)?, &mut bytes);
    Some(u64::from_le_bytes(bytes))
}

/// struct linux_efi_initrd: base and size.
fn initrd(memory: &impl Pointed, at: Hpa) -> Option<Range> {
    let (base, size) = (word(memory, at, 0)?, word(memory, at, 8)?);
    let end = base.checked_add(size)?;
    (size > 0).then_some(Range::new(base, end))
}

/// The [`Moment`] that `crate::efi` has left.
fn moment(memory: &impl Pointed, at: Hpa) -> Option<Moment> {
    let (seconds, ticks) = (word(memory, at, 0)?.cast_signed(), word(memory, at, 8)?);
    Some(Moment { seconds, ticks })
}

/// struct linux_efi_random_seed: size, and the bytes.
fn seed(memory: &impl Pointed, at: Hpa) -> Option<Vec<u8>> {
    let bytes = word(memory, at, 0)? as u32 as usize;
    let mut seed = alloc::vec![0; bytes.min(MAX_SEED_BYTES)];
    memory.look(at.checked_add(4)?, &mut seed);
    Some(seed)
}

/// struct efi_boot_memmap and its descriptors: free RAM, what becomes free,
/// and the rest. QEMU's has a length of 0: it leaves the map to the device
/// tree.
fn ranges(memory: &impl Pointed, at: Hpa) -> Option<[Vec<Range>; 3]> {
    let (map_bytes, step) = (word(memory, at, 0)?, word(memory, at, 8)?);
    if step < DESCRIPTOR_BYTES {
        return None;
    }
    let [mut ram, mut left, mut held] = [const { Vec::new() }; 3];
    let count = (map_bytes / step).min(4096);
    for index in 0..count {
        let entry = at.checked_add(MAP_HEADER_BYTES + index * step)?;
        let kind = word(memory, entry, 0)? as u32;
        let (start, pages) = (word(memory, entry, 8)?, word(memory, entry, 24)?);
        let end = pages.checked_mul(EFI_PAGE_BYTES)?.checked_add(start)?;
        let list = match kind {
            FREE_TYPE => &mut ram,
            kind if LEFT_TYPES.contains(&kind) => &mut left,
            _ => &mut held,
        };
        list.push(Range::new(start, end));
    }
    Some([ram, left, held])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mm::phys::{FakeMem, PhysMem};

    fn put(memory: &mut FakeMem, at: u64, words: &[u64]) {
        for (index, word) in words.iter().enumerate() {
            memory.write(Hpa::new(at + 8 * index as u64), &word.to_le_bytes());
        }
    }

    /// A system table at 0x100 with the three tables, as `map` describes RAM.
    fn system(map: &[u64]) -> FakeMem {
        let mut memory = FakeMem(vec![0; 0x1000]);
        put(&mut memory, 0x100, &[SIGNATURE]);
        put(&mut memory, 0x100 + TABLE_COUNT, &[3, 0x200]);
        for (index, (guid, at)) in [
            (guid::DEVICE_TREE, 0x10_0000),
            (guid::INITRD, 0x300),
            (guid::MEMORY_MAP, 0x400),
        ]
        .into_iter()
        .enumerate()
        {
            let entry = 0x200 + index as u64 * ENTRY_BYTES;
            memory.write(Hpa::new(entry), &guid);
            put(&mut memory, entry + 16, &[at]);
        }
        put(&mut memory, 0x300, &[0x20_0000, 0x1234]);
        put(&mut memory, 0x400, &[map.len() as u64 * 8, 48]);
        put(&mut memory, 0x400 + MAP_HEADER_BYTES, map);
        memory
    }

    #[test]
    fn tables_are_found_by_guid() {
        let tables = read(&system(&[]), Hpa::new(0x100)).unwrap();
        assert_eq!(tables.fdt, Some(Hpa::new(0x10_0000)));
        assert_eq!(tables.initrd, Some(Range::new(0x20_0000, 0x20_1234)));
        assert!(tables.ram.is_empty());
    }

    #[test]
    fn free_memory_types_are_ram() {
        let conventional = [7, 0x8000_0000, 0, 16, 0, 0];
        let runtime = [6, 0x9000_0000, 0, 16, 0, 0];
        let boot_services = [4, 1 << 45, 0, 1, 0, 0];
        let map = [conventional, runtime, boot_services].concat();
        let tables = read(&system(&map), Hpa::new(0x100)).unwrap();
        assert_eq!(tables.ram, [Range::new(0x8000_0000, 0x8001_0000)]);
        assert_eq!(tables.left, [Range::new(1 << 45, (1 << 45) + 0x1000)]);
        assert_eq!(tables.held, [Range::new(0x9000_0000, 0x9001_0000)]);
    }

    #[test]
    fn maps_that_make_no_sense_are_ignored() {
        let wraps = [7, u64::MAX, 0, u64::MAX, 0, 0];
        assert!(
            read(&system(&wraps), Hpa::new(0x100))
                .unwrap()
                .ram
                .is_empty()
        );
        let mut memory = system(&[]);
        let free = [7, 0x8000_0000, 0, 16, 7, 0x9000_0000, 0, 16, 7];
        put(&mut memory, 0x400 + MAP_HEADER_BYTES, &free);
        for step in [0, 8, 32, 39, 1 << 40, u64::MAX] {
            put(&mut memory, 0x400, &[72, step]);
            let tables = read(&memory, Hpa::new(0x100)).unwrap();
            assert_eq!(tables.ram, [], "descriptors of {step} bytes");
        }
    }

    #[test]
    fn load_options_are_text_or_nothing() {
        let units =
            |text: &str| -> Vec<[u8; 2]> { text.encode_utf16().map(u16::to_le_bytes).collect() };
        let read = |text: &str| load_options(&units(text));
        assert_eq!(read("log=debug x\0rest").as_deref(), Some("log=debug x"));
        assert_eq!((read(""), read("\0a"), read("  ")), (None, None, None));
        assert_eq!((read("a\u{7f}"), read("\u{8b31}x")), (None, None));
        assert_eq!(load_options(&[[0, 0xd8]]), None);
    }

    #[test]
    fn something_else_is_no_system_table() {
        assert_eq!(read(&FakeMem(vec![0; 0x1000]), Hpa::new(0x100)), None);
        assert_eq!(read(&system(&[]), Hpa::new(0)), None);
    }
}
