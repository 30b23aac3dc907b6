//! Changes of a VM's RAM against a plain model, with vCPUs anywhere.

use super::*;
use crate::mm::guest_mem::RamRegion;
use crate::vcpu::postbox::{Notify, Owner};
use crate::vm::fake;
use alloc::sync::Arc;
use core::cell::Cell;
use proptest::prelude::*;
use spin::Mutex;

const P: u64 = PAGE_BYTES;
/// Two blocks that nobody has used, one page less than a block in one piece,
/// and the rest of the RAM, in another, which is no block either.
const RAM_BYTES: u64 = 3 * BLOCK_BYTES;
const PAGES: usize = (RAM_BYTES / P) as usize;
const WHOLE_BLOCKS: usize = 2;

fn ram() -> GuestRam {
    let region = |gpa, hpa, bytes| RamRegion {
        gpa: Gpa::new(gpa),
        hpa: Hpa::new(hpa),
        bytes,
    };
    let regions = vec![
        region(0, 4 * BLOCK_BYTES, 2 * BLOCK_BYTES),
        region(2 * BLOCK_BYTES, 8 * BLOCK_BYTES, BLOCK_BYTES - P),
        region(3 * BLOCK_BYTES - P, 9 * BLOCK_BYTES, P),
    ];
    let mut memory = Zeroed;
    GuestRam::uncleared(regions, &mut memory).unwrap()
}

/// Memory of which nobody wants to know anything.
struct Zeroed;

impl crate::mm::phys::PhysMem for Zeroed {
    fn read(&self, _: Hpa, _: &mut [u8]) {}
    fn write(&mut self, _: Hpa, _: &[u8]) {}
    fn zero(&mut self, _: Hpa, _: u64) {}
}

/// The machine's side: blocks that the VM has, and how many are left.
#[derive(Debug)]
struct Shelf {
    taken: Vec<Hpa>,
    left: u64,
    next: u64,
    given: u64,
}

impl Default for Shelf {
    fn default() -> Self {
        Self {
            taken: [4, 5].map(|n| Hpa::new(n * BLOCK_BYTES)).to_vec(),
            left: 1,
            next: 100,
            given: 0,
        }
    }
}

#[derive(Clone, Debug, Default)]
struct Machine(Arc<Mutex<Shelf>>);

impl RamFrames for Machine {
    fn give_block(&mut self, hpa: Hpa) {
        let mut shelf = self.0.lock();
        let at = shelf.taken.iter().position(|&taken| taken == hpa);
        shelf.taken.swap_remove(at.expect("a block of the VM's"));
        shelf.left += 1;
        shelf.given += 1;
    }

    fn take_block(&mut self) -> Option<Hpa> {
        let mut shelf = self.0.lock();
        shelf.left = shelf.left.checked_sub(1)?;
        shelf.next += 1;
        let hpa = Hpa::new(shelf.next * BLOCK_BYTES);
        shelf.taken.push(hpa);
        Some(hpa)
    }
}

struct Silent;

impl Notifier for Silent {
    fn tell(&self, _: Notify) {}
}

/// A VM, whose vCPU 0 calls and whose other one does as it likes.
struct Bench {
    vm: Vm,
    machine: Machine,
    cleared: Cell<u64>,
}

impl Bench {
    fn new() -> Self {
        let machine = Machine::default();
        Self {
            vm: fake::vm(ram(), Box::new(machine.clone())),
            machine,
            cleared: Cell::new(0),
        }
    }

    fn call(&self, request: Request, gpa: u64, bytes: u64) -> Result<Progress, CallError> {
        let range = PageRange::new(&self.vm.ram, gpa, bytes);
        let range = range.ok_or(CallError::InvalidParameter)?;
        let clear = |_, bytes| self.cleared.set(self.cleared.get() + bytes);
        let caller = &self.vm.vcpus()[0];
        self.vm
            .change_memory(caller, request, range, &Silent, clear)
    }

    /// What may be done with the page, `None` where it isn't there. A block
    /// that nobody has used is there.
    fn page(&self, gpa: u64) -> Option<Access> {
        let gpa = Gpa::new(gpa);
        let fresh = self.vm.ram.fresh();
        let in_fresh = |block: &RamRegion| block.gpa == gpa.align_down(BLOCK_BYTES);
        if fresh.iter().any(in_fresh) {
            return Some(Access::ALL);
        }
        let found = self.vm.stage2().lock().translate(gpa);
        found.map(|found| found.access)
    }

    fn left(&self) -> u64 {
        self.machine.0.lock().left
    }
}

const DONE: Result<Progress, CallError> = Ok(Progress::Done);
const WAIT: Result<Progress, CallError> = Ok(Progress::Wait);

