//! What others want of a vCPU, and whether it must be told.
//!
//! Any CPU may post to a vCPU at any moment: while it runs the guest, while
//! it is on its way in or out, while it sleeps. A post that falls between
//! "looked for posts" and "runs the guest" must not wait for the next exit,
//! and one that falls between "found nothing to do" and "sleeps" must not be
//! slept over. So what is posted and where the vCPU is are one word, which
//! both sides change in one step: each post sees whether it must tell
//! anybody, and each entry sees every post before it.
//!
//! From an entry to the next sleep or switch the vCPU counts as in the guest,
//! exits included: who posts meanwhile makes its CPU look once more, and the
//! owner need not publish anything at an exit.
//!
//! There is no I/O here: the same code is checked exhaustively with loom
//! (`tests/loom`) and runs on the machine. The short cuts in `arch::stubs`
//! do to the word what [`Postbox::post`] and [`Postbox::take`] do.

#[cfg(not(loom))]
use core::sync::atomic::{AtomicU64, Ordering};
#[cfg(loom)]
use loom::sync::atomic::{AtomicU64, Ordering};

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
    /// What always wakes: a flush can wait until the vCPU enters the guest.
    const REQUESTS: Self = Self::CONTROL;

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

    const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
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

/// The word: posts in 31:0, and where the vCPU is in 63:32.
///
/// There 0 means outside. In the guest it is what `IPI_SEND` takes for a
/// kick: the vector in 4:0, the physical CPU in 25:16. Asleep it has bit 31,
/// the CPU in the same place, and in 15:0 the posts that wake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Word(u64);

const POSTED: u64 = u32::MAX as u64;
const PLACE_SHIFT: u32 = 32;
/// Bit of a place that says "asleep".
const ASLEEP: u32 = 1 << 31;
/// Place of the physical CPU in a place, and how many bits it has.
pub const CPU_SHIFT: u32 = 16;
/// See [`CPU_SHIFT`].
pub const CPU_BITS: u32 = 10;
/// Vector of a kick between physical CPUs.
pub const KICK_VECTOR: u32 = 1;

impl Word {
    const fn posted(self) -> Posts {
        Posts((self.0 & POSTED) as u32)
    }

    const fn place(self) -> u32 {
        (self.0 >> PLACE_SHIFT) as u32
    }

    const fn cpu(self) -> u32 {
        self.place() >> CPU_SHIFT & ((1 << CPU_BITS) - 1)
    }

    const fn asleep(self) -> bool {
        self.place() & ASLEEP != 0
    }

    const fn in_guest(self) -> bool {
        self.place() != 0 && !self.asleep()
    }

    const fn wakes(self) -> Posts {
        Posts(self.place() & 0xffff)
    }
}

/// The owner's side: only the CPU that runs the vCPU holds it.
#[derive(Debug)]
pub struct Owner {
    cpu: u32,
}

impl Owner {
    /// The owner of a vCPU that has not run yet, on physical CPU `cpu`.
    #[must_use]
    pub const fn new(cpu: u32) -> Self {
        let mut owner = Self { cpu: 0 };
        owner.set_cpu(cpu);
        owner
    }

    /// The vCPU moves to physical CPU `cpu` (0 to 1023), while outside.
    pub const fn set_cpu(&mut self, cpu: u32) {
        self.cpu = (cpu & ((1 << CPU_BITS) - 1)) << CPU_SHIFT;
    }

    const fn place(&self, state: u32) -> u64 {
        ((self.cpu | state) as u64) << PLACE_SHIFT
    }
}

