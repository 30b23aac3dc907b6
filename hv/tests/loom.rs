//! The post, enter, sleep protocol, under every interleaving.
//!
//! Run with `RUSTFLAGS="--cfg loom" cargo test --release -p hv --test loom`;
//! without that flag the file is empty. The guest is a variable: a post is
//! "seen" when the owner takes it, or when a kick or wake-up that is under
//! way makes it look again.
//!
//! Each model is run once more with every mistake in the protocol that it is
//! there for, and must fail.
#![cfg(loom)]

use hv::vcpu::postbox::{Notify, Owner, Postbox, Posts};
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, Ordering::SeqCst, fence};
use loom::thread;

const SWI0: Posts = Posts::interrupts(1);
const IPI: Posts = Posts::interrupts(1 << 12);

/// What is done wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mistake {
    None,
    /// The owner takes the posts, and then says that it is in the guest.
    EntersLate,
    /// It takes the posts, and then the kicks that they came with.
    KicksLast,
    /// It looks for posts, and then says that it is asleep.
    SleepsLate,
    /// Who posts looks where the vCPU is, and then posts.
    PostsLate,
    /// Who posts wakes for what the vCPU doesn't wait for.
    WakesForAll,
    /// Who posts writes last what the post is about.
    WritesLate,
    /// The short cut for what is pending already has no fence.
    NoFence,
    /// Who wants a flush doesn't wait for it.
    FlushedAtOnce,
}
use Mistake::{
    EntersLate, FlushedAtOnce, KicksLast, NoFence, None, PostsLate, SleepsLate, WakesForAll,
    WritesLate,
};

/// A machine of one vCPU: its postbox, and the kicks and wake-ups that are
/// under way to each of its two CPUs.
struct Machine {
    postbox: Postbox,
    told: [AtomicU32; 2],
    /// What a post is about: stored before it, read after it was taken.
    message: AtomicU32,
    mistake: Mistake,
}

impl Machine {
    fn new(mistake: Mistake) -> Arc<Self> {
        Arc::new(Self {
            postbox: Postbox::new(),
            told: Default::default(),
            message: AtomicU32::new(0),
            mistake,
        })
    }

    fn post(&self, posts: Posts) {
        if self.mistake != WritesLate {
            self.message.store(1, SeqCst);
        }
        let late = self.mistake == PostsLate;
        let there = !late || self.postbox.in_guest() || self.postbox.asleep();
        match self.postbox.post(posts) {
            Notify::Nothing if self.mistake == WakesForAll => self.tell(0),
            Notify::Kick(_) | Notify::Wake(_) if !there => {}
            Notify::Nothing => {}
            Notify::Kick(cpu) | Notify::Wake(cpu) => self.tell(cpu),
        }
        if self.mistake == WritesLate {
            self.message.store(1, SeqCst);
        }
    }

    fn tell(&self, cpu: u32) {
        self.told[cpu as usize].fetch_add(1, SeqCst);
    }

    fn enter(&self, owner: &Owner) -> Posts {
        if self.mistake == EntersLate {
            let posts = self.postbox.take();
            let _ = self.postbox.enter(owner);
            return posts;
        }
        self.postbox.enter(owner)
    }

    fn sleep(&self, owner: &Owner, wakes: Posts) -> bool {
        if self.mistake == SleepsLate {
            if self.postbox.any() {
                return false;
            }
            let _ = self.postbox.take();
        }
        self.postbox.sleep(owner, wakes)
    }

    fn flushed(&self) -> bool {
        self.mistake == FlushedAtOnce || self.postbox.flushed()
    }

    /// A kick that is under way to `cpu` ends its stay in the guest at once.
    fn must_look(&self, cpu: usize) -> bool {
        self.told[cpu].load(SeqCst) > 0
    }

    /// CPU `cpu` leaves the guest by the kicks that have come, takes them,
    /// and then what has been posted.
    fn look(&self, cpu: usize) -> Posts {
        let late = self.mistake == KicksLast;
        if !late {
            self.told[cpu].swap(0, SeqCst);
        }
        let posts = self.take_any();
        if late {
            self.told[cpu].swap(0, SeqCst);
        }
        posts
    }

