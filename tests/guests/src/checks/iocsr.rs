//! The corners of the IOCSR space: every width at every offset, aligned or
//! not, sends with every mask, and registers that aren't offered.

use crate::check::{Check, Outcome, ensure, equal};
use crate::runtime::cpucfg;
use crate::runtime::iocsr::{read_b, read_d, read_h, read_w, write_b, write_d, write_h, write_w};
use crate::{csrrd, csrwr};
use guest_pv::abi::iocsr::{
    ANY_SEND, CPU_NAME, EIOINTC_BOUNCE, EIOINTC_CORE_MAP, FEATURES, IPI_CLEAR, IPI_ENABLE,
    IPI_SEND, IPI_SET, IPI_STATUS, MAIL_SEND, MAILBOX, MISC_FUNC, VENDOR, any_send, ipi_send,
    mail_send,
};
use loongarch_isa::exception::Interrupt;

/// The checks.
pub const CHECKS: [Check; 7] = [
    Check {
        name: "iocsr.mailboxes",
        cpus: 1,
        run: mailboxes,
    },
    Check {
        name: "iocsr.mail-send",
        cpus: 1,
        run: mail_sends,
    },
    Check {
        name: "iocsr.any-send",
        cpus: 1,
        run: any_sends,
    },
    Check {
        name: "iocsr.several",
        cpus: 1,
        run: several,
    },
    Check {
        name: "iocsr.narrow-send",
        cpus: 1,
        run: narrow_sends,
    },
    Check {
        name: "iocsr.offsets",
        cpus: 1,
        run: offsets,
    },
    Check {
        name: "iocsr.offered",
        cpus: 1,
        run: offered,
    },
];

const MAIL: u64 = MAILBOX as u64;
const STATUS: u64 = IPI_STATUS as u64;
const SET: u64 = IPI_SET as u64;
const CLEAR: u64 = IPI_CLEAR as u64;
const ALL: u64 = 0xffff_ffff;
/// Bytes that differ from each other, from byte 0x90 on: all are negative.
const FIRST_BYTE: u64 = 0x90;

fn my_id() -> u32 {
    csrrd!(CPUID) as u32
}

/// The four mailboxes.
fn mail() -> [u64; 4] {
    [0, 8, 16, 24].map(|offset| read_d(MAIL + offset))
}

/// Byte `n` of the mailboxes is [`FIRST_BYTE`] + n.
fn fill() {
    for mailbox in 0..4 {
        let bytes = [0, 1, 2, 3, 4, 5, 6, 7].map(|n| (FIRST_BYTE + 8 * mailbox + n) as u8);
        write_d(MAIL + 8 * mailbox, u64::from_le_bytes(bytes));
    }
}

/// `bytes` bytes of the mailboxes from `offset` on, sign-extended.
fn expected(offset: u64, bytes: u64) -> u64 {
    let byte = |n| (FIRST_BYTE + offset + n) << (8 * n);
    let value = (0..bytes).fold(0, |value, n| value | byte(n));
    let unused = 64 - 8 * bytes;
    (((value << unused) as i64) >> unused).cast_unsigned()
}

/// Reads of every width wherever they are aligned; what isn't is defined,
/// has no effect, and never reaches the send registers behind.
fn mailboxes() -> Outcome {
    fill();
    for offset in 0..32 {
        equal("byte", read_b(MAIL + offset), expected(offset, 1))?;
        if offset % 2 == 0 {
            equal("half", read_h(MAIL + offset), expected(offset, 2))?;
        }
        if offset % 4 == 0 {
            equal("word", read_w(MAIL + offset), expected(offset, 4))?;
        }
        if offset % 8 == 0 {
            equal("double", read_d(MAIL + offset), expected(offset, 8))?;
        }
        // Not aligned: the first byte is right, and all is as before.
        for value in [
            read_h(MAIL + offset),
            read_w(MAIL + offset),
            read_d(MAIL + offset),
        ] {
            let first = if offset % 4 == 0 {
                FIRST_BYTE + offset
            } else {
                value & 0xff
            };
            equal("first byte", value & 0xff, first)?;
        }
    }
    fill();
    let before = mail();
    // The end of the mailboxes is the beginning of IPI_SEND.
    write_w(CLEAR, ALL);
    let send = u64::from(ipi_send(my_id(), 9));
    write_d(MAIL + 28, send << 32 | before[3] >> 32);
    for offset in 29..32 {
        write_b(MAIL + offset, before[3] >> (8 * (offset - 24)));
    }
    equal("nothing was sent", read_w(STATUS), 0)?;
    equal("what was written is there", u64::from(mail() == before), 1)?;
    for at in MAIL - 8..MAIL {
        write_b(at, 0);
        write_h(at & !1, 0);
    }
    equal("nor from below", u64::from(mail() == before), 1)
}

