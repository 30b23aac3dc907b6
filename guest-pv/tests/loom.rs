//! The message word against SWI0, under every interleaving: the crate's own
//! senders and handler, with a line that another CPU raises.
//!
//! Run with `RUSTFLAGS="--cfg loom" cargo test -p guest-pv --lib
//! --test loom`; without that flag the file is empty.
#![cfg(loom)]

use guest_pv::abi::cpucfg::PvFeatures;
use guest_pv::cpu::{Cpu, PhysicalId};
use guest_pv::cpu_set::CpuSet;
use guest_pv::ipi::{Action, Actions, Ipi};
use guest_pv::machine::Machine;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, AtomicU32, Ordering::*};
use loom::thread;

/// Two CPUs. What a hypercall does to another CPU's SWI0 line is no
/// stronger than a relaxed store: the protocol's own words must order it.
struct Machine2 {
    swi0: [AtomicBool; 2],
    cpus: [Cpu; 2],
    /// What a sender writes before it sends action 1, 2, …
    data: [AtomicU32; 3],
}

/// The machine, seen from one of its CPUs.
struct Seen<'a>(&'a Machine2, usize);

impl Machine for Seen<'_> {
    fn cpucfg(&self, _: u32) -> u32 {
        unreachable!()
    }

    fn iocsr_read32(&self, _: u32) -> u32 {
        unreachable!()
    }

    unsafe fn iocsr_write32(&self, _: u32, _: u32) {
        unreachable!()
    }

    unsafe fn iocsr_write64(&self, _: u32, _: u64) {
        unreachable!()
    }

    unsafe fn hypercall(&self, _: u64, [low, _, base]: [u64; 3]) -> u64 {
        for bit in (0..64).filter(|bit| low >> bit & 1 == 1) {
            self.0.swi0[(base + bit) as usize].store(true, Relaxed);
        }
        0
    }

    fn clear_swi0(&self) {
        self.0.swi0[self.1].store(false, Relaxed);
    }
}

impl Machine2 {
    fn new() -> Arc<Self> {
        let machine = Self {
            swi0: [AtomicBool::new(false), AtomicBool::new(false)],
            cpus: [Cpu::new(), Cpu::new()],
            data: [AtomicU32::new(0), AtomicU32::new(0), AtomicU32::new(0)],
        };
        for (id, cpu) in (0..).zip(&machine.cpus) {
            cpu.set_id(PhysicalId::new(id).unwrap());
        }
        Arc::new(machine)
    }

    fn ipi(&self, cpu: usize) -> Ipi<'_, Seen<'_>> {
        Ipi::new(Seen(self, cpu), PvFeatures::IPI, &self.cpus)
    }

    /// Runs the handler on `cpu` if its line is up; what it was told, all of
    /// whose data must be there.
    fn poll(&self, cpu: usize) -> Actions {
        if !self.swi0[cpu].load(Relaxed) {
            return Actions::NONE;
        }
        let actions = self.ipi(cpu).handle_swi0(cpu);
        for action in actions {
            let data = &self.data[action.number() as usize];
            assert_eq!(data.load(Relaxed), 1, "told before it was written");
        }
        actions
    }
}

fn action(number: u32) -> Action {
    Action::new(number).unwrap()
}

/// Sends `number` to CPU 0 from a thread of its own.
fn sender(machine: &Arc<Machine2>, number: u32) -> thread::JoinHandle<()> {
    let machine = machine.clone();
    thread::spawn(move || {
        machine.data[number as usize].store(1, Relaxed);
        let ipi = machine.ipi(1);
        ipi.send_ipi_single(0, action(number)).unwrap();
    })
}

/// The receiver looks `looks` times while the senders are at work, and once
/// they are done: it has got each action, and nothing is left.
fn receive(machine: &Machine2, senders: Vec<thread::JoinHandle<()>>, looks: usize) {
    let count = senders.len() as u32;
    let mut got = Actions::NONE;
    let mut times = 0;
    let mut look = || {
        let new = machine.poll(0);
        times += new.bits().count_ones();
        got = got.or(new);
    };
    (0..looks).for_each(|_| look());
    for sender in senders {
        sender.join().unwrap();
    }
    look();
    assert_eq!(got.bits(), (1 << (count + 1)) - 2, "lost");
    assert_eq!(times, count, "invented");
    assert!(machine.cpus[0].wanted().is_empty(), "left in the word");
    assert!(!machine.swi0[0].load(Relaxed), "left pending");
}

#[test]
fn one_sender_against_the_handler() {
    loom::model(|| {
        let machine = Machine2::new();
        let senders = vec![sender(&machine, 1)];
        receive(&machine, senders, 3);
    });
}

#[test]
fn two_senders_against_the_handler() {
    loom::model(|| {
        let machine = Machine2::new();
        let senders = vec![sender(&machine, 1), sender(&machine, 2)];
        receive(&machine, senders, 2);
    });
}

#[test]
fn one_sender_twice_against_the_handler() {
    loom::model(|| {
        let machine = Machine2::new();
        let twice = {
            let machine = machine.clone();
            thread::spawn(move || {
                let ipi = machine.ipi(1);
                for number in [1, 2] {
                    machine.data[number as usize].store(1, Relaxed);
                    ipi.send_ipi_single(0, action(number)).unwrap();
                }
            })
        };
        let mut got = Actions::NONE;
        (0..3).for_each(|_| got = got.or(machine.poll(0)));
        twice.join().unwrap();
        got = got.or(machine.poll(0));
        assert_eq!(got.bits(), 6, "lost");
        assert!(!machine.swi0[0].load(Relaxed) && machine.cpus[0].wanted().is_empty());
    });
}

#[test]
fn two_cpus_send_to_both() {
    loom::model(|| {
        let machine = Machine2::new();
        let other = {
            let machine = machine.clone();
            thread::spawn(move || {
                machine.data[2].store(1, Relaxed);
                let all = CpuSet::first(2);
                machine.ipi(1).send_ipi_mask(&all, action(2)).unwrap();
                machine.poll(1)
            })
        };
        machine.data[1].store(1, Relaxed);
        machine
            .ipi(0)
            .send_ipi_mask(&CpuSet::first(2), action(1))
            .unwrap();
        let mut got = [machine.poll(0), Actions::NONE];
        got[1] = other.join().unwrap();
        for cpu in 0..2 {
            got[cpu] = got[cpu].or(machine.poll(cpu));
            assert_eq!(got[cpu].bits(), 6, "CPU {cpu} lost one");
            assert!(!machine.swi0[cpu].load(Relaxed) && machine.cpus[cpu].wanted().is_empty());
        }
    });
}
