//! Sensitive instructions: `cpucfg`, CSRs outside the bank, IOCSR, `cacop`.

use crate::check::{Check, Outcome, equal};
use crate::runtime::{cpucfg, iocsr};
use crate::{csrrd, csrwr, csrxchg};
use core::arch::asm;
use guest_pv::abi::iocsr::{
    FEATURES, Features, IPI_CLEAR, IPI_ENABLE, IPI_SEND, IPI_SET, IPI_STATUS, MAILBOX, VENDOR,
    ipi_send,
};

/// The checks.
pub const CHECKS: [Check; 7] = [
    Check {
        name: "cpucfg.filter",
        cpus: 1,
        run: cpucfg_filter,
    },
    Check {
        name: "cpucfg.area",
        cpus: 1,
        run: cpucfg_area,
    },
    Check {
        name: "csr.software",
        cpus: 1,
        run: csr_software,
    },
    Check {
        name: "csr.absent",
        cpus: 1,
        run: csr_absent,
    },
    Check {
        name: "iocsr.forms",
        cpus: 1,
        run: iocsr_forms,
    },
    Check {
        name: "iocsr.registers",
        cpus: 1,
        run: iocsr_registers,
    },
    Check {
        name: "cacop.harmless",
        cpus: 1,
        run: cacop,
    },
];

fn cpucfg_filter() -> Outcome {
    equal("LVZ and its version", cpucfg(2) >> 10 & 0xf, 0)?;
    equal("binary translation", cpucfg(2) >> 18 & 7, 0)?;
    equal("performance counters", cpucfg(6), 0)?;
    for word in [
        7,
        15,
        21,
        0x1234,
        0x3fff_ffff,
        0x4000_0100,
        0x8000_0000,
        0xffff_ffff,
        0xffff_ffff_c000_0000,
        u64::MAX,
        u64::MAX - 1,
    ] {
        equal("undefined word", cpucfg(word), 0)?;
    }
    equal(
        "upper half is ignored",
        cpucfg(0xdead_beef_0000_0001),
        cpucfg(1),
    )
}

fn cpucfg_area() -> Outcome {
    equal("signature", cpucfg(0x4000_0000), 0x004d_564b)?;
    for word in (0x4000_0001..=0x4000_00ff).filter(|word| *word != 0x4000_0004) {
        equal("rest of the area", cpucfg(word), 0)?;
    }
    let above = cpucfg(0xffff_ffff_4000_0000);
    equal("the low half of the number counts", above, 0x004d_564b)?;
    Ok(())
}

fn csr_software() -> Outcome {
    csrwr!(IMPCTL1, 0x1234);
    equal("write gives the old value", csrwr!(IMPCTL1, 0xff00), 0x1234)?;
    equal(
        "exchange gives the old value",
        csrxchg!(IMPCTL1, 0x5678, 0xf00f),
        0xff00,
    )?;
    equal("exchange honours its mask", csrrd!(IMPCTL1), 0x5f08)?;
    csrwr!(DSAVE, 7);
    equal("registers are apart", csrrd!(IMPCTL1), 0x5f08)?;
    csrwr!(IMPCTL1, 0);
    Ok(())
}

fn csr_absent() -> Outcome {
    csrwr!(GSTAT, u64::MAX);
    equal("GSTAT", csrrd!(GSTAT), 0)?;
    equal("GCFG", csrwr!(GCFG, 1), 0)?;
    equal("GTLBC", csrxchg!(GTLBC, 1, 1), 0)?;
    equal("GINTC", csrwr!(GINTC, 0xff), 0)?;
    equal("GINTC", csrrd!(GINTC), 0)
}

