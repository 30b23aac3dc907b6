//! A page of code a CPU, written at run time.
//!
//! A CSR's number is part of its instruction, so going through all 16,384 of
//! them takes instructions made on the spot: in the host they are called, in
//! the guest they are where it starts.

use super::{encode, fetch_barrier};
use crate::machine::{MAX_CPUS, smp};
use core::cell::UnsafeCell;
use loongarch_isa::csr::Csr;
use loongarch_isa::gpr::Gpr;

const WORDS: usize = 4096;

#[repr(C, align(16384))]
struct Page(UnsafeCell<[u32; WORDS]>);

// SAFETY: each CPU uses only the page of its own index (`write` is the only
// access), so no two CPUs share one.
unsafe impl Sync for Page {}

static PAGES: [Page; MAX_CPUS] = [const { Page(UnsafeCell::new([0; WORDS])) }; MAX_CPUS];

/// Writes `words` to the start of this CPU's page; returns their address in
/// the cached window. They stay until the next call. At most 4,096 words.
pub fn write(words: &[u32]) -> u64 {
    let page = &PAGES[smp::this_cpu()].0;
    assert!(words.len() <= WORDS);
    // SAFETY: the page is this CPU's alone (see `Sync` above), and nothing
    // of this CPU holds a reference to it: only instruction fetches read it.
    let page = unsafe { &mut *page.get() };
    page[..words.len()].copy_from_slice(words);
    fetch_barrier();
    page.as_ptr() as u64
}

/// Writes `words`, which must end in a return and follow the C calling
/// convention, and calls them with two arguments.
pub fn call(words: &[u32], a0: u64, a1: u64) -> u64 {
    let entry = write(words);
    // SAFETY: `entry` is the code just written, which by this function's
    // contract is a function of this type.
    let function: extern "C" fn(u64, u64) -> u64 = unsafe { core::mem::transmute(entry) };
    function(a0, a1)
}

/// Reads the guest's `csr`.
pub fn guest_read(csr: Csr) -> u64 {
    call(&[encode::gcsrrd(Gpr::A0, csr), encode::RET], 0, 0)
}

/// Writes the guest's `csr`; returns the old value.
pub fn guest_write(csr: Csr, value: u64) -> u64 {
    call(&[encode::gcsrwr(Gpr::A0, csr), encode::RET], value, 0)
}

/// Writes the bits `mask` of the guest's `csr`; returns the old value.
pub fn guest_exchange(csr: Csr, value: u64, mask: u64) -> u64 {
    let words = [encode::gcsrxchg(Gpr::A0, Gpr::A1, csr), encode::RET];
    call(&words, value, mask)
}

/// Reads the host's `csr`.
pub fn host_read(csr: Csr) -> u64 {
    call(&[encode::csrrd(Gpr::A0, csr), encode::RET], 0, 0)
}

/// Writes the host's `csr`; returns the old value.
pub fn host_write(csr: Csr, value: u64) -> u64 {
    call(&[encode::csrwr(Gpr::A0, csr), encode::RET], value, 0)
}

/// Writes the bits `mask` of the host's `csr`; returns the old value.
pub fn host_exchange(csr: Csr, value: u64, mask: u64) -> u64 {
    let words = [encode::csrxchg(Gpr::A0, Gpr::A1, csr), encode::RET];
    call(&words, value, mask)
}
