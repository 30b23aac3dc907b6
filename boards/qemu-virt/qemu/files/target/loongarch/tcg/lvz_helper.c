/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * LVZ for TCG: the host's LVZ CSRs, and its access to the guest's CSRs
 *
 * Copyright (c) 2026 The Loongvisor developers
 */

#include "qemu/osdep.h"
#include "qemu/main-loop.h"
#include "cpu.h"
#include "internals.h"
#include "lvz-internal.h"
#include "exec/helper-proto.h"
#include "exec/cputlb.h"
#include "exec/exec-all.h"
#include "cpu-csr.h"

static void flush_guest(CPULoongArchState *env)
{
    tlb_flush_by_mmuidx(env_cpu(env), MMU_GUEST_IDXMAP);
}

/* The host's CSRs */

target_ulong helper_csrwr_gstat(CPULoongArchState *env, target_ulong val)
{
    const uint64_t mask = R_CSR_GSTAT_PVM_MASK | R_CSR_GSTAT_GID_MASK;
    uint64_t old_v = env->CSR_GSTAT;

    env->CSR_GSTAT = (old_v & ~mask) | (val & mask);
    if ((old_v ^ env->CSR_GSTAT) & R_CSR_GSTAT_GID_MASK) {
        flush_guest(env);
    }
    return old_v;
}

/* D-GCFG: a value of a field is stored only where its capability bit is 1. */
static uint64_t choose(uint64_t old_v, uint64_t val, uint64_t capabilities)
{
    return capabilities & BIT_ULL(val) ? val : old_v;
}

target_ulong helper_csrwr_gcfg(CPULoongArchState *env, target_ulong val)
{
    /* Each P bit is just below its control bit */
    const uint64_t capabilities = R_CSR_GCFG_TITP_MASK | R_CSR_GCFG_TOEP_MASK |
                                  R_CSR_GCFG_TOPP_MASK;
    uint64_t old_v = env->CSR_GCFG;
    uint64_t mask = (old_v & capabilities) << 1;
    uint64_t new_v = (old_v & ~mask) | (val & mask);

    new_v = FIELD_DP64(new_v, CSR_GCFG, MATC,
                       choose(FIELD_EX64(old_v, CSR_GCFG, MATC),
                              FIELD_EX64(val, CSR_GCFG, MATC),
                              FIELD_EX64(old_v, CSR_GCFG, MATP)));
    new_v = FIELD_DP64(new_v, CSR_GCFG, GCI,
                       choose(FIELD_EX64(old_v, CSR_GCFG, GCI),
                              FIELD_EX64(val, CSR_GCFG, GCI),
                              FIELD_EX64(old_v, CSR_GCFG, GCIP)));
    env->CSR_GCFG = new_v;
    lvz_update_traps(env);
    return old_v;
}

target_ulong helper_csrwr_gtlbc(CPULoongArchState *env, target_ulong val)
{
    const uint64_t mask = R_CSR_GTLBC_USETGID_MASK | R_CSR_GTLBC_TOTI_MASK |
                          R_CSR_GTLBC_TGID_MASK;
    uint64_t old_v = env->CSR_GTLBC;

    env->CSR_GTLBC = (old_v & ~mask) | (val & mask);
    lvz_update_traps(env);
    return old_v;
}

target_ulong helper_csrwr_trgp(CPULoongArchState *env, target_ulong val)
{
    return env->CSR_TRGP;
}

target_ulong helper_csrwr_gintc(CPULoongArchState *env, target_ulong val)
{
    uint64_t old_v, taken;

    bql_lock();
    old_v = env->CSR_GINTC;
    env->CSR_GINTC = val & (R_CSR_GINTC_HWIS_MASK | R_CSR_GINTC_HWIP_MASK |
                            R_CSR_GINTC_HWIC_MASK);
    taken = FIELD_EX64(val, CSR_GINTC, HWIS) & FIELD_EX64(val, CSR_GINTC, HWIC);
    env->CSR_ESTAT &= ~(taken << R_CSR_ESTAT_HWI_SHIFT);
    lvz_update_hwi(env);
    loongarch_cpu_update_irq(env);
    bql_unlock();
    return old_v;
}

/* The guest's CSRs, from the host */

