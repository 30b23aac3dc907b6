//! A vCPU that waits to be started: nothing but vector 0 starts it.

use crate::check::{self, Check, Outcome, ensure, equal};
use crate::runtime::call::hvcl;
use crate::runtime::cmdline::Options;
use crate::runtime::{boot, iocsr, nap, smp, wait_until};
use core::sync::atomic::Ordering;
use guest_pv::abi::hypercall::{CODE_SERVICE, SEND_IPI};
use guest_pv::abi::iocsr::{
    ANY_SEND, IPI_ENABLE, IPI_SEND, IPI_SET, MAIL_SEND, SEND_BLOCKING, any_send, ipi_send,
    mail_send,
};
use loongarch_isa::exception::Interrupt;

const CHECKS: [&[Check]; 1] = [&[Check {
    name: "parked.start",
    cpus: 1,
    run: start,
}]];

/// Runs the check; how many failed. The command line has `spares=1`.
pub fn run(options: &Options) -> u64 {
    check::run_all(&CHECKS, options.text("only"), smp::count())
}

fn start() -> Outcome {
    let id = smp::spare();
    ensure("a vCPU is parked", id.is_some())?;
    let id = id.unwrap_or(0);
    let entry = boot::secondary_entry();
    let mail = |half, data: u64| {
        iocsr::write_d(MAIL_SEND.into(), mail_send(id, half, data as u32));
    };
    let ipi = |vector| iocsr::write_w(IPI_SEND.into(), ipi_send(id, vector).into());
    still_parked("by nothing")?;
    mail(1, entry >> 32);
    mail(0, entry);
    still_parked("by its mailbox")?;
    iocsr::write_d(ANY_SEND.into(), any_send(id, IPI_ENABLE, u32::MAX));
    for vector in [1, 30, 31] {
        ipi(vector);
    }
    let blocking = ipi_send(id, 2) | SEND_BLOCKING;
    iocsr::write_w(IPI_SEND.into(), blocking.into());
    still_parked("by another vector")?;
    iocsr::write_d(ANY_SEND.into(), any_send(id, IPI_SET, 8));
    still_parked("by a vector that was set")?;
    // To it alone, and to many.
    for (low, high) in [(1, 0), (u64::MAX, u64::MAX)] {
        let sent = hvcl::<CODE_SERVICE>([SEND_IPI, low, high, id.into()]);
        equal("SWI0", sent, 0)?;
    }
    still_parked("by SWI0")?;
    ipi(0);
    let arrived = wait_until(|| smp::arrived() > smp::count());
    ensure("started by vector 0", arrived)?;
    let [estat, vectors, cleared] = smp::FIRST.each_ref().map(|it| it.load(Ordering::Relaxed));
    equal("vectors at its start", vectors & 0xffff_ffff, 0xc000_000f)?;
    let line = Interrupt::IPI.bit();
    equal("IPI line at its start", estat & line, line)?;
    equal("IPI line once they were cleared", cleared & line, 0)
}

/// It hasn't started, though it had time to.
fn still_parked(what: &'static str) -> Outcome {
    for _ in 0..100 {
        nap();
    }
    equal(what, smp::arrived() as u64, smp::count() as u64)
}
