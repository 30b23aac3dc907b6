//! Accesses to devices, from an exit to the lines of the vCPUs.

use super::*;
use crate::isa::insn::Width;

/// st.w a0, a1, 0; ld.w a0, a1, 0.
const ST_W: u32 = 0x2980_00a4;
const LD_W: u32 = 0x2880_00a4;

fn store(vcpu: &mut Vcpu, fake: &mut Fake, at: u64, value: u64) -> Resume {
    vcpu.context.gprs.set(Gpr::A0, value);
    vcpu.context.gprs.set(Gpr::A1, at);
    exit(vcpu, fake, 2, at, ST_W)
}

fn iocsr_store(vcpu: &mut Vcpu, fake: &mut Fake, at: u64, value: u64) {
    vcpu.context.gprs.set(Gpr::A1, at);
    vcpu.context.gprs.set(Gpr::A0, value);
    let _ = exit(vcpu, fake, GSPR, 0, IOCSR_WRITE);
}

/// Lets vectors go to vCPU 1 (physical id 5), 64 a line, by id.
fn route(vcpu: &mut Vcpu, fake: &mut Fake) {
    iocsr_store(vcpu, fake, 0x4000_0004, 8);
    iocsr_store(vcpu, fake, 0x14c0, 0x0202_0101);
    for index in 0..4 {
        iocsr_store(vcpu, fake, 0x1600 + 4 * index, u64::MAX);
    }
    for index in 0..32 {
        // By ANY_SEND, to the other vCPU.
        let offset = 0x1c00 + 4 * index;
        vcpu.context.gprs.set(Gpr::A1, 0x1158);
        vcpu.context
            .gprs
            .set(Gpr::A0, 0x0505_0505 << 32 | 5 << 16 | offset);
        // iocsrwr.d a0, a1.
        let _ = exit(vcpu, fake, GSPR, 0, IOCSR_WRITE + 0x400);
    }
}

#[test]
fn inputs_and_messages_reach_the_vcpu_and_line_of_their_route() {
    let (mut vcpu, mut fake) = (vcpu(), Fake::default());
    let (vcpu, fake) = (&mut vcpu, &mut fake);
    route(vcpu, fake);
    // Input 3 is active low, so without a device it requests when unmasked.
    let _ = store(vcpu, fake, 0x1000_0200, 0x0302_0100);
    let _ = store(vcpu, fake, 0x1000_03e0, 8);
    let target = vcpu.vm().vcpus()[1].clone();
    assert_eq!(target.postbox.take().lines(), 0);
    let _ = store(vcpu, fake, 0x1000_0020, !8);
    assert_eq!(target.postbox.take().lines(), 4);
    assert_eq!(vcpu.vm().levels(&target, u64::MAX), 4);
    assert_eq!(vcpu.vm().levels(vcpu.shared(), u64::MAX), 0);
    let _ = store(vcpu, fake, 0x2ff0_0000, 65);
    assert_eq!(target.postbox.take().lines(), 8);
    assert_eq!(vcpu.vm().levels(&target, u64::MAX), 12);
    assert_eq!(vcpu.vm().levels(&target, 8), 8);
    for nobody in [63, 256] {
        let _ = store(vcpu, fake, 0x2ff0_0000, nobody);
    }
    assert_eq!(target.postbox.take().lines(), 0);
    // Only the target acknowledges.
    iocsr_store(vcpu, fake, 0x1800, u64::MAX);
    assert_eq!(vcpu.vm().levels(&target, 4), 4);
    assert_eq!(fake.injected, []);
}

#[test]
fn what_begins_in_the_page_before_a_device_is_no_access_to_it() {
    let (mut vcpu, mut fake) = (vcpu(), Fake::default());
    for (at, reached) in [(0x1000_0000, true), (0x0fff_fffe, false)] {
        vcpu.context.gprs.set(Gpr::A1, at);
        vcpu.context.gprs.set(Gpr::A0, 0);
        let _ = exit(&mut vcpu, &mut fake, 1, 0x1000_0000, LD_W);
        assert_eq!(vcpu.context.gprs.get(Gpr::A0) != 0, reached, "{at:#x}");
        assert_eq!(fake.injected.is_empty(), reached);
    }
}

