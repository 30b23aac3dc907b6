//! The PCH's interrupt controller: 64 inputs, each with an EIOINTC vector.
//!
//! An input requests while its level is the active one, or if it is edge
//! triggered from an active edge until it is cleared. A request that isn't
//! masked raises the input's vector once, when it begins; when it ends the
//! vector is withdrawn. So what comes while an input is masked is raised
//! when it is unmasked, and a level that is still active after its handler
//! has masked and unmasked it is raised again.
//!
//! Threats: every vCPU may write every register at any time. Changes happen
//! under the controller's own lock, one at a time, with work for 64 inputs
//! at most; reads take no lock. Not emulated: pins for interrupts that
//! aren't messages, and distribution among them (the message enable,
//! automatic and route registers keep their value, without effect).
//!
//! Source: Loongson 7A1000 manual, chapter on the interrupt controller;
//! Linux, drivers/irqchip/irq-loongson-pch-pic.c for what a guest needs.

use crate::dev::irq_line::{EiointcVector, PchPicInput};
use crate::dev::lane::Lane;
use crate::isa::insn::Width;
use core::sync::atomic::{AtomicU64, Ordering};
use spin::Mutex;

/// Identification: chip 7, version 1, the number of the last input.
const ID: u64 = 7 << 24 | 1 << 32 | (PchPicInput::COUNT as u64 - 1) << 48;

const OFFSET_ID: u64 = 0x0;
const OFFSET_MASK: u64 = 0x20;
const OFFSET_MESSAGE_ENABLE: u64 = 0x40;
const OFFSET_EDGE: u64 = 0x60;
const OFFSET_CLEAR: u64 = 0x80;
const OFFSET_AUTO: [u64; 2] = [0xc0, 0xe0];
const OFFSET_ROUTE: u64 = 0x100;
const OFFSET_VECTOR: u64 = 0x200;
const OFFSET_REQUEST: u64 = 0x380;
const OFFSET_SERVICE: u64 = 0x3a0;
const OFFSET_POLARITY: u64 = 0x3e0;

/// Routes after reset: the first pin.
const ROUTE_RESET: u64 = 0x0101_0101_0101_0101;

/// Where the vectors lead.
pub trait Vectors {
    /// Raises `vector` (`high`), or withdraws it.
    fn set(&self, vector: EiointcVector, high: bool);
}

/// The registers, one bit an input or in eight words one byte. Written only
/// with the lock held, and each a word of its own to readers.
#[derive(Debug)]
pub struct PchPic {
    changes: Mutex<()>,
    /// The inputs as their devices drive them.
    lines: Word,
    /// Edges that were seen and not cleared.
    latched: Word,
    mask: Word,
    edge: Word,
    /// Inputs whose active level is low, or whose active edge falls.
    polarity: Word,
    /// Requests whose vector has been raised.
    service: Word,
    message_enable: Word,
    auto: [Word; 2],
    route: [Word; 8],
    vector: [Word; 8],
}

#[derive(Debug)]
struct Word(AtomicU64);

impl Word {
    const fn new(value: u64) -> Self {
        Self(AtomicU64::new(value))
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    fn merge(&self, lane: Lane, value: u64) {
        self.set(lane.merge(self.get(), value));
    }
}

impl Default for PchPic {
    /// As after reset: all inputs masked, none requesting.
    fn default() -> Self {
        Self {
            changes: Mutex::new(()),
            lines: Word::new(0),
            latched: Word::new(0),
            mask: Word::new(u64::MAX),
            edge: Word::new(0),
            polarity: Word::new(0),
            service: Word::new(0),
            message_enable: Word::new(0),
            auto: [const { Word::new(0) }; 2],
            route: [const { Word::new(ROUTE_RESET) }; 8],
            vector: [const { Word::new(0) }; 8],
        }
    }
}

impl PchPic {
    /// A device drives `input` to `high`.
    pub fn set(&self, input: PchPicInput, high: bool, vectors: &impl Vectors) {
        let _changes = self.changes.lock();
        let (bit, lines) = (input.bit(), self.lines.get());
        if (lines & bit != 0) == high {
            return;
        }
        self.lines.set(lines ^ bit);
        let active = (lines ^ bit ^ self.polarity.get()) & bit;
        self.latched
            .set(self.latched.get() | active & self.edge.get());
        self.update(vectors);
    }

