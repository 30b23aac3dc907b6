//! A bare-metal guest: a plain ELF, loaded where it says.
//!
//! As QEMU's `-kernel` does it: the low 48 bits of an address are the
//! physical one, and a0 to a2 are as in Linux's boot protocol, with no
//! system table. The file is a guest's: nothing in it is trusted.
//!
//! Source: System V ABI, chapter 4; machine number from the *LoongArch ELF
//! psABI*.

use super::Start;
use crate::mm::addr::{Gpa, PAGE_BYTES, overlap};
use crate::mm::guest_mem::GuestRam;
use crate::mm::phys::PhysMem;
use elf::ElfBytes;
use elf::abi::{ELFCLASS64, EM_LOONGARCH, PT_LOAD};
use elf::endian::LittleEndian;
use elf::segment::ProgramHeader;

/// Address bits that are the physical address.
const PHYSICAL: u64 = (1 << 48) - 1;

/// Why an ELF can't be loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ElfError {
    /// It is for the machine of this ELF number.
    Machine(u16),
    /// It isn't an ELF of 64 bits, or is damaged.
    Malformed,
    /// It ends before a segment does.
    Truncated,
    /// A segment at this address isn't in the VM's RAM.
    OutsideRam(Gpa),
    /// The command line doesn't fit into a page, or there's no room for it.
    CommandLine,
}

impl core::fmt::Display for ElfError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Machine(number) => {
                write!(f, "an ELF for another machine (number {number:#x})")
            }
            Self::Malformed => write!(f, "not a 64-bit ELF, or damaged"),
            Self::Truncated => write!(f, "truncated"),
            Self::OutsideRam(at) => write!(f, "the segment at {at} isn't in RAM"),
            Self::CommandLine => write!(f, "no room for the command line"),
        }
    }
}

/// Loads `file` and `command_line` into a VM's RAM, which is all zero.
///
/// # Errors
/// See [`ElfError`].
pub fn load(
    file: &[u8],
    command_line: &str,
    ram: &GuestRam,
    memory: &mut impl PhysMem,
) -> Result<Start, ElfError> {
    let elf = ElfBytes::<LittleEndian>::minimal_parse(file).map_err(|_| ElfError::Malformed)?;
    let header = elf.ehdr;
    if header.e_machine != EM_LOONGARCH {
        return Err(ElfError::Machine(header.e_machine));
    }
    if file.get(4) != Some(&ELFCLASS64) {
        return Err(ElfError::Malformed);
    }
    let segments = elf.segments().ok_or(ElfError::Malformed)?;
    let segments = || segments.iter().filter(|segment| segment.p_type == PT_LOAD);
    for segment in segments() {
        load_segment(file, &segment, ram, memory)?;
    }
    let is_taken = |page: Gpa| {
        segments().any(|segment| {
            let (at, bytes) = place(&segment);
            bytes > 0 && overlap(at.get(), bytes, page.get(), PAGE_BYTES)
        })
    };
    let at = load_command_line(command_line, is_taken, ram, memory);
    let at = at.ok_or(ElfError::CommandLine)?;
    Ok(Start {
        entry: Gpa::new(header.e_entry & PHYSICAL),
        arguments: [1, at.get(), 0],
    })
}

/// Where a segment is in the guest's memory, and its bytes there.
fn place(segment: &ProgramHeader) -> (Gpa, u64) {
    let bytes = segment.p_memsz.max(segment.p_filesz);
    (Gpa::new(segment.p_paddr & PHYSICAL), bytes)
}

fn load_segment(
    file: &[u8],
    segment: &ProgramHeader,
    ram: &GuestRam,
    memory: &mut impl PhysMem,
) -> Result<(), ElfError> {
    let (at, size) = place(segment);
    let end = segment.p_offset.checked_add(segment.p_filesz);
    let range = end.and_then(|end| {
        let start = usize::try_from(segment.p_offset).ok()?;
        file.get(start..usize::try_from(end).ok()?)
    });
    let bytes = range.ok_or(ElfError::Truncated)?;
    if size > 0 {
        let buffer = ram.buffer(memory, at, size);
        let buffer = buffer.ok_or(ElfError::OutsideRam(at))?;
        buffer.write(memory, bytes);
    }
    Ok(())
}

