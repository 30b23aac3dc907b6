//! EIOINTC: vectors reach the vCPU and line that they are routed to, awake
//! and asleep, and no other.

use super::ipi::ring;
use crate::check::{Check, Outcome, equal};
use crate::csrwr;
use crate::runtime::devices::{lines as lines_high, message, route, set_up, taken, taken_by_all};
use crate::runtime::trap::{self, HARDWARE_LINES as LINES, mask, unmask};
use crate::runtime::{iocsr, smp, wait_until};
use core::sync::atomic::{AtomicU64, Ordering};
use guest_pv::abi::iocsr::{
    ANY_SEND, EIOINTC_BOUNCE, EIOINTC_CORE_ISR, EIOINTC_CORE_MAP, EIOINTC_ENABLE, EIOINTC_ISR,
    EIOINTC_NODE_MAP, VIRT_EIOINTC_FEATURES, any_send,
};
use loongarch_isa::exception::Interrupt;

/// The checks.
pub const CHECKS: [Check; 6] = [
    Check {
        name: "eiointc.registers",
        cpus: 1,
        run: registers,
    },
    Check {
        name: "eiointc.lines",
        cpus: 1,
        run: lines,
    },
    Check {
        name: "eiointc.enable",
        cpus: 1,
        run: enable,
    },
    Check {
        name: "eiointc.each",
        cpus: 2,
        run: each,
    },
    Check {
        name: "eiointc.asleep",
        cpus: 2,
        run: asleep,
    },
    Check {
        name: "eiointc.moved",
        cpus: 2,
        run: moved,
    },
];

fn registers() -> Outcome {
    equal("features", iocsr::read_w(VIRT_EIOINTC_FEATURES.into()), 0xf)?;
    for base in [EIOINTC_NODE_MAP, EIOINTC_ENABLE, EIOINTC_BOUNCE].map(u64::from) {
        for byte in 0..32 {
            iocsr::write_b(base + byte, 0x40 + byte);
        }
        equal("bytes", iocsr::read_d(base + 24), 0x5f5e_5d5c_5b5a_5958)?;
        iocsr::write_h(base + 30, 0x8765);
        iocsr::write_w(base + 24, 0xfedc_ba98);
        equal("narrow", iocsr::read_d(base + 24), 0x8765_5d5c_fedc_ba98)?;
        equal("sign", iocsr::read_h(base + 30), 0xffff_ffff_ffff_8765)?;
    }
    Ok(())
}

/// One vector of each line, and nothing else.
fn lines() -> Outcome {
    set_up(smp::id(0));
    csrwr!(ECFG, LINES);
    for (line, vector) in [(1, 64), (1, 127), (2, 128), (2, 191), (3, 192), (3, 255)] {
        let before = (taken(0, vector), taken_by_all());
        let interrupts = trap::taken(Interrupt::hwi(line));
        message(vector);
        let pending = lines_high();
        equal("the line", pending, Interrupt::hwi(line).bit())?;
        unmask();
        mask();
        equal("the vector", taken(0, vector), before.0 + 1)?;
        equal("no other", taken_by_all(), before.1 + 1)?;
        let now = trap::taken(Interrupt::hwi(line));
        equal("interrupts", now, interrupts + 1)?;
        equal("down again", lines_high(), 0)?;
    }
    csrwr!(ECFG, 0);
    Ok(())
}

fn enable() -> Outcome {
    set_up(smp::id(0));
    let word = u64::from(EIOINTC_ENABLE) + 8;
    iocsr::write_d(word, !1);
    message(64);
    equal("disabled", lines_high(), 0)?;
    equal("pending", iocsr::read_d(u64::from(EIOINTC_ISR) + 8), 1)?;
    iocsr::write_w(word, u64::MAX);
    equal("enabled", lines_high(), Interrupt::hwi(1).bit())?;
    iocsr::write_d(u64::from(EIOINTC_CORE_ISR) + 8, 2);
    equal("another", lines_high(), Interrupt::hwi(1).bit())?;
    iocsr::write_d(u64::from(EIOINTC_CORE_ISR) + 8, 1);
    equal("taken back", lines_high(), 0)
}

