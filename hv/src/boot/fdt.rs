//! The device tree of a guest: exactly what its VM has.
//!
//! A device that the configuration doesn't name has no node, and what a
//! device can't do isn't claimed. Some nodes are there for Linux's sake: an
//! `isa` bus with I/O ports, since Linux probes for a keyboard controller
//! whether there is one or not and takes an exception where no ports are
//! mapped; and the CPUs' clock, without which it warns and assumes one. And
//! a small VM's kernel is told to set little aside for devices that move
//! data by themselves, which it has none of: Debian's takes 192 MiB of its
//! own accord, and doesn't boot in 256. A node for a smaller area instead of
//! the words on its command line would not do: such an area has 32 MiB at
//! least, the 64 MiB of bounce buffers have no node, and with both 256 MiB
//! are enough or not, as the kernel's random place has it.
//!
//! Source: Devicetree Specification 0.4; Linux,
//! Documentation/devicetree/bindings and arch/loongarch/kernel/{setup,env,smp}.c.

use crate::config::{Device, DeviceKind, VmConfig};
use crate::dev::layout;
use crate::mm::frame::Range;
use alloc::format;
use alloc::vec::Vec;
use vm_fdt::{FdtWriter, FdtWriterResult};

/// Names of nodes that others refer to.
#[derive(Clone, Copy)]
#[repr(u32)]
enum Phandle {
    Cpuic = 1,
    Eiointc,
    PchPic,
    PchMsi,
    Clock,
    Power,
}

/// An interrupt that is a level, active high.
const LEVEL_HIGH: u32 = 4;
/// The line of a CPU's interrupt controller that EIOINTC is said to drive;
/// Linux spreads it over HWI0 to 3 by itself where it sees a hypervisor.
const EIOINTC_LINE: u32 = 3;
/// EIOINTC's registers in the IOCSR space: offset and bytes.
const EIOINTC_REG: [u64; 2] = [0x1400, 0x900];
/// First cell of an address on an ISA bus: it is an I/O port.
const ISA_IO: u32 = 1;

/// VMs with less RAM than this are small.
const SMALL_VM_BYTES: u64 = 1 << 30;
/// What a small VM's kernel is told before its own command line: to set
/// nothing aside for contiguous allocations, and 4 MiB for bounce buffers.
const SMALL_VM_ARGUMENTS: &str = "cma=0 swiotlb=2048 ";

/// What a tree is made of besides the configuration.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    /// The ranges of RAM.
    pub ram: &'a [Range],
    /// Frequency of the CPUs' clock, in Hz.
    pub clock_hz: u32,
    /// A seed for the guest's random pool, if there is one.
    pub seed: Option<&'a [u8]>,
}

/// The tree for the VM that `config` describes.
///
/// # Errors
/// The writer's, which for a configuration that has been checked don't
/// occur.
pub fn build(config: &VmConfig, facts: &Facts<'_>) -> FdtWriterResult<Vec<u8>> {
    let mut w = FdtWriter::new()?;
    let root = w.begin_node("")?;
    let compatible = ["loongvisor,virt", "linux,dummy-loongson3"];
    w.property_string_list("compatible", compatible.map(Into::into).into())?;
    w.property_string("model", "Loongvisor virtual machine")?;
    w.property_u32("#address-cells", 2)?;
    w.property_u32("#size-cells", 2)?;
    chosen(&mut w, config, facts.seed)?;
    cpus(&mut w, config)?;
    for range in facts.ram {
        node(&mut w, &format!("memory@{:x}", range.start), |w| {
            w.property_string("device_type", "memory")?;
            w.property_array_u64("reg", &[range.start, range.bytes()])
        })?;
    }
    node(&mut w, "clock", |w| {
        w.property_string("compatible", "fixed-clock")?;
        w.property_u32("#clock-cells", 0)?;
        w.property_u32("clock-frequency", facts.clock_hz)?;
        w.property_phandle(Phandle::Clock as u32)
    })?;
    cpu_controllers(&mut w)?;
    for device in &config.devices {
        device_node(&mut w, config, device)?;
    }
    w.end_node(root)?;
    w.finish()
}

