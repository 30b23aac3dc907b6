//! A VM's RAM while it runs: pages that the guest gives back, takes again,
//! or protects.
//!
//! A change is made in the second-stage tables; then every vCPU is told to
//! forget its TLB entries, and only when each has done so, or is outside of
//! the guest, is the change complete: tables and blocks that fell out of use
//! go back to the machine then, and the next change can begin. No CPU waits
//! for that in the hypervisor. A call that finds a change under way ends with
//! [`Progress::Wait`]: its vCPU sleeps for a moment, or takes an interrupt,
//! and the guest makes the call again. What a call asks for is
//! a state, so making it again does nothing twice.
//!
//! RAM goes back to the machine by whole blocks of 32 MiB. A guest that gives
//! back every other page would break the machine's free memory into crumbs,
//! whose bookkeeping takes heap: single pages stay the VM's own, unmapped,
//! until the rest of their block is given back too.
//!
//! Threats: ranges come from the guest and are checked where they become a
//! [`PageRange`]; one is a block long at most, which bounds the time a call
//! takes. The hypervisor writes to pages that hold a steal-time record by
//! their host address: such a page is held, and can't be given back.

mod range;

use super::{Notifier, VcpuShared, Vm};
use crate::mm::addr::{Gpa, Hpa, PAGE_BYTES};
use crate::mm::guest_mem::{GuestBuf, GuestRam};
use crate::mm::pte::Access;
use crate::mm::stage2::{BLOCK_BYTES, MapError, Translation};
use crate::vcpu::postbox::Posts;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;
use guest_pv::abi::hypercall::CallError;
pub use range::PageRange;

/// The frames behind a VM's RAM. Dropping it gives back what there still is.
pub trait RamFrames: fmt::Debug + Send {
    /// Gives back the block at `hpa`, one of the VM's.
    fn give_block(&mut self, hpa: Hpa);
    /// Takes another block, of any content; `None` where there is none.
    fn take_block(&mut self) -> Option<Hpa>;
}

/// RAM that is nobody's to give: for tests.
impl RamFrames for () {
    fn give_block(&mut self, _: Hpa) {}

    fn take_block(&mut self) -> Option<Hpa> {
        None
    }
}

/// What is wanted of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// Nothing is there: an access is an address error.
    Release,
    /// Memory is there; what was released is zero, and may be written to.
    Claim,
    /// What is there may be accessed so, and otherwise is an address error.
    Protect(Access),
}

/// How far a call has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "the guest would go on too early"]
pub enum Progress {
    /// It is as it was asked for, on every vCPU.
    Done,
    /// vCPUs still have to forget what was before: call again.
    Wait,
}

/// Pages of a block, the most that goes back to the machine at a time.
pub const BLOCK_PAGES: u64 = BLOCK_BYTES / PAGE_BYTES;

/// 32 MiB of RAM that one block of the machine's is behind, or was.
#[derive(Clone, Copy, Debug)]
struct Block {
    gpa: Gpa,
    /// `None` once it has gone back to the machine.
    hpa: Option<Hpa>,
    /// Pages that haven't been released.
    pages: u64,
}

/// What can change of a VM's RAM.
#[derive(Debug)]
pub struct Memory {
    frames: Box<dyn RamFrames>,
    /// By rising address.
    blocks: Box<[Block]>,
    /// The page that holds each vCPU's steal-time record.
    held: Box<[Option<Gpa>]>,
    /// A change that vCPUs still have to learn of, and where it is.
    under_way: Option<PageRange>,
}

impl Memory {
    /// All of `ram`, with `frames` behind it, of a VM of `vcpus` vCPUs;
    /// `None` where the heap has no room for what is noted of each block.
    #[must_use]
    pub fn new(ram: &GuestRam, frames: Box<dyn RamFrames>, vcpus: usize) -> Option<Self> {
        let block = |region: crate::mm::guest_mem::RamRegion| Block {
            gpa: region.gpa,
            hpa: Some(region.hpa),
            pages: BLOCK_PAGES,
        };
        let mut blocks = Vec::new();
        blocks.try_reserve_exact(ram.blocks().count()).ok()?;
        blocks.extend(ram.blocks().map(block));
        Some(Self {
            frames,
            blocks: blocks.into_boxed_slice(),
            held: (0..vcpus).map(|_| None).collect(),
            under_way: None,
        })
    }

