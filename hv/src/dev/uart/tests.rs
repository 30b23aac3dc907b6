//! The UART with its wires in the test's hands.

use super::*;
use core::cell::{Cell, RefCell};
use proptest::prelude::*;

#[derive(Default)]
struct Outside {
    full: Cell<bool>,
    sent: RefCell<Vec<u8>>,
    high: Cell<bool>,
    changes: Cell<u32>,
}

impl Sink for Outside {
    fn send(&self, byte: u8) {
        self.sent.borrow_mut().push(byte);
    }

    fn is_ready(&self) -> bool {
        !self.full.get()
    }
}

impl IrqLine for Outside {
    fn set(&self, high: bool) {
        assert_ne!(self.high.replace(high), high);
        self.changes.set(self.changes.get() + 1);
    }
}

#[derive(Default)]
struct Bench {
    uart: Uart,
    outside: Outside,
}

impl Bench {
    fn read(&self, offset: u64) -> u8 {
        self.uart.read(offset, Width::Byte, &self.outside) as u8
    }

    fn write(&self, offset: u64, value: u8) {
        let value = u64::from(value) | 0xff00;
        self.uart
            .write(offset, Width::Byte, value, &self.outside, &self.outside);
    }

    fn receive(&self, bytes: &[u8]) -> bool {
        bytes
            .iter()
            .all(|&byte| self.uart.receive(byte, &self.outside))
    }

    fn high(&self) -> bool {
        self.outside.high.get()
    }
}

#[test]
fn bytes_go_out_in_their_order() {
    let bench = Bench::default();
    for byte in *b"hello" {
        assert_eq!(bench.read(5), 0x60);
        bench.write(0, byte);
    }
    assert_eq!(*bench.outside.sent.borrow(), b"hello");
    assert_eq!(bench.outside.changes.get(), 0);
}

#[test]
fn divisor_latch_hides_the_data_register() {
    let bench = Bench::default();
    bench.receive(b"x");
    bench.write(3, 0x83);
    bench.write(0, 0x36);
    bench.write(1, 1);
    assert_eq!((bench.read(0), bench.read(1)), (0x36, 1));
    bench.write(3, 3);
    assert_eq!((bench.read(0), bench.read(1)), (b'x', 0));
    assert!(bench.outside.sent.borrow().is_empty());
}

#[test]
fn a_driver_finds_a_16550a_and_no_other() {
    let bench = Bench::default();
    assert_eq!(bench.read(2), 1);
    for (control, identity) in [(0, 1), (0xc0, 1), (1, 0xc1), (0x21, 0xc1), (0, 1)] {
        bench.write(2, control);
        assert_eq!(bench.read(2), identity, "{control:#x}");
    }
    bench.write(1, 0xff);
    assert_eq!(bench.read(1), 0xf);
    bench.write(4, 0xff);
    assert_eq!(bench.read(4), 0x1f);
    bench.write(7, 0xa5);
    assert_eq!(bench.read(7), 0xa5);
}

#[test]
fn received_bytes_interrupt_until_they_are_read() {
    let bench = Bench::default();
    bench.write(2, 0x81);
    assert!(bench.receive(b"early"));
    assert!(!bench.high());
    // Enabled afterwards, it comes at once.
    bench.write(1, 1);
    assert!(bench.high());
    assert_eq!(bench.read(2), 0xcc);
    assert!(bench.receive(b"bird"));
    assert_eq!(bench.read(2), 0xc4);
    for byte in *b"earlybird" {
        assert!(bench.high());
        assert_eq!(bench.read(5), 0x61);
        assert_eq!(bench.read(0), byte);
    }
    assert!(!bench.high());
    assert_eq!(
        (bench.read(5), bench.read(2), bench.read(0)),
        (0x60, 0xc1, 0)
    );
    assert_eq!(bench.outside.changes.get(), 2);
}

#[test]
fn trigger_levels() {
    for (control, level) in [(0x01, 1), (0x41, 4), (0x81, 8), (0xc1, 14), (0xc0, 1)] {
        let bench = Bench::default();
        bench.write(2, control);
        bench.write(1, 1);
        for count in 1..=16 {
            bench.receive(b"x");
            let cause = if count >= level { 4 } else { 0xc };
            assert_eq!(bench.read(2) & 0xf, cause, "{control:#x} {count}");
        }
    }
}

#[test]
fn an_empty_transmitter_is_told_once() {
    let bench = Bench::default();
    bench.write(2, 1);
    bench.write(1, 2);
    assert!(bench.high());
    assert_eq!((bench.read(2), bench.high()), (0xc2, false));
    assert_eq!(bench.read(2), 0xc1);
    bench.write(0, b'x');
    assert!(bench.high());
    assert_eq!((bench.read(2), bench.high()), (0xc2, false));
    // Off and on again, it is told again; on while on, it isn't.
    bench.write(1, 2);
    assert!(!bench.high());
    bench.write(1, 0);
    bench.write(1, 2);
    assert!(bench.high());
    bench.write(1, 0);
    assert!(!bench.high());
    assert_eq!(bench.read(2), 0xc1);
}