/// A node with what `fill` puts into it.
fn node(
    w: &mut FdtWriter,
    name: &str,
    fill: impl FnOnce(&mut FdtWriter) -> FdtWriterResult<()>,
) -> FdtWriterResult<()> {
    let begun = w.begin_node(name)?;
    fill(w)?;
    w.end_node(begun)
}

/// Whether the VM has a device of this kind.
fn has(config: &VmConfig, kind: DeviceKind) -> bool {
    config.devices.iter().any(|device| device.kind == kind)
}

fn first_uart(config: &VmConfig) -> Option<&Device> {
    let mut devices = config.devices.iter();
    devices.find(|device| device.kind == DeviceKind::Uart)
}

fn chosen(w: &mut FdtWriter, config: &VmConfig, seed: Option<&[u8]>) -> FdtWriterResult<()> {
    let uart = first_uart(config);
    let small = config.memory < SMALL_VM_BYTES;
    let first = if small { SMALL_VM_ARGUMENTS } else { "" };
    node(w, "chosen", |w| {
        let arguments = format!("{first}{}", config.command_line);
        w.property_string("bootargs", &arguments)?;
        if let Some(uart) = uart {
            let path = format!("/serial@{:x}", uart.base.get());
            w.property_string("stdout-path", &path)?;
        }
        seed.map_or(Ok(()), |seed| w.property("rng-seed", seed))
    })
}

fn cpus(w: &mut FdtWriter, config: &VmConfig) -> FdtWriterResult<()> {
    node(w, "cpus", |w| {
        w.property_u32("#address-cells", 1)?;
        w.property_u32("#size-cells", 0)?;
        for id in &config.ids {
            node(w, &format!("cpu@{id:x}"), |w| {
                w.property_string("device_type", "cpu")?;
                w.property_string("compatible", "loongson,la464")?;
                w.property_u32("reg", *id)?;
                w.property_u32("clocks", Phandle::Clock as u32)
            })?;
        }
        Ok(())
    })
}

/// The controllers that every vCPU has in itself.
fn cpu_controllers(w: &mut FdtWriter) -> FdtWriterResult<()> {
    node(w, "cpuic", |w| {
        w.property_string("compatible", "loongson,cpu-interrupt-controller")?;
        controller(w, Phandle::Cpuic, 1)
    })?;
    let name = format!("eiointc@{:x}", EIOINTC_REG[0]);
    node(w, &name, |w| {
        w.property_string("compatible", "loongson,ls2k2000-eiointc")?;
        w.property_array_u64("reg", &EIOINTC_REG)?;
        controller(w, Phandle::Eiointc, 1)?;
        w.property_u32("interrupt-parent", Phandle::Cpuic as u32)?;
        w.property_u32("interrupts", EIOINTC_LINE)
    })
}

/// An interrupt controller whose interrupts take `cells` cells.
fn controller(w: &mut FdtWriter, phandle: Phandle, cells: u32) -> FdtWriterResult<()> {
    w.property_null("interrupt-controller")?;
    w.property_u32("#interrupt-cells", cells)?;
    w.property_phandle(phandle as u32)
}

fn device_node(w: &mut FdtWriter, config: &VmConfig, device: &Device) -> FdtWriterResult<()> {
    let at = device.base.get();
    match device.kind {
        DeviceKind::Uart => {
            // The first one has the input; another one is polled.
            let wired = has(config, DeviceKind::PchPic) && Some(device) == first_uart(config);
            let input = wired.then_some(u32::from(layout::UART_INPUT.number()));
            with_reg(w, "serial", device, &["ns16550a"], input, |w| {
                w.property_u32("clock-frequency", layout::UART_CLOCK_HZ)
            })
        }
        // It has no alarm, so no interrupt either.
        DeviceKind::Rtc => with_reg(w, "rtc", device, &["loongson,ls7a-rtc"], None, |_| Ok(())),
        DeviceKind::PchPic => with_reg(
            w,
            "interrupt-controller",
            device,
            &["loongson,pch-pic-1.0"],
            None,
            |w| {
                let first = layout::PCH_PIC_VECTORS.start().number();
                w.property_u32("loongson,pic-base-vec", u32::from(first))?;
                w.property_u32("interrupt-parent", Phandle::Eiointc as u32)?;
                controller(w, Phandle::PchPic, 2)
            },
        ),
        DeviceKind::PchMsi => with_reg(w, "msi", device, &["loongson,pch-msi-1.0"], None, |w| {
            let (first, last) = layout::MSI_VECTORS.into_inner();
            let (first, last) = (u32::from(first.number()), u32::from(last.number()));
            w.property_null("msi-controller")?;
            w.property_u32("loongson,msi-base-vec", first)?;
            w.property_u32("loongson,msi-num-vecs", last - first + 1)?;
            w.property_u32("interrupt-parent", Phandle::Eiointc as u32)?;
            controller(w, Phandle::PchMsi, 1)
        }),
        DeviceKind::Power => power(w, device),
        DeviceKind::Ports => node(w, "isa", |w| {
            w.property_string("compatible", "isa")?;
            w.property_u32("#address-cells", 2)?;
            w.property_u32("#size-cells", 1)?;
            let (high, low) = ((at >> 32) as u32, at as u32);
            let bytes = device.kind.bytes() as u32;
            w.property_array_u32("ranges", &[ISA_IO, 0, high, low, bytes])
        }),
    }
}

