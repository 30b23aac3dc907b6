//! What machine this is, from its ACPI tables.
//!
//! The crate `acpi` finds and checks the tables, and knows those that all
//! architectures share; LoongArch's entries of the MADT, and the SRAT, are
//! read here. Version 5 is its last that builds without the compiler's
//! unstable features; later ones know no more of LoongArch.
//!
//! Sources: ACPI Specification 6.5, sections 5.2.9 (FADT), 5.2.12 (MADT),
//! 5.2.16 (SRAT), 4.8.3 (power management registers); Microsoft, *Serial Port
//! Console Redirection Table*; PCI Firmware Specification 3.3, section 4.1.2
//! (MCFG).

use super::machine::{Console, Cpu, Machine, PchPicRoute, PowerOff};
use crate::dev::irq_line::{EiointcVector, PchPicInput};
use crate::mm::addr::Hpa;
use crate::mm::frame::Range;
use crate::mm::phys::Pointed;
use ::acpi::address::{AddressSpace, GenericAddress};
use ::acpi::fadt::Fadt;
use ::acpi::madt::Madt;
use ::acpi::mcfg::{Mcfg, McfgEntry};
use ::acpi::sdt::{SdtHeader, Signature};
use ::acpi::spcr::{Spcr, SpcrInterfaceType};
use ::acpi::{AcpiHandler, AcpiTable, AcpiTables, PhysicalMapping};
use alloc::vec::Vec;
use core::ptr::NonNull;

/// What is seen at address 0: no table. As large as any table's fixed part.
static NOTHING: [u64; 64] = [0; 64];

/// Longest table that is looked at: a damaged length may lead anywhere.
const MAX_BYTES: usize = 4 << 20;

/// Lets the crate see firmware's tables.
struct Seen<'a, M>(&'a M);

impl<M> Clone for Seen<'_, M> {
    fn clone(&self) -> Self {
        Self(self.0)
    }
}

impl<M: Pointed> AcpiHandler for Seen<'_, M> {
    unsafe fn map_physical_region<T>(&self, at: usize, bytes: usize) -> PhysicalMapping<Self, T> {
        // EDK2's root table has an empty place for each table that is gone.
        let pointer = if at == 0 || bytes > MAX_BYTES {
            NOTHING.as_ptr().cast()
        } else {
            self.0.pointer(Hpa::new(at as u64))
        };
        let pointer = NonNull::new(pointer.cast_mut().cast()).unwrap_or(NonNull::dangling());
        // SAFETY: `Pointed` shows all memory, and this maps nothing.
        unsafe { PhysicalMapping::new(at, pointer, bytes, bytes, self.clone()) }
    }

    fn unmap_physical_region<T>(_: &PhysicalMapping<Self, T>) {}
}

/// The SRAT's header.
#[repr(transparent)]
struct Srat(SdtHeader);

// SAFETY: nothing but the header, which every table has.
unsafe impl AcpiTable for Srat {
    const SIGNATURE: Signature = Signature::SRAT;

    fn header(&self) -> &SdtHeader {
        &self.0
    }
}

/// The DSDT's header.
#[repr(transparent)]
struct Dsdt(SdtHeader);

// SAFETY: as for `Srat`.
unsafe impl AcpiTable for Dsdt {
    const SIGNATURE: Signature = Signature::DSDT;

    fn header(&self) -> &SdtHeader {
        &self.0
    }
}

type Tables<'a, M> = AcpiTables<Seen<'a, M>>;

/// The bytes of a table.
fn bytes<'m, M: Pointed, T>(table: &'m PhysicalMapping<Seen<'_, M>, T>) -> &'m [u8] {
    let start = table.virtual_start().as_ptr().cast_const().cast();
    // SAFETY: the crate has mapped as many bytes as the header says.
    unsafe { core::slice::from_raw_parts(start, table.region_length()) }
}

