//! What the hypervisor wants to know of the machine, whoever describes it.
//!
//! Firmware gives a device tree, ACPI tables, or both: then the tree counts,
//! which says more.

use super::efi::Tables;
use super::{acpi, fdt};
use crate::dev::irq_line::{EiointcVector, PchPicInput};
use crate::mm::addr::Hpa;
use crate::mm::frame::Range;
use crate::mm::phys::Pointed;
use alloc::vec::Vec;

/// Physical address of the first UART on `virt` and on 3A5000 and 3C5000
/// boards, where nothing says another.
pub const DEFAULT_UART: u64 = 0x1fe0_01e0;

/// A register that switches the machine off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PowerOff {
    /// Its physical address.
    pub register: u64,
    /// Its width in bytes: 1, 2 or 4.
    pub width: u8,
    /// What to keep of it.
    pub keep: u32,
    /// What to write besides.
    pub value: u32,
}

/// How an interrupt gets to EIOINTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PchPicRoute {
    /// Physical address of the PCH-PIC.
    pub base: Hpa,
    /// Its input.
    pub input: PchPicInput,
    /// The input's vector.
    pub vector: EiointcVector,
}

/// A CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cpu {
    /// Its physical id.
    pub id: u32,
    /// The node that it belongs to; 0 where there is only one.
    pub node: u32,
}

/// The console's UART.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Console {
    /// Nobody says which: [`DEFAULT_UART`].
    #[default]
    Default,
    /// The 16550 at this physical address.
    At(u64),
    /// Something else than a 16550 in memory.
    Unusable,
}

/// What the hypervisor wants to know of the machine.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Machine {
    /// RAM, where the description has it; ACPI leaves it to firmware's map.
    pub ram: Vec<Range>,
    /// Parts of RAM that are someone's already.
    pub reserved: Vec<Range>,
    /// Where PCI's configuration space is. Nothing uses it, and nobody gets it
    /// as RAM.
    pub ecam: Vec<Range>,
    /// The node of parts of the address space; the rest is node 0's.
    pub nodes: Vec<(Range, u32)>,
    /// The CPUs, by ascending id.
    pub cpus: Vec<Cpu>,
    /// The console.
    pub console: Console,
    /// How its interrupt comes.
    pub console_interrupt: Option<PchPicRoute>,
    /// Physical addresses of the PCH-PICs.
    pub pch_pics: Vec<Hpa>,
    /// Physical address of the processor's legacy controller, where ACPI names
    /// it.
    pub legacy_pic: Option<Hpa>,
    /// Physical address of the clock.
    pub rtc: Option<u64>,
    /// How to switch off.
    pub power_off: Option<PowerOff>,
    /// A seed for random numbers; empty where there is none.
    pub seed: Vec<u8>,
}

impl Machine {
    /// The machine that `tables` describe; `None` where they describe none,
    /// or one without CPUs.
    #[must_use]
    pub fn read(memory: &impl Pointed, tables: &Tables) -> Option<Self> {
        let has_cpus = |machine: &Self| !machine.cpus.is_empty();
        let by_fdt = tables.fdt.and_then(|at| fdt::find(memory, at));
        let by_acpi = || tables.acpi.and_then(|at| acpi::read(memory, at));
        let by_fdt = by_fdt.filter(has_cpus);
        let mut machine = by_fdt.or_else(by_acpi).filter(has_cpus)?;
        machine.cpus.sort_unstable_by_key(|cpu| cpu.id);
        machine.cpus.dedup_by_key(|cpu| cpu.id);
        Some(machine)
    }
}
