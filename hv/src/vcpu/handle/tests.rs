//! Exits against fake hardware.

mod devices;

use super::*;
use crate::isa::gpr::Gpr;
use crate::mm::addr::{Hpa, PAGE_BYTES};
use crate::mm::guest_mem::{GuestRam, RamRegion};
use crate::mm::phys::FakeMem;
use crate::mm::stage2::BLOCK_BYTES;
use crate::vcpu::StopReason;
use crate::vcpu::postbox::Notify;
use crate::vm::fake;
use alloc::boxed::Box;
use alloc::sync::Arc;
use core::cell::RefCell;
use guest_pv::abi::{hypercall, vendor};
use proptest::prelude::*;

#[derive(Default)]
struct Fake {
    privilege: u64,
    pending: u64,
    ticks: u64,
    injected: Vec<Exception>,
    applied: Vec<Apply>,
    forgotten: Vec<Gpa>,
    units: u32,
    cleared: RefCell<Vec<(Hpa, u64)>>,
    printed: RefCell<Vec<u8>>,
    told: RefCell<Vec<Notify>>,
}

impl Notifier for Fake {
    fn tell(&self, notify: Notify) {
        self.told.borrow_mut().push(notify);
    }
}

/// Where the fake's exception vector is.
const VECTOR: u64 = 0x5000;

impl Hardware for Fake {
    fn privilege(&self) -> u64 {
        self.privilege
    }

    fn pending(&self) -> u64 {
        self.pending
    }

    fn inject(&mut self, _: u64, exception: &Exception) -> u64 {
        self.injected.push(*exception);
        VECTOR
    }

    fn apply(&mut self, change: &Apply) {
        self.applied.push(*change);
    }

    fn forget(&mut self, _: &Vcpu, gpa: Gpa) {
        self.forgotten.push(gpa);
    }

    fn clear(&self, hpa: Hpa, bytes: u64) {
        self.cleared.borrow_mut().push((hpa, bytes));
    }

    fn load_units(&mut self, vcpu: &mut Vcpu) {
        vcpu.units_loaded = true;
        self.units += 1;
    }

    fn host_interrupt(&mut self, _: u64) -> Resume {
        Resume::Yield(Yield::Preempted)
    }

    fn ticks(&self) -> u64 {
        self.ticks
    }

    fn console(&self, _: &Vm, byte: u8) {
        self.printed.borrow_mut().push(byte);
    }
}

const RAM_BYTES: u64 = 16 * PAGE_BYTES;
const PC: u64 = 0x1000;

fn vcpu() -> Vcpu {
    let region = RamRegion {
        gpa: Gpa::new(0),
        hpa: Hpa::new(0x4000_0000),
        bytes: RAM_BYTES,
    };
    vcpu_with(GuestRam::new(vec![region]).unwrap())
}

fn vcpu_with(ram: GuestRam) -> Vcpu {
    let vm = fake::vm(ram, Box::new(()));
    let mut vcpu = Vcpu::new(Arc::new(vm), 0).unwrap();
    vcpu.start(Gpa::new(PC), [0; 3]);
    vcpu
}

fn exit(vcpu: &mut Vcpu, fake: &mut Fake, ecode: u64, badv: u64, badi: u32) -> Resume {
    let info = ExitInfo {
        estat: ecode << 16,
        badv,
        badi: badi.into(),
    };
    handle(vcpu, info, fake)
}

const GSPR: u64 = 22;
const HVC: u64 = 23;
const HVCL: u32 = 0x002b_8100;
const UART: u64 = 0x1fe0_01e0;
/// cpucfg a0, a1.
const CPUCFG: u32 = 0x0000_6ca4;
/// iocsrrd.w a0, a1; iocsrwr.w a0, a1.
const IOCSR_READ: u32 = 0x0648_08a4;
const IOCSR_WRITE: u32 = 0x0648_18a4;

#[test]
fn each_instruction_moves_the_pc_once() {
    for (ecode, word) in [
        (GSPR, CPUCFG),
        (GSPR, IOCSR_READ),
        (GSPR, 0x0602_0000),
        (HVC, HVCL),
    ] {
        let (mut vcpu, mut fake) = (vcpu(), Fake::default());
        assert_eq!(exit(&mut vcpu, &mut fake, ecode, 0, word), Resume::Guest);
        assert_eq!(vcpu.context.pc, PC + 4, "{word:#x}");
        assert!(fake.injected.is_empty());
    }
}

