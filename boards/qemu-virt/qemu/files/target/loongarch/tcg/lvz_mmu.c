/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * LVZ for TCG: two stages of translation
 *
 * A guest's address goes through its own TLB, windows and tables to a guest
 * physical address, and through the host's TLB entries with the guest's GID
 * to a physical one. QEMU caches the result of both under the guest's MMU
 * indices, so that entering and leaving a guest flushes nothing.
 *
 * Copyright (c) 2026 The Loongvisor developers
 */

#include "qemu/osdep.h"
#include "qemu/log.h"
#include "cpu.h"
#include "internals.h"
#include "lvz-internal.h"
#include "exec/helper-proto.h"
#include "exec/cputlb.h"
#include "exec/exec-all.h"
#include "exec/page-protection.h"
#include "exec/cpu_ldst.h"
#include "cpu-csr.h"

/* Translation */

/* Of a TLB entry: what asks no question but that of the privilege level */
#define PLAIN_MASK  (R_TLBENTRY_V_MASK | R_TLBENTRY_D_MASK |                \
                     R_TLBENTRY_64_NR_MASK | R_TLBENTRY_64_NX_MASK |        \
                     R_TLBENTRY_64_RPLV_MASK)
#define PLAIN       (R_TLBENTRY_V_MASK | R_TLBENTRY_D_MASK)

/*
 * Nearly every search ends where the last one did, in a large page for any
 * access: what loongarch_map_tlb_entry() comes to there, in a few lines.
 */
static inline
bool lvz_stage2_again(CPULoongArchState *env, uint8_t gid, uint64_t plv,
                      hwaddr gpa, hwaddr *hpa)
{
    const LoongArchTLB *tlb = &env->tlb[env->lvz.stage2_hint];
    uint8_t ps = FIELD_EX64(tlb->tlb_misc, TLB_MISC, PS);
    uint64_t offset = MAKE_64BIT_MASK(0, ps);
    uint64_t entry = gpa >> ps & 1 ? tlb->tlb_entry1 : tlb->tlb_entry0;

    if (!lvz_stage2_hint_match(env, gid, gpa) ||
        (entry & PLAIN_MASK) != PLAIN || plv > FIELD_EX64(entry, TLBENTRY, PLV)) {
        return false;
    }
    *hpa = (entry & R_TLBENTRY_64_PPN_MASK & ~offset) | (gpa & offset);
    return true;
}

/* D-STAGE2: by GID and address; GID 0 is never a guest's. */
static int lvz_stage2(CPULoongArchState *env, hwaddr *hpa, int *prot,
                      hwaddr gpa, MMUAccessType access_type)
{
    uint8_t stlb_ps = FIELD_EX64(*lvz_host_csr(env, STLBPS), CSR_STLBPS, PS);
    uint64_t plv = FIELD_EX64(*lvz_host_csr(env, CRMD), CSR_CRMD, PLV);
    uint8_t gid = lvz_gid(env);
    int index;

    if (gid == 0) {
        return TLBRET_NOMATCH;
    }
    if (lvz_stage2_again(env, gid, plv, gpa, hpa)) {
        *prot = PAGE_READ | PAGE_WRITE | PAGE_EXEC;
        return TLBRET_MATCH;
    }
    if (!lvz_stage2_search(env, gid, stlb_ps, gpa, &index)) {
        return TLBRET_NOMATCH;
    }
    return loongarch_map_tlb_entry(env, hpa, prot, gpa, access_type,
                                   &env->tlb[index], index, stlb_ps, plv);
}

static int lvz_stage1(CPULoongArchState *env, hwaddr *gpa, int *prot,
                      vaddr address, MMUAccessType access_type, int mmu_idx,
                      bool is_debug)
{
    if (mmu_idx == MMU_GUEST_DA_IDX) {
        *gpa = address & TARGET_PHYS_MASK;
        *prot = PAGE_READ | PAGE_WRITE | PAGE_EXEC;
        return TLBRET_MATCH;
    }
    return get_physical_address(env, gpa, prot, address, access_type,
                                mmu_idx - MMU_GUEST_BASE, is_debug);
}

static int page_invalid_code(MMUAccessType access_type)
{
    switch (access_type) {
    case MMU_INST_FETCH:
        return EXCCODE_PIF;
    case MMU_DATA_STORE:
        return EXCCODE_PIS;
    default:
        return EXCCODE_PIL;
    }
}