#[test]
fn ranges_are_whole_pages_of_ram() {
    let ram = ram();
    for (gpa, bytes) in [
        (0, 0),
        (0, P + 1),
        (1, P),
        (0, BLOCK_BYTES + P),
        (RAM_BYTES, P),
        (RAM_BYTES - P, 2 * P),
        (u64::MAX - P + 1, P),
        (0, u64::MAX - P + 1),
        (1 << 63, P),
    ] {
        assert_eq!(
            PageRange::new(&ram, gpa, bytes),
            None,
            "{gpa:#x} {bytes:#x}"
        );
    }
    // From one piece into the next.
    let range = PageRange::new(&ram, 2 * BLOCK_BYTES + P, BLOCK_BYTES - P).unwrap();
    assert_eq!(range.pages().count() as u64, BLOCK_PAGES - 1);
}

#[test]
fn a_block_goes_back_once_every_vcpu_has_forgotten_it() {
    let bench = Bench::new();
    let other = &bench.vm.vcpus()[1];
    let owner = Owner::new(7);
    // It is used, so that it is mapped.
    assert!(bench.vm.populate(Gpa::new(0), |_, _| {}));
    let _ = other.postbox.enter(&owner);
    assert_eq!(bench.call(Request::Release, 0, BLOCK_BYTES), WAIT);
    assert_eq!((bench.left(), bench.page(0)), (1, None));
    // Another change has to wait too, whoever asks.
    assert_eq!(bench.call(Request::Claim, 0, P), WAIT);
    assert_eq!(bench.page(0), None);
    assert!(other.postbox.take().any(Posts::FLUSH));
    assert_eq!(bench.call(Request::Release, 0, BLOCK_BYTES), DONE);
    assert_eq!(bench.left(), 2);
    // One page of it takes a block again, and is cleared.
    assert_eq!(bench.call(Request::Claim, P, P), WAIT);
    let _ = other.postbox.take();
    assert_eq!(bench.call(Request::Claim, P, P), DONE);
    assert_eq!((bench.left(), bench.cleared.get()), (1, P));
    assert_eq!((bench.page(0), bench.page(P)), (None, Some(Access::ALL)));
    // It goes back with its last page.
    other.postbox.leave();
    assert_eq!(bench.call(Request::Release, 0, 4 * P), DONE);
    assert_eq!(bench.left(), 2);
}

#[test]
fn a_block_that_nobody_used_goes_back_as_it_is() {
    let bench = Bench::new();
    assert_eq!(bench.call(Request::Release, BLOCK_BYTES, BLOCK_BYTES), DONE);
    assert_eq!((bench.left(), bench.cleared.get()), (2, 0));
    assert_eq!(bench.page(BLOCK_BYTES), None);
    assert!(!bench.vm.populate(Gpa::new(BLOCK_BYTES), |_, _| {}));
    // A part of one is used first.
    assert_eq!(bench.call(Request::Release, 0, P), DONE);
    assert_eq!((bench.left(), bench.cleared.get()), (2, BLOCK_BYTES));
    assert_eq!((bench.page(0), bench.page(P)), (None, Some(Access::ALL)));
}

#[test]
fn what_the_machine_has_not_cannot_be_claimed() {
    let bench = Bench::new();
    assert_eq!(bench.call(Request::Release, 0, BLOCK_BYTES), DONE);
    bench.machine.0.lock().left = 0;
    let refused = Err(CallError::NoMemory);
    assert_eq!(bench.call(Request::Claim, 0, BLOCK_BYTES), refused);
    // Of the block that is there, all is there.
    let into_it = bench.call(Request::Claim, BLOCK_BYTES - P, 2 * P);
    assert_eq!((into_it, bench.page(0)), (refused, None));
    bench.machine.0.lock().left = 1;
    assert_eq!(bench.call(Request::Claim, 0, BLOCK_BYTES), DONE);
    assert_eq!((bench.left(), bench.cleared.get()), (0, BLOCK_BYTES));
    let mapping = bench.vm.stage2().lock().translate(Gpa::new(0)).unwrap();
    assert!(mapping.block && mapping.hpa == Hpa::new(101 * BLOCK_BYTES));
}

#[test]
fn a_page_with_a_steal_record_is_held() {
    let bench = Bench::new();
    let holder = &bench.vm.vcpus()[1];
    let hold = |gpa, bytes| bench.vm.hold(holder, Gpa::new(gpa), bytes);
    assert!(bench.vm.populate(Gpa::new(0), |_, _| {}));
    assert_eq!(hold(P - 32, 64), None);
    assert_eq!(hold(RAM_BYTES, 64), None);
    let record = hold(P + 64, 64).unwrap();
    let expected = GuestBuf::within_page(Hpa::new(4 * BLOCK_BYTES + P), 64, 64);
    assert_eq!(Some(record), expected);
    assert_eq!(
        bench.call(Request::Release, 0, BLOCK_BYTES),
        Err(CallError::InUse)
    );
    assert_eq!(bench.call(Request::Release, 0, P), DONE);
    // Where nothing is, nothing is held, and the old place stays.
    assert_eq!(hold(64, 64), None);
    assert_eq!(bench.call(Request::Release, P, P), Err(CallError::InUse));
    bench.vm.let_go(holder);
    assert_eq!(bench.call(Request::Release, P, P), DONE);
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Call(Request, u64, u64),
    Enter,
    Take,
    Leave,
    Touch(u64),
}

