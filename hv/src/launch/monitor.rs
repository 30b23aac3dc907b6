//! The user at the keyboard: input for a VM, or the monitor's commands.
//!
//! One CPU does all of this, the one that the console's interrupt comes to,
//! between two stays in a guest and never on the way out of one.

use super::{Guest, State, account, guests};
use crate::arch::cpu;
use crate::console::command::{self, Change, Command};
use crate::console::keys::{self, Act, Keys};
use crate::console::screen::{Focus, Screen};
use crate::console::{self, print, with_screen};
use crate::dev::uart::Sink;
use crate::heap;
use crate::platform::power;
use crate::stats::Stats;
use crate::vcpu::StopReason;
use crate::vcpu::steal::nanoseconds;
use crate::vm::{Notifier, VcpuShared, Vm};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use guest_pv::abi::vendor::ExitReason;
use spin::Mutex;

/// The keyboard's state.
static KEYS: Mutex<Keys> = Mutex::new(Keys::new());

/// Number of the VM that gets input while all are shown.
static SELECTED: AtomicUsize = AtomicUsize::new(0);

/// The last byte of input was lost.
static LOSING: AtomicBool = AtomicBool::new(false);

/// What the monitor shows before a command.
const PROMPT: &str = "loongvisor> ";

/// The VM whose output comes first when there is room for some again.
static FIRST: AtomicUsize = AtomicUsize::new(0);

/// Does what the console's interrupt is for, until it has gone.
pub fn serve(notifier: &impl Notifier) {
    while console::interrupts() {
        input(notifier);
        output(notifier);
    }
}

/// Prints what VMs have printed and had to wait, each in turn, and lets those
/// go on that can.
fn output(notifier: &impl Notifier) {
    with_screen(Screen::drain);
    let guests = guests();
    let first = FIRST.fetch_add(1, Ordering::Relaxed) % guests.len().max(1);
    let (before, after) = guests.split_at(first);
    for guest in after.iter().chain(before) {
        guest.port.pump();
        if guest.port.is_ready() {
            guest.with_vm(|vm| vm.go_on_printing(notifier));
        }
    }
}

/// Takes all that the console has received.
fn input(notifier: &impl Notifier) {
    let mut keys = KEYS.lock();
    while let Some(byte) = console::receive() {
        act(keys.press(byte, console::focus()), notifier);
    }
}

fn act(act: Act<'_>, notifier: &impl Notifier) {
    match act {
        Act::Nothing => {}
        Act::Guest(byte) => give(byte, notifier),
        Act::Help => keys::HELP
            .iter()
            .for_each(|line| print(format_args!("{line}"))),
        Act::Next => show((SELECTED.load(Ordering::Relaxed) + 1) % guests().len().max(1)),
        Act::Vm(number) => show(number),
        Act::Lines | Act::Leave => lines(),
        Act::Monitor => monitor(),
        Act::Off => off(),
        Act::Echo(byte) => {
            with_screen(|screen| screen.typed(byte));
        }
        Act::Erase => {
            with_screen(Screen::erased);
        }
        Act::Line(line) => {
            with_screen(Screen::asked);
            match Command::parse(line) {
                Ok(command) => run(command, notifier),
                Err(why) => print(format_args!("{why}")),
            }
            prompt();
        }
    }
}

/// A byte for the VM that gets input. It is lost where the VM has no room
/// for it, and the user is told, once for all that is lost in a row.
fn give(byte: u8, notifier: &impl Notifier) {
    let Some(guest) = guests().get(SELECTED.load(Ordering::Relaxed)) else {
        return;
    };
    let taken = guest.with_vm(|vm| vm.receive(byte, notifier));
    let lost = taken == Some(false);
    if lost && !LOSING.load(Ordering::Relaxed) {
        print(format_args!(
            "[{} doesn't read: input is lost]",
            guest.config.name
        ));
    }
    LOSING.store(lost, Ordering::Relaxed);
}

fn show(number: usize) {
    if let Some(guest) = guests().get(number) {
        SELECTED.store(number, Ordering::Relaxed);
        with_screen(|screen| screen.show(Focus::Vm(number)));
        print(format_args!("[{}: Ctrl-A h helps]", guest.config.name));
        guest.port.show();
    }
}

/// Shows every VM line by line, with what they have printed meanwhile.
fn lines() {
    with_screen(|screen| screen.show(Focus::Lines));
    guests().iter().for_each(|guest| guest.port.pump());
    if let Some(guest) = guests().get(SELECTED.load(Ordering::Relaxed)) {
        print(format_args!(
            "[every VM; input goes to {}]",
            guest.config.name
        ));
    }
}

fn monitor() {
    with_screen(|screen| screen.show(Focus::Monitor));
    prompt();
}

fn off() -> ! {
    log::info!("switching off, as the user wants");
    power::off()
}

fn prompt() {
    if console::focus() == Focus::Monitor {
        with_screen(|screen| screen.ask(PROMPT));
    }
}

