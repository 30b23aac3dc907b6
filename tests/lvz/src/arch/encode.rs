//! Instruction words made at run time, for register and CSR numbers that
//! aren't known when the suite is compiled.

use loongarch_isa::csr::Csr;
use loongarch_isa::gpr::Gpr;
use loongarch_isa::insn::opcode;

/// `jirl zero, ra, 0`: the return from a function.
pub const RET: u32 = 0x4c00_0020;

const fn csr_word(base: u32, csr: Csr, rj: u32, rd: Gpr) -> u32 {
    base | (csr.number() as u32) << 10 | rj << 5 | rd.number() as u32
}

/// `csrrd rd, csr`.
pub const fn csrrd(rd: Gpr, csr: Csr) -> u32 {
    csr_word(opcode::CSR, csr, 0, rd)
}

/// `csrwr rd, csr`.
pub const fn csrwr(rd: Gpr, csr: Csr) -> u32 {
    csr_word(opcode::CSR, csr, 1, rd)
}

/// `csrxchg rd, rj, csr`; rj must not be r0 or r1.
pub const fn csrxchg(rd: Gpr, rj: Gpr, csr: Csr) -> u32 {
    csr_word(opcode::CSR, csr, rj.number() as u32, rd)
}

/// `gcsrrd rd, csr`.
pub const fn gcsrrd(rd: Gpr, csr: Csr) -> u32 {
    csr_word(opcode::GCSR, csr, 0, rd)
}

/// `gcsrwr rd, csr`.
pub const fn gcsrwr(rd: Gpr, csr: Csr) -> u32 {
    csr_word(opcode::GCSR, csr, 1, rd)
}

/// `gcsrxchg rd, rj, csr`; rj must not be r0 or r1.
pub const fn gcsrxchg(rd: Gpr, rj: Gpr, csr: Csr) -> u32 {
    csr_word(opcode::GCSR, csr, rj.number() as u32, rd)
}

/// `hvcl code`, 0 to 0x7fff.
pub const fn hvcl(code: u32) -> u32 {
    opcode::HVCL | (code & 0x7fff)
}

/// `invtlb op, rj, rk`.
pub const fn invtlb(op: u32, rj: Gpr, rk: Gpr) -> u32 {
    0x0649_8000 | (rk.number() as u32) << 10 | (rj.number() as u32) << 5 | (op & 31)
}

/// `break 0`: ends host code under the world switch.
pub const BREAK: u32 = 0x002a_0000;
/// `syscall 0`.
pub const SYSCALL: u32 = 0x002b_0000;
/// `ertn`.
pub const ERTN: u32 = 0x0648_3800;
/// `dbcl 0`.
pub const DBCL: u32 = 0x002a_8000;
/// An instruction that doesn't exist.
pub const UNDEFINED: u32 = 0xffff_ffff;
/// `tlbclr`, `tlbflush`, `tlbsrch`, `tlbrd`, `tlbwr`, `tlbfill`.
pub const TLB: [u32; 6] = [
    0x0648_2000,
    0x0648_2400,
    0x0648_2800,
    0x0648_2c00,
    0x0648_3000,
    0x0648_3400,
];
/// The same on a guest's entries: gtlb*.
pub const GUEST_TLB: [u32; 6] = [
    TLB[0] | 1,
    TLB[1] | 1,
    TLB[2] | 1,
    TLB[3] | 1,
    TLB[4] | 1,
    TLB[5] | 1,
];

/// `cpucfg rd, rj`.
pub const fn cpucfg(rd: Gpr, rj: Gpr) -> u32 {
    opcode::CPUCFG | (rj.number() as u32) << 5 | rd.number() as u32
}

/// One of the eight IOCSR instructions: 0 to 3 read 1 to 8 bytes, 4 to 7
/// write.
pub const fn iocsr(form: u32, rd: Gpr, rj: Gpr) -> u32 {
    opcode::IOCSR | (form & 7) << 10 | (rj.number() as u32) << 5 | rd.number() as u32
}

/// `idle level`.
pub const fn idle(level: u32) -> u32 {
    opcode::IDLE | (level & 0x7fff)
}

/// `cacop code, rj, 0`.
pub const fn cacop(code: u32, rj: Gpr) -> u32 {
    opcode::CACOP | (rj.number() as u32) << 5 | (code & 31)
}

/// `addi.d rd, rj, immediate` (−2048 to 2047).
pub const fn addi_d(rd: Gpr, rj: Gpr, immediate: i32) -> u32 {
    0x02c0_0000
        | ((immediate & 0xfff) as u32) << 10
        | (rj.number() as u32) << 5
        | rd.number() as u32
}

/// `or rd, rj, rk`.
pub const fn or(rd: Gpr, rj: Gpr, rk: Gpr) -> u32 {
    0x0015_0000 | (rk.number() as u32) << 10 | (rj.number() as u32) << 5 | rd.number() as u32
}
