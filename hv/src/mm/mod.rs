//! Memory: address types, frames, second-stage tables, a guest's memory.
//!
//! All of it is portable and tested on the host over fake memory; only
//! `phys` touches the machine.

pub mod addr;
pub mod frame;
pub mod gid;
pub mod guest_mem;
pub mod phys;
pub mod pte;
pub mod stage2;
