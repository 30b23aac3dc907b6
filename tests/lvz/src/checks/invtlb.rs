//! Every operation of INVTLB: exactly the entries of its scope go.
//!
//! A set of entries that differ in one property each is written, the
//! operation executed, and what is left compared with D-INVTLB, written down
//! once more in [`clears`].

use super::entries::{self, Entry, Side};
use crate::arch::{code, encode, tlb};
use crate::check::{Check, Cpu, Outcome};
use crate::guest::memory::{self, page};
use crate::guest::programs::load;
use crate::guest::table::flag;
use crate::guest::{DONE, Guest};
use crate::{ensure, ensure_eq};
use loongarch_isa::gpr::Gpr;

macro_rules! group {
    ($($name:literal = $op:literal),*; $($in_guest:literal = $guest_op:literal),*) => {
        /// This group.
        pub const CHECKS: &[Check] = &[
            $(Check::every($name, |cpu| in_host(cpu, $op)),)*
            $(Check::every($in_guest, |cpu| in_guest(cpu, $guest_op)),)*
            Check::every("invtlb.context_by_tgid", context_by_tgid),
            Check::every("invtlb.second_stage_by_use", second_stage_by_use),
        ];
    };
}

group!(
    "invtlb.00" = 0x0, "invtlb.01" = 0x1, "invtlb.02" = 0x2, "invtlb.03" = 0x3,
    "invtlb.04" = 0x4, "invtlb.05" = 0x5, "invtlb.06" = 0x6,
    "invtlb.09" = 0x9, "invtlb.0a" = 0xa, "invtlb.0b" = 0xb, "invtlb.0c" = 0xc,
    "invtlb.0d" = 0xd, "invtlb.0e" = 0xe,
    "invtlb.10" = 0x10, "invtlb.11" = 0x11, "invtlb.12" = 0x12, "invtlb.13" = 0x13,
    "invtlb.14" = 0x14, "invtlb.15" = 0x15, "invtlb.16" = 0x16;
    "invtlb.guest_00" = 0x0, "invtlb.guest_01" = 0x1, "invtlb.guest_02" = 0x2,
    "invtlb.guest_03" = 0x3, "invtlb.guest_04" = 0x4, "invtlb.guest_05" = 0x5,
    "invtlb.guest_06" = 0x6
);

/// Two guests, two ASIDs, two addresses.
const GIDS: [u64; 2] = [3, 200];
const ASIDS: [u64; 2] = [1, 0x3fe];
const ADDRESSES: [u64; 2] = [0x12_3456_8000, 0x12_3457_0000];

/// How many entries [`population`] has: for each owner, ASID and address one
/// that is not global, and one that is, at an address of its own.
const COUNT: usize = 5 * 2 * 2 * 2;

/// All kinds of entries. The global ones' addresses differ by ASID too, since
/// a global entry matches every ASID.
fn population() -> [Entry; COUNT] {
    let owners = [
        (Side::Host, 0),
        (Side::Second, GIDS[0]),
        (Side::Second, GIDS[1]),
        (Side::First, GIDS[0]),
        (Side::First, GIDS[1]),
    ];
    core::array::from_fn(|n| {
        let (side, gid) = owners[n / 8];
        let (global, asid, address) = (n & 4 != 0, n >> 1 & 1, n & 1);
        // Entries that the same search could find are kept apart: by ASID in
        // the host and in first stages, by address where ASID doesn't count.
        let apart = u64::from(global) << 24 | (asid as u64) << 25;
        let apart = if side == Side::Second || global {
            apart
        } else {
            0
        };
        Entry {
            side,
            gid,
            asid: ASIDS[asid],
            global,
            address: ADDRESSES[address] + apart,
        }
    })
}

/// Where entry `n` of the population goes: the arrays are separate, so the
/// index may be the same.
fn place(n: usize) -> u64 {
    n as u64
}

/// Whether `op` with these operands, executed in the host with TGID = 0,
/// clears `entry` (D-INVTLB).
fn clears(op: u32, entry: &Entry, asid: u64, gid: u64, address: u64) -> bool {
    let host = entry.side == Side::Host;
    let first = entry.side == Side::First;
    let second = entry.side == Side::Second;
    let here = entry.address == address;
    let by_asid = !entry.global && entry.asid == asid;
    let its = entry.gid == gid;
    match op {
        0x0 | 0x1 => host,
        0x2 => host && entry.global,
        0x3 => host && !entry.global,
        0x4 => host && by_asid,
        0x5 => host && by_asid && here,
        0x6 => host && (entry.global || entry.asid == asid) && here,
        0x9 => first && its,
        0xa => first && its && entry.global,
        0xb => first && its && !entry.global,
        0xc => first && its && by_asid,
        0xd => first && its && by_asid && here,
        0xe => first && its && (entry.global || entry.asid == asid) && here,
        0x10 => first,
        0x11 => second,
        0x12 => first || second,
        0x13 => first && its,
        0x14 => second && its,
        0x15 => (first || second) && its,
        0x16 => second && its && here,
        _ => false,
    }
}