fn run(command: Command<'_>, notifier: &impl Notifier) {
    match command {
        Command::Nothing => {}
        Command::Help => command::HELP
            .iter()
            .for_each(|line| print(format_args!("{line}"))),
        Command::List => (0..)
            .zip(guests())
            .for_each(|(number, guest)| list(number, guest)),
        Command::Vcpus(None) => guests().iter().for_each(vcpus),
        Command::Vcpus(Some(name)) => with_guest(name, |_, guest| vcpus(guest)),
        Command::Stats(name) => with_guest(name, |_, guest| stats(guest)),
        Command::Memory => memory(),
        Command::Change(what, name) => with_guest(name, |_, guest| {
            if let Err(why) = change(guest, what, notifier) {
                print(format_args!("{}: {why}", guest.config.name));
            }
        }),
        Command::Move { vm, vcpu, cpu } => with_guest(vm, |_, guest| {
            let moved = guest.with_vm(|vm| vm.move_vcpu(vcpu, cpu, notifier));
            if let Some(Err(why)) = moved {
                print(format_args!("{}: {why}", guest.config.name));
            } else if moved.is_none() {
                print(format_args!("{} doesn't run", guest.config.name));
            }
        }),
        Command::Go(name) => with_guest(name, |number, _| show(number)),
        Command::Lines => lines(),
        Command::Off => off(),
    }
}

/// The guest of this number or name.
fn with_guest(name: &str, with: impl FnOnce(usize, &'static Guest)) {
    let by_number = name.parse().ok().filter(|number| *number < guests().len());
    let by_name = || guests().iter().position(|guest| guest.config.name == name);
    let number = by_number.or_else(by_name);
    match number.and_then(|number| Some((number, guests().get(number)?))) {
        Some((number, guest)) => with(number, guest),
        None => print(format_args!("no VM {name}; `list` shows them")),
    }
}

fn list(number: usize, guest: &Guest) {
    let state = match &*guest.state.lock() {
        State::Starting => "starting",
        State::Running(vm) if vm.paused() => "paused",
        State::Running(_) => "running",
        State::Ending => "ending",
        State::Ended => "ended",
        State::Held => "stopped",
    };
    let exits = |vm: &Vm| vm.vcpus().iter().map(|vcpu| all_exits(&vcpu.stats)).sum();
    let exits: u64 = guest.with_vm(exits).unwrap_or(0);
    let (name, count) = (&guest.config.name, guest.config.ids.len());
    let mib = guest.config.memory >> 20;
    print(format_args!(
        "{number:2} {name:16} {state:8} {count:3} vCPUs {mib:6} MiB {exits:12} exits"
    ));
}

/// Prints what `lines` says of the guest's VM: once the state is free again,
/// which a vCPU of any VM may need to end, and the terminal is slow.
fn tell(guest: &Guest, lines: impl FnOnce(&Vm) -> Vec<String>) {
    match guest.with_vm(lines) {
        Some(lines) => lines.iter().for_each(|line| print(format_args!("{line}"))),
        None => print(format_args!("{} doesn't run", guest.config.name)),
    }
}

/// How a VM has fared so far.
fn stats(guest: &Guest) {
    tell(guest, account::of);
}

fn memory() {
    let (free, heap) = (super::free_memory(), heap::in_use());
    print(format_args!(
        "{free} bytes of RAM free, {heap} bytes of heap in use"
    ));
}

fn all_exits(stats: &Stats) -> u64 {
    ExitReason::ALL
        .into_iter()
        .map(|reason| stats.exits(reason))
        .sum()
}

fn vcpus(guest: &Guest) {
    let name = &guest.config.name;
    tell(guest, |vm| {
        let age = format!("{name} was made {} ms ago", account::age_ms(vm));
        let vcpus = vm.vcpus().iter().map(|vcpu| vcpu_line(name, vcpu));
        [age].into_iter().chain(vcpus).collect()
    });
}

fn vcpu_line(name: &str, vcpu: &VcpuShared) -> String {
    let state = if vcpu.postbox.in_guest() {
        "in guest"
    } else if vcpu.postbox.asleep() {
        "asleep"
    } else {
        "waiting"
    };
    let mut exits = String::new();
    for reason in ExitReason::ALL {
        let count = vcpu.stats.exits(reason);
        if count > 0 {
            exits += &format!(" {} {count}", reason.name());
        }
    }
    let (id, all, home) = (vcpu.id, all_exits(&vcpu.stats), vcpu.placement.home());
    // In microseconds, shown as milliseconds.
    let stolen = nanoseconds(vcpu.stats.stolen.get(), cpu::ticks_per_second()) / 1000;
    let (ms, us) = (stolen / 1000, stolen % 1000);
    format!("{name} vCPU {id} on CPU {home}, {state}: {all} exits:{exits}; {ms}.{us:03} ms stolen")
}

fn change(
    guest: &'static Guest,
    what: Change,
    notifier: &impl Notifier,
) -> Result<(), &'static str> {
    let runs = match what {
        Change::Start => return start(guest),
        Change::Stop => guest.stop(StopReason::Stopped, notifier),
        Change::Reset => guest.stop(StopReason::Restarted, notifier),
        Change::Pause => guest.with_vm(|vm| vm.pause(true, notifier)).is_some(),
        Change::Resume => guest.with_vm(|vm| vm.pause(false, notifier)).is_some(),
    };
    runs.then_some(()).ok_or("it doesn't run")
}

fn start(guest: &'static Guest) -> Result<(), &'static str> {
    {
        let mut state = guest.state.lock();
        match &*state {
            State::Ended | State::Held => *state = State::Starting,
            State::Starting | State::Running(_) => return Err("it runs already"),
            State::Ending => return Err("it is still ending"),
        }
    }
    guest.start(0);
    Ok(())
}
