//! PCH-PIC: an input's request reaches the vCPU that its vector is routed
//! to, as a level and as an edge, masked and unmasked.
//!
//! No device drives the inputs used here: an input that is active while low
//! requests as soon as it is told so.

use crate::check::{Check, Outcome, equal};
use crate::runtime::devices::{
    CLEAR, EDGE, MASK, PCH_PIC, POLARITY, REQUEST, VECTOR, lines, read8, read16, read32, read64,
    set_up, take_interrupts, taken, write8, write16, write32, write64,
};
use crate::runtime::smp;
use loongarch_isa::exception::Interrupt;

/// The checks.
pub const CHECKS: [Check; 4] = [
    Check {
        name: "pch-pic.registers",
        cpus: 1,
        run: registers,
    },
    Check {
        name: "pch-pic.level",
        cpus: 1,
        run: level,
    },
    Check {
        name: "pch-pic.masked",
        cpus: 1,
        run: masked,
    },
    Check {
        name: "pch-pic.vector",
        cpus: 1,
        run: vector,
    },
];

fn registers() -> Outcome {
    set_up(smp::id(0));
    equal("last input", (read32(PCH_PIC + 4) >> 16 & 0xff).into(), 63)?;
    equal("last input", read8(PCH_PIC + 6).into(), 63)?;
    equal("identity", read64(PCH_PIC), 0x003f_0001_0700_0000)?;
    write64(EDGE, 0x8877_6655_4433_2211);
    write8(EDGE + 1, 0xaa);
    write16(EDGE + 2, 0xbbcc);
    write32(EDGE + 4, 0xddee_ff00);
    equal("edge", read64(EDGE), 0xddee_ff00_bbcc_aa11)?;
    equal("edge", read16(EDGE + 6).into(), 0xddee)?;
    equal("beyond", read64(PCH_PIC + 0xff8), 0)?;
    write64(EDGE, 0);
    Ok(())
}

/// A level that stays: one interrupt, and one more each time that its
/// handler unmasks it.
fn level() -> Outcome {
    set_up(smp::id(0));
    write32(POLARITY, 1 << 10);
    equal("request", read64(REQUEST), 1 << 10)?;
    equal("masked", lines(), 0)?;
    for _ in 0..3 {
        let before = taken(0, 10);
        write64(MASK, !(1 << 10));
        equal("unmasked", lines(), Interrupt::hwi(0).bit())?;
        take_interrupts();
        equal("taken", taken(0, 10), before + 1)?;
        equal("line after it", lines(), 0)?;
        write64(MASK, u64::MAX);
    }
    // What ends before it is taken is withdrawn.
    write64(MASK, !(1 << 10));
    write32(POLARITY, 0);
    equal("ended", lines(), 0)
}

/// Two that came while masked come both when unmasked, in any half.
fn masked() -> Outcome {
    set_up(smp::id(0));
    write64(POLARITY, 1 << 33 | 1 << 5);
    let before = (taken(0, 5), taken(0, 33));
    write64(MASK, !(1 << 33 | 1 << 5));
    take_interrupts();
    equal("input 5", taken(0, 5), before.0 + 1)?;
    equal("input 33", taken(0, 33), before.1 + 1)?;
    // One lowered leaves the other.
    write64(MASK, u64::MAX);
    write64(MASK, !(1 << 33 | 1 << 5));
    write32(POLARITY, 0);
    equal("line", lines(), Interrupt::hwi(0).bit())?;
    take_interrupts();
    equal("input 5", taken(0, 5), before.0 + 1)?;
    equal("input 33", taken(0, 33), before.1 + 2)?;
    write64(CLEAR, u64::MAX);
    write64(MASK, u64::MAX);
    write64(POLARITY, 0);
    Ok(())
}

/// An input's vector is whatever its register says, on any line.
fn vector() -> Outcome {
    set_up(smp::id(0));
    write64(POLARITY, 1 << 40);
    write64(MASK, !(1 << 40));
    for (vector, hwi) in [(0, 0), (63, 0), (64, 1), (255, 3)] {
        write8(VECTOR + 40, vector);
        equal("line", lines(), Interrupt::hwi(hwi).bit())?;
        let before = taken(0, vector);
        take_interrupts();
        equal("taken", taken(0, vector), before + 1)?;
    }
    write64(MASK, u64::MAX);
    write64(POLARITY, 0);
    Ok(())
}
