//! Control and status registers: numbers and fields.
//!
//! [`Csr`] is the number that an instruction carries; the upper-case modules
//! are the fields, for hardware and for a saved image alike (tock-registers'
//! `LocalRegisterCopy<u64, csr::CRMD::Register>`).
//!
//! Sources: *LoongArch Reference Manual, Volume 1*, chapter 7; for the LVZ
//! registers (0x15, 0x16, 0x50 to 0x53) asm/loongarch.h of Linux 7.2.

#[allow(
    missing_docs,
    reason = "the macro drops a field's documentation from the constant it makes of it"
)]
mod fields;
pub use fields::*;

/// The number of a control and status register, 0 to 0x3fff (14 bits).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Csr(u16);

/// Largest number that an instruction can carry.
const MAX: u16 = 0x3fff;

macro_rules! numbers {
    ($($(#[$doc:meta])* $name:ident = $number:literal,)*) => {
        impl Csr {
            $($(#[$doc])* pub const $name: Csr = Csr($number);)*

            /// The manual's name, for the registers that have a constant of
            /// their own here or belong to one of the numbered families.
            pub const fn name(self) -> &'static str {
                match self.0 {
                    $($number => stringify!($name),)*
                    0x30..=0x3f => "SAVE",
                    0xa0..=0xa3 => "ISR",
                    0x180..=0x183 => "DMW",
                    0x200..=0x21f => "PMU",
                    0x300..=0x3fb => "WATCH",
                    _ => "?",
                }
            }
        }
    };
}

numbers! {
    /// Current mode.
    CRMD = 0x0,
    /// Mode before the exception.
    PRMD = 0x1,
    /// Which extension units are on.
    EUEN = 0x2,
    /// Miscellaneous control.
    MISC = 0x3,
    /// Exception configuration: local interrupt enables, vector spacing.
    ECFG = 0x4,
    /// Exception status: pending interrupts, exception code.
    ESTAT = 0x5,
    /// Where an exception returns to.
    ERA = 0x6,
    /// The address that faulted.
    BADV = 0x7,
    /// The instruction that faulted.
    BADI = 0x8,
    /// Entry of general exceptions and interrupts.
    EENTRY = 0xc,
    /// TLB index, page size and "no entry".
    TLBIDX = 0x10,
    /// TLB entry, high part: virtual page pair.
    TLBEHI = 0x11,
    /// TLB entry, low part of the even page.
    TLBELO0 = 0x12,
    /// TLB entry, low part of the odd page.
    TLBELO1 = 0x13,
    /// LVZ: guest TLB control.
    GTLBC = 0x15,
    /// LVZ: whose entry `tlbrd` read.
    TRGP = 0x16,
    /// Address space identifier.
    ASID = 0x18,
    /// Page table root of the lower half.
    PGDL = 0x19,
    /// Page table root of the upper half.
    PGDH = 0x1a,
    /// Page table root for the address that faulted.
    PGD = 0x1b,
    /// Page walk shape, lower levels.
    PWCL = 0x1c,
    /// Page walk shape, upper levels.
    PWCH = 0x1d,
    /// Page size of the STLB.
    STLBPS = 0x1e,
    /// Reduced virtual address configuration.
    RVACFG = 0x1f,
    /// Physical number of this CPU.
    CPUID = 0x20,
    /// Privileged resource configuration 1.
    PRCFG1 = 0x21,
    /// Privileged resource configuration 2: page sizes offered.
    PRCFG2 = 0x22,
    /// Privileged resource configuration 3: TLB shape.
    PRCFG3 = 0x23,
    /// Number of the constant timer.
    TID = 0x40,
    /// Timer configuration.
    TCFG = 0x41,
    /// Ticks that remain.
    TVAL = 0x42,
    /// Counter compensation.
    CNTC = 0x43,
    /// Timer interrupt clear.
    TICLR = 0x44,
    /// LVZ: guest status.
    GSTAT = 0x50,
    /// LVZ: guest configuration.
    GCFG = 0x51,
    /// LVZ: guest interrupt control.
    GINTC = 0x52,
    /// LVZ: offset of the guest's stable counter.
    GCNTC = 0x53,
    /// LL/SC bit control.
    LLBCTL = 0x60,
    /// Implementation control 1.
    IMPCTL1 = 0x80,
    /// Implementation control 2.
    IMPCTL2 = 0x81,
    /// Entry of the TLB refill exception (physical).
    TLBRENTRY = 0x88,
    /// Address whose translation was missing.
    TLBRBADV = 0x89,
    /// Where a TLB refill returns to.
    TLBRERA = 0x8a,
    /// Scratch register of the refill handler.
    TLBRSAVE = 0x8b,
    /// Refill entry, even page.
    TLBRELO0 = 0x8c,
    /// Refill entry, odd page.
    TLBRELO1 = 0x8d,
    /// Refill entry, virtual page pair and page size.
    TLBREHI = 0x8e,
    /// Mode before the refill exception.
    TLBRPRMD = 0x8f,
    /// Machine error control.
    MERRCTL = 0x90,
    /// Machine error information 1.
    MERRINFO1 = 0x91,
    /// Machine error information 2.
    MERRINFO2 = 0x92,
    /// Entry of the machine error exception.
    MERRENTRY = 0x93,
    /// Where a machine error returns to.
    MERRERA = 0x94,
    /// Scratch register of the machine error handler.
    MERRSAVE = 0x95,
    /// Cache tag.
    CTAG = 0x98,
    /// Message interrupts: requests (chips with MSGINT).
    IRR = 0xa4,
    /// Message interrupts: priority (chips with MSGINT).
    IPR = 0xa5,
    /// Load/store watchpoints: configuration.
    MWPC = 0x300,
    /// Load/store watchpoints: status.
    MWPS = 0x301,
    /// Fetch watchpoints: configuration.
    FWPC = 0x380,
    /// Fetch watchpoints: status.
    FWPS = 0x381,
    /// Debug.
    DBG = 0x500,
    /// Where a debug exception returns to.
    DERA = 0x501,
    /// Scratch register of the debug handler.
    DSAVE = 0x502,
}

impl Csr {
    /// The register with this number, or `None` above 0x3fff.
    pub const fn new(number: u16) -> Option<Csr> {
        if number <= MAX {
            Some(Csr(number))
        } else {
            None
        }
    }

    /// The register that the low 14 bits of `field` name, as an instruction
    /// decoder has them.
    pub const fn from_field(field: u32) -> Csr {
        Csr((field & MAX as u32) as u16)
    }

    /// The number, 0 to 0x3fff.
    pub const fn number(self) -> u16 {
        self.0
    }

    /// Scratch register `n` (0 to 15; a CPU offers PRCFG1.SAVENUM of them).
    pub const fn save(n: u16) -> Csr {
        assert!(n < 16);
        Csr(0x30 + n)
    }

    /// Direct map window `n` (0 to 3).
    pub const fn dmw(n: u16) -> Csr {
        assert!(n < 4);
        Csr(0x180 + n)
    }

    /// Message interrupt status `n` (0 to 3; chips with MSGINT).
    pub const fn isr(n: u16) -> Csr {
        assert!(n < 4);
        Csr(0xa0 + n)
    }
}
