//! Firmware's services, as far as they are used, with safe faces.

use super::console::Console;
use super::refusal::Refusal;
use crate::dev::rtc::date::Date;
use crate::seed;
use alloc::vec::Vec;
use core::cell::RefCell;
use core::ffi::c_void;
use core::ptr::{NonNull, null_mut};
use uefi_raw::protocol::loaded_image::LoadedImageProtocol;
use uefi_raw::protocol::rng::RngProtocol;
use uefi_raw::table::boot::{AllocateType, BootServices, MemoryType};
use uefi_raw::table::system::SystemTable;
use uefi_raw::time::Time;
use uefi_raw::{Guid, Handle, Status};

/// Bytes of an EFI page.
const PAGE_BYTES: usize = 4096;

/// Firmware, while its boot services last.
pub struct Firmware {
    image: Handle,
    system: *mut SystemTable,
    /// What was allocated: address and pages.
    taken: RefCell<Vec<(u64, usize)>>,
    published: RefCell<Vec<Guid>>,
}

impl Firmware {
    /// Firmware with this system table, which has started `image`.
    ///
    /// # Safety
    /// Both are what firmware passed, and the value isn't used once boot
    /// services have ended.
    pub const unsafe fn new(image: Handle, system: *mut SystemTable) -> Self {
        Self {
            image,
            system,
            taken: RefCell::new(Vec::new()),
            published: RefCell::new(Vec::new()),
        }
    }

    const fn system(&self) -> &SystemTable {
        // SAFETY: `new`'s caller vouches for it.
        unsafe { &*self.system }
    }

    /// Physical address of the system table.
    pub fn system_table(&self) -> u64 {
        self.system as u64
    }

    /// The handle of this application.
    pub const fn image(&self) -> Handle {
        self.image
    }

    /// The boot services.
    pub const fn boot(&self) -> &BootServices {
        // SAFETY: they are there while this is used.
        unsafe { &*self.system().boot_services }
    }

    /// Firmware's console.
    pub const fn console(&self) -> Console {
        Console::new(self.system().stdout)
    }

    /// The protocol `guid` of `handle`, of type `T`; `None` where it has none.
    pub fn protocol<T>(&self, handle: Handle, guid: &Guid) -> Option<NonNull<T>> {
        let mut protocol = null_mut();
        // SAFETY: firmware checks the handle, and writes a pointer.
        let status = unsafe { (self.boot().handle_protocol)(handle, guid, &raw mut protocol) };
        let protocol = NonNull::new(protocol.cast())?;
        (status == Status::SUCCESS).then_some(protocol)
    }

    /// What firmware knows of this application.
    pub fn loaded_image(&self) -> Option<&LoadedImageProtocol> {
        let found = self.protocol(self.image, &LoadedImageProtocol::GUID)?;
        // SAFETY: firmware's record of this application, which lasts as long
        // as it runs.
        Some(unsafe { found.as_ref() })
    }

    /// Memory of `bytes` bytes, that firmware and the hypervisor leave alone
    /// from now on; it is zero.
    ///
    /// # Errors
    /// There isn't as much.
    pub fn allocate(&self, bytes: usize) -> Result<&'static mut [u8], Refusal> {
        let (any, data) = (AllocateType::ANY_PAGES, MemoryType::LOADER_DATA);
        let mut at = 0;
        let pages = bytes.div_ceil(PAGE_BYTES).max(1);
        // SAFETY: firmware writes an address.
        let status = unsafe { (self.boot().allocate_pages)(any, data, pages, &raw mut at) };
        if status != Status::SUCCESS {
            return Err(Refusal::Failed("no memory", status));
        }
        self.taken.borrow_mut().push((at, pages));
        let start = at as *mut u8;
        // SAFETY: firmware gave these pages, and they aren't given back.
        unsafe {
            start.write_bytes(0, pages * PAGE_BYTES);
            Ok(core::slice::from_raw_parts_mut(start, bytes))
        }
    }

    /// Puts `table` into the configuration tables under `guid`.
    ///
    /// # Errors
    /// Firmware has no room for it.
    pub fn publish(&self, guid: &[u8; 16], table: &'static [u8]) -> Result<(), Refusal> {
        let guid = Guid::from_bytes(*guid);
        let install = self.boot().install_configuration_table;
        // SAFETY: the table stays where it is.
        let status = unsafe { install(&guid, table.as_ptr().cast()) };
        match status {
            Status::SUCCESS => {
                self.published.borrow_mut().push(guid);
                Ok(())
            }
            status => Err(Refusal::Failed("no room for a configuration table", status)),
        }
    }

    /// Gives back all that was allocated and published: firmware goes on.
    pub fn withdraw(&self) {
        let (boot, none) = (self.boot(), core::ptr::null());
        for guid in self.published.borrow_mut().drain(..) {
            // SAFETY: takes back what `publish` has put there. An error means
            // that it is gone.
            let _ = unsafe { (boot.install_configuration_table)(&guid, none) };
        }
        for (at, pages) in self.taken.borrow_mut().drain(..) {
            // SAFETY: `allocate` got it, and nobody goes on using it: this is
            // the application's end.
            let _ = unsafe { (boot.free_pages)(at, pages) };
        }
    }

    /// Ends the application at once, with this status.
    pub fn exit(&self, status: Status) {
        self.withdraw();
        // SAFETY: the application's own handle; nothing of it runs after that.
        let _ = unsafe { (self.boot().exit)(self.image, status, 0, null_mut()) };
    }

    /// The time of day in seconds since 1970; `None` where firmware has no
    /// clock. A clock without a time zone is taken for UTC.
    pub fn seconds(&self) -> Option<i64> {
        let runtime = NonNull::new(self.system().runtime_services)?;
        let mut time = Time::invalid();
        // SAFETY: firmware's runtime services; it writes the time.
        let status = unsafe { (runtime.as_ref().get_time)(&raw mut time, null_mut()) };
        // Local time is UTC less the time zone's minutes.
        let zone = match time.time_zone {
            Time::UNSPECIFIED_TIMEZONE => 0,
            minutes => i64::from(minutes) * 60,
        };
        let date = Date {
            year: time.year.into(),
            month: time.month.into(),
            day: time.day.into(),
            hour: time.hour.into(),
            minute: time.minute.into(),
            second: time.second.into(),
        };
        (status == Status::SUCCESS).then(|| date.seconds() + zone)
    }

    /// Random bytes, as struct linux_efi_random_seed has them; `None` where
    /// firmware has no source of them.
    pub fn seed(&self) -> Option<&'static [u8]> {
        let mut rng: *mut c_void = null_mut();
        let locate = self.boot().locate_protocol;
        // SAFETY: firmware writes a pointer.
        let status = unsafe { locate(&RngProtocol::GUID, core::ptr::null(), &raw mut rng) };
        let rng = NonNull::new(rng.cast::<RngProtocol>())?;
        if status != Status::SUCCESS {
            return None;
        }
        let record = self.allocate(4 + seed::BYTES).ok()?;
        let (length, bytes) = record.split_at_mut_checked(4)?;
        length.copy_from_slice(&(seed::BYTES as u32).to_le_bytes());
        let (this, none) = (rng.as_ptr(), core::ptr::null());
        // SAFETY: firmware writes as many bytes as there are.
        let status = unsafe { ((*this).get_rng)(this, none, bytes.len(), bytes.as_mut_ptr()) };
        (status == Status::SUCCESS).then_some(record)
    }
}
