//! From a bundle to VMs that run.
//!
//! Every configuration is checked against the machine before anything is
//! made; one that can't be met is refused by name, and the others start.

use crate::arch::{bank, cpu};
use crate::boot::{self, Environment, Files};
use crate::bundle::Bundle;
use crate::config::{Limits, VmConfig};
use crate::isa::csr::{CRMD, Csr};
use crate::mm::addr::{Hpa, PAGE_BYTES};
use crate::mm::guest_mem::{GuestRam, RamRegion};
use crate::mm::phys::{Cached, FrameTables, PhysMem};
use crate::platform::power;
use crate::processor::Mailbox;
use crate::seed;
use crate::start::FRAMES;
use crate::vcpu::Vcpu;
use crate::vcpu::emulate::cpucfg::CpucfgTable;
use crate::vm::Vm;
use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicUsize, Ordering};
use guest_pv::abi::cpucfg::PvFeatures;

/// VMs that run.
static RUNNING: AtomicUsize = AtomicUsize::new(0);

/// End of the names of configurations in a bundle.
const CONFIG_SUFFIX: &str = ".vm";

/// Starts every VM of `bundle` that can be started.
pub fn all(bundle: &Bundle<'_>, cpus: &'static [Mailbox]) {
    // Held until all have started: one that stops at once is not the last.
    RUNNING.fetch_add(1, Ordering::SeqCst);
    for (name, text) in bundle
        .files()
        .filter(|(name, _)| name.ends_with(CONFIG_SUFFIX))
    {
        if let Err(why) = one(bundle, text, cpus) {
            log::error!("{name}: {why}");
        }
    }
    if RUNNING.fetch_sub(1, Ordering::SeqCst) == 1 {
        log::info!("no VM runs: switching off");
        power::off();
    }
}

fn one(bundle: &Bundle<'_>, text: &[u8], cpus: &'static [Mailbox]) -> Result<(), String> {
    let text = core::str::from_utf8(text).map_err(|_| "not text".to_string())?;
    let config = VmConfig::read(text).map_err(|error| error.to_string())?;
    let free = FRAMES
        .lock()
        .as_ref()
        .map_or(0, |frames| frames.free() * PAGE_BYTES);
    let limits = Limits {
        cpus: cpus.len(),
        memory: free,
        has_file: &|name| bundle.file(name).is_some(),
    };
    config.check(&limits).map_err(|error| error.to_string())?;
    let initramfs = config.initramfs.as_ref();
    let files = Files {
        kernel: bundle.file(&config.kernel).unwrap_or_default(),
        initramfs: initramfs.and_then(|name| bundle.file(name)),
    };
    start(&config, &files, cpus)
}

/// Frames that go back to the allocator when they are dropped.
#[derive(Debug, Default)]
struct Frames(Vec<(Hpa, u64)>);

impl Drop for Frames {
    fn drop(&mut self) {
        if let Some(frames) = FRAMES.lock().as_mut() {
            for &(at, pages) in &self.0 {
                frames.give(at, pages);
            }
        }
    }
}

/// Takes RAM for a VM, in blocks as large as there are, all zero.
fn take_ram(config: &VmConfig, memory: &mut Cached) -> Result<(Frames, GuestRam), String> {
    let mut taken = Frames::default();
    let mut regions = Vec::new();
    for (gpa, bytes) in config.ram() {
        let mut done = 0;
        while done < bytes {
            let left = (bytes - done) / PAGE_BYTES;
            let (hpa, pages) = take_block(left).ok_or("out of RAM")?;
            taken.0.push((hpa, pages));
            memory.zero(hpa, pages * PAGE_BYTES);
            let gpa = gpa.checked_add(done).ok_or("RAM beyond 64 bits")?;
            let bytes = pages * PAGE_BYTES;
            regions.push(RamRegion { gpa, hpa, bytes });
            done += bytes;
        }
    }
    let ram = GuestRam::new(regions).map_err(|error| format!("{error:?}"))?;
    Ok((taken, ram))
}

