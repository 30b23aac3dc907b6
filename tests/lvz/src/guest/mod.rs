//! A guest of the suite: a GID, a second stage, a program, a bank of CSRs.
//!
//! By default guest-physical addresses are physical ones, in 32 MiB pages,
//! and the guest runs in the same direct map windows as the suite, so its
//! programs are functions of the suite's own image. Its exception entries
//! lead to `hvcl`: what the guest handles by itself comes back as
//! [`VECTOR`] or [`REFILL`].

pub mod host_run;
pub mod memory;
pub mod programs;
pub mod refill;
pub mod switch;
pub mod table;

use crate::check::{Cpu, Failed};
use crate::machine::{LOW_RAM, MAX_CPUS, boot, phys_of, smp};
use crate::{arch, csrrd, csrwr, csrxchg, ensure_eq, gcsrrd, gcsrwr};
use core::arch::naked_asm;
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU64, Ordering};
use loongarch_isa::csr::{ESTAT, GCFG, GSTAT, GTLBC};
use loongarch_isa::exception::{Ecode, Interrupt};
use loongarch_isa::gpr::Gpr;
use memory::Tables;
use switch::{Exit, World};
use table::{Shape, Table, flag};
use tock_registers::LocalRegisterCopy;

/// A guest's program, or a host's to be run under the world switch.
pub type Program = extern "C" fn() -> !;

