/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * LVZ for TCG: the TLBs, searched, and the instructions that work on them
 *
 * Two arrays hold entries: env->tlb the host's own (GID 0) and the second
 * stage of guests, by GID; lvz.gtlb the first stage of guests.
 *
 * Copyright (c) 2026 The Loongvisor developers
 */

#include "qemu/osdep.h"
#include "cpu.h"
#include "internals.h"
#include "lvz-internal.h"
#include "exec/helper-proto.h"
#include "exec/cputlb.h"
#include "exec/exec-all.h"
#include "cpu-csr.h"

/* Which entries, and what is cached of them */

/* D-USETGID: the GID that the current mode's TLB instructions work on. */
uint8_t lvz_tlb_op_gid(CPULoongArchState *env)
{
    if (env->lvz.guest) {
        return lvz_gid(env);
    }
    return FIELD_EX64(env->CSR_GTLBC, CSR_GTLBC, USETGID)
           ? FIELD_EX64(env->CSR_GTLBC, CSR_GTLBC, TGID) : 0;
}

/*
 * The MMU indices, as a bit map, under which QEMU may have cached what the
 * entries with this GID in the current mode's TLB translate.
 */
uint16_t lvz_cached_by(CPULoongArchState *env, uint8_t gid)
{
    if (env->lvz.guest) {
        return gid == lvz_gid(env) ? MMU_GUEST_PG_IDXMAP : 0;
    }
    if (gid == 0) {
        return MMU_PG_IDXMAP;
    }
    return gid == lvz_gid(env) ? MMU_GUEST_IDXMAP : 0;
}

/*
 * An entry of the current mode's TLB is about to be replaced, at random
 * (tlbfill) or on purpose (tlbwr). Returns whether all that is cached of it
 * is dealt with; else it is the current mode's own and cached by address.
 */
bool lvz_evict(CPULoongArchState *env, LoongArchTLB *tlb, bool random)
{
    uint8_t gid = FIELD_EX64(tlb->tlb_misc, TLB_MISC, GID);

    if (env->lvz.guest) {
        return gid != lvz_gid(env);
    }
    if (gid == 0) {
        return false;
    }
    /* D-EVICT: nobody counts on a random entry's being gone */
    if (!random && FIELD_EX64(tlb->tlb_misc, TLB_MISC, E)) {
        tlb_flush_by_mmuidx(env_cpu(env), lvz_cached_by(env, gid));
    }
    return true;
}

/* Whether tlbclr and tlbflush of the current mode may drop the entry */
bool lvz_tlb_own(CPULoongArchState *env, const LoongArchTLB *tlb)
{
    return FIELD_EX64(tlb->tlb_misc, TLB_MISC, GID) == lvz_tlb_op_gid(env);
}

/* A guest reads its own entries only, the host each: D-GTLB, D-TRGP */
bool lvz_tlb_readable(CPULoongArchState *env, const LoongArchTLB *tlb)
{
    return FIELD_EX64(tlb->tlb_misc, TLB_MISC, E) &&
           (!env->lvz.guest || lvz_tlb_own(env, tlb));
}

/* D-TRGP: of the host's tlbrd and gtlbrd, not of the guest's own tlbrd */
void lvz_note_read(CPULoongArchState *env, const LoongArchTLB *tlb)
{
    uint8_t gid = FIELD_EX64(tlb->tlb_misc, TLB_MISC, GID);

    if (FIELD_EX64(env->CSR_GSTAT, CSR_GSTAT, VM)) {
        return;
    }
    env->CSR_TRGP = 0;
    if (lvz_tlb_readable(env, tlb)) {
        env->CSR_TRGP = FIELD_DP64(env->CSR_TRGP, CSR_TRGP, RID, gid);
        env->CSR_TRGP = FIELD_DP64(env->CSR_TRGP, CSR_TRGP, GTLB,
                                   env->lvz.guest || gid != 0);
    }
}

void lvz_drop_own(CPULoongArchState *env, int index)
{
    LoongArchTLB *tlb = &lvz_tlb(env)[index];

    if (lvz_tlb_own(env, tlb)) {
        tlb->tlb_misc = FIELD_DP64(tlb->tlb_misc, TLB_MISC, E, 0);
    }
}

/* Forget what QEMU has cached of the entries that are the current mode's */
void lvz_flush_own(CPULoongArchState *env)
{
    tlb_flush_by_mmuidx(env_cpu(env),
                        lvz_cached_by(env, lvz_tlb_op_gid(env)));
}

/* Search */

static bool tlb_asid_match(const LoongArchTLB *tlb, int asid)
{
    return asid == TLB_ANY_ASID || FIELD_EX64(tlb->tlb_entry0, TLBENTRY, G) ||
           FIELD_EX64(tlb->tlb_misc, TLB_MISC, ASID) == asid;
}

/*
 * The entry of one TLB that translates an address: first in the STLB's set,
 * whose pages are all of stlb_ps bits, then in the MTLB.
 */
