//! Where atomics come from: the language, or the model checker that runs the
//! same code under every interleaving (`tests/loom.rs`).

#[cfg(not(loom))]
pub use core::{
    hint::spin_loop,
    sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering, fence},
};
#[cfg(loom)]
pub use loom::{
    hint::spin_loop,
    sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering, fence},
};
