//! The end: the hypervisor can't go on, and says all it knows.
//!
//! One CPU dumps; the others are told to halt, and the machine stops.

use crate::arch::trap::{self, Frame};
use crate::arch::{boot, cpu};
use crate::console;
use crate::isa::csr_read;
use crate::isa::exception::Ecode;
use crate::platform::ipi::{self, Vector};
use crate::platform::power;
use crate::start::machine_cpus;
use core::fmt;
use core::panic::PanicInfo;
use core::sync::atomic::{AtomicBool, Ordering};

/// Words of the stack that are searched for return addresses.
const STACK_WORDS: u64 = 512;
/// Callers that are printed.
const CALLERS: usize = 24;
/// Names of the general registers, r0 first.
const NAMES: [&str; 32] = [
    "zero", "ra", "tp", "sp", "a0", "a1", "a2", "a3", "a4", "a5", "a6", "a7", "t0", "t1", "t2",
    "t3", "t4", "t5", "t6", "t7", "t8", "r21", "fp", "s0", "s1", "s2", "s3", "s4", "s5", "s6",
    "s7", "s8",
];

static DYING: AtomicBool = AtomicBool::new(false);

/// Stops the other CPUs and takes the console; a second CPU that comes here
/// just halts.
fn begin() {
    if DYING.swap(true, Ordering::SeqCst) {
        trap::halt();
    }
    for other in machine_cpus() {
        if other.id != cpu::id() {
            ipi::send(other.id, Vector::Halt);
        }
    }
    cpu::delay(cpu::ticks_per_second() / 100);
    // SAFETY: the others have had time to halt; if one prints on, the dump
    // matters more.
    unsafe { console::seize() };
}

fn say(text: fmt::Arguments<'_>) {
    console::print(format_args!("[hv FATAL] {text}"));
}

/// Dumps what is known of an exception of the hypervisor, and stops.
pub fn exception(kind: &str, frame: &Frame, estat: u64, address: u64) -> ! {
    begin();
    say(format_args!(
        "{kind} of the hypervisor on CPU {}",
        cpu::id()
    ));
    let (ecode, esubcode) = (estat >> 16 & 0x3f, estat >> 22 & 0x1ff);
    match Ecode::of_estat(estat) {
        Some(name) => say(format_args!(
            "cause {name:?} ({ecode:#x}, sub-code {esubcode})"
        )),
        None => say(format_args!("cause {ecode:#x}, sub-code {esubcode}")),
    }
    // TLBRERA keeps a flag in bit 0.
    let (pc, badi) = (frame.pc & !3, csr_read!(BADI) as u32);
    say(format_args!(
        "pc {pc:#018x}  badv {address:#018x}  badi {badi:#010x}"
    ));
    say(format_args!(
        "estat {estat:#x} (lines {:#06x})  ecfg {:#x}  crmd {:#x}  prmd {:#x}  gstat {:#x}",
        estat & 0x1fff,
        csr_read!(ECFG),
        csr_read!(CRMD),
        csr_read!(PRMD),
        csr_read!(GSTAT)
    ));
    for (names, values) in NAMES.chunks(4).zip(frame.gprs.chunks(4)) {
        if let ([a, b, c, d], [va, vb, vc, vd]) = (names, values) {
            say(format_args!(
                "{a:>4} {va:016x}  {b:>4} {vb:016x}  {c:>4} {vc:016x}  {d:>4} {vd:016x}"
            ));
        }
    }
    say(format_args!(
        "image at {:#x}, linked at {:#x}",
        boot::image().0,
        boot::LINKED_AT
    ));
    let [_, ra, _, sp, ..] = frame.gprs;
    callers(sp, &[ra]);
    stop()
}

/// Prints whatever in `registers`, and then on the stack from `sp` on, is an
/// address that a call would have left there.
fn callers(sp: u64, registers: &[u64]) {
    let on_stack = (0..STACK_WORDS).map(|index| {
        let at = sp.wrapping_add(8 * index) as *const u64;
        // SAFETY: the stack grew down to `sp` from at least that many words
        // above, or the words read are other RAM of the hypervisor.
        unsafe { at.read() }
    });
    let words = registers.iter().copied().chain(on_stack);
    let calls = words.filter(|&word| trap::caller_word(word).is_some_and(is_call));
    for address in calls.take(CALLERS) {
        say(format_args!("   called from {:#018x}", address - 4));
    }
}

/// Whether an instruction word is `bl`, or `jirl` with ra.
fn is_call(word: u32) -> bool {
    word >> 26 == 0x15 || (word >> 26 == 0x13 && word & 0x1f == 1)
}

fn stop() -> ! {
    say(format_args!("the machine stops"));
    power::off()
}

#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    crate::efi::give_up(info);
    begin();
    say(format_args!("{info}"));
    callers(trap::stack_pointer(), &[]);
    stop()
}
