//! Virtual devices: state, a match on the offset, and no hardware.
//!
//! A device answers every offset and every width of its window; what it
//! doesn't have reads 0 and ignores writes. No access makes it allocate.

#![cfg_attr(
    not(test),
    deny(
        clippy::indexing_slicing,
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::unreachable
    )
)]

pub mod bus;
pub mod iocsr;
pub mod irq_line;
pub mod lane;
pub mod layout;
pub mod pch_msi;
pub mod pch_pic;
pub mod power;
pub mod rtc;
pub mod uart;