#[test]
fn a_guest_waits_until_its_bytes_can_go_out() {
    let bench = Bench::default();
    bench.write(2, 1);
    bench.outside.full.set(true);
    bench.write(0, b'x');
    assert_eq!(bench.read(5), 0);
    // Enabled while it is busy, the interrupt comes later.
    bench.write(1, 2);
    assert!(!bench.high());
    bench.write(0, b'y');
    assert_eq!((bench.read(5), bench.high()), (0, false));
    bench.outside.full.set(false);
    bench.uart.go_on(&bench.outside);
    assert_eq!((bench.read(5), bench.high()), (0x60, true));
    assert_eq!((bench.read(2), bench.high()), (0xc2, false));
    // Told once: to be told again there must be something to wait for.
    bench.uart.go_on(&bench.outside);
    assert!(!bench.high());
    assert_eq!(*bench.outside.sent.borrow(), b"xy");
}

#[test]
fn the_most_urgent_cause_comes_first() {
    let bench = Bench::default();
    bench.write(4, 0x10);
    bench.write(1, 0xf);
    bench.write(0, b'a');
    bench.write(0, b'b');
    // An overrun: there is room for one byte without FIFOs.
    assert_eq!(bench.read(2), 6);
    assert_eq!(bench.read(5), 0x63);
    assert_eq!(bench.read(2), 4);
    assert_eq!(bench.read(0), b'a');
    assert_eq!(bench.read(2), 2);
    // RTS and carrier were lost when loopback began.
    assert_eq!(bench.read(2), 0);
    assert_eq!(bench.read(6), 0x0b);
    assert_eq!((bench.read(2), bench.read(6)), (1, 0));
    assert!(!bench.high());
}

#[test]
fn loopback_turns_the_modem_lines_round() {
    let bench = Bench::default();
    assert_eq!(bench.read(6), 0xb0);
    for (control, status) in [(0x1a, 0x90), (0x11, 0x20), (0x14, 0x40), (0x1f, 0xf0)] {
        bench.write(4, control);
        assert_eq!(bench.read(6) & 0xf0, status, "{control:#x}");
    }
    // The ring indicator counts when it ends.
    bench.write(4, 0x10);
    assert_eq!(bench.read(6), 0x0f);
    bench.write(4, 0x14);
    assert_eq!(bench.read(6), 0x40);
    bench.write(2, 1);
    bench.write(0, b'x');
    assert_eq!(
        (bench.read(0), bench.outside.sent.borrow().len()),
        (b'x', 0)
    );
}

#[test]
fn a_paste_of_4_kib_is_kept_and_a_full_queue_refuses() {
    let bench = Bench::default();
    bench.write(2, 1);
    let paste: Vec<u8> = (0..QUEUE_BYTES).map(|index| index as u8).collect();
    assert!(paste.len() >= 4096 && bench.receive(&paste));
    assert!(!bench.receive(b"x"));
    let read: Vec<u8> = (0..paste.len()).map(|_| bench.read(0)).collect();
    assert_eq!(read, paste);
    assert_eq!(bench.read(5), 0x60);
}

#[test]
fn clearing_the_fifo_takes_what_a_fifo_holds() {
    let bench = Bench::default();
    bench.write(2, 1);
    bench.receive(b"0123456789abcdefXY");
    bench.write(2, 7);
    assert_eq!((bench.read(0), bench.read(0)), (b'X', b'Y'));
    // Without FIFOs the clear bits are nothing.
    bench.write(2, 0);
    bench.receive(b"z");
    bench.write(2, 6);
    assert_eq!(bench.read(0), b'z');
}

proptest! {
    /// Whatever a guest does, the line is what the identification says.
    #[test]
    fn the_line_follows_the_registers(
        steps in proptest::collection::vec((0u64..12, any::<u8>(), 0u8..4), 1..128),
    ) {
        let bench = Bench::default();
        for (offset, value, act) in steps {
            match act {
                0 => _ = bench.read(offset),
                1 => _ = bench.receive(&[value]),
                2 if value > 200 => bench.uart.go_on(&bench.outside),
                2 if value > 150 => bench.outside.full.set(value % 2 == 0),
                _ => bench.write(offset, value),
            }
            let high = bench.high();
            let lsr = bench.uart.line_status.load(Ordering::Relaxed);
            let state = bench.uart.state.lock();
            prop_assert_eq!(high, state.cause() != CAUSE_NONE);
            prop_assert_eq!(lsr, state.line_status());
        }
    }
}