bool loongarch_tlb_search_in(const LoongArchTLB *array, uint8_t gid, int asid,
                             uint8_t stlb_ps, target_ulong address, int *index)
{
    uint64_t key = tlb_key(gid, address);
    uint64_t mask = tlb_key_mask(stlb_ps);
    int set = extract64(address & TARGET_VIRT_MASK, stlb_ps + 1, 8);
    const LoongArchTLB *tlb;

    for (int i = set; i < LOONGARCH_STLB; i += 256) {
        tlb = &array[i];
        if (!((tlb->tlb_misc ^ key) & mask) && tlb_asid_match(tlb, asid)) {
            *index = i;
            return true;
        }
    }
    for (int i = LOONGARCH_STLB; i < LOONGARCH_TLB_MAX; i++) {
        tlb = &array[i];
        mask = tlb_key_mask(FIELD_EX64(tlb->tlb_misc, TLB_MISC, PS));
        if (!((tlb->tlb_misc ^ key) & mask) && tlb_asid_match(tlb, asid)) {
            *index = i;
            return true;
        }
    }
    return false;
}

/* The second-stage entry for a guest physical address */
bool lvz_stage2_search(CPULoongArchState *env, uint8_t gid, uint8_t stlb_ps,
                       hwaddr gpa, int *index)
{
    if (!loongarch_tlb_search_in(env->tlb, gid, TLB_ANY_ASID, stlb_ps, gpa,
                                 index)) {
        return false;
    }
    env->lvz.stage2_hint = *index;
    return true;
}

/* invtlb: D-INVTLB */

typedef struct LVZInvalidate {
    bool by_gid;                /* this GID; else every guest's */
    uint8_t gid;
    uint16_t asid;
    uint8_t what;               /* as ops 1-6 of the base architecture */
    uint64_t addr;
} LVZInvalidate;

static bool lvz_page_match(LoongArchTLB *tlb, uint8_t ps, uint64_t addr)
{
    uint64_t vppn = FIELD_EX64(tlb->tlb_misc, TLB_MISC, VPPN);

    return (addr & TARGET_VIRT_MASK) >> (ps + 1) ==
           vppn >> (ps + 1 - R_TLB_MISC_VPPN_SHIFT);
}

static bool lvz_inv_match(LoongArchTLB *tlb, uint8_t ps,
                          const LVZInvalidate *inv)
{
    uint8_t gid = FIELD_EX64(tlb->tlb_misc, TLB_MISC, GID);
    bool asid = FIELD_EX64(tlb->tlb_misc, TLB_MISC, ASID) == inv->asid;
    bool g = FIELD_EX64(tlb->tlb_entry0, TLBENTRY, G);

    if (inv->by_gid ? gid != inv->gid : gid == 0) {
        return false;
    }
    switch (inv->what) {
    case 2:
        return g;
    case 3:
        return !g;
    case 4:
        return !g && asid;
    case 5:
        return !g && asid && lvz_page_match(tlb, ps, inv->addr);
    case 6:
        return (g || asid) && lvz_page_match(tlb, ps, inv->addr);
    case 7:
        return lvz_page_match(tlb, ps, inv->addr);
    default:
        return true;
    }
}

static void lvz_invalidate(LoongArchTLB *array, uint64_t stlbps,
                           const LVZInvalidate *inv)
{
    for (int i = 0; i < LOONGARCH_TLB_MAX; i++) {
        LoongArchTLB *tlb = &array[i];
        uint8_t ps = i >= LOONGARCH_STLB
                     ? FIELD_EX64(tlb->tlb_misc, TLB_MISC, PS)
                     : FIELD_EX64(stlbps, CSR_STLBPS, PS);

        if (FIELD_EX64(tlb->tlb_misc, TLB_MISC, E) &&
            lvz_inv_match(tlb, ps, inv)) {
            tlb->tlb_misc = FIELD_DP64(tlb->tlb_misc, TLB_MISC, E, 0);
        }
    }
}

/* Of guests: first stage, second stage, or both */
static void lvz_invalidate_guests(CPULoongArchState *env, bool first,
                                  bool second, const LVZInvalidate *inv)
{
    if (inv->by_gid && inv->gid == 0) {
        return;
    }
    if (first) {
        lvz_invalidate(env->lvz.gtlb, *lvz_guest_csr(env, STLBPS), inv);
    }
    if (second) {
        lvz_invalidate(env->tlb, env->CSR_STLBPS, inv);
    }
    if (!inv->by_gid || inv->gid == lvz_gid(env)) {
        tlb_flush_by_mmuidx(env_cpu(env), MMU_GUEST_IDXMAP);
    }
}

void helper_lvz_invtlb(CPULoongArchState *env, uint32_t op, target_ulong info,
                       target_ulong addr)
{
    LVZInvalidate inv = {
        .by_gid = op < 0x10 || op > 0x12,
        .gid = extract64(info, 16, 8),
        .asid = extract64(info, 0, 10),
        .addr = addr,
    };

    switch (op) {
    case 0 ... 6:
        inv.gid = lvz_tlb_op_gid(env);
        inv.what = op;
        lvz_invalidate(lvz_tlb(env), env->CSR_STLBPS, &inv);
        tlb_flush_by_mmuidx(env_cpu(env), lvz_cached_by(env, inv.gid));
        break;
    case 9 ... 0xe:
        inv.what = op - 8;
        lvz_invalidate_guests(env, true, false, &inv);
        break;
    case 0x10:
    case 0x13:
        lvz_invalidate_guests(env, true, false, &inv);
        break;
    case 0x11:
    case 0x14:
        lvz_invalidate_guests(env, false, true, &inv);
        break;
    case 0x12:
    case 0x15:
        lvz_invalidate_guests(env, true, true, &inv);
        break;
    case 0x16:
        inv.what = 7;
        lvz_invalidate_guests(env, false, true, &inv);
        break;
    default:
        g_assert_not_reached();
    }
}
