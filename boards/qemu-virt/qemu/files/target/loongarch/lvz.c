/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * LVZ for TCG: modes, CSR banks, exits, interrupts, machine state
 *
 * Copyright (c) 2026 The Loongvisor developers
 */

#include "qemu/osdep.h"
#include "qemu/log.h"
#include "qemu/main-loop.h"
#include "qapi/error.h"
#include "exec/cputlb.h"
#include "exec/exec-all.h"
#include "hw/core/cpu.h"
#include "migration/cpu.h"
#include "qom/object.h"
#include "system/cpu-timers.h"
#include "cpu.h"
#include "internals.h"
#include "csr.h"
#include "lvz-internal.h"
#include "trace.h"

/* D-DETECT: CPUCFG word 3 of LA464 silicon */
#define LA464_CPUCFG3       0xfcff
#define LVZ_VERSION         1

#define GSTAT_GIDBITS       8

/* D-GCFG: MATP guest, root; GCIP all, hit, secure */
#define GCFG_CAPABILITIES                                                   \
    ((0x3u << R_CSR_GCFG_MATP_SHIFT) | R_CSR_GCFG_TITP_MASK |               \
     R_CSR_GCFG_TOEP_MASK | R_CSR_GCFG_TOPP_MASK |                          \
     (0x7u << R_CSR_GCFG_GCIP_SHIFT))

/* Banks */

