//! Every target gets its IPI, by as few calls as Linux makes, for any ids.

use crate::model::{Lines, Model, cpus};
use guest_pv::abi::cpucfg::PvFeatures;
use guest_pv::cpu::Cpu;
use guest_pv::cpu_set::CpuSet;
use guest_pv::ipi::{Action, Actions, Ipi, NoSuchCpu};
use proptest::prelude::*;
use std::collections::BTreeSet;

/// Ids of CPUs in the order of the kernel's list: dense, far apart, falling,
/// in groups, or any.
fn ids() -> impl Strategy<Value = Vec<u32>> {
    let dense =
        (0..900_u32, 1..124_u32).prop_map(|(first, count)| (first..first + count).collect());
    let sparse = (1..140_u32, 2..60_u32).prop_map(|(step, count)| {
        let ids = (0..count).map(|index| index * step);
        ids.filter(|&id| id < 1024).collect()
    });
    let groups = prop::collection::btree_set(0..64_u32, 1..20).prop_map(|groups| {
        groups
            .iter()
            .flat_map(|group| [group * 16, group * 16 + 1])
            .collect()
    });
    let any = prop::collection::btree_set(0..1024_u32, 1..200)
        .prop_map(|set| set.into_iter().collect::<Vec<_>>());
    let rising = prop_oneof![dense, sparse, groups, any];
    (rising, 0..3).prop_flat_map(|(mut ids, order)| {
        if order == 1 {
            ids.reverse();
        }
        let given = Just(ids.clone());
        if order == 2 {
            Just(ids).prop_shuffle().boxed()
        } else {
            given.boxed()
        }
    })
}

fn action() -> impl Strategy<Value = Action> {
    (1..32_u32).prop_map(|number| Action::new(number).unwrap())
}

/// A set of the CPUs below `count`, of any density.
fn mask(count: usize) -> impl Strategy<Value = CpuSet> {
    (0.0..=1.0_f64).prop_flat_map(move |density| {
        prop::collection::vec(prop::bool::weighted(density), count).prop_map(|picks| {
            let mut set = CpuSet::EMPTY;
            let picked = picks.iter().enumerate().filter(|(_, pick)| **pick);
            picked.for_each(|(cpu, _)| set.insert(cpu).unwrap());
            set
        })
    })
}

fn ids_and_mask() -> impl Strategy<Value = (Vec<u32>, CpuSet)> {
    ids().prop_flat_map(|ids| {
        let count = ids.len();
        (Just(ids), mask(count))
    })
}

/// The calls that Linux makes for targets in this order: sets of ids, each
/// with those that follow as long as all lie within 128.
fn expected_calls(targets: &[u32]) -> Vec<BTreeSet<u64>> {
    let mut calls: Vec<BTreeSet<u64>> = Vec::new();
    for &id in targets {
        let wider = calls.last().map(|call| {
            let mut call = call.clone();
            call.insert(id.into());
            call
        });
        match wider {
            Some(call) if call.last().unwrap() - call.first().unwrap() < 128 => {
                *calls.last_mut().unwrap() = call;
            }
            _ => calls.push([id.into()].into()),
        }
    }
    calls
}

/// The ids of a call's set.
fn members(&(set, base): &(u128, u64)) -> BTreeSet<u64> {
    let bits = (0..128).filter(|bit| set >> bit & 1 == 1);
    bits.map(|bit| base + bit).collect()
}