/// Bits of the bytes that `keep` doesn't keep.
fn written(keep: u64) -> u64 {
    let byte = |n: u64| {
        if keep >> n & 1 == 0 {
            0xff << (8 * n)
        } else {
            0
        }
    };
    byte(0) | byte(1) | byte(2) | byte(3)
}

/// MAIL_SEND to every half with every mask; 32 bits of it have no data.
fn mail_sends() -> Outcome {
    const DATA: u32 = 0x1234_5678;
    for half in 0..8u32 {
        for keep in 0..16 {
            let send = mail_send(my_id(), half, DATA) | keep << 27;
            let at = MAIL + u64::from(4 * half);
            for (width, data) in [(8, u64::from(DATA)), (4, 0)] {
                fill();
                let old = read_w(at) & ALL;
                let mut want = mail();
                let new = old & !written(keep) | data & written(keep);
                let word = &mut want[half as usize / 2];
                let shift = 32 * (half % 2);
                *word = *word & !(ALL << shift) | new << shift;
                match width {
                    8 => write_d(MAIL_SEND.into(), send),
                    _ => write_w(MAIL_SEND.into(), send),
                }
                equal("half", read_w(at) & ALL, new)?;
                equal("the others", u64::from(mail() == want), 1)?;
            }
        }
    }
    // The blocking bit and the fields that nothing is said of don't matter.
    fill();
    write_d(
        MAIL_SEND.into(),
        mail_send(my_id(), 0, 7) | 1 << 31 | 3 | 0x7ff << 5,
    );
    equal("with other bits", read_w(MAIL), 7)
}

/// ANY_SEND to any register of its own, with and without a mask.
fn any_sends() -> Outcome {
    let send = |offset, data, keep: u64| {
        write_d(
            ANY_SEND.into(),
            any_send(my_id(), offset, data) | keep << 27,
        );
    };
    csrwr!(ECFG, 0);
    write_w(CLEAR, ALL);
    write_w(IPI_ENABLE.into(), 0);
    send(IPI_SET, 0xa5a5_a5a5, 0b1010);
    equal("set, two bytes", read_w(STATUS), 0x00a5_00a5)?;
    send(IPI_CLEAR, 0xffff_ffff, 0b1110);
    equal("clear, one byte", read_w(STATUS), 0x00a5_0000)?;
    send(IPI_STATUS, 0, 0);
    equal("status is only read", read_w(STATUS), 0x00a5_0000)?;
    send(IPI_ENABLE, 0x0080_0000, 0);
    equal("enable", read_w(IPI_ENABLE.into()), 0x0080_0000)?;
    ensure(
        "the line follows",
        csrrd!(ESTAT) & Interrupt::IPI.bit() != 0,
    )?;
    send(IPI_ENABLE, 0, 0b1011);
    ensure("and drops", csrrd!(ESTAT) & Interrupt::IPI.bit() == 0)?;
    fill();
    send(MAILBOX + 20, 0x0102_0304, 0b0001);
    equal(
        "mailbox",
        read_w(MAIL + 20) & ALL,
        0x0102_0300 | (FIRST_BYTE + 20),
    )?;
    // 32 bits of it have no data; what no vCPU has and no register is nothing.
    write_w(ANY_SEND.into(), any_send(my_id(), MAILBOX, 7));
    equal("without data", read_w(MAIL), 0)?;
    for offset in [
        0, FEATURES, MISC_FUNC, 0x101f, 0x1044, 0x1150, 0x1fff, 0xfffc, 0xffff,
    ] {
        send(offset, 0xffff_ffff, 0);
    }
    write_w(CLEAR, ALL);
    write_w(IPI_ENABLE.into(), ALL);
    equal("nothing is left", read_w(STATUS), 0)
}

/// Several vectors at once: each is cleared by its own bit, and the line
/// stays until the last of those that are enabled.
fn several() -> Outcome {
    let line = || csrrd!(ESTAT) & Interrupt::IPI.bit() != 0;
    csrwr!(ECFG, 0);
    write_w(CLEAR, ALL);
    write_w(IPI_ENABLE.into(), 0x7fff_ffff);
    write_w(SET, ALL);
    equal("all", read_w(STATUS), u64::MAX)?;
    write_w(CLEAR, 0x8000_0101);
    equal("three less", read_w(STATUS), 0x7fff_fefe)?;
    ensure("line up", line())?;
    write_h(CLEAR, 0xfefe);
    equal("by a half", read_w(STATUS), 0x7fff_0000)?;
    write_b(CLEAR + 3, 0xff);
    equal("by a byte", read_w(STATUS), 0x00ff_0000)?;
    ensure("line still up", line())?;
    // SET and CLEAR are neighbours: 64 bits reach both, low half first.
    write_d(SET, 0x00ff_0000 << 32 | 0x8000_0000);
    equal("both at once", read_w(STATUS), 0xffff_ffff_8000_0000)?;
    ensure("line down: vector 31 isn't enabled", !line())?;
    equal("SET reads 0", read_w(SET), 0)?;
    equal("CLEAR reads 0", read_d(CLEAR), 0)?;
    write_w(STATUS, 0);
    equal("STATUS is only read", read_w(STATUS), 0xffff_ffff_8000_0000)?;
    write_w(CLEAR, ALL);
    write_w(IPI_ENABLE.into(), ALL);
    equal("none", read_w(STATUS), 0)
}

