//! Virtual devices: state, a match on the offset, and no hardware.
//!
//! A device answers every offset and every width of its window; what it
//! doesn't have reads 0 and ignores writes. No access makes it allocate.

pub mod bus;
pub mod iocsr;
pub mod uart;
