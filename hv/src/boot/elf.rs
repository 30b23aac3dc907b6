//! A bare-metal guest: a plain ELF, loaded where it says.
//!
//! As QEMU's `-kernel` does it: the low 48 bits of an address are the
//! physical one, and a0 to a2 are as in Linux's boot protocol, with no
//! system table. The file is a guest's: nothing in it is trusted.
//!
//! Source: System V ABI, chapter 4; machine number from the *LoongArch ELF
//! psABI*.

use super::Start;
use super::space::Space;
use crate::mm::addr::{Gpa, PAGE_BYTES};
use crate::mm::frame::{Range, free_ranges};
use crate::mm::guest_mem::GuestRam;
use crate::mm::phys::PhysMem;
use alloc::vec::Vec;
use elf::ElfBytes;
use elf::abi::{ELFCLASS64, EM_LOONGARCH, PT_LOAD};
use elf::endian::LittleEndian;
use elf::segment::ProgramHeader;

/// Address bits that are the physical address.
const PHYSICAL: u64 = (1 << 48) - 1;

/// Most segments that are loaded.
const MAX_SEGMENTS: usize = 256;

/// Why an ELF can't be loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ElfError {
    /// It is for the machine of this ELF number.
    Machine(u16),
    /// It isn't an ELF of 64 bits, is damaged, or has too many segments.
    Malformed,
    /// It ends before a segment does.
    Truncated,
    /// A segment at this address isn't in the VM's RAM.
    OutsideRam(Gpa),
    /// A segment at this address would lie over another one.
    Overlap(Gpa),
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
            Self::Overlap(at) => write!(f, "the segment at {at} overlaps another one"),
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
    let space = Space::new(ram);
    let mut taken: Vec<Range> = Vec::new();
    let loaded = |segment: &ProgramHeader| segment.p_type == PT_LOAD && bytes_of(segment) > 0;
    for segment in segments.iter().filter(loaded) {
        let place = load_segment(file, &segment, &space, ram, memory)?;
        let over = |other: &Range| place.start < other.end && other.start < place.end;
        if taken.iter().any(over) {
            return Err(ElfError::Overlap(Gpa::new(place.start)));
        }
        if taken.len() == MAX_SEGMENTS {
            return Err(ElfError::Malformed);
        }
        taken.push(place);
    }
    let at = load_command_line(command_line, &taken, &space, ram, memory);
    let at = at.ok_or(ElfError::CommandLine)?;
    Ok(Start {
        entry: Gpa::new(header.e_entry & PHYSICAL),
        arguments: [1, at.get(), 0],
    })
}

/// Bytes that a segment takes in memory.
fn bytes_of(segment: &ProgramHeader) -> u64 {
    segment.p_memsz.max(segment.p_filesz)
}

/// Loads a segment; returns where it lies. What the file doesn't have of it
/// is zero there already.
fn load_segment(
    file: &[u8],
    segment: &ProgramHeader,
    space: &Space,
    ram: &GuestRam,
    memory: &mut impl PhysMem,
) -> Result<Range, ElfError> {
    let start = segment.p_paddr & PHYSICAL;
    let bytes = content(file, segment).ok_or(ElfError::Truncated)?;
    let end = start.checked_add(bytes_of(segment));
    let place = end.map(|end| Range::new(start, end));
    let inside = |place: &Range| {
        let mut ranges = space.ram().iter();
        ranges.any(|ram| ram.start <= place.start && place.end <= ram.end)
    };
    let at = Gpa::new(start);
    let place = place.filter(inside).ok_or(ElfError::OutsideRam(at))?;
    let written = ram.write(memory, at, bytes);
    written.then_some(place).ok_or(ElfError::OutsideRam(at))
}

/// What the file has of a segment. One that is all zeros has no place there,
/// whatever its offset: linkers and `strip` leave it beyond the end.
fn content<'a>(file: &'a [u8], segment: &ProgramHeader) -> Option<&'a [u8]> {
    if segment.p_filesz == 0 {
        return Some(&[]);
    }
    let start = usize::try_from(segment.p_offset).ok()?;
    let bytes = usize::try_from(segment.p_filesz).ok()?;
    file.get(start..)?.get(..bytes)
}