/// A node of a device with registers, and the PCH-PIC input of its
/// interrupt, if it has one.
fn with_reg(
    w: &mut FdtWriter,
    name: &str,
    device: &Device,
    compatible: &[&str],
    input: Option<u32>,
    fill: impl FnOnce(&mut FdtWriter) -> FdtWriterResult<()>,
) -> FdtWriterResult<()> {
    let at = device.base.get();
    node(w, &format!("{name}@{at:x}"), |w| {
        let compatible = compatible.iter().map(|&name| name.into());
        w.property_string_list("compatible", compatible.collect())?;
        w.property_array_u64("reg", &[at, device.kind.bytes()])?;
        if let Some(input) = input {
            w.property_u32("interrupt-parent", Phandle::PchPic as u32)?;
            w.property_array_u32("interrupts", &[input, LEVEL_HIGH])?;
        }
        fill(w)
    })
}

/// The power controller, and what its two bytes do.
fn power(w: &mut FdtWriter, device: &Device) -> FdtWriterResult<()> {
    with_reg(w, "power", device, &["syscon"], None, |w| {
        w.property_u32("reg-io-width", 1)?;
        w.property_phandle(Phandle::Power as u32)
    })?;
    let (off, reset) = (layout::POWER_OFF_OFFSET, layout::RESET_OFFSET);
    for (name, compatible, offset, value) in [
        ("poweroff", "syscon-poweroff", off, layout::POWER_OFF_VALUE),
        ("reboot", "syscon-reboot", reset, layout::RESET_VALUE),
    ] {
        node(w, name, |w| {
            w.property_string("compatible", compatible)?;
            w.property_u32("regmap", Phandle::Power as u32)?;
            w.property_u32("offset", offset as u32)?;
            w.property_u32("value", u32::from(value))
        })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mm::addr::Hpa;
    use crate::platform::{fdt as reader, machine};
    use fdt::Fdt;

    const BASIC: &str = "name=a\nvcpus=3\nids=0,5,16\nmemory=1G\nkernel=k\ncommand_line=x=1 y\n";

    fn tree(devices: &str) -> Vec<u8> {
        let config = VmConfig::read(&(BASIC.to_owned() + devices)).unwrap();
        let ram = [
            Range::new(0, 0x1000_0000),
            Range::new(0x8000_0000, 0xb000_0000),
        ];
        let facts = Facts {
            ram: &ram,
            clock_hz: 100_000_000,
            seed: Some(&[3; 32]),
        };
        build(&config, &facts).unwrap()
    }

    fn all_devices() -> String {
        let names = DeviceKind::ALL.map(DeviceKind::name);
        names.map(|name| format!("device={name}\n")).concat()
    }

    #[test]
    fn the_machine_s_own_reader_understands_the_tree() {
        let machine = reader::read(&tree(&all_devices())).unwrap();
        let ids: Vec<u32> = machine.cpus.iter().map(|cpu| cpu.id).collect();
        assert_eq!(ids, [0, 5, 16]);
        assert_eq!(machine.ram.len(), 2);
        let uart = layout::UART.base.get();
        assert_eq!(machine.console, machine::Console::At(uart));
        let route = machine.console_interrupt.unwrap();
        assert_eq!(route.base.get(), layout::PCH_PIC.base.get());
        assert_eq!(route.input, layout::UART_INPUT);
        assert_eq!(route.vector.number(), layout::UART_INPUT.number());
        let power = machine.power_off.unwrap();
        let register = layout::POWER.base.get() + layout::POWER_OFF_OFFSET;
        assert_eq!(
            (Hpa::new(power.register), power.value),
            (Hpa::new(register), 0x34)
        );
        assert_eq!(machine.seed, [3; 32]);
    }

    #[test]
    fn every_reference_leads_to_a_node() {
        let blob = tree(&all_devices());
        let fdt = Fdt::new(&blob).unwrap();
        let mut seen = 0;
        for node in fdt.all_nodes() {
            for name in ["interrupt-parent", "regmap", "clocks"] {
                let Some(property) = node.property(name) else {
                    continue;
                };
                let phandle = property.as_usize().unwrap() as u32;
                assert!(fdt.find_phandle(phandle).is_some(), "{}", node.name);
                seen += 1;
            }
        }
        // Three CPUs, EIOINTC, PCH-PIC, PCH-MSI, UART, clock, two for power.
        assert_eq!(seen, 9);
    }

    #[test]
    fn devices_that_are_not_there_have_no_node() {
        let blob = tree("device=uart\n");
        let fdt = Fdt::new(&blob).unwrap();
        let names = [
            "isa",
            "poweroff",
            "rtc@100d0100",
            "interrupt-controller@10000000",
        ];
        for name in names {
            assert!(fdt.find_node(&format!("/{name}")).is_none(), "{name}");
        }
        let uart = fdt.find_node("/serial@1fe001e0").unwrap();
        assert!(uart.property("interrupts").is_none());
        let arguments = fdt.chosen().bootargs();
        assert_eq!(arguments, Some("x=1 y"));
    }

    #[test]
    fn only_the_first_uart_has_the_interrupt() {
        let second = "device=pch-pic\ndevice=uart\ndevice=uart@0x20000000";
        let blob = tree(second);
        let fdt = Fdt::new(&blob).unwrap();
        for (name, wired) in [("/serial@1fe001e0", true), ("/serial@20000000", false)] {
            let uart = fdt.find_node(name).unwrap();
            assert_eq!(uart.property("interrupts").is_some(), wired, "{name}");
        }
        let chosen = fdt.find_node("/chosen").unwrap();
        let path = chosen.property("stdout-path").unwrap().as_str();
        assert_eq!(path, Some("/serial@1fe001e0"));
    }

    #[test]
    fn a_small_vm_sets_little_aside() {
        let arguments = |memory: &str| {
            let text = BASIC.replace("1G", memory);
            let config = VmConfig::read(&text).unwrap();
            let facts = Facts {
                ram: &[],
                clock_hz: 1,
                seed: None,
            };
            let blob = build(&config, &facts).unwrap();
            let fdt = Fdt::new(&blob).unwrap();
            fdt.chosen().bootargs().unwrap().to_owned()
        };
        assert_eq!(arguments("1023M"), "cma=0 swiotlb=2048 x=1 y");
        assert_eq!(arguments("1G"), "x=1 y");
    }

    #[test]
    fn ports_begin_at_0_on_their_bus() {
        let blob = tree(&all_devices());
        let fdt = Fdt::new(&blob).unwrap();
        let isa = fdt.find_node("/isa").unwrap();
        let ranges = isa.property("ranges").unwrap().value;
        let cells: Vec<u32> = ranges
            .chunks(4)
            .map(|cell| u32::from_be_bytes(cell.try_into().unwrap()))
            .collect();
        assert_eq!(cells, [1, 0, 0, 0x1800_4000, 0xc000]);
    }

    #[test]
    fn the_largest_tree_is_what_linux_maps() {
        let config = format!("name=a\nvcpus=128\nmemory=1G\nkernel=k\n{}", all_devices());
        let config = VmConfig::read(&config).unwrap();
        let facts = Facts {
            ram: &[Range::new(0, 0x1000_0000)],
            clock_hz: 1,
            seed: None,
        };
        // arch/loongarch/kernel/efi.c, efi_fdt_pointer: 64 KiB.
        assert!(build(&config, &facts).unwrap().len() < 64 << 10);
    }
}
