//! A page of code a CPU, written at run time.
//!
//! A CSR's number is part of its instruction, so going through all 16,384 of
//! them takes instructions made on the spot: in the host they are called, in
//! the guest they are where it starts.

use super::{encode, fetch_barrier};
use crate::machine::{MAX_CPUS, smp};
use core::cell::UnsafeCell;
use loongarch_isa::csr::Csr;
use loongarch_isa::gcsr::HARDWARE;
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
    jump(write(words), a0, a1)
}

/// An access to a register by number.
#[derive(Clone, Copy)]
enum Access {
    GuestRead,
    GuestWrite,
    GuestExchange,
    HostRead,
    HostWrite,
    HostExchange,
}

/// How many kinds of accesses there are.
const KINDS: usize = 6;

impl Access {
    /// The instruction, with a0 and a1 as operands.
    const fn word(self, csr: Csr) -> u32 {
        match self {
            Access::GuestRead => encode::gcsrrd(Gpr::A0, csr),
            Access::GuestWrite => encode::gcsrwr(Gpr::A0, csr),
            Access::GuestExchange => encode::gcsrxchg(Gpr::A0, Gpr::A1, csr),
            Access::HostRead => encode::csrrd(Gpr::A0, csr),
            Access::HostWrite => encode::csrwr(Gpr::A0, csr),
            Access::HostExchange => encode::csrxchg(Gpr::A0, Gpr::A1, csr),
        }
    }
}

/// Functions of two words for every access of every register of the guest's
/// bank, made when the suite is compiled: the common case, without writing
/// code, which makes an emulator translate it anew each time.
#[repr(C, align(16384))]
struct Thunks([[[u32; 2]; KINDS]; HARDWARE.len()]);

#[unsafe(link_section = ".text.thunks")]
static THUNKS: Thunks = {
    use Access::*;
    const ALL: [Access; KINDS] = [
        GuestRead,
        GuestWrite,
        GuestExchange,
        HostRead,
        HostWrite,
        HostExchange,
    ];
    let mut words = [[[encode::RET; 2]; KINDS]; HARDWARE.len()];
    let mut n = 0;
    while n < HARDWARE.len() {
        let mut kind = 0;
        while kind < KINDS {
            words[n][kind][0] = ALL[kind].word(HARDWARE[n]);
            kind += 1;
        }
        n += 1;
    }
    Thunks(words)
};

/// Executes one access: by a thunk where there is one.
fn access(kind: Access, csr: Csr, a0: u64, a1: u64) -> u64 {
    match HARDWARE.binary_search(&csr) {
        Ok(n) => jump(THUNKS.0[n][kind as usize].as_ptr() as u64, a0, a1),
        Err(_) => call(&[kind.word(csr), encode::RET], a0, a1),
    }
}

/// Calls the function at `entry`.
fn jump(entry: u64, a0: u64, a1: u64) -> u64 {
    // SAFETY: both callers pass code that follows the C calling convention:
    // an access and a return, or what `call`'s contract asks for.
    let function: extern "C" fn(u64, u64) -> u64 = unsafe { core::mem::transmute(entry) };
    function(a0, a1)
}

/// Reads the guest's `csr`.
pub fn guest_read(csr: Csr) -> u64 {
    access(Access::GuestRead, csr, 0, 0)
}

/// Writes the guest's `csr`; returns the old value.
pub fn guest_write(csr: Csr, value: u64) -> u64 {
    access(Access::GuestWrite, csr, value, 0)
}

/// Writes the bits `mask` of the guest's `csr`; returns the old value.
pub fn guest_exchange(csr: Csr, value: u64, mask: u64) -> u64 {
    access(Access::GuestExchange, csr, value, mask)
}

/// Reads the host's `csr`.
pub fn host_read(csr: Csr) -> u64 {
    access(Access::HostRead, csr, 0, 0)
}

/// Writes the host's `csr`; returns the old value.
pub fn host_write(csr: Csr, value: u64) -> u64 {
    access(Access::HostWrite, csr, value, 0)
}

/// Writes the bits `mask` of the host's `csr`; returns the old value.
pub fn host_exchange(csr: Csr, value: u64, mask: u64) -> u64 {
    access(Access::HostExchange, csr, value, mask)
}