/// Puts the text at the start of the last page of low RAM that no segment
/// touches.
fn load_command_line(
    text: &str,
    taken: &[Range],
    space: &Space,
    ram: &GuestRam,
    memory: &mut impl PhysMem,
) -> Option<Gpa> {
    let low = space.ram().first()?;
    let last = free_ranges(&[*low], taken).pop()?;
    let at = Gpa::new(last.end - PAGE_BYTES);
    let buffer = ram.buffer(memory, at, PAGE_BYTES)?;
    if text.len() as u64 >= PAGE_BYTES {
        return None;
    }
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
        with_segments(&[[offset, paddr, 5, memsz]])
    }

    /// An ELF with these segments (offset, address, bytes in the file and in
    /// memory), and "guest" behind them.
    fn with_segments(segments: &[[u64; 4]]) -> Vec<u8> {
        let mut file = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
        for (value, width) in [(2u64, 2), (258, 2), (1, 4)] {
            file.extend(&value.to_le_bytes()[..width]);
        }
        for value in [0x9000_0000_0000_4010u64, 64, 0] {
            file.extend(value.to_le_bytes());
        }
        file.extend([0; 4]);
        for value in [64, 56, segments.len() as u16, 0, 0, 0] {
            file.extend(value.to_le_bytes());
        }
        for &[offset, paddr, filesz, memsz] in segments {
            file.extend([1, 0, 0, 0, 7, 0, 0, 0]);
            for value in [offset, paddr, paddr, filesz, memsz, 16] {
                file.extend(value.to_le_bytes());
            }
        }
        file.extend(b"guest");
        file
    }

    fn try_load(file: &[u8], text: &str) -> (Result<Start, ElfError>, Vec<u8>) {
        // In two pieces of the machine's, one for the guest.
        let region = |page: u64, pages: u64| RamRegion {
            gpa: Gpa::new(page * PAGE_BYTES),
            hpa: Hpa::new((page + 1) * PAGE_BYTES),
            bytes: pages * PAGE_BYTES,
        };
        let ram = GuestRam::new(vec![region(0, 1), region(1, 2)]).unwrap();
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
    fn a_segment_lies_where_the_machine_has_a_seam() {
        let (start, memory) = try_load(&elf(PAGE_BYTES - 2, 120, PAGE_BYTES), "a");
        assert_eq!(start.unwrap().arguments[1], 2 * PAGE_BYTES);
        let place = (2 * PAGE_BYTES - 2) as usize;
        assert_eq!(&memory[place..place + 5], b"guest");
    }

    #[test]
    fn nothing_lies_over_a_segment() {
        let good = with_segments(&[[176, 0x4000, 5, 8], [176, 0x4008, 5, 5]]);
        assert!(try_load(&good, "").0.is_ok());
        for (at, bytes) in [(0x4007, 5), (0x3ffc, 5), (0x4000, 0x100), (0x3000, 0x2000)] {
            let file = with_segments(&[[176, 0x4000, 5, 8], [176, at, 5, bytes]]);
            let over = ElfError::Overlap(Gpa::new(at));
            assert_eq!(try_load(&file, "").0, Err(over), "{at:#x}");
        }
        // The command line's own page is the program's: it gives way.
        let (start, memory) = try_load(&elf(2 * PAGE_BYTES, 120, 8), "text");
        assert_eq!(start.unwrap().arguments[1], PAGE_BYTES);
        let place = (3 * PAGE_BYTES) as usize;
        assert_eq!(&memory[place..place + 5], b"guest");
        let many: Vec<[u64; 4]> = (0..257).map(|n| [0, n, 1, 1]).collect();
        let refused = try_load(&with_segments(&many), "").0;
        assert_eq!(refused, Err(ElfError::Malformed));
        assert!(try_load(&with_segments(&many[1..]), "").0.is_ok());
        let everything = elf(0, 120, 3 * PAGE_BYTES);
        assert_eq!(try_load(&everything, "").0, Err(ElfError::CommandLine));
    }

    #[test]
    fn zeros_have_no_place_in_the_file() {
        for offset in [0, 1 << 20, u64::MAX] {
            let file = with_segments(&[[176, 0x4000, 5, 8], [offset, 0x4008, 0, 0x100]]);
            assert!(try_load(&file, "").0.is_ok(), "{offset:#x}");
            let nothing = with_segments(&[[176, 0x4000, 5, 8], [offset, u64::MAX, 0, 0]]);
            assert!(try_load(&nothing, "").0.is_ok(), "{offset:#x}");
        }
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