/// Reads the tables that the RSDP at `rsdp` leads to; `None` where they are
/// damaged, or without a MADT.
#[must_use]
pub fn read(memory: &impl Pointed, rsdp: Hpa) -> Option<Machine> {
    let at = usize::try_from(rsdp.get()).ok()?;
    let root = root(memory, rsdp)?;
    // SAFETY: firmware says that they are there; signatures and checksums
    // are checked.
    let tables = unsafe { AcpiTables::from_rsdp(Seen(memory), at) }.ok()?;
    has_header(memory, root).then_some(())?;
    let mut machine = Machine::default();
    let madt = tables.find_table::<Madt>().ok()?;
    let bridges = read_madt(&mut machine, bytes(&madt));
    if let Ok(srat) = tables.find_table::<Srat>() {
        read_srat(&mut machine, bytes(&srat));
    }
    if let Ok(spcr) = tables.find_table::<Spcr>() {
        machine.console = console(&spcr);
        machine.console_interrupt = route(&bridges, bytes(&spcr));
    }
    if let Ok(mcfg) = tables.find_table::<Mcfg>() {
        // Not by its own method, which trusts the length.
        machine.ecam = ecam(bytes(&mcfg));
    }
    machine.power_off = power_off(memory, &tables);
    Some(machine)
}

/// Longest RSDP that is looked at; each so far has 36 bytes.
const MAX_RSDP_BYTES: u64 = 4096;
/// Bytes of the header that each other table begins with.
const HEADER_BYTES: u64 = size_of::<SdtHeader>() as u64;

/// The address of the root table that the RSDP names, for the crate believes
/// both how long they are; `None` where the RSDP is longer than any.
fn root(memory: &impl Pointed, rsdp: Hpa) -> Option<Hpa> {
    let mut bytes = [0; 36];
    memory.look(rsdp, &mut bytes);
    match (number(&bytes, 15, 1), number(&bytes, 20, 4)) {
        (0, _) => Some(Hpa::new(number(&bytes, 16, 4))),
        (_, ..=MAX_RSDP_BYTES) => Some(Hpa::new(number(&bytes, 24, 8))),
        _ => None,
    }
}

/// Whether the table at `at` is as long as its header.
fn has_header(memory: &impl Pointed, at: Hpa) -> bool {
    let mut header = [0; 8];
    memory.look(at, &mut header);
    number(&header, 4, 4) >= HEADER_BYTES
}

/// The entries after a table's first `skip` bytes: each begins with its type
/// and its length.
fn entries(table: &[u8], skip: usize) -> impl Iterator<Item = (u8, &[u8])> {
    let mut rest = table.get(skip..).unwrap_or_default();
    core::iter::from_fn(move || {
        let &[kind, length, ..] = rest else {
            return None;
        };
        let (entry, after) = rest.split_at_checked(length.max(2).into())?;
        rest = after;
        Some((kind, entry))
    })
}

/// The little-endian number of `width` bytes at `offset`; 0 beyond the end.
fn number(bytes: &[u8], offset: usize, width: usize) -> u64 {
    let field = bytes.get(offset..offset + width).unwrap_or_default();
    let digits = field.iter().rev();
    digits.fold(0, |number, &byte| number << 8 | u64::from(byte))
}

/// A flag that says that an entry counts.
const ENABLED: u64 = 1;
/// Bytes of the MADT before its entries.
const MADT_BYTES: usize = 44;
/// MADT: Core Programmable Interrupt Controller, one a CPU.
const CORE_PIC: u8 = 0x11;
/// MADT: Legacy I/O Programmable Interrupt Controller.
const LIO_PIC: u8 = 0x12;
/// MADT: Bridge I/O Programmable Interrupt Controller, the PCH-PIC.
const BIO_PIC: u8 = 0x16;

/// A PCH-PIC, and the number of its first interrupt.
struct Bridge {
    base: Hpa,
    first: u64,
}

