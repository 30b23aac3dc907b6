//! From the first instruction in Rust to a machine that is known and awake.

mod memory;

use crate::arch::{boot, cpu, leftovers, lvz, trap, world_switch};
use crate::bundle::Bundle;
use crate::dev::irq_line::EiointcVector;
use crate::mm::addr::Hpa;
use crate::mm::frame::Range;
use crate::mm::phys::{Cached, cached, uncached};
use crate::mm::stage2::ROOT_SHIFT;
use crate::platform::board;
use crate::platform::efi::{self, Tables};
use crate::platform::machine::{Console, Cpu, DEFAULT_UART, Machine};
use crate::platform::uart::Uart;
use crate::platform::{eiointc, ipi, pch_pic, power, rtc, secondary};
use crate::processor::{Mailbox, Processor};
use crate::vm::Notifier;
use crate::{command_line, console, heap, launch, seed};
use alloc::string::String;
use alloc::vec::Vec;
use core::ffi::{CStr, c_char};
use core::fmt;
use core::sync::atomic::{Ordering, fence};
use spin::Once;

static CPUS: Once<Vec<Cpu>> = Once::new();

static CONSOLE_VECTOR: Once<EiointcVector> = Once::new();

/// The CPU that serves the console.
static CONSOLE_CPU: Once<u32> = Once::new();

/// How often it looks, where no interrupt comes: a FIFO of 16 bytes fills in
/// 1.4 ms at 115200 baud, but nobody types as fast.
const POLLS_PER_SECOND: u64 = 100;

static MAILBOXES: Once<Vec<Mailbox>> = Once::new();

/// The mailbox of the CPU with physical id `id`.
pub fn mailbox(id: u32) -> Option<&'static Mailbox> {
    let mut all = MAILBOXES.get()?.iter();
    all.find(|mailbox| mailbox.id() == id)
}

/// The machine's CPUs; empty before they are known.
pub fn machine_cpus() -> &'static [Cpu] {
    CPUS.get().map_or(&[], Vec::as_slice)
}

/// The node of the CPU with this physical id.
pub fn node_of(id: u32) -> u32 {
    let cpu = machine_cpus().iter().find(|cpu| cpu.id == id);
    cpu.map_or(0, |cpu| cpu.node)
}

/// The machine can't be used: says why, in one line, and switches it off.
fn refuse(why: impl fmt::Display) -> ! {
    log::error!("{why}");
    power::off()
}

/// The first CPU arrives here, with what the loader left in a0 to a2.
pub extern "C" fn first_cpu(has_arguments: u64, command_line: u64, system_table: u64) -> ! {
    leftovers::forget();
    heap::set_up();
    open_console(DEFAULT_UART, log::LevelFilter::Info);
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
    log::debug!("the image is at {:#x}", boot::image().0);
    if let Err(wrong) = board::check(&command_line, board::this()) {
        refuse(wrong)
    }
    let (machine, tables) = read_machine(Hpa::new(system_table));
    set_up_devices(&machine, &tables);
    memory::set_up(&machine, &tables);
    seed::set_up(&[&machine.seed, &tables.seed], cpu::ticks());
    let missing = wake_cpus(&machine);
    if missing.is_empty() {
        memory::add_left(&machine, &tables);
    }
    crash_if_asked(&command_line);
    let gid_bits = lvz::probe().unwrap_or_else(|missing| refuse(missing));
    let mailboxes = let_cpus_work(&missing);
    set_up_input(&machine, &command_line);
    start_guests(tables.initrd, mailboxes, lines_only(&command_line));
    work(mailboxes, gid_bits)
}

/// Prints log lines up to `level` on the UART at `at` from here on.
fn open_console(at: u64, level: log::LevelFilter) {
    // SAFETY: the console's registers are nobody else's.
    console::set_up(unsafe { Uart::new(uncached(Hpa::new(at))) }, level);
}

/// What firmware says of the machine.
fn read_machine(system_table: Hpa) -> (Machine, Tables) {
    // SAFETY: until frames are given out it reads firmware's tables only.
    let memory = unsafe { Cached::new() };
    let Some(tables) = efi::read(&memory, system_table) else {
        refuse("no EFI system table in a2: this loader can't be used")
    };
    let Some(machine) = Machine::read(&memory, &tables) else {
        refuse("no device tree and no ACPI tables in the EFI system table")
    };
    (machine, tables)
}

/// Uses the machine's own console, clock and power switch.
fn set_up_devices(machine: &Machine, tables: &Tables) {
    // The one in use already keeps what it has received.
    if let Console::At(at) = machine.console
        && at != DEFAULT_UART
    {
        open_console(at, log::max_level());
    }
    if let Some(at) = machine.rtc {
        // SAFETY: the device tree says what is there; guests can't reach it.
        unsafe { rtc::set_up(Hpa::new(at)) };
    }
    if let Some(moment) = tables.moment {
        rtc::set_moment(moment);
    }
    for Range { start, end } in &machine.ecam {
        log::info!("PCI configuration space at {start:#x} to {end:#x}, left alone");
    }
    match machine.power_off {
        Some(power_off) => power::set(power_off),
        None => log::warn!("nobody says how this machine is switched off: it will stop instead"),
    }
}

