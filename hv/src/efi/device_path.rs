//! The one device path that the hypervisor knows: where boot loaders offer
//! an initrd.
//!
//! Source: UEFI Specification 2.10, section 10.3; Linux, include/linux/efi.h
//! (LINUX_EFI_INITRD_MEDIA_GUID).

use crate::platform::efi::guid;
use uefi_raw::protocol::device_path::DevicePathProtocol;

/// Media device path, vendor's node.
const VENDOR_MEDIA: [u8; 2] = [4, 3];
/// The end of the whole path.
const END: [u8; 4] = [0x7f, 0xff, 4, 0];
/// Bytes of a vendor's node: header and GUID.
const VENDOR_BYTES: u16 = 20;

/// A vendor's media node and the end.
#[derive(Debug)]
#[repr(C, packed)]
pub struct InitrdPath {
    kind: [u8; 2],
    length: u16,
    vendor: [u8; 16],
    end: [u8; 4],
}

/// Where boot loaders offer the initrd.
pub static INITRD: InitrdPath = InitrdPath {
    kind: VENDOR_MEDIA,
    length: VENDOR_BYTES,
    vendor: guid::INITRD,
    end: END,
};

impl InitrdPath {
    /// The path as firmware takes it.
    pub const fn as_ptr(&self) -> *const DevicePathProtocol {
        core::ptr::from_ref(self).cast()
    }
}