/// Puts the text at the start of the last page of the first region, if no
/// segment is there.
fn load_command_line(
    text: &str,
    is_taken: impl Fn(Gpa) -> bool,
    ram: &GuestRam,
    memory: &mut impl PhysMem,
) -> Option<Gpa> {
    let low = ram.regions().first()?;
    let at = Gpa::new(low.gpa.get() + low.bytes - PAGE_BYTES);
    if text.len() as u64 >= PAGE_BYTES || is_taken(at) {
        return None;
    }
    let buffer = ram.buffer(memory, at, PAGE_BYTES)?;
    buffer.write(memory, text.as_bytes());
    Some(at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mm::addr::Hpa;
    use crate::mm::guest_mem::RamRegion;
    use crate::mm::phys::FakeMem;

    /// An ELF with one segment of "guest" and 3 zero bytes at `paddr`.
    fn elf(paddr: u64, offset: u64, memsz: u64) -> Vec<u8> {
        let mut file = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
        for (value, width) in [(2u64, 2), (258, 2), (1, 4)] {
            file.extend(&value.to_le_bytes()[..width]);
        }
        for value in [0x9000_0000_0000_4010u64, 64, 0] {
            file.extend(value.to_le_bytes());
        }
        file.extend([0; 4]);
        for value in [64u16, 56, 1, 0, 0, 0] {
            file.extend(value.to_le_bytes());
        }
        file.extend([1, 0, 0, 0, 7, 0, 0, 0]);
        for value in [offset, paddr, paddr, 5, memsz, 16] {
            file.extend(value.to_le_bytes());
        }
        file.extend(b"guest");
        file
    }

    fn try_load(file: &[u8], text: &str) -> (Result<Start, ElfError>, Vec<u8>) {
        let region = RamRegion {
            gpa: Gpa::new(0),
            hpa: Hpa::new(PAGE_BYTES),
            bytes: 3 * PAGE_BYTES,
        };
        let ram = GuestRam::new(vec![region]).unwrap();
        let mut memory = FakeMem(vec![0; 4 * PAGE_BYTES as usize]);
        (load(file, text, &ram, &mut memory), memory.0)
    }

    #[test]
    fn segments_go_where_they_say() {
        let file = elf(0x9000_0000_0000_4000, 120, 8);
        let (start, memory) = try_load(&file, "a=1");
        let at = 2 * PAGE_BYTES;
        let start = start.unwrap();
        assert_eq!(start.entry, Gpa::new(0x4010));
        assert_eq!(start.arguments, [1, at, 0]);
        let place = (PAGE_BYTES + 0x4000) as usize;
        assert_eq!(&memory[place..place + 8], b"guest\0\0\0");
        let place = (PAGE_BYTES + at) as usize;
        assert_eq!(&memory[place..place + 4], b"a=1\0");
    }

    #[test]
    fn segments_outside_ram_are_refused() {
        for (paddr, memsz) in [
            (3 * PAGE_BYTES, 8),
            (3 * PAGE_BYTES - 5, 6),
            (0, u64::MAX),
            (PHYSICAL, 5),
        ] {
            let error = ElfError::OutsideRam(Gpa::new(paddr));
            assert_eq!(
                try_load(&elf(paddr, 120, memsz), "").0,
                Err(error),
                "{paddr:#x}"
            );
        }
    }

    #[test]
    fn the_command_line_has_a_page_of_its_own() {
        let last = 2 * PAGE_BYTES;
        for (paddr, memsz, free) in [(last - 8, 8, true), (last - 8, 9, false), (last, 5, false)] {
            let start = try_load(&elf(paddr, 120, memsz), "a").0;
            let arguments = start.map(|start| start.arguments);
            let expected = free.then_some([1, last, 0]).ok_or(ElfError::CommandLine);
            assert_eq!(arguments, expected, "{memsz} bytes at {paddr:#x}");
        }
    }

    #[test]
    fn damaged_files_are_refused() {
        let good = elf(0, 120, 8);
        let changed = |at: usize, value: u8| {
            let mut file = good.clone();
            file[at] = value;
            file
        };
        for length in [0, 4, 63, 70, 119] {
            assert!(try_load(&good[..length], "").0.is_err(), "{length}");
        }
        for (file, error) in [
            (&elf(0, u64::MAX, 8)[..], ElfError::Truncated),
            (&good[..good.len() - 1], ElfError::Truncated),
            (&changed(18, 62), ElfError::Machine(0x13e)),
            (&changed(4, 1), ElfError::Malformed),
        ] {
            assert_eq!(try_load(file, "").0, Err(error), "{error}");
        }
        let long = "x".repeat(PAGE_BYTES as usize);
        assert_eq!(try_load(&good, &long).0, Err(ElfError::CommandLine));
    }
}
