/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * LVZ for TCG: what its files and QEMU's own call of each other
 *
 * Copyright (c) 2026 The Loongvisor developers
 */

#ifndef LOONGARCH_LVZ_INTERNAL_H
#define LOONGARCH_LVZ_INTERNAL_H

#include "cpu.h"

static inline bool lvz_enabled(CPULoongArchState *env)
{
    return FIELD_EX32(env->cpucfg[2], CPUCFG2, LVZ);
}

/* The CSR of the host's or of the guest's bank, wherever that bank is now. */
#define lvz_host_csr(env, name) \
    ((env)->lvz.guest ? &(env)->lvz.other.CSR_##name : &(env)->CSR_##name)
#define lvz_guest_csr(env, name) \
    ((env)->lvz.guest ? &(env)->CSR_##name : &(env)->lvz.other.CSR_##name)

static inline uint8_t lvz_gid(CPULoongArchState *env)
{
    return FIELD_EX64(env->CSR_GSTAT, CSR_GSTAT, GID);
}

/* The GID of what the current mode's TLB holds for itself: the host's is 0 */
static inline uint8_t lvz_mode_gid(CPULoongArchState *env)
{
    return env->lvz.guest ? lvz_gid(env) : 0;
}

/* The TLB that the current mode's first stage uses */
static inline LoongArchTLB *lvz_tlb(CPULoongArchState *env)
{
    return env->lvz.guest ? env->lvz.gtlb : env->tlb;
}

/*
 * The bits of tlb_misc that say whether an entry translates an address: one
 * entry is a pair of pages, and VPPN has the address's bits 47:13 in place.
 */
static inline uint64_t tlb_key_mask(uint8_t ps)
{
    return R_TLB_MISC_E_MASK | R_TLB_MISC_GID_MASK |
           (R_TLB_MISC_VPPN_MASK & ~((2ull << ps) - 1));
}

static inline uint64_t tlb_key(uint8_t gid, vaddr address)
{
    uint64_t key = R_TLB_MISC_E_MASK | (address & R_TLB_MISC_VPPN_MASK);

    return FIELD_DP64(key, TLB_MISC, GID, gid);
}

/*
 * Whether the MTLB entry that the last second-stage search ended at is the
 * one for this address, too
 */
static inline bool lvz_stage2_hint_match(CPULoongArchState *env, uint8_t gid,
                                         hwaddr gpa)
{
    int hint = env->lvz.stage2_hint;
    uint64_t misc = env->tlb[hint].tlb_misc;

    return hint >= LOONGARCH_STLB &&
           !((misc ^ tlb_key(gid, gpa)) &
             tlb_key_mask(FIELD_EX64(misc, TLB_MISC, PS)));
}

/* lvz.c: modes, banks, interrupts */
void lvz_init(Object *obj);
void lvz_reset(CPUState *cs);
void lvz_begin_turn(CPUState *cs);
void lvz_end_turn(CPUState *cs);
void lvz_enter(CPULoongArchState *env, uint64_t pc);
bool lvz_begin_exception(CPUState *cs);
bool lvz_host_interrupt(CPULoongArchState *env);
void lvz_update_hwi(CPULoongArchState *env);
void lvz_update_traps(CPULoongArchState *env);
void lvz_set_guest_irq(CPULoongArchState *env, int irq, int level);
void lvz_as_guest(CPULoongArchState *env, void (*fn)(CPULoongArchState *));
bool lvz_csr_banked(unsigned int csr);
uint64_t *lvz_guest_csr_ptr(CPULoongArchState *env, unsigned int csr);
bool lvz_debug_as_host(CPULoongArchState *env, hwaddr gpa, hwaddr *hpa);

/* tcg/lvz_tlb.c: TLBs */
uint8_t lvz_tlb_op_gid(CPULoongArchState *env);
uint16_t lvz_cached_by(CPULoongArchState *env, uint8_t gid);
bool lvz_evict(CPULoongArchState *env, LoongArchTLB *tlb, bool random);
bool lvz_tlb_own(CPULoongArchState *env, const LoongArchTLB *tlb);
bool lvz_tlb_readable(CPULoongArchState *env, const LoongArchTLB *tlb);
void lvz_note_read(CPULoongArchState *env, const LoongArchTLB *tlb);
void lvz_drop_own(CPULoongArchState *env, int index);
void lvz_flush_own(CPULoongArchState *env);
bool lvz_stage2_search(CPULoongArchState *env, uint8_t gid, uint8_t stlb_ps,
                       hwaddr gpa, int *index);

/* tcg/lvz_mmu.c: translation */
bool lvz_tlb_fill(CPUState *cs, vaddr address, MMUAccessType access_type,
                  int mmu_idx, bool probe, uintptr_t retaddr);
hwaddr lvz_get_phys_page_debug(CPUState *cs, vaddr addr);
uint32_t lvz_fetch_insn(CPULoongArchState *env, vaddr pc);
uint64_t lvz_debug_ldq_phys(CPULoongArchState *env, hwaddr addr);

/* tcg/constant_timer.c: the guest's timer, seen from the host */
void lvz_timer_cb(void *opaque);
uint64_t lvz_timer_ticks(LoongArchCPU *cpu);
void lvz_timer_store_config(LoongArchCPU *cpu, uint64_t value);
void lvz_timer_store_ticks(LoongArchCPU *cpu, uint64_t ticks);

extern const VMStateDescription vmstate_loongarch_lvz;

#endif /* LOONGARCH_LVZ_INTERNAL_H */
