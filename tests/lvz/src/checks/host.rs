//! The host's LVZ registers, and the LVZ instructions in host mode.

use crate::arch::{code, encode};
use crate::check::{Check, Cpu, Outcome};
use crate::guest::host_run::HostRun;
use crate::{csrrd, csrwr, ensure, ensure_eq};
use loongarch_isa::csr::{Csr, GCFG, GTLBC};
use loongarch_isa::exception::Ecode;
use loongarch_isa::gpr::Gpr;

/// This group.
pub const CHECKS: &[Check] = &[
    Check::every("host.gstat", gstat),
    Check::every("host.gid_width", gid_width),
    Check::every("host.gtlbc", gtlbc),
    Check::every("host.trgp_read_only", trgp_read_only),
    Check::every("host.gcfg_capabilities", gcfg_capabilities),
    Check::every("host.gcfg_gated_bits", gcfg_gated_bits),
    Check::every("host.gcfg_matc", gcfg_matc),
    Check::every("host.gcfg_gci", gcfg_gci),
    Check::every("host.gintc", gintc),
    Check::every("host.gintc_lines", gintc_lines),
    Check::every("host.gcntc", gcntc),
    Check::every("host.exchange", exchange),
    Check::every("host.apart", apart),
    Check::every("host.no_neighbours", no_neighbours),
    Check::every("host.level3", level3),
    Check::every("host.hvcl", hvcl),
    Check::every("host.invtlb_undefined", invtlb_undefined),
    Check::every("host.stlbps", stlbps),
];

/// Writes all ones and zero; returns the bits that follow, and those that
/// read 1 whatever is written. The register keeps its old value.
fn bits_of(csr: Csr) -> (u64, u64) {
    let before = code::host_write(csr, u64::MAX);
    let ones = code::host_read(csr);
    code::host_write(csr, 0);
    let zeros = code::host_read(csr);
    code::host_write(csr, before);
    (ones & !zeros, ones & zeros)
}

/// D-GSTAT: PVM and GID can be written; GIDBIT reads 8, VM 0 in the host.
fn gstat(_: &mut Cpu) -> Outcome {
    let (writable, fixed) = bits_of(Csr::GSTAT);
    ensure_eq!(writable, 0x00ff_0002u64, "bits that can be written");
    ensure_eq!(fixed, 8u64 << 4, "bits that always read 1");
    Ok(())
}

/// Each of the 256 GIDs reads back.
fn gid_width(_: &mut Cpu) -> Outcome {
    for gid in 0..256u64 {
        csrwr!(GSTAT, gid << 16);
        ensure_eq!(csrrd!(GSTAT) >> 16 & 0xff, gid, "GID");
    }
    csrwr!(GSTAT, 0);
    Ok(())
}

/// D-GMTLBSZ: USETGID, TOTI and TGID can be written, GMTLBSZ reads 63.
fn gtlbc(_: &mut Cpu) -> Outcome {
    let (writable, fixed) = bits_of(Csr::GTLBC);
    ensure_eq!(writable, 0x00ff_3000u64, "bits that can be written");
    ensure_eq!(fixed, 63u64, "bits that always read 1");
    Ok(())
}

/// D-TRGP: a write changes nothing, whether it is ignored or refused.
fn trgp_read_only(_: &mut Cpu) -> Outcome {
    let before = csrrd!(TRGP);
    let words = [encode::csrwr(Gpr::A0, Csr::TRGP), encode::BREAK];
    let run = HostRun::new().with(Gpr::A0, !before).words(&words);
    let code = run.exit().ecode();
    ensure!(
        code == Ecode::Brk.number() || code == Ecode::Ine.number(),
        "write gave ecode {code}"
    );
    ensure_eq!(csrrd!(TRGP), before, "after the write");
    Ok(())
}

/// The capabilities of D-GCFG, which no write changes.
fn gcfg_capabilities(_: &mut Cpu) -> Outcome {
    let offered = GCFG::MATP.val(0b0011)
        + GCFG::TITP::SET
        + GCFG::TOEP::SET
        + GCFG::TOPP::SET
        + GCFG::GCIP.val(0b0111);
    let (_, fixed) = bits_of(Csr::GCFG);
    ensure_eq!(fixed, offered.value, "capabilities");
    Ok(())
}

