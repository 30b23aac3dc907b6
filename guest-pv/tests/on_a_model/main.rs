//! The crate's logic, on a model of a hypervisor with its CPUs.
#![cfg(not(loom))]

mod ipi;
mod machine;
mod model;
