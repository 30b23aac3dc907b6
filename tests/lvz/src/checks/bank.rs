//! The guest's bank from inside, and its independence from the host's.

use super::gcsr::{expect, fill, storage, storage_registers};
use crate::arch::{code, encode};
use crate::check::{Check, Cpu, Failed, Outcome};
use crate::guest::{DONE, Guest, reset_bank};
use crate::{ensure_eq, gcsrrd, gcsrwr};
use loongarch_isa::csr::Csr;
use loongarch_isa::exception::Ecode;
use loongarch_isa::gcsr::HARDWARE;
use loongarch_isa::gpr::Gpr;

/// This group.
pub const CHECKS: &[Check] = &[
    Check::every("bank.guest_writes_spare_host", guest_writes_spare_host),
    Check::every("bank.host_writes_spare_guest", host_writes_spare_guest),
    Check::every("bank.guest_reads_its_own", guest_reads_its_own),
    Check::every("bank.guest_writes_its_own", guest_writes_its_own),
    Check::every("bank.guest_exchanges_its_own", guest_exchanges_its_own),
    Check::every("bank.read_only_in_guest", read_only_in_guest),
    Check::every("bank.cpuid", cpuid),
    Check::every("bank.save_restore", save_restore),
];

/// What a guest runs on: random values in these would take its code away, or
/// change while it runs.
const NEEDED: [Csr; 9] = [
    Csr::CRMD,
    Csr::EENTRY,
    Csr::TLBRENTRY,
    Csr::TLBRERA,
    Csr::TVAL,
    Csr::TCFG,
    Csr::MISC,
    Csr::dmw(0),
    Csr::dmw(1),
];

/// Host registers that nothing depends on while no exception comes.
const HOST_SPARE: [Csr; 21] = [
    Csr::PRMD,
    Csr::ERA,
    Csr::BADV,
    Csr::TLBIDX,
    Csr::TLBEHI,
    Csr::TLBELO0,
    Csr::TLBELO1,
    Csr::TID,
    Csr::CNTC,
    Csr::TLBRBADV,
    Csr::TLBRSAVE,
    Csr::TLBRELO0,
    Csr::TLBRELO1,
    Csr::TLBREHI,
    Csr::TLBRPRMD,
    Csr::dmw(2),
    Csr::save(0),
    Csr::save(1),
    Csr::save(2),
    Csr::save(3),
    Csr::save(5),
];

/// Host registers that change by themselves, or by another CPU's doing.
const HOST_LIVE: [Csr; 2] = [Csr::ESTAT, Csr::TVAL];

/// The host's side of the whole bank.
fn host_values() -> [u64; HARDWARE.len()] {
    HARDWARE.map(|csr| match HOST_LIVE.contains(&csr) {
        true => 0,
        false => code::host_read(csr),
    })
}

/// Random values in every guest register leave every host register alone.
fn guest_writes_spare_host(cpu: &mut Cpu) -> Outcome {
    let before = host_values();
    for _ in 0..4 {
        fill(&mut cpu.rng);
    }
    let after = host_values();
    reset_bank(cpu.index);
    for ((csr, was), is) in HARDWARE.into_iter().zip(before).zip(after) {
        ensure_eq!(is, was, "host {}", csr.name());
    }
    Ok(())
}

/// Random values in host registers leave every guest register alone.
fn host_writes_spare_guest(cpu: &mut Cpu) -> Outcome {
    let guest = fill(&mut cpu.rng);
    let mut result = Ok(());
    for csr in HOST_SPARE {
        let before = code::host_write(csr, cpu.rng.next() & storage(csr));
        result = result.and_then(|()| expect(&guest));
        code::host_write(csr, before);
    }
    reset_bank(cpu.index);
    result
}

/// Runs one CSR instruction in the guest with `value` in a0 and a mask in a1;
/// returns a0.
fn in_guest(guest: &mut Guest, word: u32, value: u64, mask: u64) -> Result<u64, Failed> {
    guest.world.pc = code::write(&[word, encode::hvcl(DONE as u32)]);
    guest.set(Gpr::A0, value).set(Gpr::A1, mask);
    guest.run_to_hvc(DONE)?;
    Ok(guest.get(Gpr::A0))
}

/// csrrd in the guest gives what the host's gcsrwr put there, without an exit.
fn guest_reads_its_own(cpu: &mut Cpu) -> Outcome {
    let mut guest = Guest::new(cpu);
    for (csr, mask) in storage_registers() {
        let value = cpu.rng.next() & mask;
        let value = if NEEDED.contains(&csr) {
            code::guest_read(csr) & mask
        } else {
            code::guest_write(csr, value);
            value
        };
        let got = in_guest(&mut guest, encode::csrrd(Gpr::A0, csr), 0, 0)?;
        ensure_eq!(got & mask, value, "{} in the guest", csr.name());
    }
    let got = in_guest(&mut guest, encode::csrrd(Gpr::A0, Csr::ESTAT), 0, 0)?;
    ensure_eq!(got, gcsrrd!(ESTAT), "ESTAT in the guest");
    Ok(())
}

