//! The scheduler against rules, and against loads that try to break them.

use super::*;
use proptest::prelude::*;

const SLICE: u64 = 80;
const BURST: u64 = SLICE / BURSTS;

fn with(count: usize) -> Scheduler {
    let mut scheduler = Scheduler::new(SLICE, 0);
    (0..count).for_each(|slot| scheduler.admit(slot, None));
    scheduler
}

/// The vCPU that has the CPU gives it back at `now`, and can go on; the next.
fn turn(scheduler: &mut Scheduler, now: u64) -> Option<Slot> {
    if scheduler.turn.state == State::Runs {
        scheduler.ready();
    }
    scheduler.wake(now, |_, late| late);
    scheduler.pick(now)
}

#[test]
fn ready_ones_take_turns() {
    let mut scheduler = with(3);
    let order: Vec<_> = (0..7)
        .map(|round| turn(&mut scheduler, SLICE * round).unwrap())
        .collect();
    assert_eq!(order, [0, 1, 2, 0, 1, 2, 0]);
}

#[test]
fn a_new_one_may_begin_later() {
    let mut scheduler = with(0);
    scheduler.admit(0, Some(10));
    assert_eq!(
        (scheduler.pick(5), scheduler.next_event()),
        (None, Some(10))
    );
    scheduler.wake(10, |_, late| late);
    assert_eq!(scheduler.pick(10), Some(0));
}

#[test]
fn one_alone_needs_no_timer() {
    let mut scheduler = with(1);
    assert_eq!(scheduler.pick(5), Some(0));
    assert!(scheduler.alone());
    assert_eq!(scheduler.next_event(), None);
    scheduler.sleep(None);
    scheduler.wake(5, |_, late| late);
    assert_eq!((scheduler.pick(5), scheduler.next_event()), (None, None));
}

#[test]
fn slices_and_deadlines_whichever_comes_first() {
    let mut scheduler = with(3);
    scheduler.pick(1000);
    assert_eq!(scheduler.next_event(), Some(1000 + SLICE));
    scheduler.sleep(Some(1050));
    scheduler.wake(1001, |_, late| late);
    assert_eq!(scheduler.pick(1001), Some(1));
    assert_eq!(scheduler.next_event(), Some(1050));
    scheduler.sleep(Some(2000));
    scheduler.wake(1002, |_, late| late);
    assert_eq!(scheduler.pick(1002), Some(2));
    assert_eq!(scheduler.next_event(), Some(1050));
    assert!(!scheduler.alone());
}

#[test]
fn one_that_wakes_goes_in_front_and_the_other_gets_the_rest() {
    let mut scheduler = with(3);
    scheduler.pick(0);
    scheduler.sleep(Some(100));
    scheduler.wake(1, |_, late| late);
    assert_eq!(scheduler.pick(1), Some(1));
    // Half of its slice.
    assert_eq!(turn(&mut scheduler, 1 + SLICE), Some(2));
    assert_eq!(scheduler.next_event(), Some(100));
    assert_eq!(turn(&mut scheduler, 100), Some(0));
    assert_eq!(scheduler.next_event(), Some(100 + BURST));
    // It uses all of its burst, and waits for its turn.
    let now = 100 + BURST;
    assert_eq!(turn(&mut scheduler, now), Some(2));
    let rest = SLICE - (100 - 1 - SLICE);
    assert_eq!(scheduler.next_event(), Some(now + rest));
    assert_eq!(turn(&mut scheduler, now + rest), Some(1));
    assert_eq!(turn(&mut scheduler, now + rest + SLICE), Some(0));
}

#[test]
fn an_interrupt_that_wakes_nobody_changes_nothing() {
    let mut scheduler = with(2);
    scheduler.pick(0);
    for now in 1..SLICE {
        assert_eq!(turn(&mut scheduler, now), Some(0));
        assert_eq!(scheduler.next_event(), Some(SLICE));
    }
    assert_eq!(turn(&mut scheduler, SLICE), Some(1));
}

#[test]
fn one_that_wakes_all_the_time_takes_turns_when_it_has_had_its_share() {
    let mut scheduler = with(2);
    scheduler.pick(0);
    scheduler.sleep(Some(0));
    let (mut now, mut in_front) = (0, 0);
    loop {
        scheduler.wake(now, |_, late| late);
        if scheduler.pick(now) != Some(0) {
            break;
        }
        (now, in_front) = (now + 1, in_front + 1);
        scheduler.sleep(Some(now));
    }
    // What it has run since is unpaid for two ticks each, and one passed.
    assert_eq!(in_front, 2 * BURST + 1);
    assert_eq!(scheduler.next_event(), Some(now + SLICE));
}

#[test]
fn who_leaves_is_forgotten() {
    let mut scheduler = with(2);
    scheduler.pick(0);
    scheduler.leave();
    assert!(scheduler.alone());
    scheduler.wake(1, |_, _| true);
    assert_eq!(scheduler.pick(1), Some(1));
    scheduler.leave();
    scheduler.admit(0, None);
    assert!(scheduler.alone());
    assert_eq!(scheduler.pick(2), Some(0));
}

#[test]
fn nothing_allocates_after_admission() {
    let mut scheduler = with(128);
    let room = |of: &Scheduler| {
        let queues = (of.woken.capacity(), of.ready.capacity());
        (queues, of.sleepers.capacity(), of.accounts.capacity())
    };
    let before = room(&scheduler);
    for round in 0..3 * 128 {
        // All sleep; all wake, into one queue or the other; all have a turn.
        while scheduler.pick(round).is_some() {
            scheduler.sleep(Some(round));
            scheduler.wake(round, |_, _| false);
        }
        scheduler.wake(round, |_, late| late);
        for _ in 0..128 {
            scheduler.pick(round * SLICE);
            scheduler.ready();
        }
        assert_eq!(scheduler.ready.len() + scheduler.woken.len(), 127);
    }
    assert_eq!(before, room(&scheduler));
}

