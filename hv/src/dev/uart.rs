//! A 16550A UART: the VM's console.
//!
//! What a guest sends has left at once, unless whoever shows it can't take
//! more: the transmitter is then full until it can.
//! What comes in waits in a queue, whose first 16 bytes are what the guest
//! sees as its FIFO: a paste is not lost while the guest is slow. The
//! interrupt line is a level that is computed after each change.
//!
//! Threats: a guest may write anything at any rate; a byte is passed on as
//! it comes, with no lock held, and the queue is bounded. Polling the line
//! status takes no lock. Not emulated: line speed, parity, framing, break,
//! and the time that a character takes: the interrupt for fewer bytes than
//! the trigger level comes at once. In loopback the queue is still filled
//! from outside, behind what the guest sends itself.
//!
//! Source: National Semiconductor PC16550D data sheet.

pub mod registers;
mod ring;

use crate::dev::irq_line::IrqLine;
use crate::isa::insn::Width;
use core::sync::atomic::{AtomicU8, Ordering};
use registers::*;
use ring::Ring;
use spin::Mutex;

/// Where the bytes that a guest sends go.
pub trait Sink {
    /// Takes one byte.
    fn send(&self, byte: u8);

    /// Whether it takes as many bytes as a FIFO has; else the guest is to
    /// wait for [`Uart::go_on`].
    fn is_ready(&self) -> bool;
}

/// Bytes from outside that are kept until the guest reads them.
pub const QUEUE_BYTES: usize = 8192;
/// Bytes of the FIFO that a guest sees.
const FIFO_BYTES: usize = 16;

/// Interrupt identification: nothing, and the causes.
const CAUSE_NONE: u8 = NO_INTERRUPT;
const CAUSE_MODEM: u8 = 0;
const CAUSE_TRANSMIT: u8 = 2;
const CAUSE_RECEIVE: u8 = 4;
const CAUSE_LINE: u8 = 6;
const CAUSE_TIMEOUT: u8 = 0xc;

/// Line status while nothing has come in, and what is sent has left.
const IDLE: u8 = HOLDING_EMPTY | TRANSMITTER_EMPTY;

/// Modem status: carrier, data set ready, clear to send.
const MODEM_READY: u8 = 0xb0;
/// Modem status: the ring indicator, whose end alone counts as a change.
const RING: u8 = 1 << 6;

/// Registers and what isn't seen of them.
#[derive(Debug, Default)]
struct State {
    interrupt_enable: u8,
    fifo_control: u8,
    line_control: u8,
    modem_control: u8,
    /// Changes of the modem status since it was last read.
    modem_changes: u8,
    scratch: u8,
    divisor: [u8; 2],
    /// The transmitter has become empty, and the guest hasn't been told.
    transmitted: bool,
    /// The transmitter isn't empty.
    busy: bool,
    overrun: bool,
    received: Ring<QUEUE_BYTES>,
    /// The interrupt line.
    high: bool,
}

/// The UART.
#[derive(Debug)]
pub struct Uart {
    state: Mutex<State>,
    line_status: AtomicU8,
}

impl Default for Uart {
    fn default() -> Self {
        Self::new()
    }
}

impl Uart {
    /// A UART as after reset.
    #[must_use]
    pub fn new() -> Self {
        Self {
            state: Mutex::new(State::default()),
            line_status: AtomicU8::new(IDLE),
        }
    }

    /// A byte has come in from outside; false where there is no room for it.
    pub fn receive(&self, byte: u8, line: &impl IrqLine) -> bool {
        self.change(line, |state| state.received.push(byte))
    }

    /// Reads the register at `offset`; wider reads have it in their low byte.
    pub fn read(&self, offset: u64, _width: Width, line: &impl IrqLine) -> u64 {
        if offset == LINE_STATUS {
            let status = self.line_status.load(Ordering::Relaxed);
            if status & OVERRUN == 0 {
                return status.into();
            }
        }
        self.change(line, |state| state.read(offset)).into()
    }

    /// Writes the low byte of `value` to the register at `offset`.
    pub fn write(
        &self,
        offset: u64,
        _width: Width,
        value: u64,
        sink: &impl Sink,
        line: &impl IrqLine,
    ) {
        let byte = value as u8;
        if self.change(line, |state| state.write(offset, byte)) {
            sink.send(byte);
            let ready = sink.is_ready();
            self.change(line, |state| state.sent(ready));
            // It may have become ready just before.
            if !ready && sink.is_ready() {
                self.go_on(line);
            }
        }
    }

    /// The sink has become ready: the guest may send more.
    pub fn go_on(&self, line: &impl IrqLine) {
        self.change(line, |state| {
            state.transmitted |= state.busy;
            state.busy = false;
        });
    }

    /// Does something to the state, and lets the line and the copy of the
    /// line status follow.
    fn change<T>(&self, line: &impl IrqLine, act: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.state.lock();
        let result = act(&mut state);
        let status = state.line_status();
        self.line_status.store(status, Ordering::Relaxed);
        let high = state.cause() != CAUSE_NONE;
        if high != state.high {
            state.high = high;
            line.set(high);
        }
        result
    }
}

impl State {
    const fn latch(&self) -> bool {
        self.line_control & DIVISOR_LATCH != 0
    }

