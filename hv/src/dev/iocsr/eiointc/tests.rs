//! The controller against a list of the lines that it tells of.

use super::*;
use Width::{Byte, Double, Half, Word};
use core::cell::RefCell;
use proptest::prelude::*;

#[derive(Default)]
struct Told(RefCell<Vec<(u32, u8)>>);

impl Targets for Told {
    fn changed(&self, cpu: u32, hwi: Hwi) {
        self.0.borrow_mut().push((cpu, hwi.number()));
    }
}

impl Told {
    fn take(&self) -> Vec<(u32, u8)> {
        self.0.take()
    }
}

fn write(chip: &Eiointc, told: &Told, cpu: u32, offset: u32, width: Width, value: u64) {
    chip.write(cpu, offset, Lane::new(offset.into(), width), value, told);
}

/// As Linux sets it up: ids as routes, 64 vectors a line, all enabled.
fn linux() -> (Eiointc, Told) {
    let (chip, told) = (Eiointc::default(), Told::default());
    write(&chip, &told, 0, VIRT_EIOINTC_CONFIG, Word, 8);
    write(
        &chip,
        &told,
        0,
        EIOINTC_IP_MAP,
        Double,
        0x0808_0404_0202_0101,
    );
    for index in 0..8 {
        write(
            &chip,
            &told,
            0,
            EIOINTC_ENABLE + 4 * index,
            Word,
            0xffff_ffff,
        );
    }
    assert_eq!(told.take(), []);
    (chip, told)
}

fn vector(number: u8) -> EiointcVector {
    EiointcVector::new(number)
}

#[test]
fn a_vector_reaches_its_cpu_and_line_and_is_acknowledged_there() {
    let (chip, told) = linux();
    write(&chip, &told, 0, EIOINTC_CORE_MAP + 0xc5, Byte, 200);
    chip.set(vector(0xc5), true, &told);
    assert_eq!(told.take(), [(200, 3)]);
    assert_eq!((chip.levels(200), chip.levels(0)), (8, 0));
    let isr = EIOINTC_CORE_ISR + 0x18;
    assert_eq!(chip.read(200, isr, Double), 1 << 5);
    assert_eq!(chip.read(0, isr, Double), 0);
    assert_eq!(chip.read(0, EIOINTC_ISR + 0x18, Double), 1 << 5);
    // Nobody else can clear it.
    write(&chip, &told, 0, isr, Double, u64::MAX);
    assert_eq!((chip.levels(200), told.take()), (8, vec![]));
    write(&chip, &told, 200, isr, Double, 1 << 5);
    assert_eq!((chip.levels(200), told.take()), (0, vec![(200, 3)]));
    // It is still high at its input: only a new rise makes it pending.
    chip.set(vector(0xc5), true, &told);
    assert_eq!(chip.levels(200), 8);
}

#[test]
fn one_withdrawn_leaves_the_others() {
    let (chip, told) = linux();
    for number in [0, 1, 63, 64] {
        chip.set(vector(number), true, &told);
    }
    chip.set(vector(1), false, &told);
    assert_eq!(chip.levels(0), 3);
    assert_eq!(chip.read(0, EIOINTC_CORE_ISR, Double), 1 << 63 | 1);
    chip.set(vector(64), false, &told);
    assert_eq!(chip.levels(0), 1);
    told.take();
    // Down is down: nothing changes any more.
    chip.set(vector(64), false, &told);
    chip.set(vector(0), true, &told);
    assert_eq!(told.take(), []);
}

#[test]
fn enabling_raises_what_was_pending() {
    let (chip, told) = linux();
    for (offset, width, value) in [
        (3, Byte, 0x7f),
        (2, Half, 0x7fff),
        (0, Word, 0x7fff_ffff),
        (0, Double, 0xffff_ffff_7fff_ffff),
    ] {
        write(&chip, &told, 0, EIOINTC_ENABLE + offset, width, value);
        chip.set(vector(31), true, &told);
        assert_eq!((chip.levels(0), told.take()), (0, vec![]));
        assert_eq!(chip.read(0, EIOINTC_ISR, Word), 1 << 31);
        assert_eq!(chip.read(0, EIOINTC_CORE_ISR, Word), 0);
        write(&chip, &told, 0, EIOINTC_ENABLE, Double, u64::MAX);
        assert_eq!((chip.levels(0), told.take()), (1, vec![(0, 0)]));
        chip.set(vector(31), false, &told);
        told.take();
    }
}

