//! Accesses to the IOCSR space.
//!
//! Every register is the VM's own; none is passed on to the machine. An
//! offset that no device has reads 0, ignores writes, and is counted.

use crate::dev::iocsr::{ipi, misc};
use crate::dev::lane::Lane;
use crate::isa::exception::Interrupt;
use crate::isa::insn::Width;
use crate::mm::addr::IocsrAddr;
use crate::vcpu::postbox::Posts;
use crate::vm::wires::Wires;
use crate::vm::{IocsrDevice, Notifier, VcpuShared, Vm};

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
    notifier: &impl Notifier,
) {
    match device(vm, cpu, offset, width) {
        Some(IocsrDevice::Ipi) => match cpu.ipi.write(offset, width, value) {
            ipi::Effect::None => {}
            ipi::Effect::Line => {
                cpu.post(Posts::interrupts(Interrupt::IPI.bit()), notifier);
            }
            ipi::Effect::Send(send) => vm.send(send, notifier),
        },
        Some(IocsrDevice::Eiointc) => {
            let lane = Lane::new(offset.into(), width);
            let wires = Wires { vm, notifier };
            vm.eiointc.write(cpu.id, offset, lane, value, &wires);
        }
        Some(IocsrDevice::Misc) => {
            let lane = Lane::new(offset.into(), width);
            let wires = Wires { vm, notifier };
            if let Some(config) = misc::write(offset, lane, value, || vm.eiointc.config()) {
                vm.eiointc.configure(config, &wires);
            }
        }
        None => {}
    }
}
