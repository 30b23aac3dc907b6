//! From a bundle to VMs that run, and what becomes of them.
//!
//! Every configuration is checked against the machine before anything is
//! made; one that can't be met is refused by name, and the others start. A
//! VM that ends may start anew, with memory and devices as at first; when
//! none runs any more, the machine is switched off.
//!
//! Lock: a guest's state is never locked while another lock is held, nor
//! while a VM is made.

mod account;
mod make;
pub mod monitor;

use crate::arch::cpu;
use crate::boot::Files;
use crate::bundle::Bundle;
use crate::config::pace::Pace;
use crate::config::placement::place;
use crate::config::{Limits, VmConfig};
use crate::console::Port;
use crate::mm::addr::PAGE_BYTES;
use crate::mm::frame::FRAMES;
use crate::platform::power;
use crate::processor::Mailbox;
use crate::vcpu::{StopReason, Vcpu};
use crate::vm::{Notifier, Vm};
use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use spin::{Mutex, Once};

/// A VM of the bundle, whether it runs or not.
#[derive(Debug)]
struct Guest {
    config: VmConfig,
    files: Files<'static>,
    port: Arc<Port>,
    /// The CPUs that its vCPUs run on, in turn.
    homes: Vec<&'static Mailbox>,
    /// vCPUs that haven't been retired.
    vcpus: AtomicUsize,
    state: Mutex<State>,
    /// When its VM has begun, in ticks.
    began: AtomicU64,
    /// How soon it may start anew by itself.
    pace: Mutex<Pace>,
}

/// What a guest is doing.
#[derive(Debug)]
enum State {
    /// It is being made.
    Starting,
    /// It runs, or is paused.
    Running(Arc<Vm>),
    /// Its vCPUs are done, and what it had is given back.
    Ending,
    /// It has ended by itself, or couldn't be made.
    Ended,
    /// The user has stopped it, and may start it again.
    Held,
}

static GUESTS: Once<Vec<Guest>> = Once::new();

/// Every guest of the bundle.
fn guests() -> &'static [Guest] {
    GUESTS.get().map_or(&[], Vec::as_slice)
}

/// Starts every VM of `bundle` that can be started. A single one is shown as
/// it prints, unless `lines` is wanted.
pub fn all(bundle: &Bundle<'static>, cpus: &'static [Mailbox], lines: bool) {
    let mut accepted: Vec<Guest> = Vec::new();
    for (name, text) in bundle.configurations() {
        let guest = text.map_err(|error| error.to_string());
        match guest.and_then(|text| read(bundle, text, &accepted, cpus)) {
            Ok(guest) => accepted.push(guest),
            Err(why) => log::error!("{name}: {why}"),
        }
    }
    settle_homes(&mut accepted, cpus);
    GUESTS.call_once(|| accepted);
    if let ([only], false) = (guests(), lines) {
        only.port.show();
    }
    for guest in guests() {
        guest.start(0);
    }
    off_if_all_have_ended();
}

/// A guest from the text of its configuration, beside those accepted.
fn read(
    bundle: &Bundle<'static>,
    text: &[u8],
    accepted: &[Guest],
    cpus: &'static [Mailbox],
) -> Result<Guest, String> {
    let text = core::str::from_utf8(text).map_err(|_| "not text".to_string())?;
    let config = VmConfig::read(text).map_err(|error| error.to_string())?;
    // None of them has been made yet.
    let wanted: u64 = accepted.iter().map(|guest| guest.config.memory).sum();
    let limits = Limits {
        cpus: cpus.len(),
        memory: free_memory().saturating_sub(wanted),
        has_file: &|name| bundle.file(name).is_some(),
    };
    config.check(&limits).map_err(|error| error.to_string())?;
    for other in accepted {
        let clash = config.check_beside(&other.config);
        clash.map_err(|error| error.to_string())?;
    }
    let initramfs = config.initramfs.as_ref();
    let files = Files {
        kernel: content(bundle, &config.kernel)?,
        initramfs: initramfs.map(|name| content(bundle, name)).transpose()?,
    };
    Ok(Guest {
        port: Arc::new(Port::new(accepted.len(), &config.name)),
        config,
        files,
        homes: Vec::new(),
        vcpus: AtomicUsize::new(0),
        state: Mutex::new(State::Starting),
        began: AtomicU64::new(0),
        pace: Mutex::default(),
    })
}

