//! The post, enter, sleep protocol, under every interleaving.
//!
//! Run with `RUSTFLAGS="--cfg loom" cargo test --release -p hv --test loom`;
//! without that flag the file is empty. The guest is a variable: a post is
//! "seen" when the owner takes it at an entry, or when a kick or wake-up
//! makes it look again.
#![cfg(loom)]

use hv::vcpu::postbox::{Notify, Owner, Postbox, Posts};
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, Ordering::SeqCst};
use loom::thread;

const SWI0: Posts = Posts::interrupts(1);
const IPI: Posts = Posts::interrupts(1 << 12);

/// A machine of one vCPU: its postbox, and the kicks and wake-ups that are
/// under way to its CPU.
#[derive(Default)]
struct Cpu {
    postbox: Postbox,
    told: AtomicU32,
}

impl Cpu {
    fn post(&self, posts: Posts) {
        if self.postbox.post(posts) != Notify::Nothing {
            self.told.fetch_add(1, SeqCst);
        }
    }

    /// A kick that is under way ends the stay in the guest at once.
    fn must_look(&self) -> bool {
        self.told.load(SeqCst) > 0
    }
}

/// Publishes "in guest" and takes what there is, as the run loop does.
fn enter(postbox: &Postbox, owner: &mut Owner) -> Posts {
    if postbox.enter(owner) {
        postbox.take()
    } else {
        Posts::NONE
    }
}

fn posters(cpu: &Arc<Cpu>, all: &[Posts]) -> Vec<thread::JoinHandle<()>> {
    let start = |&posts: &Posts| {
        let cpu = cpu.clone();
        thread::spawn(move || cpu.post(posts))
    };
    all.iter().map(start).collect()
}

fn join(threads: Vec<thread::JoinHandle<()>>) {
    for thread in threads {
        thread.join().unwrap();
    }
}

/// Enters once; after all posts each one was taken, or a kick is under way.
fn enter_once(all: &'static [Posts]) {
    loom::model(move || {
        let cpu = Arc::new(Cpu::default());
        let threads = posters(&cpu, all);
        let mut owner = Owner::new(0);
        let seen = enter(&cpu.postbox, &mut owner);
        join(threads);
        for &posts in all {
            assert!(seen.any(posts) || cpu.must_look(), "lost in the guest");
        }
    });
}

#[test]
fn post_and_post_against_enter() {
    enter_once(&[SWI0, IPI]);
    enter_once(&[SWI0, SWI0]);
}

#[test]
fn post_against_leave_and_enter_again() {
    // Without a bound this one model takes five minutes.
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(4);
    model.check(|| {
        let cpu = Arc::new(Cpu::default());
        let threads = posters(&cpu, &[SWI0, IPI]);
        let mut owner = Owner::new(0);
        let mut seen = enter(&cpu.postbox, &mut owner);
        cpu.postbox.leave(&owner);
        // The kick for the first stay is used up by leaving it.
        let used = cpu.told.swap(0, SeqCst);
        assert!(used <= 1, "one stay was kicked twice");
        seen = seen.or(enter(&cpu.postbox, &mut owner));
        join(threads);
        assert!((seen.any(SWI0) && seen.any(IPI)) || cpu.must_look());
    });
}

#[test]
fn post_and_post_against_sleep() {
    loom::model(|| {
        let cpu = Arc::new(Cpu::default());
        let threads = posters(&cpu, &[SWI0, IPI]);
        let owner = Owner::new(0);
        let sleeps = cpu.postbox.sleep(&owner, SWI0.or(IPI));
        join(threads);
        if sleeps {
            assert!(cpu.must_look(), "slept over a post");
            assert!(!cpu.postbox.asleep());
        }
        assert!(cpu.postbox.take().any(SWI0.or(IPI)));
    });
}

#[test]
fn masked_post_against_sleep_leaves_it_asleep() {
    loom::model(|| {
        let cpu = Arc::new(Cpu::default());
        let threads = posters(&cpu, &[SWI0]);
        let owner = Owner::new(0);
        assert!(cpu.postbox.sleep(&owner, IPI));
        join(threads);
        assert!(!cpu.must_look() && cpu.postbox.asleep());
        assert_eq!(cpu.postbox.take(), SWI0);
    });
}

#[test]
fn post_against_a_move_to_another_cpu() {
    loom::model(|| {
        let postbox = Arc::new(Postbox::new());
        let poster = {
            let postbox = postbox.clone();
            thread::spawn(move || postbox.post(SWI0))
        };
        let mut owner = Owner::new(1);
        let mut seen = enter(&postbox, &mut owner);
        postbox.leave(&owner);
        owner.set_cpu(2);
        seen = seen.or(enter(&postbox, &mut owner));
        match poster.join().unwrap() {
            Notify::Kick(2) => {}
            // A kick to the CPU it left, or none: then it was seen here.
            Notify::Kick(1) | Notify::Nothing => assert!(seen.any(SWI0)),
            other => panic!("{other:?}"),
        }
    });
}

#[test]
fn a_flush_is_done_once_the_stay_is_over() {
    loom::model(|| {
        let cpu = Arc::new(Cpu::default());
        let flushed = Arc::new(AtomicU32::new(0));
        let runner = {
            let (cpu, flushed) = (cpu.clone(), flushed.clone());
            thread::spawn(move || {
                let mut owner = Owner::new(0);
                for _ in 0..2 {
                    if enter(&cpu.postbox, &mut owner).any(Posts::FLUSH) {
                        flushed.store(1, SeqCst);
                    }
                    cpu.postbox.leave(&owner);
                }
            })
        };
        cpu.post(Posts::FLUSH);
        let stay = cpu.postbox.in_guest();
        if stay.is_some_and(|stay| cpu.postbox.still_in(stay)) {
            // Still waiting: the waiter's own kick ends the stay.
            runner.join().unwrap();
            return;
        }
        // From here on no guest instruction may run on an old entry: either
        // it was flushed, or the post still waits for the next entry.
        let pending = cpu.postbox.take().any(Posts::FLUSH);
        runner.join().unwrap();
        assert!(pending || flushed.load(SeqCst) == 1);
    });
}
