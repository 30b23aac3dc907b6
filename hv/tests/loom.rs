//! The post, enter, sleep protocol, under every interleaving.
//!
//! Run with `RUSTFLAGS="--cfg loom" cargo test --release -p hv --test loom`;
//! without that flag the file is empty. The guest is a variable: a post is
//! "seen" when the owner takes it, or when a kick or wake-up that is under
//! way makes it look again.
#![cfg(loom)]

use hv::vcpu::postbox::{Notify, Owner, Postbox, Posts};
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, Ordering::SeqCst};
use loom::thread;

const SWI0: Posts = Posts::interrupts(1);
const IPI: Posts = Posts::interrupts(1 << 12);

/// A machine of one vCPU: its postbox, and the kicks and wake-ups that are
/// under way to each of its two CPUs.
#[derive(Default)]
struct Machine {
    postbox: Postbox,
    told: [AtomicU32; 2],
    /// What a post is about: stored before it, read after it was taken.
    message: AtomicU32,
}

impl Machine {
    fn post(&self, posts: Posts) {
        self.message.store(1, SeqCst);
        match self.postbox.post(posts) {
            Notify::Nothing => {}
            Notify::Kick(cpu) | Notify::Wake(cpu) => {
                self.told[cpu as usize].fetch_add(1, SeqCst);
            }
        }
    }

    /// A kick that is under way to `cpu` ends its stay in the guest at once.
    fn must_look(&self, cpu: usize) -> bool {
        self.told[cpu].load(SeqCst) > 0
    }

    /// CPU `cpu` leaves the guest by the kicks that have come, takes them,
    /// and then what has been posted.
    fn look(&self, cpu: usize) -> Posts {
        self.told[cpu].swap(0, SeqCst);
        if self.postbox.any() {
            self.postbox.take()
        } else {
            Posts::NONE
        }
    }
}

fn posters(machine: &Arc<Machine>, all: &[Posts]) -> Vec<thread::JoinHandle<()>> {
    let start = |&posts: &Posts| {
        let machine = machine.clone();
        thread::spawn(move || machine.post(posts))
    };
    all.iter().map(start).collect()
}

fn join(threads: Vec<thread::JoinHandle<()>>) {
    for thread in threads {
        thread.join().unwrap();
    }
}

/// Each of `all` was taken, or a kick is under way.
fn none_lost(machine: &Machine, seen: Posts, cpu: usize, all: &[Posts]) {
    for &posts in all {
        assert!(
            seen.any(posts) || machine.must_look(cpu),
            "lost in the guest"
        );
    }
}

fn enter_once(all: &'static [Posts]) {
    loom::model(move || {
        let machine = Arc::new(Machine::default());
        let threads = posters(&machine, all);
        let seen = machine.postbox.enter(&Owner::new(0));
        join(threads);
        none_lost(&machine, seen, 0, all);
    });
}

#[test]
fn post_and_post_against_enter() {
    enter_once(&[SWI0, IPI]);
    enter_once(&[SWI0, SWI0]);
}

/// The vCPU exits for another reason, looks without taking the kicks, and
/// enters again; then it exits by a kick.
#[test]
fn post_and_post_against_exits() {
    const ALL: [Posts; 2] = [SWI0, IPI];
    loom::model(|| {
        let machine = Arc::new(Machine::default());
        let threads = posters(&machine, &ALL);
        let mut seen = machine.postbox.enter(&Owner::new(0));
        if machine.postbox.any() {
            seen = seen.or(machine.postbox.take());
        }
        seen = seen.or(machine.look(0));
        join(threads);
        none_lost(&machine, seen, 0, &ALL);
    });
}

#[test]
fn post_and_post_against_leave_and_enter_again() {
    const ALL: [Posts; 2] = [SWI0, IPI];
    loom::model(|| {
        let machine = Arc::new(Machine::default());
        let threads = posters(&machine, &ALL);
        let owner = Owner::new(0);
        let mut seen = machine.postbox.enter(&owner);
        machine.postbox.leave();
        // Kicks for the first stay are used up by leaving it.
        machine.told[0].swap(0, SeqCst);
        seen = seen.or(machine.postbox.enter(&owner));
        join(threads);
        none_lost(&machine, seen, 0, &ALL);
    });
}

/// What was stored before a post is there once the post is taken, also where
/// another had posted the same before.
#[test]
fn what_a_post_is_about_is_seen_with_it() {
    loom::model(|| {
        let machine = Arc::new(Machine::default());
        let threads = posters(&machine, &[SWI0, SWI0]);
        let owner = Owner::new(0);
        if machine.postbox.enter(&owner).any(SWI0) || machine.look(0).any(SWI0) {
            assert_eq!(machine.message.load(SeqCst), 1);
        }
        join(threads);
    });
}

#[test]
fn post_and_post_against_sleep() {
    loom::model(|| {
        let machine = Arc::new(Machine::default());
        let threads = posters(&machine, &[SWI0, IPI]);
        let owner = Owner::new(0);
        let sleeps = machine.postbox.sleep(&owner, SWI0.or(IPI));
        join(threads);
        if sleeps {
            assert!(machine.must_look(0), "slept over a post");
            assert!(!machine.postbox.asleep());
        }
        let seen = machine.postbox.enter(&owner);
        assert!(seen.any(SWI0) && seen.any(IPI));
    });
}

