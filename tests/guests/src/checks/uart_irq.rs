//! The UART's interrupt: identified as a 16550A's, and taken by the vCPU
//! that its vector is routed to.

use super::eiointc::{arrives, others_take};
use crate::check::{Check, Outcome, ensure, equal};
use crate::runtime::devices::{
    CLEAR, EDGE, MASK, UART, UART_INPUT, lines, read8, route, set_up, take_interrupts, taken,
    write8, write64,
};
use crate::runtime::smp;

/// The checks.
pub const CHECKS: [Check; 4] = [
    Check {
        name: "uart.identity",
        cpus: 1,
        run: identity,
    },
    Check {
        name: "uart.receive",
        cpus: 1,
        run: receive,
    },
    Check {
        name: "uart.transmit",
        cpus: 1,
        run: transmit,
    },
    Check {
        name: "uart.each",
        cpus: 2,
        run: each,
    },
];

/// Registers: interrupt enable and identification, FIFO, line and modem
/// control, line status.
const IER: u64 = UART + 1;
const IIR: u64 = UART + 2;
const FCR: u64 = UART + 2;
const MCR: u64 = UART + 4;
const LSR: u64 = UART + 5;

/// Modem control: loopback.
const LOOPBACK: u8 = 0x10;

/// The vector of the UART's input.
const VECTOR: u8 = UART_INPUT as u8;

/// Everything goes to this vCPU, the UART's input is unmasked, and nothing
/// of the UART is enabled.
fn begin() {
    set_up(smp::id(0));
    write8(IER, 0);
    write8(FCR, 7);
    write64(MASK, !(1 << UART_INPUT));
}

fn identity() -> Outcome {
    begin();
    equal("FIFOs on", read8(IIR).into(), 0xc1)?;
    write8(FCR, 0);
    equal("FIFOs off", read8(IIR).into(), 1)?;
    write8(MCR, LOOPBACK | 0xa);
    equal("modem lines", (read8(UART + 6) & 0xf0).into(), 0x90)?;
    write8(MCR, 0);
    read8(UART + 6);
    Ok(())
}

/// In loopback, four bytes: an interrupt, and the line until all are read.
fn receive() -> Outcome {
    begin();
    write8(MCR, LOOPBACK);
    let before = taken(0, VECTOR);
    b"loop".iter().for_each(|&byte| write8(UART, byte));
    equal("not enabled", lines(), 0)?;
    write8(IER, 1);
    let up = lines();
    take_interrupts();
    let count = taken(0, VECTOR);
    let identity = read8(IIR) & 0xf;
    let mut read = [0; 4];
    read.fill_with(|| read8(UART));
    let status = read8(LSR);
    write8(IER, 0);
    write8(MCR, 0);
    equal("line", up, 4)?;
    equal("interrupts", count, before + 1)?;
    equal("identified", identity.into(), 4)?;
    ensure("bytes", read == *b"loop")?;
    equal("status", status.into(), 0x60)
}

/// As an edge: each time that the transmitter's interrupt is enabled it
/// comes, until it is identified.
fn transmit() -> Outcome {
    begin();
    write64(EDGE, 1 << UART_INPUT);
    let before = taken(0, VECTOR);
    let mut identities = 0;
    for _ in 0..3 {
        write8(IER, 2);
        take_interrupts();
        identities += u64::from(read8(IIR) == 0xc2) + u64::from(read8(IIR) == 0xc1);
        write8(IER, 0);
        write64(CLEAR, 1 << UART_INPUT);
    }
    write64(EDGE, 0);
    equal("identified", identities, 6)?;
    equal("interrupts", taken(0, VECTOR), before + 3)
}

/// The interrupt goes to each vCPU in turn.
fn each() -> Outcome {
    begin();
    let lost = others_take(|| {
        let mut lost = 0;
        for cpu in (1..smp::count()).cycle().take(32) {
            route(VECTOR, smp::id(cpu));
            let times = taken(cpu, VECTOR) + 1;
            write8(IER, 2);
            lost += u64::from(!arrives(cpu, VECTOR, times));
            read8(IIR);
            write8(IER, 0);
        }
        lost
    });
    write64(MASK, u64::MAX);
    equal("lost", lost, 0)
}