/// The largest block of at most `left` pages that there is.
fn take_block(left: u64) -> Option<(Hpa, u64)> {
    let mut frames = FRAMES.lock();
    let frames = frames.as_mut()?;
    let mut pages = 1 << left.checked_ilog2()?;
    while pages > 0 {
        if let Some(hpa) = frames.take(pages) {
            return Some((hpa, pages));
        }
        pages /= 2;
    }
    None
}

fn start(config: &VmConfig, files: &Files<'_>, cpus: &'static [Mailbox]) -> Result<(), String> {
    // SAFETY: used for this VM's RAM and tables, which the allocator gave.
    let mut memory = unsafe { Cached::new() };
    let (taken, ram) = take_ram(config, &mut memory)?;
    let environment = Environment {
        clock_hz: u32::try_from(cpu::ticks_per_second()).unwrap_or(u32::MAX),
        seed: seed::next(),
    };
    let start = boot::load(config, files, &environment, &ram, &mut memory);
    let start = start.map_err(|error| match &config.initramfs {
        Some(name) if error.is_of_initramfs() => format!("{name}: {error}"),
        _ => format!("{}: {error}", config.kernel),
    })?;
    let mut features = PvFeatures::VIRT_EXTIOI;
    features.set(PvFeatures::IPI, config.pv_ipi);
    let cpucfg = CpucfgTable::filtered(cpu::cpucfg, features);
    let offset = cpu::ticks().wrapping_neg();
    let tables = Box::new(FrameTables::new(memory));
    let vm = Vm::new(config, ram, tables, cpucfg, offset, Box::new(taken));
    let vm = Arc::new(vm.map_err(|error| format!("{error:?}"))?);
    let mut vcpus = Vec::new();
    for (index, mailbox) in (0..config.ids.len()).zip(homes(config, cpus)) {
        let vcpu = Vcpu::new(vm.clone(), index, mailbox.id()).ok_or("no such vCPU")?;
        vcpus.push((Box::new(reset(vcpu)), mailbox));
    }
    if let Some((first, _)) = vcpus.first_mut() {
        first.start(start.entry, start.arguments);
    }
    RUNNING.fetch_add(1, Ordering::SeqCst);
    let mib = config.memory >> 20;
    log::info!("VM {}: {} vCPUs, {mib} MiB", config.name, vcpus.len());
    for (vcpu, mailbox) in vcpus {
        mailbox.give(vcpu);
    }
    Ok(())
}

/// The CPUs that the VM's vCPUs run on, in turn.
fn homes(config: &VmConfig, cpus: &'static [Mailbox]) -> impl Iterator<Item = &'static Mailbox> {
    let chosen: Vec<&Mailbox> = match config.cpus.as_slice() {
        [] => cpus.iter().collect(),
        some => some.iter().filter_map(|&index| cpus.get(index)).collect(),
    };
    chosen.into_iter().cycle()
}

/// The registers of a vCPU after reset that aren't 0.
fn reset(mut vcpu: Vcpu) -> Vcpu {
    let id = u64::from(vcpu.shared().id);
    bank::set(&mut vcpu.csrs, Csr::CRMD, CRMD::DA::SET.value);
    bank::set(&mut vcpu.csrs, Csr::CPUID, id);
    bank::set(&mut vcpu.csrs, Csr::TID, id);
    vcpu
}

/// A vCPU of a stopped VM is done; the last of all switches the machine off.
pub fn retire(vcpu: Box<Vcpu>) {
    let vm = vcpu.vm().clone();
    drop(vcpu);
    if vm.running.fetch_sub(1, Ordering::SeqCst) > 1 {
        return;
    }
    if let Some(reason) = vm.stopped() {
        log::info!("VM {} has stopped: {reason}", vm.name);
    }
    drop(vm);
    if RUNNING.fetch_sub(1, Ordering::SeqCst) == 1 {
        log::info!("no VM runs: switching off");
        power::off();
    }
}
