//! What the image begins with: the header of an EFI application, and in it
//! what Linux's images tell their loaders.
//!
//! The image's segments, one after the other as they lie in memory, are the
//! application's file. It has no base relocations: firmware may load it
//! anywhere, and `relocate` (`arch::boot`) does the rest.
//!
//! Sources: *PE Format* (Microsoft), sections 2 to 4; Linux,
//! Documentation/arch/loongarch/booting.rst for the words in between.

use core::arch::global_asm;

/// IMAGE_FILE_MACHINE_LOONGARCH64.
const MACHINE: u16 = 0x6264;
/// Executable, without line numbers and symbols.
const CHARACTERISTICS: u16 = 0x206;
/// Optional header of a 64-bit image.
const PE32_PLUS: u16 = 0x20b;
/// IMAGE_SUBSYSTEM_EFI_APPLICATION.
const EFI_APPLICATION: u16 = 10;
/// Code: readable and executable.
const CODE: u32 = 0x6000_0020;
/// Initialized data: readable and writable.
const DATA: u32 = 0xc000_0040;
/// Boundary of the sections in memory: the largest that a static asks for.
const IN_MEMORY: u32 = 16 << 10;
/// Boundary of the sections in the file.
const IN_FILE: u32 = 512;
/// The version from which on GRUB offers the initrd by LoadFile2.
const LOADS_INITRD: u16 = 3;
/// "This is a Linux PE image", where boot loaders look for it.
const LINUX_PE_MAGIC: u32 = 0x8182_23cd;
/// Where the image would like to be, as the linker script says.
const LOAD_OFFSET: u64 = 0x20_0000;

global_asm!(
    ".section .head, \"a\"",
    "image_head:",
    ".ascii \"MZ\"",
    ".org 0x8",
    ".dword _start - image_head + {load_offset}",
    ".dword __image_end - image_head",
    ".dword {load_offset}",
    ".org 0x38",
    ".word {linux_pe_magic}",
    ".word 1f - image_head",
    "1:",
    ".ascii \"PE\\0\\0\"",
    ".short {machine}",
    ".short 2", // Sections.
    ".word 0, 0, 0",
    ".short 3f - 2f",
    ".short {characteristics}",
    "2:",
    ".short {pe32_plus}",
    ".byte 0, 0",
    ".word __data_start - __text_start",
    ".word __data_end - __data_start",
    ".word __image_end - __data_end",
    ".word _start_efi - image_head",
    ".word __text_start - image_head",
    ".dword 0", // Base address: any.
    ".word {in_memory}, {in_file}",
    ".short 0, 0", // Version of the system.
    ".short {loads_initrd}, 0",
    ".short 0, 0", // Version of the subsystem.
    ".word 0",
    ".word __image_end - image_head",
    ".word __text_start - image_head",
    ".word 0", // Checksum.
    ".short {efi_application}",
    ".short 0",
    ".dword 0, 0, 0, 0", // Stack and heap.
    ".word 0",
    ".word 6", // Directories, all empty.
    ".dword 0, 0, 0, 0, 0, 0",
    "3:",
    ".ascii \".text\\0\\0\\0\"",
    ".word __data_start - __text_start, __text_start - image_head",
    ".word __data_start - __text_start, __text_start - image_head",
    ".word 0, 0, 0, {code}",
    ".ascii \".data\\0\\0\\0\"",
    ".word __image_end - __data_start, __data_start - image_head",
    ".word __data_end - __data_start, __data_start - image_head",
    ".word 0, 0, 0, {data}",
    ".section .text, \"ax\"",
    load_offset = const LOAD_OFFSET,
    linux_pe_magic = const LINUX_PE_MAGIC,
    machine = const MACHINE,
    characteristics = const CHARACTERISTICS,
    pe32_plus = const PE32_PLUS,
    in_memory = const IN_MEMORY,
    in_file = const IN_FILE,
    loads_initrd = const LOADS_INITRD,
    efi_application = const EFI_APPLICATION,
    code = const CODE,
    data = const DATA,
);
