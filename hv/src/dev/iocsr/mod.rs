//! The IOCSR space that a vCPU sees.
//!
//! Nothing of it is passed to the hardware: an offset that isn't known reads
//! 0 and ignores writes.

pub mod eiointc;
pub mod ipi;
pub mod misc;
