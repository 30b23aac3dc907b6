//! The hypervisor as an EFI application: from firmware's call to the state
//! that a loader would have left.
//!
//! Everything that can be wrong is looked at while firmware still works: what
//! is missing is said on its console, and it gets the machine back. Then its
//! boot services end, and `_start` runs as after any loader, with the bundle
//! and the memory map in the configuration tables.
//!
//! A device tree beside the bundle, in the file `\loongvisor\devicetree`,
//! goes before all that firmware says of the machine.
//!
//! This code runs at physical addresses, on firmware's stack and with its
//! interrupts on. It may use the heap, which begins anew at `_start`, but no
//! other static.
//!
//! Sources: UEFI Specification 2.10; Linux, Documentation/arch/loongarch and
//! include/linux/efi.h for the tables of LINUX_EFI_….

mod bundle;
mod console;
mod device_path;
mod firmware;
mod handover;
mod options;
mod refusal;

use crate::arch::{boot, cpu, lvz};
use crate::bundle::{Bundle, BundleError};
use crate::command_line;
use crate::heap;
use crate::mm::addr::Hpa;
use crate::mm::phys::Identity;
use crate::platform::board;
use crate::platform::efi::{self, Moment, Tables};
use crate::platform::fdt;
use crate::platform::machine::{Console, Machine};
use alloc::string::ToString;
use core::fmt::{Display, Write};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, Ordering};
use firmware::Firmware;
use refusal::Refusal;
use uefi_raw::table::system::SystemTable;
use uefi_raw::{Handle, Status};

/// Firmware, while it works and this code runs; for a panic only. Cleared by
/// `_start` with the heap: it lies in the same section.
#[unsafe(link_section = ".bss.efi")]
static FIRMWARE: AtomicPtr<Firmware> = AtomicPtr::new(null_mut());

/// Where firmware still works, says what has gone wrong on its console and
/// leaves the machine to it; else comes back.
pub fn give_up(what: &dyn Display) {
    let firmware = FIRMWARE.swap(null_mut(), Ordering::SeqCst);
    // SAFETY: `application` has put it there, and takes it away before it
    // ends.
    if let Some(firmware) = unsafe { firmware.as_ref() } {
        let _ = writeln!(firmware.console(), "Loongvisor doesn't start: {what}");
        firmware.exit(Status::ABORTED);
    }
}

/// What is handed over, besides firmware's own tables.
struct Found {
    bundle: &'static [u8],
    options: &'static [u8],
    moment: Option<Moment>,
    seed: Option<&'static [u8]>,
}

/// Firmware calls this, by way of `_start_efi`.
pub extern "C" fn application(image: Handle, system: *mut SystemTable) -> Status {
    // SAFETY: firmware gives its system table, valid until boot services end.
    let firmware = unsafe { Firmware::new(image, system) };
    heap::set_up();
    FIRMWARE.store((&raw const firmware).cast_mut(), Ordering::SeqCst);
    let refusal = match find(&firmware).and_then(|found| handover::prepare(&firmware, &found)) {
        Ok(handover) => handover.go(&firmware),
        Err(refusal) => refusal,
    };
    FIRMWARE.store(null_mut(), Ordering::SeqCst);
    let _ = writeln!(firmware.console(), "Loongvisor doesn't start: {refusal}");
    firmware.withdraw();
    refusal.status()
}

/// Looks for all that a start takes.
fn find(firmware: &Firmware) -> Result<Found, Refusal> {
    let options = options::find(firmware)?;
    check_board(options)?;
    lvz::probe().map_err(Refusal::Cpu)?;
    if let Some(tree) = bundle::file(firmware, "\\loongvisor\\devicetree")? {
        if fdt::length(tree).is_none_or(|bytes| bytes > tree.len()) {
            return Err(Refusal::Tree);
        }
        firmware.publish(&efi::guid::DEVICE_TREE, tree)?;
    }
    let tables = check_machine(firmware)?;
    let bundle = bundle::find(firmware)?;
    check_bundle(bundle).map_err(Refusal::Bundle)?;
    let seed = tables.seed.is_empty().then(|| firmware.seed());
    Ok(Found {
        bundle,
        options,
        moment: firmware.seconds().map(|seconds| Moment {
            seconds,
            ticks: cpu::ticks(),
        }),
        seed: seed.flatten(),
    })
}

/// Refuses a bundle with so much damage that none of its VMs could start.
fn check_bundle(bytes: &[u8]) -> Result<(), BundleError> {
    let bundle = Bundle::read(bytes)?;
    let some = bundle.is_of_use();
    some.then_some(()).ok_or(BundleError::Checksum)
}

/// Refuses an image of another board.
fn check_board(options: &[u8]) -> Result<(), Refusal> {
    let text = core::str::from_utf8(options).unwrap_or_default();
    let text = text.trim_end_matches('\0');
    // What a fault of this part looks like, as `crash=` shows others later.
    if command_line::values(text, "crash").any(|how| how == "firmware") {
        panic!("crash=firmware was asked for");
    }
    board::check(text, board::this()).map_err(|wrong| Refusal::Board(wrong.to_string()))
}

/// Refuses a machine that the hypervisor couldn't do anything with; returns
/// firmware's tables.
fn check_machine(firmware: &Firmware) -> Result<Tables, Refusal> {
    // SAFETY: firmware's memory is where its addresses say; only its tables
    // are read.
    let memory = unsafe { Identity::new() };
    let table = Hpa::new(firmware.system_table());
    let tables = efi::read(&memory, table).ok_or(Refusal::NoMachine)?;
    let machine = Machine::read(&memory, &tables).ok_or(Refusal::NoMachine)?;
    if !machine.cpus.iter().any(|cpu| cpu.id == cpu::id()) {
        return Err(Refusal::NotInList(cpu::id()));
    }
    match machine.console {
        Console::Unusable => Err(Refusal::NoConsole),
        Console::Default | Console::At(_) => Ok(tables),
    }
}

/// The hypervisor's first instruction after any loader.
fn start(options: &[u8], system_table: u64) -> ! {
    // SAFETY: firmware has ended its boot services, and there is one CPU.
    unsafe { boot::start(options.as_ptr() as u64, system_table) }
}