#[test]
fn cpucfg_reads_the_filtered_table() {
    let (mut vcpu, mut fake) = (vcpu(), Fake::default());
    vcpu.context.gprs.set(Gpr::A1, 0x4000_0000);
    let _ = exit(&mut vcpu, &mut fake, GSPR, 0, CPUCFG);
    assert_eq!(vcpu.context.gprs.get(Gpr::A0), 0x004d_564b);
    assert_eq!(vcpu.shared().stats.exits(ExitReason::Cpucfg), 1);
}

#[test]
fn native_ipis_reach_their_target_and_wake_it() {
    let (mut vcpu, mut fake) = (vcpu(), Fake::default());
    let other = Vcpu::new(vcpu.vm().clone(), 1).unwrap();
    assert!(other.go_to_sleep(0));
    vcpu.context.gprs.set(Gpr::A1, 0x1040);
    vcpu.context.gprs.set(Gpr::A0, 0x8005_0000);
    let _ = exit(&mut vcpu, &mut fake, GSPR, 0, IOCSR_WRITE);
    assert_eq!(*fake.told.borrow(), [Notify::Wake(7)]);
    assert_eq!(other.shared().ipi.status(), 1);
    // An id that nobody has.
    vcpu.context.gprs.set(Gpr::A0, 0x0006_0000);
    let _ = exit(&mut vcpu, &mut fake, GSPR, 0, IOCSR_WRITE);
    assert_eq!(fake.told.borrow().len(), 1);
    assert_eq!(vcpu.context.pc, PC + 8);
}

#[test]
fn an_ipi_to_oneself_raises_the_line_at_once() {
    let (mut vcpu, mut fake) = (vcpu(), Fake::default());
    for (offset, value) in [(0x1004, 0xff), (0x1008, 4), (0x100c, 4)] {
        vcpu.context.gprs.set(Gpr::A1, offset);
        vcpu.context.gprs.set(Gpr::A0, value);
        let _ = exit(&mut vcpu, &mut fake, GSPR, 0, IOCSR_WRITE);
    }
    let line = Interrupt::IPI.bit();
    let levels: Vec<(u64, u64)> = fake
        .applied
        .iter()
        .map(|a| (a.estat_mask, a.estat))
        .collect();
    assert_eq!(levels, [(line, 0), (line, line), (line, 0)]);
}

#[test]
fn paravirtual_ipis_reach_their_target() {
    let (mut vcpu, mut fake) = (vcpu(), Fake::default());
    for (register, value) in [(Gpr::A0, hypercall::SEND_IPI), (Gpr::A1, 1 << 5)] {
        vcpu.context.gprs.set(register, value);
    }
    assert_eq!(exit(&mut vcpu, &mut fake, HVC, 0, HVCL), Resume::Guest);
    assert_eq!(vcpu.context.gprs.get(Gpr::A0), 0);
    assert_eq!(vcpu.vm().vcpus()[1].postbox.take().lines(), 1);
    assert_eq!(vcpu.vm().vcpus()[0].postbox.take().lines(), 0);
}

#[test]
fn user_mode_has_no_hypercalls() {
    let (mut vcpu, mut fake) = (vcpu(), Fake::default());
    fake.privilege = 3;
    vcpu.context.gprs.set(Gpr::A0, vendor::STOP);
    assert_eq!(exit(&mut vcpu, &mut fake, HVC, 0, HVCL), Resume::Guest);
    assert_eq!(vcpu.context.gprs.get(Gpr::A0), u64::MAX);
    fake.privilege = 0;
    vcpu.context.gprs.set(Gpr::A0, vendor::STOP);
    assert_eq!(exit(&mut vcpu, &mut fake, HVC, 0, HVCL), Resume::Stop);
    assert_eq!(vcpu.vm().stopped(), Some(StopReason::Asked(0)));
}

#[test]
fn idle_sleeps_unless_something_is_pending() {
    let (mut vcpu, mut fake) = (vcpu(), Fake::default());
    fake.pending = 1;
    assert_eq!(
        exit(&mut vcpu, &mut fake, GSPR, 0, 0x0648_8000),
        Resume::Guest
    );
    fake.pending = 0;
    let sleep = Resume::Yield(Yield::Sleep);
    assert_eq!(exit(&mut vcpu, &mut fake, GSPR, 0, 0x0648_8000), sleep);
    assert!(vcpu.waiting);
    assert_eq!(vcpu.context.pc, PC + 8);
}