/* Apart from the fill, so that this one's locals cost only those who fault */
static G_NORETURN __attribute__((noinline))
void lvz_second_stage_fault(CPUState *cs, hwaddr gpa,
                            MMUAccessType access_type, int tlb_error,
                            uintptr_t retaddr)
{
    cpu_env(cs)->lvz.fault = (LVZFault) {
        .pending = true,
        .tlb_error = tlb_error,
        .access_type = access_type,
        .gpa = gpa,
    };
    cs->exception_index = page_invalid_code(access_type);
    cpu_loop_exit_restore(cs, retaddr);
}

bool lvz_tlb_fill(CPUState *cs, vaddr address, MMUAccessType access_type,
                  int mmu_idx, bool probe, uintptr_t retaddr)
{
    CPULoongArchState *env = cpu_env(cs);
    int prot1, prot2, ret;
    hwaddr gpa, hpa;

    ret = lvz_stage1(env, &gpa, &prot1, address, access_type, mmu_idx, false);
    if (likely(ret == TLBRET_MATCH)) {
        ret = lvz_stage2(env, &hpa, &prot2, gpa, access_type);
        if (likely(ret == TLBRET_MATCH)) {
            tlb_set_page(cs, address & TARGET_PAGE_MASK,
                         hpa & TARGET_PAGE_MASK, prot1 & prot2, mmu_idx,
                         TARGET_PAGE_SIZE);
            return true;
        }
        if (!probe) {
            lvz_second_stage_fault(cs, gpa, access_type, ret, retaddr);
        }
    }
    if (probe) {
        return false;
    }
    loongarch_raise_mmu_exception(env, address, access_type, ret);
    cpu_loop_exit_restore(cs, retaddr);
}

/* Without a fault: for the debugger, and for BADI */

static bool lvz_debug_stage2(CPULoongArchState *env, hwaddr gpa, hwaddr *hpa)
{
    int prot;

    if (lvz_stage2(env, hpa, &prot, gpa, MMU_DATA_LOAD) == TLBRET_MATCH) {
        return true;
    }
    if (!lvz_debug_as_host(env, gpa, hpa)) {
        return false;
    }
    *hpa |= gpa & ~TARGET_PAGE_MASK;
    return true;
}

/* What the tables of the current mode hold at a physical address of theirs. */
uint64_t lvz_debug_ldq_phys(CPULoongArchState *env, hwaddr addr)
{
    AddressSpace *as = env_cpu(env)->as;

    if (env->lvz.guest && !lvz_debug_stage2(env, addr, &addr)) {
        return 0;
    }
    return address_space_ldq_le(as, addr, MEMTXATTRS_UNSPECIFIED, NULL);
}

hwaddr lvz_get_phys_page_debug(CPUState *cs, vaddr addr)
{
    CPULoongArchState *env = cpu_env(cs);
    hwaddr gpa, hpa;
    int prot;

    if (lvz_stage1(env, &gpa, &prot, addr, MMU_DATA_LOAD,
                   cpu_mmu_index(cs, false), true) != TLBRET_MATCH ||
        !lvz_debug_stage2(env, gpa, &hpa)) {
        return -1;
    }
    return hpa;
}

/*
 * The instruction at pc, which the guest is executing. Its page may have
 * left the TLBs since it was translated: look into the tables then, rather
 * than fault in the middle of another fault.
 */
uint32_t lvz_fetch_insn(CPULoongArchState *env, vaddr pc)
{
    CPUState *cs = env_cpu(env);
    void *host;
    hwaddr hpa;
    int flags;

    flags = probe_access_flags(env, pc, 4, MMU_INST_FETCH,
                               cpu_mmu_index(cs, true), true, &host, 0);
    if (!(flags & TLB_INVALID_MASK) && host) {
        return ldl_le_p(host);
    }
    hpa = lvz_get_phys_page_debug(cs, pc);
    if (hpa == -1) {
        return 0;
    }
    hpa = (hpa & TARGET_PAGE_MASK) | (pc & ~TARGET_PAGE_MASK);
    return address_space_ldl_le(cs->as, hpa, MEMTXATTRS_UNSPECIFIED, NULL);
}

/* lddir, ldpte */

/*
 * Read an entry of a page table. A guest's table is at a guest physical
 * address: the read can exit, like any other access of the guest.
 */
