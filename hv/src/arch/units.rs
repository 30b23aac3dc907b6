//! Floating-point and vector registers of a guest.
//!
//! One file, saved and restored at the widest size that the CPU has, since a
//! narrower restore would lose what a wider unit left. The hypervisor is
//! soft-float and touches none of it.
//!
//! Source: *LoongArch Reference Manual, Volume 1*, chapter 3; vector loads
//! and stores as the LLVM assembler writes them.

use crate::isa::csr::EUEN;
use crate::isa::csr_write;
use crate::vcpu::Units;
use core::arch::asm;
use core::mem::offset_of;

/// The widest unit of the CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Widest {
    /// 64-bit floating point.
    Float,
    /// 128-bit vectors.
    Lsx,
    /// 256-bit vectors.
    Lasx,
}

impl Widest {
    /// The widest of the units that a guest has: floating point, LSX, LASX.
    #[must_use]
    pub const fn of([_, lsx, lasx]: [bool; 3]) -> Self {
        match (lsx, lasx) {
            (_, true) => Self::Lasx,
            (true, false) => Self::Lsx,
            (false, false) => Self::Float,
        }
    }

    const fn enables(self) -> u64 {
        let float = EUEN::FPE::SET.value;
        match self {
            Self::Float => float,
            Self::Lsx => float | EUEN::SXE::SET.value,
            Self::Lasx => float | EUEN::SXE::SET.value | EUEN::ASXE::SET.value,
        }
    }
}

/// `insn` on each of the 32 registers of a file.
macro_rules! each_register {
    ($units:expr, $insn:literal, $prefix:literal) => {
        asm!(
            concat!(
                ".irp n,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31\n",
                $insn, " $", $prefix, "\\n, {units}, {file} + 32 * \\n\n",
                ".endr",
            ),
            units = in(reg) $units,
            file = const offset_of!(Units, file),
            options(nostack),
        )
    };
}

/// Turns the units on and gives them the guest's registers.
pub fn load(units: &Units, widest: Widest) {
    let (fcc, fcsr) = (units.fcc, units.fcsr);
    // SAFETY: the units are on before they are used, and belong to guests.
    unsafe {
        csr_write!(EUEN, widest.enables());
        match widest {
            Widest::Float => each_register!(units, "fld.d", "f"),
            Widest::Lsx => each_register!(units, "vld", "vr"),
            Widest::Lasx => each_register!(units, "xvld", "xr"),
        }
        asm!(
            ".irp n,0,1,2,3,4,5,6,7",
            "bstrpick.d {t}, {fcc}, 8 * \\n + 7, 8 * \\n",
            "movgr2cf $fcc\\n, {t}",
            ".endr",
            "movgr2fcsr $fcsr0, {fcsr}",
            t = out(reg) _,
            fcc = in(reg) fcc,
            fcsr = in(reg) fcsr,
            options(nomem, nostack),
        );
    }
}

/// Takes the guest's registers and turns the units off.
pub fn save(units: &mut Units, widest: Widest) {
    let (fcc, fcsr): (u64, u64);
    // SAFETY: `load` turned the units on; the file is written whole.
    unsafe {
        match widest {
            Widest::Float => each_register!(&raw mut *units, "fst.d", "f"),
            Widest::Lsx => each_register!(&raw mut *units, "vst", "vr"),
            Widest::Lasx => each_register!(&raw mut *units, "xvst", "xr"),
        }
        asm!(
            "move {fcc}, $zero",
            ".irp n,0,1,2,3,4,5,6,7",
            "movcf2gr {t}, $fcc\\n",
            "bstrins.d {fcc}, {t}, 8 * \\n + 7, 8 * \\n",
            ".endr",
            "movfcsr2gr {fcsr}, $fcsr0",
            t = out(reg) _,
            fcc = out(reg) fcc,
            fcsr = out(reg) fcsr,
            options(nomem, nostack),
        );
        csr_write!(EUEN, 0);
    }
    (units.fcc, units.fcsr) = (fcc, fcsr);
}
