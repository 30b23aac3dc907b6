//! Posts to a vCPU that enters, sleeps, or moves to another CPU.

use crate::machine::*;
use hv::vcpu::postbox::{Owner, Posts};
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, Ordering::SeqCst, fence};
use loom::thread;

pub fn enter_once(all: &'static [Posts], mistake: Mistake) {
    loom::model(move || {
        let machine = Machine::new(mistake);
        let threads = posters(&machine, all);
        let seen = machine.enter(&Owner::new(0));
        join(threads);
        none_lost(&machine, seen, 0, all);
    });
}

pub const BOTH: [Posts; 2] = [SWI0, IPI];

/// The vCPU exits for another reason, looks without taking the kicks, and
/// enters again; then it exits by a kick.
pub fn exits(mistake: Mistake) {
    loom::model(move || {
        let machine = Machine::new(mistake);
        let threads = posters(&machine, &BOTH);
        let mut seen = machine.enter(&Owner::new(0));
        seen = seen.or(machine.take_any());
        seen = seen.or(machine.look(0));
        join(threads);
        none_lost(&machine, seen, 0, &BOTH);
    });
}

/// As the stub that takes a kick: where SWI0 is all that is posted it takes the
/// kicks and SWI0 alone, and goes on unless there is more by then.
pub fn kick_for_swi0(mistake: Mistake) {
    loom::model(move || {
        let machine = Machine::new(None);
        let mut seen = machine.enter(&Owner::new(0));
        let threads = posters(&machine, &BOTH);
        if machine.postbox.is(SWI0) {
            machine.told[0].swap(0, SeqCst);
            machine.postbox.take_these(SWI0);
            seen = seen.or(SWI0);
            if mistake != LooksOnce {
                seen = seen.or(machine.take_any());
            }
        } else {
            seen = seen.or(machine.look(0));
        }
        join(threads);
        none_lost(&machine, seen, 0, &BOTH);
    });
}

pub fn leave_and_enter_again(mistake: Mistake) {
    loom::model(move || {
        let machine = Machine::new(mistake);
        let threads = posters(&machine, &BOTH);
        let owner = Owner::new(0);
        let mut seen = machine.enter(&owner);
        machine.postbox.leave();
        // Kicks for the first stay are used up by leaving it.
        machine.told[0].swap(0, SeqCst);
        seen = seen.or(machine.enter(&owner));
        join(threads);
        none_lost(&machine, seen, 0, &BOTH);
    });
}

/// What was stored before a post is there once the post is taken, also where
/// another had posted the same before.
pub fn what_a_post_is_about(mistake: Mistake) {
    loom::model(move || {
        let machine = Machine::new(mistake);
        let threads = posters(&machine, &[SWI0, SWI0]);
        let owner = Owner::new(0);
        if machine.enter(&owner).any(SWI0) || machine.look(0).any(SWI0) {
            assert_eq!(machine.message.load(SeqCst), 1);
        }
        join(threads);
    });
}

/// As the stub that sends: who finds SWI0 posted already goes on at once. Of
/// all that it wrote before, whoever takes that post sees everything.
pub fn what_is_posted_already(mistake: Mistake) {
    loom::model(move || {
        let machine = Machine::new(None);
        let _ = machine.postbox.enter(&Owner::new(0));
        machine.post(SWI0);
        let message = Arc::new(AtomicU32::new(0));
        let sender = {
            let (machine, message) = (machine.clone(), message.clone());
            thread::spawn(move || {
                message.store(1, loom::sync::atomic::Ordering::Relaxed);
                if mistake != NoFence {
                    fence(SeqCst);
                }
                if !machine.postbox.any() {
                    machine.post(SWI0);
                }
            })
        };
        let _ = machine.look(0);
        // `amand_db` is a fence, too.
        fence(SeqCst);
        let seen = message.load(loom::sync::atomic::Ordering::Relaxed);
        sender.join().unwrap();
        assert!(seen == 1 || machine.must_look(0), "neither seen nor told");
    });
}

pub fn sleep(mistake: Mistake) {
    loom::model(move || {
        let machine = Machine::new(mistake);
        let threads = posters(&machine, &BOTH);
        let owner = Owner::new(0);
        let sleeps = machine.sleep(&owner, SWI0.or(IPI));
        join(threads);
        if sleeps {
            assert!(machine.must_look(0), "slept over a post");
            assert!(!machine.postbox.asleep());
        }
        let seen = machine.enter(&owner);
        assert!(seen.any(SWI0) && seen.any(IPI));
    });
}

