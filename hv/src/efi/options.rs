//! The hypervisor's command line: firmware's load options, or a file.

use super::bundle::file;
use super::firmware::Firmware;
use super::refusal::Refusal;
use crate::platform::efi::load_options;

/// The command line, with a 0 at its end.
///
/// # Errors
/// The file is there but can't be read, or there is no memory.
pub fn find(firmware: &Firmware) -> Result<&'static [u8], Refusal> {
    let given = firmware.loaded_image().and_then(|image| {
        let units = image.load_options_size as usize / 2;
        let given = image.load_options.cast::<[u8; 2]>();
        // SAFETY: firmware says that as many bytes are there.
        (!given.is_null()).then(|| unsafe { core::slice::from_raw_parts(given, units) })
    });
    if let Some(text) = given.and_then(load_options) {
        return text_of(firmware, text.as_bytes());
    }
    let text = file(firmware, "\\loongvisor\\options")?;
    text_of(firmware, text.unwrap_or_default())
}

/// `text` in memory that stays, with a 0 at its end.
fn text_of(firmware: &Firmware, text: &[u8]) -> Result<&'static [u8], Refusal> {
    let memory = firmware.allocate(text.len() + 1)?;
    memory
        .iter_mut()
        .zip(text)
        .for_each(|(to, from)| *to = *from);
    Ok(memory)
}
