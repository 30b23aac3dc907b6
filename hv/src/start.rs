//! From the first instruction in Rust to a machine that is known and awake.

use crate::arch::{boot, cpu, lvz, trap, world_switch};
use crate::bundle::Bundle;
use crate::dev::irq_line::EiointcVector;
use crate::mm::addr::{Hpa, PAGE_BYTES};
use crate::mm::frame::{Frames, Range, free_ranges};
use crate::mm::phys::{Cached, cached, uncached};
use crate::mm::stage2::ROOT_SHIFT;
use crate::platform::fdt::{self, Machine};
use crate::platform::uart::Uart;
use crate::platform::{efi, eiointc, ipi, pch_pic, power, rtc, secondary};
use crate::processor::{Mailbox, Processor};
use crate::vm::Notifier;
use crate::{console, heap, launch, seed};
use alloc::string::String;
use alloc::vec::Vec;
use core::ffi::{CStr, c_char};
use core::fmt;
use spin::{Mutex, Once};

/// The free frames of the machine.
pub static FRAMES: Mutex<Option<Frames>> = Mutex::new(None);

static CPUS: Once<Vec<u32>> = Once::new();

static CONSOLE_VECTOR: Once<EiointcVector> = Once::new();

static MAILBOXES: Once<Vec<Mailbox>> = Once::new();

/// Pages that the heap gets out of RAM: 16 MiB.
const HEAP_PAGES: u64 = (16 << 20) / PAGE_BYTES;
/// Largest device tree that is read.
const MAX_FDT_BYTES: usize = 1 << 20;

/// Physical ids of the machine's CPUs; empty before they are known.
pub fn machine_cpus() -> &'static [u32] {
    CPUS.get().map_or(&[], Vec::as_slice)
}

/// The machine can't be used: says why, in one line, and switches it off.
fn refuse(why: impl fmt::Display) -> ! {
    log::error!("{why}");
    power::off()
}

/// The first CPU arrives here, with what the loader left in a0 to a2.
pub extern "C" fn first_cpu(has_arguments: u64, command_line: u64, system_table: u64) -> ! {
    heap::set_up();
    // SAFETY: the console's registers are nobody else's.
    let uart = |at| unsafe { Uart::new(uncached(Hpa::new(at))) };
    console::set_up(uart(fdt::DEFAULT_UART), log::LevelFilter::Info);
    trap::set_up();
    world_switch::set_up();
    if has_arguments != 1 {
        refuse("a0 isn't 1: this loader can't be used")
    }
    let command_line = read_command_line(command_line);
    match console::level(&command_line) {
        Ok(level) => log::set_max_level(level),
        Err(name) => log::warn!("log={name}: no such level"),
    }
    // SAFETY: until frames are given out it reads firmware's tables only.
    let memory = unsafe { Cached::new() };
    let Some(tables) = efi::read(&memory, Hpa::new(system_table)) else {
        refuse("no EFI system table in a2: this loader can't be used")
    };
    let Some((machine, blob)) = tables.fdt.and_then(read_fdt) else {
        refuse("no device tree in the EFI system table")
    };
    if let Some(at) = machine.uart {
        console::set_up(uart(at), log::max_level());
    }
    if let Some(at) = machine.rtc {
        // SAFETY: the device tree says what is there; guests can't reach it.
        unsafe { rtc::set_up(Hpa::new(at)) };
    }
    if let Some(power_off) = machine.power_off {
        power::set(power_off);
    }
    set_up_memory(&machine, &tables, blob);
    seed::set_up(&[&machine.seed, &tables.seed], cpu::ticks());
    wake_cpus(&machine);
    crash_if_asked(&command_line);
    let gid_bits = lvz::probe().unwrap_or_else(|missing| refuse(missing));
    let mailboxes: Vec<Mailbox> = machine.cpus.iter().map(|&id| Mailbox::new(id)).collect();
    let mailboxes: &'static [Mailbox] = MAILBOXES.call_once(|| mailboxes);
    for mailbox in mailboxes.iter().filter(|mailbox| mailbox.id() != cpu::id()) {
        ipi::send(mailbox.id(), ipi::Vector::Wake);
    }
    set_up_input(&machine);
    start_guests(tables.initrd, mailboxes, lines_only(&command_line));
    work(mailboxes, gid_bits)
}

/// Starts the VMs of the bundle in `initrd`.
fn start_guests(initrd: Option<Range>, mailboxes: &'static [Mailbox], lines: bool) {
    let Some(initrd) = initrd else {
        refuse("no initrd, so no bundle of VMs to start")
    };
    let at = cached(Hpa::new(initrd.start));
    // SAFETY: the loader put the initrd there, and its RAM was kept out of
    // the frame allocator.
    let bytes = unsafe { core::slice::from_raw_parts(at, initrd.bytes() as usize) };
    match Bundle::read(bytes) {
        Ok(bundle) => launch::all(&bundle, mailboxes, lines),
        Err(error) => refuse(format_args!("the initrd: {error}")),
    }
}

