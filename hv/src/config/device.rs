//! The devices that a VM may have.

use crate::dev::layout;
use crate::mm::addr::Gpa;

/// A kind of device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceKind {
    /// A 16550A UART, the VM's console.
    Uart,
    /// PCH-PIC, the controller of the other devices' interrupts.
    PchPic,
    /// PCH-MSI, the target of message-signalled interrupts.
    PchMsi,
    /// The real-time clock.
    Rtc,
    /// The power controller: off and reset.
    Power,
    /// Legacy I/O ports with nothing behind them.
    Ports,
}

impl DeviceKind {
    /// Every kind, those that are accessed most first.
    pub const ALL: [Self; 6] = [
        Self::PchPic,
        Self::Uart,
        Self::PchMsi,
        Self::Rtc,
        Self::Power,
        Self::Ports,
    ];

    /// Bytes that it covers.
    #[must_use]
    pub const fn bytes(self) -> u64 {
        self.default_range().bytes
    }

    /// Its name in a configuration.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Uart => "uart",
            Self::PchPic => "pch-pic",
            Self::PchMsi => "pch-msi",
            Self::Rtc => "rtc",
            Self::Power => "power",
            Self::Ports => "ports",
        }
    }

    /// Where it is unless the configuration says otherwise.
    #[must_use]
    pub const fn default_range(self) -> layout::Range {
        match self {
            Self::Uart => layout::UART,
            Self::PchPic => layout::PCH_PIC,
            Self::PchMsi => layout::PCH_MSI,
            Self::Rtc => layout::RTC,
            Self::Power => layout::POWER,
            Self::Ports => layout::PORTS,
        }
    }
}

/// A device and its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Device {
    /// What it is.
    pub kind: DeviceKind,
    /// Its first guest physical address.
    pub base: Gpa,
}
