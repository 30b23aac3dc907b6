//! What a guest gets at its first instruction.
//!
//! A plain ELF goes where it says, with its command line; a Linux kernel
//! image gets what EFI firmware would leave behind besides. Either way a0 is
//! 1, a1 the command line, a2 the system table or 0.

pub mod efi_tables;
pub mod elf;
pub mod fdt;
pub mod linux;
pub mod space;

use crate::config::VmConfig;
use crate::mm::addr::Gpa;
use crate::mm::frame::Range;
use crate::mm::guest_mem::GuestRam;
use crate::mm::phys::PhysMem;
use core::fmt;
use linux::{Image, ImageError};
use space::Space;
use uefi_raw::table::boot::MemoryType;

/// How the boot CPU starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Start {
    /// Its first instruction.
    pub entry: Gpa,
    /// a0 to a2.
    pub arguments: [u64; 3],
}

/// The files of a VM.
#[derive(Clone, Copy, Debug)]
pub struct Files<'a> {
    /// An ELF or a Linux kernel image.
    pub kernel: &'a [u8],
    /// The kernel's first file system.
    pub initramfs: Option<&'a [u8]>,
}

/// What a guest is told of the machine.
#[derive(Clone, Copy, Debug)]
pub struct Environment {
    /// Frequency of the CPUs' clock, in Hz.
    pub clock_hz: u32,
    /// A seed for the guest's random pool; `None` where the machine has none.
    pub seed: Option<[u8; 32]>,
}

/// Why a VM's files can't be loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoadError {
    /// The kernel is an ELF, and that can't be loaded.
    Elf(elf::ElfError),
    /// The kernel isn't one.
    Image(ImageError),
    /// The kernel doesn't fit where it wants to lie.
    Kernel(Range),
    /// The initramfs of so many bytes doesn't fit beside the kernel.
    Initramfs(u64),
    /// An ELF takes no initramfs.
    NoInitramfs,
    /// There is no room for the tables.
    Tables,
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Elf(error) => write!(f, "{error}"),
            Self::Image(error) => write!(f, "{error}"),
            Self::Kernel(Range { start, end }) => {
                write!(f, "it wants {start:#x} to {end:#x}, which isn't all RAM")
            }
            Self::Initramfs(bytes) => {
                write!(
                    f,
                    "no room for {} MiB beside the kernel",
                    bytes.div_ceil(1 << 20)
                )
            }
            Self::NoInitramfs => write!(f, "the kernel is an ELF, which takes no initramfs"),
            Self::Tables => write!(f, "no room for command line and tables"),
        }
    }
}

impl LoadError {
    /// Whether the initramfs is at fault, rather than the kernel.
    #[must_use]
    pub const fn is_of_initramfs(&self) -> bool {
        matches!(self, Self::Initramfs(_) | Self::NoInitramfs)
    }
}

/// Loads the files of the VM that `config` describes into its RAM, which is
/// all zero.
///
/// # Errors
/// See [`LoadError`].
pub fn load(
    config: &VmConfig,
    files: &Files<'_>,
    environment: &Environment,
    ram: &GuestRam,
    memory: &mut impl PhysMem,
) -> Result<Start, LoadError> {
    if !files.kernel.starts_with(::elf::abi::ELFMAGIC.as_slice()) {
        return linux(config, files, environment, ram, memory);
    }
    if files.initramfs.is_some() {
        return Err(LoadError::NoInitramfs);
    }
    let start = elf::load(files.kernel, &config.command_line, ram, memory);
    start.map_err(LoadError::Elf)
}

/// A lower address is no place for tables: 0 counts as no address.
const TABLES_FROM: u64 = 0x1_0000;

