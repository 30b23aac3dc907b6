//! What a guest gets at its first instruction.

pub mod elf;