/// Defines a program in assembly.
#[macro_export]
macro_rules! program {
    ($(#[$doc:meta])* $visible:vis $name:ident: $($asm:tt)+) => {
        $(#[$doc])*
        #[unsafe(naked)]
        $visible extern "C" fn $name() -> ! {
            core::arch::naked_asm!($($asm)+)
        }
    };
}

/// `hvcl` code of a program that is done.
pub const DONE: u64 = 0x10;
/// `hvcl` code at the guest's general exception entries.
pub const VECTOR: u64 = 0x7001;
/// `hvcl` code at the guest's TLB refill entry.
pub const REFILL: u64 = 0x7002;

/// Host timer ticks that a guest gets at a time: 1 s.
const BUDGET: u64 = 1_000_000 * arch::TICKS_PER_US;
/// How often it gets them until it is given up. On a busy machine a CPU, or the
/// emulator's timers, may be held up for longer than one budget, but hardly
/// again and again.
const ATTEMPTS: usize = 20;
/// TCFG.EN; the value with its low two bits zero makes a one-shot of it.
const TCFG_EN: u64 = 1;
/// PRMD at entry: PIE, so that host interrupts are on in the guest.
pub const PIE: u64 = 1 << 2;

/// The guest's general exception entries: `hvcl` every 8 bytes, so that with
/// ECFG.VS = 1 the address of the exit tells the vector.
#[unsafe(naked)]
pub extern "C" fn vectors() -> ! {
    naked_asm!(
        ".p2align 12",
        ".rept 128",
        "hvcl {code}",
        "ertn",
        ".endr",
        code = const VECTOR,
    )
}

/// The guest's TLB refill entry.
#[unsafe(naked)]
extern "C" fn refill_vector() -> ! {
    naked_asm!(".p2align 12", "hvcl {code}", "ertn", code = const REFILL)
}

/// A GID and the second stage behind it.
#[derive(Clone, Copy)]
pub struct Vm {
    /// The GID, 1 to 255.
    pub gid: u64,
    /// The second stage.
    pub stage2: Table,
}

impl Vm {
    /// A fresh GID and an identity map of low RAM.
    pub fn new(tables: &mut Tables, shape: Shape) -> Vm {
        let mut stage2 = Table::new(shape, tables);
        let size = 1 << shape.base(1);
        for phys in (0..LOW_RAM).step_by(size) {
            stage2.map_huge(tables, phys, phys, flag::ALL, 1);
        }
        let gid = fresh_gid();
        Vm { gid, stage2 }
    }
}

/// Last GID given out on each CPU.
static GIDS: [AtomicU64; MAX_CPUS] = [const { AtomicU64::new(0) }; MAX_CPUS];

/// A GID that has no entries in this CPU's TLB: 1 to 255, then everything of
/// guests is flushed and it starts again.
pub fn fresh_gid() -> u64 {
    let last = &GIDS[smp::this_cpu()];
    let mut gid = last.load(Ordering::Relaxed) + 1;
    if gid > 255 {
        arch::tlb::invalidate::<{ arch::tlb::ALL_GUESTS }>(0, 0);
        gid = 1;
    }
    last.store(gid, Ordering::Relaxed);
    gid
}

/// A guest.
pub struct Guest {
    /// Registers and the last exit.
    pub world: World,
    /// GID and second stage in use.
    pub vm: Vm,
    /// Where its tables come from.
    pub tables: Tables,
    /// More bits of GTLBC at entry.
    pub gtlbc: u64,
}

impl Guest {
    /// A guest with everything at its default, in 16 KiB pages.
    pub fn new(cpu: &mut Cpu) -> Guest {
        Guest::shaped(cpu, Shape::P16K)
    }

    /// A guest whose second stage, and the host's walk with it, has this
    /// shape. The default shape comes back with the next guest.
    pub fn shaped(cpu: &mut Cpu, shape: Shape) -> Guest {
        use_shape(shape);
        reset_host_controls();
        reset_bank(cpu.index);
        let mut tables = Tables::new();
        let vm = Vm::new(&mut tables, shape);
        let mut world = World::new();
        world.prmd = PIE;
        world.pvm = switch::PVM;
        Guest {
            world,
            vm,
            tables,
            gtlbc: 0,
        }
    }

    /// Makes another GID with an identity map of its own.
    pub fn another_vm(&mut self) -> Vm {
        Vm::new(&mut self.tables, self.vm.stage2.shape())
    }

    /// Maps the page at guest-physical `gpa` to `phys` in the second stage.
    /// Whoever changes a mapping in use invalidates it.
    pub fn map(&mut self, gpa: u64, phys: u64, flags: u64) {
        self.vm.stage2.map(&mut self.tables, gpa, phys, flags);
    }

    /// Gives the guest paging of its own: a table in guest-physical memory,
    /// empty, for both halves, and a refill handler that walks it.
    pub fn first_stage(&mut self, shape: Shape) -> Table {
        let table = Table::new(shape, &mut self.tables);
        gcsrwr!(PGDL, table.root());
        gcsrwr!(PGDH, table.root());
        gcsrwr!(PWCL, shape.pwcl());
        gcsrwr!(PWCH, shape.pwch());
        gcsrwr!(STLBPS, u64::from(shape.page));
        gcsrwr!(TLBRENTRY, shape.bare_handler());
        table
    }

    /// Forgets what the TLB holds of guest-physical `gpa`.
    pub fn invalidate(&self, gpa: u64) {
        let pair = !(2 * self.vm.stage2.shape().page_bytes() - 1);
        arch::tlb::invalidate::<{ arch::tlb::GUEST_ADDRESS }>(self.vm.gid << 16, gpa & pair);
    }

    /// Starts at `program` next.
    pub fn start(&mut self, program: Program) -> &mut Guest {
        self.world.pc = program as *const () as u64;
        self
    }

    /// Gives a register a value.
    pub fn set(&mut self, register: Gpr, value: u64) -> &mut Guest {
        self.world.gprs.set(register, value);
        self
    }

    /// The value of a register.
    pub fn get(&self, register: Gpr) -> u64 {
        self.world.gprs.get(register)
    }

    /// Runs until something exits; if nothing does, until its budgets end.
    pub fn run(&mut self) -> Exit {
        let mut exit = self.run_budget();
        for _ in 1..ATTEMPTS {
            if !exit.out_of_budget() {
                break;
            }
            exit = self.run_budget();
        }
        exit
    }

    /// Runs for no longer than one budget.
    fn run_budget(&mut self) -> Exit {
        let line = Interrupt::TI.bit();
        csrwr!(TCFG, BUDGET | TCFG_EN);
        let before = csrxchg!(ECFG, line, line);
        let exit = self.enter();
        csrwr!(TCFG, 0);
        csrwr!(TICLR, 1);
        csrxchg!(ECFG, before, line);
        exit
    }

    /// Runs until something exits, with the host's timer and interrupt
    /// enables as they are.
    pub fn enter(&mut self) -> Exit {
        let gid = GSTAT::GID.val(self.vm.gid);
        csrxchg!(GSTAT, gid.value, gid.mask());
        let usetgid = GTLBC::USETGID::SET + GTLBC::TGID.val(self.vm.gid);
        self.world.gtlbc = self.gtlbc | usetgid.value;
        self.world.pgdl = self.vm.stage2.root();
        self.world.enter();
        self.world.pc = self.world.exit.era;
        self.world.exit
    }

    /// Runs on after the instruction that exited.
    pub fn skip(&mut self) -> &mut Guest {
        self.world.pc += 4;
        self
    }

    /// Runs until `hvcl` with this code; anything else fails the check.
    pub fn run_to_hvc(&mut self, code: u64) -> Result<Exit, Failed> {
        let exit = self.run();
        exit.expect_hvc(code)?;
        Ok(exit)
    }

    /// As [`Guest::run_to_hvc`], for a guest that works for longer than the
    /// budget: it goes on after each end of it.
    pub fn run_patiently(&mut self, code: u64) -> Result<Exit, Failed> {
        loop {
            let exit = self.run();
            if exit.ecode() != Ecode::Int.number() {
                return exit.expect_hvc(code).map(|()| exit);
            }
        }
    }

    /// Runs until the guest's own vector; fails unless it is for `ecode`.
    pub fn run_to_own(&mut self, ecode: Ecode) -> Result<Own, Failed> {
        self.run_to_hvc(VECTOR)?;
        let own = Own::read();
        ensure_eq!(own.ecode, ecode.number(), "guest's own ecode");
        Ok(own)
    }
}

impl Exit {
    /// ESTAT.Ecode.
    pub fn ecode(&self) -> u64 {
        LocalRegisterCopy::<u64, ESTAT::Register>::new(self.estat).read(ESTAT::ECODE)
    }

    /// Whether only the host's timer interrupted, of the lines enabled now
    /// and the timer's.
    pub fn out_of_budget(&self) -> bool {
        let timer = Interrupt::TI.bit();
        let others = csrrd!(ECFG) & ESTAT::IS.mask & !timer;
        self.ecode() == Ecode::Int.number() && self.estat & timer != 0 && self.estat & others == 0
    }

    /// Fails unless the exit is for `ecode`.
    pub fn expect(&self, ecode: Ecode) -> Result<(), Failed> {
        if self.ecode() != ecode.number() {
            return Err(crate::check::fail(format_args!(
                "exit: ecode {} at {:#x}, expected {} (badv {:#x}, badi {:#x}, guest estat {:#x} era {:#x} badv {:#x})",
                self.ecode(),
                self.era,
                ecode.number(),
                self.badv,
                self.badi,
                gcsrrd!(ESTAT),
                gcsrrd!(ERA),
                gcsrrd!(BADV),
            )));
        }
        Ok(())
    }

    /// Fails unless the exit is `hvcl` with this code.
    pub fn expect_hvc(&self, code: u64) -> Result<(), Failed> {
        self.expect(Ecode::Hvc)?;
        if self.badi & 0x7fff != code {
            return Err(crate::check::fail(format_args!(
                "exit: hvcl {:#x}, expected {code:#x} (guest estat {:#x} era {:#x} badv {:#x} badi {:#x})",
                self.badi & 0x7fff,
                gcsrrd!(ESTAT),
                gcsrrd!(ERA),
                gcsrrd!(BADV),
                gcsrrd!(BADI),
            )));
        }
        Ok(())
    }
}

/// The exception that the guest took by itself, from its own registers.
pub struct Own {
    /// ESTAT.Ecode.
    pub ecode: u64,
    /// ESTAT.EsubCode.
    pub esubcode: u64,
    /// ESTAT.IS.
    pub is: u64,
    /// ERA.
    pub era: u64,
    /// BADV.
    pub badv: u64,
    /// BADI.
    pub badi: u64,
    /// PRMD.
    pub prmd: u64,
    /// CRMD.
    pub crmd: u64,
}

impl Own {
    /// As the registers are now.
    pub fn read() -> Own {
        let estat = LocalRegisterCopy::<u64, ESTAT::Register>::new(gcsrrd!(ESTAT));
        Own {
            ecode: estat.read(ESTAT::ECODE),
            esubcode: estat.read(ESTAT::ESUBCODE),
            is: estat.read(ESTAT::IS),
            era: gcsrrd!(ERA),
            badv: gcsrrd!(BADV),
            badi: gcsrrd!(BADI),
            prmd: gcsrrd!(PRMD),
            crmd: gcsrrd!(CRMD),
        }
    }
}

/// Makes the host's walk, and thereby the second stages', of this shape.
pub fn use_shape(shape: Shape) {
    csrwr!(PWCL, shape.pwcl());
    csrwr!(PWCH, shape.pwch());
    csrwr!(TLBRENTRY, shape.host_handler());
    if csrrd!(STLBPS) != u64::from(shape.page) {
        // The STLB holds pages of one size: what it held before is garbage.
        arch::tlb::invalidate::<{ arch::tlb::ALL }>(0, 0);
        arch::tlb::invalidate::<{ arch::tlb::ALL_GUESTS }>(0, 0);
        csrwr!(STLBPS, u64::from(shape.page));
    }
}

/// The host's LVZ controls as a hypervisor sets them: dangerous CACOPs exit,
/// nothing injected, no offset, units off.
pub fn reset_host_controls() {
    csrwr!(GCFG, (GCFG::GCI.val(2) + GCFG::MATC.val(1)).value);
    csrwr!(GINTC, 0);
    csrwr!(GCNTC, 0);
    csrwr!(EUEN, 0);
}

/// The guest's bank at its default, all of it.
pub fn reset_bank(cpu: usize) {
    gcsrwr!(TCFG, 0);
    for csr in loongarch_isa::gcsr::HARDWARE {
        arch::code::guest_write(csr, 0);
    }
    gcsrwr!(TICLR, 1);
    gcsrwr!(LLBCTL, 2);
    gcsrwr!(CRMD, boot::MODE);
    gcsrwr!(EENTRY, vectors as *const () as u64);
    gcsrwr!(TLBRENTRY, phys_of(refill_vector as *const ()));
    gcsrwr!(dmw(0), boot::UNCACHED_WINDOW | PLV3_WINDOW);
    gcsrwr!(dmw(1), boot::CACHED_WINDOW | PLV3_WINDOW);
    gcsrwr!(CPUID, cpu as u64);
    gcsrwr!(STLBPS, u64::from(Shape::P16K.page));
    gcsrwr!(PWCL, Shape::P16K.pwcl());
    gcsrwr!(PWCH, Shape::P16K.pwch());
    gcsrwr!(PRCFG1, csrrd!(PRCFG1));
    gcsrwr!(PRCFG2, csrrd!(PRCFG2));
    gcsrwr!(PRCFG3, csrrd!(PRCFG3));
}

/// DMW.PLV3: programs run at level 3 too.
const PLV3_WINDOW: u64 = 1 << 3;

#[repr(C, align(16384))]
struct Empty([u64; 2048]);

/// The host's own page table while no check uses one: nothing is mapped.
static EMPTY: Empty = Empty([0; 2048]);

struct Log(UnsafeCell<refill::Log>);

// SAFETY: a CPU's refill handler writes that CPU's log; only this CPU reads
// it, by `log`.
unsafe impl Sync for Log {}

static LOGS: [Log; MAX_CPUS] = [const {
    Log(UnsafeCell::new(refill::Log {
        count: 0,
        badv: 0,
        gstat: 0,
        crmd: 0,
        prmd: 0,
        era: 0,
    }))
}; MAX_CPUS];

/// What this CPU's refill handler has seen so far.
pub fn log() -> refill::Log {
    // SAFETY: this CPU's log; volatile, since its refill handler writes it.
    unsafe { LOGS[smp::this_cpu()].0.get().read_volatile() }
}

/// What each CPU sets up once, as KVM does: all LVZ controls off, no entry in
/// the TLB, then USETGID.
pub fn set_up_this_cpu() {
    let empty = phys_of(&raw const EMPTY);
    csrwr!(PGDL, empty);
    csrwr!(PGDH, empty);
    csrwr!(save(6), phys_of(LOGS[smp::this_cpu()].0.get()));
    csrwr!(STLBPS, u64::from(Shape::P16K.page));
    csrwr!(PWCL, Shape::P16K.pwcl());
    csrwr!(PWCH, Shape::P16K.pwch());
    csrwr!(TLBRENTRY, Shape::P16K.host_handler());
    arch::tlb::invalidate::<{ arch::tlb::ALL }>(0, 0);
    if !has_lvz() {
        return;
    }
    csrwr!(GCFG, 0);
    csrwr!(GSTAT, 0);
    csrwr!(GINTC, 0);
    csrwr!(GTLBC, 0);
    arch::tlb::invalidate::<{ arch::tlb::ALL_GUESTS }>(0, 0);
    csrwr!(GTLBC, GTLBC::USETGID::SET.value);
}

/// CPUCFG2.LVZ.
pub fn has_lvz() -> bool {
    arch::cpucfg(2) & 1 << 10 != 0
}
