//! Emulation of the instructions that exit.
//!
//! Each module turns an instruction, the vCPU's registers and the VM's state
//! into new registers and an [`Outcome`]; none of them moves the pc.

pub mod cpucfg;
pub mod csr;
pub mod device;
pub mod hypercall;
pub mod iocsr;
pub mod mmio;

use super::Resume;
use super::exception::Exception;

/// How an emulation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "the pc has not moved yet"]
pub enum Outcome {
    /// The instruction has been carried out: on with the next one.
    Done,
    /// Likewise, and then this.
    Then(Resume),
    /// The cause is removed: try the same instruction again.
    Again,
    /// It can't be carried out yet: try it again in a moment.
    Retry,
    /// The instruction ends in an exception of the guest.
    Fault(Exception),
}
