//! Programs that several groups of checks use.

use crate::program;
use loongarch_isa::csr::Csr;

program!(
    /// Exits at once.
    pub done: "hvcl 0x10",
);
program!(
    /// Never exits by itself.
    pub forever: "b .",
);
program!(
    /// Loads 64 bits at a0 to a1.
    pub load: "ld.d $a1, $a0, 0", "hvcl 0x10",
);
program!(
    /// Stores a1 at a0.
    pub store: "st.d $a1, $a0, 0", "hvcl 0x10",
);
program!(
    /// Stores a1 at a0 and loads it back.
    pub store_then_load: "st.d $a1, $a0, 0", "ld.d $a1, $a0, 0", "hvcl 0x10",
);
program!(
    /// Jumps to a0.
    pub jump: "jirl $zero, $a0, 0",
);
program!(
    /// Runs for a0 ticks of the stable counter.
    pub for_a_while:
    "rdtime.d $t0, $zero",
    "1: rdtime.d $t1, $zero",
    "sub.d $t1, $t1, $t0",
    "bltu $t1, $a0, 1b",
    "hvcl 0x10",
);
program!(
    /// A vector of the guest's: acknowledges the timer, counts in SAVE1 and
    /// keeps every register, by way of SAVE0.
    pub count_ticks:
    ".p2align 12",
    "csrwr $t0, {save0}",
    "li.w $t0, 1",
    "csrwr $t0, {ticlr}",
    "csrrd $t0, {save1}",
    "addi.d $t0, $t0, 1",
    "csrwr $t0, {save1}",
    "csrrd $t0, {save0}",
    "ertn",
    save0 = const Csr::save(0).number(),
    save1 = const Csr::save(1).number(),
    ticlr = const Csr::TICLR.number(),
);
/// The instruction of [`load`].
pub const LOAD: u64 = 0x28c0_0085;
/// The instruction of [`store`].
pub const STORE: u64 = 0x29c0_0085;
