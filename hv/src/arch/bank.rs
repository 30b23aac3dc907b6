//! The guest's register bank: moved between hardware and a vCPU's image when
//! a vCPU is loaded or put, and not in between.
//!
//! ESTAT, GINTC and the timer have an order of their own. LLBCTL isn't kept:
//! a pair of LL and SC never survives a change of vCPU. What is read-only
//! (PGD, PRCFG1 to 3) or only acts when written (TICLR) isn't either.
//!
//! Source: `_kvm_vcpu_load` and `kvm_restore_timer` of Linux 7.2,
//! arch/loongarch/kvm.

use super::cpu;
use crate::isa::access::{guest_read, guest_write};
use crate::isa::csr::{Csr, ESTAT, LLBCTL, TICLR};
use crate::isa::exception::Interrupt;
use crate::isa::{csr_exchange, csr_read, csr_write, gcsr_exchange, gcsr_read, gcsr_write};
use crate::vcpu::timer::{Restore, SavedTimer};
use crate::vcpu::{BANKED, GuestCsrs, Vcpu};

/// Where `csr` is in the image. A constant: each access is one instruction.
const fn place(csr: Csr) -> usize {
    let mut at = 0;
    while LIST[at].number() != csr.number() {
        at += 1;
    }
    at
}

macro_rules! banked {
    ($($name:ident $(($n:literal))?,)*) => {
        const LIST: [Csr; BANKED] = [$(Csr::$name $(($n))?,)*];

        fn save_bank(image: &mut GuestCsrs) {
            $({
                const AT: usize = place(Csr::$name $(($n))?);
                // No guest can write its number.
                if AT != place(Csr::CPUID) {
                    image.0[AT] = guest_read::<{ Csr::$name $(($n))?.number() }>();
                }
            })*
        }

        fn load_bank(image: &GuestCsrs) {
            $({
                const AT: usize = place(Csr::$name $(($n))?);
                // SAFETY: the guest's own register, in a guest that isn't running.
                unsafe { guest_write::<{ Csr::$name $(($n))?.number() }>(image.0[AT]) };
            })*
        }
    };
}

banked! {
    CRMD, PRMD, EUEN, MISC, ECFG, ERA, BADV, BADI, EENTRY,
    TLBIDX, TLBEHI, TLBELO0, TLBELO1, ASID, PGDL, PGDH, PWCL, PWCH, STLBPS, RVACFG,
    CPUID, save(0), save(1), save(2), save(3), save(4), save(5), save(6), save(7), TID, CNTC,
    TLBRENTRY, TLBRBADV, TLBRERA, TLBRSAVE, TLBRELO0, TLBRELO1, TLBREHI, TLBRPRMD,
    dmw(0), dmw(1), dmw(2), dmw(3),
}

/// Sets a register in the image of a vCPU that isn't loaded.
pub fn set(image: &mut GuestCsrs, csr: Csr, value: u64) {
    for (place, listed) in image.0.iter_mut().zip(LIST) {
        if listed == csr {
            *place = value;
        }
    }
}

/// Takes the loaded vCPU's registers off this CPU.
pub fn save(vcpu: &mut Vcpu) {
    save_bank(&mut vcpu.csrs);
    vcpu.timer = SavedTimer {
        tcfg: gcsr_read!(TCFG),
        tval: gcsr_read!(TVAL),
        saved_at: cpu::ticks(),
    };
    // After TVAL: an expiry in between shows in both.
    vcpu.estat = gcsr_read!(ESTAT);
    vcpu.gintc = csr_read!(GINTC);
}

/// Puts a vCPU's registers onto this CPU.
pub fn load(vcpu: &Vcpu) {
    load_bank(&vcpu.csrs);
    // SAFETY: the guest's own registers, in a guest that isn't running.
    unsafe {
        csr_write!(GINTC, vcpu.gintc);
        csr_write!(GCNTC, vcpu.vm().clock.offset);
    }
    forget_linked_load();
    restore_timer(&vcpu.timer, vcpu.estat);
}

/// The loaded guest's next SC fails, unless an LL comes first.
pub fn forget_linked_load() {
    // SAFETY: the guest's own register, in a guest that isn't running.
    unsafe { gcsr_write!(LLBCTL, LLBCTL::WCLLB::SET.value) };
}

fn restore_timer(timer: &SavedTimer, estat: u64) {
    // SAFETY: the guest's own timer, in a guest that isn't running. Off
    // first, so that the old set-up can't raise an interrupt in the new one.
    unsafe {
        gcsr_write!(TCFG, 0);
        gcsr_write!(ESTAT, estat);
        gcsr_write!(TCFG, timer.tcfg);
    }
    match timer.restore(estat, cpu::ticks()) {
        // SAFETY: as above.
        Restore::Off { tval } => unsafe {
            gcsr_write!(TVAL, tval);
        },
        Restore::Running { ticks, raise } => {
            // SAFETY: as above.
            unsafe { gcsr_write!(TVAL, ticks) };
            if raise {
                set_estat(Interrupt::TI.bit(), Interrupt::TI.bit());
            }
        }
        Restore::Fired { acknowledged } => fire(acknowledged),
    }
}

/// Ticks after which a timer whose TVAL is 0 has fired: two are enough.
const FIRE_TICKS: u64 = 64;

/// Lets a one-shot expire, so that its TVAL reads as after an expiry.
fn fire(acknowledged: bool) {
    // SAFETY: as in `restore_timer`.
    unsafe { gcsr_write!(TVAL, 0) };
    let start = cpu::ticks();
    while gcsr_read!(ESTAT) & Interrupt::TI.bit() == 0
        && cpu::ticks().wrapping_sub(start) < FIRE_TICKS
    {
        core::hint::spin_loop();
    }
    if acknowledged {
        // SAFETY: as in `restore_timer`.
        unsafe { gcsr_write!(TICLR, TICLR::CLR::SET.value) };
    }
}

/// Bits of ESTAT that an exception writes: code and sub-code.
pub const ESTAT_CAUSE: u64 =
    ESTAT::ECODE.mask << ESTAT::ECODE.shift | ESTAT::ESUBCODE.mask << ESTAT::ESUBCODE.shift;

/// Changes bits of the loaded guest's ESTAT. The exchange can lose
/// an expiry of the guest's timer that falls into it: it is given back.
#[inline]
pub fn set_estat(value: u64, mask: u64) {
    let before = gcsr_read!(TVAL);
    // SAFETY: pending bits of a guest that isn't running.
    unsafe { gcsr_exchange!(ESTAT, value, mask) };
    if crate::vcpu::interrupt::timer_expired(before, gcsr_read!(TVAL)) {
        let ti = Interrupt::TI.bit();
        // SAFETY: as above.
        unsafe { gcsr_exchange!(ESTAT, ti, ti) };
    }
}

/// Changes the virtual hardware lines of the loaded guest, HWI0 at bit 0.
#[inline]
pub fn set_hardware_lines(value: u64, mask: u64) {
    // SAFETY: GINTC.HWIS only reaches the guest.
    unsafe { csr_exchange!(GINTC, value, mask) };
}
