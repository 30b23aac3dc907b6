//! What others want of a vCPU, and whether it must be told.
//!
//! Any CPU may post to a vCPU at any moment: while it runs the guest, while
//! it is on its way in or out, while it sleeps. A post that falls between
//! "looked for posts" and "runs the guest" must not wait for the next exit,
//! and one that falls between "found nothing to do" and "sleeps" must not be
//! slept over. So each side first publishes and then looks, with a full
//! fence in between: whichever of the two comes second sees the other.
//!
//! The whole state is two words, and there is no I/O here: the same code is
//! checked exhaustively with loom (`tests/loom.rs`) and runs on the machine.
//!
//! Source of the rule: Linux, Documentation/virt/kvm/vcpu-requests.rst.

#[cfg(not(loom))]
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
#[cfg(loom)]
use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

/// A set of things to be looked at. Bits 0 to 12 are the guest's interrupt
/// lines, by their number in ESTAT: the line may have changed. Bits 13 to 15
/// are requests to the vCPU itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Posts(u32);

impl Posts {
    /// Nothing.
    pub const NONE: Self = Self(0);
    /// Interrupt lines, all of them.
    pub const INTERRUPTS: Self = Self((1 << 13) - 1);
    /// The vCPU's TLB entries are stale.
    pub const FLUSH: Self = Self(1 << 13);
    /// The VM's state has changed: see whether the vCPU may go on.
    pub const CONTROL: Self = Self(1 << 14);
    /// Everything that isn't an interrupt: it always wakes.
    const REQUESTS: Self = Self(0xe000);

    /// The interrupt lines whose bits are set in `lines`, a value as in
    /// ESTAT; its other bits are dropped.
    #[must_use]
    pub const fn interrupts(lines: u64) -> Self {
        Self(lines as u32 & Self::INTERRUPTS.0)
    }

    /// Whether any of `other` is in the set.
    #[must_use]
    pub const fn any(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// Both sets together.
    #[must_use]
    pub const fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The interrupt lines in the set, as in ESTAT.
    #[must_use]
    pub const fn lines(self) -> u64 {
        (self.0 & Self::INTERRUPTS.0) as u64
    }
}

/// What the poster has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "the vCPU would not look"]
pub enum Notify {
    /// Nothing: the vCPU looks before it next runs the guest.
    Nothing,
    /// Make this physical CPU leave the guest.
    Kick(u32),
    /// Tell this physical CPU that one of its sleepers can go on.
    Wake(u32),
}

/// A state word. Bits 1:0 state; 15:2 physical CPU; 31:16 what wakes a
/// sleeper; 63:32 how often the vCPU has entered the guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Word(u64);

const OUTSIDE: u64 = 0;
const IN_GUEST: u64 = 1;
const KICKED: u64 = 2;
const ASLEEP: u64 = 3;
const STATE: u64 = 3;
const CPU_SHIFT: u32 = 2;
const CPU_BITS: u64 = 0x3fff;
const WAKE_SHIFT: u32 = 16;
const ENTRY: u64 = 1 << 32;

impl Word {
    const fn state(self) -> u64 {
        self.0 & STATE
    }

    const fn with_state(self, state: u64) -> u64 {
        self.0 & !STATE | state
    }

    const fn cpu(self) -> u32 {
        (self.0 >> CPU_SHIFT & CPU_BITS) as u32
    }

    const fn wakes(self) -> Posts {
        Posts((self.0 >> WAKE_SHIFT & 0xffff) as u32)
    }
}

/// The owner's side: only the CPU that runs the vCPU holds it.
#[derive(Debug)]
pub struct Owner {
    word: u64,
}

impl Owner {
    /// The owner of a vCPU that has not run yet, on physical CPU `cpu`.
    #[must_use]
    pub const fn new(cpu: u32) -> Self {
        let mut owner = Self { word: 0 };
        owner.set_cpu(cpu);
        owner
    }