/// The vCPU polls for a while, and then sleeps.
pub fn poll_and_sleep(mistake: Mistake) {
    loom::model(move || {
        let machine = Machine::new(mistake);
        let owner = Owner::new(0);
        let _ = machine.postbox.enter(&owner);
        machine.postbox.leave();
        let threads = posters(&machine, &[SWI0]);
        let polled = machine.postbox.any();
        let sleeps = !polled && machine.sleep(&owner, SWI0);
        join(threads);
        assert!(!sleeps || machine.must_look(0), "slept over a post");
        assert!(machine.enter(&owner).any(SWI0));
    });
}

/// The vCPU goes from the guest to sleep in one step; where it may not, it is
/// outside, and nobody needs to tell it.
pub fn sleep_from_the_guest(mistake: Mistake) {
    loom::model(move || {
        let machine = Machine::new(mistake);
        let owner = Owner::new(0);
        let mut seen = machine.postbox.enter(&owner);
        let threads = posters(&machine, &BOTH);
        seen = seen.or(machine.take_any());
        let sleeps = machine.sleep(&owner, SWI0);
        assert!(!machine.postbox.in_guest());
        join(threads);
        let missed = !seen.any(SWI0) && sleeps;
        assert!(!missed || machine.must_look(0), "slept over a post");
        assert!(!missed || !machine.postbox.asleep());
        seen = seen.or(machine.enter(&owner));
        assert!(seen.any(SWI0) && seen.any(IPI));
    });
}

pub fn masked_post(mistake: Mistake) {
    loom::model(move || {
        let machine = Machine::new(mistake);
        let threads = posters(&machine, &[SWI0]);
        assert!(machine.sleep(&Owner::new(0), IPI));
        join(threads);
        assert!(!machine.must_look(0) && machine.postbox.asleep());
        assert_eq!(machine.postbox.take(), SWI0);
    });
}

/// A masked post doesn't keep a later one from waking the sleeper.
pub fn post_after_a_masked_post(mistake: Mistake) {
    loom::model(move || {
        let machine = Machine::new(mistake);
        let threads = posters(&machine, &BOTH);
        let sleeps = machine.sleep(&Owner::new(0), IPI);
        join(threads);
        assert!(!sleeps || (machine.must_look(0) && !machine.postbox.asleep()));
    });
}

/// The vCPU moves from CPU 0 to CPU 1 while somebody posts, twice.
pub fn move_to_another_cpu(mistake: Mistake) {
    loom::model(move || {
        let machine = Machine::new(mistake);
        let threads = posters(&machine, &BOTH);
        let mut owner = Owner::new(0);
        let mut seen = machine.enter(&owner);
        machine.postbox.leave();
        owner.set_cpu(1);
        seen = seen.or(machine.enter(&owner));
        join(threads);
        // A kick to the CPU that it has left finds nothing there.
        none_lost(&machine, seen, 1, &BOTH);
    });
}

/// The same, asleep: the CPU that it sleeps on now is told.
pub fn move_in_its_sleep(mistake: Mistake) {
    loom::model(move || {
        let machine = Machine::new(mistake);
        let mut owner = Owner::new(0);
        let slept = machine.sleep(&owner, SWI0);
        let threads = posters(&machine, &[SWI0]);
        assert!(slept);
        machine.postbox.leave();
        owner.set_cpu(1);
        let sleeps = machine.sleep(&owner, SWI0);
        join(threads);
        assert!(!sleeps || machine.must_look(1), "slept over a post");
        assert!(machine.enter(&owner).any(SWI0));
    });
}

/// A vCPU is wanted elsewhere, twice: whichever look is the last one sees
/// where, or a kick is under way.
pub fn notes_where_to_move_are_read(mistake: Mistake) {
    loom::model(move || {
        let machine = Machine::new(mistake);
        let wanted = Arc::new(AtomicU32::new(0));
        let mover = |cpu| {
            let (machine, wanted) = (machine.clone(), wanted.clone());
            thread::spawn(move || {
                wanted.store(cpu, SeqCst);
                machine.post(Posts::CONTROL);
            })
        };
        let movers = vec![mover(1), mover(1)];
        let (mut owner, mut home) = (Owner::new(0), 0);
        for _ in 0..2 {
            let looks = machine.enter(&owner).any(Posts::CONTROL);
            if looks && wanted.load(SeqCst) != home {
                machine.postbox.leave();
                home = wanted.load(SeqCst);
                owner.set_cpu(home);
            }
        }
        join(movers);
        assert!(home == 1 || machine.must_look(0), "the note is lost");
    });
}
