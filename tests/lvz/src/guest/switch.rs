//! The world switch: out into the guest (or another mode of the host) and
//! back with the exception that ended it.
//!
//! The order of the steps is that of Linux KVM's
//! arch/loongarch/kvm/switch.S: vectors, return address, second-stage root,
//! TGID, PRMD, PVM, registers, `ertn`; back again: registers, exception
//! state, then vectors, PGDL, PVM and TGID before anything that can fault.

use core::arch::naked_asm;
use core::mem::offset_of;
use loongarch_isa::csr::Csr;
use loongarch_isa::gpr::Gprs;

/// The exception that came back, in the host's registers.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Exit {
    /// ESTAT.
    pub estat: u64,
    /// ERA: the instruction that exited, or the next one for an interrupt.
    pub era: u64,
    /// BADV.
    pub badv: u64,
    /// BADI.
    pub badi: u64,
    /// CRMD at the exit entry.
    pub crmd: u64,
    /// PRMD at the exit entry.
    pub prmd: u64,
    /// GSTAT at the exit entry.
    pub gstat: u64,
    /// GTLBC at the exit entry.
    pub gtlbc: u64,
}

/// What the switch loads and stores. Assembly knows it by offset.
#[derive(Clone, Debug)]
#[repr(C)]
pub struct World {
    /// General registers, in and out.
    pub gprs: Gprs,
    /// Where to start: ERA at entry.
    pub pc: u64,
    /// PRMD at entry: PPLV and PIE.
    pub prmd: u64,
    /// GSTAT.PVM at entry: 2 for guest mode, 0 to stay in host mode.
    pub pvm: u64,
    /// PGDL at entry: the second-stage root.
    pub pgdl: u64,
    /// GTLBC at entry; at exit TGID is set to 0.
    pub gtlbc: u64,
    /// The exception that came back.
    pub exit: Exit,
    host_sp: u64,
    host_eentry: u64,
    host_pgdl: u64,
}

impl World {
    /// All zero: host mode at level 0 with interrupts off.
    pub const fn new() -> World {
        World {
            gprs: Gprs::new(),
            pc: 0,
            prmd: 0,
            pvm: 0,
            pgdl: 0,
            gtlbc: 0,
            exit: Exit {
                estat: 0,
                era: 0,
                badv: 0,
                badi: 0,
                crmd: 0,
                prmd: 0,
                gstat: 0,
                gtlbc: 0,
            },
            host_sp: 0,
            host_eentry: 0,
            host_pgdl: 0,
        }
    }

    /// Runs from [`World::pc`] until an exception comes back.
    pub fn enter(&mut self) {
        // SAFETY: `switch` saves every register that the C convention lets a
        // callee keep, takes the vectors over before `ertn` and restores all
        // of it at the exit. The code at `pc` is one of the suite's programs,
        // which writes only memory set aside for it.
        unsafe { switch(self) };
    }
}

/// GSTAT.PVM.
pub const PVM: u64 = 2;

/// Bytes for ra, tp, r21, fp and s0 to s8.
const FRAME: usize = 13 * 8;

macro_rules! for_each_saved {
    ($insn:literal) => {
        concat!(
            ".set offset, 0\n",
            ".irp reg, 1, 2, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31\n",
            $insn,
            " $r\\reg, $sp, offset\n",
            ".set offset, offset + 8\n",
            ".endr"
        )
    };
}

/// Every register but r0 and a0 (r4), which holds the base.
macro_rules! for_each_gpr {
    ($insn:literal) => {
        concat!(
            ".irp reg, 1,2,3,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31\n",
            $insn,
            " $r\\reg, $a0, {gprs} + 8 * \\reg\n",
            ".endr"
        )
    };
}

