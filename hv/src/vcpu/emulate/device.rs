//! Accesses to the VM's devices, by kind of device.

use crate::dev::uart::Sink;
use crate::dev::{pch_msi, power};
use crate::isa::insn::Width;
use crate::vcpu::StopReason;
use crate::vcpu::handle::Hardware;
use crate::vm::wires::{Input, Wires};
use crate::vm::{Device, Vm};

/// Reads `width` bytes at `offset` of `device`; zero-extended.
#[inline]
pub fn load(vm: &Vm, device: &Device, offset: u64, width: Width, hardware: &impl Hardware) -> u64 {
    match device {
        Device::PchPic => vm.pch_pic.read(offset, width),
        &Device::Uart(ref uart, input) => {
            let wires = Wires {
                vm,
                notifier: hardware,
            };
            uart.read(offset, width, &Input { wires, input })
        }
        Device::Rtc(rtc) => rtc.read(offset, width, now(vm, hardware)),
        Device::PchMsi | Device::Power => 0,
        Device::Ports => width.zero_extend(u64::MAX),
    }
}

/// Writes the low `width` bytes of `value` at `offset` of `device`; whether
/// that ends the VM.
#[inline]
pub fn store(
    vm: &Vm,
    device: &Device,
    offset: u64,
    width: Width,
    value: u64,
    hardware: &impl Hardware,
) -> Option<StopReason> {
    let wires = Wires {
        vm,
        notifier: hardware,
    };
    match device {
        Device::PchPic => vm.pch_pic.write(offset, width, value, &wires),
        &Device::Uart(ref uart, input) => {
            let console = Console { vm, hardware };
            uart.write(offset, width, value, &console, &Input { wires, input });
        }
        Device::PchMsi => {
            if let Some(vector) = pch_msi::vector(offset, value) {
                vm.eiointc.set(vector, true, &wires);
            }
        }
        Device::Rtc(rtc) => rtc.write(offset, width, value, now(vm, hardware)),
        Device::Power => return power::write(offset, width, value),
        Device::Ports => {}
    }
    None
}

/// The VM's own counter.
fn now(vm: &Vm, hardware: &impl Hardware) -> u64 {
    hardware.ticks().wrapping_add(vm.clock.offset)
}

/// The console of a VM, as its UART's sink.
struct Console<'a, H> {
    vm: &'a Vm,
    hardware: &'a H,
}

impl<H: Hardware> Sink for Console<'_, H> {
    fn send(&self, byte: u8) {
        self.hardware.console(self.vm, byte);
    }

    fn is_ready(&self) -> bool {
        self.vm.console.is_ready()
    }
}
