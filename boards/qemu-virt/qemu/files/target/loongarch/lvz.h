/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * LVZ, LoongArch's virtualization extension, for TCG: state and interfaces
 *
 * A processor with LVZ has a second bank of CSRs, the guest's (GCSR). env
 * always holds the bank of the current mode, so that the code for the base
 * architecture works in both; LVZState.other holds the bank of the other
 * mode, and the two are swapped, under the big lock, where the mode changes:
 * lvz_enter() at ertn, lvz_begin_exception() at an exit.
 *
 * What is not known of the hardware is decided once, under the names D-...
 * that boards/qemu-virt/README.md of Loongvisor lists.
 *
 * Copyright (c) 2026 The Loongvisor developers
 */

#ifndef LOONGARCH_LVZ_H
#define LOONGARCH_LVZ_H

/* Included by cpu.h, between the processor's basic types and its state. */

#define LOONGARCH_CSR_GTLBC          0x15 /* Guest TLB control */
FIELD(CSR_GTLBC, GMTLBSZ, 0, 6)
FIELD(CSR_GTLBC, USETGID, 12, 1)
FIELD(CSR_GTLBC, TOTI, 13, 1)
FIELD(CSR_GTLBC, TGID, 16, 8)

#define LOONGARCH_CSR_TRGP           0x16 /* What tlbrd read of a guest */
FIELD(CSR_TRGP, GTLB, 0, 1)
FIELD(CSR_TRGP, RID, 16, 8)

#define LOONGARCH_CSR_GSTAT          0x50 /* Guest status */
FIELD(CSR_GSTAT, VM, 0, 1)
FIELD(CSR_GSTAT, PVM, 1, 1)
FIELD(CSR_GSTAT, GIDBIT, 4, 6)
FIELD(CSR_GSTAT, GID, 16, 8)

#define LOONGARCH_CSR_GCFG           0x51 /* Guest configuration */
FIELD(CSR_GCFG, MATP, 0, 4)
FIELD(CSR_GCFG, MATC, 4, 2)
FIELD(CSR_GCFG, TITP, 8, 1)
FIELD(CSR_GCFG, TIT, 9, 1)
FIELD(CSR_GCFG, TOEP, 10, 1)
FIELD(CSR_GCFG, TOE, 11, 1)
FIELD(CSR_GCFG, TOPP, 12, 1)
FIELD(CSR_GCFG, TOP, 13, 1)
FIELD(CSR_GCFG, GCIP, 16, 4)
FIELD(CSR_GCFG, GCI, 20, 2)

#define LOONGARCH_CSR_GINTC          0x52 /* Guest interrupt control */
FIELD(CSR_GINTC, HWIS, 0, 8)
FIELD(CSR_GINTC, HWIP, 8, 8)
FIELD(CSR_GINTC, HWIC, 16, 8)

#define LOONGARCH_CSR_GCNTC          0x53 /* Guest counter offset */

#define EXCCODE_GSPR                 EXCODE(22, 0) /* Sensitive instruction */
#define EXCCODE_HVC                  EXCODE(23, 0) /* Hypervisor call */

/* The processor's lines HWI0-7 are bits 9:2 of ESTAT.IS */
FIELD(CSR_ESTAT, HWI, 2, 8)

FIELD(TLB_MISC, GID, 54, 8)

/*
 * The CSRs of which host and guest each have their own: X(name), numbered
 * LOONGARCH_CSR_<name>; the arrays SAVE and DMW come beside them.
 */
#define LVZ_BANKED_CSRS(X)                                                  \
    X(CRMD) X(PRMD) X(EUEN) X(MISC) X(ECFG) X(ESTAT) X(ERA) X(BADV) X(BADI) \
    X(EENTRY) X(TLBIDX) X(TLBEHI) X(TLBELO0) X(TLBELO1) X(ASID) X(PGDL)     \
    X(PGDH) X(PGD) X(PWCL) X(PWCH) X(STLBPS) X(RVACFG) X(CPUID) X(PRCFG1)   \
    X(PRCFG2) X(PRCFG3) X(TID) X(TCFG) X(TVAL) X(CNTC) X(TICLR) X(LLBCTL)   \
    X(TLBRENTRY) X(TLBRBADV) X(TLBRERA) X(TLBRSAVE) X(TLBRELO0) X(TLBRELO1) \
    X(TLBREHI) X(TLBRPRMD)

#define LVZ_BANKED_SAVES    8
#define LVZ_BANKED_DMWS     4

typedef struct LVZBank {
#define X(name) uint64_t CSR_##name;
    LVZ_BANKED_CSRS(X)
#undef X
    uint64_t CSR_SAVE[LVZ_BANKED_SAVES];
    uint64_t CSR_DMW[LVZ_BANKED_DMWS];
    /* D-LLBIT: an LL bit, in QEMU's form, a mode */
    uint64_t lladdr;
    uint64_t llval;
} LVZBank;

/* A second-stage fault on its way to loongarch_cpu_do_interrupt(). */
typedef struct LVZFault {
    bool pending;
    int tlb_error;              /* TLBRET_* */
    int access_type;            /* MMUAccessType */
    uint64_t gpa;
} LVZFault;

typedef struct LVZState {
    bool guest;                 /* in guest mode: env holds the guest's bank */
    LVZBank other;              /* the bank that env does not hold */
    LVZFault fault;
    int stage2_hint;            /* where the last second-stage search ended */
    uint32_t insn;              /* the instruction of a GSPR or HVC exit */
    uint32_t trap_flags;        /* HW_FLAGS_LVZ_*, from GCFG and GTLBC */
    QEMUTimer timer;            /* the guest's constant timer */
    uint64_t insns;             /* executed before this turn, under -icount */
    int64_t turn;               /* of all processors, when this turn began */
    LoongArchTLB gtlb[LOONGARCH_TLB_MAX]; /* D-GTLB: first-stage entries */
} LVZState;

#endif /* LOONGARCH_LVZ_H */
