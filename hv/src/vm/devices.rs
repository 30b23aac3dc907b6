//! The devices of a VM, and what is where.

use super::{Clock, VmError};
use crate::config::{DeviceKind, VmConfig};
use crate::dev::bus::Bus;
use crate::dev::iocsr::{eiointc, ipi, misc};
use crate::dev::irq_line::PchPicInput;
use crate::dev::layout::UART_INPUT;
use crate::dev::rtc::Rtc;
use crate::dev::uart::Uart;
use crate::mm::addr::{Gpa, IocsrAddr};
use alloc::boxed::Box;

/// A device of a VM.
#[derive(Debug)]
pub enum Device {
    /// The VM's PCH-PIC.
    PchPic,
    /// A UART; its bytes go to the VM's console, and its interrupt, if it
    /// has one, to an input of PCH-PIC.
    Uart(Box<Uart>, Option<PchPicInput>),
    /// PCH-MSI.
    PchMsi,
    /// The real-time clock.
    Rtc(Rtc),
    /// The power controller.
    Power,
    /// I/O ports with nothing behind them.
    Ports,
}

/// A device in the IOCSR space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IocsrDevice {
    /// The accessing vCPU's IPI registers.
    Ipi,
    /// The VM's EIOINTC.
    Eiointc,
    /// Features and names.
    Misc,
}

/// What is where in the IOCSR space, the hottest first.
const IOCSR: [(IocsrDevice, u32, u32); 4] = [
    (IocsrDevice::Ipi, ipi::BASE, ipi::BYTES),
    (IocsrDevice::Eiointc, eiointc::BASE, eiointc::BYTES),
    (
        IocsrDevice::Eiointc,
        eiointc::VIRT_BASE,
        eiointc::VIRT_BYTES,
    ),
    (IocsrDevice::Misc, 0, misc::BYTES),
];

/// The devices that `config` wants, the hottest first.
pub(super) fn mmio(config: &VmConfig, clock: Clock) -> Result<Bus<Gpa, Device>, VmError> {
    let mut bus = Bus::default();
    // The first UART has the input; another one is polled.
    let mut inputs = Some(UART_INPUT).into_iter();
    for kind in DeviceKind::ALL {
        for place in config.devices.iter().filter(|device| device.kind == kind) {
            let device = match kind {
                DeviceKind::PchPic => Device::PchPic,
                DeviceKind::Uart => Device::Uart(Box::default(), inputs.next()),
                DeviceKind::PchMsi => Device::PchMsi,
                DeviceKind::Power => Device::Power,
                DeviceKind::Ports => Device::Ports,
                DeviceKind::Rtc => Device::Rtc(Rtc::new(clock.time)),
            };
            bus.add(place.base, kind.bytes(), device)
                .map_err(|_| VmError::Devices)?;
        }
    }
    Ok(bus)
}

/// The devices of every VM in the IOCSR space.
pub(super) fn iocsr() -> Result<Bus<IocsrAddr, IocsrDevice>, VmError> {
    let mut bus = Bus::default();
    for (device, base, bytes) in IOCSR {
        bus.add(IocsrAddr::new(base.into()), bytes.into(), device)
            .map_err(|_| VmError::Devices)?;
    }
    Ok(bus)
}