#[unsafe(naked)]
unsafe extern "C" fn switch(world: *mut World) {
    naked_asm!(
        "addi.d $sp, $sp, -{frame}",
        for_each_saved!("st.d"),
        "st.d $sp, $a0, {host_sp}",
        "move $t0, $a0",
        "csrwr $t0, {world}",
        "la.pcrel $t0, {exit}",
        "csrwr $t0, {eentry}",
        "st.d $t0, $a0, {host_eentry}",
        "ld.d $t0, $a0, {pc}",
        "csrwr $t0, {era}",
        "ld.d $t0, $a0, {in_pgdl}",
        "csrwr $t0, {pgdl}",
        "st.d $t0, $a0, {host_pgdl}",
        "ld.d $t0, $a0, {in_gtlbc}",
        "csrwr $t0, {gtlbc}",
        "ld.d $t0, $a0, {in_prmd}",
        "csrwr $t0, {prmd}",
        "ld.d $t0, $a0, {pvm}",
        "li.w $t1, {pvm_mask}",
        "csrxchg $t0, $t1, {gstat}",
        for_each_gpr!("ld.d"),
        "ld.d $a0, $a0, {gprs} + 8 * 4",
        "ertn",
        frame = const FRAME,
        gprs = const offset_of!(World, gprs),
        host_sp = const offset_of!(World, host_sp),
        host_eentry = const offset_of!(World, host_eentry),
        host_pgdl = const offset_of!(World, host_pgdl),
        pc = const offset_of!(World, pc),
        in_pgdl = const offset_of!(World, pgdl),
        in_gtlbc = const offset_of!(World, gtlbc),
        in_prmd = const offset_of!(World, prmd),
        pvm = const offset_of!(World, pvm),
        pvm_mask = const PVM,
        exit = sym exit,
        world = const WORLD.number(),
        eentry = const Csr::EENTRY.number(),
        era = const Csr::ERA.number(),
        pgdl = const Csr::PGDL.number(),
        gtlbc = const Csr::GTLBC.number(),
        prmd = const Csr::PRMD.number(),
        gstat = const Csr::GSTAT.number(),
    )
}

/// Holds the address of the `World` while it runs.
const WORLD: Csr = Csr::save(4);
/// Holds a0 for a moment.
const SCRATCH: Csr = Csr::save(5);

#[unsafe(naked)]
unsafe extern "C" fn exit() {
    naked_asm!(
        ".p2align 12",
        "csrwr $a0, {scratch}",
        "csrrd $a0, {world}",
        for_each_gpr!("st.d"),
        "csrrd $t0, {scratch}",
        "st.d $t0, $a0, {gprs} + 8 * 4",
        "csrrd $t0, {estat}",
        "st.d $t0, $a0, {out} + {out_estat}",
        "csrrd $t0, {era}",
        "st.d $t0, $a0, {out} + {out_era}",
        "csrrd $t0, {badv}",
        "st.d $t0, $a0, {out} + {out_badv}",
        "csrrd $t0, {badi}",
        "st.d $t0, $a0, {out} + {out_badi}",
        "csrrd $t0, {crmd}",
        "st.d $t0, $a0, {out} + {out_crmd}",
        "csrrd $t0, {prmd}",
        "st.d $t0, $a0, {out} + {out_prmd}",
        "csrrd $t0, {gstat}",
        "st.d $t0, $a0, {out} + {out_gstat}",
        "csrrd $t0, {gtlbc}",
        "st.d $t0, $a0, {out} + {out_gtlbc}",
        // TGID is bits 23:16.
        "bstrins.d $t0, $zero, 23, 16",
        "csrwr $t0, {gtlbc}",
        "ld.d $t0, $a0, {host_eentry}",
        "csrwr $t0, {eentry}",
        "ld.d $t0, $a0, {host_pgdl}",
        "csrwr $t0, {pgdl}",
        "li.w $t0, {pvm_mask}",
        "csrxchg $zero, $t0, {gstat}",
        "ld.d $sp, $a0, {host_sp}",
        for_each_saved!("ld.d"),
        "addi.d $sp, $sp, {frame}",
        "ret",
        frame = const FRAME,
        gprs = const offset_of!(World, gprs),
        host_sp = const offset_of!(World, host_sp),
        host_eentry = const offset_of!(World, host_eentry),
        host_pgdl = const offset_of!(World, host_pgdl),
        out = const offset_of!(World, exit),
        out_estat = const offset_of!(Exit, estat),
        out_era = const offset_of!(Exit, era),
        out_badv = const offset_of!(Exit, badv),
        out_badi = const offset_of!(Exit, badi),
        out_crmd = const offset_of!(Exit, crmd),
        out_prmd = const offset_of!(Exit, prmd),
        out_gstat = const offset_of!(Exit, gstat),
        out_gtlbc = const offset_of!(Exit, gtlbc),
        pvm_mask = const PVM,
        world = const WORLD.number(),
        scratch = const SCRATCH.number(),
        estat = const Csr::ESTAT.number(),
        era = const Csr::ERA.number(),
        badv = const Csr::BADV.number(),
        badi = const Csr::BADI.number(),
        crmd = const Csr::CRMD.number(),
        prmd = const Csr::PRMD.number(),
        gstat = const Csr::GSTAT.number(),
        gtlbc = const Csr::GTLBC.number(),
        eentry = const Csr::EENTRY.number(),
        pgdl = const Csr::PGDL.number(),
    )
}