    fn block_of(&mut self, gpa: Gpa) -> Option<&mut Block> {
        let start = gpa.align_down(BLOCK_BYTES);
        let at = self.blocks.binary_search_by_key(&start, |block| block.gpa);
        self.blocks.get_mut(at.ok()?)
    }

    /// Where the page at `gpa` is, if the VM has it, mapped or not.
    fn host(&mut self, ram: &GuestRam, gpa: Gpa) -> Option<Hpa> {
        match self.block_of(gpa) {
            Some(block) => block.hpa?.checked_add(gpa.get() % BLOCK_BYTES),
            None => ram.find(gpa, PAGE_BYTES),
        }
    }

    /// The change that was under way is known everywhere.
    fn complete(&mut self, vm: &Vm) {
        let Some(range) = self.under_way.take() else {
            return;
        };
        vm.stage2.lock().reclaim();
        for part in range.parts() {
            let empty = self.block_of(part.gpa).filter(|block| block.pages == 0);
            if let Some(hpa) = empty.and_then(|block| block.hpa.take()) {
                self.frames.give_block(hpa);
            }
        }
    }

    /// Whether anything had to be changed.
    fn apply(
        &mut self,
        vm: &Vm,
        request: Request,
        range: PageRange,
        clear: &impl Fn(Hpa, u64),
    ) -> Result<bool, CallError> {
        let held = |page: &Gpa| range.contains(*page);
        if request == Request::Release && self.held.iter().flatten().any(held) {
            return Err(CallError::InUse);
        }
        let mut changed = false;
        for part in range.parts() {
            changed |= match request {
                Request::Release => self.release(vm, part, clear)?,
                Request::Claim => self.claim(vm, part, clear)?,
                Request::Protect(access) => protect(vm, part, access, clear)?,
            };
        }
        Ok(changed)
    }

    fn release(
        &mut self,
        vm: &Vm,
        part: PageRange,
        clear: &impl Fn(Hpa, u64),
    ) -> Result<bool, CallError> {
        let untouched = part.is_block() && vm.ram.first_use(part.gpa, |_| true);
        if !untouched {
            vm.populate(part.gpa, clear);
        }
        let mut stage2 = vm.stage2.lock();
        let there = part
            .pages()
            .filter(|page| stage2.translate(*page).is_some());
        let pages = if untouched {
            BLOCK_PAGES
        } else {
            there.count() as u64
        };
        if pages > 0 {
            // Everything is forgotten, whatever the range.
            let _ = stage2.unmap(part.gpa, part.bytes).map_err(refusal)?;
        }
        if let Some(block) = self.block_of(part.gpa) {
            block.pages -= pages;
        }
        Ok(pages > 0)
    }

    fn claim(
        &mut self,
        vm: &Vm,
        part: PageRange,
        clear: &impl Fn(Hpa, u64),
    ) -> Result<bool, CallError> {
        if vm.populate(part.gpa, clear) {
            return Ok(false);
        }
        self.take_block(part.gpa)?;
        let absent = |vm: &Vm, gpa| vm.stage2.lock().translate(gpa).is_none();
        if part.is_block()
            && self
                .block_of(part.gpa)
                .is_some_and(|block| block.pages == 0)
        {
            self.put(vm, part, clear)?;
            return Ok(true);
        }
        let mut changed = false;
        for gpa in part.pages().filter(|gpa| absent(vm, *gpa)) {
            let bytes = PAGE_BYTES;
            self.put(vm, PageRange { gpa, bytes }, clear)?;
            changed = true;
        }
        Ok(changed)
    }

    /// Sees that there is a block of the machine's behind `gpa`, if one was.
    fn take_block(&mut self, gpa: Gpa) -> Result<(), CallError> {
        if self.block_of(gpa).is_some_and(|block| block.hpa.is_none()) {
            let hpa = self.frames.take_block().ok_or(CallError::NoMemory)?;
            if let Some(block) = self.block_of(gpa) {
                block.hpa = Some(hpa);
            }
        }
        Ok(())
    }