/// Operands to try: those of an entry of each owner, and ones of no entry.
fn operands() -> impl Iterator<Item = (u64, u64, u64)> {
    let of_entries = population().into_iter().step_by(3);
    let of_entries =
        of_entries.map(|e| (e.asid, if e.gid == 0 { GIDS[0] } else { e.gid }, e.address));
    of_entries.chain([(0x155, 77, 0x55_0000_0000), (ASIDS[0], 0, ADDRESSES[0])])
}

fn write_all(all: &[Entry]) -> Outcome {
    entries::empty();
    for (n, entry) in all.iter().enumerate() {
        entry.write(place(n));
    }
    for (n, entry) in all.iter().enumerate() {
        ensure!(entry.found(), "entry {n} wasn't there: {entry:?}");
    }
    Ok(())
}

/// Fails unless exactly the entries that `cleared` says are gone.
fn compare(
    all: &[Entry],
    cleared: impl Fn(&Entry) -> bool,
    op: u32,
    operands: (u64, u64, u64),
) -> Outcome {
    for entry in all {
        let (gone, want) = (!entry.found(), cleared(entry));
        ensure!(
            gone == want,
            "op {op:#x} {operands:x?}: gone {gone}, expected {want}: {entry:x?}"
        );
    }
    Ok(())
}

/// One operation in the host, with several operands.
fn in_host(cpu: &mut Cpu, op: u32) -> Outcome {
    let _guest = Guest::new(cpu);
    let all = population();
    for (asid, gid, address) in operands() {
        write_all(&all)?;
        tlb::invalidate_by(op, gid << 16 | asid, address);
        compare(
            &all,
            |e| clears(op, e, asid, gid, address),
            op,
            (asid, gid, address),
        )?;
    }
    entries::empty();
    crate::guest::reset_bank(cpu.index);
    Ok(())
}

/// One operation in the guest with the first GID: only its own first-stage
/// entries, by the rules of operations 9 to 0xe.
fn in_guest(cpu: &mut Cpu, op: u32) -> Outcome {
    let mut guest = Guest::new(cpu);
    guest.vm.gid = GIDS[0];
    let first: [Entry; 16] = core::array::from_fn(|n| population()[24 + n]);
    let same_in_host = [0x9, 0x9, 0xa, 0xb, 0xc, 0xd, 0xe][op as usize];
    for (asid, _, address) in operands() {
        write_all(&first)?;
        let words = [
            encode::invtlb(op, Gpr::A0, Gpr::A1),
            encode::hvcl(DONE as u32),
        ];
        guest.world.pc = code::write(&words);
        // A GID in rj means nothing to the guest's operations.
        guest
            .set(Gpr::A0, GIDS[1] << 16 | asid)
            .set(Gpr::A1, address);
        guest.run_to_hvc(DONE)?;
        let cleared = |e: &Entry| clears(same_in_host, e, asid, GIDS[0], address);
        compare(&first, cleared, op, (asid, GIDS[0], address))?;
    }
    entries::empty();
    crate::guest::reset_bank(cpu.index);
    Ok(())
}

/// With USETGID and a TGID operations 0 to 6 of the host mean the second
/// stage of that guest.
fn context_by_tgid(cpu: &mut Cpu) -> Outcome {
    let _guest = Guest::new(cpu);
    let all = population();
    for op in 0..=6 {
        let (asid, address) = (ASIDS[1], all[8].address);
        write_all(&all)?;
        entries::select(GIDS[0]);
        tlb::invalidate_by(op, asid, address);
        entries::select(0);
        let as_host = |e: &Entry| {
            let its = e.side == Side::Second && e.gid == GIDS[0];
            let side = if its { Side::Host } else { Side::First };
            clears(op, &Entry { side, ..*e }, asid, 0, address)
        };
        compare(&all, as_host, op, (asid, GIDS[0], address))?;
    }
    entries::empty();
    crate::guest::reset_bank(cpu.index);
    Ok(())
}

/// What the searches say is what a guest meets: after each operation that
/// clears second stages a changed mapping is used, after the others not.
fn second_stage_by_use(cpu: &mut Cpu) -> Outcome {
    const GPA: u64 = 0x1_0000_0000;
    let mut guest = Guest::new(cpu);
    memory::store(page(0), 0);
    memory::store(page(1), 1);
    let gid = guest.vm.gid;
    for (op, info, flushes) in [
        (0x0u32, 0, false),
        (0x9, gid << 16, false),
        (0x10, 0, false),
        (0x11, 0, true),
        (0x12, 0, true),
        (0x13, gid << 16, false),
        (0x14, (gid ^ 1) << 16, false),
        (0x14, gid << 16, true),
        (0x15, gid << 16, true),
        (0x16, gid << 16, true),
    ] {
        guest.map(GPA, page(0), flag::ALL);
        guest.invalidate(GPA);
        guest.set(Gpr::A0, crate::machine::cached(GPA));
        guest.start(load).run_to_hvc(DONE)?;
        guest.map(GPA, page(1), flag::ALL);
        tlb::invalidate_by(op, info, GPA);
        guest.start(load).run_to_hvc(DONE)?;
        ensure_eq!(
            guest.get(Gpr::A1),
            u64::from(flushes),
            "after op {op:#x} with {info:#x}"
        );
    }
    Ok(())
}