#[test]
fn a_pending_vector_follows_its_route() {
    let (chip, told) = linux();
    chip.set(vector(4), true, &told);
    told.take();
    write(&chip, &told, 0, EIOINTC_CORE_MAP + 4, Word, 7);
    assert_eq!(told.take(), [(0, 0), (7, 0)]);
    assert_eq!((chip.levels(0), chip.levels(7)), (0, 1));
    // As Linux does it: disabled in between.
    write(&chip, &told, 0, EIOINTC_ENABLE, Word, !(1 << 4));
    write(&chip, &told, 0, EIOINTC_CORE_MAP + 4, Byte, 9);
    write(&chip, &told, 0, EIOINTC_ENABLE, Word, u64::MAX);
    assert_eq!(told.take(), [(7, 0), (9, 0)]);
    assert_eq!((chip.levels(7), chip.levels(9)), (0, 1));
}

#[test]
fn without_cpu_encode_routes_are_sets_of_four_cpus() {
    let (chip, told) = linux();
    write(&chip, &told, 0, VIRT_EIOINTC_CONFIG, Word, 0);
    chip.set(vector(0), true, &told);
    for (route, cpu) in [
        (0, 0),
        (1, 0),
        (2, 1),
        (4, 2),
        (8, 3),
        (0xc, 2),
        (0x10, 0),
        (0x32, 1),
    ] {
        write(&chip, &told, 0, EIOINTC_CORE_MAP, Byte, route);
        let high: Vec<u32> = (0..256).filter(|&id| chip.levels(id) != 0).collect();
        assert_eq!(high, [cpu], "{route:#x}");
    }
}

#[test]
fn lines_are_sets_or_numbers() {
    let (chip, told) = (Eiointc::default(), Told::default());
    write(&chip, &told, 0, EIOINTC_ENABLE, Double, u64::MAX);
    chip.set(vector(32), true, &told);
    for (config, byte, levels) in [
        (0, 0, 1),
        (0, 1, 1),
        (0, 2, 2),
        (0, 0xc, 4),
        (0, 8, 8),
        (0, 0x10, 1),
        (4, 0, 1),
        (4, 3, 8),
        (4, 7, 0x80),
        (4, 8, 0),
        (4, 0xff, 0),
    ] {
        write(&chip, &told, 0, VIRT_EIOINTC_CONFIG, Word, config);
        write(&chip, &told, 0, EIOINTC_IP_MAP + 1, Byte, byte);
        assert_eq!(chip.levels(0), levels, "{config} {byte}");
    }
}

#[test]
fn a_new_coding_tells_the_old_lines_and_the_new_ones() {
    let (chip, told) = linux();
    write(&chip, &told, 0, EIOINTC_CORE_MAP, Byte, 2);
    chip.set(vector(0), true, &told);
    told.take();
    write(&chip, &told, 0, EIOINTC_IP_MAP, Byte, 4);
    assert_eq!(told.take(), [(2, 0), (2, 2)]);
    write(&chip, &told, 0, VIRT_EIOINTC_CONFIG, Word, 0);
    assert_eq!(told.take(), [(2, 2), (1, 2)]);
}