fn request() -> impl Strategy<Value = Request> {
    let access = |(write, execute)| Request::Protect(Access { write, execute });
    prop_oneof![
        3 => Just(Request::Release),
        3 => Just(Request::Claim),
        1 => any::<(bool, bool)>().prop_map(access),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let start = prop_oneof![
        0..PAGES as u64,
        (0..3u64).prop_map(|block| block * BLOCK_PAGES),
        (1..=3u64).prop_map(|block| block * BLOCK_PAGES - 1),
    ];
    let pages = prop_oneof![1..4u64, Just(BLOCK_PAGES), 1..=BLOCK_PAGES];
    prop_oneof![
        4 => (request(), start.clone(), pages).prop_map(|(r, s, n)| Step::Call(r, s, n)),
        1 => Just(Step::Enter),
        2 => Just(Step::Take),
        1 => Just(Step::Leave),
        1 => start.prop_map(Step::Touch),
    ]
}

/// What the model knows: pages, and whether the machine has each whole block.
struct Model {
    pages: Vec<Option<Access>>,
    gone: [bool; WHOLE_BLOCKS],
}

impl Model {
    /// The call has been carried out.
    fn carry_out(&mut self, request: Request, pages: core::ops::Range<usize>) {
        for page in self.pages.get_mut(pages).unwrap() {
            *page = match (request, *page) {
                (Request::Release, _) => None,
                (Request::Claim, None) => Some(Access::ALL),
                (Request::Claim, page) => page,
                (Request::Protect(access), page) => page.map(|_| access),
            };
        }
        for (block, gone) in self.gone.iter_mut().enumerate() {
            let first = block * BLOCK_PAGES as usize;
            let mut pages = self.pages[first..first + BLOCK_PAGES as usize].iter();
            *gone = pages.all(Option::is_none);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// A call that is done has done all of it; nothing goes back to the
    /// machine while a vCPU may still use it, and in the end nothing is lost.
    #[test]
    fn memory_agrees_with_a_plain_model(steps in prop::collection::vec(step(), 1..40)) {
        let bench = Bench::new();
        bench.machine.0.lock().left = 2;
        let (other, owner) = (&bench.vm.vcpus()[1], Owner::new(7));
        let mut model = Model { pages: vec![Some(Access::ALL); PAGES], gone: [false; WHOLE_BLOCKS] };
        for step in steps {
            match step {
                Step::Enter => { let _ = other.postbox.enter(&owner); }
                Step::Take => { let _ = other.postbox.take(); }
                Step::Leave => other.postbox.leave(),
                Step::Touch(page) => { bench.vm.populate(Gpa::new(page * P), |_, _| {}); }
                Step::Call(request, start, pages) => {
                    let pages = pages.min(PAGES as u64 - start);
                    let range = start as usize..(start + pages) as usize;
                    let mut waits = 0;
                    loop {
                        let given = bench.machine.0.lock().given;
                        let stale = !other.postbox.flushed();
                        let result = bench.call(request, start * P, pages * P);
                        if stale {
                            prop_assert_eq!(bench.machine.0.lock().given, given);
                        }
                        match result {
                            Ok(Progress::Done) => break,
                            // Once for the change before, once for this one.
                            Ok(Progress::Wait) => {
                                waits += 1;
                                prop_assert!(waits <= 2);
                                let _ = other.postbox.take();
                            }
                            Err(error) => prop_assert!(false, "{:?}", error),
                        }
                    }
                    prop_assert!(other.postbox.flushed());
                    model.carry_out(request, range.clone());
                    for page in range {
                        prop_assert_eq!(bench.page(page as u64 * P), model.pages[page]);
                    }
                }
            }
        }
        for (page, wanted) in model.pages.iter().enumerate() {
            prop_assert_eq!(bench.page(page as u64 * P), *wanted, "page {}", page);
        }
        // What is there lies in blocks that the VM has.
        let shelf = bench.machine.0.lock();
        let gone = model.gone.iter().filter(|gone| **gone).count();
        prop_assert_eq!(shelf.taken.len(), WHOLE_BLOCKS - gone);
        for block in (0..WHOLE_BLOCKS as u64).map(|block| block * BLOCK_BYTES) {
            let found = bench.vm.stage2().lock().translate(Gpa::new(block));
            let at = found.map(|found| found.hpa.align_down(BLOCK_BYTES));
            prop_assert!(at.is_none_or(|at| shelf.taken.contains(&at)));
        }
    }
}