#[test]
fn units_are_loaded_once_and_only_where_offered() {
    let (mut vcpu, mut fake) = (vcpu(), Fake::default());
    assert_eq!(
        exit(&mut vcpu, &mut fake, 15, 0, 0x0100_0000),
        Resume::Guest
    );
    assert_eq!((fake.units, vcpu.context.pc), (1, PC));
    let _ = exit(&mut vcpu, &mut fake, 20, 0, 0x0080_0000);
    assert_eq!(fake.injected, [Exception::no_such_instruction(0x0080_0000)]);
    assert_eq!((fake.units, vcpu.context.pc), (1, VECTOR));
}

#[test]
fn stores_to_the_uart_are_printed() {
    let (mut vcpu, mut fake) = (vcpu(), Fake::default());
    vcpu.context.gprs.set(Gpr::A0, u64::from(b'!'));
    // st.b a0, a1, 0; ld.bu a2, a1, 5.
    let _ = exit(&mut vcpu, &mut fake, 2, UART, 0x2900_00a4);
    let _ = exit(&mut vcpu, &mut fake, 1, UART + 5, 0x2a00_14a6);
    assert_eq!(*fake.printed.borrow(), b"!");
    assert_eq!(vcpu.context.gprs.get(Gpr::A2), 0x60);
    assert_eq!(vcpu.context.pc, PC + 8);
    assert_eq!(vcpu.shared().stats.exits(ExitReason::Mmio), 2);
}

#[test]
fn addresses_of_nobody_are_the_guest_s_fault() {
    let (mut vcpu, mut fake) = (vcpu(), Fake::default());
    for at in [
        RAM_BYTES,
        0x2000_0000,
        UART + 0xfd,
        (1 << 48) - 8,
        1 << 48,
        u64::MAX,
    ] {
        // ld.w a0, a1, 0.
        let _ = exit(&mut vcpu, &mut fake, 1, at, 0x2880_00a4);
        let fault = Exception::bad_address(at, 0x2880_00a4);
        assert_eq!(fake.injected.pop(), Some(fault), "{at:#x}");
    }
    vcpu.context.pc = PC;
    let _ = exit(&mut vcpu, &mut fake, 3, UART, 0);
    assert_eq!(fake.injected.pop(), Some(Exception::bad_fetch(PC, 0)));
    // An atomic on a device.
    let _ = exit(&mut vcpu, &mut fake, 2, UART, 0x3860_0085);
    let fault = Exception::bad_address(UART, 0x3860_0085);
    assert_eq!(fake.injected.pop(), Some(fault));
}

#[test]
fn a_stale_entry_is_forgotten_and_the_access_tried_again() {
    let (mut vcpu, mut fake) = (vcpu(), Fake::default());
    let _ = exit(&mut vcpu, &mut fake, 2, RAM_BYTES - 8, 0);
    assert_eq!(fake.forgotten, [Gpa::new(RAM_BYTES - 8)]);
    assert_eq!((fake.injected.len(), vcpu.context.pc), (0, PC));
}

#[test]
fn a_store_to_what_is_read_only_is_the_guest_s_fault() {
    use crate::mm::pte::Access;
    let (mut vcpu, mut fake) = (vcpu(), Fake::default());
    let page = Gpa::new(0);
    let changed = vcpu
        .vm()
        .stage2()
        .lock()
        .protect(page, PAGE_BYTES, Access::READ);
    assert!(changed.is_ok());
    let _ = exit(&mut vcpu, &mut fake, 4, 8, 0x2980_00a4);
    assert_eq!(fake.injected, [Exception::bad_address(8, 0x2980_00a4)]);
    let _ = exit(&mut vcpu, &mut fake, 6, 8, 0);
    assert_eq!(fake.injected.pop(), Some(Exception::bad_fetch(VECTOR, 0)));
}

proptest! {
    #[test]
    fn no_exit_is_too_much(
        ecode in 0u64..64, badv: u64, badi: u32, gprs: [u64; 32], privilege in 0u64..4,
    ) {
        let (mut vcpu, mut fake) = (vcpu(), Fake { privilege, ..Fake::default() });
        for (number, value) in (0..32).zip(gprs) {
            vcpu.context.gprs.set(Gpr::from_field(number), value);
        }
        let _ = exit(&mut vcpu, &mut fake, ecode, badv, badi);
        let pc = vcpu.context.pc;
        prop_assert!(pc == PC || pc == PC + 4 || pc == VECTOR);
    }
}

