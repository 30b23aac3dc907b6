//! The checks, by what they look at.

pub mod bank;
pub mod calls;
pub mod control;
pub mod eiointc;
pub mod iocsr;
pub mod ipi;
pub mod llsc;
pub mod memory;
pub mod odd;
pub mod pch_pic;
pub mod platform;
pub mod pv_ipi;
pub mod sched;
pub mod sensitive;
pub mod start;
pub mod steal;
pub mod timer;
pub mod uart_irq;
pub mod units;
pub mod user;

use crate::check::Check;

/// All of them.
pub const ALL: [&[Check]; 20] = [
    &start::CHECKS,
    &sensitive::CHECKS,
    &calls::CHECKS,
    &user::CHECKS,
    &memory::CHECKS,
    &llsc::CHECKS,
    &odd::CHECKS,
    &timer::CHECKS,
    &steal::CHECKS,
    &sched::CHECKS,
    &iocsr::CHECKS,
    &ipi::CHECKS,
    &pv_ipi::CHECKS,
    &eiointc::CHECKS,
    &pch_pic::CHECKS,
    &uart_irq::CHECKS,
    &platform::CHECKS,
    &bank::CHECKS,
    &units::CHECKS,
    &control::CHECKS,
];
