//! What machine this is, from its device tree.
//!
//! Source: Devicetree Specification 0.4; the nodes of QEMU's `virt` machine
//! (hw/loongarch/virt-fdt-build.c) and of Linux's LoongArch boards.

use crate::dev::irq_line::{EiointcVector, PchPicInput};
use crate::mm::addr::Hpa;
use crate::mm::frame::Range;
use alloc::vec::Vec;
use fdt::Fdt;
use fdt::node::FdtNode;

/// Physical address of the first UART on `virt` and on 3A5000 and 3C5000
/// boards, where the tree doesn't say.
pub const DEFAULT_UART: u64 = 0x1fe0_01e0;

/// A register that switches the machine off (binding "syscon-poweroff").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PowerOff {
    /// Physical address of the register, one byte wide.
    pub register: u64,
    /// What to write.
    pub value: u8,
}

/// How an interrupt gets to EIOINTC (binding "loongson,pch-pic-1.0").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PchPicRoute {
    /// Physical address of the PCH-PIC.
    pub base: Hpa,
    /// Its input.
    pub input: PchPicInput,
    /// The input's vector.
    pub vector: EiointcVector,
}

/// What the hypervisor wants to know of the machine.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Machine {
    /// RAM.
    pub ram: Vec<Range>,
    /// Parts of RAM that are someone's already.
    pub reserved: Vec<Range>,
    /// Physical ids of the CPUs, ascending.
    pub cpus: Vec<u32>,
    /// Physical address of the console's 16550.
    pub uart: Option<u64>,
    /// How its interrupt comes.
    pub uart_interrupt: Option<PchPicRoute>,
    /// Physical address of the clock.
    pub rtc: Option<u64>,
    /// How to switch off.
    pub power_off: Option<PowerOff>,
    /// A seed for random numbers; empty where there is none.
    pub seed: Vec<u8>,
}

/// Reads the tree in `blob`; `None` where that isn't one.
#[must_use]
pub fn read(blob: &[u8]) -> Option<Machine> {
    let tree = Fdt::new(blob).ok()?;
    let mut machine = Machine {
        ram: ranges(tree.find_all_nodes("/memory")),
        reserved: reserved(&tree),
        cpus: cpus(&tree),
        uart: uart(&tree).and_then(|node| Some(node.reg()?.next()?.starting_address as u64)),
        uart_interrupt: uart(&tree).and_then(|node| pch_pic_route(&tree, &node)),
        rtc: rtc(&tree),
        power_off: power_off(&tree),
        seed: seed(&tree).unwrap_or_default(),
    };
    machine.cpus.sort_unstable();
    Some(machine)
}

fn ranges<'a>(nodes: impl Iterator<Item = FdtNode<'a, 'a>>) -> Vec<Range> {
    nodes
        .filter_map(|node| node.reg())
        .flatten()
        .filter_map(|region| {
            let start = region.starting_address as u64;
            let end = start.checked_add(region.size? as u64)?;
            (end > start).then_some(Range::new(start, end))
        })
        .collect()
}

fn reserved(tree: &Fdt<'_>) -> Vec<Range> {
    let parent = tree.find_node("/reserved-memory");
    let mut all: Vec<Range> = parent
        .into_iter()
        .flat_map(|node| ranges(node.children()))
        .collect();
    all.extend(tree.memory_reservations().map(|entry| {
        let start = entry.address() as u64;
        Range::new(start, start.saturating_add(entry.size() as u64))
    }));
    all
}

fn cpus(tree: &Fdt<'_>) -> Vec<u32> {
    let is_cpu = |node: &FdtNode<'_, '_>| {
        let kind = node.property("device_type").and_then(|p| p.as_str());
        let status = node.property("status").and_then(|p| p.as_str());
        kind == Some("cpu") && status != Some("disabled")
    };
    let parent = tree.find_node("/cpus");
    parent
        .into_iter()
        .flat_map(|node| node.children())
        .filter(is_cpu)
        .filter_map(|node| node.property("reg")?.as_usize())
        .filter_map(|id| u32::try_from(id).ok())
        .collect()
}

/// The console that the tree chooses, else the first 16550.
fn uart<'a>(tree: &'a Fdt<'a>) -> Option<FdtNode<'a, 'a>> {
    let chosen = tree.find_node("/chosen")?.property("stdout-path")?.as_str();
    let path = chosen.and_then(|path| path.split(':').next());
    path.and_then(|path| tree.find_node(path))
        .or_else(|| tree.find_compatible(&["ns16550a"]))
}

/// The way of a device's interrupt; `None` where it isn't by PCH-PIC.
fn pch_pic_route(tree: &Fdt<'_>, device: &FdtNode<'_, '_>) -> Option<PchPicRoute> {
    let parent = device.property("interrupt-parent")?.as_usize()?;
    let parent = tree.find_phandle(u32::try_from(parent).ok()?)?;
    let mut names = parent.compatible()?.all();
    names.find(|name| *name == "loongson,pch-pic-1.0")?;
    let cell = device.property("interrupts")?.value.first_chunk()?;
    let input = u8::try_from(u32::from_be_bytes(*cell)).ok()?;
    let first = parent.property("loongson,pic-base-vec")?.as_usize()?;
    let vector = first.checked_add(input.into())?;
    Some(PchPicRoute {
        base: Hpa::new(parent.reg()?.next()?.starting_address as u64),
        input: PchPicInput::new(input)?,
        vector: EiointcVector::new(u8::try_from(vector).ok()?),
    })
}

