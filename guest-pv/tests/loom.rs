//! The message word against SWI0, under every interleaving: the crate's own
//! senders and handler, with a line that another CPU raises. There is no bound
//! on what is tried: up to three threads, in every order.
//!
//! Each model is run a second time with a mistake in it, and must fail: a handler
//! that clears SWI0 once it has read the word, or a sender that writes what an IPI
//! is about once it has sent it.
//!
//! Run with `RUSTFLAGS="--cfg loom" cargo test -p guest-pv --lib
//! --test loom`; without that flag the file is empty.
#![cfg(loom)]

#[macro_use]
#[path = "../../tests/models.rs"]
mod models;

use guest_pv::abi::cpucfg::PvFeatures;
use guest_pv::cpu::{Cpu, PhysicalId};
use guest_pv::cpu_set::CpuSet;
use guest_pv::ipi::{Action, Actions, Ipi};
use guest_pv::machine::Machine;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, AtomicU32, Ordering::*};
use loom::thread;

/// What is done wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mistake {
    None,
    ClearsLate,
    WritesLate,
}
use Mistake::{ClearsLate, None, WritesLate};

/// Two CPUs. What a hypercall does to another CPU's SWI0 line is no
/// stronger than a relaxed store: the protocol's own words must order it.
struct Machine2 {
    swi0: [AtomicBool; 2],
    cpus: [Cpu; 2],
    /// What a sender writes before it sends action 1, 2, …
    data: [AtomicU32; 3],
    mistake: Mistake,
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
        if self.0.mistake != ClearsLate {
            self.0.swi0[self.1].store(false, Relaxed);
        }
    }
}

impl Machine2 {
    fn new(mistake: Mistake) -> Arc<Self> {
        let machine = Self {
            swi0: [AtomicBool::new(false), AtomicBool::new(false)],
            cpus: [Cpu::new(), Cpu::new()],
            data: [AtomicU32::new(0), AtomicU32::new(0), AtomicU32::new(0)],
            mistake,
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
        if self.mistake == ClearsLate {
            self.swi0[cpu].store(false, Relaxed);
        }
        for action in actions {
            let data = &self.data[action.number() as usize];
            assert_eq!(data.load(Relaxed), 1, "told before it was written");
        }
        actions
    }
}

impl Machine2 {
    /// CPU `from` sends `number` to `targets`, and says before what it is about.
    fn send(&self, from: usize, number: u32, targets: &CpuSet) {
        let write = || self.data[number as usize].store(1, Relaxed);
        if self.mistake != WritesLate {
            write();
        }
        let sent = self.ipi(from).send_ipi_mask(targets, action(number));
        sent.unwrap();
        if self.mistake == WritesLate {
            write();
        }
    }
}

fn first() -> CpuSet {
    CpuSet::first(1)
}

fn action(number: u32) -> Action {
    Action::new(number).unwrap()
}

/// Sends `number` to CPU 0 from a thread of its own.
fn sender(machine: &Arc<Machine2>, number: u32) -> thread::JoinHandle<()> {
    let machine = machine.clone();
    thread::spawn(move || machine.send(1, number, &first()))
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

fn senders(count: u32, looks: usize, mistake: Mistake) {
    loom::model(move || {
        let machine = Machine2::new(mistake);
        let senders = (1..=count).map(|number| sender(&machine, number)).collect();
        receive(&machine, senders, looks);
    });
}

fn one_sender_twice(mistake: Mistake) {
    loom::model(move || {
        let machine = Machine2::new(mistake);
        let twice = {
            let machine = machine.clone();
            thread::spawn(move || [1, 2].map(|number| machine.send(1, number, &first())))
        };
        let mut got = Actions::NONE;
        (0..3).for_each(|_| got = got.or(machine.poll(0)));
        twice.join().unwrap();
        got = got.or(machine.poll(0));
        assert_eq!(got.bits(), 6, "lost");
        assert!(!machine.swi0[0].load(Relaxed) && machine.cpus[0].wanted().is_empty());
    });
}

fn two_cpus_send_to_both(mistake: Mistake) {
    loom::model(move || {
        let (machine, both) = (Machine2::new(mistake), CpuSet::first(2));
        let other = {
            let machine = machine.clone();
            thread::spawn(move || {
                machine.send(1, 2, &both);
                machine.poll(1)
            })
        };
        machine.send(0, 1, &both);
        let mut got = [machine.poll(0), Actions::NONE];
        got[1] = other.join().unwrap();
        for cpu in 0..2 {
            got[cpu] = got[cpu].or(machine.poll(cpu));
            assert_eq!(got[cpu].bits(), 6, "CPU {cpu} lost one");
            assert!(!machine.swi0[cpu].load(Relaxed) && machine.cpus[cpu].wanted().is_empty());
        }
    });
}

models! {
    one_sender_against_the_handler: |mistake| senders(1, 3, mistake),
        finds_who_writes_late WritesLate;
    two_senders_against_the_handler: |mistake| senders(2, 2, mistake),
        finds_who_writes_late WritesLate
        finds_who_clears_late ClearsLate;
    one_sender_twice_against_the_handler: one_sender_twice,
        finds_who_writes_late WritesLate
        finds_who_clears_late ClearsLate;
    two_cpus_that_send_to_both: two_cpus_send_to_both,
        finds_who_writes_late WritesLate
        finds_who_clears_late ClearsLate;
}
