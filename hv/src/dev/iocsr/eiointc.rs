//! The extended I/O interrupt controller: 256 vectors to CPUs and lines.
//!
//! A vector is pending from the moment it is raised until the vCPU that it
//! is routed to acknowledges it in its core ISR, or the input behind it goes
//! down. Nothing else is kept: core ISRs and line levels are computed from
//! pending, enable, route and line map when they are asked for, so that they
//! can't disagree, and a vector follows its route wherever that is changed.
//! Each change happens under the controller's own lock, and says under it
//! which lines may have changed.
//!
//! Threats: every vCPU may write every register at any time; no access does
//! more work than the 256 vectors give, and nothing waits while the lock is
//! held. A route to an id that no vCPU has, and a line number that doesn't
//! exist, lead nowhere. Not emulated: bounce, node map and the controller's
//! enable bit (kept, without effect), and more than one node: there is one
//! controller for all vCPUs.
//!
//! Source: Loongson 3A5000 manual, chapter on extended I/O interrupts; for
//! the virtual extension Linux, drivers/irqchip/irq-loongson-eiointc.c.

use crate::dev::irq_line::{EiointcVector, Hwi};
use crate::dev::lane::Lane;
use crate::isa::insn::Width;
use guest_pv::abi::iocsr::{
    EIOINTC_BOUNCE, EIOINTC_CORE_ISR, EIOINTC_CORE_MAP, EIOINTC_ENABLE, EIOINTC_IP_MAP,
    EIOINTC_ISR, EIOINTC_NODE_MAP, VIRT_EIOINTC_CONFIG, VIRT_EIOINTC_FEATURES, VirtEiointc,
};
use spin::Mutex;

/// First offset of the window.
pub const BASE: u32 = EIOINTC_NODE_MAP;
/// Bytes of the window: up to the end of the core map.
pub const BYTES: u32 = EIOINTC_CORE_MAP + VECTORS as u32 - BASE;
/// First offset of the virtual extension's window.
pub const VIRT_BASE: u32 = VIRT_EIOINTC_FEATURES;
/// Bytes of the virtual extension's window.
pub const VIRT_BYTES: u32 = 0x100;

/// What the virtual extension can do.
const FEATURES: VirtEiointc = VirtEiointc::all();

/// Vectors there are.
const VECTORS: usize = 256;
/// Vectors that have a bit in one register.
const PER_WORD: usize = 64;
/// Vectors that share a byte of the line map.
const PER_GROUP: usize = 32;

/// A bit for each vector.
type Bits = [u64; VECTORS / PER_WORD];

/// Is told what may have changed.
pub trait Targets {
    /// Line `hwi` of the vCPU with physical id `cpu` may have changed.
    fn changed(&self, cpu: u32, hwi: Hwi);
}

/// The controller of a VM.
#[derive(Debug, Default)]
pub struct Eiointc {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    pending: Bits,
    enable: Bits,
    route: [[u64; 8]; VECTORS / 64],
    coding: Coding,
    bounce: Bits,
    node_map: Bits,
}

/// How routes and line numbers are read.
#[derive(Clone, Copy, Debug)]
struct Coding {
    config: VirtEiointc,
    ip_map: u64,
}

impl Default for Coding {
    fn default() -> Self {
        let config = VirtEiointc::empty();
        Self { config, ip_map: 0 }
    }
}

impl Coding {
    /// The physical id that route byte `route` names. An empty set is CPU 0.
    const fn cpu(self, route: u8) -> u32 {
        if self.config.contains(VirtEiointc::CPU_ENCODE) {
            return route as u32;
        }
        match route & 0xf {
            0 => 0,
            set => set.trailing_zeros(),
        }
    }

    /// The line of `vector`'s group. An empty set is line 0; a number that
    /// no line has is none.
    fn line(self, vector: usize) -> Option<Hwi> {
        let byte = (self.ip_map >> (vector / PER_GROUP % 8 * 8)) as u8;
        if self.config.contains(VirtEiointc::INT_ENCODE) {
            return Hwi::new(byte);
        }
        Hwi::new(match byte & 0xf {
            0 => 0,
            set => set.trailing_zeros() as u8,
        })
    }
}

/// The vectors whose bits are set in `bits`, the first standing for `first`.
fn vectors(first: usize, mut bits: u64) -> impl Iterator<Item = usize> {
    core::iter::from_fn(move || {
        let bit = bits.trailing_zeros() as usize;
        bits &= bits.wrapping_sub(1);
        (bit < PER_WORD).then_some(first + bit)
    })
}

