//! What a VM that resets itself leaves behind: nothing.
//!
//! Each time it looks whether it begins as at first, and then leaves interrupts
//! pending, mail in the boxes and steal-time records registered, and resets.

use crate::runtime::smp::{self, MAX_CPUS};
use crate::runtime::{call, device, iocsr, memory, nap, ticks, ticks_per_second};
use crate::{csrrd, println};
use core::sync::atomic::{AtomicU64, Ordering};
use guest_pv::abi::hypercall::{CODE_SERVICE, NOTIFY, NOTIFY_STEAL_TIME, SEND_IPI};
use guest_pv::abi::iocsr::{
    IPI_ENABLE, IPI_SEND, IPI_STATUS, MAIL_SEND, MAILBOX, ipi_send, mail_send,
};

/// Where the records are, one every 64 bytes: RAM that nothing else uses.
const RECORDS: u64 = 0x200_0000;
/// The power controller's register, and what resets.
const RESET: (u64, u8) = (0x100e_001e, 0x42);
/// Interrupt lines of ESTAT.
const LINES: u64 = 0x1fff;

/// The lines, vectors and mail at a vCPU's first look; the boot vCPU's before it
/// has enabled anything.
pub fn first_look() -> bool {
    let vectors = iocsr::read_w(IPI_STATUS.into()) | iocsr::read_w(IPI_ENABLE.into());
    let mail = (0..4).map(|index| iocsr::read_d(u64::from(MAILBOX) + 8 * index));
    csrrd!(ESTAT) & LINES == 0 && vectors == 0 && mail.fold(0, |all, one| all | one) == 0
}

/// Looks, leaves all that, and resets. `clean` is the boot vCPU's first look.
pub fn run(clean: bool) -> ! {
    static DIRTY: AtomicU64 = AtomicU64::new(0);
    let began = ticks();
    DIRTY.store((!clean).into(), Ordering::Relaxed);
    // What a stay of its own would have shown the boot vCPU, the others show
    // here: SWI0 and vectors of the time before.
    smp::on_all(|index| {
        let left = csrrd!(ESTAT) & LINES | iocsr::read_w(IPI_STATUS.into());
        DIRTY.fetch_add((index > 0 && left != 0).into(), Ordering::Relaxed);
        // Long enough to be taken off the CPU that all share.
        let start = ticks();
        while ticks() - start < ticks_per_second() / 1000 * 12 {}
    });
    let records = memory::<u64>(RECORDS);
    for word in 0..8 * smp::count() {
        // SAFETY: RAM of the guest that nothing else uses.
        let value = unsafe { records.add(word).read_volatile() };
        DIRTY.fetch_add((value != 0).into(), Ordering::Relaxed);
    }
    match DIRTY.load(Ordering::Relaxed) {
        0 => println!("PASS reset.clean"),
        left => println!("FAIL reset.clean: {left} places aren't as at first"),
    }
    leave_things_behind();
    println!("ticks {began} {}", ticks());
    // SAFETY: a device's register, and the end.
    unsafe { device::<u8>(RESET.0).write_volatile(RESET.1) };
    call::stop(1)
}

fn leave_things_behind() {
    smp::on_all(|index| {
        let record = (RECORDS + 64 * index as u64) | 1;
        call::hvcl::<CODE_SERVICE>([NOTIFY, NOTIFY_STEAL_TIME, record, 0]);
        let start = ticks();
        while ticks() - start < ticks_per_second() / 1000 * 12 {}
    });
    // The others wait for the next task by now, with all but one vector off.
    for _ in 0..MAX_CPUS {
        nap();
    }
    for id in (0..smp::count()).map(|index| smp::id(index) as u32) {
        call::hvcl::<CODE_SERVICE>([SEND_IPI, 1, 0, id.into()]);
        iocsr::write_w(IPI_SEND.into(), ipi_send(id, 7).into());
        iocsr::write_d(MAIL_SEND.into(), mail_send(id, 5, 0xdead_beef));
    }
}