fn linux(
    config: &VmConfig,
    files: &Files<'_>,
    environment: &Environment,
    ram: &GuestRam,
    memory: &mut impl PhysMem,
) -> Result<Start, LoadError> {
    let image = Image::parse(files.kernel).map_err(LoadError::Image)?;
    let mut space = Space::new(ram);
    let kernel = LoadError::Kernel(image.range);
    if !space.claim(image.range, MemoryType::LOADER_CODE) {
        return Err(kernel);
    }
    let start = Gpa::new(image.range.start);
    ram.write(memory, start, image.bytes)
        .then_some(())
        .ok_or(kernel)?;
    let initramfs = files.initramfs.filter(|file| !file.is_empty());
    let initramfs = initramfs
        .map(|file| place_initramfs(file, &image, &mut space, ram, memory))
        .transpose()?;
    let seed = environment.seed.as_ref().map(<[u8; 32]>::as_slice);
    let facts = fdt::Facts {
        ram: space.ram(),
        clock_hz: environment.clock_hz,
        seed,
    };
    let fdt = fdt::build(config, &facts).map_err(|_| LoadError::Tables)?;
    let contents = efi_tables::Contents {
        command_line: &config.command_line,
        fdt: &fdt,
        initramfs,
        seed,
    };
    let bytes = contents.most_bytes();
    let place = space.claim_low(bytes, TABLES_FROM, MemoryType::ACPI_RECLAIM);
    let place = place.ok_or(LoadError::Tables)?;
    let tables = efi_tables::build(place, &contents, &space.map());
    let fits = tables.bytes.len() as u64 <= bytes;
    let written = fits && ram.write(memory, Gpa::new(place), &tables.bytes);
    written.then_some(()).ok_or(LoadError::Tables)?;
    Ok(Start {
        entry: image.entry,
        arguments: [1, tables.command_line, tables.system_table],
    })
}

/// Puts the initramfs where the kernel doesn't reach before it has read its
/// memory map, and otherwise low: Linux takes its first pages from the top of
/// RAM, before it reserves the initramfs.
fn place_initramfs(
    file: &[u8],
    image: &Image<'_>,
    space: &mut Space,
    ram: &GuestRam,
    memory: &mut impl PhysMem,
) -> Result<Range, LoadError> {
    let bytes = file.len() as u64;
    let at = space.claim_low(bytes, image.reach(), MemoryType::LOADER_DATA);
    let at = at.ok_or(LoadError::Initramfs(bytes))?;
    let written = ram.write(memory, Gpa::new(at), file);
    written.then_some(()).ok_or(LoadError::Initramfs(bytes))?;
    Ok(Range::new(at, at + bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mm::addr::{Hpa, PAGE_BYTES};
    use crate::mm::guest_mem::RamRegion;
    use crate::mm::phys::FakeMem;

    const MIB: u64 = 1 << 20;

    fn try_load(files: &Files<'_>, bytes: u64) -> (Result<Start, LoadError>, Vec<u8>) {
        let region = RamRegion {
            gpa: Gpa::new(0),
            hpa: Hpa::new(0),
            bytes,
        };
        let ram = GuestRam::new(vec![region]).unwrap();
        let mut memory = FakeMem(vec![0; bytes as usize]);
        let text = "name=a\nvcpus=1\nmemory=1M\nkernel=k\ncommand_line=quiet";
        let config = VmConfig::read(text).unwrap();
        let environment = Environment {
            clock_hz: 1,
            seed: None,
        };
        let start = load(&config, files, &environment, &ram, &mut memory);
        (start, memory.0)
    }

    #[test]
    fn kernel_initramfs_and_tables_lie_apart() {
        let kernel = linux::tests::image();
        let files = Files {
            kernel: &kernel,
            initramfs: Some(&[9; 100]),
        };
        let (start, memory) = try_load(&files, 32 * MIB);
        let start = start.unwrap();
        assert_eq!(start.entry, Gpa::new(0x20_1000));
        let [one, text, table] = start.arguments;
        assert_eq!((one, table), (1, TABLES_FROM));
        let text = text as usize;
        assert_eq!(&memory[text..text + 6], b"quiet\0");
        assert_eq!(&memory[0x20_0000..0x20_4000], kernel.as_slice());
        let place = Image::parse(&kernel)
            .unwrap()
            .reach()
            .next_multiple_of(PAGE_BYTES) as usize;
        assert_eq!(
            &memory[place..place + 101],
            [[9; 100].as_slice(), &[0]].concat()
        );
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let kernel = linux::tests::image();
        let files = Files {
            kernel: &kernel,
            initramfs: None,
        };
        let wants = Range::new(0x20_0000, 0x20_9000);
        assert_eq!(try_load(&files, 2 * MIB).0, Err(LoadError::Kernel(wants)));
        let large = vec![1; 14 * MIB as usize];
        let files = Files {
            kernel: &kernel,
            initramfs: Some(&large),
        };
        let error = LoadError::Initramfs(14 * MIB);
        assert_eq!(try_load(&files, 32 * MIB).0, Err(error));
        assert_eq!(error.to_string(), "no room for 14 MiB beside the kernel");
    }

    #[test]
    fn an_elf_has_no_use_for_an_initramfs() {
        let files = Files {
            kernel: b"\x7fELF",
            initramfs: Some(&[1]),
        };
        assert_eq!(try_load(&files, MIB).0, Err(LoadError::NoInitramfs));
    }
}