/// Two blocks of RAM that nobody has used.
fn fresh_vcpu() -> Vcpu {
    let region = RamRegion {
        gpa: Gpa::new(0),
        hpa: Hpa::new(4 * BLOCK_BYTES),
        bytes: 2 * BLOCK_BYTES,
    };
    let ram = GuestRam::uncleared(vec![region], &mut FakeMem(Vec::new())).unwrap();
    vcpu_with(ram)
}

#[test]
fn ram_is_cleared_and_mapped_at_its_first_use() {
    let (mut vcpu, mut fake) = (fresh_vcpu(), Fake::default());
    let at = BLOCK_BYTES + 0x1238;
    let mapped = |vcpu: &Vcpu, gpa| vcpu.vm().stage2().lock().translate(Gpa::new(gpa));
    assert!(mapped(&vcpu, 0).is_none() && mapped(&vcpu, at).is_none());
    for _ in 0..2 {
        let resume = exit(&mut vcpu, &mut fake, Ecode::Pis.number(), at, 0);
        assert_eq!((resume, vcpu.context.pc), (Resume::Guest, PC));
    }
    let block = (Hpa::new(5 * BLOCK_BYTES), BLOCK_BYTES);
    assert_eq!(*fake.cleared.borrow(), [block]);
    assert_eq!(fake.forgotten, [Gpa::new(at); 2]);
    assert!(mapped(&vcpu, at).unwrap().block && mapped(&vcpu, 0).is_none());
    assert!(fake.injected.is_empty());
}

#[test]
fn a_steal_record_is_a_use_of_its_block() {
    let (mut vcpu, mut fake) = (fresh_vcpu(), Fake::default());
    let arguments = [
        (Gpr::A0, hypercall::NOTIFY),
        (Gpr::A1, hypercall::NOTIFY_STEAL_TIME),
        (Gpr::A2, 0x4001),
    ];
    for (register, value) in arguments {
        vcpu.context.gprs.set(register, value);
    }
    let code = u32::from(hypercall::CODE_SERVICE);
    assert_eq!(exit(&mut vcpu, &mut fake, HVC, 0, code), Resume::Guest);
    assert_eq!(vcpu.context.gprs.get(Gpr::A0), 0);
    assert_eq!(fake.cleared.borrow().len(), 1);
    let mapping = vcpu.vm().stage2().lock().translate(Gpa::new(0x4000));
    assert_eq!(mapping.unwrap().hpa, Hpa::new(4 * BLOCK_BYTES + 0x4000));
}

#[test]
fn memory_that_the_guest_gives_back_is_an_address_error() {
    let (mut vcpu, mut fake) = (fresh_vcpu(), Fake::default());
    let code = u32::from(hypercall::CODE_SERVICE);
    let mut call = |vcpu: &mut Vcpu, function, gpa, bytes| {
        for (register, value) in [(Gpr::A0, function), (Gpr::A1, gpa), (Gpr::A2, bytes)] {
            vcpu.context.gprs.set(register, value);
        }
        let resume = exit(vcpu, &mut fake, HVC, 0, code);
        (resume, vcpu.context.gprs.get(Gpr::A0))
    };
    let other = Vcpu::new(vcpu.vm().clone(), 1).unwrap();
    let page = (0x4000, PAGE_BYTES);
    let release = vendor::MEMORY_RELEASE;
    let bad = CallError::InvalidParameter.register();
    assert_eq!(call(&mut vcpu, release, 0x4001, PAGE_BYTES).1, bad);
    let pc = vcpu.context.pc;
    let _ = other.enter_guest();
    let resume = Resume::Yield(Yield::Retry);
    assert_eq!(call(&mut vcpu, release, page.0, page.1), (resume, release));
    assert_eq!(vcpu.context.pc, pc);
    // Its own entries are forgotten before it goes on.
    assert!(vcpu.shared().postbox.take().any(Posts::FLUSH));
    other.leave_guest();
    assert_eq!(call(&mut vcpu, release, page.0, page.1), (Resume::Guest, 0));
    assert_eq!(vcpu.context.pc, pc + 4);
    let mut fake = Fake::default();
    let _ = exit(&mut vcpu, &mut fake, Ecode::Pil.number(), 0x4008, 0);
    assert_eq!(fake.injected, [Exception::bad_address(0x4008, 0)]);
}
