//! Linux as a guest: a kernel and programs that no one here wrote, and how to run them.
//!
//! Debian's packages for LoongArch become a kernel and initramfs images; a [`machine::Machine`]
//! boots one of them and runs a [`job::Job`] in it, a shell script, and gives back all that
//! was printed.

mod cpio;
mod elf;
pub mod images;
pub mod interrupts;
pub mod job;
pub mod log;
mod lz4;
pub mod machine;
pub mod newest;
pub mod packages;
pub mod report;
pub mod zboot;
