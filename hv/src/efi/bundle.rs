//! The bundle of VMs: the boot loader's initrd, or a file on the volume that
//! the hypervisor was loaded from.
//!
//! Source: UEFI Specification 2.10, sections 13.2 (LoadFile2) and 13.4, 13.5
//! (files).

use super::device_path::INITRD;
use super::firmware::Firmware;
use super::refusal::Refusal;
use core::ffi::c_void;
use core::ptr::{NonNull, null_mut};
use uefi_raw::protocol::file_system::{
    FileAttribute, FileInfo, FileMode, FileProtocolV1, SimpleFileSystemProtocol,
};
use uefi_raw::protocol::media::LoadFile2Protocol;
use uefi_raw::{Boolean, Status};

/// Characters of the longest path, with the end.
const MAX_PATH: usize = 32;
/// Bytes that a file's record with its name fits into.
const INFO_WORDS: usize = 128;

/// The bundle's bytes.
///
/// # Errors
/// There is none, or it can't be read.
pub fn find(firmware: &Firmware) -> Result<&'static [u8], Refusal> {
    if let Some(initrd) = initrd(firmware)? {
        return Ok(initrd);
    }
    file(firmware, "\\loongvisor\\bundle")?.ok_or(Refusal::NoBundle)
}

/// What a boot loader offers as initrd, if one does.
fn initrd(firmware: &Firmware) -> Result<Option<&'static [u8]>, Refusal> {
    let (mut path, mut handle) = (INITRD.as_ptr(), null_mut());
    let locate = firmware.boot().locate_device_path;
    // SAFETY: the path is one; firmware writes two pointers.
    let status = unsafe { locate(&LoadFile2Protocol::GUID, &raw mut path, &raw mut handle) };
    let protocol = firmware.protocol::<LoadFile2Protocol>(handle, &LoadFile2Protocol::GUID);
    let (Status::SUCCESS, Some(loader)) = (status, protocol) else {
        return Ok(None);
    };
    let load = |bytes: &mut usize, into: *mut c_void| {
        let this = loader.as_ptr();
        // SAFETY: the rest of the path, as the protocol wants it, and as much
        // memory as `bytes` says.
        unsafe { ((*this).load_file)(this, path, Boolean::FALSE, bytes, into) }
    };
    let mut bytes = 0;
    match load(&mut bytes, null_mut()) {
        Status::BUFFER_TOO_SMALL => {}
        Status::NOT_FOUND | Status::SUCCESS => return Ok(None),
        status => return Err(Refusal::Failed("the boot loader's initrd", status)),
    }
    let memory = firmware.allocate(bytes)?;
    match load(&mut bytes, memory.as_mut_ptr().cast()) {
        Status::SUCCESS => Ok(Some(memory)),
        status => Err(Refusal::Failed("the boot loader's initrd", status)),
    }
}

/// The content of a file on the volume that the hypervisor was loaded from;
/// `None` where it isn't there.
///
/// # Errors
/// It can't be read.
pub fn file(firmware: &Firmware, path: &'static str) -> Result<Option<&'static [u8]>, Refusal> {
    let failed = |status| Refusal::Failed(path, status);
    let volume = firmware.loaded_image().map(|image| image.device_handle);
    let volume = volume.filter(|volume| !volume.is_null());
    let guid = SimpleFileSystemProtocol::GUID;
    let Some(system) =
        volume.and_then(|volume| firmware.protocol::<SimpleFileSystemProtocol>(volume, &guid))
    else {
        return Ok(None);
    };
    let mut root = null_mut();
    // SAFETY: firmware's protocol; it writes a pointer.
    let status = unsafe { (system.as_ref().open_volume)(system.as_ptr(), &raw mut root) };
    let root = File::new(status, root).map_err(failed)?;
    match root.open(path) {
        Ok(file) => file.read_all(firmware).map(Some).map_err(failed),
        Err(Status::NOT_FOUND) => Ok(None),
        Err(status) => Err(failed(status)),
    }
}

/// An open file.
struct File(NonNull<FileProtocolV1>);

impl File {
    /// The file that firmware has opened with this status.
    fn new(status: Status, file: *mut FileProtocolV1) -> Result<Self, Status> {
        match (status, NonNull::new(file)) {
            (Status::SUCCESS, Some(file)) => Ok(Self(file)),
            (Status::SUCCESS, None) => Err(Status::DEVICE_ERROR),
            (status, _) => Err(status),
        }
    }

    /// The file with this path in a folder.
    fn open(&self, path: &str) -> Result<Self, Status> {
        let mut name = [0; MAX_PATH];
        let room = name.iter_mut().take(MAX_PATH - 1);
        room.zip(path.encode_utf16())
            .for_each(|(to, from)| *to = from);
        let (this, mut file) = (self.0.as_ptr(), null_mut());
        let (mode, none) = (FileMode::READ, FileAttribute::empty());
        // SAFETY: an open folder, and a name with its end.
        let status = unsafe { ((*this).open)(this, &raw mut file, name.as_ptr(), mode, none) };
        Self::new(status, file)
    }

    /// Its length in bytes.
    fn length(&self) -> Result<usize, Status> {
        let mut info = [0u64; INFO_WORDS];
        let (this, mut bytes) = (self.0.as_ptr(), size_of_val(&info));
        let into = info.as_mut_ptr();
        // SAFETY: an open file, and as much memory as `bytes` says.
        let status =
            unsafe { ((*this).get_info)(this, &FileInfo::ID, &raw mut bytes, into.cast()) };
        if status != Status::SUCCESS {
            return Err(status);
        }
        // SAFETY: firmware has written a record there, and it is aligned.
        let length = unsafe { (*into.cast::<FileInfo>()).file_size };
        usize::try_from(length).map_err(|_| Status::BAD_BUFFER_SIZE)
    }

    /// All that is in it.
    fn read_all(&self, firmware: &Firmware) -> Result<&'static [u8], Status> {
        let whole = firmware.allocate(self.length()?);
        let whole = whole.map_err(|_| Status::OUT_OF_RESOURCES)?;
        let mut done = 0;
        while let Some(rest) = whole.get_mut(done..).filter(|rest| !rest.is_empty()) {
            let (this, mut bytes) = (self.0.as_ptr(), rest.len());
            // SAFETY: an open file, and as much memory as `bytes` says.
            let status = unsafe { ((*this).read)(this, &raw mut bytes, rest.as_mut_ptr().cast()) };
            match (status, bytes) {
                (Status::SUCCESS, 0) => return Err(Status::END_OF_FILE),
                (Status::SUCCESS, bytes) => done += bytes,
                (status, _) => return Err(status),
            }
        }
        Ok(whole)
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let this = self.0.as_ptr();
        // SAFETY: an open file, closed once. There is nothing to do about an
        // error: it was only read.
        let _ = unsafe { ((*this).close)(this) };
    }
}