    fn take_any(&self) -> Posts {
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

fn enter_once(all: &'static [Posts], mistake: Mistake) {
    loom::model(move || {
        let machine = Machine::new(mistake);
        let threads = posters(&machine, all);
        let seen = machine.enter(&Owner::new(0));
        join(threads);
        none_lost(&machine, seen, 0, all);
    });
}

const BOTH: [Posts; 2] = [SWI0, IPI];

/// The vCPU exits for another reason, looks without taking the kicks, and
/// enters again; then it exits by a kick.
fn exits(mistake: Mistake) {
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

fn leave_and_enter_again(mistake: Mistake) {
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
fn what_a_post_is_about(mistake: Mistake) {
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
fn what_is_posted_already(mistake: Mistake) {
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

fn sleep(mistake: Mistake) {
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
fn poll_and_sleep(mistake: Mistake) {
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
fn sleep_from_the_guest(mistake: Mistake) {
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

fn masked_post(mistake: Mistake) {
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
fn post_after_a_masked_post(mistake: Mistake) {
    loom::model(move || {
        let machine = Machine::new(mistake);
        let threads = posters(&machine, &BOTH);
        let sleeps = machine.sleep(&Owner::new(0), IPI);
        join(threads);
        assert!(!sleeps || (machine.must_look(0) && !machine.postbox.asleep()));
    });
}

/// The vCPU moves from CPU 0 to CPU 1 while somebody posts, twice.
fn move_to_another_cpu(mistake: Mistake) {
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
fn move_in_its_sleep(mistake: Mistake) {
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

/// Once [`Postbox::flushed`] says so, no guest instruction runs on an old
/// entry: `stale` is set while one could, by an owner that enters twice.
fn flush(mistake: Mistake) {
    loom::model(move || {
        let machine = Machine::new(mistake);
        let changed = Arc::new(AtomicU32::new(0));
        let runner = {
            let (machine, changed) = (machine.clone(), changed.clone());
            thread::spawn(move || {
                let owner = Owner::new(0);
                // The TLB's entry is as old as the last flush.
                let mut entry = changed.load(SeqCst);
                for _ in 0..2 {
                    if machine.enter(&owner).any(Posts::FLUSH) {
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
        if machine.flushed() {
            // From here on the page may be used for something else.
            changed.store(2, SeqCst);
        }
        runner.join().unwrap();
    });
}

/// What a TLB's entry is of: the state of the tables when it was filled.
const OLD: u32 = 0;
/// The change is made; the old page is still the VM's.
const CHANGED: u32 = 1;
/// The old page may be used for something else.
const REUSED: u32 = 2;

/// A guest that runs on an entry as old as its last flush.
struct Guest {
    tables: Arc<AtomicU32>,
    entry: u32,
}

impl Guest {
    fn new(tables: &Arc<AtomicU32>) -> Self {
        let (tables, entry) = (tables.clone(), OLD);
        Self { tables, entry }
    }

    fn carry_out(&mut self, posts: Posts) {
        if posts.any(Posts::FLUSH) {
            self.entry = self.tables.load(SeqCst);
        }
    }

    /// An access of the guest's.
    fn access(&self) {
        let reused = self.tables.load(SeqCst) == REUSED;
        assert!(!(reused && self.entry == OLD), "used after it was gone");
    }
}

/// Changes the tables, and reuses the page as soon as that may be.
fn invalidate(machine: &Machine, tables: &AtomicU32) {
    tables.store(CHANGED, SeqCst);
    machine.post(Posts::FLUSH);
    if machine.flushed() {
        tables.store(REUSED, SeqCst);
    }
}

/// Invalidate × post × enter: the vCPU enters, exits for another reason,
/// takes what there is, and runs on. The other post is not lost over it.
fn invalidate_against_post_and_enter(mistake: Mistake) {
    loom::model(move || {
        let machine = Machine::new(mistake);
        let tables = Arc::new(AtomicU32::new(OLD));
        let changer = {
            let (machine, tables) = (machine.clone(), tables.clone());
            thread::spawn(move || invalidate(&machine, &tables))
        };
        let poster = posters(&machine, &[SWI0]);
        let mut guest = Guest::new(&tables);
        let mut seen = machine.enter(&Owner::new(0));
        guest.carry_out(seen);
        guest.access();
        if machine.postbox.any() {
            let posts = machine.postbox.take();
            guest.carry_out(posts);
            seen = seen.or(posts);
        }
        guest.access();
        changer.join().unwrap();
        join(poster);
        none_lost(&machine, seen, 0, &[SWI0, Posts::FLUSH]);
    });
}

/// Invalidate × post × sleep: nobody waits for a sleeper, which flushes
/// before it next enters; the other post wakes it all the same.
fn invalidate_against_post_and_sleep(mistake: Mistake) {
    loom::model(move || {
        let machine = Machine::new(mistake);
        let tables = Arc::new(AtomicU32::new(OLD));
        let owner = Owner::new(0);
        let changer = {
            let (machine, tables) = (machine.clone(), tables.clone());
            thread::spawn(move || {
                invalidate(&machine, &tables);
                assert_eq!(tables.load(SeqCst), REUSED, "it is never in the guest");
            })
        };
        let poster = posters(&machine, &[SWI0]);
        let sleeps = machine.sleep(&owner, SWI0);
        join(poster);
        assert!(!sleeps || machine.must_look(0), "slept over a post");
        changer.join().unwrap();
        let mut guest = Guest::new(&tables);
        let seen = machine.enter(&owner);
        guest.carry_out(seen);
        guest.access();
        assert!(seen.any(SWI0) && seen.any(Posts::FLUSH));
    });
}

/// Invalidate × move: a vCPU that leaves for another CPU has flushed when it
/// enters there, and a post on the way finds it.
fn invalidate_against_a_move(mistake: Mistake) {
    loom::model(move || {
        let machine = Machine::new(mistake);
        let tables = Arc::new(AtomicU32::new(OLD));
        let changer = {
            let (machine, tables) = (machine.clone(), tables.clone());
            thread::spawn(move || invalidate(&machine, &tables))
        };
        let poster = posters(&machine, &[SWI0]);
        let (mut owner, mut guest) = (Owner::new(0), Guest::new(&tables));
        let mut seen = machine.enter(&owner);
        guest.carry_out(seen);
        guest.access();
        machine.postbox.leave();
        owner.set_cpu(1);
        // The old CPU's entries are not the new one's: there they are as old
        // as the entry into the guest, or older if nothing is flushed.
        let posts = machine.enter(&owner);
        guest.carry_out(posts);
        seen = seen.or(posts);
        guest.access();
        changer.join().unwrap();
        join(poster);
        none_lost(&machine, seen, 1, &[SWI0, Posts::FLUSH]);
    });
}

/// A vCPU is wanted elsewhere, twice: whichever look is the last one sees
/// where, or a kick is under way.
fn notes_where_to_move_are_read(mistake: Mistake) {
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

/// A test of each model as it is, and one with each mistake that it must find.
macro_rules! models {
    ($($name:ident: $run:expr, $($finds:ident $mistake:ident)+;)*) => {$(
        mod $name {
            use super::*;

            #[test]
            fn holds() {
                ($run)(None);
            }

            $(
                #[test]
                #[should_panic]
                fn $finds() {
                    ($run)($mistake);
                }
            )+
        }
    )*};
}

models! {
    post_and_post_against_enter: |mistake| enter_once(&BOTH, mistake),
        finds_late_entry EntersLate finds_late_post PostsLate;
    the_same_twice_against_enter: |mistake| enter_once(&[SWI0, SWI0], mistake),
        finds_late_entry EntersLate finds_late_post PostsLate;
    post_and_post_against_exits: exits,
        finds_late_entry EntersLate finds_kicks_taken_last KicksLast;
    post_and_post_against_leave_and_enter_again: leave_and_enter_again,
        finds_late_entry EntersLate finds_late_post PostsLate;
    what_a_post_is_about_is_seen_with_it: what_a_post_is_about,
        finds_late_writing WritesLate;
    what_is_posted_already_is_seen_or_told: what_is_posted_already,
        finds_no_fence NoFence;
    post_and_post_against_sleep: sleep,
        finds_late_sleep SleepsLate finds_late_post PostsLate;
    post_against_poll_and_sleep: poll_and_sleep,
        finds_late_sleep SleepsLate finds_late_post PostsLate;
    post_and_post_against_sleep_from_the_guest: sleep_from_the_guest,
        finds_late_sleep SleepsLate;
    masked_post_against_sleep_leaves_it_asleep: masked_post,
        finds_who_wakes_for_all WakesForAll;
    post_after_a_masked_post_against_sleep: post_after_a_masked_post,
        finds_late_post PostsLate;
    post_and_post_against_a_move_to_another_cpu: move_to_another_cpu,
        finds_late_entry EntersLate finds_late_post PostsLate;
    post_against_a_move_in_its_sleep: move_in_its_sleep,
        finds_late_sleep SleepsLate finds_late_post PostsLate;
    a_flush_is_done_before_the_guest_goes_on: flush,
        finds_who_does_not_wait FlushedAtOnce;
    invalidate_and_post_against_enter: invalidate_against_post_and_enter,
        finds_who_does_not_wait FlushedAtOnce finds_late_entry EntersLate;
    invalidate_and_post_against_sleep: invalidate_against_post_and_sleep,
        finds_late_sleep SleepsLate finds_late_post PostsLate;
    invalidate_and_post_against_a_move: invalidate_against_a_move,
        finds_who_does_not_wait FlushedAtOnce finds_late_entry EntersLate;
    notes_where_to_move: notes_where_to_move_are_read,
        finds_late_entry EntersLate finds_late_post PostsLate;
}