#[test]
fn features_are_fixed_and_the_configuration_once_enabled() {
    let (chip, told) = (Eiointc::default(), Told::default());
    write(&chip, &told, 0, VIRT_EIOINTC_FEATURES, Word, 0);
    assert_eq!(chip.read(0, VIRT_EIOINTC_FEATURES, Word), 0xf);
    write(&chip, &told, 0, VIRT_EIOINTC_CONFIG, Word, 0xffff_fff9);
    assert_eq!(chip.read(0, VIRT_EIOINTC_FEATURES, Double), 0x8_0000_000f);
    write(&chip, &told, 0, VIRT_EIOINTC_CONFIG, Word, 0xa);
    for (value, now) in [(0xe, 0xa), (8, 0xa), (0, 0), (4, 4)] {
        write(&chip, &told, 0, VIRT_EIOINTC_CONFIG, Word, value);
        assert_eq!(chip.read(0, VIRT_EIOINTC_CONFIG, Word), now);
    }
    // A wide write reaches it too.
    write(
        &chip,
        &told,
        0,
        VIRT_EIOINTC_FEATURES,
        Double,
        0x8_0000_0000,
    );
    assert_eq!(chip.config(), VirtEiointc::CPU_ENCODE);
}

/// The registers that keep what is written, by first and last byte.
const KEPT: [(u32, u32); 5] = [
    (EIOINTC_NODE_MAP, 0x14bf),
    (EIOINTC_IP_MAP, 0x14c7),
    (EIOINTC_ENABLE, 0x161f),
    (EIOINTC_BOUNCE, 0x169f),
    (EIOINTC_CORE_MAP, 0x1cff),
];

#[test]
fn narrow_writes_change_only_their_bytes() {
    let (chip, told) = (Eiointc::default(), Told::default());
    for (first, last) in KEPT {
        for offset in first..=last {
            write(
                &chip,
                &told,
                0,
                offset,
                Byte,
                u64::from(offset % 251) | 0xff00,
            );
        }
        for offset in first..=last {
            assert_eq!(chip.read(0, offset, Byte), u64::from(offset % 251));
        }
        write(&chip, &told, 0, first + 2, Half, 0xabcd);
        assert_eq!(chip.read(0, first, Word) >> 16, 0xabcd);
        assert_eq!(chip.read(0, first + 1, Byte), u64::from((first + 1) % 251));
    }
}

/// A guest's access, or a device's.
#[derive(Clone, Debug)]
enum Step {
    Read(u32, u32, u8),
    Write(u32, u32, u8, u64),
    Set(u8, bool),
}

fn step() -> impl Strategy<Value = Step> {
    let offset = prop_oneof![
        BASE - 8..BASE + BYTES + 8,
        VIRT_BASE..VIRT_BASE + 16,
        Just(EIOINTC_CORE_ISR),
        any::<u32>(),
    ];
    let write = (0u32..4, offset.clone(), 0u8..4, any::<u64>());
    prop_oneof![
        (0u32..4, offset, 0u8..4).prop_map(|(cpu, at, width)| Step::Read(cpu, at, width)),
        write.prop_map(|(cpu, at, width, value)| Step::Write(cpu, at, width, value)),
        (any::<u8>(), any::<bool>()).prop_map(|(vector, high)| Step::Set(vector, high)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever a guest does: a line that has changed has been told of.
    #[test]
    fn no_change_goes_untold(steps in proptest::collection::vec(step(), 1..24)) {
        let (chip, told) = (Eiointc::default(), Told::default());
        let width = |number: u8| [Byte, Half, Word, Double][usize::from(number)];
        for step in steps {
            let before: Vec<u8> = (0..256).map(|cpu| chip.levels(cpu)).collect();
            match step {
                Step::Read(cpu, at, bytes) => {
                    let value = chip.read(cpu, at, width(bytes));
                    prop_assert_eq!(value, width(bytes).zero_extend(value));
                }
                Step::Write(cpu, at, bytes, value) => {
                    write(&chip, &told, cpu, at, width(bytes), value);
                }
                Step::Set(number, high) => chip.set(vector(number), high, &told),
            }
            let told = told.take();
            for (cpu, before) in (0..).zip(before) {
                let changed = before ^ chip.levels(cpu);
                for hwi in (0..8).filter(|hwi| changed >> hwi & 1 == 1) {
                    prop_assert!(told.contains(&(cpu, hwi)), "cpu {} hwi {}", cpu, hwi);
                }
            }
        }
    }
}