static uint64_t lvz_read_entry(CPULoongArchState *env, hwaddr addr,
                               uintptr_t ra)
{
    if (env->lvz.guest) {
        return cpu_ldq_le_mmuidx_ra(env, addr, MMU_GUEST_DA_IDX, ra);
    }
    return address_space_ldq_le(env_cpu(env)->as, addr,
                                MEMTXATTRS_UNSPECIFIED, NULL);
}

/* The bits of an entry that are address or NR, NX, RPLV */
#define ENTRY_MASK  (TARGET_PHYS_MASK | R_TLBENTRY_64_NR_MASK |             \
                     R_TLBENTRY_64_NX_MASK | R_TLBENTRY_64_RPLV_MASK)
/* Of those, the bits that a TLB entry has: no software bits 9-11 */
#define TLBELO_MASK (ENTRY_MASK & ~MAKE_64BIT_MASK(9, 3))

/* Where a table of 2^width entries has the one for TLBRBADV's bits at base */
static hwaddr lvz_entry_address(CPULoongArchState *env, uint64_t table,
                                uint64_t base, uint64_t width)
{
    uint64_t index = width ? extract64(env->CSR_TLBRBADV >> base, 0, width) : 0;

    /* Flags of the directory entry that led here are no address bits */
    table &= TARGET_PHYS_MASK & ~((8ull << width) - 1);
    return table | index << 3;
}

target_ulong helper_lvz_lddir(CPULoongArchState *env, target_ulong base,
                              uint32_t level)
{
    uint64_t dir_base, dir_width, entry;

    if (level == 0 || level > 4) {
        qemu_log_mask(LOG_GUEST_ERROR, "lddir with level %u\n", level);
        return base;
    }
    if (FIELD_EX64(base, TLBENTRY, HUGE)) {
        /* A huge page of a level above: note of which level, once */
        if (level < 4 && !FIELD_EX64(base, TLBENTRY, LEVEL)) {
            base = FIELD_DP64(base, TLBENTRY, LEVEL, level);
        }
        return base;
    }
    get_dir_base_width(env, &dir_base, &dir_width, level);
    entry = lvz_read_entry(env, lvz_entry_address(env, base, dir_base,
                                                  dir_width), GETPC());
    return FIELD_EX64(entry, TLBENTRY, HUGE) ? entry & ENTRY_MASK
                                             : entry & TARGET_PHYS_MASK;
}

static uint64_t lvz_huge_page(CPULoongArchState *env, uint64_t entry,
                              bool odd, uint64_t *ps)
{
    uint64_t dir_base, dir_width;

    get_dir_base_width(env, &dir_base, &dir_width,
                       FIELD_EX64(entry, TLBENTRY, LEVEL));
    /* A TLB entry is a pair: each half of it is half the huge page */
    *ps = (dir_base + dir_width - 1) & R_CSR_TLBREHI_PS_MASK;
    entry = FIELD_DP64(entry, TLBENTRY, LEVEL, 0);
    entry = FIELD_DP64(entry, TLBENTRY, HUGE, 0);
    if (FIELD_EX64(entry, TLBENTRY, HGLOBAL)) {
        entry = FIELD_DP64(entry, TLBENTRY, HGLOBAL, 0);
        entry = FIELD_DP64(entry, TLBENTRY, G, 1);
    }
    return entry + (odd ? BIT_ULL(*ps) : 0);
}

void helper_lvz_ldpte(CPULoongArchState *env, target_ulong base, uint32_t odd)
{
    uint64_t ps, ptwidth, addr, entry;

    if (FIELD_EX64(base, TLBENTRY, HUGE)) {
        entry = lvz_huge_page(env, base, odd, &ps);
    } else {
        get_dir_base_width(env, &ps, &ptwidth, 0);
        addr = lvz_entry_address(env, base, ps, ptwidth);
        addr = deposit64(addr, 3, 1, odd);
        entry = lvz_read_entry(env, addr, GETPC());
    }
    if (odd) {
        env->CSR_TLBRELO1 = entry & TLBELO_MASK;
    } else {
        env->CSR_TLBRELO0 = entry & TLBELO_MASK;
    }
    env->CSR_TLBREHI = FIELD_DP64(env->CSR_TLBREHI, CSR_TLBREHI, PS, ps);
}

