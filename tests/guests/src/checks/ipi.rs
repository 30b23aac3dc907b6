//! Interrupts between vCPUs: native and paravirtual, to each and all, awake
//! and asleep.

use crate::check::{Check, Outcome, ensure, equal};
use crate::runtime::call::hvcl;
use crate::runtime::smp::{self, MAX_CPUS};
use crate::runtime::trap::{mask, taken, unmask};
use crate::runtime::{iocsr, wait_until};
use crate::{csrrd, csrwr};
use core::arch::asm;
use core::sync::atomic::{AtomicU64, Ordering};
use guest_pv::abi::hypercall::{CODE_SERVICE, SEND_IPI};
use guest_pv::abi::iocsr::{
    ANY_SEND, IPI_CLEAR, IPI_ENABLE, IPI_SEND, IPI_SET, IPI_STATUS, MAIL_SEND, MAILBOX, any_send,
    ipi_send, mail_send,
};
use loongarch_isa::exception::Interrupt;

/// The checks.
pub const CHECKS: [Check; 8] = [
    Check {
        name: "ipi.self",
        cpus: 1,
        run: to_self,
    },
    Check {
        name: "ipi.enable",
        cpus: 1,
        run: enable,
    },
    Check {
        name: "ipi.nobody",
        cpus: 1,
        run: nobody,
    },
    Check {
        name: "pv-ipi.self",
        cpus: 1,
        run: pv_self,
    },
    Check {
        name: "ipi.mail",
        cpus: 2,
        run: mail,
    },
    Check {
        name: "ipi.asleep",
        cpus: 2,
        run: asleep,
    },
    Check {
        name: "pv-ipi.asleep",
        cpus: 2,
        run: pv_asleep,
    },
    Check {
        name: "pv-ipi.all",
        cpus: 2,
        run: pv_all,
    },
];

fn my_id() -> u32 {
    csrrd!(CPUID) as u32
}

/// Sends SWI0 to the ids `base` + bits of `set`.
fn pv_send(set: u128, base: u64) -> u64 {
    hvcl::<CODE_SERVICE>([SEND_IPI, set as u64, (set >> 64) as u64, base])
}

fn to_self() -> Outcome {
    iocsr::write_w(IPI_ENABLE.into(), 0xffff_ffff);
    csrwr!(ECFG, Interrupt::IPI.bit());
    unmask();
    let before = taken(Interrupt::IPI);
    iocsr::write_w(IPI_SET.into(), 8);
    equal("by set", taken(Interrupt::IPI) - before, 1)?;
    iocsr::write_w(IPI_SEND.into(), ipi_send(my_id(), 31).into());
    equal("by send", taken(Interrupt::IPI) - before, 2)?;
    iocsr::write_w(IPI_SEND.into(), 1 << 31 | u64::from(ipi_send(my_id(), 1)));
    equal("by blocking send", taken(Interrupt::IPI) - before, 3)?;
    iocsr::write_d(ANY_SEND.into(), any_send(my_id(), IPI_SET, 1));
    equal("by any-send", taken(Interrupt::IPI) - before, 4)?;
    mask();
    equal("nothing is left", iocsr::read_w(IPI_STATUS.into()), 0)
}

fn enable() -> Outcome {
    let line = || csrrd!(ESTAT) & Interrupt::IPI.bit() != 0;
    csrwr!(ECFG, 0);
    iocsr::write_w(IPI_ENABLE.into(), 0);
    iocsr::write_w(IPI_SET.into(), 4);
    ensure("disabled: line down", !line())?;
    iocsr::write_w(IPI_ENABLE.into(), 4);
    ensure("enabled: line up", line())?;
    iocsr::write_w(IPI_ENABLE.into(), !4 & 0xffff_ffff);
    ensure("another enabled: line down", !line())?;
    iocsr::write_w(IPI_ENABLE.into(), 0xffff_ffff);
    ensure("all enabled: line up", line())?;
    iocsr::write_w(IPI_CLEAR.into(), 4);
    ensure("cleared: line down", !line())?;
    // The last vector, in a register's lower half alone.
    iocsr::write_w(IPI_SET.into(), 1 << 31);
    ensure("vector 31: line up", line())?;
    iocsr::write_w(IPI_CLEAR.into(), 0xffff_ffff);
    ensure("vector 31 cleared: line down", !line())
}

/// Ids that no vCPU has: dropped, without an effect.
fn nobody() -> Outcome {
    for id in [500, 1022, 1023] {
        iocsr::write_w(IPI_SEND.into(), ipi_send(id, 1).into());
        iocsr::write_d(MAIL_SEND.into(), mail_send(id, 0, 1));
        iocsr::write_d(ANY_SEND.into(), any_send(id, IPI_SET, 1));
    }
    // One level: a send register that is written by a send does nothing.
    for register in [IPI_SEND, MAIL_SEND, ANY_SEND] {
        let send = any_send(my_id(), register, ipi_send(my_id(), 1));
        iocsr::write_d(ANY_SEND.into(), send);
    }
    for base in [1024, u64::MAX, u64::MAX - 200, 1 << 32, 1 << 63] {
        equal("result", pv_send(u128::MAX, base), 0)?;
    }
    ensure("no SWI0", csrrd!(ESTAT) & 1 == 0)?;
    equal("no vector", iocsr::read_w(IPI_STATUS.into()), 0)
}

