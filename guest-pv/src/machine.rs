//! The instructions that reach the hypervisor, as a trait.
//!
//! They stand apart so that everything else can be tested on any host, where
//! a model of a hypervisor takes their place. The real ones are
//! `loongarch::Native`.
//!
//! Source: LoongArch Reference Manual, volume 1, sections 2.2.10.5 (CPUCFG)
//! and 4.2.2 (IOCSR); Linux, asm/kvm_para.h (the call's registers).

/// The CPU that executes the call, which is in privilege level 0.
pub trait Machine {
    /// Configuration word `word`, by `cpucfg`.
    fn cpucfg(&self, word: u32) -> u32;

    /// The 32-bit IOCSR register at `offset`.
    ///
    /// The registers named in [`crate::abi::iocsr`] are read without an
    /// effect; that of another offset may have one.
    fn iocsr_read32(&self, offset: u32) -> u32;

    /// Writes the 32-bit IOCSR register at `offset`. Stores that come before
    /// it in program order are visible to a CPU that the write interrupts.
    ///
    /// # Safety
    /// What the write does to this machine must be sound: a boot IPI makes
    /// another CPU run code.
    unsafe fn iocsr_write32(&self, offset: u32, value: u32);

    /// Writes the 64-bit IOCSR register at `offset`, likewise.
    ///
    /// # Safety
    /// As for [`Machine::iocsr_write32`].
    unsafe fn iocsr_write64(&self, offset: u32, value: u64);

    /// `hvcl 0x100` with `function` in a0 and `arguments` in a1 to a3; a0
    /// afterwards.
    ///
    /// # Safety
    /// What the function does with its arguments must be sound: some make
    /// the hypervisor write to memory. There must be a hypervisor: on a
    /// machine without one the instruction is illegal.
    unsafe fn hypercall(&self, function: u64, arguments: [u64; 3]) -> u64;

    /// Clears software interrupt 0 of this CPU: bit 0 of ESTAT.
    fn clear_swi0(&self);
}

impl<M: Machine + ?Sized> Machine for &M {
    fn cpucfg(&self, word: u32) -> u32 {
        (**self).cpucfg(word)
    }

    fn iocsr_read32(&self, offset: u32) -> u32 {
        (**self).iocsr_read32(offset)
    }

    unsafe fn iocsr_write32(&self, offset: u32, value: u32) {
        // SAFETY: the caller's duty is the same.
        unsafe { (**self).iocsr_write32(offset, value) }
    }

    unsafe fn iocsr_write64(&self, offset: u32, value: u64) {
        // SAFETY: the caller's duty is the same.
        unsafe { (**self).iocsr_write64(offset, value) }
    }

    unsafe fn hypercall(&self, function: u64, arguments: [u64; 3]) -> u64 {
        // SAFETY: the caller's duty is the same.
        unsafe { (**self).hypercall(function, arguments) }
    }

    fn clear_swi0(&self) {
        (**self).clear_swi0();
    }
}
