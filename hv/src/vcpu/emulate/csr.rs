//! CSR instructions on registers that aren't in the guest's bank.
//!
//! Those that software keeps remember what was written; nothing acts on it.
//! All others read 0 and ignore writes.

use crate::isa::csr::Csr;
use crate::isa::gcsr::{self, Home};
use crate::isa::gpr::{Gpr, Gprs};
use crate::isa::insn::CsrOp;

/// Numbers below this have a place; no register that software keeps is above.
const PLACES: usize = 0x503;

/// Where each register's value is kept, `NOWHERE` for those that have none.
const INDEX: [u8; PLACES] = index();
/// How many values are kept.
const VALUES: usize = 88;
const NOWHERE: u8 = u8::MAX;

#[expect(
    clippy::indexing_slicing,
    reason = "evaluated when the hypervisor is built"
)]
const fn index() -> [u8; PLACES] {
    let mut table = [NOWHERE; PLACES];
    let mut next = 0;
    let mut number = 0;
    while number < PLACES {
        if let Some(csr) = Csr::new(number as u16)
            && matches!(gcsr::home(csr), Home::Software)
        {
            table[number] = next;
            next += 1;
        }
        number += 1;
    }
    assert!(next as usize == VALUES);
    table
}

/// The registers of a vCPU that software keeps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SoftCsrs {
    values: [u64; VALUES],
}

impl Default for SoftCsrs {
    fn default() -> Self {
        let values = [0; VALUES];
        Self { values }
    }
}

impl SoftCsrs {
    #[inline]
    fn value(&mut self, csr: Csr) -> Option<&mut u64> {
        let index = INDEX.get(usize::from(csr.number()))?;
        self.values.get_mut(usize::from(*index))
    }

    /// Carries out a CSR instruction.
    #[inline]
    pub fn emulate(&mut self, gprs: &mut Gprs, op: CsrOp, csr: Csr, rd: Gpr) {
        if op == CsrOp::Read {
            let value = self.value(csr).map_or(0, |value| *value);
            gprs.set(rd, value);
            return;
        }
        let new = gprs.get(rd);
        let mask = match op {
            CsrOp::Read => 0,
            CsrOp::Write => u64::MAX,
            CsrOp::Exchange { mask } => gprs.get(mask),
        };
        let old = self.value(csr).map_or(0, |value| {
            let old = *value;
            *value = old & !mask | new & mask;
            old
        });
        gprs.set(rd, old);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(csrs: &mut SoftCsrs, op: CsrOp, number: u16, rd: u64, mask: u64) -> u64 {
        let mut gprs = Gprs::new();
        gprs.set(Gpr::A0, rd);
        gprs.set(Gpr::A1, mask);
        csrs.emulate(&mut gprs, op, Csr::new(number).unwrap(), Gpr::A0);
        gprs.get(Gpr::A0)
    }

    const EXCHANGE: CsrOp = CsrOp::Exchange { mask: Gpr::A1 };

    #[test]
    fn registers_that_software_keeps_remember() {
        let mut csrs = SoftCsrs::default();
        for number in [0x80, 0x98, 0x200, 0x207, 0x301, 0x3cb, 0x502] {
            assert_eq!(run(&mut csrs, CsrOp::Write, number, 0xff00, 0), 0);
            assert_eq!(run(&mut csrs, EXCHANGE, number, 0x1234, 0xf00f), 0xff00);
            assert_eq!(run(&mut csrs, CsrOp::Read, number, 9, 0), 0x1f04);
        }
    }

    #[test]
    fn each_register_has_its_own_place() {
        let mut csrs = SoftCsrs::default();
        let kept = |n: &u16| gcsr::home(Csr::new(*n).unwrap()) == Home::Software;
        for number in (0..0x3fff).filter(kept) {
            run(&mut csrs, CsrOp::Write, number, u64::from(number), 0);
        }
        for number in (0..0x3fff).filter(kept) {
            assert_eq!(run(&mut csrs, CsrOp::Read, number, 0, 0), u64::from(number));
        }
    }

    #[test]
    fn registers_that_do_not_exist_read_nothing() {
        let mut csrs = SoftCsrs::default();
        for number in [0x15, 0x50, 0x53, 0x208, 0x30f, 0x503, 0x3fff] {
            assert_eq!(run(&mut csrs, CsrOp::Write, number, u64::MAX, 0), 0);
            assert_eq!(run(&mut csrs, EXCHANGE, number, u64::MAX, u64::MAX), 0);
            assert_eq!(run(&mut csrs, CsrOp::Read, number, 7, 0), 0);
        }
        assert_eq!(csrs, SoftCsrs::default());
    }

    #[test]
    fn a_write_from_r0_writes_zero_and_keeps_r0() {
        let mut csrs = SoftCsrs::default();
        run(&mut csrs, CsrOp::Write, 0x80, 5, 0);
        let mut gprs = Gprs::new();
        csrs.emulate(&mut gprs, CsrOp::Write, Csr::IMPCTL1, Gpr::ZERO);
        assert_eq!(gprs, Gprs::new());
        assert_eq!(run(&mut csrs, CsrOp::Read, 0x80, 0, 0), 0);
    }
}