    /// The vCPU moves to physical CPU `cpu` (0 to 16383), while outside.
    pub const fn set_cpu(&mut self, cpu: u32) {
        self.word = self.word & !(CPU_BITS << CPU_SHIFT) | (cpu as u64 & CPU_BITS) << CPU_SHIFT;
    }
}

/// The posts of one vCPU, and where it is.
#[derive(Debug)]
pub struct Postbox {
    posted: AtomicU32,
    word: AtomicU64,
}

impl Default for Postbox {
    fn default() -> Self {
        Self::new()
    }
}

impl Postbox {
    /// Nothing posted, outside.
    #[must_use]
    #[cfg(not(loom))]
    pub const fn new() -> Self {
        Self {
            posted: AtomicU32::new(0),
            word: AtomicU64::new(OUTSIDE),
        }
    }

    /// Nothing posted, outside.
    #[must_use]
    #[cfg(loom)]
    pub fn new() -> Self {
        Self {
            posted: AtomicU32::new(0),
            word: AtomicU64::new(OUTSIDE),
        }
    }

    /// Any CPU: posts `posts`. Whatever they tell of is written already.
    pub fn post(&self, posts: Posts) -> Notify {
        let before = Posts(self.posted.fetch_or(posts.0, Ordering::SeqCst));
        if before.or(posts) == before {
            // Whoever posted them first tells the vCPU.
            return Notify::Nothing;
        }
        fence(Ordering::SeqCst);
        let word = Word(self.word.load(Ordering::SeqCst));
        match word.state() {
            IN_GUEST if self.replace(word, KICKED) => Notify::Kick(word.cpu()),
            ASLEEP if posts.any(word.wakes()) && self.replace(word, OUTSIDE) => {
                Notify::Wake(word.cpu())
            }
            _ => Notify::Nothing,
        }
    }