/// What a vCPU does over and over: run, then sleep, by its timer or until it
/// is posted to. One that doesn't rest never sleeps.
#[derive(Clone, Copy, Debug)]
struct Load {
    run: u64,
    rest: u64,
    timer: bool,
}

impl Load {
    /// Whether it asks for no more than its share of a CPU with `count`.
    fn light(&self, count: usize) -> bool {
        self.run <= BURST && self.run * (count as u64) <= self.run + self.rest
    }
}

/// A vCPU under its load.
#[derive(Clone, Copy, Debug)]
struct Played {
    load: Load,
    /// Left to run until it sleeps.
    work: u64,
    /// Asleep: when it wakes.
    wakes: Option<u64>,
    /// Since when it waits for the CPU.
    waits: u64,
    /// Whether it has slept.
    slept: bool,
    longest: u64,
    longest_awoken: u64,
    ran: u64,
}

/// Lets `loads` share a CPU for `span` ticks.
fn play(loads: &[Load], span: u64) -> (Scheduler, Vec<Played>) {
    let mut scheduler = with(loads.len());
    let new = |&load: &Load| Played {
        load,
        work: load.run,
        wakes: None,
        waits: 0,
        slept: false,
        longest: 0,
        longest_awoken: 0,
        ran: 0,
    };
    let mut played: Vec<Played> = loads.iter().map(new).collect();
    let mut now = 0;
    while now < span {
        scheduler.wake(now, |slot, late| {
            let vcpu = &mut played[slot];
            let wakes = late || vcpu.wakes.is_some_and(|at| !vcpu.load.timer && at <= now);
            if wakes {
                (vcpu.waits, vcpu.wakes) = (now, None);
            }
            wakes
        });
        let next = played.iter().filter_map(|vcpu| vcpu.wakes).min();
        let Some(slot) = scheduler.pick(now) else {
            now = next.expect("nobody is ready though none sleeps");
            continue;
        };
        let until = next.into_iter().chain(scheduler.next_event()).min();
        now = run(&mut scheduler, &mut played[slot], now, until);
    }
    (scheduler, played)
}

/// Lets a vCPU run from `now` until its work is done or `until`; until when
/// it did.
fn run(scheduler: &mut Scheduler, vcpu: &mut Played, now: u64, until: Option<u64>) -> u64 {
    let waited = now - vcpu.waits;
    vcpu.longest = vcpu.longest.max(waited);
    if vcpu.slept {
        vcpu.longest_awoken = vcpu.longest_awoken.max(waited);
    }
    let end = until.map_or(now + vcpu.work, |until| until.min(now + vcpu.work));
    assert!(end > now, "no progress");
    vcpu.ran += end - now;
    vcpu.work -= end - now;
    vcpu.waits = end;
    if vcpu.work == 0 {
        vcpu.work = vcpu.load.run;
        if vcpu.load.rest > 0 {
            let at = end + vcpu.load.rest;
            (vcpu.wakes, vcpu.slept) = (Some(at), true);
            scheduler.sleep(vcpu.load.timer.then_some(at));
            return end;
        }
    }
    scheduler.ready();
    end
}

fn any_load() -> impl Strategy<Value = Load> {
    let run = prop_oneof![1..3u64, 1..BURST + 2, 1..3 * SLICE];
    let rest = prop_oneof![Just(0), 1..3u64, 1..BURST, 1..3 * SLICE];
    (run, rest, any::<bool>()).prop_map(|(run, rest, timer)| Load { run, rest, timer })
}

const SPAN: u64 = 400 * SLICE;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn nobody_waits_longer_than_is_said(loads in prop::collection::vec(any_load(), 1..7)) {
        let (scheduler, played) = play(&loads, SPAN);
        for vcpu in &played {
            // Who waits still has waited too.
            let now = if vcpu.wakes.is_none() { SPAN - vcpu.waits.min(SPAN) } else { 0 };
            prop_assert!(vcpu.longest.max(now) <= scheduler.longest_wait(), "{vcpu:?}");
        }
    }

    #[test]
    fn who_asks_for_little_waits_for_bursts_alone(
        loads in prop::collection::vec(any_load(), 1..7),
    ) {
        let (_, played) = play(&loads, SPAN);
        let others = loads.len() as u64 - 1;
        for vcpu in played.iter().filter(|vcpu| vcpu.load.light(loads.len())) {
            prop_assert!(vcpu.longest_awoken <= others * BURST, "{vcpu:?}");
        }
    }

    #[test]
    fn who_never_sleeps_gets_its_share(loads in prop::collection::vec(any_load(), 1..7)) {
        let (scheduler, played) = play(&loads, SPAN);
        let share = SPAN / loads.len() as u64;
        for vcpu in played.iter().filter(|vcpu| vcpu.load.rest == 0) {
            prop_assert!(vcpu.ran + scheduler.longest_wait() >= share, "{vcpu:?}");
        }
    }

    #[test]
    fn the_cpu_is_never_idle_while_one_can_run(
        loads in prop::collection::vec(any_load(), 1..7),
    ) {
        let (_, played) = play(&loads, SPAN);
        if loads.iter().any(|load| load.rest == 0) {
            let ran: u64 = played.iter().map(|vcpu| vcpu.ran).sum();
            prop_assert!(ran >= SPAN);
        }
    }
}