    /// Maps all of `part`, of which nothing is mapped, cleared.
    fn put(
        &mut self,
        vm: &Vm,
        part: PageRange,
        clear: &impl Fn(Hpa, u64),
    ) -> Result<(), CallError> {
        let hpa = self.host(&vm.ram, part.gpa).ok_or(CallError::NoMemory)?;
        clear(hpa, part.bytes);
        let mapped = vm.stage2.lock().map(part.gpa, hpa, part.bytes, Access::ALL);
        // A TLB that holds it as absent faults once more, and forgets it.
        let _ = mapped.map_err(refusal)?;
        if let Some(block) = self.block_of(part.gpa) {
            block.pages += part.bytes / PAGE_BYTES;
        }
        Ok(())
    }
}

fn protect(
    vm: &Vm,
    part: PageRange,
    access: Access,
    clear: &impl Fn(Hpa, u64),
) -> Result<bool, CallError> {
    vm.populate(part.gpa, clear);
    let mut stage2 = vm.stage2.lock();
    let otherwise = |found: Translation| found.access != access;
    let mut pages = part.pages();
    if !pages.any(|page| stage2.translate(page).is_some_and(otherwise)) {
        return Ok(false);
    }
    let _ = stage2
        .protect(part.gpa, part.bytes, access)
        .map_err(refusal)?;
    Ok(true)
}

const fn refusal(error: MapError) -> CallError {
    match error {
        MapError::OutOfFrames => CallError::NoMemory,
        _ => CallError::InvalidParameter,
    }
}

impl Vm {
    /// Brings `range` into the state that is asked for, on behalf of the
    /// vCPU `caller`, which forgets its own TLB entries before it enters the
    /// guest again. `clear` clears memory of the machine.
    ///
    /// # Errors
    /// [`CallError::InUse`]: it holds a vCPU's steal-time record.
    /// [`CallError::NoMemory`]: the machine has none left for this. What
    /// comes before the place where that showed is changed.
    pub fn change_memory(
        &self,
        caller: &VcpuShared,
        request: Request,
        range: PageRange,
        notifier: &impl Notifier,
        clear: impl Fn(Hpa, u64),
    ) -> Result<Progress, CallError> {
        let Some(mut memory) = self.memory.try_lock() else {
            return Ok(Progress::Wait);
        };
        if memory.under_way.is_some() && !self.all_have_forgotten(caller) {
            return Ok(Progress::Wait);
        }
        memory.complete(self);
        let changed = memory.apply(self, request, range, &clear);
        if changed == Ok(false) {
            return Ok(Progress::Done);
        }
        // Also where it failed half-way.
        memory.under_way = Some(range);
        for vcpu in &self.vcpus {
            vcpu.post(Posts::FLUSH, notifier);
        }
        changed?;
        if !self.all_have_forgotten(caller) {
            return Ok(Progress::Wait);
        }
        memory.complete(self);
        Ok(Progress::Done)
    }

    /// Whether no vCPU but `caller`, which is in the host, can still use an
    /// entry from before the last [`Posts::FLUSH`].
    fn all_have_forgotten(&self, caller: &VcpuShared) -> bool {
        let mut others = self.vcpus.iter().filter(|vcpu| vcpu.id != caller.id);
        others.all(|vcpu| vcpu.postbox.flushed())
    }

    /// The `bytes` bytes at `gpa`, which lie in one page of RAM, for the
    /// hypervisor to write to on behalf of `holder`, until it holds another
    /// place. `None` where nothing is there; then it holds what it held.
    pub fn hold(&self, holder: &VcpuShared, gpa: Gpa, bytes: u64) -> Option<GuestBuf> {
        let page = gpa.align_down(PAGE_BYTES);
        let offset = gpa.offset_from(page)?;
        // Nobody holds this lock for longer than a change takes.
        let mut memory = self.memory.lock();
        self.ram.find(gpa, bytes)?;
        let hpa = self.stage2.lock().translate(page)?.hpa;
        let buffer = GuestBuf::within_page(hpa, offset, bytes)?;
        *memory.held.get_mut(holder.index)? = Some(page);
        Some(buffer)
    }

    /// `holder` holds nothing any more.
    pub fn let_go(&self, holder: &VcpuShared) {
        if let Some(held) = self.memory.lock().held.get_mut(holder.index) {
            *held = None;
        }
    }
}

#[cfg(test)]
mod tests;
