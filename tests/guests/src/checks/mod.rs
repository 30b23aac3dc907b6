//! The checks, by what they look at.

pub mod calls;
pub mod ipi;
pub mod memory;
pub mod sensitive;
pub mod timer;
pub mod units;
pub mod user;

use crate::check::Check;

/// All of them.
pub const ALL: [&[Check]; 7] = [
    &sensitive::CHECKS,
    &calls::CHECKS,
    &user::CHECKS,
    &memory::CHECKS,
    &timer::CHECKS,
    &ipi::CHECKS,
    &units::CHECKS,
];