fn pv_self() -> Outcome {
    csrwr!(ECFG, Interrupt::SWI0.bit());
    unmask();
    let before = taken(Interrupt::SWI0);
    for round in 1..=100 {
        equal("result", pv_send(1, my_id().into()), 0)?;
        equal("interrupts", taken(Interrupt::SWI0) - before, round)?;
    }
    mask();
    Ok(())
}

/// Each vCPU writes its index into the mailboxes of all others.
fn mail() -> Outcome {
    static FAULTS: AtomicU64 = AtomicU64::new(0);
    FAULTS.store(0, Ordering::Relaxed);
    smp::on_all(|index| {
        if index == 0 {
            for target in 0..smp::count() {
                let id = smp::id(target) as u32;
                iocsr::write_d(
                    MAIL_SEND.into(),
                    mail_send(id, 3, 0xabcd_0000 + target as u32),
                );
                iocsr::write_d(MAIL_SEND.into(), mail_send(id, 2, 0x1234));
            }
        }
        let at = u64::from(MAILBOX) + 8;
        let want = (0xabcd_0000 + index as u64) << 32 | 0x1234;
        if !wait_until(|| iocsr::read_d(at) == want) {
            FAULTS.fetch_add(1, Ordering::Relaxed);
        }
    });
    equal(
        "mailboxes with the wrong value",
        FAULTS.load(Ordering::Relaxed),
        0,
    )
}

static TURN: AtomicU64 = AtomicU64::new(0);
static LOST: AtomicU64 = AtomicU64::new(0);

/// Rounds that each pair of neighbours wakes each other.
const ROUNDS: u64 = 50;

/// A token goes round: its holder wakes the next one, who sleeps. A wake-up
/// that is lost ends it all.
pub fn ring(line: Interrupt, send: fn(u64)) -> Outcome {
    static LINE: AtomicU64 = AtomicU64::new(0);
    static SEND: AtomicU64 = AtomicU64::new(0);
    LINE.store(line.number().into(), Ordering::Relaxed);
    SEND.store(send as usize as u64, Ordering::Relaxed);
    TURN.store(0, Ordering::SeqCst);
    smp::on_all(|index| {
        let line = Interrupt::new(LINE.load(Ordering::Relaxed) as u8);
        // SAFETY: `ring` stored a function of this type.
        let send: fn(u64) = unsafe { core::mem::transmute(SEND.load(Ordering::Relaxed) as usize) };
        let Some(line) = line else { return };
        iocsr::write_w(IPI_ENABLE.into(), 0xffff_ffff);
        csrwr!(ECFG, line.bit());
        let count = smp::count() as u64;
        for round in 0..ROUNDS {
            let mine = round * count + index as u64;
            while TURN.load(Ordering::SeqCst) < mine {
                // Interrupts are off: what comes between the look and the
                // sleep stays pending and ends it.
                // SAFETY: waits.
                unsafe { asm!("idle 0", options(nostack)) };
                unmask();
                mask();
            }
            TURN.store(mine + 1, Ordering::SeqCst);
            send(smp::id((index + 1) % smp::count()));
        }
        csrwr!(ECFG, 0);
    });
    equal(
        "turns",
        TURN.load(Ordering::SeqCst),
        ROUNDS * smp::count() as u64,
    )
}

fn asleep() -> Outcome {
    ring(Interrupt::IPI, |id| {
        iocsr::write_w(IPI_SEND.into(), ipi_send(id as u32, 2).into())
    })
}

fn pv_asleep() -> Outcome {
    ring(Interrupt::SWI0, |id| {
        pv_send(1, id);
    })
}

static RECEIVED: [AtomicU64; MAX_CPUS] = [const { AtomicU64::new(0) }; MAX_CPUS];
static STOP: AtomicU64 = AtomicU64::new(0);

/// The boot vCPU sends to all others at once, and waits until each has it.
fn pv_all() -> Outcome {
    LOST.store(0, Ordering::Relaxed);
    STOP.store(0, Ordering::SeqCst);
    RECEIVED
        .iter()
        .for_each(|count| count.store(0, Ordering::SeqCst));
    smp::on_all(|index| {
        if index == 0 {
            send_to_all();
            STOP.store(1, Ordering::SeqCst);
            return;
        }
        let before = taken(Interrupt::SWI0);
        csrwr!(ECFG, Interrupt::SWI0.bit());
        unmask();
        while STOP.load(Ordering::SeqCst) == 0 {
            RECEIVED[index].store(taken(Interrupt::SWI0) - before, Ordering::SeqCst);
        }
        mask();
        csrwr!(ECFG, 0);
    });
    equal("rounds that lost one", LOST.load(Ordering::Relaxed), 0)
}

fn send_to_all() {
    for round in 1..=20 {
        for base in (0..1024).step_by(128) {
            let others = (1..smp::count()).map(smp::id);
            let near = others.filter(|id| (base..base + 128).contains(id));
            let set = near.fold(0u128, |set, id| set | 1 << (id - base));
            if set != 0 {
                pv_send(set, base);
            }
        }
        let all_have = || (1..smp::count()).all(|i| RECEIVED[i].load(Ordering::SeqCst) >= round);
        if !wait_until(all_have) {
            LOST.fetch_add(1, Ordering::Relaxed);
            return;
        }
    }
}
