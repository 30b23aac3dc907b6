//! What machine this is, from its device tree.
//!
//! Source: Devicetree Specification 0.4; the nodes of QEMU's `virt` machine
//! (hw/loongarch/virt-fdt-build.c) and of Linux's LoongArch boards.

mod sound;

use super::machine::{Console, Cpu, Machine, PchPicRoute, PowerOff};
use crate::dev::irq_line::{EiointcVector, PchPicInput};
use crate::mm::addr::Hpa;
use crate::mm::frame::Range;
use crate::mm::phys::Pointed;
use alloc::vec::Vec;
use fdt::Fdt;
use fdt::node::FdtNode;

/// The binding of the PCH-PIC.
const PCH_PIC: &str = "loongson,pch-pic-1.0";
/// The binding of a PCI host with flat configuration space, its first range.
const PCI_HOST: &str = "pci-host-ecam-generic";
/// What a tree begins with.
const MAGIC: [u8; 4] = [0xd0, 0x0d, 0xfe, 0xed];
/// Largest tree that is read.
const MAX_BYTES: usize = 1 << 20;

/// Reads the tree at `at`, which counts as reserved; `None` where there is
/// none.
#[must_use]
pub fn find(memory: &impl Pointed, at: Hpa) -> Option<Machine> {
    let mut header = [0; 8];
    memory.look(at, &mut header);
    let bytes = length(&header)?;
    // SAFETY: firmware says that there is a tree, and nothing changes it; its
    // header has been read, for its length.
    let blob = unsafe { core::slice::from_raw_parts(memory.pointer(at), bytes) };
    let mut machine = read(blob)?;
    let end = at.get() + bytes as u64;
    machine.reserved.push(Range::new(at.get(), end));
    Some(machine)
}

/// The length in bytes of the tree that begins with `header`, as that says;
/// `None` where it is none, or one that isn't read.
#[must_use]
pub fn length(header: &[u8]) -> Option<usize> {
    let rest = header.strip_prefix(&MAGIC)?;
    let bytes = u32::from_be_bytes(*rest.first_chunk()?) as usize;
    (bytes <= MAX_BYTES).then_some(bytes)
}

/// Reads the tree in `blob`; `None` where that isn't one, or damaged.
#[must_use]
pub fn read(blob: &[u8]) -> Option<Machine> {
    let sound = sound::tree(blob)?;
    let tree = Fdt::new(&sound).ok()?;
    let uart = uart(&tree);
    Some(Machine {
        ram: ranges(tree.find_all_nodes("/memory")),
        reserved: reserved(&tree),
        ecam: ecam(&tree),
        nodes: nodes(&tree),
        cpus: cpus(&tree),
        console: uart.as_ref().map_or(Console::Default, console),
        console_interrupt: uart.and_then(|node| pch_pic_route(&tree, &node)),
        pch_pics: pch_pics(&tree),
        legacy_pic: None,
        rtc: rtc(&tree),
        power_off: power_off(&tree),
        seed: seed(&tree).unwrap_or_default(),
    })
}

/// The node that a CPU or memory belongs to.
fn node_of(node: &FdtNode<'_, '_>) -> u32 {
    let number = node.property("numa-node-id").and_then(|id| id.as_usize());
    number.map_or(0, |number| number as u32)
}

/// The nodes of memory.
fn nodes(tree: &Fdt<'_>) -> Vec<(Range, u32)> {
    let memory = tree.find_all_nodes("/memory");
    memory
        .flat_map(|node| {
            let number = node_of(&node);
            let ranges = ranges(core::iter::once(node));
            ranges.into_iter().map(move |range| (range, number))
        })
        .collect()
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

/// The nodes that are `name`'s, or work as those do.
fn compatible<'b, 'a>(
    tree: &'b Fdt<'a>,
    name: &'static str,
) -> impl Iterator<Item = FdtNode<'b, 'a>> {
    tree.all_nodes().filter(move |node| {
        let names = node.compatible();
        names.is_some_and(|names| names.all().any(|one| one == name))
    })
}

fn is_in_use(node: &FdtNode<'_, '_>) -> bool {
    let status = node.property("status").and_then(|p| p.as_str());
    status != Some("disabled")
}

/// The configuration space of PCI's hosts.
fn ecam(tree: &Fdt<'_>) -> Vec<Range> {
    compatible(tree, PCI_HOST)
        .flat_map(|node| ranges(core::iter::once(node)).into_iter().take(1))
        .collect()
}

fn cpus(tree: &Fdt<'_>) -> Vec<Cpu> {
    let is_cpu = |node: &FdtNode<'_, '_>| {
        let kind = node.property("device_type").and_then(|p| p.as_str());
        kind == Some("cpu") && is_in_use(node)
    };
    let parent = tree.find_node("/cpus");
    parent
        .into_iter()
        .flat_map(|node| node.children())
        .filter(is_cpu)
        .filter_map(|node| {
            let id = node.property("reg")?.as_usize()?;
            let (id, node) = (u32::try_from(id).ok()?, node_of(&node));
            Some(Cpu { id, node })
        })
        .collect()
}

/// The console that the tree chooses, else the first 16550 in use.
fn uart<'a>(tree: &'a Fdt<'a>) -> Option<FdtNode<'a, 'a>> {
    let chosen = tree.find_node("/chosen");
    let path = chosen.and_then(|chosen| chosen.property("stdout-path")?.as_str());
    let path = path.and_then(|path| path.split(':').next());
    path.and_then(|path| tree.find_node(path))
        .or_else(|| compatible(tree, "ns16550a").find(is_in_use))
}

