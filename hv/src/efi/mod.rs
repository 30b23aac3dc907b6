//! The hypervisor as an EFI application.

mod console;

use console::Console;
use core::fmt::Write;
use uefi_raw::table::system::SystemTable;
use uefi_raw::{Handle, Status};

/// Firmware calls this, by way of `_start_efi`.
pub extern "C" fn application(_image: Handle, system: *mut SystemTable) -> Status {
    // SAFETY: firmware gives its system table, valid until boot services end.
    let system = unsafe { &*system };
    let mut console = Console::new(system.stdout);
    let _ = writeln!(console, "Loongvisor: can't be started by firmware yet");
    Status::UNSUPPORTED
}
