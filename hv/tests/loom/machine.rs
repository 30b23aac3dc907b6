//! A machine of one vCPU, and what can be done wrong with it.

use hv::vcpu::postbox::{Notify, Owner, Postbox, Posts};
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, Ordering::SeqCst};
use loom::thread;

/// Two interrupt lines.
pub const SWI0: Posts = Posts::interrupts(1);
/// See [`SWI0`].
pub const IPI: Posts = Posts::interrupts(1 << 12);

/// What is done wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mistake {
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
    /// The short cut for a kick doesn't look again once it has taken that.
    LooksOnce,
}
pub use Mistake::{
    EntersLate, FlushedAtOnce, KicksLast, LooksOnce, NoFence, None, PostsLate, SleepsLate,
    WakesForAll, WritesLate,
};

/// A machine of one vCPU: its postbox, and the kicks and wake-ups that are
/// under way to each of its two CPUs.
pub struct Machine {
    pub postbox: Postbox,
    pub told: [AtomicU32; 2],
    /// What a post is about: stored before it, read after it was taken.
    pub message: AtomicU32,
    pub mistake: Mistake,
}

impl Machine {
    pub fn new(mistake: Mistake) -> Arc<Self> {
        Arc::new(Self {
            postbox: Postbox::new(),
            told: Default::default(),
            message: AtomicU32::new(0),
            mistake,
        })
    }

    pub fn post(&self, posts: Posts) {
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

    pub fn tell(&self, cpu: u32) {
        self.told[cpu as usize].fetch_add(1, SeqCst);
    }

    pub fn enter(&self, owner: &Owner) -> Posts {
        if self.mistake == EntersLate {
            let posts = self.postbox.take();
            let _ = self.postbox.enter(owner);
            return posts;
        }
        self.postbox.enter(owner)
    }

    pub fn sleep(&self, owner: &Owner, wakes: Posts) -> bool {
        if self.mistake == SleepsLate {
            if self.postbox.any() {
                return false;
            }
            let _ = self.postbox.take();
        }
        self.postbox.sleep(owner, wakes)
    }

    pub fn flushed(&self) -> bool {
        self.mistake == FlushedAtOnce || self.postbox.flushed()
    }

    /// A kick that is under way to `cpu` ends its stay in the guest at once.
    pub fn must_look(&self, cpu: usize) -> bool {
        self.told[cpu].load(SeqCst) > 0
    }

    /// CPU `cpu` leaves the guest by the kicks that have come, takes them,
    /// and then what has been posted.
    pub fn look(&self, cpu: usize) -> Posts {
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

    pub fn take_any(&self) -> Posts {
        if self.postbox.any() {
            self.postbox.take()
        } else {
            Posts::NONE
        }
    }
}

pub fn posters(machine: &Arc<Machine>, all: &[Posts]) -> Vec<thread::JoinHandle<()>> {
    let start = |&posts: &Posts| {
        let machine = machine.clone();
        thread::spawn(move || machine.post(posts))
    };
    all.iter().map(start).collect()
}

pub fn join(threads: Vec<thread::JoinHandle<()>>) {
    for thread in threads {
        thread.join().unwrap();
    }
}

/// Each of `all` was taken, or a kick is under way.
pub fn none_lost(machine: &Machine, seen: Posts, cpu: usize, all: &[Posts]) {
    for &posts in all {
        assert!(
            seen.any(posts) || machine.must_look(cpu),
            "lost in the guest"
        );
    }
}
