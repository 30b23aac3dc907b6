//! The emulated machine with Debian's firmware, and an image in it: what a user tries
//! before the image goes to a stick.

use std::path::Path;

use crate::context::Context;
use crate::qemu::{Qemu, Timing};
use crate::setup;
use crate::setup::firmware::FIRMWARE;
use crate::vm::Room;

/// The setup steps that it needs.
pub const NEEDS: [&str; 2] = ["qemu", FIRMWARE.step()];

/// Memory that the firmware works in, and the bundle that it reads lies in besides the
/// VMs' own, in MiB.
pub const FIRMWARE_MIB: u64 = 512;

/// What the image is plugged in as.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Disk {
    /// A virtio disk.
    Virtio,
    /// A USB stick, at an xHCI.
    Usb,
}

impl Disk {
    /// QEMU's arguments for the image at `path`. What firmware writes is forgotten.
    pub fn arguments(self, path: &Path) -> Vec<String> {
        // A comma in an option's value is written twice.
        let file = path.display().to_string().replace(',', ",,");
        let drive = format!("if=none,id=image,format=raw,snapshot=on,file={file}");
        let mut arguments = vec!["-drive".to_owned(), drive];
        let devices: &[&str] = match self {
            Self::Virtio => &["virtio-blk-pci,drive=image,bootindex=0"],
            Self::Usb => &[
                "qemu-xhci",
                "usb-storage,drive=image,bootindex=0,removable=on",
            ],
        };
        for device in devices {
            arguments.extend(["-device".to_owned(), (*device).to_owned()]);
        }
        arguments
    }
}

/// The machine with CPUs of the model `cpu` that boots the image at `path`.
pub fn machine(
    cx: &Context,
    cpu: &str,
    room: Room,
    timing: Timing,
    path: &Path,
    disk: Disk,
) -> Qemu {
    let Room { cpus, memory_mib } = room;
    let firmware = FIRMWARE.path(cx);
    Qemu::new(&setup::qemu::program(cx), cpu, cpus, memory_mib, timing)
        .args(["-bios".into(), firmware.into_os_string()])
        .args(disk.arguments(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_with_a_comma_stays_one() {
        let arguments = Disk::Usb.arguments(Path::new("/a,b.img"));
        assert!(arguments[1].ends_with(",file=/a,,b.img"), "{arguments:?}");
        assert_eq!(
            arguments.iter().filter(|word| *word == "-device").count(),
            2
        );
    }
}
