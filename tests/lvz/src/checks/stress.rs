//! Long random runs.

use crate::arch::{self, code, encode};
use crate::check::{Check, Cpu, Outcome};
use crate::guest::memory::{self, page};
use crate::guest::programs::{count_ticks, load};
use crate::guest::table::{Shape, flag};
use crate::guest::{DONE, Guest, VECTOR, fresh_gid};
use crate::machine::{boot, cached};
use crate::{csrwr, csrxchg, ensure, ensure_eq, gcsrrd, gcsrwr, program};
use loongarch_isa::csr::Csr;
use loongarch_isa::exception::{Ecode, Interrupt};
use loongarch_isa::gpr::{Gpr, Gprs};

/// This group.
pub const CHECKS: &[Check] = &[
    Check::every("stress.exits", exits),
    Check::every("stress.interrupted_loop", interrupted_loop),
    Check::every("stress.gid_wrap", gid_wrap),
    Check::every("stress.maps", maps),
];

/// Kinds of exits that [`exits`] mixes.
const KINDS: [u32; 6] = [
    encode::hvcl(DONE as u32),
    encode::cpucfg(Gpr::ZERO, Gpr::ZERO),
    encode::idle(0),
    encode::SYSCALL,
    encode::csrrd(Gpr::ZERO, Csr::IMPCTL1),
    encode::iocsr(2, Gpr::ZERO, Gpr::ZERO),
];

/// Random registers through random exits: nothing changes, and every exit is
/// what its instruction says.
fn exits(cpu: &mut Cpu) -> Outcome {
    let mut guest = Guest::new(cpu);
    for round in 0..400 {
        let mut before = Gprs::new();
        for n in 1..32 {
            before.set(Gpr::from_field(n), cpu.rng.next());
        }
        guest.world.gprs = before;
        let word = KINDS[cpu.rng.below(KINDS.len() as u64) as usize];
        guest.world.pc = code::write(&[word]);
        gcsrwr!(CRMD, boot::MODE);
        let exit = guest.run();
        match word {
            encode::SYSCALL => exit.expect_hvc(VECTOR)?,
            word if word == KINDS[0] => exit.expect_hvc(DONE)?,
            _ => exit.expect(Ecode::Gspr)?,
        }
        for n in 0..32 {
            let r = Gpr::from_field(n);
            ensure_eq!(guest.get(r), before.get(r), "round {round}, r{n}");
        }
    }
    Ok(())
}

program!(
    /// a0 = a0 × 6364136223846793005 + 1442695040888963407, a1 times; each
    /// value also goes through memory at a2.
    generate:
    "li.d $t0, 6364136223846793005",
    "li.d $t1, 1442695040888963407",
    "1: mul.d $a0, $a0, $t0",
    "add.d $a0, $a0, $t1",
    "andi $t2, $a0, 0x7f8",
    "add.d $t2, $t2, $a2",
    "st.d $a0, $t2, 0",
    "ld.d $a0, $t2, 0",
    "addi.d $a1, $a1, -1",
    "bnez $a1, 1b",
    "hvcl 0x10",
);

/// What [`generate`] must come to after `steps`.
fn generated(seed: u64, steps: u64) -> u64 {
    (0..steps).fold(seed, |x, _| {
        x.wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407)
    })
}

/// 50 to 250 µs of a timer.
fn random_ticks(cpu: &mut Cpu) -> u64 {
    4 * (1250 + cpu.rng.below(5000))
}

/// Runs `guest` to its end through random interrupts of the host; returns how
/// many there were.
fn run_broken(guest: &mut Guest, cpu: &mut Cpu) -> Result<u64, crate::check::Failed> {
    let line = Interrupt::TI.bit();
    let enabled = csrxchg!(ECFG, line, line);
    let mut breaks = 0;
    let end = loop {
        csrwr!(TCFG, random_ticks(cpu) | 1);
        let exit = guest.enter();
        csrwr!(TCFG, 0);
        csrwr!(TICLR, 1);
        if exit.ecode() != Ecode::Int.number() {
            break exit;
        }
        breaks += 1;
        if cpu.rng.below(8) == 0 {
            guest.vm.gid = fresh_gid();
        }
    };
    csrxchg!(ECFG, enabled, line);
    end.expect_hvc(DONE)?;
    Ok(breaks)
}