/// Where the UART `node` is, if it is a 16550.
fn console(node: &FdtNode<'_, '_>) -> Console {
    let mut names = node.compatible().into_iter().flat_map(|names| names.all());
    let is_16550 = names.any(|name| name.starts_with("ns16550"));
    match node.reg().and_then(|mut regions| regions.next()) {
        Some(region) if is_16550 => Console::At(region.starting_address as u64),
        _ => Console::Unusable,
    }
}

fn pch_pics(tree: &Fdt<'_>) -> Vec<Hpa> {
    compatible(tree, PCH_PIC)
        .filter_map(|node| Some(Hpa::new(node.reg()?.next()?.starting_address as u64)))
        .collect()
}

/// The way of a device's interrupt; `None` where it isn't by PCH-PIC.
fn pch_pic_route(tree: &Fdt<'_>, device: &FdtNode<'_, '_>) -> Option<PchPicRoute> {
    let parent = device.property("interrupt-parent")?.as_usize()?;
    let parent = tree.find_phandle(u32::try_from(parent).ok()?)?;
    let mut names = parent.compatible()?.all();
    names.find(|name| *name == PCH_PIC)?;
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
    // Binding "syscon-poweroff": what the mask leaves out is kept.
    let mask = number("mask").map_or(u32::MAX, |mask| mask as u32);
    let width = syscon.property("reg-io-width").and_then(|p| p.as_usize());
    Some(PowerOff {
        register: base.checked_add(number("offset")? as u64)?,
        width: width.map_or(4, |width| width as u8),
        keep: !mask,
        value: number("value")? as u32 & mask,
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
            w.property_u32("reg-io-width", 1)?;
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
        let ids: Vec<u32> = machine.cpus.iter().map(|cpu| cpu.id).collect();
        assert_eq!(ids, [2, 0]);
        assert_eq!(machine.console, Console::At(0x1fe0_02e0));
        assert_eq!(machine.rtc, Some(0x100d_0100));
        assert_eq!(
            machine.power_off,
            Some(PowerOff {
                register: 0x100e_001d,
                width: 1,
                keep: 0,
                value: 0x34
            })
        );
    }

    #[test]
    fn nodes_of_cpus_and_memory() {
        let mut writer = FdtWriter::new().unwrap();
        let root = writer.begin_node("").unwrap();
        writer.property_u32("#address-cells", 2).unwrap();
        writer.property_u32("#size-cells", 2).unwrap();
        // Node 1 of a 3C5000's: its memory has the node's number in bits 47:44.
        for (name, start, number) in [("memory@0", 0, 0), ("memory@1", 1 << 44, 1)] {
            node(&mut writer, name, |w| {
                w.property_array_u64("reg", &[start, 0x1_0000_0000])?;
                w.property_u32("numa-node-id", number)
            });
        }
        node(&mut writer, "cpus", |w| {
            w.property_u32("#address-cells", 1)?;
            w.property_u32("#size-cells", 0)?;
            node(w, "cpu@4", |w| {
                w.property_string("device_type", "cpu")?;
                w.property_u32("numa-node-id", 1)?;
                w.property_u32("reg", 4)
            });
            Ok(())
        });
        writer.end_node(root).unwrap();
        let machine = read(&writer.finish().unwrap()).unwrap();
        let second = Range::new(1 << 44, (1 << 44) + 0x1_0000_0000);
        let nodes = [(Range::new(0, 0x1_0000_0000), 0), (second, 1)];
        assert_eq!(machine.nodes, nodes);
        assert_eq!(machine.cpus, [Cpu { id: 4, node: 1 }]);
        assert_eq!(machine.console, Console::Default);
    }

    #[test]
    fn a_tree_says_how_long_it_is() {
        let blob = tree();
        assert_eq!(length(&blob), Some(blob.len()));
        assert_eq!((length(&blob[..7]), length(&blob[1..])), (None, None));
        assert_eq!(length(&[0xd0, 0x0d, 0xfe, 0xed, 0xff, 0, 0, 0]), None);
    }

    #[test]
    fn without_a_choice_the_first_uart_in_use_is_the_console() {
        let mut writer = FdtWriter::new().unwrap();
        let root = writer.begin_node("").unwrap();
        writer.property_u32("#address-cells", 2).unwrap();
        writer.property_u32("#size-cells", 2).unwrap();
        for (at, status) in [(0x1008_0000, "disabled"), (0x1fe0_01e8, "okay")] {
            node(&mut writer, &format!("serial@{at:x}"), |w| {
                w.property_string("compatible", "ns16550a")?;
                w.property_string("status", status)?;
                w.property_array_u64("reg", &[at, 8])
            });
        }
        node(&mut writer, "chosen", |w| w.property_null("empty"));
        writer.end_node(root).unwrap();
        let machine = read(&writer.finish().unwrap()).unwrap();
        assert_eq!(machine.console, Console::At(0x1fe0_01e8));
    }

    #[test]
    fn bytes_that_are_no_tree_are_refused() {
        assert_eq!(read(&[0; 64]), None);
        assert_eq!(read(&[]), None);
    }
}
