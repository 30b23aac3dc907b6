//! Fields of the control and status registers.
//!
//! One definition for hardware and for a saved image; see [`super`] for the
//! sources.

use tock_registers::register_bitfields;

register_bitfields![u64,
    /// Current mode.
    pub CRMD [
        /// Privilege level, 0 is the highest.
        PLV OFFSET(0) NUMBITS(2) [],
        /// Interrupts enabled.
        IE OFFSET(2) NUMBITS(1) [],
        /// Direct addressing.
        DA OFFSET(3) NUMBITS(1) [],
        /// Mapped addressing.
        PG OFFSET(4) NUMBITS(1) [],
        /// Memory type of fetches in direct addressing.
        DATF OFFSET(5) NUMBITS(2) [],
        /// Memory type of loads and stores in direct addressing.
        DATM OFFSET(7) NUMBITS(2) [],
        /// Watchpoints enabled.
        WE OFFSET(9) NUMBITS(1) [],
    ],
    /// Mode before the exception.
    pub PRMD [
        /// Privilege level.
        PPLV OFFSET(0) NUMBITS(2) [],
        /// Interrupts enabled.
        PIE OFFSET(2) NUMBITS(1) [],
        /// Watchpoints enabled.
        PWE OFFSET(3) NUMBITS(1) [],
    ],
    /// Which extension units are on.
    pub EUEN [
        /// Floating point.
        FPE OFFSET(0) NUMBITS(1) [],
        /// 128-bit vectors.
        SXE OFFSET(1) NUMBITS(1) [],
        /// 256-bit vectors.
        ASXE OFFSET(2) NUMBITS(1) [],
        /// Binary translation.
        BTE OFFSET(3) NUMBITS(1) [],
    ],
    /// Exception configuration.
    pub ECFG [
        /// Local interrupt enables, one bit a line as in ESTAT.IS.
        LIE OFFSET(0) NUMBITS(13) [],
        /// Vector spacing: 0 is one entry for all, else 2^VS instructions.
        VS OFFSET(16) NUMBITS(3) [],
    ],
    /// Exception status.
    pub ESTAT [
        /// Pending interrupts, one bit a line (see `exception::Interrupt`).
        IS OFFSET(0) NUMBITS(13) [],
        /// Exception code.
        ECODE OFFSET(16) NUMBITS(6) [],
        /// Exception sub-code.
        ESUBCODE OFFSET(22) NUMBITS(9) [],
    ],
    /// TLB index.
    pub TLBIDX [
        /// Entry number.
        INDEX OFFSET(0) NUMBITS(12) [],
        /// Page size, as a power of two of bytes.
        PS OFFSET(24) NUMBITS(6) [],
        /// No entry.
        NE OFFSET(31) NUMBITS(1) [],
    ],
    /// TLB entry, high part (TLBEHI).
    pub TLBEHI [
        /// Virtual page pair: address bits 47:13.
        VPPN OFFSET(13) NUMBITS(35) [],
    ],
    /// TLB entry, low part (TLBELO0/1, TLBRELO0/1), and a page table entry
    /// of a base page.
    pub TLBELO [
        /// Valid.
        V OFFSET(0) NUMBITS(1) [],
        /// Dirty: writes are allowed.
        D OFFSET(1) NUMBITS(1) [],
        /// Privilege level that may use the page.
        PLV OFFSET(2) NUMBITS(2) [],
        /// Memory type: 0 strongly-ordered uncached, 1 coherent cached, 2 weakly-ordered uncached.
        MAT OFFSET(4) NUMBITS(2) [],
        /// Global: any ASID matches.
        G OFFSET(6) NUMBITS(1) [],
        /// Physical page: address bits 47:12.
        PPN OFFSET(12) NUMBITS(36) [],
        /// Not readable.
        NR OFFSET(61) NUMBITS(1) [],
        /// Not executable.
        NX OFFSET(62) NUMBITS(1) [],
        /// Only for exactly the level PLV.
        RPLV OFFSET(63) NUMBITS(1) [],
    ],
    /// Address space identifier.
    pub ASID [
        /// The identifier.
        ASID OFFSET(0) NUMBITS(10) [],
        /// Its width in bits (read-only, 10).
        ASIDBITS OFFSET(16) NUMBITS(8) [],
    ],
    /// Page walk shape, lower levels.
    pub PWCL [
        /// Lowest address bit of the last level's index.
        PTBASE OFFSET(0) NUMBITS(5) [],
        /// Index width of the last level.
        PTWIDTH OFFSET(5) NUMBITS(5) [],
        /// Lowest address bit of directory 1's index.
        DIR1_BASE OFFSET(10) NUMBITS(5) [],
        /// Index width of directory 1.
        DIR1_WIDTH OFFSET(15) NUMBITS(5) [],
        /// Lowest address bit of directory 2's index.
        DIR2_BASE OFFSET(20) NUMBITS(5) [],
        /// Index width of directory 2.
        DIR2_WIDTH OFFSET(25) NUMBITS(5) [],
        /// Entry size: 0 is 64 bits.
        PTEWIDTH OFFSET(30) NUMBITS(2) [],
    ],
    /// Page walk shape, upper levels.
    pub PWCH [
        /// Lowest address bit of directory 3's index.
        DIR3_BASE OFFSET(0) NUMBITS(6) [],
        /// Index width of directory 3, 0 if there is none.
        DIR3_WIDTH OFFSET(6) NUMBITS(6) [],
        /// Lowest address bit of directory 4's index.
        DIR4_BASE OFFSET(12) NUMBITS(6) [],
        /// Index width of directory 4, 0 if there is none.
        DIR4_WIDTH OFFSET(18) NUMBITS(6) [],
    ],
    /// Page size of the STLB.
    pub STLBPS [
        /// Page size, as a power of two of bytes.
        PS OFFSET(0) NUMBITS(6) [],
    ],
    /// Physical number of this CPU.
    pub CPUID [
        /// The number.
        COREID OFFSET(0) NUMBITS(9) [],
    ],
    /// Privileged resource configuration 1.
    pub PRCFG1 [
        /// How many SAVE registers there are.
        SAVENUM OFFSET(0) NUMBITS(4) [],
        /// Timer width in bits, minus one.
        TIMERBITS OFFSET(4) NUMBITS(8) [],
        /// Largest ECFG.VS.
        VSMAX OFFSET(12) NUMBITS(3) [],
    ],
    /// Privileged resource configuration 3: TLB shape.
    pub PRCFG3 [
        /// 2: MTLB and STLB.
        TLBTYPE OFFSET(0) NUMBITS(4) [],
        /// Entries of the MTLB, minus one.
        MTLB_ENTRIES OFFSET(4) NUMBITS(8) [],
        /// Ways of the STLB, minus one.
        STLB_WAYS OFFSET(12) NUMBITS(8) [],
        /// Sets of the STLB, as a power of two.
        STLB_SETS OFFSET(20) NUMBITS(6) [],
    ],
    /// Timer configuration.
    pub TCFG [
        /// The timer counts.
        EN OFFSET(0) NUMBITS(1) [],
        /// It starts again when it reaches 0.
        PERIODIC OFFSET(1) NUMBITS(1) [],
        /// Start value in units of 4 ticks.
        INITVAL OFFSET(2) NUMBITS(46) [],
    ],
    /// Timer interrupt clear.
    pub TICLR [
        /// Writing 1 clears the timer interrupt.
        CLR OFFSET(0) NUMBITS(1) [],
    ],
    /// LL/SC bit control.
    pub LLBCTL [
        /// The LL bit (read-only).
        ROLLB OFFSET(0) NUMBITS(1) [],
        /// Writing 1 clears the LL bit.
        WCLLB OFFSET(1) NUMBITS(1) [],
        /// The next `ertn` keeps the LL bit.
        KLO OFFSET(2) NUMBITS(1) [],
    ],
    /// Where a TLB refill returns to.
    pub TLBRERA [
        /// In the refill exception.
        ISTLBR OFFSET(0) NUMBITS(1) [],
        /// Address bits 63:2.
        PC OFFSET(2) NUMBITS(62) [],
    ],
    /// Refill entry, high part.
    pub TLBREHI [
        /// Page size, as a power of two of bytes.
        PS OFFSET(0) NUMBITS(6) [],
        /// Virtual page pair: address bits 47:13.
        VPPN OFFSET(13) NUMBITS(35) [],
    ],
    /// Mode before the refill exception.
    pub TLBRPRMD [
        /// Privilege level.
        PPLV OFFSET(0) NUMBITS(2) [],
        /// Interrupts enabled.
        PIE OFFSET(2) NUMBITS(1) [],
        /// Watchpoints enabled.
        PWE OFFSET(4) NUMBITS(1) [],
    ],
    /// Direct map window.
    pub DMW [
        /// Usable at privilege level 0.
        PLV0 OFFSET(0) NUMBITS(1) [],
        /// Usable at privilege level 1.
        PLV1 OFFSET(1) NUMBITS(1) [],
        /// Usable at privilege level 2.
        PLV2 OFFSET(2) NUMBITS(1) [],
        /// Usable at privilege level 3.
        PLV3 OFFSET(3) NUMBITS(1) [],
        /// Memory type, as in TLBELO.
        MAT OFFSET(4) NUMBITS(2) [],
        /// Address bits 63:60 of the window.
        VSEG OFFSET(60) NUMBITS(4) [],
    ],
    /// LVZ: guest TLB control.
    pub GTLBC [
        /// Entries of the MTLB that guests may use.
        GMTLBSZ OFFSET(0) NUMBITS(6) [],
        /// TLB instructions in host mode work on entries of TGID.
        USETGID OFFSET(12) NUMBITS(1) [],
        /// TLB instructions of a guest exit.
        TOTI OFFSET(13) NUMBITS(1) [],
        /// The guest that host TLB instructions mean; 0 is the host itself.
        TGID OFFSET(16) NUMBITS(8) [],
    ],
    /// LVZ: whose entry `tlbrd` read.
    pub TRGP [
        /// The entry is a guest's.
        GTLB OFFSET(0) NUMBITS(1) [],
        /// Its guest's identifier.
        RID OFFSET(16) NUMBITS(8) [],
    ],
    /// LVZ: guest status.
    pub GSTAT [
        /// In guest mode now.
        VM OFFSET(0) NUMBITS(1) [],
        /// The next `ertn` enters guest mode.
        PVM OFFSET(1) NUMBITS(1) [],
        /// Width of a guest identifier (read-only, 8).
        GIDBIT OFFSET(4) NUMBITS(6) [],
        /// The guest's identifier; 0 is the host's own.
        GID OFFSET(16) NUMBITS(8) [],
    ],
    /// LVZ: guest configuration; a field ending in P is the capability of
    /// the control beside it (read-only).
    pub GCFG [
        /// Memory types: which MATC values are offered, one bit each.
        MATP OFFSET(0) NUMBITS(4) [],
        /// Memory type of a guest's page: 0 the guest's, 1 the host's, 2 both.
        MATC OFFSET(4) NUMBITS(2) [],
        /// SIT is offered.
        SITP OFFSET(6) NUMBITS(1) [],
        /// Software changes of guest interrupts exit.
        SIT OFFSET(7) NUMBITS(1) [],
        /// TIT is offered.
        TITP OFFSET(8) NUMBITS(1) [],
        /// Timer accesses of the guest exit.
        TIT OFFSET(9) NUMBITS(1) [],
        /// TOE is offered.
        TOEP OFFSET(10) NUMBITS(1) [],
        /// Exceptions of the guest exit.
        TOE OFFSET(11) NUMBITS(1) [],
        /// TOP is offered.
        TOPP OFFSET(12) NUMBITS(1) [],
        /// Privileged accesses of the guest exit.
        TOP OFFSET(13) NUMBITS(1) [],
        /// TORU is offered.
        TORUP OFFSET(14) NUMBITS(1) [],
        /// Accesses to what only the host has exit.
        TORU OFFSET(15) NUMBITS(1) [],
        /// Which GCI values are offered, one bit each.
        GCIP OFFSET(16) NUMBITS(4) [],
        /// Which CACOPs of the guest exit: 0 all, 1 all but hits, 2 only the dangerous.
        GCI OFFSET(20) NUMBITS(2) [],
        /// Guest performance counters are offered.
        GPMP OFFSET(23) NUMBITS(1) [],
        /// How many performance counters belong to the guest.
        GPERF OFFSET(24) NUMBITS(3) [],
    ],
    /// LVZ: guest interrupt control.
    pub GINTC [
        /// Virtual HWI0 to HWI7, level, set by software.
        HWIS OFFSET(0) NUMBITS(8) [],
        /// Physical HWI0 to HWI7 passed to the guest.
        HWIP OFFSET(8) NUMBITS(8) [],
        /// Injecting this line clears the host's.
        HWIC OFFSET(16) NUMBITS(8) [],
    ],
];