/// Takes CPUs and PCH-PICs; returns the latter.
fn read_madt(machine: &mut Machine, table: &[u8]) -> Vec<Bridge> {
    let mut bridges = Vec::new();
    for (kind, entry) in entries(table, MADT_BYTES) {
        match kind {
            CORE_PIC if number(entry, 11, 4) & ENABLED != 0 => {
                let id = number(entry, 7, 4) as u32;
                machine.cpus.push(Cpu { id, node: 0 });
            }
            LIO_PIC => machine.legacy_pic = Some(Hpa::new(number(entry, 3, 8))),
            BIO_PIC => bridges.push(Bridge {
                base: Hpa::new(number(entry, 3, 8)),
                first: number(entry, 15, 2),
            }),
            _ => {}
        }
    }
    machine.pch_pics = bridges.iter().map(|bridge| bridge.base).collect();
    bridges
}

/// Bytes of the SRAT before its entries.
const SRAT_BYTES: usize = 48;
/// SRAT: a CPU with an id of 8 bits.
const CPU_AFFINITY: u8 = 0;
/// SRAT: memory.
const MEMORY_AFFINITY: u8 = 1;
/// SRAT: a CPU with an id of 32 bits.
const WIDE_CPU_AFFINITY: u8 = 2;

/// Takes the nodes of CPUs and of memory.
fn read_srat(machine: &mut Machine, table: &[u8]) {
    let mut place = |id: u64, node: u64| {
        let cpus = machine.cpus.iter_mut();
        cpus.filter(|cpu| u64::from(cpu.id) == id)
            .for_each(|cpu| cpu.node = node as u32);
    };
    for (kind, entry) in entries(table, SRAT_BYTES) {
        match kind {
            CPU_AFFINITY if number(entry, 4, 4) & ENABLED != 0 => {
                let node = number(entry, 2, 1) | number(entry, 9, 3) << 8;
                place(number(entry, 3, 1), node);
            }
            WIDE_CPU_AFFINITY if number(entry, 12, 4) & ENABLED != 0 => {
                place(number(entry, 8, 4), number(entry, 4, 4));
            }
            MEMORY_AFFINITY if number(entry, 28, 4) & ENABLED != 0 => {
                let (start, bytes) = (number(entry, 8, 8), number(entry, 16, 8));
                let range = Range::new(start, start.saturating_add(bytes));
                machine.nodes.push((range, number(entry, 2, 4) as u32));
            }
            _ => {}
        }
    }
}

/// Bytes of configuration space of a PCI bus, as a power of two.
const ECAM_BUS_SHIFT: u32 = 20;

/// The configuration space of each PCI segment, of the buses that it has.
fn ecam(table: &[u8]) -> Vec<Range> {
    let entries = table.get(size_of::<Mcfg>()..).unwrap_or_default();
    let entries = entries.chunks_exact(size_of::<McfgEntry>());
    let range = |entry: &[u8]| {
        let base = number(entry, 0, 8);
        let (first, last) = (number(entry, 10, 1), number(entry, 11, 1));
        let start = base.checked_add(first << ECAM_BUS_SHIFT)?;
        let end = base.checked_add((last + 1) << ECAM_BUS_SHIFT)?;
        (end > start).then_some(Range::new(start, end))
    };
    entries.filter_map(range).collect()
}

/// The console that firmware uses.
fn console(spcr: &Spcr) -> Console {
    let is_16550 = matches!(
        spcr.interface_type(),
        SpcrInterfaceType::Full16550
            | SpcrInterfaceType::Full16450
            | SpcrInterfaceType::Generic16550
    );
    match spcr.base_address() {
        // Redirection is off: the table names nothing.
        None => Console::Default,
        Some(Ok(at)) if is_16550 && at.address_space == AddressSpace::SystemMemory => {
            Console::At(at.address)
        }
        Some(_) => Console::Unusable,
    }
}

