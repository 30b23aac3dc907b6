//! A change of the second-stage tables, against all that a vCPU does meanwhile.

use crate::machine::*;
use hv::vcpu::postbox::{Owner, Posts};
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, Ordering::SeqCst};
use loom::thread;

/// Once [`Postbox::flushed`] says so, no guest instruction runs on an old
/// entry, of an owner that enters twice.
pub fn flush(mistake: Mistake) {
    loom::model(move || {
        let machine = Machine::new(mistake);
        let (tables, changer) = changing(&machine);
        let owner = Owner::new(0);
        let mut guest = Guest::new(&tables);
        guest.entry = tables.load(SeqCst);
        for _ in 0..2 {
            guest.carry_out(machine.enter(&owner));
            // A kick ends its stay.
            guest.access();
            machine.postbox.leave();
        }
        changer.join().unwrap();
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
pub fn invalidate(machine: &Machine, tables: &AtomicU32) {
    tables.store(CHANGED, SeqCst);
    machine.post(Posts::FLUSH);
    if machine.flushed() {
        tables.store(REUSED, SeqCst);
    }
}

/// The tables, as they were, and a thread that changes them.
fn changing(machine: &Arc<Machine>) -> (Arc<AtomicU32>, thread::JoinHandle<()>) {
    let tables = Arc::new(AtomicU32::new(OLD));
    let changer = {
        let (machine, tables) = (machine.clone(), tables.clone());
        thread::spawn(move || invalidate(&machine, &tables))
    };
    (tables, changer)
}

/// Invalidate × post × enter: the vCPU enters, exits for another reason,
/// takes what there is, and runs on. The other post is not lost over it.
pub fn invalidate_against_post_and_enter(mistake: Mistake) {
    loom::model(move || {
        let machine = Machine::new(mistake);
        let (tables, changer) = changing(&machine);
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
pub fn invalidate_against_post_and_sleep(mistake: Mistake) {
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
pub fn invalidate_against_a_move(mistake: Mistake) {
    loom::model(move || {
        let machine = Machine::new(mistake);
        let (tables, changer) = changing(&machine);
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
