//! Without LVZ: nothing of it shows, and the processor is QEMU's own.

use crate::arch::{code, cpucfg, encode};
use crate::check::{Check, Cpu, Outcome};
use crate::ensure_eq;
use crate::guest::host_run::HostRun;
use loongarch_isa::csr::Csr;
use loongarch_isa::exception::Ecode;
use loongarch_isa::gcsr::OF_THE_HOST;
use loongarch_isa::gpr::Gpr;

/// This group.
pub const CHECKS: &[Check] = &[
    Check::every("off.cpucfg2", no_lvz),
    Check::every("off.cpucfg3", cpucfg3),
    Check::every("off.instructions", instructions),
    Check::every("off.registers", registers),
    Check::every("off.ertn_with_pvm", ertn_with_pvm),
];

/// CPUCFG2 has neither LVZ nor a version of it.
fn no_lvz(_: &mut Cpu) -> Outcome {
    ensure_eq!(cpucfg(2) >> 10 & 0xf, 0u32, "LVZ and its version");
    Ok(())
}

/// CPUCFG3 is what QEMU's own la464 has.
fn cpucfg3(_: &mut Cpu) -> Outcome {
    ensure_eq!(cpucfg(3), 0u32, "cpucfg3");
    Ok(())
}

/// All LVZ instructions, and INVTLB's guest operations, are INE.
fn instructions(_: &mut Cpu) -> Outcome {
    let gcsr = [
        encode::gcsrrd(Gpr::A0, Csr::CRMD),
        encode::gcsrwr(Gpr::A0, Csr::save(0)),
        encode::gcsrxchg(Gpr::A0, Gpr::A1, Csr::ESTAT),
        encode::hvcl(0),
        encode::hvcl(0x7fff),
    ];
    let invtlb = (7..32).map(|op| encode::invtlb(op, Gpr::ZERO, Gpr::ZERO));
    for word in gcsr.into_iter().chain(encode::GUEST_TLB).chain(invtlb) {
        let exit = HostRun::new().words(&[word, encode::BREAK]).exit();
        ensure_eq!(exit.ecode(), Ecode::Ine.number(), "ecode of {word:#010x}");
        ensure_eq!(exit.badi, word, "badi");
    }
    Ok(())
}

/// The LVZ registers don't exist: they read 0 and ignore writes.
fn registers(_: &mut Cpu) -> Outcome {
    for csr in OF_THE_HOST {
        code::host_write(csr, u64::MAX);
        ensure_eq!(code::host_read(csr), 0u64, "{}", csr.name());
        code::host_exchange(csr, u64::MAX, u64::MAX);
        ensure_eq!(
            code::host_read(csr),
            0u64,
            "{} after an exchange",
            csr.name()
        );
    }
    Ok(())
}

/// An attempt to enter a guest stays in the host.
fn ertn_with_pvm(_: &mut Cpu) -> Outcome {
    code::host_write(Csr::GSTAT, 2);
    let run = HostRun::new().words(&[encode::csrrd(Gpr::A0, Csr::CPUID), encode::SYSCALL]);
    ensure_eq!(run.exit().ecode(), Ecode::Sys.number(), "ecode");
    Ok(())
}
