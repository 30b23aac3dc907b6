//! Detection, calls and the start of a CPU, against the model.

use crate::model::{Event, Model, cpus};
use guest_pv::abi::cpucfg::PvFeatures;
use guest_pv::abi::hypercall::CallError;
use guest_pv::abi::iocsr::{self, Features, SEND_BLOCKING, ipi_send, mail_send};
use guest_pv::abi::vendor::ExitReason;
use guest_pv::ipi::{Action, Actions, Ipi, NoSuchCpu};
use guest_pv::steal::StealRecord;
use guest_pv::{call, detect};

#[test]
fn the_hypervisor_s_words_are_not_touched_on_silicon() {
    let mut silicon = Model::new(&[0]);
    silicon.platform = Features::all() - Features::VM;
    assert_eq!(detect::features(&silicon), PvFeatures::empty());
    assert!(silicon.events.borrow().is_empty());
}

#[test]
fn another_hypervisor_offers_nothing() {
    let mut other = Model::new(&[0]);
    other.signature = 0;
    assert_eq!(detect::features(&other), PvFeatures::empty());
    assert_eq!(*other.events.borrow(), [Event::Cpucfg(0x4000_0000)]);
}

#[test]
fn what_is_offered_is_found_and_bits_nobody_knows_are_not() {
    let mut kvm = Model::new(&[0]);
    let offered = PvFeatures::IPI | PvFeatures::STEAL_TIME;
    kvm.features = PvFeatures::from_bits_retain(offered.bits() | 1 << 30 | 1);
    assert_eq!(detect::features(&kvm), offered);
    assert_eq!(
        *kvm.events.borrow(),
        [Event::Cpucfg(0x4000_0000), Event::Cpucfg(0x4000_0004)]
    );
}

#[test]
fn ipis_are_paravirtual_where_the_feature_is_offered() {
    let list = cpus(&[0]);
    let mut model = Model::new(&[0]);
    assert!(Ipi::detect(&model, &list).is_paravirtual());
    model.features = PvFeatures::STEAL_TIME;
    assert!(!Ipi::detect(&model, &list).is_paravirtual());
}

#[test]
fn a_cpu_starts_natively_high_half_first() {
    let list = cpus(&[0, 700]);
    let model = Model::new(&[0, 700]);
    for features in [PvFeatures::IPI, PvFeatures::empty()] {
        let ipi = Ipi::new(&model, features, &list);
        // SAFETY: a model runs no code.
        unsafe { ipi.boot(1, 0x1234_5678_9abc_def0) }.unwrap();
        let blocking = u64::from(SEND_BLOCKING);
        let mail = |half, data| {
            let value = mail_send(700, half, data) | blocking;
            Event::Write64(iocsr::MAIL_SEND, value)
        };
        let start = Event::Write32(iocsr::IPI_SEND, ipi_send(700, 0) | SEND_BLOCKING);
        assert_eq!(
            model.events.take(),
            [mail(1, 0x1234_5678), mail(0, 0x9abc_def0), start]
        );
        // SAFETY: as above.
        assert_eq!(unsafe { ipi.boot(2, 0) }, Err(NoSuchCpu(2)));
        assert!(list[1].wanted().is_empty());
    }
    model.current.set(700);
    let ipi = Ipi::new(&model, PvFeatures::IPI, &list);
    assert_eq!(ipi.handle_ipi(1), Actions::from_bits(1));
    assert_eq!(ipi.handle_ipi(1), Actions::NONE);
}

#[test]
fn a_cpu_lets_all_vectors_through() {
    let model = Model::new(&[0]);
    Ipi::new(&model, PvFeatures::IPI, &[]).enable();
    let write = Event::Write32(iocsr::IPI_ENABLE, u32::MAX);
    assert_eq!(*model.events.borrow(), [write]);
}

#[test]
fn a_steal_record_is_registered_by_a_valid_aligned_address() {
    static RECORD: StealRecord = StealRecord::new();
    let model = Model::new(&[0]);
    // SAFETY: a model writes nothing.
    let register = |at| unsafe { RECORD.register(&model, at) };
    assert_eq!(register(0x9000_0040), Err(CallError::InvalidCode));
    model.carries_out.set(PvFeatures::STEAL_TIME);
    assert_eq!(register(0x9000_0040), Ok(()));
    assert_eq!(call::forget_steal_time(&model), Ok(()));
    let made = model.events.take();
    assert_eq!(
        made[1..],
        [
            Event::Call(2, [4, 0x9000_0041, 0]),
            Event::Call(2, [4, 0, 0])
        ]
    );
    for bit in 0..6 {
        let at = 0x9000_0000 | 1 << bit;
        assert_eq!(register(at), Err(CallError::InvalidParameter));
    }
    assert!(model.events.borrow().is_empty());
}

#[test]
fn loongvisor_s_own_calls_have_types() {
    let model = Model::new(&[0]);
    assert!(call::is_loongvisor(&model));
    let other = call::exit_count(&model, ExitReason::Other);
    assert_eq!(other, Ok(1000 + ExitReason::Other as u64));
    assert_eq!(call::null(&model), Err(CallError::InvalidCode));
    assert_eq!(call::call_count(&model, 3), Err(CallError::InvalidCode));
    assert_eq!(call::stolen(&model), Ok(7_000));
    call::stop(&model, 7);
    assert_eq!(
        model.events.borrow().last(),
        Some(&Event::Call(0x4004, [7, 0, 0]))
    );
}

#[test]
fn nobody_is_sent_what_nobody_is_there_for() {
    let list = cpus(&[3]);
    let model = Model::new(&[3]);
    let ipi = Ipi::detect(&model, &list);
    let action = Action::new(1).unwrap();
    model.events.take();
    assert_eq!(ipi.send_ipi_single(1, action), Err(NoSuchCpu(1)));
    assert!(model.events.borrow().is_empty());
    assert_eq!(ipi.handle_swi0(99), Actions::NONE);
}