impl Eiointc {
    /// Raises `vector` (`high`), or withdraws it.
    pub fn set(&self, vector: EiointcVector, high: bool, targets: &impl Targets) {
        let vector = usize::from(vector.number());
        let bit = 1 << (vector % PER_WORD);
        let mut state = self.state.lock();
        let Some(word) = state.pending.get_mut(vector / PER_WORD) else {
            return;
        };
        let changed = (*word & bit == 0) == high;
        *word = if high { *word | bit } else { *word & !bit };
        if changed && get(&state.enable, vector / PER_WORD) & bit != 0 {
            state.tell(vector, targets);
        }
    }

    /// The lines of `cpu` that are high, HWI0 at bit 0.
    #[must_use]
    pub fn levels(&self, cpu: u32) -> u8 {
        let state = self.state.lock();
        let lines = state
            .all_active()
            .filter(|&vector| state.cpu_of(vector) == cpu)
            .filter_map(|vector| state.coding.line(vector));
        lines.fold(0, |levels, hwi| levels | 1 << hwi.number())
    }

    /// What is turned on.
    #[must_use]
    pub fn config(&self) -> VirtEiointc {
        self.state.lock().coding.config
    }

    /// Turns on what `config` says, as far as it can be; once it is enabled
    /// only turning everything off is possible.
    pub fn configure(&self, config: VirtEiointc, targets: &impl Targets) {
        self.state.lock().configure(config, targets);
    }

    /// Reads `width` bytes at `offset` of the IOCSR space, as the vCPU with
    /// physical id `cpu` does; zero-extended.
    #[must_use]
    pub fn read(&self, cpu: u32, offset: u32, width: Width) -> u64 {
        let value = Register::at(offset).map_or(0, |register| {
            let state = self.state.lock();
            match register {
                Register::NodeMap(index) => get(&state.node_map, index),
                Register::IpMap => state.coding.ip_map,
                Register::Enable(index) => get(&state.enable, index),
                Register::Bounce(index) => get(&state.bounce, index),
                Register::Isr(index) => get(&state.pending, index),
                Register::CoreIsr(index) => state.core_isr(cpu, index),
                Register::CoreMap(index) => get(state.route.as_flattened(), index),
                Register::Virtual => state.virtual_registers(),
            }
        });
        Lane::new(offset.into(), width).read(value)
    }

    /// Writes `value` to the bits `lane` of the register at `offset` of the
    /// IOCSR space, as the vCPU with physical id `cpu` does.
    pub fn write(&self, cpu: u32, offset: u32, lane: Lane, value: u64, targets: &impl Targets) {
        let Some(register) = Register::at(offset) else {
            return;
        };
        let mut state = self.state.lock();
        match register {
            Register::NodeMap(index) => _ = put(&mut state.node_map, index, lane, value),
            Register::Bounce(index) => _ = put(&mut state.bounce, index, lane, value),
            Register::IpMap => {
                let ip_map = lane.merge(state.coding.ip_map, value);
                let config = state.coding.config;
                state.recode(Coding { config, ip_map }, targets);
            }
            Register::Enable(index) => {
                let changed = put(&mut state.enable, index, lane, value);
                let pending = changed & get(&state.pending, index);
                vectors(index * PER_WORD, pending).for_each(|vector| state.tell(vector, targets));
            }
            Register::CoreIsr(index) => {
                state.acknowledge(cpu, index, lane.place(value), targets);
            }
            Register::CoreMap(index) => state.reroute(index, lane, value, targets),
            Register::Virtual => {
                // The features, its low half, are read-only.
                let new = lane.merge(state.virtual_registers(), value) >> 32;
                let config = VirtEiointc::from_bits_truncate(new as u32);
                if lane.mask() >> 32 != 0 {
                    state.configure(config, targets);
                }
            }
            Register::Isr(_) => {}
        }
    }
}

/// Word `index`; 0 beyond the end.
fn get(words: &[u64], index: usize) -> u64 {
    words.get(index).copied().unwrap_or_default()
}

/// Writes part of word `index`; which of its bits have changed.
fn put(words: &mut [u64], index: usize, lane: Lane, value: u64) -> u64 {
    words.get_mut(index).map_or(0, |word| {
        let old = core::mem::replace(word, lane.merge(*word, value));
        old ^ *word
    })
}

impl State {
    /// Pending and enabled vectors of a register.
    fn active(&self, word: usize) -> u64 {
        get(&self.pending, word) & get(&self.enable, word)
    }

