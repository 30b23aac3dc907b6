//! Work of every kind, for ever: for whoever stops a VM in the middle of it.
//!
//! Each vCPU sends IPIs to the next one, ticks, sleeps, computes with
//! floating point, lets memory come and go, moves about, and now and then
//! prints.

use crate::checks::control::{BLOCK, PAGE, change};
use crate::runtime::random::Random;
use crate::runtime::trap::unmask;
use crate::runtime::{boot, call, doze, iocsr, microseconds, smp};
use crate::{csrwr, moves, println};
use core::arch::asm;
use guest_pv::abi::hypercall::SEND_IPI;
use guest_pv::abi::iocsr::{IPI_SEND, ipi_send};
use guest_pv::abi::vendor::{MEMORY_CLAIM, MEMORY_RELEASE};
use loongarch_isa::exception::Interrupt;

/// Does it, on every vCPU, for ever.
pub fn run() -> ! {
    println!("work: begun on {} vCPUs", smp::count());
    // As after a reset, however often it was stopped before.
    if (0..smp::count()).any(|index| boot::found(index) != 0) {
        println!("FAIL work: registers at the start");
    }
    smp::on_all(work);
    call::stop(1)
}

fn work(index: usize) {
    let mut random = Random::new(index as u64);
    csrwr!(EUEN, 1);
    let lines = Interrupt::SWI0.bit() | Interrupt::IPI.bit() | Interrupt::TI.bit();
    csrwr!(ECFG, lines);
    loop {
        let next = smp::id((index + 1) % smp::count());
        csrwr!(TCFG, microseconds(50 + random.below(100)) | 3);
        unmask();
        call::hvcl::<0x100>([SEND_IPI, 1, 0, next]);
        iocsr::write_w(IPI_SEND.into(), ipi_send(next as u32, 1).into());
        // SAFETY: a register of this vCPU.
        unsafe { asm!("movgr2fr.d $f3, {}", in(reg) random.next(), options(nostack)) };
        let page = BLOCK + (64 + index as u64) * PAGE;
        let changed = change(MEMORY_RELEASE, page, PAGE, 0)
            .and_then(|()| change(MEMORY_CLAIM, page, PAGE, 0));
        if changed.is_err() {
            println!("FAIL work: memory");
        }
        moves::go(index, random.next());
        crate::runtime::trap::mask();
        match random.below(64) {
            0 => println!("work: {index}"),
            1..8 => doze(random.below(50)),
            _ => {}
        }
        csrwr!(ECFG, lines);
    }
}
