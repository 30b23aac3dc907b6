//! The instructions themselves.
//!
//! All of this crate's assembly is here. Each is a privileged instruction,
//! or one that traps to the hypervisor: in user mode it ends in an exception
//! and does nothing.
//!
//! Offsets are given as 64 bits: of a narrower value `asm!` leaves the
//! register's upper half as it was, and the instructions take all of it.
//!
//! Source: LoongArch Reference Manual, volume 1; the numbers of the LVZ
//! instructions are known to the assembler.

use crate::abi::hypercall::CODE_SERVICE;
use crate::machine::Machine;
use core::arch::asm;

/// Number of the CSR with the pending interrupts.
const ESTAT: u32 = 0x5;
/// Software interrupt 0 in it.
const SWI0: u64 = 1;

/// The CPU that this code runs on.
#[derive(Clone, Copy, Debug, Default)]
pub struct Native;

impl Machine for Native {
    #[inline]
    fn cpucfg(&self, word: u32) -> u32 {
        let value: u64;
        // SAFETY: reads a configuration word, and touches nothing else.
        unsafe {
            asm!("cpucfg {}, {}", out(reg) value, in(reg) u64::from(word), options(nomem, nostack));
        }
        value as u32
    }

    #[inline]
    fn iocsr_read32(&self, offset: u32) -> u32 {
        let value: u64;
        // SAFETY: reads a register, and touches no memory.
        unsafe {
            asm!("iocsrrd.w {}, {}", out(reg) value, in(reg) u64::from(offset), options(nostack));
        }
        value as u32
    }

    #[inline]
    unsafe fn iocsr_write32(&self, offset: u32, value: u32) {
        // SAFETY: the caller answers for the write. The barrier orders the
        // stores before it.
        unsafe {
            asm!("dbar 0", "iocsrwr.w {}, {}", in(reg) value, in(reg) u64::from(offset), options(nostack));
        }
    }

    #[inline]
    unsafe fn iocsr_write64(&self, offset: u32, value: u64) {
        // SAFETY: as above.
        unsafe {
            asm!("dbar 0", "iocsrwr.d {}, {}", in(reg) value, in(reg) u64::from(offset), options(nostack));
        }
    }

    #[inline]
    unsafe fn hypercall(&self, function: u64, [a1, a2, a3]: [u64; 3]) -> u64 {
        let result;
        // SAFETY: the caller answers for the call, which changes a0 alone.
        unsafe {
            asm!("hvcl {}", const CODE_SERVICE, inlateout("$a0") function => result,
                in("$a1") a1, in("$a2") a2, in("$a3") a3, options(nostack));
        }
        result
    }

    #[inline]
    fn clear_swi0(&self) {
        // SAFETY: clears a pending software interrupt; what follows in
        // program order stays behind it, for the instruction isn't `nomem`.
        // The mask is in a register by name: r0 or r1 in its place would
        // make another instruction.
        unsafe {
            asm!("csrxchg {}, $t0, {}", inout(reg) 0_u64 => _, const ESTAT, in("$t0") SWI0,
                options(nostack));
        }
    }
}