fn targets(ids: &[u32], mask: &CpuSet) -> Vec<u32> {
    mask.iter().map(|cpu| ids[cpu]).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn every_target_gets_exactly_its_ipi((ids, mask) in ids_and_mask(), action in action()) {
        let (model, list) = (Model::new(&ids), cpus(&ids));
        let ipi = Ipi::detect(&model, &list);
        ipi.send_ipi_mask(&mask, action).unwrap();
        for (cpu, &id) in ids.iter().enumerate() {
            let raised = mask.contains(cpu);
            let want = Lines { swi0: raised, vectors: 0, raised: raised.into() };
            prop_assert_eq!(model.lines(id), want, "id {}", id);
        }
        for (cpu, &id) in ids.iter().enumerate() {
            model.current.set(id.into());
            let got: Vec<Action> = ipi.handle_swi0(cpu).into_iter().collect();
            let want: Vec<Action> = mask.contains(cpu).then_some(action).into_iter().collect();
            prop_assert_eq!(got, want);
            prop_assert!(!model.lines(id).swi0);
        }
    }

    #[test]
    fn calls_are_as_few_as_linux_makes((ids, mask) in ids_and_mask(), action in action()) {
        let (model, list) = (Model::new(&ids), cpus(&ids));
        Ipi::detect(&model, &list).send_ipi_mask(&mask, action).unwrap();
        let calls = model.ipi_calls();
        prop_assert!(calls.iter().all(|&(set, _)| set & 1 == 1), "bases are the smallest ids");
        let made: Vec<_> = calls.iter().map(members).collect();
        prop_assert_eq!(made, expected_calls(&targets(&ids, &mask)));
    }

    #[test]
    fn who_has_one_pending_costs_nothing(
        (ids, first) in ids_and_mask(),
        seed in any::<prop::sample::Index>(),
        (one, two) in (action(), action()),
    ) {
        let (model, list) = (Model::new(&ids), cpus(&ids));
        let ipi = Ipi::detect(&model, &list);
        ipi.send_ipi_mask(&first, one).unwrap();
        model.events.take();
        ipi.send_ipi_mask(&first, two).unwrap();
        prop_assert!(model.events.take().is_empty());
        // A wider set: only those that are new are called for.
        let all = CpuSet::first(ids.len());
        ipi.send_ipi_mask(&all, two).unwrap();
        let made: Vec<_> = model.ipi_calls().iter().map(members).collect();
        prop_assert_eq!(made, expected_calls(&targets(&ids, &(all - first))));
        let cpu = seed.index(ids.len());
        model.current.set(ids[cpu].into());
        let both = if first.contains(cpu) { 1 << one.number() } else { 0 };
        let want = Actions::from_bits(both | 1 << two.number());
        prop_assert_eq!(ipi.handle_swi0(cpu), want);
        prop_assert_eq!(model.lines(ids[cpu]).raised, 1);
    }

    /// Sends and handlers in any order: what is wanted of a CPU is what was
    /// sent since it last looked, and SWI0 is pending exactly while there is
    /// something.
    #[test]
    fn nothing_is_lost_or_invented_in_any_order(
        ids in ids(),
        steps in prop::collection::vec((0..3, any::<prop::sample::Index>(), action(), any::<u64>()), 1..60),
    ) {
        let (model, list) = (Model::new(&ids), cpus(&ids));
        let ipi = Ipi::detect(&model, &list);
        let mut wanted = vec![0_u32; ids.len()];
        for (kind, pick, action, seed) in steps {
            let cpu = pick.index(ids.len());
            match kind {
                0 => {
                    ipi.send_ipi_single(cpu, action).unwrap();
                    wanted[cpu] |= 1 << action.number();
                }
                1 => {
                    let mut mask = CpuSet::EMPTY;
                    let some = (0..ids.len()).filter(|cpu| seed >> (cpu % 64) & 1 == 1);
                    some.for_each(|cpu| {
                        mask.insert(cpu).unwrap();
                        wanted[cpu] |= 1 << action.number();
                    });
                    ipi.send_ipi_mask(&mask, action).unwrap();
                }
                _ => {
                    model.current.set(ids[cpu].into());
                    prop_assert_eq!(ipi.handle_swi0(cpu).bits(), std::mem::take(&mut wanted[cpu]));
                }
            }
            for (cpu, &id) in ids.iter().enumerate() {
                prop_assert_eq!(list[cpu].wanted().bits(), wanted[cpu]);
                prop_assert_eq!(model.lines(id).swi0, wanted[cpu] != 0);
            }
        }
    }

    #[test]
    fn native_ipis_do_the_same((ids, mask) in ids_and_mask(), action in (0..32_u32)) {
        let action = Action::new(action).unwrap();
        let (model, list) = (Model::new(&ids), cpus(&ids));
        let ipi = Ipi::new(&model, PvFeatures::empty(), &list);
        ipi.send_ipi_mask(&mask, action).unwrap();
        prop_assert!(model.ipi_calls().is_empty());
        for (cpu, &id) in ids.iter().enumerate() {
            prop_assert!(list[cpu].wanted().is_empty() && !model.lines(id).swi0);
            model.current.set(id.into());
            let got = ipi.handle_ipi(cpu);
            let want = u32::from(mask.contains(cpu)) << action.number();
            prop_assert_eq!((got.bits(), model.lines(id).vectors), (want, 0));
        }
    }

    /// A hypervisor that no longer does what it offered.
    #[test]
    fn refused_calls_go_out_natively((ids, mask) in ids_and_mask(), action in action()) {
        let (model, list) = (Model::new(&ids), cpus(&ids));
        let ipi = Ipi::detect(&model, &list);
        model.carries_out.set(PvFeatures::empty());
        for _ in 0..2 {
            ipi.send_ipi_mask(&mask, action).unwrap();
            for (cpu, &id) in ids.iter().enumerate() {
                model.current.set(id.into());
                let want = u32::from(mask.contains(cpu)) << action.number();
                prop_assert_eq!(ipi.handle_ipi(cpu).bits(), want);
                prop_assert!(list[cpu].wanted().is_empty());
            }
        }
    }
}

