//! Turning LVZ on, on each CPU.
//!
//! Source: `kvm_arch_enable_virtualization_cpu` of Linux 7.2,
//! arch/loongarch/kvm/main.c.

use super::{cpu, tlb};
use crate::isa::csr::{GCFG, GSTAT, GTLBC, PWCH, PWCL, STLBPS};
use crate::isa::{csr_exchange, csr_read, csr_write};
use crate::mm::addr::PAGE_SHIFT;
use crate::mm::stage2::{BLOCK_SHIFT, ROOT_SHIFT, TABLE_BITS};
use tock_registers::LocalRegisterCopy;

/// CPUCFG word 2: LVZ.
const CPUCFG2_LVZ: u32 = 1 << 10;
/// GCFG.GCIP: value 2 of GCI is offered.
const GCI_DANGEROUS_OFFERED: u64 = 1 << 2;
/// GCFG.GCI: only the dangerous cache operations exit.
const GCI_DANGEROUS: u64 = 2;
/// GCFG.MATP: value 1 of MATC is offered.
const MATC_HOST_OFFERED: u64 = 1 << 1;
/// GCFG.MATC: the host's memory type counts.
const MATC_HOST: u64 = 1;

/// What a machine lacks for running guests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    /// The CPU has no LVZ.
    Lvz,
    /// There are no guest identifiers (GSTAT.GIDBIT is 0).
    Identifiers,
    /// Cache operations of guests can't be confined (GCFG.GCIP).
    CacheControl,
    /// Guests can't be kept from choosing memory types (GCFG.MATP).
    MemoryType,
}

impl core::fmt::Display for Missing {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::Lvz => "this CPU has no LVZ (CPUCFG word 2, bit 10)",
            Self::Identifiers => "LVZ without guest identifiers (GSTAT.GIDBIT is 0)",
            Self::CacheControl => "LVZ without control of cache operations (GCFG.GCIP, value 2)",
            Self::MemoryType => "LVZ without control of memory types (GCFG.MATP, value 1)",
        })
    }
}

/// Looks whether this CPU can run guests; returns the width of a guest
/// identifier in bits.
///
/// # Errors
/// The first thing that it lacks.
pub fn probe() -> Result<u32, Missing> {
    if cpu::cpucfg(2) & CPUCFG2_LVZ == 0 {
        return Err(Missing::Lvz);
    }
    let gcfg = LocalRegisterCopy::<u64, GCFG::Register>::new(csr_read!(GCFG));
    if gcfg.read(GCFG::GCIP) & GCI_DANGEROUS_OFFERED == 0 {
        return Err(Missing::CacheControl);
    }
    if gcfg.read(GCFG::MATP) & MATC_HOST_OFFERED == 0 {
        return Err(Missing::MemoryType);
    }
    let gstat = LocalRegisterCopy::<u64, GSTAT::Register>::new(csr_read!(GSTAT));
    match gstat.read(GSTAT::GIDBIT) as u32 {
        0 => Err(Missing::Identifiers),
        bits => Ok(bits),
    }
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