/// A control of one bit can be set exactly where its capability is 1.
fn gcfg_gated_bits(_: &mut Cpu) -> Outcome {
    let before = csrwr!(GCFG, 0);
    let capable = csrrd!(GCFG);
    for (control, capability) in [(7, 6), (9, 8), (11, 10), (13, 12), (15, 14)] {
        csrwr!(GCFG, 1 << control);
        let set = csrrd!(GCFG) >> control & 1;
        csrwr!(GCFG, 0);
        let cleared = csrrd!(GCFG) >> control & 1;
        ensure_eq!(set, capable >> capability & 1, "control bit {control} set");
        ensure_eq!(cleared, 0u64, "control bit {control} cleared");
    }
    csrwr!(GCFG, GCFG::GPERF.val(7).value);
    ensure_eq!(csrrd!(GCFG) >> 24 & 7, 0u64, "GPERF without GPMP");
    csrwr!(GCFG, before);
    Ok(())
}

/// A value of MATC is stored only with its capability; else the old stays.
fn gcfg_matc(_: &mut Cpu) -> Outcome {
    let before = csrwr!(GCFG, 0);
    for (write, want) in [(1, 1), (2, 1), (3, 1), (0, 0), (2, 0)] {
        csrwr!(GCFG, GCFG::MATC.val(write).value);
        ensure_eq!(csrrd!(GCFG) >> 4 & 3, want as u64, "MATC after {write}");
    }
    csrwr!(GCFG, before);
    Ok(())
}

/// GCI 0, 1 and 2 are stored, 3 is not.
fn gcfg_gci(_: &mut Cpu) -> Outcome {
    let before = csrwr!(GCFG, 0);
    for (write, want) in [(2, 2), (3, 2), (1, 1), (3, 1), (0, 0)] {
        csrwr!(GCFG, GCFG::GCI.val(write).value);
        ensure_eq!(csrrd!(GCFG) >> 20 & 3, want as u64, "GCI after {write}");
    }
    csrwr!(GCFG, before);
    Ok(())
}

/// D-GINTC: all three fields read back as written.
fn gintc(_: &mut Cpu) -> Outcome {
    let (writable, fixed) = bits_of(Csr::GINTC);
    ensure_eq!(writable, 0x00ff_ffffu64, "bits that can be written");
    ensure_eq!(fixed, 0u64, "bits that always read 1");
    Ok(())
}

/// A write of one line's bit leaves the others as they are.
fn gintc_lines(_: &mut Cpu) -> Outcome {
    let mut want = 0;
    for bit in [3u32, 0, 7, 5, 1] {
        let old = code::host_exchange(Csr::GINTC, 1 << bit, 1 << bit);
        ensure_eq!(old, want, "before line {bit}");
        want |= 1u64 << bit;
        ensure_eq!(csrrd!(GINTC), want, "after line {bit}");
    }
    code::host_exchange(Csr::GINTC, 0, 1 << 7);
    ensure_eq!(csrrd!(GINTC), want & !(1 << 7), "line 7 withdrawn");
    csrwr!(GINTC, 0);
    Ok(())
}

/// GCNTC holds 64 bits.
fn gcntc(_: &mut Cpu) -> Outcome {
    let (writable, _) = bits_of(Csr::GCNTC);
    ensure_eq!(writable, u64::MAX, "bits that can be written");
    Ok(())
}

/// csrxchg honours its mask and returns the whole old value.
fn exchange(cpu: &mut Cpu) -> Outcome {
    let fields = [
        (Csr::GTLBC, 0x00ff_0000u64),
        (Csr::GSTAT, 0x00ff_0000),
        (Csr::GINTC, 0x00ff_ffff),
        (Csr::GCNTC, u64::MAX),
    ];
    for (csr, field) in fields {
        let before = code::host_read(csr);
        for _ in 0..8 {
            let old = code::host_read(csr);
            let (value, mask) = (cpu.rng.next(), cpu.rng.next() & field);
            let returned = code::host_exchange(csr, value, mask);
            ensure_eq!(returned, old, "{} returned", csr.name());
            let want = old & !mask | value & mask;
            ensure_eq!(code::host_read(csr), want, "{} holds", csr.name());
        }
        code::host_write(csr, before);
    }
    Ok(())
}