/// The vCPU polls for a while, and then sleeps.
#[test]
fn post_against_poll_and_sleep() {
    loom::model(|| {
        let machine = Arc::new(Machine::default());
        let owner = Owner::new(0);
        let _ = machine.postbox.enter(&owner);
        machine.postbox.leave();
        let threads = posters(&machine, &[SWI0]);
        let polled = machine.postbox.any();
        let sleeps = !polled && machine.postbox.sleep(&owner, SWI0);
        join(threads);
        assert!(!sleeps || machine.must_look(0), "slept over a post");
        assert!(machine.postbox.enter(&owner).any(SWI0));
    });
}

/// The vCPU goes from the guest to sleep in one step; where it may not, it is
/// outside, and nobody needs to tell it.
#[test]
fn post_and_post_against_sleep_from_the_guest() {
    const ALL: [Posts; 2] = [SWI0, IPI];
    loom::model(|| {
        let machine = Arc::new(Machine::default());
        let owner = Owner::new(0);
        let mut seen = machine.postbox.enter(&owner);
        let threads = posters(&machine, &ALL);
        if machine.postbox.any() {
            seen = seen.or(machine.postbox.take());
        }
        let sleeps = machine.postbox.sleep(&owner, SWI0);
        assert!(!machine.postbox.in_guest());
        join(threads);
        let missed = !seen.any(SWI0) && sleeps;
        assert!(!missed || machine.must_look(0), "slept over a post");
        assert!(!missed || !machine.postbox.asleep());
        seen = seen.or(machine.postbox.enter(&owner));
        assert!(seen.any(SWI0) && seen.any(IPI));
    });
}

#[test]
fn masked_post_against_sleep_leaves_it_asleep() {
    loom::model(|| {
        let machine = Arc::new(Machine::default());
        let threads = posters(&machine, &[SWI0]);
        assert!(machine.postbox.sleep(&Owner::new(0), IPI));
        join(threads);
        assert!(!machine.must_look(0) && machine.postbox.asleep());
        assert_eq!(machine.postbox.take(), SWI0);
    });
}

/// A masked post doesn't keep a later one from waking the sleeper.
#[test]
fn post_after_a_masked_post_against_sleep() {
    loom::model(|| {
        let machine = Arc::new(Machine::default());
        let threads = posters(&machine, &[SWI0, IPI]);
        let sleeps = machine.postbox.sleep(&Owner::new(0), IPI);
        join(threads);
        assert!(!sleeps || (machine.must_look(0) && !machine.postbox.asleep()));
    });
}

/// The vCPU moves from CPU 0 to CPU 1 while somebody posts, twice.
#[test]
fn post_and_post_against_a_move_to_another_cpu() {
    const ALL: [Posts; 2] = [SWI0, IPI];
    loom::model(|| {
        let machine = Arc::new(Machine::default());
        let threads = posters(&machine, &ALL);
        let mut owner = Owner::new(0);
        let mut seen = machine.postbox.enter(&owner);
        machine.postbox.leave();
        owner.set_cpu(1);
        seen = seen.or(machine.postbox.enter(&owner));
        join(threads);
        // A kick to the CPU that it has left finds nothing there.
        none_lost(&machine, seen, 1, &ALL);
    });
}

/// The same, asleep: the CPU that it sleeps on now is told.
#[test]
fn post_against_a_move_in_its_sleep() {
    loom::model(|| {
        let machine = Arc::new(Machine::default());
        let mut owner = Owner::new(0);
        let slept = machine.postbox.sleep(&owner, SWI0);
        let threads = posters(&machine, &[SWI0]);
        assert!(slept);
        machine.postbox.leave();
        owner.set_cpu(1);
        let sleeps = machine.postbox.sleep(&owner, SWI0);
        join(threads);
        assert!(!sleeps || machine.must_look(1), "slept over a post");
        assert!(machine.postbox.enter(&owner).any(SWI0));
    });
}

/// Once [`Postbox::flushed`] says so, no guest instruction runs on an old
/// entry: `stale` is set while one could, by an owner that enters twice.
#[test]
fn a_flush_is_done_before_the_guest_goes_on() {
    loom::model(|| {
        let machine = Arc::new(Machine::default());
        let changed = Arc::new(AtomicU32::new(0));
        let runner = {
            let (machine, changed) = (machine.clone(), changed.clone());
            thread::spawn(move || {
                let owner = Owner::new(0);
                // The TLB's entry is as old as the last flush.
                let mut entry = changed.load(SeqCst);
                for _ in 0..2 {
                    if machine.postbox.enter(&owner).any(Posts::FLUSH) {
                        entry = changed.load(SeqCst);
                    }
                    // The guest uses the entry; a kick ends its stay.
                    if entry == 0 {
                        assert_ne!(changed.load(SeqCst), 2, "used after it was gone");
                    }
                    machine.postbox.leave();
                }
            })
        };
        changed.store(1, SeqCst);
        machine.post(Posts::FLUSH);
        if machine.postbox.flushed() {
            // From here on the page may be used for something else.
            changed.store(2, SeqCst);
        }
        runner.join().unwrap();
    });
}
