//! How LVZ is found, and what kind of processor has it.

use crate::arch::cpucfg;
use crate::check::{Check, Cpu, Outcome};
use crate::{ensure, ensure_eq};

/// This group.
pub const CHECKS: &[Check] = &[
    Check::every("detect.lvz", lvz),
    Check::every("detect.cpucfg3", cpucfg3),
];

/// CPUCFG2.LVZ = 1, version 1 (D-DETECT).
fn lvz(_: &mut Cpu) -> Outcome {
    let word = cpucfg(2);
    ensure!(word & 1 << 10 != 0, "cpucfg2 {word:#x} has no LVZ");
    ensure_eq!(word >> 11 & 7, 1u32, "LVZ version");
    Ok(())
}

/// CPUCFG3 as silicon has it: KVM refuses a guest word with a bit that the
/// host's lacks.
fn cpucfg3(_: &mut Cpu) -> Outcome {
    ensure_eq!(cpucfg(3), 0xfcffu32, "cpucfg3");
    Ok(())
}
