//! Accesses to the IOCSR space.
//!
//! Every register is the VM's own; none is passed on to the machine. An
//! offset that no device has reads 0, ignores writes, and is counted.

use crate::dev::iocsr::{ipi, misc};
use crate::dev::lane::Lane;
use crate::isa::exception::Interrupt;
use crate::isa::insn::Width;
use crate::mm::addr::IocsrAddr;
use crate::vcpu::handle::Hardware;
use crate::vcpu::interrupt::apply;
use crate::vm::wires::Wires;
use crate::vm::{IocsrDevice, VcpuShared, Vm};

/// The device that `width` bytes at `offset` belong to.
#[inline]
fn device(vm: &Vm, cpu: &VcpuShared, offset: u32, width: Width) -> Option<IocsrDevice> {
    let found = vm
        .iocsr
        .find(IocsrAddr::new(offset.into()), width.bytes() as u64);
    if found.is_none() {
        cpu.stats.unknown_iocsr.count();
    }
    found.map(|(device, _)| *device)
}

/// Reads `width` bytes at `offset`, as `cpu` does; zero-extended.
#[inline]
pub fn read(vm: &Vm, cpu: &VcpuShared, offset: u32, width: Width) -> u64 {
    match device(vm, cpu, offset, width) {
        Some(IocsrDevice::Ipi) => cpu.ipi.read(offset, width),
        Some(IocsrDevice::Eiointc) => vm.eiointc.read(cpu.id, offset, width),
        Some(IocsrDevice::Misc) => misc::read(offset, width, || vm.eiointc.config()),
        None => 0,
    }
}

/// Writes the low `width` bytes of `value` at `offset`, as `cpu` does.
#[inline]
pub fn write(
    vm: &Vm,
    cpu: &VcpuShared,
    offset: u32,
    width: Width,
    value: u64,
    hardware: &mut impl Hardware,
) {
    let line = Interrupt::IPI.bit();
    match device(vm, cpu, offset, width) {
        Some(IocsrDevice::Ipi) => match cpu.ipi.write(offset, width, value) {
            ipi::Effect::None => {}
            // The line is this vCPU's own, and it is loaded. Who changes it at
            // the same time posts: then it is looked at once more.
            ipi::Effect::Line => hardware.apply(&apply(line, vm.levels(cpu, line))),
            ipi::Effect::Send(send) => vm.send(send, hardware),
        },
        Some(IocsrDevice::Eiointc) => {
            let lane = Lane::new(offset.into(), width);
            let wires = Wires {
                vm,
                notifier: hardware,
            };
            vm.eiointc.write(cpu.id, offset, lane, value, &wires);
        }
        Some(IocsrDevice::Misc) => {
            let lane = Lane::new(offset.into(), width);
            let wires = Wires {
                vm,
                notifier: hardware,
            };
            if let Some(config) = misc::write(offset, lane, value, || vm.eiointc.config()) {
                vm.eiointc.configure(config, &wires);
            }
        }
        None => {}
    }
}