fn rtc(tree: &Fdt<'_>) -> Option<u64> {
    let node = tree.find_compatible(&["loongson,ls7a-rtc"])?;
    Some(node.reg()?.next()?.starting_address as u64)
}

fn power_off(tree: &Fdt<'_>) -> Option<PowerOff> {
    let node = tree.find_compatible(&["syscon-poweroff"])?;
    let number = |name| node.property(name)?.as_usize();
    let syscon = tree.find_phandle(u32::try_from(number("regmap")?).ok()?)?;
    let base = syscon.reg()?.next()?.starting_address as u64;
    Some(PowerOff {
        register: base.checked_add(number("offset")? as u64)?,
        value: number("value")? as u8,
    })
}

fn seed(tree: &Fdt<'_>) -> Option<Vec<u8>> {
    let seed = tree.find_node("/chosen")?.property("rng-seed")?;
    Some(seed.value.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;
    use vm_fdt::{FdtReserveEntry, FdtWriter};

    fn node(
        writer: &mut FdtWriter,
        name: &str,
        fill: impl FnOnce(&mut FdtWriter) -> vm_fdt::FdtWriterResult<()>,
    ) {
        let begun = writer.begin_node(name).unwrap();
        fill(writer).unwrap();
        writer.end_node(begun).unwrap();
    }

    /// A tree like the one of QEMU's `virt` with CPUs 2 and 0.
    fn tree() -> Vec<u8> {
        let held = FdtReserveEntry::new(0x10_0000, 0x1000).unwrap();
        let mut writer = FdtWriter::new_with_mem_reserv(&[held]).unwrap();
        let root = writer.begin_node("").unwrap();
        writer.property_u32("#address-cells", 2).unwrap();
        writer.property_u32("#size-cells", 2).unwrap();
        for (name, reg) in [
            ("memory@80000000", [0x8000_0000, 0x1_0000_0000]),
            ("memory@0", [0, 0x1000_0000]),
        ] {
            node(&mut writer, name, |w| {
                w.property_string("device_type", "memory")?;
                w.property_array_u64("reg", &reg)
            });
        }
        node(&mut writer, "reserved-memory", |w| {
            w.property_u32("#address-cells", 2)?;
            w.property_u32("#size-cells", 2)?;
            node(w, "firmware@0", |w| {
                w.property_array_u64("reg", &[0, 0x20_0000])
            });
            Ok(())
        });
        node(&mut writer, "cpus", |w| {
            w.property_u32("#address-cells", 1)?;
            w.property_u32("#size-cells", 0)?;
            for id in [2, 0] {
                node(w, &format!("cpu@{id}"), |w| {
                    w.property_string("device_type", "cpu")?;
                    w.property_u32("reg", id)
                });
            }
            Ok(())
        });
        node(&mut writer, "serial@1fe002e0", |w| {
            w.property_string("compatible", "ns16550a")?;
            w.property_array_u64("reg", &[0x1fe0_02e0, 0x100])
        });
        node(&mut writer, "rtc@100d0100", |w| {
            w.property_string("compatible", "loongson,ls7a-rtc")?;
            w.property_array_u64("reg", &[0x100d_0100, 0x100])
        });
        node(&mut writer, "ged@100e001c", |w| {
            w.property_u32("phandle", 7)?;
            w.property_array_u64("reg", &[0x100e_001c, 3])
        });
        node(&mut writer, "poweroff", |w| {
            w.property_string("compatible", "syscon-poweroff")?;
            w.property_u32("regmap", 7)?;
            w.property_u32("offset", 1)?;
            w.property_u32("value", 0x34)
        });
        node(&mut writer, "chosen", |w| {
            w.property_string("stdout-path", "/serial@1fe002e0:115200")
        });
        writer.end_node(root).unwrap();
        writer.finish().unwrap()
    }

    #[test]
    fn tree_of_a_virtual_machine() {
        let machine = read(&tree()).unwrap();
        let ram = [
            Range::new(0x8000_0000, 0x1_8000_0000),
            Range::new(0, 0x1000_0000),
        ];
        assert_eq!(machine.ram, ram);
        let reserved = [Range::new(0, 0x20_0000), Range::new(0x10_0000, 0x10_1000)];
        assert_eq!(machine.reserved, reserved);
        assert_eq!(machine.cpus, [0, 2]);
        assert_eq!(machine.uart, Some(0x1fe0_02e0));
        assert_eq!(machine.rtc, Some(0x100d_0100));
        let register = 0x100e_001d;
        assert_eq!(
            machine.power_off,
            Some(PowerOff {
                register,
                value: 0x34
            })
        );
    }

    #[test]
    fn bytes_that_are_no_tree_are_refused() {
        assert_eq!(read(&[0; 64]), None);
        assert_eq!(read(&[]), None);
    }
}
