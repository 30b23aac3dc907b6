//! The controller against a list of the vectors that it sends.

use super::*;
use Width::{Byte, Double, Half, Word as Whole};
use core::cell::RefCell;
use proptest::prelude::*;

#[derive(Default)]
struct Sent(RefCell<Vec<(u8, bool)>>);

impl Vectors for Sent {
    fn set(&self, vector: EiointcVector, high: bool) {
        self.0.borrow_mut().push((vector.number(), high));
    }
}

impl Sent {
    fn take(&self) -> Vec<(u8, bool)> {
        self.0.take()
    }
}

fn input(number: u8) -> PchPicInput {
    PchPicInput::new(number).unwrap()
}

/// As Linux sets it up: input n has vector n + 10.
fn linux() -> (PchPic, Sent) {
    let (chip, sent) = (PchPic::default(), Sent::default());
    for number in 0..64u8 {
        chip.write(
            0x200 + u64::from(number),
            Byte,
            u64::from(number) + 10,
            &sent,
        );
    }
    (chip, sent)
}

#[test]
fn a_level_is_raised_once_and_again_after_unmasking() {
    let (chip, sent) = linux();
    chip.set(input(2), true, &sent);
    assert_eq!(sent.take(), []);
    assert_eq!(chip.read(0x380, Double), 4);
    // Unmasking raises what came before.
    chip.write(0x20, Whole, 0xffff_fffb, &sent);
    assert_eq!(sent.take(), [(12, true)]);
    assert_eq!(chip.read(0x3a0, Double), 4);
    chip.set(input(2), true, &sent);
    assert_eq!(sent.take(), []);
    // The handler masks, the level stays, the handler unmasks.
    chip.write(0x20, Whole, 0xffff_ffff, &sent);
    chip.write(0x80, Whole, 4, &sent);
    chip.write(0x20, Whole, 0xffff_fffb, &sent);
    assert_eq!(sent.take(), [(12, false), (12, true)]);
    chip.set(input(2), false, &sent);
    assert_eq!(
        (sent.take(), chip.read(0x380, Double)),
        (vec![(12, false)], 0)
    );
}

#[test]
fn an_edge_is_latched_until_it_is_cleared() {
    let (chip, sent) = linux();
    chip.write(0x64, Whole, 1 << 8, &sent);
    chip.write(0x24, Whole, !(1 << 8), &sent);
    chip.set(input(40), true, &sent);
    chip.set(input(40), false, &sent);
    assert_eq!(sent.take(), [(50, true)]);
    assert_eq!(chip.read(0x384, Whole), 1 << 8);
    // A second edge before that is the same request.
    chip.set(input(40), true, &sent);
    assert_eq!(sent.take(), []);
    chip.write(0x85, Byte, 1, &sent);
    assert_eq!(
        (sent.take(), chip.read(0x380, Double)),
        (vec![(50, false)], 0)
    );
    chip.set(input(40), false, &sent);
    assert_eq!(sent.take(), []);
    // An edge while masked is raised when unmasked.
    chip.write(0x24, Whole, u64::MAX, &sent);
    chip.set(input(40), true, &sent);
    chip.set(input(40), false, &sent);
    chip.write(0x24, Whole, !(1 << 8), &sent);
    assert_eq!(sent.take(), [(50, true)]);
}

#[test]
fn polarity_turns_levels_and_edges_round() {
    let (chip, sent) = linux();
    chip.write(0x3e0, Double, 3, &sent);
    chip.write(0x60, Double, 2, &sent);
    chip.write(0x20, Double, !3, &sent);
    // Input 0 is active while low, input 1 when it falls.
    assert_eq!(sent.take(), [(10, true)]);
    chip.set(input(0), true, &sent);
    chip.set(input(1), true, &sent);
    assert_eq!(sent.take(), [(10, false)]);
    chip.set(input(1), false, &sent);
    assert_eq!(sent.take(), [(11, true)]);
}

#[test]
fn unmasking_two_raises_both_and_lowering_one_leaves_the_other() {
    let (chip, sent) = linux();
    chip.set(input(3), true, &sent);
    chip.set(input(33), true, &sent);
    chip.write(0x20, Double, 0, &sent);
    assert_eq!(sent.take(), [(13, true), (43, true)]);
    chip.set(input(3), false, &sent);
    assert_eq!(sent.take(), [(13, false)]);
    assert_eq!(chip.read(0x3a0, Double), 1 << 33);
}