fn iocsr_forms() -> Outcome {
    let at = u64::from(MAILBOX) + 8;
    iocsr::write_d(at, 0x8877_6655_4433_2211);
    equal("double", iocsr::read_d(at), 0x8877_6655_4433_2211)?;
    equal("word, sign", iocsr::read_w(at + 4), 0xffff_ffff_8877_6655)?;
    equal("half, sign", iocsr::read_h(at + 6), 0xffff_ffff_ffff_8877)?;
    equal("byte, sign", iocsr::read_b(at + 7), 0xffff_ffff_ffff_ff88)?;
    equal("byte", iocsr::read_b(at + 1), 0x22)?;
    iocsr::write_b(at, 0xaa);
    iocsr::write_h(at + 2, 0xbbcc);
    iocsr::write_w(at + 4, 0xdddd_eeee);
    equal("narrow writes", iocsr::read_d(at), 0xdddd_eeee_bbcc_22aa)?;
    let features = Features::from_bits_truncate(iocsr::read_d(FEATURES.into()));
    equal("VM bit", features.contains(Features::VM).into(), 1)?;
    equal(
        "vendor",
        iocsr::read_d(VENDOR.into()),
        u64::from_le_bytes(*b"Loongson"),
    )?;
    iocsr::write_d(0x7000, u64::MAX);
    equal("unknown offset", iocsr::read_d(0x7000), 0)?;
    equal("unknown offset", iocsr::read_w(0xffff_fffc), 0)
}

/// Runs `insn rd, rj` with `value` in rd and `address` in rj; rd after it.
/// Any register will do, sp too: all are as before at the end.
macro_rules! with_registers {
    ($insn:literal, $rd:literal, $rj:literal, $value:expr, $address:expr) => {{
        let result: u64;
        // SAFETY: interrupts are off, and every register gets its value back.
        unsafe {
            asm!(
                concat!("move $s2, ", $rd, "\nmove $s3, ", $rj),
                concat!("move ", $rd, ", $s0\nmove ", $rj, ", $s1"),
                concat!($insn, " ", $rd, ", ", $rj),
                concat!("move $s0, ", $rd),
                concat!("move ", $rd, ", $s2\nmove ", $rj, ", $s3"),
                inlateout("$s0") $value as u64 => result, in("$s1") $address as u64,
                out("$s2") _, out("$s3") _, options(nostack),
            );
        }
        result
    }};
}

/// The IPI registers by every register: the hypervisor's short cuts hold some
/// of them elsewhere.
fn iocsr_registers() -> Outcome {
    macro_rules! each {
        ($($name:literal)*) => {$({
            iocsr::write_w(IPI_SET.into(), 0x8000_00a5);
            let status = with_registers!("iocsrrd.w", $name, "$s4", 7, IPI_STATUS);
            equal(concat!("status in ", $name), status, 0xffff_ffff_8000_00a5)?;
            let status = with_registers!("iocsrrd.w", "$s4", $name, 7, IPI_STATUS);
            equal(concat!("address in ", $name), status, 0xffff_ffff_8000_00a5)?;
            with_registers!("iocsrwr.w", $name, "$s4", 0x21, IPI_CLEAR);
            with_registers!("iocsrwr.w", "$s4", $name, 0x84, IPI_CLEAR);
            let left = iocsr::read_w(IPI_STATUS.into());
            equal(concat!("cleared by ", $name), left, 0xffff_ffff_8000_0000)?;
            let send = ipi_send(csrrd!(CPUID) as u32, 3);
            with_registers!("iocsrwr.w", $name, "$s4", send, IPI_SEND);
            with_registers!("iocsrwr.w", "$s4", $name, send + 1, IPI_SEND);
            let sent = iocsr::read_w(IPI_STATUS.into());
            equal(concat!("sent by ", $name), sent, 0xffff_ffff_8000_0018)?;
            iocsr::write_w(IPI_CLEAR.into(), 0xffff_ffff);
        })*};
    }
    csrwr!(ECFG, 0);
    iocsr::write_w(IPI_ENABLE.into(), 0);
    each!("$ra" "$tp" "$sp" "$a0" "$a1" "$a2" "$a3" "$a4" "$a5" "$a6" "$a7");
    each!("$t0" "$t1" "$t2" "$t3" "$t4" "$t5" "$t6" "$t7" "$t8" "$r21" "$fp");
    each!("$s5" "$s6" "$s7" "$s8");
    let status = with_registers!("iocsrrd.w", "$zero", "$s4", 0, IPI_STATUS);
    equal("status in $zero", status, 0)?;
    iocsr::write_w(IPI_ENABLE.into(), 0xffff_ffff);
    Ok(())
}

fn cacop() -> Outcome {
    // SAFETY: cache operations change no memory that the guest sees.
    unsafe {
        asm!("cacop 0x08, {0}, 0", "cacop 0x09, {0}, 0", "cacop 0x00, {0}, 0",
            "cacop 0x10, {0}, 0", in(reg) crate::runtime::memory::<u8>(0x20_0000));
    }
    Ok(())
}
