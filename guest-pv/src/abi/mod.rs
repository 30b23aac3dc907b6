//! Numbers and records shared by a guest and its hypervisor.
//!
//! Two programs that were built apart must agree on them bit for bit, so
//! they stand in one place, without behaviour, and their layout is asserted.
//!
//! Source: Linux 6.10 and later, asm/kvm_para.h, asm/loongarch.h,
//! kernel/paravirt.c, which an unmodified guest was built from; the vendor
//! range is Loongvisor's own.

pub mod cpucfg;
pub mod hypercall;
pub mod iocsr;
pub mod steal;
pub mod vendor;