/// A computation that interrupts of its own and of the host's break into at
/// random moments comes to the right result. It is repeated until there were
/// some of both, and takes twice as long after each time without: with threads
/// on a busy machine timers may be later than any fixed number of steps takes.
fn interrupted_loop(cpu: &mut Cpu) -> Outcome {
    let mut guest = Guest::new(cpu);
    gcsrwr!(EENTRY, count_ticks as *const () as u64);
    gcsrwr!(ECFG, Interrupt::TI.bit());
    gcsrwr!(CRMD, boot::MODE | 4);
    let start = arch::counter();
    let (mut breaks, mut steps) = (0, 20_000);
    while breaks < 10 || gcsrrd!(save(1)) < 10 {
        let seed = cpu.rng.next();
        guest.set(Gpr::A0, seed).set(Gpr::A1, steps);
        guest.set(Gpr::A2, cached(page(0)));
        guest.start(generate);
        gcsrwr!(TCFG, random_ticks(cpu) | 3);
        let more = run_broken(&mut guest, cpu)?;
        gcsrwr!(TCFG, 0);
        ensure_eq!(guest.get(Gpr::A0), generated(seed, steps), "result");
        breaks += more;
        if more == 0 {
            steps *= 2;
        }
        let elapsed = arch::counter() - start;
        ensure!(
            elapsed < PATIENCE,
            "{breaks} breaks, {} ticks",
            gcsrrd!(save(1))
        );
    }
    gcsrwr!(TICLR, 1);
    Ok(())
}

/// How long [`interrupted_loop`] goes on for its interrupts: 1 min.
const PATIENCE: u64 = 60_000_000 * arch::TICKS_PER_US;

const GPA: u64 = 0x1_0000_0000;

/// Six hundred fresh GIDs, each with the page somewhere else: also after the
/// numbers have wrapped none sees an old mapping.
fn gid_wrap(cpu: &mut Cpu) -> Outcome {
    let mut guest = Guest::new(cpu);
    for n in 0..8 {
        memory::store(page(n), n as u64);
    }
    guest.set(Gpr::A0, cached(GPA));
    for _ in 0..600 {
        let n = cpu.rng.below(8);
        guest.vm.gid = fresh_gid();
        guest.map(GPA, page(n as usize), flag::ALL);
        guest.start(load).run_to_hvc(DONE)?;
        ensure_eq!(guest.get(Gpr::A1), n, "GID {}", guest.vm.gid);
    }
    Ok(())
}

/// Random first and second stages that change all the time; each load sees
/// what the tables say after its invalidation.
fn maps(cpu: &mut Cpu) -> Outcome {
    const PAGES: u64 = 8;
    const GVA: u64 = 0x10_0000_0000;
    let step = Shape::P16K.page_bytes();
    let mut guest = Guest::new(cpu);
    let mut first = guest.first_stage(Shape::P16K);
    let (mut gva_to_gpa, mut gpa_to_page) = ([0; 8], [0; 8]);
    for n in 0..PAGES {
        memory::store(page(n as usize), 0x100 + n);
    }
    for n in 0..PAGES {
        first.map(&mut guest.tables, GVA + n * step, GPA, flag::ALL);
        guest.map(GPA + n * step, page(0), flag::ALL);
    }
    for round in 0..300 {
        let (v, g, p) = (
            cpu.rng.below(PAGES),
            cpu.rng.below(PAGES),
            cpu.rng.below(PAGES),
        );
        if cpu.rng.below(2) == 0 {
            first.map(&mut guest.tables, GVA + v * step, GPA + g * step, flag::ALL);
            gva_to_gpa[v as usize] = g;
            let info = guest.vm.gid << 16;
            arch::tlb::invalidate_by(0xd, info, GVA + v * step);
        } else {
            guest.map(GPA + g * step, page(p as usize), flag::ALL);
            gpa_to_page[g as usize] = p;
            guest.invalidate(GPA + g * step);
        }
        let v = cpu.rng.below(PAGES);
        guest.set(Gpr::A0, GVA + v * step);
        guest.start(load).run_to_hvc(DONE)?;
        let want = 0x100 + gpa_to_page[gva_to_gpa[v as usize] as usize];
        ensure_eq!(guest.get(Gpr::A1), want, "round {round}");
    }
    Ok(())
}