/// Lets all CPUs work but those in `missing`, which haven't started; the
/// mailboxes of those that do.
fn let_cpus_work(missing: &[u32]) -> &'static [Mailbox] {
    let ids = machine_cpus().iter().map(|cpu| cpu.id);
    let there = ids.filter(|id| !missing.contains(id));
    let mailboxes = MAILBOXES.call_once(|| there.map(Mailbox::new).collect());
    // They are there before anyone is told: who finds none sleeps on.
    fence(Ordering::SeqCst);
    for mailbox in mailboxes.iter().filter(|mailbox| mailbox.id() != cpu::id()) {
        ipi::send(mailbox.id(), ipi::Vector::Wake);
    }
    mailboxes
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

/// Lets this CPU take the console's interrupt. Where nobody says how that
/// comes, it looks at times instead: as on boards whose console is the
/// processor's own UART, which the legacy controller serves. `console=poll`
/// wants it so anyway.
fn set_up_input(machine: &Machine, command_line: &str) {
    eiointc::set_up();
    machine.pch_pics.iter().for_each(|&at| pch_pic::silence(at));
    if let Some(at) = machine.legacy_pic {
        pch_pic::silence_legacy(at);
    }
    let polled = command_line::values(command_line, "console").any(|how| how == "poll");
    CONSOLE_CPU.call_once(cpu::id);
    match machine.console_interrupt.filter(|_| !polled) {
        Some(route) => {
            eiointc::enable(route.vector, cpu::id());
            pch_pic::enable(&route);
            CONSOLE_VECTOR.call_once(|| route.vector);
            console::use_interrupt();
        }
        None => {
            log::info!("the console is polled");
            console::use_polling();
        }
    }
}

/// Whether the console is the CPU `id`'s to serve.
pub fn serves_console(id: u32) -> bool {
    CONSOLE_CPU.get() == Some(&id)
}

/// Ticks between two looks of the CPU `id` at the console; 0 where that isn't
/// its to do.
pub fn console_poll(id: u32) -> u64 {
    if serves_console(id) && CONSOLE_VECTOR.get().is_none() {
        cpu::ticks_per_second() / POLLS_PER_SECOND
    } else {
        0
    }
}

/// Does what the console's interrupt is for. It is acknowledged first: what
/// comes later raises it anew.
pub fn console_interrupt(notifier: &impl Notifier) {
    if let Some(&vector) = CONSOLE_VECTOR.get() {
        eiointc::acknowledge(vector);
    }
    launch::monitor::serve(notifier);
}

/// Whether the command line wants a single VM's output line by line too:
/// `console=lines`.
fn lines_only(command_line: &str) -> bool {
    command_line::values(command_line, "console").any(|how| how == "lines")
}

/// This CPU's work, for good.
fn work(mailboxes: &'static [Mailbox], gid_bits: u32) -> ! {
    lvz::set_up(cpu::physical_bits().saturating_sub(ROOT_SHIFT));
    let mailbox = mailboxes.iter().find(|mailbox| mailbox.id() == cpu::id());
    match mailbox.and_then(|mailbox| Processor::new(mailbox, gid_bits)) {
        Some(processor) => processor.work(),
        None => trap::halt(),
    }
}

/// Every other CPU arrives here.
pub extern "C" fn secondary_cpu(index: u64) -> ! {
    leftovers::forget();
    // Not once the console's vector may be there: some controllers are shared
    // by all CPUs, and this one may be late.
    if CONSOLE_VECTOR.get().is_none() {
        eiointc::silence();
    }
    trap::set_up();
    world_switch::set_up();
    ipi::set_up();
    secondary::arrived(index);
    loop {
        cpu::idle();
        if ipi::take() & ipi::Vector::Halt.bit() != 0 {
            trap::halt();
        }
        if let Some(mailboxes) = MAILBOXES.get() {
            // The first CPU has found nothing missing of its own.
            let gid_bits = lvz::probe()
                .unwrap_or_else(|missing| refuse(format_args!("CPU {}: {missing}", cpu::id())));
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

/// Starts every CPU of the machine but this one; the ids of those that
/// don't start.
fn wake_cpus(machine: &Machine) -> Vec<u32> {
    ipi::set_up();
    CPUS.call_once(|| machine.cpus.clone());
    let ids = machine.cpus.iter().map(|cpu| cpu.id);
    let missing = secondary::start(ids.filter(|&id| id != cpu::id()));
    for id in &missing {
        log::error!("CPU {id} doesn't start");
    }
    log::info!("{} CPUs", machine.cpus.len() - missing.len());
    missing
}

/// `crash=` on the command line shows what a fault of the hypervisor looks
/// like: `crash=break`, `crash=refill` or `crash=panic`.
fn crash_if_asked(command_line: &str) {
    match command_line::values(command_line, "crash").next() {
        None => {}
        Some("break") => trap::breakpoint(),
        Some("refill") => trap::read_unmapped(),
        Some(other) => panic!("crash={other} was asked for"),
    }
}