/// The bytes of a file, which has been looked for.
fn content(bundle: &Bundle<'static>, name: &str) -> Result<&'static [u8], String> {
    let file = bundle.file(name).unwrap_or(Ok(&[]));
    file.map_err(|error| format!("{name}: {error}"))
}

/// Bytes of free RAM that VMs may have.
fn free_memory() -> u64 {
    let frames = FRAMES.lock();
    frames
        .as_ref()
        .map_or(0, |frames| frames.to_take() * PAGE_BYTES)
}

/// Settles which CPUs each guest runs on.
fn settle_homes(guests: &mut [Guest], cpus: &'static [Mailbox]) {
    let configs: Vec<&VmConfig> = guests.iter().map(|guest| &guest.config).collect();
    let places = place(&configs, cpus.len());
    for (guest, place) in guests.iter_mut().zip(places) {
        let mailboxes = place.into_iter().filter_map(|index| cpus.get(index));
        guest.homes = mailboxes.collect();
    }
}

impl Guest {
    /// Makes its VM and lets it run, after a wait of `wait` milliseconds. The
    /// state must be `Starting`, so that only one CPU does it.
    fn start(&self, wait: u64) {
        let name = &self.config.name;
        match self.make() {
            Ok((vm, mut vcpus)) => {
                let (count, mib) = (vcpus.len(), self.config.memory >> 20);
                let begins = cpu::ticks() + wait * ticks_per_ms();
                // The counter began at power-on.
                let ms = begins / ticks_per_ms();
                log::info!("VM {name}: {count} vCPUs, {mib} MiB, starts at {ms} ms");
                for (vcpu, _) in &mut vcpus {
                    vcpu.begins = begins;
                }
                self.began.store(begins, Ordering::Relaxed);
                self.vcpus.store(count, Ordering::SeqCst);
                *self.state.lock() = State::Running(vm);
                for (vcpu, mailbox) in vcpus {
                    mailbox.give(vcpu);
                }
            }
            Err(why) => {
                log::error!("{name}.vm: {why}");
                *self.state.lock() = State::Ended;
            }
        }
    }

    /// Its VM, as it is to begin.
    fn make(&self) -> Result<make::Made, String> {
        if self.homes.is_empty() {
            return Err("every CPU is claimed by another VM".to_string());
        }
        make::make(&self.config, &self.files, &self.port, &self.homes)
    }

    /// Does something with its VM, if it runs.
    fn with_vm<R>(&self, with: impl FnOnce(&Vm) -> R) -> Option<R> {
        match &*self.state.lock() {
            State::Running(vm) => Some(with(vm)),
            _ => None,
        }
    }

    /// Whether `vm` is its VM.
    fn runs(&self, vm: &Arc<Vm>) -> bool {
        matches!(&*self.state.lock(), State::Running(own) if Arc::ptr_eq(own, vm))
    }

    /// Stops its VM for `reason`; false where it doesn't run.
    fn stop(&self, reason: StopReason, notifier: &impl Notifier) -> bool {
        self.with_vm(|vm| vm.stop(reason, notifier)).is_some()
    }

    /// The last vCPU of its VM is gone: the VM is taken down, and starts
    /// anew where that is wanted.
    fn ended(&self) {
        let old = core::mem::replace(&mut *self.state.lock(), State::Ending);
        let (reason, account) = match &old {
            State::Running(vm) => (vm.stopped(), account::of(vm)),
            _ => (None, Vec::new()),
        };
        // Its RAM is free from here on.
        drop(old);
        self.port.finish();
        let Some(reason) = reason else {
            return;
        };
        let again = self.config.restart.after(reason);
        // Before it is said: who reads it may want to start it.
        *self.state.lock() = match reason {
            _ if again => State::Starting,
            StopReason::Stopped => State::Held,
            _ => State::Ended,
        };
        // Memory, too, is as it was before that is said.
        for line in account {
            log::info!("{line}");
        }
        log::info!("VM {} has stopped: {reason}", self.config.name);
        if again {
            self.start(self.wait(reason));
        }
    }
}

impl Guest {
    /// How long it waits before it starts anew, in milliseconds: not where
    /// the user wants it to.
    fn wait(&self, reason: StopReason) -> u64 {
        if reason == StopReason::Restarted {
            return 0;
        }
        let began = self.began.load(Ordering::Relaxed);
        let lived = cpu::ticks().saturating_sub(began) / ticks_per_ms();
        self.pace.lock().after(lived, self.config.restart_wait)
    }
}

fn ticks_per_ms() -> u64 {
    (cpu::ticks_per_second() / 1000).max(1)
}

/// Switches the machine off if every VM has ended by itself.
fn off_if_all_have_ended() {
    let ended = |guest: &Guest| matches!(&*guest.state.lock(), State::Ended);
    if guests().iter().all(ended) {
        log::info!("no VM runs: switching off");
        power::off();
    }
}

/// A vCPU of a stopped VM is done; the last of all switches the machine off.
pub fn retire(vcpu: Box<Vcpu>) {
    let guest = guests().iter().find(|guest| guest.runs(vcpu.vm()));
    drop(vcpu);
    if let Some(guest) = guest
        && guest.vcpus.fetch_sub(1, Ordering::SeqCst) == 1
    {
        guest.ended();
        off_if_all_have_ended();
    }
}
