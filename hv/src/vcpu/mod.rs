//! A virtual CPU: what it is, how it enters and leaves the guest.
//!
//! The modules here that don't touch the machine are plain logic, tested on
//! the host.

pub mod exception;
pub mod exit;
pub mod interrupt;
pub mod postbox;
pub mod timer;
