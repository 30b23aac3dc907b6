//! The hypervisor's file for UEFI firmware, as its loader reads it.

use anyhow::{Context as _, Result, ensure};
use object::LittleEndian as LE;
use object::pe::IMAGE_SUBSYSTEM_EFI_APPLICATION;
use object::read::pe::{ImageNtHeaders, ImageOptionalHeader, PeFile64};

/// IMAGE_FILE_MACHINE_LOONGARCH64 (*PE Format*, "Machine Types").
const LOONGARCH64: u16 = 0x6264;

/// Checks its header against what it holds: every offset in it is one in memory, and the
/// entry lies in the code.
pub fn check(bytes: &[u8]) -> Result<()> {
    let file = PeFile64::parse(bytes).context("it is no PE file")?;
    let header = file.nt_headers();
    ensure!(
        header.file_header().machine.get(LE) == LOONGARCH64,
        "its machine isn't LoongArch"
    );
    let optional = header.optional_header();
    ensure!(
        optional.subsystem() == IMAGE_SUBSYSTEM_EFI_APPLICATION,
        "it is no EFI application"
    );
    let sections: Vec<_> = file.section_table().iter().collect();
    for section in &sections {
        let (at, offset) = (
            section.virtual_address.get(LE),
            section.pointer_to_raw_data.get(LE),
        );
        ensure!(
            at == offset,
            "a section at {at:#x} has its bytes at {offset:#x}"
        );
        let end = offset.checked_add(section.size_of_raw_data.get(LE));
        ensure!(
            end.is_some_and(|end| end as usize <= bytes.len()),
            "a section at {at:#x} ends beyond the file"
        );
    }
    let entry = optional.address_of_entry_point();
    let code = sections.first().context("it has no sections")?;
    let (start, length) = (code.virtual_address.get(LE), code.virtual_size.get(LE));
    ensure!(
        (start..start + length).contains(&entry),
        "its entry isn't in its code"
    );
    let last = sections.last().context("it has no sections")?;
    let end = last.virtual_address.get(LE) + last.virtual_size.get(LE);
    ensure!(
        end == optional.size_of_image(),
        "its size isn't where it ends"
    );
    Ok(())
}
