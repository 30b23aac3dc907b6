//! Guests that do the worst they can, for ever: the hypervisor and the other
//! VMs must not notice.
//!
//! `kind=` names what: a program of zeros, of all ones or of random words,
//! whose exceptions end in that program again; random words of which each has
//! its turn; a storm of exceptions made by the hypervisor; random hypercalls
//! and IOCSR accesses; random accesses to the devices; its memory coming and
//! going at random; interrupts off in a loop. `seed=` makes another one of the
//! random kinds. `limit=` ends the calls after so many accesses, the words
//! after so many programs.

mod words;

use crate::runtime::call::{hvcl, stop};
use crate::runtime::cmdline::Options;
use crate::runtime::devices::{self, UART};
use crate::runtime::random::Random;
use crate::runtime::trap::catch;
use crate::runtime::{iocsr, memory};
use crate::{csrwr, println};
use core::arch::asm;
use guest_pv::abi::hypercall::NOTIFY;
use guest_pv::abi::steal::ADDRESS_RESERVED;
use guest_pv::abi::vendor;

/// Where the programs stand: 32 MiB, above the guest's own image.
const PROGRAM: u64 = 0x200_0000;
/// Words of a program.
const WORDS: u64 = 1 << 16;

/// Does what the command line asks for. Doesn't return.
pub fn run(options: &Options) -> ! {
    let mut random = Random::new(options.number("seed", 1));
    println!("evil: {}", options.text("kind"));
    match options.text("kind") {
        "zeros" => program(|| 0),
        "ones" => program(|| u32::MAX),
        "random" => program(|| random.next() as u32),
        "words" => words::run(random, options.number("limit", u64::MAX)),
        "storm" => storm(),
        "calls" => calls(&mut random, options.number("limit", 0)),
        "devices" => devices(&mut random),
        "memory" => memory_calls(&mut random),
        _ => spin(),
    }
}

/// Jumps into a program; its exceptions begin it again.
fn program(mut word: impl FnMut() -> u32) -> ! {
    let start: *mut u32 = memory(PROGRAM);
    for index in 0..WORDS as usize {
        // SAFETY: RAM of the guest that nothing else uses.
        unsafe { start.add(index).write_volatile(word()) };
    }
    csrwr!(EENTRY, start as u64);
    csrwr!(TLBRENTRY, PROGRAM);
    csrwr!(MERRENTRY, PROGRAM);
    // SAFETY: the guest is given up.
    unsafe { asm!("ibar 0", "jr {}", in(reg) start, options(noreturn)) }
}

/// Each exit makes an exception, whose handler makes the next exit.
fn storm() -> ! {
    // SAFETY: the guest is given up.
    unsafe {
        asm!(
            "la.pcrel $t0, 1f",
            "csrwr $t0, 0xc",
            "li.d $t1, 0x8000000030000000",
            "b 1f",
            ".balign 4096",
            "1: ld.d $t2, $t1, 0",
            "b 1b",
            options(noreturn)
        )
    }
}

/// Accesses of one round of [`calls`].
const ACCESSES: u64 = 8;

/// Random calls, IOCSR accesses and reads of CPUCFG, `limit` of them, or for
/// ever if that is 0.
fn calls(random: &mut Random, limit: u64) -> ! {
    let mut made = 0;
    while limit == 0 || made < limit {
        let function = match random.below(4) {
            0 => random.any(),
            1 => vendor::FIRST + random.below(16),
            _ => random.below(4),
        };
        let [a1, mut a2, a3] = [random.any(), random.any(), random.any()];
        if function == NOTIFY {
            // A record of stolen time may be written to: not into our code.
            a2 = match random.below(2) {
                0 => PROGRAM + random.below(1 << 20),
                _ => a2 | ADDRESS_RESERVED,
            };
        }
        if function != vendor::STOP {
            hvcl::<0x100>([function, a1, a2, a3]);
        }
        hvcl::<0x1ff>([random.any(), 0, 0, 0]);
        let offset = match random.below(3) {
            0 => random.any(),
            _ => 0x1000 + random.below(0x200),
        };
        iocsr::write_b(offset, random.any());
        iocsr::write_h(offset, random.any());
        iocsr::write_w(offset, random.any());
        iocsr::write_d(offset, random.any());
        iocsr::read_d(offset);
        crate::runtime::cpucfg(random.any());
        made += ACCESSES;
    }
    println!("evil: {made} accesses");
    stop(0)
}

/// Where the devices are: first address and bytes. The power controller is
/// left out, and so is what would be printed.
const DEVICES: [(u64, u64); 5] = [
    (0x1000_0000, 0x1008),
    (UART + 1, 0x100),
    (0x100d_0100, 0x100),
    (0x2ff0_0000, 16),
    (0x1800_4000, 0xc000),
];

fn devices(random: &mut Random) -> ! {
    loop {
        let (base, bytes) = DEVICES[random.next() as usize % DEVICES.len()];
        let at = base + random.next() % bytes;
        let value = random.any();
        let aligned = |bytes: u64| (at & !(bytes - 1)).max(base);
        // What crosses a device's end is an exception.
        catch(|| match value >> 8 & 7 {
            0 => devices::write8(at, value as u8),
            1 => devices::write16(aligned(2), value as u16),
            2 => devices::write32(aligned(4), value as u32),
            3 => devices::write64(aligned(8), value),
            4 => _ = devices::read8(at),
            5 => _ = devices::read16(aligned(2)),
            6 => _ = devices::read32(aligned(4)),
            _ => _ = devices::read64(aligned(8)),
        });
        let offset = match random.next() % 4 {
            0 => 0x4000_0000 + random.next() % 16,
            1 => 0x1158,
            _ => 0x1400 + random.next() % 0x900,
        };
        // The widths are random, too: ANY_SEND takes 64 bits.
        match random.next() % 3 {
            0 => iocsr::write_b(offset, value),
            1 => iocsr::write_w(offset, value),
            _ => iocsr::write_d(offset, value),
        }
        iocsr::read_d(offset);
    }
}

/// Random changes of its own memory and moves of its vCPU, from the second
/// 32 MiB of RAM on, with accesses to it.
fn memory_calls(random: &mut Random) -> ! {
    loop {
        let page = random.below(1 << 12) << 14;
        let address = PROGRAM
            + page
            + if random.below(8) == 0 {
                random.any()
            } else {
                0
            };
        let bytes = match random.below(4) {
            0 => random.any(),
            1 => 32 << 20,
            _ => random.below(16) << 14,
        };
        let function = vendor::MEMORY_RELEASE + random.below(4);
        let [id, place] = [random.below(2), random.below(4)];
        let arguments = match function {
            vendor::MOVE_VCPU => [id, place, 0],
            _ => [address, bytes, random.below(5)],
        };
        // Low memory is where this program is.
        if function == vendor::MOVE_VCPU || arguments[0] >= PROGRAM {
            hvcl::<0x100>([function, arguments[0], arguments[1], arguments[2]]);
        }
        // SAFETY: RAM that nothing else uses; an exception is caught.
        catch(|| unsafe { memory::<u64>(PROGRAM + page).write_volatile(page) });
    }
}

/// Interrupts are off, and it never gives its CPU back.
fn spin() -> ! {
    loop {
        core::hint::spin_loop();
    }
}