#[test]
fn ports_answer_ones() {
    let (mut vcpu, mut fake) = (vcpu(), Fake::default());
    let _ = exit(&mut vcpu, &mut fake, 1, 0x1800_4064, LD_W);
    assert_eq!(vcpu.context.gprs.get(Gpr::A0), u64::MAX);
    assert_eq!(store(&mut vcpu, &mut fake, 0x1800_4064, 1), Resume::Guest);
}

#[test]
fn power_ends_the_vm() {
    for (value, reason) in [
        (0, None),
        (0x34, Some(StopReason::PowerOff)),
        (0x42_0000, Some(StopReason::Reset)),
    ] {
        let (mut vcpu, mut fake) = (vcpu(), Fake::default());
        let resume = store(&mut vcpu, &mut fake, 0x100e_001c, value);
        let expected = reason.map_or(Resume::Guest, |_| Resume::Stop);
        assert_eq!((resume, vcpu.vm().stopped()), (expected, reason));
    }
}

#[test]
fn the_clock_runs_on_the_guest_s_counter() {
    let (mut vcpu, mut fake) = (vcpu(), Fake::default());
    // A minute and three seconds of the counter's, which began at 5.
    fake.ticks = 62_995;
    let _ = exit(&mut vcpu, &mut fake, 1, 0x100d_012c, LD_W);
    let time = 1 << 26 | 1 << 21 | 1 << 10 | 3 << 4;
    assert_eq!(vcpu.context.gprs.get(Gpr::A0), time);
    // The guest sets it an hour ahead.
    let _ = store(&mut vcpu, &mut fake, 0x100d_0124, time | 1 << 16);
    let _ = exit(&mut vcpu, &mut fake, 1, 0x100d_012c, LD_W);
    assert_eq!(vcpu.context.gprs.get(Gpr::A0), time | 1 << 16);
}

#[test]
fn offsets_that_no_iocsr_device_has_are_counted() {
    let (mut vcpu, mut fake) = (vcpu(), Fake::default());
    for offset in [0x1fff_0000, 0x1300, 0x115e, u64::from(u32::MAX)] {
        vcpu.context.gprs.set(Gpr::A1, offset);
        vcpu.context.gprs.set(Gpr::A0, 1);
        let _ = exit(&mut vcpu, &mut fake, GSPR, 0, IOCSR_READ);
        assert_eq!(vcpu.context.gprs.get(Gpr::A0), 0);
        iocsr_store(&mut vcpu, &mut fake, offset, 1);
    }
    assert_eq!(vcpu.shared().stats.unknown_iocsr.get(), 8);
}

/// Where a guest's accesses go.
fn address() -> impl Strategy<Value = u64> {
    prop_oneof![
        4 => 0x1000_0000u64..0x1000_0400,
        2 => 0x1fe0_01e0u64..0x1fe0_01e8,
        2 => Just(0x2ff0_0000u64),
        1 => 0x2ff0_0000u64..0x2ff0_0008,
        1 => 0x100d_0100u64..0x100d_0200,
        1 => 0x1800_4000u64..0x1801_0000,
        1 => 0x1000_0000u64..0x3000_0000,
    ]
}

/// Likewise in the IOCSR space.
fn offset() -> impl Strategy<Value = u64> {
    prop_oneof![
        1 => 0u64..0x500,
        2 => 0x1000u64..0x1160,
        2 => Just(0x1158u64),
        4 => 0x14a0u64..0x1d00,
        2 => (0u64..32).prop_map(|byte| 0x1800 + byte),
        1 => 0x4000_0000u64..0x4000_0008,
        1 => any::<u64>(),
    ]
}

/// What happens: a load, a store, likewise in the IOCSR space, or a byte
/// from outside.
#[derive(Clone, Debug)]
enum Step {
    Memory(bool, u64, u32, u64),
    Iocsr(bool, u64, u32, u64),
    Input(u8),
}