/// The posts of one vCPU, and where it is.
#[derive(Debug)]
#[repr(transparent)]
pub struct Postbox(AtomicU64);

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
        Self(AtomicU64::new(0))
    }

    /// Nothing posted, outside.
    #[must_use]
    #[cfg(loom)]
    pub fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Any CPU: posts `posts`. Whatever they tell of is written already.
    #[inline]
    pub fn post(&self, posts: Posts) -> Notify {
        let before = Word(self.0.fetch_or(posts.0.into(), Ordering::SeqCst));
        // Whoever posted the others first has told the vCPU.
        let new = posts.without(before.posted());
        if new == Posts::NONE || before.place() == 0 {
            Notify::Nothing
        } else if !before.asleep() {
            Notify::Kick(before.cpu())
        } else if new.any(before.wakes()) {
            Notify::Wake(before.cpu())
        } else {
            Notify::Nothing
        }
    }

    /// Owner: from here on the vCPU counts as in the guest; what has been
    /// posted until now. The caller carries it out before it enters, and
    /// looks again ([`Postbox::any`]) before each further entry.
    #[inline]
    pub fn enter(&self, owner: &Owner) -> Posts {
        let place = owner.place(KICK_VECTOR);
        Word(self.0.swap(place, Ordering::SeqCst)).posted()
    }

    /// Owner: whether anything has been posted. Whoever does so after this
    /// look makes the CPU look again.
    #[inline(always)]
    #[must_use]
    pub fn any(&self) -> bool {
        // Whoever takes what there is orders it; nothing needs no order.
        Word(self.0.load(Ordering::Relaxed)).posted() != Posts::NONE
    }

    /// Owner, outside: whether one of `wakes`, or any request, has been
    /// posted: who polls for it needs no kick.
    #[must_use]
    pub fn wanted(&self, wakes: Posts) -> bool {
        let word = Word(self.0.load(Ordering::Relaxed));
        word.posted().any(wakes.or(Posts::REQUESTS))
    }

    /// Owner: takes what has been posted.
    #[inline]
    pub fn take(&self) -> Posts {
        Word(self.0.fetch_and(!POSTED, Ordering::SeqCst)).posted()
    }

    /// Owner: whether just `posts` have been posted, as the short cut for a kick
    /// looks.
    #[cfg(loom)]
    #[must_use]
    pub fn is(&self, posts: Posts) -> bool {
        Word(self.0.load(Ordering::Relaxed)).posted() == posts
    }

    /// Owner: takes `posts` and leaves the others, as the short cut does.
    #[cfg(loom)]
    pub fn take_these(&self, posts: Posts) {
        self.0.fetch_and(!u64::from(posts.0), Ordering::SeqCst);
    }

    /// Owner: the guest will not be entered again before [`Postbox::enter`].
    #[inline]
    pub fn leave(&self) {
        self.0.fetch_and(POSTED, Ordering::SeqCst);
    }

    /// Owner: leaves the guest, if it still counts as there, and sleeps until
    /// one of `wakes`, or any request, is posted. False where one already is:
    /// then the vCPU is outside, and must look.
    #[must_use]
    pub fn sleep(&self, owner: &Owner, wakes: Posts) -> bool {
        let wakes = wakes.or(Posts::REQUESTS);
        let place = owner.place(ASLEEP | wakes.0);
        let wanted = |word| Word(word).posted().any(wakes);
        let next = |word| Some((word & POSTED) | if wanted(word) { 0 } else { place });
        // The closure never declines, so this never fails.
        self.0
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, next)
            .is_ok_and(|before| !wanted(before))
    }

    /// Any CPU, for show: whether the vCPU counts as in the guest.
    #[must_use]
    pub fn in_guest(&self) -> bool {
        Word(self.0.load(Ordering::Relaxed)).in_guest()
    }

    /// The home CPU: whether a vCPU that went to sleep still has nothing to
    /// wake for.
    #[must_use]
    pub fn asleep(&self) -> bool {
        let word = Word(self.0.load(Ordering::Acquire));
        word.asleep() && !word.posted().any(word.wakes())
    }

    /// Any CPU, after it has posted [`Posts::FLUSH`] and told whom that
    /// takes: whether the guest can't use its old TLB entries any more. It is
    /// in the host, and flushes before it enters again.
    #[must_use]
    pub fn flushed(&self) -> bool {
        let word = Word(self.0.load(Ordering::SeqCst));
        !word.in_guest() || !word.posted().any(Posts::FLUSH)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const SWI0: Posts = Posts::interrupts(1);
    const IPI: Posts = Posts::interrupts(1 << 12);

    #[test]
    fn posts_outside_tell_nobody_and_are_taken_at_entry() {
        let (postbox, owner) = (Postbox::new(), Owner::new(7));
        assert_eq!(postbox.post(SWI0), Notify::Nothing);
        assert_eq!(postbox.post(IPI), Notify::Nothing);
        assert_eq!(postbox.enter(&owner).lines(), 0x1001);
        assert_eq!(postbox.take(), Posts::NONE);
    }

    #[test]
    fn each_post_is_told_once() {
        let (postbox, owner) = (Postbox::new(), Owner::new(7));
        assert_eq!(postbox.enter(&owner), Posts::NONE);
        assert_eq!(postbox.post(SWI0), Notify::Kick(7));
        assert_eq!(postbox.post(SWI0), Notify::Nothing);
        assert_eq!(postbox.post(SWI0.or(IPI)), Notify::Kick(7));
        assert!(postbox.any());
        assert_eq!(postbox.take(), SWI0.or(IPI));
        assert!(!postbox.any());
        assert_eq!(postbox.post(IPI), Notify::Kick(7));
        postbox.leave();
        assert_eq!(postbox.post(SWI0), Notify::Nothing);
        assert_eq!(postbox.enter(&owner), SWI0.or(IPI));
    }

    #[test]
    fn sleepers_wake_for_what_they_wait_for_and_for_requests() {
        let (postbox, owner) = (Postbox::new(), Owner::new(3));
        assert!(postbox.sleep(&owner, IPI));
        assert_eq!(postbox.post(SWI0), Notify::Nothing);
        assert!(postbox.asleep());
        assert_eq!(postbox.post(IPI), Notify::Wake(3));
        assert!(!postbox.asleep());
        assert_eq!(postbox.enter(&owner), SWI0.or(IPI));
        postbox.leave();
        assert!(postbox.sleep(&owner, Posts::NONE));
        assert_eq!(postbox.post(Posts::CONTROL), Notify::Wake(3));
    }

    #[test]
    fn from_the_guest_to_sleep_is_one_step() {
        let (postbox, owner) = (Postbox::new(), Owner::new(3));
        let _ = postbox.enter(&owner);
        assert!(postbox.sleep(&owner, IPI));
        assert!(postbox.asleep() && !postbox.in_guest());
        let _ = postbox.enter(&owner);
        assert_eq!(postbox.post(IPI), Notify::Kick(3));
        // Who may not sleep is outside: another post needs to tell nobody.
        assert!(!postbox.sleep(&owner, IPI));
        assert!(!postbox.in_guest());
        assert_eq!(postbox.post(SWI0), Notify::Nothing);
        assert_eq!(postbox.enter(&owner), SWI0.or(IPI));
    }

    #[test]
    fn nobody_sleeps_over_what_is_posted() {
        let (postbox, owner) = (Postbox::new(), Owner::new(3));
        assert_eq!(postbox.post(IPI), Notify::Nothing);
        assert!(!postbox.sleep(&owner, IPI));
        assert!(!postbox.asleep());
        assert!(postbox.sleep(&owner, SWI0));
        // What was posted before is still there.
        assert_eq!(postbox.enter(&owner), IPI);
    }

    #[test]
    fn a_flush_is_done_when_it_is_taken_or_the_guest_is_left() {
        let (postbox, owner) = (Postbox::new(), Owner::new(0x3ff));
        assert_eq!(postbox.post(Posts::FLUSH), Notify::Nothing);
        assert!(postbox.flushed());
        let _ = postbox.enter(&owner);
        assert!(postbox.flushed());
        assert_eq!(postbox.post(Posts::FLUSH), Notify::Kick(0x3ff));
        assert!(!postbox.flushed());
        assert_eq!(postbox.take(), Posts::FLUSH);
        assert!(postbox.flushed());
        assert_eq!(postbox.post(Posts::FLUSH), Notify::Kick(0x3ff));
        postbox.leave();
        assert!(postbox.flushed());
        // It is outside: nobody waits for it, and it need not wake for this.
        assert!(postbox.sleep(&owner, Posts::NONE));
        assert_eq!(postbox.post(Posts::FLUSH), Notify::Nothing);
        assert!(postbox.asleep() && postbox.flushed());
        assert_eq!(postbox.enter(&owner), Posts::FLUSH);
    }

    #[test]
    fn posts_are_made_of_lines_and_requests() {
        assert_eq!(Posts::interrupts(u64::MAX), Posts::INTERRUPTS);
        assert_eq!(Posts::FLUSH.or(SWI0).lines(), 1);
        assert!(Posts::CONTROL.any(Posts::REQUESTS) && !Posts::FLUSH.any(Posts::REQUESTS));
    }

    #[test]
    fn a_kick_is_what_ipi_send_takes() {
        use guest_pv::abi::iocsr::ipi_send;
        let (postbox, owner) = (Postbox::new(), Owner::new(0x155));
        let _ = postbox.enter(&owner);
        let word = Word(postbox.0.load(Ordering::Relaxed));
        assert_eq!(
            word.place() | 1 << 31,
            ipi_send(0x155, KICK_VECTOR) | 1 << 31
        );
    }
}