static STOP: AtomicU64 = AtomicU64::new(0);
static FAULTS: AtomicU64 = AtomicU64::new(0);

/// The boot vCPU acts, while the others take what comes; what it couldn't
/// see is a fault.
pub fn others_take(act: fn() -> u64) -> u64 {
    static ACT: AtomicU64 = AtomicU64::new(0);
    ACT.store(act as usize as u64, Ordering::Relaxed);
    STOP.store(0, Ordering::SeqCst);
    smp::on_all(|index| {
        if index == 0 {
            // SAFETY: `others_take` stored a function of this type.
            let act: fn() -> u64 =
                unsafe { core::mem::transmute(ACT.load(Ordering::Relaxed) as usize) };
            FAULTS.store(act(), Ordering::Relaxed);
            STOP.store(1, Ordering::SeqCst);
            return;
        }
        csrwr!(ECFG, LINES);
        unmask();
        while STOP.load(Ordering::SeqCst) == 0 {
            core::hint::spin_loop();
        }
        mask();
        csrwr!(ECFG, 0);
    });
    FAULTS.load(Ordering::Relaxed)
}

/// Waits until vCPU `cpu` has taken `vector` `times` times.
pub fn arrives(cpu: usize, vector: u8, times: u64) -> bool {
    wait_until(|| taken(cpu, vector) == times)
}

/// How often each vCPU gets a message. In a deterministic run of many all the
/// others are in the way of each.
fn rounds() -> u8 {
    (32 / smp::count() as u8).clamp(1, 8)
}

/// Each vCPU takes what is routed to it, and nobody else does.
fn each() -> Outcome {
    set_up(smp::id(0));
    let before = taken_by_all();
    let lost = others_take(|| {
        let mut lost = 0;
        for round in 0..rounds() {
            for cpu in 1..smp::count() {
                let vector = 64 + 24 * round + cpu as u8 % 24;
                route(vector, smp::id(cpu));
                let times = taken(cpu, vector) + 1;
                message(vector);
                lost += u64::from(!arrives(cpu, vector, times));
            }
        }
        lost
    });
    equal("lost", lost, 0)?;
    let all = u64::from(rounds()) * (smp::count() as u64 - 1);
    equal("taken by all", taken_by_all(), before + all)
}

/// vCPUs wake each other by messages, and sleep in between.
fn asleep() -> Outcome {
    set_up(smp::id(0));
    for cpu in 0..smp::count() {
        route(64 + cpu as u8 % 64, smp::id(cpu));
    }
    ring(Interrupt::hwi(1), |id| {
        message(64 + smp::index_of(id).unwrap_or(0) as u8 % 64)
    })
}

/// What is pending at one vCPU goes to another by a new route; the old one's
/// line goes down.
fn moved() -> Outcome {
    set_up(smp::id(0));
    let wrong = others_take(|| {
        let target = smp::count() - 1;
        let (id, vector) = (smp::id(target), 200u8);
        let mut wrong = 0;
        for round in 0..8 {
            let times = taken(target, vector) + 1;
            let enable = u64::from(EIOINTC_ENABLE) + 24;
            route(vector, smp::id(0));
            message(vector);
            wrong += u64::from(lines_high() != Interrupt::hwi(3).bit());
            if round % 2 == 0 {
                route(vector, id);
            } else {
                // As Linux does it where routes are sets.
                iocsr::write_w(enable, !(1 << 8));
                wrong += u64::from(lines_high() != 0);
                let at = EIOINTC_CORE_MAP + u32::from(vector);
                iocsr::write_d(
                    ANY_SEND.into(),
                    any_send(id as u32, at, id as u32) | 0xe << 27,
                );
                iocsr::write_w(enable, u64::MAX);
            }
            wrong += u64::from(!arrives(target, vector, times));
            wrong += u64::from(lines_high() != 0);
        }
        wrong
    });
    equal("wrong", wrong, 0)
}
