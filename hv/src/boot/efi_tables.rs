//! What a guest's kernel finds in place of firmware: an EFI system table
//! after boot services have ended.
//!
//! It has no services at all, only configuration tables: the memory map, the
//! initramfs, the device tree, a seed for the random pool. Everything lies
//! in one block of RAM of the type that the guest must keep (ACPI reclaim),
//! as the specification wants it of configuration tables.
//!
//! Source: UEFI Specification 2.10, sections 4.3, 4.6 and 7.2.3; Linux,
//! include/linux/efi.h (the LINUX_EFI_… tables).

use super::space::Claim;
use crate::bundle::crc32;
use crate::mm::frame::Range;
use crate::platform::efi::guid;
use alloc::vec::Vec;
use core::mem::offset_of;
use uefi_raw::table::boot::{MemoryAttribute, MemoryDescriptor};
use uefi_raw::table::configuration::ConfigurationTable;
use uefi_raw::table::system::SystemTable;
use uefi_raw::table::{Header, Revision};

/// Bytes of an EFI page.
const EFI_PAGE_BYTES: u64 = 4096;
/// Boundary of every table in the block.
const ALIGN: usize = 16;
/// The firmware's vendor, as Linux prints it.
const VENDOR: &str = "Loongvisor\0";
/// The version of the specification that the tables keep to.
const REVISION: Revision = Revision::EFI_2_100;
/// Most bytes of everything but command line and device tree.
const FIXED_BYTES: u64 = 4096;

/// What a guest is told.
#[derive(Clone, Copy, Debug)]
pub struct Contents<'a> {
    /// The kernel's command line, without a zero at its end.
    pub command_line: &'a str,
    /// The device tree.
    pub fdt: &'a [u8],
    /// Where the initramfs lies, if there is one.
    pub initramfs: Option<Range>,
    /// A seed for the guest's random pool, if there is one.
    pub seed: Option<&'a [u8]>,
}

impl Contents<'_> {
    /// No block is larger than this, in bytes, for memory maps of up to 32
    /// entries.
    #[must_use]
    pub const fn most_bytes(&self) -> u64 {
        FIXED_BYTES + (self.command_line.len() + self.fdt.len()) as u64
    }
}

/// The tables as they lie in RAM.
#[derive(Debug)]
pub struct Tables {
    /// What is copied to the block's place.
    pub bytes: Vec<u8>,
    /// Guest physical address of the command line.
    pub command_line: u64,
    /// Guest physical address of the system table.
    pub system_table: u64,
}

/// Bytes that will lie at `base`.
struct Block {
    base: u64,
    bytes: Vec<u8>,
}

impl Block {
    /// Appends a table; returns its address.
    fn push(&mut self, table: &[u8]) -> u64 {
        self.bytes
            .resize(self.bytes.len().next_multiple_of(ALIGN), 0);
        let at = self.base + self.bytes.len() as u64;
        self.bytes.extend_from_slice(table);
        at
    }
}

/// The tables of a guest, to be put at `base`, a multiple of 16.
#[must_use]
pub fn build(base: u64, contents: &Contents<'_>, map: &[Claim]) -> Tables {
    let mut block = Block {
        base,
        bytes: alloc::vec![0; size_of::<SystemTable>()],
    };
    let mut entries = Vec::new();
    let mut entry = |guid: [u8; 16], at: u64| {
        entries.extend(guid);
        entries.extend(at.to_le_bytes());
    };
    entry(guid::DEVICE_TREE, block.push(contents.fdt));
    entry(guid::MEMORY_MAP, block.push(&memory_map(map)));
    if let Some(range) = contents.initramfs {
        let table = [range.start, range.bytes()].map(u64::to_le_bytes);
        entry(guid::INITRD, block.push(table.as_flattened()));
    }
    if let Some(seed) = contents.seed {
        let mut table = Vec::from((seed.len() as u32).to_le_bytes());
        table.extend_from_slice(seed);
        entry(guid::RANDOM_SEED, block.push(&table));
    }
    let count = entries.len() / size_of::<ConfigurationTable>();
    let tables = block.push(&entries);
    let vendor: Vec<u8> = VENDOR.encode_utf16().flat_map(u16::to_le_bytes).collect();
    let vendor = block.push(&vendor);
    let command_line = block.push(contents.command_line.as_bytes());
    block.bytes.push(0);
    let table = system_table(vendor, count as u64, tables);
    for (to, from) in block.bytes.iter_mut().zip(table) {
        *to = from;
    }
    Tables {
        bytes: block.bytes,
        command_line,
        system_table: base,
    }
}

