//! Turning LVZ on, on each CPU.
//!
//! Source: `kvm_arch_enable_virtualization_cpu` of Linux 7.2,
//! arch/loongarch/kvm/main.c.

use super::{cpu, tlb};
use crate::isa::csr::{GCFG, GTLBC, PWCH, PWCL, STLBPS};
use crate::isa::{csr_exchange, csr_read, csr_write};
use crate::mm::addr::PAGE_SHIFT;
use crate::mm::stage2::{BLOCK_SHIFT, ROOT_SHIFT, TABLE_BITS};
use crate::platform::capability::{GuestSide, Missing, identifier_bits};

/// GCFG.GCI: only the dangerous cache operations exit.
const GCI_DANGEROUS: u64 = 2;
/// GCFG.MATC: the host's memory type counts.
const MATC_HOST: u64 = 1;

/// Looks whether this CPU can run guests; returns the width of a guest
/// identifier in bits.
///
/// # Errors
/// The first thing that it lacks.
pub fn probe() -> Result<u32, Missing> {
    identifier_bits(cpu::cpucfg, || GuestSide {
        gcfg: csr_read!(GCFG),
        gstat: csr_read!(GSTAT),
    })
}

/// Sets this CPU up for guests whose second-stage root has `root_bits` index
/// bits. [`probe`] has found nothing missing.
pub fn set_up(root_bits: u32) {
    let controls = GCFG::GCI.val(GCI_DANGEROUS) + GCFG::MATC.val(MATC_HOST);
    let walk = PWCL::PTBASE.val(u64::from(PAGE_SHIFT))
        + PWCL::PTWIDTH.val(u64::from(TABLE_BITS))
        + PWCL::DIR1_BASE.val(u64::from(BLOCK_SHIFT))
        + PWCL::DIR1_WIDTH.val(u64::from(TABLE_BITS));
    // The root is directory 3, whose base has the six bits that 36 needs.
    let root =
        PWCH::DIR3_BASE.val(u64::from(ROOT_SHIFT)) + PWCH::DIR3_WIDTH.val(u64::from(root_bits));
    let both = GTLBC::USETGID::SET + GTLBC::TOTI::SET;
    // SAFETY: no guest is loaded, and the hypervisor itself uses none of
    // these: it has no TLB entry.
    unsafe {
        csr_write!(GCFG, 0);
        csr_write!(GSTAT, 0);
        csr_write!(GINTC, 0);
        csr_exchange!(GTLBC, 0, both.mask());
        csr_write!(GCFG, controls.value);
        csr_write!(PWCL, walk.value);
        csr_write!(PWCH, root.value);
        csr_write!(STLBPS, STLBPS::PS.val(u64::from(PAGE_SHIFT)).value);
        csr_write!(ASID, 0);
    }
    tlb::flush_all_guests();
    let use_tgid = GTLBC::USETGID::SET;
    // SAFETY: as above.
    unsafe { csr_exchange!(GTLBC, use_tgid.value, use_tgid.mask()) };
}
