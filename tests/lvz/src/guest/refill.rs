//! TLB refill handlers: the walk from PGD, and nothing else.
//!
//! The host's serve its own mapped addresses and, with the same
//! instructions, the guests' second stage: the hardware gives the address in
//! TLBRBADV and the root by PGD. They run in direct addressing, so they hold
//! no absolute address; an absent directory entry (0) gives an invalid pair.
//! The host's handler also keeps a [`Log`], by way of two SAVE registers; the
//! guest's is the bare walk.

use core::arch::naked_asm;
use core::mem::offset_of;
use loongarch_isa::csr::Csr;

/// What the host's handler saw. Lives in memory that is accessed by physical
/// address.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Log {
    /// How many refills there were.
    pub count: u64,
    /// TLBRBADV of the last one.
    pub badv: u64,
    /// GSTAT at the last one.
    pub gstat: u64,
    /// CRMD at the last one.
    pub crmd: u64,
    /// TLBRPRMD at the last one.
    pub prmd: u64,
    /// TLBRERA at the last one.
    pub era: u64,
}

/// Physical address of the CPU's [`Log`].
pub const LOG: Csr = Csr::save(6);
/// Holds t1 while the handler logs.
const SCRATCH: Csr = Csr::save(7);

/// Saves t0; first instruction of every handler.
macro_rules! begin {
    () => {
        ".p2align 12\ncsrwr $t0, {save}"
    };
}

macro_rules! log {
    () => {
        concat!(
            "csrwr $t1, {scratch}\n",
            "csrrd $t0, {log}\n",
            "ld.d $t1, $t0, {count}\n",
            "addi.d $t1, $t1, 1\n",
            "st.d $t1, $t0, {count}\n",
            "csrrd $t1, {csr_badv}\n",
            "st.d $t1, $t0, {badv}\n",
            "csrrd $t1, {csr_gstat}\n",
            "st.d $t1, $t0, {gstat}\n",
            "csrrd $t1, {csr_crmd}\n",
            "st.d $t1, $t0, {crmd}\n",
            "csrrd $t1, {csr_prmd}\n",
            "st.d $t1, $t0, {prmd}\n",
            "csrrd $t1, {csr_era}\n",
            "st.d $t1, $t0, {era}\n",
            "csrrd $t1, {scratch}"
        )
    };
}

/// The walk through the directories `$level…`, pages of 2^`$page` bytes.
macro_rules! walk {
    ($page:literal, $($level:literal),*) => {
        concat!(
            "csrrd $t0, {pgd}\n",
            $("lddir $t0, $t0, ", $level, "\nbeqz $t0, 1f\n",)*
            "ldpte $t0, 0\n",
            "ldpte $t0, 1\n",
            "2: tlbfill\n",
            "csrrd $t0, {save}\n",
            "ertn\n",
            "1: csrwr $t0, {elo0}\n",
            "move $t0, $zero\n",
            "csrwr $t0, {elo1}\n",
            "csrrd $t0, {ehi}\n",
            "srli.d $t0, $t0, 6\n",
            "slli.d $t0, $t0, 6\n",
            "ori $t0, $t0, ", $page, "\n",
            "csrwr $t0, {ehi}\n",
            "b 2b"
        )
    };
}

macro_rules! logging_handler {
    ($(#[$doc:meta])* $name:ident, $walk:expr) => {
        $(#[$doc])*
        #[unsafe(naked)]
        pub extern "C" fn $name() -> ! {
            naked_asm!(
                begin!(),
                log!(),
                $walk,
                save = const Csr::TLBRSAVE.number(),
                scratch = const SCRATCH.number(),
                log = const LOG.number(),
                count = const offset_of!(Log, count),
                badv = const offset_of!(Log, badv),
                gstat = const offset_of!(Log, gstat),
                crmd = const offset_of!(Log, crmd),
                prmd = const offset_of!(Log, prmd),
                era = const offset_of!(Log, era),
                csr_badv = const Csr::TLBRBADV.number(),
                csr_gstat = const Csr::GSTAT.number(),
                csr_crmd = const Csr::CRMD.number(),
                csr_prmd = const Csr::TLBRPRMD.number(),
                csr_era = const Csr::TLBRERA.number(),
                pgd = const Csr::PGD.number(),
                elo0 = const Csr::TLBRELO0.number(),
                elo1 = const Csr::TLBRELO1.number(),
                ehi = const Csr::TLBREHI.number(),
            )
        }
    };
}

macro_rules! bare_handler {
    ($(#[$doc:meta])* $name:ident, $walk:expr) => {
        $(#[$doc])*
        #[unsafe(naked)]
        pub extern "C" fn $name() -> ! {
            naked_asm!(
                begin!(),
                $walk,
                save = const Csr::TLBRSAVE.number(),
                pgd = const Csr::PGD.number(),
                elo0 = const Csr::TLBRELO0.number(),
                elo1 = const Csr::TLBRELO1.number(),
                ehi = const Csr::TLBREHI.number(),
            )
        }
    };
}

logging_handler!(
    /// The host's handler for 16 KiB pages: two directories.
    host_16k, walk!("14", "3", "1")
);
logging_handler!(
    /// The host's handler for 4 KiB pages: three directories.
    host_4k, walk!("12", "3", "2", "1")
);
bare_handler!(
    /// A handler without a log, 16 KiB pages.
    bare_16k, walk!("14", "3", "1")
);
bare_handler!(
    /// A handler without a log, 4 KiB pages.
    bare_4k, walk!("12", "3", "2", "1")
);