#[test]
fn the_boot_action_is_native_even_in_a_mask() {
    let ids = [0, 9];
    let (model, list) = (Model::new(&ids), cpus(&ids));
    let ipi = Ipi::detect(&model, &list);
    ipi.send_ipi_mask(&CpuSet::first(2), Action::BOOT).unwrap();
    assert!(model.ipi_calls().is_empty());
    assert!(ids.iter().all(|&id| model.lines(id).vectors == 1));
    assert!(list.iter().all(|cpu| cpu.wanted().is_empty()));
}

#[test]
fn the_others_get_theirs_where_one_is_not_there() {
    let ids = [5, 6, 7];
    let (model, mut list) = (Model::new(&ids), cpus(&ids));
    list[1] = Cpu::new();
    let ipi = Ipi::detect(&model, &list);
    let result = ipi.send_ipi_mask(&CpuSet::first(5), Action::new(1).unwrap());
    assert_eq!(result, Err(NoSuchCpu(1)));
    assert_eq!(model.ipi_calls(), [(0b101, 5)]);
}

#[test]
fn all_1024_cpus_take_eight_calls() {
    let ids: Vec<u32> = (0..1024).collect();
    let (model, list) = (Model::new(&ids), cpus(&ids));
    let ipi = Ipi::detect(&model, &list);
    let action = Action::new(31).unwrap();
    ipi.send_ipi_mask(&CpuSet::first(1024), action).unwrap();
    let expected: Vec<(u128, u64)> = (0..8).map(|call| (u128::MAX, 128 * call)).collect();
    assert_eq!(model.ipi_calls(), expected);
    for (cpu, &id) in ids.iter().enumerate() {
        model.current.set(id.into());
        assert!(ipi.handle_swi0(cpu).into_iter().eq([action]));
    }
}

#[test]
fn no_target_is_no_call() {
    let (model, list) = (Model::new(&[0]), cpus(&[0]));
    let ipi = Ipi::detect(&model, &list);
    ipi.send_ipi_mask(&CpuSet::EMPTY, Action::new(1).unwrap())
        .unwrap();
    assert!(model.ipi_calls().is_empty());
}
