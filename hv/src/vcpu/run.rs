//! The loop of a loaded vCPU: prepare, enter, handle.
//!
//! In this order before each entry: take the posts, if there are any, and
//! carry them out (requests, then interrupts); enter. An exception has been
//! given to the guest when its exit was handled, and identifier and timer
//! when the vCPU was loaded. Only `enter` is unsafe.

use super::handle::{Hardware, handle};
use super::interrupt::apply;
use super::postbox::Posts;
use super::{Power, Resume, Vcpu, Yield};
use crate::isa::exception::Interrupt;
use crate::mm::addr::Gpa;

/// What the loop needs of the physical CPU, besides handling exits.
pub trait Loaded: Hardware {
    /// Forgets every TLB entry of the vCPU, and its LL bit: a pair of LL and
    /// SC never survives a change of what an address leads to.
    fn flush(&mut self, vcpu: &Vcpu);
    /// Runs the guest until it exits.
    fn enter(&mut self, vcpu: &mut Vcpu) -> super::exit::ExitInfo;
    /// The guest waits for an interrupt. Where nobody else wants the CPU it
    /// waits here; whether the vCPU shall look again, and not give it back.
    fn wait(&mut self, vcpu: &Vcpu) -> bool;
}

/// Runs the loaded vCPU until it gives its CPU back: it still counts as in
/// the guest then. A function of its own: what else its caller keeps in
/// registers would be spilled at every entry.
#[inline(never)]
pub fn run(vcpu: &mut Vcpu, cpu: &mut impl Loaded) -> Resume {
    loop {
        let resume = stay(vcpu, cpu);
        if resume != Resume::Yield(Yield::Sleep) || !cpu.wait(vcpu) {
            return resume;
        }
    }
}

#[inline(always)]
fn stay(vcpu: &mut Vcpu, cpu: &mut impl Loaded) -> Resume {
    let posts = vcpu.enter_guest();
    if posts != Posts::NONE || vcpu.waiting {
        let resume = look(vcpu, posts, cpu);
        if resume != Resume::Guest {
            return resume;
        }
    }
    loop {
        let info = cpu.enter(vcpu);
        let mut resume = handle(vcpu, info, cpu);
        if resume == Resume::Guest {
            if !vcpu.shared().postbox.any() {
                continue;
            }
            let posts = vcpu.shared().postbox.take();
            resume = look(vcpu, posts, cpu);
        }
        if resume != Resume::Guest {
            return resume;
        }
    }
}

/// Carries posts out, and looks whether a vCPU that waits may go on.
#[cold]
fn look(vcpu: &mut Vcpu, posts: Posts, cpu: &mut impl Loaded) -> Resume {
    if posts.any(Posts::CONTROL) && vcpu.vm().stopped().is_some() {
        return Resume::Stop;
    }
    if posts.any(Posts::FLUSH) {
        cpu.flush(vcpu);
    }
    if posts.any(Posts::INTERRUPTS) {
        let levels = vcpu.vm().levels(vcpu.shared(), posts.lines());
        cpu.apply(&apply(posts.lines(), levels));
    }
    if posts.any(Posts::CONTROL) && vcpu.shared().placement.destination().is_some() {
        return Resume::Yield(Yield::Moved);
    }
    if vcpu.vm().paused() {
        return Resume::Yield(Yield::Paused);
    }
    if vcpu.waiting && !may_go_on(vcpu, cpu) {
        return Resume::Yield(Yield::Sleep);
    }
    vcpu.waiting = false;
    Resume::Guest
}

/// The boot IPI: vector 0.
const BOOT_VECTOR: u32 = 1;

fn may_go_on(vcpu: &mut Vcpu, cpu: &impl Loaded) -> bool {
    if vcpu.power == Power::On {
        return cpu.pending() != 0;
    }
    // Nothing but the IPI starts it, not even an address in its mailbox.
    let ipi = &vcpu.shared().ipi;
    if ipi.status() & BOOT_VECTOR == 0 {
        return false;
    }
    let entry = Gpa::new(ipi.mailbox(0));
    vcpu.start(entry, [0; 3]);
    true
}

impl Vcpu {
    /// What wakes it: the lines that its guest has enabled, `enabled`, or
    /// before it was started the IPI.
    #[must_use]
    pub fn wakes(&self, enabled: u64) -> Posts {
        match self.power {
            Power::On => Posts::interrupts(enabled),
            Power::Parked => Posts::interrupts(Interrupt::IPI.bit()),
        }
    }
}