fn step() -> impl Strategy<Value = Step> {
    // Small values are ids, vectors, single bits.
    let bit = || (0u32..64).prop_map(|bit| 1 << bit);
    let value = || prop_oneof![any::<u64>(), 0u64..256, bit(), Just(u64::MAX)];
    let memory = (any::<bool>(), address(), 0u32..4, value());
    let iocsr = (any::<bool>(), offset(), 0u32..4, value());
    prop_oneof![
        4 => memory.prop_map(|(store, at, width, value)| Step::Memory(store, at, width, value)),
        4 => iocsr.prop_map(|(store, at, width, value)| Step::Iocsr(store, at, width, value)),
        1 => any::<u8>().prop_map(Step::Input),
    ]
}

/// Carries a step out.
fn act(vcpu: &mut Vcpu, fake: &mut Fake, step: &Step) -> Resume {
    match *step {
        Step::Memory(store, at, width, value) => {
            let word = if store { 0x2900_00a4 } else { 0x2800_00a4 } | width << 22;
            vcpu.context.gprs.set(Gpr::A0, value);
            exit(vcpu, fake, if store { 2 } else { 1 }, at, word)
        }
        Step::Iocsr(store, at, width, value) => {
            let word = if store { 0x0648_10a4 } else { 0x0648_00a4 } | width << 10;
            vcpu.context.gprs.set(Gpr::A0, value);
            vcpu.context.gprs.set(Gpr::A1, at);
            exit(vcpu, fake, GSPR, 0, word)
        }
        Step::Input(byte) => {
            assert!(vcpu.vm().receive(byte, fake));
            Resume::Guest
        }
    }
}

proptest! {
    /// Whatever two vCPUs do to their VM's devices, every line that changes
    /// is posted to its vCPU, or applied at once where it is one's own.
    #[test]
    fn every_line_that_changes_is_told(
        steps in proptest::collection::vec((0usize..2, step()), 1..96),
    ) {
        let (first, mut fake) = (vcpu(), Fake::default());
        let vm = first.vm().clone();
        let mut vcpus = [first, Vcpu::new(vm.clone(), 1).unwrap()];
        route(&mut vcpus[0], &mut fake);
        iocsr_store(&mut vcpus[0], &mut fake, 0x14c0, 0x0202_0101);
        for offset in (0x1c00..0x1d00).step_by(8) {
            iocsr_store(&mut vcpus[0], &mut fake, offset, 0);
        }
        for (offset, value) in [(0x20, 0), (0x24, 0), (0x200, 0x0342_4101)] {
            let _ = store(&mut vcpus[0], &mut fake, 0x1000_0000 + offset, value);
        }
        let mut known = [0, 0];
        for (index, step) in steps {
            fake.applied.clear();
            let resume = act(&mut vcpus[index], &mut fake, &step);
            prop_assert!(matches!(resume, Resume::Guest | Resume::Stop));
            let changed = |own, change: &Apply| own | change.estat_mask | change.gintc_mask << 2;
            let own = fake.applied.iter().fold(0, changed);
            for (number, (vcpu, known)) in vm.vcpus().iter().zip(&mut known).enumerate() {
                let levels = vm.levels(vcpu, u64::MAX);
                let told = vcpu.postbox.take().lines() | if number == index { own } else { 0 };
                *known = *known & !told | levels & told;
                prop_assert_eq!(*known, levels, "vCPU {}", number);
            }
        }
    }
}

#[test]
fn widths_are_those_of_the_instruction() {
    let (mut vcpu, mut fake) = (vcpu(), Fake::default());
    let mut load = |width: u32| {
        let _ = exit(
            &mut vcpu,
            &mut fake,
            1,
            0x1000_0000,
            0x2800_00a4 | width << 22,
        );
        vcpu.context.gprs.get(Gpr::A0)
    };
    let id = 0x003f_0001_0700_0000;
    for (number, width) in [Width::Byte, Width::Half, Width::Word, Width::Double]
        .into_iter()
        .enumerate()
    {
        assert_eq!(load(number as u32), width.sign_extend(id));
    }
}