/// A write of one LVZ register changes no other.
fn apart(_: &mut Cpu) -> Outcome {
    let registers = [Csr::GTLBC, Csr::GSTAT, Csr::GCFG, Csr::GINTC, Csr::GCNTC];
    let values = [
        0x0012_1000u64,
        0x0034_0000,
        1 << 20,
        0x0056_789a,
        0x1234_5678_9abc_def0,
    ];
    let before = registers.map(code::host_read);
    for (csr, value) in registers.into_iter().zip(values) {
        code::host_write(csr, value);
    }
    for (csr, value) in registers.into_iter().zip(values) {
        let got = code::host_read(csr);
        ensure_eq!(got & value, value, "{} holds what was written", csr.name());
    }
    for (csr, value) in registers.into_iter().zip(before) {
        code::host_write(csr, value);
    }
    ensure_eq!(
        csrrd!(GTLBC) & GTLBC::USETGID::SET.value,
        GTLBC::USETGID::SET.value,
        "USETGID back"
    );
    Ok(())
}

/// The numbers beside the LVZ registers are no registers: 0x54 and 0x55 too,
/// where an early emulator had GTLBC and TRGP.
fn no_neighbours(_: &mut Cpu) -> Outcome {
    for number in [0x14, 0x17, 0x54, 0x55, 0x56, 0x57, 0x58, 0x5f] {
        let Some(csr) = Csr::new(number) else {
            continue;
        };
        code::host_write(csr, u64::MAX);
        ensure_eq!(code::host_read(csr), 0u64, "csr {number:#x}");
    }
    Ok(())
}

/// LVZ instructions and registers need level 0: IPE at level 3.
fn level3(_: &mut Cpu) -> Outcome {
    let words = [
        encode::csrrd(Gpr::A0, Csr::GSTAT),
        encode::csrwr(Gpr::A0, Csr::GCNTC),
        encode::csrrd(Gpr::A0, Csr::GTLBC),
        encode::gcsrrd(Gpr::A0, Csr::ESTAT),
        encode::gcsrwr(Gpr::A0, Csr::save(0)),
        encode::gcsrxchg(Gpr::A0, Gpr::A1, Csr::ECFG),
        encode::invtlb(0x12, Gpr::ZERO, Gpr::ZERO),
        encode::invtlb(0x16, Gpr::A0, Gpr::A1),
    ];
    for word in words.into_iter().chain(encode::GUEST_TLB) {
        let run = HostRun::new().level(3).words(&[word, encode::BREAK]);
        ensure_eq!(
            run.exit().ecode(),
            Ecode::Ipe.number(),
            "ecode of {word:#010x}"
        );
        ensure_eq!(run.exit().badi, word, "badi");
    }
    Ok(())
}

/// D-HVCL: `hvcl` in the host is INE.
fn hvcl(_: &mut Cpu) -> Outcome {
    for code in [0, 0x100, 0x7fff] {
        let word = encode::hvcl(code);
        let exit = HostRun::new().words(&[word, encode::BREAK]).exit();
        ensure_eq!(exit.ecode(), Ecode::Ine.number(), "ecode of hvcl {code:#x}");
        ensure_eq!(exit.badi, word, "badi");
    }
    Ok(())
}

/// D-INVTLB: operations 7, 8, 0xf and from 0x17 up don't exist.
fn invtlb_undefined(_: &mut Cpu) -> Outcome {
    for op in [7, 8, 0xf].into_iter().chain(0x17..=0x1f) {
        let words = [encode::invtlb(op, Gpr::ZERO, Gpr::ZERO), encode::BREAK];
        let exit = HostRun::new().words(&words).exit();
        ensure_eq!(exit.ecode(), Ecode::Ine.number(), "ecode of invtlb {op:#x}");
    }
    Ok(())
}

/// STLBPS holds what is written, and a write returns the old value.
fn stlbps(_: &mut Cpu) -> Outcome {
    let before = csrrd!(STLBPS);
    csrwr!(STLBPS, 12);
    ensure_eq!(csrrd!(STLBPS), 12u64, "after 12");
    ensure_eq!(csrwr!(STLBPS, 14), 12u64, "old value");
    ensure_eq!(csrrd!(STLBPS), 14u64, "after 14");
    csrwr!(STLBPS, before);
    Ok(())
}