    /// Owner: publishes "in guest"; whether anything has been posted. Then
    /// the caller takes it and carries it out before it enters the guest, or
    /// calls [`Postbox::leave`].
    #[inline(always)]
    #[must_use]
    pub fn enter(&self, owner: &mut Owner) -> bool {
        owner.word = owner.word.wrapping_add(ENTRY);
        self.word.store(owner.word | IN_GUEST, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        // Whoever takes what there is orders it; nothing needs no order.
        self.posted.load(Ordering::Relaxed) != 0
    }

    /// Owner: takes what was posted.
    pub fn take(&self) -> Posts {
        Posts(self.posted.swap(0, Ordering::SeqCst))
    }

    /// Owner: the guest has been left.
    #[inline]
    pub fn leave(&self, owner: &Owner) {
        self.word.store(owner.word | OUTSIDE, Ordering::Release);
    }

    /// Owner: wants to sleep until one of `wakes`, or any request, is posted.
    /// False where one already is: then the vCPU is outside and must look.
    #[must_use]
    pub fn sleep(&self, owner: &Owner, wakes: Posts) -> bool {
        let wakes = wakes.or(Posts::REQUESTS);
        let word = owner.word | u64::from(wakes.0) << WAKE_SHIFT | ASLEEP;
        self.word.store(word, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if !Posts(self.posted.load(Ordering::SeqCst)).any(wakes) {
            return true;
        }
        self.leave(owner);
        false
    }

    /// The home CPU: whether a vCPU that went to sleep still does.
    #[must_use]
    pub fn asleep(&self) -> bool {
        Word(self.word.load(Ordering::Acquire)).state() == ASLEEP
    }

    /// Any CPU, after a post: the stay in the guest that the vCPU may be on
    /// since before the post, `None` where it is on none. Who must be sure
    /// that the post has been seen kicks [`Stay::cpu`], whatever the post
    /// said (the vCPU may have left and entered again in between, with a
    /// post taken and a kick owed to nobody), and waits until
    /// [`Postbox::still_in`] says no.
    #[must_use]
    pub fn in_guest(&self) -> Option<Stay> {
        let word = Word(self.word.load(Ordering::SeqCst));
        matches!(word.state(), IN_GUEST | KICKED).then(|| Stay(word.with_state(IN_GUEST)))
    }

    /// Any CPU: whether the vCPU has not left the guest since `stay`.
    #[must_use]
    pub fn still_in(&self, stay: Stay) -> bool {
        self.in_guest() == Some(stay)
    }

    /// Changes the state of `word`, where it is still the current one.
    fn replace(&self, word: Word, state: u64) -> bool {
        self.word
            .compare_exchange(
                word.0,
                word.with_state(state),
                Ordering::SeqCst,
                Ordering::SeqCst,
            )
            .is_ok()
    }
}

/// One uninterrupted stay in the guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stay(u64);

impl Stay {
    /// The physical CPU of the stay.
    #[must_use]
    pub const fn cpu(self) -> u32 {
        Word(self.0).cpu()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const SWI0: Posts = Posts::interrupts(1);
    const IPI: Posts = Posts::interrupts(1 << 12);

    #[test]
    fn posts_outside_tell_nobody_and_are_taken_at_entry() {
        let (postbox, mut owner) = (Postbox::new(), Owner::new(7));
        assert_eq!(postbox.post(SWI0), Notify::Nothing);
        assert_eq!(postbox.post(IPI), Notify::Nothing);
        assert!(postbox.enter(&mut owner));
        assert_eq!(postbox.take().lines(), 0x1001);
        assert_eq!(postbox.take(), Posts::NONE);
    }

    #[test]
    fn a_stay_in_the_guest_is_kicked_once() {
        let (postbox, mut owner) = (Postbox::new(), Owner::new(7));
        assert!(!postbox.enter(&mut owner));
        assert_eq!(postbox.post(SWI0), Notify::Kick(7));
        assert_eq!(postbox.post(SWI0), Notify::Nothing);
        assert_eq!(postbox.post(IPI), Notify::Nothing);
        postbox.leave(&owner);
        assert!(postbox.enter(&mut owner));
        assert_eq!(postbox.take(), SWI0.or(IPI));
        assert_eq!(postbox.post(IPI), Notify::Kick(7));
    }

    #[test]
    fn sleepers_wake_for_what_they_wait_for_and_for_requests() {
        let (postbox, owner) = (Postbox::new(), Owner::new(3));
        assert!(postbox.sleep(&owner, IPI));
        assert_eq!(postbox.post(SWI0), Notify::Nothing);
        assert!(postbox.asleep());
        assert_eq!(postbox.post(IPI), Notify::Wake(3));
        assert!(!postbox.asleep());
        assert_eq!(postbox.take(), SWI0.or(IPI));
        assert!(postbox.sleep(&owner, Posts::NONE));
        assert_eq!(postbox.post(Posts::CONTROL), Notify::Wake(3));
    }

    #[test]
    fn nobody_sleeps_over_what_is_posted() {
        let (postbox, owner) = (Postbox::new(), Owner::new(3));
        assert_eq!(postbox.post(IPI), Notify::Nothing);
        assert!(!postbox.sleep(&owner, IPI));
        assert!(!postbox.asleep());
        assert!(postbox.sleep(&owner, SWI0));
    }

    #[test]
    fn a_stay_ends_even_if_the_next_one_follows_at_once() {
        let (postbox, mut owner) = (Postbox::new(), Owner::new(0x3fff));
        assert_eq!(postbox.in_guest(), None);
        let _ = postbox.enter(&mut owner);
        let stay = postbox.in_guest().unwrap();
        assert_eq!(stay.cpu(), 0x3fff);
        assert_eq!(postbox.post(Posts::FLUSH), Notify::Kick(0x3fff));
        assert!(postbox.still_in(stay));
        postbox.leave(&owner);
        let _ = postbox.enter(&mut owner);
        assert!(!postbox.still_in(stay));
    }

    #[test]
    fn posts_are_made_of_lines_and_requests() {
        assert_eq!(Posts::interrupts(u64::MAX), Posts::INTERRUPTS);
        assert_eq!(Posts::FLUSH.or(SWI0).lines(), 1);
        assert!(Posts::CONTROL.any(Posts::REQUESTS) && Posts::FLUSH.any(Posts::REQUESTS));
    }
}