/// Offset of the global system interrupt in the SPCR. QEMU fills it in though
/// it says that there is no interrupt, and boards' UARTs aren't at a PCH-PIC:
/// the number decides.
const SPCR_INTERRUPT: usize = 54;

/// The way of the console's interrupt; `None` where it isn't by a PCH-PIC.
fn route(bridges: &[Bridge], spcr: &[u8]) -> Option<PchPicRoute> {
    let interrupt = number(spcr, SPCR_INTERRUPT, 4);
    bridges.iter().find_map(|bridge| {
        let input = u8::try_from(interrupt.checked_sub(bridge.first)?).ok()?;
        Some(PchPicRoute {
            base: bridge.base,
            input: PchPicInput::new(input)?,
            // Without a device tree's base vector, inputs are numbered alike.
            vector: EiointcVector::new(input),
        })
    })
}

/// Sleep control register: the type of sleep, from bit 2 on, and "now".
const SLEEP_CONTROL: (u32, u32) = (2, 1 << 5);
/// PM1 control register: likewise, from bit 10 on.
const PM1_CONTROL: (u32, u32) = (10, 1 << 13);
/// Types of sleep: three bits.
const SLEEP_TYPES: u32 = 7;

/// How to switch off: the register of fixed hardware or of its reduced form,
/// with the type of sleep that the DSDT calls `_S5`.
fn power_off<M: Pointed>(memory: &M, tables: &Tables<'_, M>) -> Option<PowerOff> {
    let fadt = tables.find_table::<Fadt>().ok()?;
    let dsdt = Hpa::new(fadt.dsdt_address().ok()? as u64);
    let kind = soft_off(dsdt_bytes(memory, dsdt)?)?;
    let flags = fadt.flags;
    let (register, (shift, now), width) = if flags.system_is_hw_reduced_acpi() {
        (fadt.sleep_control_register().ok()??, SLEEP_CONTROL, 1)
    } else {
        let register = fadt.pm1a_control_block().ok()?;
        // The LS7A's takes words only, and its table says that it is one.
        let width = if register.bit_width == 32 { 4 } else { 2 };
        (register, PM1_CONTROL, width)
    };
    let in_memory: Option<GenericAddress> = (register.address_space == AddressSpace::SystemMemory
        && register.address != 0)
        .then_some(register);
    Some(PowerOff {
        register: in_memory?.address,
        width,
        keep: if width == 1 {
            0
        } else {
            !(SLEEP_TYPES << shift)
        },
        value: kind << shift | now,
    })
}

/// The DSDT's bytes.
fn dsdt_bytes<M: Pointed>(memory: &M, at: Hpa) -> Option<&[u8]> {
    let header = memory.pointer(at).cast::<Dsdt>();
    // SAFETY: firmware's FADT says that the table is there; its header is
    // looked at first.
    unsafe {
        let bytes = (*header).header().length as usize;
        (bytes <= MAX_BYTES).then_some(())?;
        (*header).validate().ok()?;
        Some(core::slice::from_raw_parts(header.cast(), bytes))
    }
}

/// The type of sleep in the package `_S5`: DefName, DefPackage and its first
/// element in AML. The byte code isn't run: firmware writes a constant.
fn soft_off(dsdt: &[u8]) -> Option<u32> {
    let mut places = dsdt.windows(4).enumerate();
    let (at, _) = places.find(|(_, name)| *name == b"_S5_")?;
    // PackageOp, then its length: the first byte says how many more follow.
    let [0x12, length, rest @ ..] = dsdt.get(at + 4..)? else {
        return None;
    };
    // After those the number of elements, then the first.
    let kind = match rest.get(usize::from(length >> 6) + 1..)? {
        [0x0a, value, ..] | [value @ (0 | 1), ..] => *value,
        _ => return None,
    };
    (u32::from(kind) <= SLEEP_TYPES).then_some(kind.into())
}

#[cfg(test)]
mod tests;