    /// Reads `width` bytes at `offset`, zero-extended.
    #[inline]
    pub fn read(&self, offset: u64, width: Width) -> u64 {
        Lane::new(offset, width).read(match offset & !7 {
            OFFSET_MASK => self.mask.get(),
            OFFSET_ID => ID,
            OFFSET_EDGE => self.edge.get(),
            OFFSET_POLARITY => self.polarity.get(),
            OFFSET_REQUEST => self.requests(),
            OFFSET_SERVICE => self.service.get(),
            other => self.kept(other).map_or(0, Word::get),
        })
    }

    /// Writes the low `width` bytes of `value` at `offset`.
    pub fn write(&self, offset: u64, width: Width, value: u64, vectors: &impl Vectors) {
        let lane = Lane::new(offset, width);
        let _changes = self.changes.lock();
        match offset & !7 {
            OFFSET_MASK => self.mask.merge(lane, value),
            OFFSET_EDGE => {
                self.edge.merge(lane, value);
                self.latched.set(self.latched.get() & self.edge.get());
            }
            OFFSET_CLEAR => self.latched.set(self.latched.get() & !lane.place(value)),
            OFFSET_POLARITY => self.polarity.merge(lane, value),
            other => {
                if let Some(word) = self.kept(other) {
                    let old = word.get();
                    word.merge(lane, value);
                    self.moved(other, old, word.get(), vectors);
                }
                return;
            }
        }
        self.update(vectors);
    }

    /// The word at `offset` that only keeps what is written to it.
    fn kept(&self, offset: u64) -> Option<&Word> {
        let [auto0, auto1] = &self.auto;
        match offset {
            OFFSET_MESSAGE_ENABLE => Some(&self.message_enable),
            offset if offset == OFFSET_AUTO[0] => Some(auto0),
            offset if offset == OFFSET_AUTO[1] => Some(auto1),
            OFFSET_ROUTE..0x140 => self.route.get((offset - OFFSET_ROUTE) as usize / 8),
            OFFSET_VECTOR..0x240 => self.vector.get((offset - OFFSET_VECTOR) as usize / 8),
            _ => None,
        }
    }

    /// Inputs that request, masked or not.
    fn requests(&self) -> u64 {
        let edge = self.edge.get();
        let active = self.lines.get() ^ self.polarity.get();
        edge & self.latched.get() | !edge & active
    }

    fn vector_of(&self, input: u32) -> EiointcVector {
        let bytes = self.vector.get(input as usize / 8).map_or(0, Word::get);
        EiointcVector::new((bytes >> (input % 8 * 8)) as u8)
    }

    /// Raises the vectors of requests that begin, and withdraws those of
    /// requests that end, unless another one needs them.
    fn update(&self, vectors: &impl Vectors) {
        let (old, new) = (self.service.get(), self.requests() & !self.mask.get());
        self.service.set(new);
        for vector in inputs(old & !new).map(|input| self.vector_of(input)) {
            if !inputs(new).any(|other| self.vector_of(other) == vector) {
                vectors.set(vector, false);
            }
        }
        for input in inputs(new & !old) {
            vectors.set(self.vector_of(input), true);
        }
    }

    /// Requests whose vector has changed, now that the word at `offset` is
    /// no longer `old` but `new`, take it with them.
    fn moved(&self, offset: u64, old: u64, new: u64, vectors: &impl Vectors) {
        let Some(first @ 0..64) = offset.checked_sub(OFFSET_VECTOR) else {
            return;
        };
        for byte in 0..8 {
            let number = |word: u64| EiointcVector::new((word >> (byte * 8)) as u8);
            let requests = self.service.get();
            if number(old) == number(new) || requests >> (first + byte) & 1 == 0 {
                continue;
            }
            if !inputs(requests).any(|other| self.vector_of(other) == number(old)) {
                vectors.set(number(old), false);
            }
            vectors.set(number(new), true);
        }
    }
}

/// The numbers of the inputs whose bits are set.
fn inputs(mut bits: u64) -> impl Iterator<Item = u32> {
    core::iter::from_fn(move || {
        let input = bits.trailing_zeros();
        bits &= bits.wrapping_sub(1);
        (input < 64).then_some(input)
    })
}

#[cfg(test)]
mod tests;