/// A send of one byte has a byte of value; and the fields of IPI_SEND that
/// nothing is said of don't matter.
fn narrow_sends() -> Outcome {
    let (id, send) = (u64::from(my_id()), IPI_SEND.into());
    csrwr!(ECFG, 0);
    write_w(CLEAR, ALL);
    let to_me = u64::from(ipi_send(my_id(), 6));
    write_w(send, to_me | 0x7c00_ffe0 | ALL << 32);
    equal("vector 6", read_w(STATUS), 1 << 6)?;
    write_w(CLEAR, ALL);
    // The byte names vector 5 of the vCPU with id 0, whatever is above it.
    write_b(send, ipi_send(1023, 5).into());
    equal(
        "by a byte",
        read_w(STATUS),
        if id == 0 { 1 << 5 } else { 0 },
    )?;
    for at in [send + 1, send + 2, send + 3, send + 4] {
        write_b(at, to_me);
        write_h(at, to_me);
        write_w(at, to_me);
    }
    equal(
        "beside it",
        read_w(STATUS),
        if id == 0 { 1 << 5 } else { 0 },
    )?;
    write_w(CLEAR, ALL);
    Ok(())
}

/// Every offset of the windows and around them answers at every width, and
/// says the same byte by byte; what isn't aligned is defined.
fn offsets() -> Outcome {
    let windows = [
        (0, 0x1000),
        (0x1000, 0x1180),
        (0x13f0, 0x1d20),
        (0x3fff_fff0, 0x4000_0020),
    ];
    for (start, end) in windows {
        for at in start..end {
            let byte = read_b(at);
            let whole = read_d(at & !7) >> (8 * (at & 7));
            equal("byte of a double", byte & 0xff, whole & 0xff)?;
            equal("its sign", byte, ((byte as i8) as i64).cast_unsigned())?;
            for value in [read_h(at), read_w(at), read_d(at)] {
                core::hint::black_box(value);
            }
        }
    }
    for at in [
        0xffff_ffff,
        0xffff_fff8,
        u64::MAX,
        0x8000_0000,
        0x7fff_ffff,
        0x4000_0008,
    ] {
        equal("nowhere", read_b(at) | read_d(at), 0)?;
        write_b(at, u64::MAX);
        write_d(at, u64::MAX);
    }
    equal(
        "of the offset the low half counts",
        read_d(1 << 32 | 0x10),
        read_d(VENDOR.into()),
    )?;
    // Names and features are only read.
    let names = || [FEATURES, VENDOR, CPU_NAME, 0].map(|at| read_d(at.into()));
    let before = names();
    for at in (0..0x400).chain(0x430..0x1000) {
        write_d(at, u64::MAX);
        write_b(at, 0);
    }
    ensure("constants", names() == before)?;
    // The last bytes of a window: what is beyond isn't reached.
    let last = u64::from(EIOINTC_CORE_MAP) + 0xff;
    write_b(last, 0);
    write_d(last, u64::MAX - 0xff);
    equal("the last route", read_b(last), 0)?;
    write_w(u64::from(EIOINTC_BOUNCE) - 1, 0);
    Ok(())
}

/// What isn't offered doesn't exist in any register: direct messages (AVEC),
/// frequency, temperature, dynamic frequency.
fn offered() -> Outcome {
    // Node count, MSI, EXTIOI, CSRIPI, VM.
    equal("features", read_d(FEATURES.into()), 0x81e)?;
    let functions = u64::from(MISC_FUNC);
    let before = read_d(functions);
    write_d(functions, u64::MAX);
    let after = read_d(functions);
    write_d(functions, before);
    equal("only two functions", after & !(3 << 48), 0)?;
    equal("as before", read_d(functions), before)?;
    equal("MSG_INT", cpucfg(1) >> 26, 0)?;
    // The registers that message interrupts would have: nobody's.
    for register in [csrrd!(IPR), csrrd!(isr(0)), csrrd!(isr(3))] {
        equal("IPR and ISR", register, 0)?;
    }
    Ok(())
}