static uint64_t gcsr_read(CPULoongArchState *env, unsigned int csr)
{
    LVZBank *guest = &env->lvz.other;
    uint64_t badv;

    switch (csr) {
    case LOONGARCH_CSR_TVAL:
        return lvz_timer_ticks(env_archcpu(env));
    case LOONGARCH_CSR_TICLR:
        return 0;
    case LOONGARCH_CSR_LLBCTL:
        return FIELD_DP64(guest->CSR_LLBCTL, CSR_LLBCTL, ROLLB,
                          guest->lladdr != LLADDR_NONE);
    case LOONGARCH_CSR_PGD:
        badv = FIELD_EX64(guest->CSR_TLBRERA, CSR_TLBRERA, ISTLBR)
               ? guest->CSR_TLBRBADV : guest->CSR_BADV;
        return badv >> 63 ? guest->CSR_PGDH : guest->CSR_PGDL;
    default:
        return *lvz_guest_csr_ptr(env, csr);
    }
}

/* D-GESTAT */
static void gcsr_write_estat(CPULoongArchState *env, uint64_t val,
                             uint64_t mask)
{
    uint64_t *estat = &env->lvz.other.CSR_ESTAT;

    mask &= MAKE_64BIT_MASK(0, 2) | MAKE_64BIT_MASK(10, 3) |
            R_CSR_ESTAT_ECODE_MASK | R_CSR_ESTAT_ESUBCODE_MASK;
    *estat = (*estat & ~mask) | (val & mask);
    loongarch_cpu_update_irq(env);
}

static void gcsr_write_cached(CPULoongArchState *env, uint64_t *csr,
                              uint64_t val)
{
    if (*csr != val) {
        *csr = val;
        flush_guest(env);
    }
}

static void gcsr_write(CPULoongArchState *env, unsigned int csr, uint64_t val)
{
    LoongArchCPU *cpu = env_archcpu(env);
    LVZBank *guest = &env->lvz.other;

    switch (csr) {
    case LOONGARCH_CSR_TCFG:
        lvz_timer_store_config(cpu, val);
        break;
    case LOONGARCH_CSR_TVAL:
        lvz_timer_store_ticks(cpu, val);
        break;
    case LOONGARCH_CSR_TICLR:
        if (val & 1) {
            cpu_loongarch_clear_constant_timer(cpu, true);
        }
        break;
    case LOONGARCH_CSR_LLBCTL:
        if (FIELD_EX64(val, CSR_LLBCTL, WCLLB)) {
            guest->lladdr = LLADDR_NONE;
        }
        guest->CSR_LLBCTL = val & R_CSR_LLBCTL_KLO_MASK;
        break;
    case LOONGARCH_CSR_ASID:
        gcsr_write_cached(env, &guest->CSR_ASID,
                          deposit64(guest->CSR_ASID, 0, 10, val));
        break;
    case LOONGARCH_CSR_STLBPS:
        if (check_ps(env, FIELD_EX64(val, CSR_STLBPS, PS))) {
            gcsr_write_cached(env, &guest->CSR_STLBPS,
                              val & R_CSR_STLBPS_PS_MASK);
        }
        break;
    case LOONGARCH_CSR_DMW(0) ... LOONGARCH_CSR_DMW(3):
        gcsr_write_cached(env, lvz_guest_csr_ptr(env, csr), val);
        break;
    default:
        *lvz_guest_csr_ptr(env, csr) = val;
        break;
    }
}

target_ulong helper_gcsrrd(CPULoongArchState *env, uint32_t csr)
{
    uint64_t value;

    bql_lock();
    value = gcsr_read(env, csr);
    bql_unlock();
    return value;
}

/* The exchange is one step: an interrupt that comes meanwhile is not lost. */
target_ulong helper_gcsrxchg(CPULoongArchState *env, target_ulong val,
                             target_ulong mask, uint32_t csr)
{
    uint64_t old_v;

    bql_lock();
    old_v = gcsr_read(env, csr);
    if (csr == LOONGARCH_CSR_ESTAT) {
        gcsr_write_estat(env, val, mask);
    } else if (mask) {
        gcsr_write(env, csr, (old_v & ~mask) | (val & mask));
    }
    bql_unlock();
    return old_v;
}

/* The guest's TLB, from the host: D-GTLB */

void helper_gtlbsrch(CPULoongArchState *env)
{
    lvz_as_guest(env, helper_tlbsrch);
}

void helper_gtlbrd(CPULoongArchState *env)
{
    lvz_as_guest(env, helper_tlbrd);
}

void helper_gtlbwr(CPULoongArchState *env)
{
    lvz_as_guest(env, helper_tlbwr);
}

void helper_gtlbfill(CPULoongArchState *env)
{
    lvz_as_guest(env, helper_tlbfill);
}

void helper_gtlbclr(CPULoongArchState *env)
{
    lvz_as_guest(env, helper_tlbclr);
}

void helper_gtlbflush(CPULoongArchState *env)
{
    lvz_as_guest(env, helper_tlbflush);
}