/// The bank registers that a guest can write with any value.
fn guest_spare() -> impl Iterator<Item = (Csr, u64)> {
    const READ_ONLY: [Csr; 5] = [Csr::BADI, Csr::CPUID, Csr::PRCFG1, Csr::PRCFG2, Csr::PRCFG3];
    storage_registers().filter(|(csr, _)| !NEEDED.contains(csr) && !READ_ONLY.contains(csr))
}

/// csrwr in the guest changes the guest's register, returns the old value and
/// leaves the host's alone.
fn guest_writes_its_own(cpu: &mut Cpu) -> Outcome {
    let mut guest = Guest::new(cpu);
    let host = host_values();
    for (csr, mask) in guest_spare() {
        let (old, new) = (cpu.rng.next() & mask, cpu.rng.next() & mask);
        code::guest_write(csr, old);
        let got = in_guest(&mut guest, encode::csrwr(Gpr::A0, csr), new, 0)?;
        ensure_eq!(got & mask, old, "old {} in the guest", csr.name());
        ensure_eq!(code::guest_read(csr) & mask, new, "new {}", csr.name());
    }
    compare_host(&host)
}

/// Compares what a run of the guest may not change.
fn compare_host(before: &[u64; HARDWARE.len()]) -> Outcome {
    // The entry and the exit themselves write these.
    const SWITCH: [Csr; 6] = [
        Csr::PRMD,
        Csr::ERA,
        Csr::BADV,
        Csr::BADI,
        Csr::TCFG,
        Csr::save(5),
    ];
    let refill = Csr::TLBRBADV..=Csr::TLBRPRMD;
    for ((csr, was), is) in HARDWARE.into_iter().zip(before).zip(host_values()) {
        let changes = SWITCH.contains(&csr)
            || refill.contains(&csr)
            || matches!(csr, c if c == Csr::save(4) || c == Csr::save(7) || c == Csr::TLBEHI);
        if !changes {
            ensure_eq!(is, *was, "host {}", csr.name());
        }
    }
    Ok(())
}

/// csrxchg in the guest honours its mask and returns the old value.
fn guest_exchanges_its_own(cpu: &mut Cpu) -> Outcome {
    let mut guest = Guest::new(cpu);
    for (csr, bits) in guest_spare() {
        let old = cpu.rng.next() & bits;
        let (value, mask) = (cpu.rng.next() & bits, cpu.rng.next() & bits);
        code::guest_write(csr, old);
        let word = encode::csrxchg(Gpr::A0, Gpr::A1, csr);
        let got = in_guest(&mut guest, word, value, mask)?;
        ensure_eq!(got & bits, old, "old {} in the guest", csr.name());
        let want = old & !mask | value & mask;
        ensure_eq!(code::guest_read(csr) & bits, want, "new {}", csr.name());
    }
    Ok(())
}

/// D-CSR: the registers that are read-only outside of LVZ are so in the
/// guest: its own INE, and the value stays.
fn read_only_in_guest(cpu: &mut Cpu) -> Outcome {
    let read_only = [
        Csr::MISC,
        Csr::BADI,
        Csr::PGD,
        Csr::CPUID,
        Csr::PRCFG1,
        Csr::PRCFG2,
        Csr::PRCFG3,
        Csr::TVAL,
    ];
    for csr in read_only {
        let mut guest = Guest::new(cpu);
        let before = code::guest_read(csr);
        let word = encode::csrwr(Gpr::A0, csr);
        guest.world.pc = code::write(&[word, encode::hvcl(DONE as u32)]);
        guest.set(Gpr::A0, !before);
        let own = guest.run_to_own(Ecode::Ine)?;
        ensure_eq!(own.badi, word, "badi for {}", csr.name());
        if csr != Csr::BADI {
            ensure_eq!(code::guest_read(csr), before, "guest {}", csr.name());
        }
    }
    Ok(())
}

/// CPUID in the guest is what the host put there, for sparse ids too.
fn cpuid(cpu: &mut Cpu) -> Outcome {
    let mut guest = Guest::new(cpu);
    for id in [0u64, 5, 64, 127, 255, 511] {
        gcsrwr!(CPUID, id);
        let got = in_guest(&mut guest, encode::csrrd(Gpr::A0, Csr::CPUID), 0, 0)?;
        ensure_eq!(got, id, "CPUID in the guest");
    }
    Ok(())
}

/// Two banks full of random values take turns.
fn save_restore(cpu: &mut Cpu) -> Outcome {
    let mut banks = [[0; HARDWARE.len()]; 2];
    for bank in &mut banks {
        *bank = fill(&mut cpu.rng);
    }
    for round in 0..16 {
        let bank = &mut banks[round % 2];
        for (csr, value) in HARDWARE.into_iter().zip(bank.iter()) {
            if storage(csr) != 0 {
                code::guest_write(csr, *value);
            }
        }
        expect(bank)?;
        let slot = cpu.rng.below(HARDWARE.len() as u64) as usize;
        let csr = HARDWARE[slot];
        bank[slot] = cpu.rng.next() & storage(csr);
    }
    reset_bank(cpu.index);
    Ok(())
}