    fn all_active(&self) -> impl Iterator<Item = usize> {
        let words = self.pending.iter().zip(&self.enable).enumerate();
        words.flat_map(|(word, (pending, enable))| vectors(word * PER_WORD, pending & enable))
    }

    fn cpu_of(&self, vector: usize) -> u32 {
        let routes = get(self.route.as_flattened(), vector / 8);
        self.coding.cpu((routes >> (vector % 8 * 8)) as u8)
    }

    fn core_isr(&self, cpu: u32, word: usize) -> u64 {
        vectors(word * PER_WORD, self.active(word))
            .filter(|&vector| self.cpu_of(vector) == cpu)
            .fold(0, |bits, vector| bits | 1 << (vector % PER_WORD))
    }

    /// The accessing vCPU clears those of the vectors `bits` that it has.
    fn acknowledge(&mut self, cpu: u32, word: usize, bits: u64, targets: &impl Targets) {
        let bits = bits & self.core_isr(cpu, word);
        if let Some(pending) = self.pending.get_mut(word) {
            *pending &= !bits;
        }
        vectors(word * PER_WORD, bits).for_each(|vector| self.tell(vector, targets));
    }

    /// Tells the old and the new target of each active vector whose route
    /// is written.
    fn reroute(&mut self, index: usize, lane: Lane, value: u64, targets: &impl Targets) {
        let first = index * 8;
        let active = self.active(first / PER_WORD) >> (first % PER_WORD) & 0xff;
        vectors(first, active).for_each(|vector| self.tell(vector, targets));
        let changed = put(self.route.as_flattened_mut(), index, lane, value);
        let moved = |vector: &usize| changed >> (vector % 8 * 8) & 0xff != 0;
        vectors(first, active)
            .filter(moved)
            .for_each(|vector| self.tell(vector, targets));
    }

    fn configure(&mut self, config: VirtEiointc, targets: &impl Targets) {
        let enabled = self.coding.config.contains(VirtEiointc::ENABLE);
        if !enabled || config.is_empty() {
            let config = config & FEATURES & !VirtEiointc::EXTENSION;
            let ip_map = self.coding.ip_map;
            self.recode(Coding { config, ip_map }, targets);
        }
    }

    /// Tells the lines that are high before and those after.
    fn recode(&mut self, coding: Coding, targets: &impl Targets) {
        for coding in [self.coding, coding] {
            self.coding = coding;
            self.all_active()
                .for_each(|vector| self.tell(vector, targets));
        }
    }

    /// Says that the line which `vector` leads to may have changed.
    fn tell(&self, vector: usize, targets: &impl Targets) {
        if let Some(hwi) = self.coding.line(vector) {
            targets.changed(self.cpu_of(vector), hwi);
        }
    }

    /// Both registers of the virtual extension, the features below.
    fn virtual_registers(&self) -> u64 {
        u64::from(FEATURES.bits()) | u64::from(self.coding.config.bits()) << 32
    }
}

/// A 64-bit register, by its index among those of its kind.
enum Register {
    NodeMap(usize),
    IpMap,
    Enable(usize),
    Bounce(usize),
    Isr(usize),
    CoreIsr(usize),
    CoreMap(usize),
    Virtual,
}

impl Register {
    /// The register that has `offset`.
    const fn at(offset: u32) -> Option<Self> {
        let bytes = offset & 0x1f;
        let index = bytes as usize / 8;
        Some(match offset & !0x1f {
            EIOINTC_NODE_MAP => Self::NodeMap(index),
            EIOINTC_IP_MAP if bytes < 8 => Self::IpMap,
            EIOINTC_ENABLE => Self::Enable(index),
            EIOINTC_BOUNCE => Self::Bounce(index),
            EIOINTC_ISR => Self::Isr(index),
            EIOINTC_CORE_ISR => Self::CoreIsr(index),
            VIRT_EIOINTC_FEATURES if bytes < 8 => Self::Virtual,
            EIOINTC_CORE_MAP..0x1d00 => Self::CoreMap((offset - EIOINTC_CORE_MAP) as usize / 8),
            _ => return None,
        })
    }
}

const _: () = {
    assert!(EIOINTC_NODE_MAP.is_multiple_of(32) && BASE + BYTES == 0x1d00);
    assert!(VIRT_EIOINTC_CONFIG == VIRT_EIOINTC_FEATURES + 4);
};

#[cfg(test)]
mod tests;