static const struct {
    uint16_t env;               /* offset in CPULoongArchState */
    uint16_t bank;              /* offset in LVZBank, + 1: 0 is not banked */
} lvz_banked[] = {
#define X(name)                                                             \
    [LOONGARCH_CSR_##name] = { offsetof(CPULoongArchState, CSR_##name),     \
                               offsetof(LVZBank, CSR_##name) + 1 },
    LVZ_BANKED_CSRS(X)
#undef X
#define ELEMENT(array, n)                                                   \
    [LOONGARCH_CSR_##array(n)] = {                                          \
        offsetof(CPULoongArchState, CSR_##array[n]),                        \
        offsetof(LVZBank, CSR_##array[n]) + 1 }
    ELEMENT(SAVE, 0), ELEMENT(SAVE, 1), ELEMENT(SAVE, 2), ELEMENT(SAVE, 3),
    ELEMENT(SAVE, 4), ELEMENT(SAVE, 5), ELEMENT(SAVE, 6), ELEMENT(SAVE, 7),
    ELEMENT(DMW, 0), ELEMENT(DMW, 1), ELEMENT(DMW, 2), ELEMENT(DMW, 3),
#undef ELEMENT
};

bool lvz_csr_banked(unsigned int csr)
{
    return csr < ARRAY_SIZE(lvz_banked) && lvz_banked[csr].bank;
}

/*
 * The guest's CSR of that number, for a banked one, wherever it is now.
 */
uint64_t *lvz_guest_csr_ptr(CPULoongArchState *env, unsigned int csr)
{
    char *base = (char *)env;

    if (env->lvz.guest) {
        return (uint64_t *)(base + lvz_banked[csr].env);
    }
    base = (char *)&env->lvz.other;
    return (uint64_t *)(base + lvz_banked[csr].bank - 1);
}

static void swap_u64(uint64_t *a, uint64_t *b)
{
    uint64_t t = *a;

    *a = *b;
    *b = t;
}

/* Swap the banks. The big lock keeps devices away from ESTAT meanwhile. */
static void lvz_switch(CPULoongArchState *env)
{
    LVZBank *other = &env->lvz.other;

    g_assert(bql_locked());
#define X(name) swap_u64(&env->CSR_##name, &other->CSR_##name);
    LVZ_BANKED_CSRS(X)
#undef X
    for (int i = 0; i < LVZ_BANKED_SAVES; i++) {
        swap_u64(&env->CSR_SAVE[i], &other->CSR_SAVE[i]);
    }
    for (int i = 0; i < LVZ_BANKED_DMWS; i++) {
        swap_u64(&env->CSR_DMW[i], &other->CSR_DMW[i]);
    }
    swap_u64(&env->lladdr, &other->lladdr);
    swap_u64(&env->llval, &other->llval);
    env->lvz.guest = !env->lvz.guest;
}

/*
 * Do in the host what the guest's own instruction would do: D-GTLB.
 */
void lvz_as_guest(CPULoongArchState *env, void (*fn)(CPULoongArchState *))
{
    bql_lock();
    lvz_switch(env);
    fn(env);
    lvz_switch(env);
    bql_unlock();
}

/*
 * For the debugger in guest mode: the host's second-stage tables tell where
 * gpa is, though the TLB has no entry. Called with the processor stopped.
 */
bool lvz_debug_as_host(CPULoongArchState *env, hwaddr gpa, hwaddr *hpa)
{
    bool locked = bql_locked();
    int prot, ret;

    if (!locked) {
        bql_lock();
    }
    lvz_switch(env);
    ret = loongarch_page_table_walker(env, hpa, &prot, gpa);
    lvz_switch(env);
    if (!locked) {
        bql_unlock();
    }
    return ret == 0;
}

/* The processor's own instructions, for who counts them from outside */

/*
 * Instructions of all processors. Read between two instructions: where a mode
 * changes, what can_do_io is for has been dealt with.
 */
static int64_t lvz_all_insns(CPUState *cs)
{
    bool can_do_io = cs->neg.can_do_io;
    int64_t insns;

    cs->neg.can_do_io = true;
    insns = icount_get_raw();
    cs->neg.can_do_io = can_do_io;
    return insns;
}

/* This processor begins to execute. */
void lvz_begin_turn(CPUState *cs)
{
    if (icount_enabled()) {
        cpu_env(cs)->lvz.turn = lvz_all_insns(cs);
    }
}

/* Another processor's turn begins. */
void lvz_end_turn(CPUState *cs)
{
    LVZState *lvz = &cpu_env(cs)->lvz;

    if (icount_enabled()) {
        lvz->insns += lvz_all_insns(cs) - lvz->turn;
    }
}

/* Instructions that this processor has executed; 0 without -icount. */
static uint64_t lvz_insns(CPUState *cs)
{
    LVZState *lvz = &cpu_env(cs)->lvz;

    return icount_enabled() ? lvz->insns + lvz_all_insns(cs) - lvz->turn : 0;
}

/* Modes */

/*
 * ertn in the host, its CRMD and the host's LL bit already as it leaves
 * them: go on in the guest, at pc, where GSTAT.PVM asks for it.
 */
void lvz_enter(CPULoongArchState *env, uint64_t pc)
{
    if (env->lvz.guest || !FIELD_EX64(env->CSR_GSTAT, CSR_GSTAT, PVM)) {
        return;
    }
    bql_lock();
    lvz_switch(env);
    env->CSR_GSTAT = FIELD_DP64(env->CSR_GSTAT, CSR_GSTAT, VM, 1);
    bql_unlock();
    if (trace_event_get_state_backends(TRACE_LVZ_ENTER)) {
        trace_lvz_enter(env_cpu(env)->cpu_index, lvz_gid(env), pc,
                        lvz_insns(env_cpu(env)));
    }
}

/*
 * Whether an interrupt of the host is to be taken in guest mode: the host's
 * CRMD.IE is what PRMD.PIE was at entry.
 */
bool lvz_host_interrupt(CPULoongArchState *env)
{
    const LVZBank *host = &env->lvz.other;

    return env->lvz.guest &&
           FIELD_EX64(host->CSR_CRMD, CSR_CRMD, IE) &&
           (FIELD_EX64(host->CSR_ESTAT, CSR_ESTAT, IS) &
            FIELD_EX64(host->CSR_ECFG, CSR_ECFG, LIE));
}

/* D-UNIT, D-TOE: which exceptions of the guest's are the host's to take */
static bool lvz_exits(CPULoongArchState *env, int excp)
{
    uint64_t euen = env->lvz.other.CSR_EUEN;

    if (env->lvz.fault.pending) {
        return true;
    }
    switch (excp) {
    case EXCCODE_GSPR:
    case EXCCODE_HVC:
        return true;
    case EXCCODE_INT:
        return lvz_host_interrupt(env);
    case EXCCODE_FPD:
        if (!FIELD_EX64(euen, CSR_EUEN, FPE)) {
            return true;
        }
        break;
    case EXCCODE_SXD:
        if (!FIELD_EX64(euen, CSR_EUEN, SXE)) {
            return true;
        }
        break;
    case EXCCODE_ASXD:
        if (!FIELD_EX64(euen, CSR_EUEN, ASXE)) {
            return true;
        }
        break;
    }
    return FIELD_EX64(env->CSR_GCFG, CSR_GCFG, TOE) &&
           !FIELD_EX64(env->CSR_TLBRERA, CSR_TLBRERA, ISTLBR);
}

static uint64_t lvz_exit_address(CPULoongArchState *env)
{
    return env->lvz.fault.pending ? env->lvz.fault.gpa : env->CSR_BADV;
}

/*
 * First step of an exception in guest mode: find the instruction for BADI
 * without a fault of its own, and leave for the host where the exception is
 * the host's. What follows in loongarch_cpu_do_interrupt() then happens to
 * the bank that takes it. Returns whether BADI is dealt with.
 */
bool lvz_begin_exception(CPUState *cs)
{
    CPULoongArchState *env = cpu_env(cs);
    LVZFault fault = env->lvz.fault;
    int excp = cs->exception_index;
    bool has_insn = excp != EXCCODE_INT && excp != EXCCODE_PIF &&
                    excp != EXCCODE_PNX && excp != EXCCODE_ADEF;
    uint32_t insn = env->lvz.insn;
    uint64_t badv;

    if (!env->lvz.guest) {
        return false;
    }
    if (has_insn && excp != EXCCODE_GSPR && excp != EXCCODE_HVC) {
        insn = lvz_fetch_insn(env, env->pc);
    }
    if (!lvz_exits(env, excp)) {
        if (has_insn) {
            env->CSR_BADI = insn;
        }
        return true;
    }

    badv = lvz_exit_address(env);
    if (trace_event_get_state_backends(TRACE_LVZ_EXIT)) {
        trace_lvz_exit(cs->cpu_index, loongarch_exception_name(excp), env->pc,
                       insn, badv, lvz_insns(cs));
    }
    lvz_switch(env);
    env->CSR_GSTAT = FIELD_DP64(env->CSR_GSTAT, CSR_GSTAT, VM, 0);
    if (has_insn) {
        env->CSR_BADI = insn;
    }
    if (fault.pending) {
        env->lvz.fault.pending = false;
        loongarch_raise_mmu_exception(env, fault.gpa, fault.access_type,
                                      fault.tlb_error);
    } else if (excp != EXCCODE_INT) {
        env->CSR_BADV = badv;
    }
    return true;
}

/* Interrupts */

/* D-GINTC: recompute the guest's HWI bits. The caller holds the big lock. */
void lvz_update_hwi(CPULoongArchState *env)
{
    uint64_t lines = FIELD_EX64(*lvz_host_csr(env, ESTAT), CSR_ESTAT, HWI);
    uint64_t hwi = FIELD_EX64(env->CSR_GINTC, CSR_GINTC, HWIS) |
                   (FIELD_EX64(env->CSR_GINTC, CSR_GINTC, HWIP) & lines);
    uint64_t *estat = lvz_guest_csr(env, ESTAT);

    *estat = FIELD_DP64(*estat, CSR_ESTAT, HWI, hwi);
}

/* Set one of the guest's own interrupts. The caller holds the big lock. */
void lvz_set_guest_irq(CPULoongArchState *env, int irq, int level)
{
    uint64_t *estat = lvz_guest_csr(env, ESTAT);

    *estat = deposit64(*estat, irq, 1, level != 0);
    loongarch_cpu_kick_irq(env);
}

/* What of the guest exits by GCFG and GTLBC, as part of a block's identity. */
void lvz_update_traps(CPULoongArchState *env)
{
    uint32_t flags = 0;

    if (FIELD_EX64(env->CSR_GCFG, CSR_GCFG, TIT)) {
        flags |= HW_FLAGS_LVZ_TIT;
    }
    if (FIELD_EX64(env->CSR_GCFG, CSR_GCFG, TOP)) {
        flags |= HW_FLAGS_LVZ_TOP;
    }
    if (FIELD_EX64(env->CSR_GTLBC, CSR_GTLBC, TOTI)) {
        flags |= HW_FLAGS_LVZ_TOTI;
    }
    flags |= FIELD_EX64(env->CSR_GCFG, CSR_GCFG, GCI) << HW_FLAGS_LVZ_GCI_SHIFT;
    env->lvz.trap_flags = flags;
}

/* Life of the processor */

static bool lvz_get(Object *obj, Error **errp)
{
    return lvz_enabled(&LOONGARCH_CPU(obj)->env);
}

static void lvz_set(Object *obj, bool value, Error **errp)
{
    CPULoongArchState *env = &LOONGARCH_CPU(obj)->env;
    uint32_t word = env->cpucfg[2];

    word = FIELD_DP32(word, CPUCFG2, LVZ, value);
    word = FIELD_DP32(word, CPUCFG2, LVZ_VER, value ? LVZ_VERSION : 0);
    env->cpucfg[2] = word;
    env->cpucfg[3] = value ? LA464_CPUCFG3 : 0;
}

/* For a processor model that can have LVZ: property and timer. */
void lvz_init(Object *obj)
{
    LoongArchCPU *cpu = LOONGARCH_CPU(obj);

    object_property_add_bool(obj, "lvz", lvz_get, lvz_set);
    object_property_set_description(obj, "lvz",
                                    "LVZ, the virtualization extension");
    timer_init_ns(&cpu->env.lvz.timer, QEMU_CLOCK_VIRTUAL, lvz_timer_cb, cpu);
}

/*
 * Before the base architecture's reset, which is to find the host's bank
 * in env.
 */
void lvz_reset(CPUState *cs)
{
    CPULoongArchState *env = cpu_env(cs);
    LVZBank *guest = &env->lvz.other;

    if (!lvz_enabled(env)) {
        return;
    }
    if (env->lvz.guest) {
        lvz_switch(env);
    }
    timer_del(&LOONGARCH_CPU(cs)->timer);
    timer_del(&env->lvz.timer);
    memset(guest, 0, sizeof(*guest));
    memset(env->lvz.gtlb, 0, sizeof(env->lvz.gtlb));
    memset(&env->lvz.fault, 0, sizeof(env->lvz.fault));
    env->CSR_GTLBC = R_CSR_GTLBC_GMTLBSZ_MASK;      /* D-GMTLBSZ */
    env->CSR_TRGP = 0;
    env->CSR_GSTAT = FIELD_DP64(0, CSR_GSTAT, GIDBIT, GSTAT_GIDBITS);
    env->CSR_GCFG = GCFG_CAPABILITIES;
    env->CSR_GINTC = 0;
    env->CSR_GCNTC = 0;
    lvz_update_traps(env);
    guest->CSR_CRMD = R_CSR_CRMD_DA_MASK;
    guest->CSR_ASID = env->CSR_ASID & ~R_CSR_ASID_ASID_MASK; /* D-ASID */
    guest->CSR_PRCFG1 = env->CSR_PRCFG1;
    guest->CSR_PRCFG2 = env->CSR_PRCFG2;
    guest->CSR_PRCFG3 = env->CSR_PRCFG3;
    guest->CSR_STLBPS = ctz64(env->CSR_PRCFG2);
    guest->lladdr = LLADDR_NONE;
}

/* Machine state */

static const VMStateDescription vmstate_lvz_bank = {
    .name = "cpu/lvz/bank",
    .version_id = 1,
    .minimum_version_id = 1,
    .fields = (const VMStateField[]) {
#define X(name) VMSTATE_UINT64(CSR_##name, LVZBank),
        LVZ_BANKED_CSRS(X)
#undef X
        VMSTATE_UINT64_ARRAY(CSR_SAVE, LVZBank, LVZ_BANKED_SAVES),
        VMSTATE_UINT64_ARRAY(CSR_DMW, LVZBank, LVZ_BANKED_DMWS),
        VMSTATE_UINT64(lladdr, LVZBank),
        VMSTATE_UINT64(llval, LVZBank),
        VMSTATE_END_OF_LIST()
    }
};

static const VMStateDescription vmstate_lvz_tlb_entry = {
    .name = "cpu/lvz/tlb",
    .version_id = 1,
    .minimum_version_id = 1,
    .fields = (const VMStateField[]) {
        VMSTATE_UINT64(tlb_misc, LoongArchTLB),
        VMSTATE_UINT64(tlb_entry0, LoongArchTLB),
        VMSTATE_UINT64(tlb_entry1, LoongArchTLB),
        VMSTATE_END_OF_LIST()
    }
};

static bool lvz_needed(void *opaque)
{
    LoongArchCPU *cpu = opaque;

    return lvz_enabled(&cpu->env);
}

static int lvz_post_load(void *opaque, int version_id)
{
    LoongArchCPU *cpu = opaque;

    tlb_flush(CPU(cpu));
    lvz_update_traps(&cpu->env);
    restore_fp_status(&cpu->env);
    return 0;
}

/*
 * The host's timer and LL bit are here too: the base architecture's state
 * has neither, and a host that stops ticking after a load is of no use.
 */
const VMStateDescription vmstate_loongarch_lvz = {
    .name = "cpu/lvz",
    .version_id = 1,
    .minimum_version_id = 1,
    .needed = lvz_needed,
    .post_load = lvz_post_load,
    .fields = (const VMStateField[]) {
        VMSTATE_UINT64(env.CSR_GTLBC, LoongArchCPU),
        VMSTATE_UINT64(env.CSR_TRGP, LoongArchCPU),
        VMSTATE_UINT64(env.CSR_GSTAT, LoongArchCPU),
        VMSTATE_UINT64(env.CSR_GCFG, LoongArchCPU),
        VMSTATE_UINT64(env.CSR_GINTC, LoongArchCPU),
        VMSTATE_UINT64(env.CSR_GCNTC, LoongArchCPU),
        VMSTATE_UINT64(env.CSR_CPUID, LoongArchCPU),
        VMSTATE_UINT64(env.lladdr, LoongArchCPU),
        VMSTATE_UINT64(env.llval, LoongArchCPU),
        VMSTATE_TIMER(timer, LoongArchCPU),
        VMSTATE_BOOL(env.lvz.guest, LoongArchCPU),
        VMSTATE_TIMER(env.lvz.timer, LoongArchCPU),
        VMSTATE_STRUCT(env.lvz.other, LoongArchCPU, 1, vmstate_lvz_bank,
                       LVZBank),
        VMSTATE_STRUCT_ARRAY(env.lvz.gtlb, LoongArchCPU, LOONGARCH_TLB_MAX, 1,
                             vmstate_lvz_tlb_entry, LoongArchTLB),
        VMSTATE_END_OF_LIST()
    }
};
