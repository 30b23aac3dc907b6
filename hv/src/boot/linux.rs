//! A Linux kernel image: a PE file with Linux's own header, loaded where
//! that says.
//!
//! Threats: the file is a guest's, and nothing in it is trusted. The headers
//! are only read to tell a damaged or foreign file from a kernel and to know
//! how much RAM it takes; a kernel that lies in them hurts only itself.
//! Not supported: the compressed outer form (EFI zboot), which the host's
//! tool unpacks.
//!
//! Source: Linux, Documentation/arch/loongarch/booting.rst and
//! arch/loongarch/kernel/head.S; PE format, Microsoft (COFF and optional
//! header, sections).

use crate::mm::addr::Gpa;
use crate::mm::frame::Range;
use core::fmt;

/// "MZ": any PE file.
const DOS_MAGIC: &[u8] = b"MZ";
/// Linux's header: offset of the entry's address, 64 bits.
const ENTRY: usize = 8;
/// Linux's header: offset of the size in memory, 64 bits.
const SIZE: usize = 16;
/// Linux's header: offset of the load address, 64 bits.
const LOAD_OFFSET: usize = 24;
/// Linux's header: offset of its mark, 32 bits.
const MARK: usize = 56;
/// LINUX_PE_MAGIC.
const MARK_VALUE: u64 = 0x8182_23cd;
/// Offset of the PE header's offset, 32 bits.
const PE_OFFSET: usize = 60;
/// "PE\0\0".
const PE_MAGIC: &[u8] = b"PE\0\0";
/// IMAGE_FILE_MACHINE_LOONGARCH64.
const MACHINE_LOONGARCH64: u64 = 0x6264;
/// Bytes of the PE mark and the COFF header after it.
const COFF_BYTES: usize = 24;
/// Bytes of a section's header.
const SECTION_BYTES: usize = 40;
/// Address bits that are the physical address: old kernels give virtual ones.
const PHYSICAL: u64 = (1 << 48) - 1;
/// A kernel that relocates itself (CONFIG_RANDOMIZE_BASE) goes at most so
/// far beyond its end: the default of CONFIG_RANDOMIZE_BASE_MAX_OFFSET.
const RANDOM_OFFSET: u64 = 16 << 20;

/// Why a file isn't a kernel that can be loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImageError {
    /// It has neither an ELF's nor a Linux image's mark.
    NoKernel,
    /// It is still compressed.
    Compressed,
    /// It is for the machine with this PE number.
    Machine(u16),
    /// It ends before its sections do.
    Truncated,
    /// Its header makes no sense.
    Malformed,
}

impl fmt::Display for ImageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoKernel => write!(f, "neither an ELF nor a Linux kernel image"),
            Self::Compressed => write!(f, "still compressed (EFI zboot)"),
            Self::Machine(number) => {
                write!(f, "a kernel for another machine (PE number {number:#x})")
            }
            Self::Truncated => write!(f, "truncated"),
            Self::Malformed => write!(f, "its header makes no sense"),
        }
    }
}

/// A kernel image whose headers have been checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Image<'a> {
    /// What is copied to [`Image::range`]'s start.
    pub bytes: &'a [u8],
    /// What it takes in RAM, its zeroed data included.
    pub range: Range,
    /// Its first instruction, inside the range.
    pub entry: Gpa,
}

impl<'a> Image<'a> {
    /// Checks the headers of `file`.
    ///
    /// # Errors
    /// See [`ImageError`].
    pub fn parse(file: &'a [u8]) -> Result<Self, ImageError> {
        if !file.starts_with(DOS_MAGIC) {
            return Err(ImageError::NoKernel);
        }
        if file.get(4..8) == Some(b"zimg") {
            return Err(ImageError::Compressed);
        }
        let end = check_sections(file)?;
        if field(file, MARK, 4)? != MARK_VALUE {
            return Err(ImageError::NoKernel);
        }
        let start = field(file, LOAD_OFFSET, 8)? & PHYSICAL;
        let size = field(file, SIZE, 8)?.max(end);
        let range = start.checked_add(size).map(|end| Range::new(start, end));
        let range = range.ok_or(ImageError::Malformed)?;
        let entry = field(file, ENTRY, 8)? & PHYSICAL;
        if !(range.start..range.end).contains(&entry) || !entry.is_multiple_of(4) {
            return Err(ImageError::Malformed);
        }
        let bytes = file.get(..end as usize).ok_or(ImageError::Truncated)?;
        Ok(Self {
            bytes,
            range,
            entry: Gpa::new(entry),
        })
    }

    /// Where RAM begins that the kernel leaves alone until it looks at its
    /// memory map, even if it moves itself.
    #[must_use]
    pub const fn reach(&self) -> u64 {
        let twice = self.range.end.saturating_add(self.range.bytes());
        twice.saturating_add(RANDOM_OFFSET)
    }
}

