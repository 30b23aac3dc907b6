//! The guest's speed against the host's, and entries and exits per second.
//!
//! Each loop of code is run in host mode and in guest mode in turn, in the
//! same addressing mode, and the best of several runs counts. The clock is
//! the stable counter, which without -icount is the machine's own time. Lines
//! are for a program to read:
//! `BENCH name host=<ns> guest=<ns> ratio=<host / guest>` and
//! `BENCH exits count=<n> ns=<ns> per_second=<n>`.

use crate::arch::{self, tlb};
use crate::check::Cpu;
use crate::guest::host_run::HostRun;
use crate::guest::memory::Tables;
use crate::guest::table::{Shape, Table, flag};
use crate::guest::{DONE, Guest, Program};
use crate::machine::cached;
use crate::{csrwr, println};
use loongarch_isa::exception::Ecode;
use loongarch_isa::gpr::Gpr;

/// Defines a loop twice: for the host, which ends it by `syscall`, and for the
/// guest, by `hvcl`. Its body is run a3 times with a4 = a0 and a5 = a1, each
/// time after a flush of its own TLB, as operating systems do now and then: an
/// emulator may adapt its translation cache then, and shall in both modes.
macro_rules! loops {
    ($(#[$doc:meta])* $name:ident: $($asm:literal),+ $(,)?) => {
        $(#[$doc])*
        mod $name {
            crate::program!(in_host: crate::bench::around!("syscall 0"; $($asm),+));
            crate::program!(in_guest: crate::bench::around!("hvcl 0x10"; $($asm),+));
            /// Host's and guest's.
            pub const BOTH: [crate::guest::Program; 2] = [in_host, in_guest];
        }
    };
}

macro_rules! around {
    ($end:literal; $($asm:literal),+) => {
        concat!(
            "8: invtlb 0, $zero, $zero\n",
            "move $a4, $a0\n",
            "move $a5, $a1\n",
            $($asm, "\n",)+
            "addi.d $a3, $a3, -1\n",
            "bnez $a3, 8b\n",
            $end
        )
    };
}
use around;

loops!(
    /// Plain arithmetic and branches, a5 times.
    plain:
    "1: addi.d $t0, $t0, 3",
    "xor $t1, $t1, $t0",
    "slli.d $t2, $t1, 7",
    "add.d $t3, $t2, $t0",
    "andi $t4, $t3, 1",
    "beqz $t4, 2f",
    "addi.d $t5, $t5, 1",
    "2: addi.d $a5, $a5, -1",
    "bnez $a5, 1b",
);
loops!(
    /// Reads and writes a2 bytes from a4 on, a5 times.
    stream:
    "1: move $t0, $a4",
    "add.d $t1, $a4, $a2",
    "2: ld.d $t2, $t0, 0",
    "addi.d $t2, $t2, 1",
    "st.d $t2, $t0, 0",
    "addi.d $t0, $t0, 8",
    "bne $t0, $t1, 2b",
    "addi.d $a5, $a5, -1",
    "bnez $a5, 1b",
);
loops!(
    /// Follows pointers from a4 on, a5 times.
    chase:
    "1: ld.d $a4, $a4, 0",
    "addi.d $a5, $a5, -1",
    "bnez $a5, 1b",
);
loops!(
    /// Loads from pages all over a2 pages of 16 KiB from a4 on, a5 times: the
    /// page number goes on by 73 modulo a2, a power of two.
    pages:
    "addi.d $t3, $a2, -1",
    "1: addi.d $t0, $t0, 73",
    "and $t0, $t0, $t3",
    "slli.d $t1, $t0, 14",
    "add.d $t1, $t1, $a4",
    "ld.d $t2, $t1, 0",
    "addi.d $a5, $a5, -1",
    "bnez $a5, 1b",
);

/// One measurement.
struct Case {
    name: &'static str,
    programs: [Program; 2],
    /// a0, a1, a2.
    arguments: [u64; 3],
}

/// How often a loop's body is run: a3.
const REPEATS: u64 = 20;

/// RAM that nothing else uses: from 128 MiB on, 128 MiB.
const FREE: u64 = 128 << 20;
/// Where the ring of pointers is in it; [`stream`] doesn't get that far.
const RING: u64 = FREE + (8 << 20);
/// Where the page loops find it, by page tables.
const MAPPED: u64 = 0x10_0000_0000;
/// Pages of 16 KiB in it.
const PAGES: u64 = 8192;

/// The last case's pairs of pages are twice what the STLB holds; those of the
/// one before fit.
const CASES: [Case; 5] = [
    Case {
        name: "plain",
        programs: plain::BOTH,
        arguments: [0, 2_000_000, 0],
    },
    Case {
        name: "stream",
        programs: stream::BOTH,
        arguments: [cached(FREE), 4, 4 << 20],
    },
    Case {
        name: "chase",
        programs: chase::BOTH,
        arguments: [cached(RING), 1_000_000, 0],
    },
    Case {
        name: "pages_hit",
        programs: pages::BOTH,
        arguments: [MAPPED, 200_000, 2048],
    },
    Case {
        name: "pages_miss",
        programs: pages::BOTH,
        arguments: [MAPPED, 20_000, PAGES],
    },
];

/// How often each is measured; the best counts.
const ROUNDS: usize = 9;
/// Nanoseconds a tick of the stable counter.
const NS: u64 = 10;

/// A ring of pointers through 1 MiB, in an order that jumps about.
fn make_ring() {
    const WORDS: u64 = (1 << 20) / 8;
    for n in 0..WORDS {
        // A linear congruential generator of full period (factor 1 modulo 4,
        // odd addend): one ring through all words.
        let next = (n * 40_501 + 1) % WORDS;
        crate::guest::memory::store(RING + 8 * n, cached(RING + 8 * next));
    }
}

/// A table with the free RAM at [`MAPPED`].
fn mapped(tables: &mut Tables) -> Table {
    let mut table = Table::new(Shape::P16K, tables);
    for n in 0..PAGES {
        let offset = n * Shape::P16K.page_bytes();
        table.map(tables, MAPPED + offset, FREE + offset, flag::ALL);
    }
    table
}

/// Ticks of one run in the host.
fn in_host(case: &Case) -> u64 {
    let [a0, a1, a2] = case.arguments;
    let run = HostRun::new();
    let run = run.with(Gpr::A0, a0).with(Gpr::A1, a1);
    let run = run.with(Gpr::A2, a2).with(Gpr::A3, REPEATS);
    let start = arch::counter();
    let exit = run.program(case.programs[0]).exit();
    let ticks = arch::counter() - start;
    assert!(
        exit.ecode() == Ecode::Sys.number(),
        "host ended with {exit:x?}"
    );
    ticks
}

/// Ticks of one run in the guest.
fn in_guest(guest: &mut Guest, case: &Case) -> u64 {
    let [a0, a1, a2] = case.arguments;
    guest.set(Gpr::A0, a0).set(Gpr::A1, a1);
    guest.set(Gpr::A2, a2).set(Gpr::A3, REPEATS);
    let start = arch::counter();
    let exit = guest.start(case.programs[1]).enter();
    let ticks = arch::counter() - start;
    assert!(exit.badi & 0x7fff == DONE, "guest ended with {exit:x?}");
    ticks
}

fn measure(guest: &mut Guest, case: &Case) {
    let (mut host, mut own) = (u64::MAX, u64::MAX);
    for _ in 0..ROUNDS {
        host = host.min(in_host(case));
        own = own.min(in_guest(guest, case));
    }
    let permille = host * 1000 / own;
    println!(
        "BENCH {} host={} guest={} ratio={}.{:03}",
        case.name,
        host * NS,
        own * NS,
        permille / 1000,
        permille % 1000
    );
}

crate::program!(call_for_ever: "1: hvcl 0x10", "b 1b");

/// Entries and exits: `hvcl`, and on behind it.
fn measure_exits(guest: &mut Guest) {
    const COUNT: u64 = 300_000;
    guest.start(call_for_ever);
    let start = arch::counter();
    for _ in 0..COUNT {
        guest.enter();
        guest.skip();
    }
    let ns = (arch::counter() - start) * NS;
    println!(
        "BENCH exits count={COUNT} ns={ns} per_second={}",
        COUNT * 1_000_000_000 / ns
    );
}

/// Runs all of it.
pub fn run() {
    let mut cpu = Cpu::new(0);
    let mut guest = Guest::new(&mut cpu);
    make_ring();
    // The same table for the host's own addresses and for the guest's.
    guest.first_stage(Shape::P16K);
    let table = mapped(&mut guest.tables);
    crate::gcsrwr!(PGDL, table.root());
    csrwr!(PGDL, table.root());
    csrwr!(TLBRENTRY, Shape::P16K.bare_handler());
    for case in &CASES {
        measure(&mut guest, case);
    }
    measure_exits(&mut guest);
    tlb::invalidate::<{ tlb::ALL }>(0, 0);
}