/// Lets this CPU take the console's interrupt.
fn set_up_input(machine: &Machine) {
    let Some(route) = machine.uart_interrupt else {
        log::warn!("the console's interrupt isn't known: no input");
        return;
    };
    eiointc::set_up();
    eiointc::enable(route.vector, cpu::id());
    pch_pic::enable(&route);
    CONSOLE_VECTOR.call_once(|| route.vector);
    console::use_interrupt();
}

/// Does what the console's interrupt is for. It is acknowledged first: what
/// comes later raises it anew.
pub fn console_interrupt(notifier: &impl Notifier) {
    if let Some(&vector) = CONSOLE_VECTOR.get() {
        eiointc::acknowledge(vector);
        launch::monitor::serve(notifier);
    }
}

/// Whether the command line wants a single VM's output line by line too:
/// `console=lines`.
fn lines_only(command_line: &str) -> bool {
    let mut words = command_line.split_ascii_whitespace();
    words.any(|word| word == "console=lines")
}

/// This CPU's work, for good.
fn work(mailboxes: &'static [Mailbox], gid_bits: u32) -> ! {
    // PALEN, CPUCFG word 1: bits of a physical address, less one.
    let physical_bits = (cpu::cpucfg(1) >> 4 & 0xff) + 1;
    lvz::set_up(physical_bits.saturating_sub(ROOT_SHIFT));
    let mailbox = mailboxes.iter().find(|mailbox| mailbox.id() == cpu::id());
    match mailbox.and_then(|mailbox| Processor::new(mailbox, gid_bits)) {
        Some(processor) => processor.work(),
        None => trap::halt(),
    }
}

/// Every other CPU arrives here.
pub extern "C" fn secondary_cpu(index: u64) -> ! {
    trap::set_up();
    world_switch::set_up();
    ipi::set_up();
    secondary::arrived(index);
    loop {
        cpu::idle();
        if ipi::take() & ipi::Vector::Halt.bit() != 0 {
            trap::halt();
        }
        if let (Some(mailboxes), Ok(gid_bits)) = (MAILBOXES.get(), lvz::probe()) {
            work(mailboxes, gid_bits);
        }
    }
}

fn read_command_line(at: u64) -> String {
    // Address 0 is a good one: QEMU puts the text there.
    let text = cached(Hpa::new(at)).cast::<c_char>();
    // SAFETY: the loader left a string there, which nothing changes.
    let text = unsafe { CStr::from_ptr(text) };
    String::from_utf8_lossy(text.to_bytes()).into_owned()
}

/// The tree at `at`, and where it is.
fn read_fdt(at: Hpa) -> Option<(Machine, Range)> {
    // SAFETY: firmware says that there is a tree, and nothing changes it; its
    // header is read first, for its length.
    let header = unsafe { core::slice::from_raw_parts(cached(at), 8) };
    let [.., a, b, c, d] = *header else {
        return None;
    };
    let bytes = u32::from_be_bytes([a, b, c, d]) as usize;
    if bytes > MAX_FDT_BYTES {
        return None;
    }
    // SAFETY: as above, with that length.
    let blob = unsafe { core::slice::from_raw_parts(cached(at), bytes) };
    let range = Range::new(at.get(), at.get() + bytes as u64);
    fdt::read(blob).map(|machine| (machine, range))
}

/// Gives all RAM that nobody has taken to the frame allocator, and some of
/// it to the heap.
fn set_up_memory(machine: &Machine, tables: &efi::Tables, blob: Range) {
    let ram = if tables.ram.is_empty() {
        &machine.ram
    } else {
        &tables.ram
    };
    // Below the image lie the command line and firmware's tables.
    let mut taken = alloc::vec![Range::new(0, boot::image().1), blob];
    taken.extend(&machine.reserved);
    taken.extend(tables.initrd);
    let mut frames = Frames::new(&free_ranges(ram, &taken));
    let Some(block) = frames.take(HEAP_PAGES) else {
        refuse("less than 16 MiB of RAM in one piece")
    };
    // SAFETY: the allocator gave the block, and it is never given back.
    unsafe { heap::add(cached(block) as usize, (HEAP_PAGES * PAGE_BYTES) as usize) };
    log::info!("{} MiB of RAM free", (frames.free() * PAGE_BYTES) >> 20);
    *FRAMES.lock() = Some(frames);
}

/// Starts every CPU of the machine but this one.
fn wake_cpus(machine: &Machine) {
    ipi::set_up();
    CPUS.call_once(|| machine.cpus.clone());
    let others = machine.cpus.iter().filter(|&&id| id != cpu::id());
    let missing = secondary::start(others.copied());
    for id in &missing {
        log::error!("CPU {id} doesn't start");
    }
    log::info!("{} CPUs", machine.cpus.len() - missing.len());
}

/// `crash=` on the command line shows what a fault of the hypervisor looks
/// like: `crash=break`, `crash=refill` or `crash=panic`.
fn crash_if_asked(command_line: &str) {
    let mut words = command_line.split_ascii_whitespace();
    match words.find_map(|word| word.strip_prefix("crash=")) {
        None => {}
        Some("break") => trap::breakpoint(),
        Some("refill") => trap::read_unmapped(),
        Some(other) => panic!("crash={other} was asked for"),
    }
}