/// Checks the PE headers; returns where the last section ends in the file.
fn check_sections(file: &[u8]) -> Result<u64, ImageError> {
    let pe = field(file, PE_OFFSET, 4)? as usize;
    let header = pe.checked_add(4).ok_or(ImageError::Malformed)?;
    if file.get(pe..header).ok_or(ImageError::Truncated)? != PE_MAGIC {
        return Err(ImageError::NoKernel);
    }
    let machine = field(file, header, 2)?;
    if machine != MACHINE_LOONGARCH64 {
        return Err(ImageError::Machine(machine as u16));
    }
    let sections = field(file, header + 2, 2)? as usize;
    let optional = field(file, header + 16, 2)? as usize;
    let table = pe + COFF_BYTES + optional;
    let mut end = 0;
    for index in 0..sections {
        let section = table + index * SECTION_BYTES;
        let bytes = field(file, section + 16, 4)?;
        end = end.max(field(file, section + 20, 4)? + bytes);
    }
    if end > file.len() as u64 {
        return Err(ImageError::Truncated);
    }
    Ok(end.max((table + sections * SECTION_BYTES) as u64))
}

/// The little-endian number of `width` bytes at `offset`.
fn field(file: &[u8], offset: usize, width: usize) -> Result<u64, ImageError> {
    let end = offset.checked_add(width).ok_or(ImageError::Malformed)?;
    let bytes = file.get(offset..end).ok_or(ImageError::Truncated)?;
    let number = bytes.iter().rev();
    Ok(number.fold(0, |number, &byte| number << 8 | u64::from(byte)))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use proptest::prelude::*;

    fn put(file: &mut [u8], offset: usize, value: u64, width: usize) {
        file[offset..offset + width].copy_from_slice(&value.to_le_bytes()[..width]);
    }

    /// A kernel of 0x4000 bytes that takes 0x9000 at 0x20_0000.
    pub fn image() -> Vec<u8> {
        let mut file = vec![0xaa; 0x4000];
        file[..0x200].fill(0);
        file[..2].copy_from_slice(b"MZ");
        put(&mut file, ENTRY, 0x20_1000, 8);
        put(&mut file, SIZE, 0x9000, 8);
        put(&mut file, LOAD_OFFSET, 0x20_0000, 8);
        put(&mut file, MARK, MARK_VALUE, 4);
        put(&mut file, PE_OFFSET, 0x40, 4);
        file[0x40..0x44].copy_from_slice(PE_MAGIC);
        put(&mut file, 0x44, MACHINE_LOONGARCH64, 2);
        put(&mut file, 0x46, 2, 2);
        put(&mut file, 0x54, 0xa0, 2);
        for (index, (offset, bytes)) in [(0x1000, 0x1000), (0x2000, 0x2000)].iter().enumerate() {
            let section = 0x40 + COFF_BYTES + 0xa0 + index * SECTION_BYTES;
            put(&mut file, section + 16, *bytes, 4);
            put(&mut file, section + 20, *offset, 4);
        }
        file
    }

    fn changed(offset: usize, value: u64, width: usize) -> Result<(), ImageError> {
        let mut file = image();
        put(&mut file, offset, value, width);
        Image::parse(&file).map(|_| ())
    }

    #[test]
    fn a_kernel_goes_where_it_says() {
        let file = image();
        let image = Image::parse(&file).unwrap();
        assert_eq!(image.range, Range::new(0x20_0000, 0x20_9000));
        assert_eq!(image.entry, Gpa::new(0x20_1000));
        assert_eq!(image.bytes.len(), 0x4000);
        assert_eq!(image.reach(), 0x20_9000 + 0x9000 + RANDOM_OFFSET);
    }

    #[test]
    fn old_kernels_give_virtual_addresses() {
        let mut file = image();
        put(&mut file, ENTRY, 0x9000_0000_0020_1000, 8);
        put(&mut file, LOAD_OFFSET, 0x9000_0000_0020_0000, 8);
        let image = Image::parse(&file).unwrap();
        assert_eq!(image.range.start, 0x20_0000);
        assert_eq!(image.entry, Gpa::new(0x20_1000));
    }

    #[test]
    fn other_files_are_told_apart() {
        use ImageError::{Compressed, Machine, Malformed, NoKernel, Truncated};
        assert_eq!(Image::parse(b"").unwrap_err(), NoKernel);
        assert_eq!(Image::parse(b"MZ").unwrap_err(), Truncated);
        assert_eq!(
            changed(4, u64::from_le_bytes(*b"zimg\0\0\0\0"), 4),
            Err(Compressed)
        );
        assert_eq!(changed(MARK, 0, 4), Err(NoKernel));
        assert_eq!(changed(0x44, 0xaa64, 2), Err(Machine(0xaa64)));
        assert_eq!(changed(PE_OFFSET, 0xffff_ffff, 4), Err(Truncated));
        assert_eq!(changed(ENTRY, 0x20_9000, 8), Err(Malformed));
        assert_eq!(changed(ENTRY, 0x20_1002, 8), Err(Malformed));
        assert_eq!(changed(SIZE, u64::MAX, 8), Err(Malformed));
        let file = image();
        for length in [10, 63, 0x43, 0xff, 0x1000, 0x3fff] {
            assert_eq!(
                Image::parse(&file[..length]).unwrap_err(),
                Truncated,
                "{length:#x}"
            );
        }
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_reader_panic(
            offset in 0usize..0x200, value: u64, length in 0usize..0x4000,
        ) {
            let mut file = image();
            put(&mut file, offset, value, 8);
            if let Ok(image) = Image::parse(&file[..length]) {
                prop_assert!(image.bytes.len() as u64 <= image.range.bytes());
            }
        }
    }
}