#[test]
fn a_shared_vector_is_withdrawn_with_its_last_request() {
    let (chip, sent) = linux();
    chip.write(0x200, Half, 0x5050, &sent);
    chip.write(0x20, Double, 0, &sent);
    chip.set(input(0), true, &sent);
    chip.set(input(1), true, &sent);
    sent.take();
    chip.set(input(0), false, &sent);
    assert_eq!(sent.take(), []);
    chip.set(input(1), false, &sent);
    assert_eq!(sent.take(), [(0x50, false)]);
}

#[test]
fn a_request_takes_a_new_vector_with_it() {
    let (chip, sent) = linux();
    chip.write(0x20, Double, 0, &sent);
    chip.set(input(9), true, &sent);
    sent.take();
    chip.write(0x208, Double, 0x0101_0101_0101_0101, &sent);
    assert_eq!(sent.take(), [(19, false), (1, true)]);
    chip.write(0x209, Byte, 1, &sent);
    assert_eq!(sent.take(), []);
}

#[test]
fn identity_at_every_width() {
    let chip = PchPic::default();
    assert_eq!(chip.read(4, Whole) >> 16 & 0xff, 63);
    assert_eq!(chip.read(6, Byte), 63);
    assert_eq!(chip.read(6, Half), 63);
    assert_eq!(chip.read(3, Byte), 7);
    assert_eq!(chip.read(0, Double), 0x003f_0001_0700_0000);
    chip.write(0, Double, 0, &Sent::default());
    assert_eq!(chip.read(0, Whole), 0x0700_0000);
}

#[test]
fn registers_keep_what_is_written_at_every_width() {
    let (chip, sent) = (PchPic::default(), Sent::default());
    let kept = [0x20, 0x40, 0x60, 0xc0, 0xe0, 0x3e0];
    let tables = (0x100..0x140).chain(0x200..0x240).step_by(8);
    for base in kept.into_iter().chain(tables) {
        for byte in 0..8 {
            chip.write(base + byte, Byte, 0xa0 + byte, &sent);
        }
        assert_eq!(chip.read(base, Double), 0xa7a6_a5a4_a3a2_a1a0, "{base:#x}");
        chip.write(base + 2, Half, 0x1_1234, &sent);
        assert_eq!(chip.read(base, Whole), 0x1234_a1a0);
        chip.write(base + 4, Whole, 0x5566_7788, &sent);
        assert_eq!(chip.read(base, Double), 0x5566_7788_1234_a1a0);
        assert_eq!(chip.read(base + 7, Byte), 0x55);
    }
}

#[test]
fn everything_is_masked_at_first() {
    let chip = PchPic::default();
    assert_eq!(chip.read(0x20, Double), u64::MAX);
    assert_eq!(chip.read(0x138, Double), ROUTE_RESET);
    assert_eq!(chip.read(0x238, Double), 0);
}

proptest! {
    /// Whatever is written: raised and withdrawn vectors balance, so that a
    /// vector is up exactly while a request has it.
    #[test]
    fn vectors_follow_their_requests(
        steps in proptest::collection::vec(
            (0u64..0x408, 0usize..4, any::<u64>(), any::<bool>(), 0u8..64), 1..64),
    ) {
        let (chip, sent) = (PchPic::default(), Sent::default());
        let mut up = [false; 256];
        for (offset, width, value, drive, number) in steps {
            let width = [Byte, Half, Whole, Double][width];
            if drive {
                chip.set(input(number), value & 1 == 1, &sent);
            } else {
                chip.write(offset, width, value, &sent);
                let read = chip.read(offset, width);
                prop_assert_eq!(read, width.zero_extend(read));
            }
            for (vector, high) in sent.take() {
                up[usize::from(vector)] = high;
            }
            let mut wanted = [false; 256];
            let (requests, mask) = (chip.read(0x380, Double), chip.read(0x20, Double));
            for number in (0..64).filter(|number| (requests & !mask) >> number & 1 == 1) {
                wanted[chip.read(0x200 + number, Byte) as usize] = true;
            }
            prop_assert_eq!(up, wanted);
            prop_assert_eq!(chip.read(0x3a0, Double), requests & !mask);
        }
    }
}