/// A field of a table in the making.
fn put(table: &mut [u8], offset: usize, value: &[u8]) {
    for (to, from) in table.iter_mut().skip(offset).zip(value) {
        *to = *from;
    }
}

fn system_table(vendor: u64, count: u64, tables: u64) -> [u8; size_of::<SystemTable>()] {
    let mut table = [0; size_of::<SystemTable>()];
    let mut field = |offset, value: u64| put(&mut table, offset, &value.to_le_bytes());
    field(offset_of!(Header, signature), SystemTable::SIGNATURE);
    field(offset_of!(SystemTable, firmware_vendor), vendor);
    let entries = offset_of!(SystemTable, number_of_configuration_table_entries);
    field(entries, count);
    field(offset_of!(SystemTable, configuration_table), tables);
    let mut field = |offset, value: u32| put(&mut table, offset, &value.to_le_bytes());
    field(offset_of!(Header, revision), REVISION.0);
    field(offset_of!(Header, size), size_of::<SystemTable>() as u32);
    let crc = crc32(&table);
    put(&mut table, offset_of!(Header, crc), &crc.to_le_bytes());
    table
}

/// struct efi_boot_memmap: bytes of the descriptors, bytes of one, their
/// version, a key and the buffer's size; then the descriptors.
fn memory_map(map: &[Claim]) -> Vec<u8> {
    let step = size_of::<MemoryDescriptor>();
    let all = (map.len() * step) as u64;
    let version = u64::from(MemoryDescriptor::VERSION);
    let header = [all, step as u64, version, 0, all].map(u64::to_le_bytes);
    let mut table = header.as_flattened().to_vec();
    for (range, kind) in map {
        let mut entry = [0; size_of::<MemoryDescriptor>()];
        let mut field = |offset, value: u64| put(&mut entry, offset, &value.to_le_bytes());
        field(offset_of!(MemoryDescriptor, ty), u64::from(kind.0));
        field(offset_of!(MemoryDescriptor, phys_start), range.start);
        let pages = range.bytes() / EFI_PAGE_BYTES;
        field(offset_of!(MemoryDescriptor, page_count), pages);
        let cached = MemoryAttribute::WRITE_BACK.bits();
        field(offset_of!(MemoryDescriptor, att), cached);
        table.extend(entry);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mm::addr::Hpa;
    use crate::mm::phys::{FakeMem, PhysMem};
    use crate::platform::efi;
    use uefi_raw::table::boot::MemoryType;

    const BASE: u64 = 0x1_0000;

    fn contents() -> Contents<'static> {
        Contents {
            command_line: "a=1",
            fdt: b"a tree",
            initramfs: Some(Range::new(0x8000_0000, 0x8000_0123)),
            seed: Some(&[7; 32]),
        }
    }

    fn map() -> [Claim; 2] {
        let free = Range::new(0x4000, 0x1000_0000);
        let kernel = Range::new(0, 0x4000);
        [
            (kernel, MemoryType::LOADER_CODE),
            (free, MemoryType::CONVENTIONAL),
        ]
    }

    #[test]
    fn the_machine_s_own_reader_understands_the_tables() {
        let tables = build(BASE, &contents(), &map());
        let mut memory = FakeMem(vec![0; 0x2_0000]);
        memory.write(Hpa::new(BASE), &tables.bytes);
        let read = efi::read(&memory, Hpa::new(tables.system_table)).unwrap();
        let fdt = read.fdt.unwrap().get() as usize;
        assert_eq!(&memory.0[fdt..fdt + 6], b"a tree");
        assert_eq!(read.initrd, contents().initramfs);
        assert_eq!(read.ram, [Range::new(0x4000, 0x1000_0000)]);
        assert_eq!(read.seed, [7; 32]);
        let text = tables.command_line as usize;
        assert_eq!(&memory.0[text..text + 4], b"a=1\0");
    }

    #[test]
    fn the_header_has_its_checksum() {
        let tables = build(BASE, &contents(), &map());
        let mut header = tables.bytes[..size_of::<SystemTable>()].to_vec();
        let crc = offset_of!(Header, crc);
        let found = header[crc..crc + 4].to_vec();
        put(&mut header, crc, &[0; 4]);
        assert_eq!(found, crc32(&header).to_le_bytes());
        assert_eq!(&header[..8], b"IBI SYST");
    }

    #[test]
    fn the_block_keeps_to_its_bound() {
        let large: Vec<Claim> = map().into_iter().cycle().take(32).collect();
        let tables = build(BASE, &contents(), &large);
        assert!(tables.bytes.len() as u64 <= contents().most_bytes());
        let none = Contents {
            initramfs: None,
            seed: None,
            ..contents()
        };
        assert!(build(BASE, &none, &map()).bytes.len() < tables.bytes.len());
    }
}
