//! The registers of the guest's bank: each vCPU has its own, whatever runs on
//! its CPU in between.

use crate::check::{Check, Outcome, equal};
use crate::runtime::{nap, smp, ticks, ticks_per_second, trap};
use crate::{csrrd, csrwr, csrxchg};
use core::arch::asm;
use core::sync::atomic::{AtomicU64, Ordering};

/// The checks.
pub const CHECKS: [Check; 1] = [Check {
    name: "bank.own",
    cpus: 2,
    run: own,
}];

macro_rules! bank {
    ($($name:ident $(($n:literal))? $mask:literal,)*) => {
        /// Bits of each register that the program can do without meanwhile.
        const MASKS: [u64; BANKED] = [$($mask,)*];

        fn read_all() -> [u64; BANKED] {
            [$(csrrd!($name $(($n))?),)*]
        }

        fn write_all(values: &[u64; BANKED]) {
            let mut values = values.iter();
            $(
                if let Some(&value) = values.next() {
                    csrwr!($name $(($n))?, value);
                }
            )*
        }
    };
}

/// How many registers there are.
const BANKED: usize = 38;

// In use meanwhile: CRMD's level and mode, CPUID, the windows 0 and 1; bit 0
// of TLBRERA says what `ertn` returns from. MISC can't be written in the
// emulation, nor BADI. ESTAT's other bits and the timer have
// checks of their own.
bank! {
    CRMD 0x1e0, PRMD 0xf, EUEN 7, ECFG 0x7_1fff, ERA 0xffff_ffff_ffff_fffc,
    BADV 0xffff_ffff_ffff_ffff, EENTRY 0xffff_ffff_f000,
    TLBIDX 0xbf00_0fff, TLBEHI 0xffff_ffff_e000, TLBELO0 0xffff_f07f, TLBELO1 0xffff_f07f,
    ASID 0x3ff, PGDL 0xffff_ffff_f000, PGDH 0xffff_ffff_f000, PWCL 0x3fff_ffff, PWCH 0xff_ffff,
    STLBPS 0, RVACFG 0xf, save(0) 0xffff_ffff_ffff_ffff, save(1) 0xffff_ffff_ffff_ffff,
    save(2) 0xffff_ffff_ffff_ffff, save(3) 0xffff_ffff_ffff_ffff, save(4) 0xffff_ffff_ffff_ffff,
    save(5) 0xffff_ffff_ffff_ffff, save(6) 0xffff_ffff_ffff_ffff, save(7) 0xffff_ffff_ffff_ffff,
    TID 0xffff_ffff, CNTC 0xffff_ffff_ffff_ffff, TLBRENTRY 0xffff_ffff_f000,
    TLBRBADV 0xffff_ffff_ffff_ffff, TLBRERA 0xffff_ffff_ffff_fffc,
    TLBRSAVE 0xffff_ffff_ffff_ffff, TLBRELO0 0xffff_f07f, TLBRELO1 0xffff_f07f,
    TLBREHI 0xffff_ffff_e000, TLBRPRMD 0x17, dmw(2) 0xe000_0000_0000_0039,
    dmw(3) 0xe000_0000_0000_0039,
}

/// Registers, by their place in the list, that lost a bit; then BADI, and the
/// software interrupts of ESTAT.
static LOST: AtomicU64 = AtomicU64::new(0);
/// What the first two vCPUs had in theirs.
static HAD: [[AtomicU64; BANKED]; 2] = [const { [const { AtomicU64::new(0) }; BANKED] }; 2];
/// vCPUs that are about to fill theirs.
static READY: AtomicU64 = AtomicU64::new(0);

/// Words that differ in every register from vCPU to vCPU, and from the next
/// register's.
fn pattern(index: usize, before: &[u64; BANKED]) -> [u64; BANKED] {
    let mut values = *before;
    for (place, (value, mask)) in values.iter_mut().zip(MASKS).enumerate() {
        let word = 0x9e37_79b9_7f4a_7c15u64.wrapping_mul((2 * place + 1) as u64);
        let word = word ^ 0x5555_5555_5555_5555 << (index & 1);
        *value = *value & !mask | word.rotate_left(7 * (index as u32 / 2)) & mask;
    }
    values
}

fn fill_and_compare(index: usize) {
    trap::mask();
    // Two instructions that don't exist.
    let caught = trap::catch(|| match index & 1 {
        // SAFETY: ends in an exception.
        0 => unsafe { asm!(".word 0xffffffff", options(nostack)) },
        // SAFETY: as above.
        _ => unsafe { asm!(".word 0xfffffffe", options(nostack)) },
    });
    let (badi, before) = (csrrd!(BADI), read_all());
    // Not before all have had their exception, whose entry is one of these.
    READY.fetch_add(1, Ordering::SeqCst);
    while READY.load(Ordering::SeqCst) < smp::count() as u64 {
        nap();
    }
    write_all(&pattern(index, &before));
    // Pending, as interrupts are off.
    let software = 1 << (index & 1);
    csrxchg!(ESTAT, software, 3);
    // Not every value is a size of pages.
    csrwr!(STLBPS, 12 + 2 * (index as u64 & 1));
    let (had, start, span) = (read_all(), ticks(), ticks_per_second() / 25);
    while ticks().wrapping_sub(start) < span {
        core::hint::spin_loop();
    }
    let (has, pending) = (read_all(), csrxchg!(ESTAT, 0, 3) & 3);
    write_all(&before);
    // By its own vector it came, and nothing else did.
    let word = 0xffff_ffff - (index as u64 & 1);
    let first = caught.map(|caught| u64::from(caught.badi));
    let same = [first, Some(badi), Some(csrrd!(BADI))] == [Some(word); 3];
    let lost = u64::from(!same) | u64::from(pending != software) << 1;
    LOST.fetch_or(lost << BANKED, Ordering::Relaxed);
    for (place, (had, has)) in had.iter().zip(&has).enumerate() {
        LOST.fetch_or(u64::from(had != has) << place, Ordering::Relaxed);
    }
    for (place, value) in HAD.get(index).into_iter().flatten().zip(had) {
        place.store(value, Ordering::Relaxed);
    }
}

/// All vCPUs at once, long enough for time slices to end in between.
fn own() -> Outcome {
    LOST.store(0, Ordering::Relaxed);
    READY.store(0, Ordering::SeqCst);
    smp::on_all(fill_and_compare);
    equal("registers that lost a bit", LOST.load(Ordering::Relaxed), 0)?;
    // What is the same for all can't be seen to be lost.
    let [first, second] = &HAD;
    let pairs = first.iter().zip(second).enumerate();
    let same = pairs.fold(0, |same, (place, (a, b))| {
        let equal = a.load(Ordering::Relaxed) == b.load(Ordering::Relaxed);
        same | u64::from(equal) << place
    });
    equal("registers in which vCPUs don't differ", same, 0)
}
