//! A model of a hypervisor with its CPUs, behind the crate's trait.

use guest_pv::abi::cpucfg::{self, PvFeatures};
use guest_pv::abi::hypercall::{CallError, NOTIFY, SEND_IPI};
use guest_pv::abi::iocsr::{self, Features};
use guest_pv::abi::vendor;
use guest_pv::cpu::{Cpu, PhysicalId};
use guest_pv::machine::Machine;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

/// The interrupt lines and IPI vectors of a CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lines {
    /// SWI0 is pending.
    pub swi0: bool,
    /// Pending IPI vectors.
    pub vectors: u32,
    /// How often SWI0 was raised while it wasn't pending.
    pub raised: u32,
}

/// What was done, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// CPUCFG was read.
    Cpucfg(u32),
    /// A call: function and arguments.
    Call(u64, [u64; 3]),
    /// A 32-bit write of IOCSR.
    Write32(u32, u32),
    /// A 64-bit write of IOCSR.
    Write64(u32, u64),
}

/// A virtual machine, or a real one.
pub struct Model {
    /// IOCSR features.
    pub platform: Features,
    /// The signature word.
    pub signature: u32,
    /// What the hypervisor says that it offers.
    pub features: PvFeatures,
    /// What it does offer.
    pub carries_out: Cell<PvFeatures>,
    /// CPUs by physical id.
    pub lines: RefCell<BTreeMap<u64, Lines>>,
    /// Physical id of the CPU that acts.
    pub current: Cell<u64>,
    /// What was done.
    pub events: RefCell<Vec<Event>>,
}

impl Model {
    /// A VM with CPUs of these ids and the paravirtual IPI.
    pub fn new(ids: &[u32]) -> Self {
        let lines = ids.iter().map(|&id| (id.into(), Lines::default()));
        Self {
            platform: Features::VM | Features::CSR_IPI,
            signature: cpucfg::SIGNATURE_VALUE,
            features: PvFeatures::IPI,
            carries_out: Cell::new(PvFeatures::IPI),
            lines: RefCell::new(lines.collect()),
            current: Cell::new(0),
            events: RefCell::default(),
        }
    }

    /// A CPU's lines.
    pub fn lines(&self, id: u32) -> Lines {
        self.lines.borrow()[&id.into()]
    }

    /// The sets and bases of the IPI calls since this was last asked.
    pub fn ipi_calls(&self) -> Vec<(u128, u64)> {
        let events = self.events.take();
        let calls = events.into_iter().filter_map(|event| match event {
            Event::Call(SEND_IPI, [low, high, base]) => {
                Some((u128::from(low) | u128::from(high) << 64, base))
            }
            _ => None,
        });
        calls.collect()
    }

    fn log(&self, event: Event) {
        self.events.borrow_mut().push(event);
    }

    fn change(&self, id: u64, change: impl FnOnce(&mut Lines)) {
        if let Some(lines) = self.lines.borrow_mut().get_mut(&id) {
            change(lines);
        }
    }
}

impl Machine for Model {
    fn cpucfg(&self, word: u32) -> u32 {
        self.log(Event::Cpucfg(word));
        match word {
            cpucfg::SIGNATURE => self.signature,
            cpucfg::FEATURES => self.features.bits(),
            _ => 0,
        }
    }

    fn iocsr_read32(&self, offset: u32) -> u32 {
        match offset {
            iocsr::FEATURES => self.platform.bits() as u32,
            iocsr::IPI_STATUS => self.lines.borrow()[&self.current.get()].vectors,
            _ => 0,
        }
    }

    unsafe fn iocsr_write32(&self, offset: u32, value: u32) {
        self.log(Event::Write32(offset, value));
        match offset {
            iocsr::IPI_SEND => self.change((value >> 16 & 0x3ff).into(), |lines| {
                lines.vectors |= 1 << (value & 0x1f);
            }),
            iocsr::IPI_CLEAR => self.change(self.current.get(), |lines| lines.vectors &= !value),
            _ => {}
        }
    }

    unsafe fn iocsr_write64(&self, offset: u32, value: u64) {
        self.log(Event::Write64(offset, value));
    }

    unsafe fn hypercall(&self, function: u64, arguments: [u64; 3]) -> u64 {
        self.log(Event::Call(function, arguments));
        let offered = self.carries_out.get();
        match function {
            SEND_IPI if offered.contains(PvFeatures::IPI) => {
                let [low, high, base] = arguments;
                let set = u128::from(low) | u128::from(high) << 64;
                for bit in (0..128).filter(|bit| set >> bit & 1 == 1) {
                    self.change(base + bit, |lines| {
                        lines.raised += u32::from(!lines.swi0);
                        lines.swi0 = true;
                    });
                }
                0
            }
            NOTIFY if offered.contains(PvFeatures::STEAL_TIME) => 0,
            vendor::IDENTIFY => vendor::SIGNATURE,
            vendor::STOLEN => 7_000,
            vendor::EXIT_COUNT if arguments[0] < 11 => 1000 + arguments[0],
            vendor::EXIT_COUNT => CallError::InvalidParameter.register(),
            _ => CallError::InvalidCode.register(),
        }
    }

    fn clear_swi0(&self) {
        self.change(self.current.get(), |lines| lines.swi0 = false);
    }
}

/// A kernel's list of CPUs with these ids.
pub fn cpus(ids: &[u32]) -> Vec<Cpu> {
    let cpu = |&id: &u32| {
        let cpu = Cpu::new();
        cpu.set_id(PhysicalId::new(id).unwrap());
        cpu
    };
    ids.iter().map(cpu).collect()
}
