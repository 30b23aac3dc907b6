//! Where a guest's control and status registers live.
//!
//! In guest mode an access to a register of the guest's own bank goes there
//! without an exit; every other access exits (GSPR) and is for software to
//! emulate: with a value that software keeps, or, for what doesn't exist, by
//! reading 0 and ignoring writes.
//!
//! Source: the two lists in `kvm_init_gcsr_flag`, arch/loongarch/kvm/main.c
//! of Linux 7.2, which runs on 3A5000, 3A6000, 3C5000 and 3C6000.

use super::csr::Csr;

/// Where a guest's register lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Home {
    /// In the hardware's guest bank: `gcsrrd`, `gcsrwr` and `gcsrxchg` reach it.
    Hardware,
    /// Likewise, on a chip with message interrupts (CPUCFG1 bit 26); absent on others.
    HardwareWithMsgint,
    /// In software: an access exits, the value is the hypervisor's to keep.
    Software,
    /// Nowhere: an access exits, reads 0, ignores writes.
    Absent,
}

/// The guest bank, in ascending order of number.
pub const HARDWARE: [Csr; 52] = [
    Csr::CRMD,
    Csr::PRMD,
    Csr::EUEN,
    Csr::MISC,
    Csr::ECFG,
    Csr::ESTAT,
    Csr::ERA,
    Csr::BADV,
    Csr::BADI,
    Csr::EENTRY,
    Csr::TLBIDX,
    Csr::TLBEHI,
    Csr::TLBELO0,
    Csr::TLBELO1,
    Csr::ASID,
    Csr::PGDL,
    Csr::PGDH,
    Csr::PGD,
    Csr::PWCL,
    Csr::PWCH,
    Csr::STLBPS,
    Csr::RVACFG,
    Csr::CPUID,
    Csr::PRCFG1,
    Csr::PRCFG2,
    Csr::PRCFG3,
    Csr::save(0),
    Csr::save(1),
    Csr::save(2),
    Csr::save(3),
    Csr::save(4),
    Csr::save(5),
    Csr::save(6),
    Csr::save(7),
    Csr::TID,
    Csr::TCFG,
    Csr::TVAL,
    Csr::CNTC,
    Csr::TICLR,
    Csr::LLBCTL,
    Csr::TLBRENTRY,
    Csr::TLBRBADV,
    Csr::TLBRERA,
    Csr::TLBRSAVE,
    Csr::TLBRELO0,
    Csr::TLBRELO1,
    Csr::TLBREHI,
    Csr::TLBRPRMD,
    Csr::dmw(0),
    Csr::dmw(1),
    Csr::dmw(2),
    Csr::dmw(3),
];

/// What a chip with message interrupts adds to the guest bank.
pub const HARDWARE_WITH_MSGINT: [Csr; 5] =
    [Csr::isr(0), Csr::isr(1), Csr::isr(2), Csr::isr(3), Csr::IPR];

/// What virtualization adds to the host's registers.
pub const OF_THE_HOST: [Csr; 6] = [
    Csr::GTLBC,
    Csr::TRGP,
    Csr::GSTAT,
    Csr::GCFG,
    Csr::GINTC,
    Csr::GCNTC,
];

/// The lists of registers that software keeps, apart from the numbered
/// families of [`in_software_family`].
const SOFTWARE: [Csr; 12] = [
    Csr::IMPCTL1,
    Csr::IMPCTL2,
    Csr::MERRCTL,
    Csr::MERRINFO1,
    Csr::MERRINFO2,
    Csr::MERRENTRY,
    Csr::MERRERA,
    Csr::MERRSAVE,
    Csr::CTAG,
    Csr::DBG,
    Csr::DERA,
    Csr::DSAVE,
];

/// Whether `list` holds `csr`.
const fn holds(list: &[Csr], csr: Csr) -> bool {
    let mut i = 0;
    while i < list.len() {
        if list[i].number() == csr.number() {
            return true;
        }
        i += 1;
    }
    false
}

/// Performance counters 0 to 3 (0x200 to 0x207) and watchpoints: two
/// configuration registers and eight groups of four registers, eight numbers
/// apart, for loads and stores (0x300, 0x310) and for fetches (0x380, 0x390).
const fn in_software_family(number: u16) -> bool {
    match number {
        0x200..=0x207 => true,
        0x300 | 0x301 | 0x380 | 0x381 => true,
        0x310..=0x34f | 0x390..=0x3cf => number & 7 < 4,
        _ => false,
    }
}

/// Where the guest's `csr` lives, while GCFG.GPERF grants no counter.
pub const fn home(csr: Csr) -> Home {
    if holds(&HARDWARE, csr) {
        Home::Hardware
    } else if holds(&HARDWARE_WITH_MSGINT, csr) {
        Home::HardwareWithMsgint
    } else if holds(&SOFTWARE, csr) || in_software_family(csr.number()) {
        Home::Software
    } else {
        Home::Absent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all_with(wanted: Home) -> Vec<u16> {
        (0..=0x3fff)
            .filter(|&n| Csr::new(n).is_some_and(|c| home(c) == wanted))
            .collect()
    }

    #[test]
    fn every_number_has_one_home() {
        assert_eq!(all_with(Home::Hardware).len(), 52);
        assert_eq!(
            all_with(Home::HardwareWithMsgint),
            [0xa0, 0xa1, 0xa2, 0xa3, 0xa5]
        );
        // 12 single ones, 8 of the PMU, 4 + 64 of the watchpoints.
        assert_eq!(all_with(Home::Software).len(), 12 + 8 + 4 + 64);
    }

    #[test]
    fn guest_bank_is_sorted_and_without_repeats() {
        assert!(HARDWARE.windows(2).all(|w| w[0] < w[1]));
    }

    #[test]
    fn the_host_s_virtualization_registers_do_not_exist_for_a_guest() {
        for csr in OF_THE_HOST {
            assert_eq!(home(csr), Home::Absent);
        }
    }

    #[test]
    fn ends_of_the_watchpoint_groups() {
        for (number, wanted) in [
            (0x30f, Home::Absent),
            (0x310, Home::Software),
            (0x313, Home::Software),
            (0x314, Home::Absent),
            (0x34b, Home::Software),
            (0x350, Home::Absent),
            (0x3cb, Home::Software),
            (0x3cc, Home::Absent),
            (0x3d0, Home::Absent),
        ] {
            assert_eq!(Csr::new(number).map(home), Some(wanted), "{number:#x}");
        }
    }
}