    const fn fifo(&self) -> bool {
        self.fifo_control & FIFO_ENABLE != 0
    }

    /// Received bytes that make an interrupt.
    const fn trigger(&self) -> usize {
        match (self.fifo(), self.fifo_control >> 6) {
            (false, _) | (_, 0) => 1,
            (_, 1) => 4,
            (_, 2) => 8,
            _ => 14,
        }
    }

    fn line_status(&self) -> u8 {
        let ready = if self.received.len() > 0 {
            DATA_READY
        } else {
            0
        };
        let overrun = if self.overrun { OVERRUN } else { 0 };
        let idle = if self.busy { 0 } else { IDLE };
        idle | ready | overrun
    }

    /// The most urgent cause of an interrupt, as it is identified.
    fn cause(&self) -> u8 {
        let enabled = |bit| self.interrupt_enable & bit != 0;
        let received = self.received.len();
        if enabled(ENABLE_LINE) && self.overrun {
            CAUSE_LINE
        } else if enabled(ENABLE_RECEIVE) && received >= self.trigger() {
            CAUSE_RECEIVE
        } else if enabled(ENABLE_RECEIVE) && received > 0 {
            CAUSE_TIMEOUT
        } else if enabled(ENABLE_TRANSMIT) && self.transmitted {
            CAUSE_TRANSMIT
        } else if enabled(ENABLE_MODEM) && self.modem_changes != 0 {
            CAUSE_MODEM
        } else {
            CAUSE_NONE
        }
    }

    /// The modem's lines: in loopback those that the guest drives.
    const fn modem_status(&self) -> u8 {
        let control = self.modem_control;
        if control & LOOPBACK == 0 {
            return MODEM_READY;
        }
        // RTS, DTR, OUT1, OUT2 come back as CTS, DSR, RI, DCD.
        (control & 2) << 3 | (control & 1) << 5 | (control & 0xc) << 4
    }

    fn read(&mut self, offset: u64) -> u8 {
        let [low, high] = self.divisor;
        match offset {
            DATA if self.latch() => low,
            INTERRUPT_ENABLE if self.latch() => high,
            DATA => self.received.pop().unwrap_or_default(),
            INTERRUPT_ENABLE => self.interrupt_enable,
            INTERRUPT_IDENTITY => self.identify(),
            LINE_CONTROL => self.line_control,
            MODEM_CONTROL => self.modem_control,
            LINE_STATUS => {
                let status = self.line_status();
                self.overrun = false;
                status
            }
            MODEM_STATUS => self.modem_status() | core::mem::take(&mut self.modem_changes),
            SCRATCH => self.scratch,
            _ => 0,
        }
    }

    /// Identifies the interrupt; that the transmitter is empty is told once.
    fn identify(&mut self) -> u8 {
        let cause = self.cause();
        if cause == CAUSE_TRANSMIT {
            self.transmitted = false;
        }
        cause | if self.fifo() { FIFOS_ON } else { 0 }
    }

    /// Writes a register; true where `byte` is to be sent.
    fn write(&mut self, offset: u64, byte: u8) -> bool {
        match offset {
            DATA if self.latch() => self.divisor[0] = byte,
            INTERRUPT_ENABLE if self.latch() => self.divisor[1] = byte,
            DATA => return self.transmit(byte),
            INTERRUPT_ENABLE => {
                let new = byte & !self.interrupt_enable;
                self.interrupt_enable = byte & 0xf;
                self.transmitted |= new & ENABLE_TRANSMIT != 0 && !self.busy;
            }
            FIFO_CONTROL => self.control_fifo(byte),
            LINE_CONTROL => self.line_control = byte,
            MODEM_CONTROL => self.control_modem(byte & 0x1f),
            SCRATCH => self.scratch = byte,
            _ => {}
        }
        false
    }

    /// A byte has been sent outside, which takes more or not.
    const fn sent(&mut self, ready: bool) {
        self.busy = !ready;
        self.transmitted = ready;
    }

    /// Sends `byte`: outside where this gives true.
    fn transmit(&mut self, byte: u8) -> bool {
        if self.modem_control & LOOPBACK == 0 {
            return true;
        }
        self.transmitted = !self.busy;
        let room = if self.fifo() { FIFO_BYTES } else { 1 };
        if self.received.len() >= room || !self.received.push(byte) {
            self.overrun = true;
        }
        false
    }

    /// The other bits count only together with the one that turns FIFOs on;
    /// changing that one empties them.
    fn control_fifo(&mut self, byte: u8) {
        let switched = (byte ^ self.fifo_control) & FIFO_ENABLE != 0;
        let on = byte & FIFO_ENABLE != 0;
        if switched || on && byte & FIFO_CLEAR_RECEIVER != 0 {
            for _ in 0..FIFO_BYTES {
                self.received.pop();
            }
        }
        self.fifo_control = if on { byte & 0xc9 } else { 0 };
    }

    fn control_modem(&mut self, byte: u8) {
        let old = self.modem_status();
        self.modem_control = byte;
        let new = self.modem_status();
        let changed = (old ^ new) & !(new & RING);
        self.modem_changes |= changed >> 4;
    }
}

#[cfg(test)]
mod tests;
