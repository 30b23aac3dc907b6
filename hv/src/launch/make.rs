//! From a configuration and its files to a VM with its vCPUs.

use crate::arch::{bank, cpu};
use crate::boot::{self, Environment, Files};
use crate::config::VmConfig;
use crate::console::Port;
use crate::dev::rtc::TimeSource;
use crate::isa::csr::{CRMD, Csr};
use crate::mm::frame::FRAMES;
use crate::mm::phys::{Cached, FrameTables};
use crate::platform::rtc;
use crate::processor::Mailbox;
use crate::seed;
use crate::start;
use crate::vcpu::Vcpu;
use crate::vcpu::emulate::cpucfg::CpucfgTable;
use crate::vm::memory::RamFrames;
use crate::vm::ram;
use crate::vm::{Clock, Vm};
use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cmp::Reverse;
use guest_pv::abi::cpucfg::PvFeatures;

/// A VM and its vCPUs, each with the CPU that it runs on.
pub type Made = (Arc<Vm>, Vec<(Box<Vcpu>, &'static Mailbox)>);

/// Makes the VM that `config` describes, with its files loaded and its boot
/// CPU at its first instruction.
///
/// # Errors
/// What is in the way, in one line.
pub fn make(
    config: &VmConfig,
    files: &Files<'_>,
    port: &Arc<Port>,
    homes: &[&'static Mailbox],
) -> Result<Made, String> {
    // SAFETY: used for this VM's RAM and tables, which the allocator gave.
    let mut memory = unsafe { Cached::new() };
    let nodes = nodes_of(homes, config.ids.len());
    let (taken, ram) = ram::take(config, &nodes, &FRAMES, &mut memory)?;
    let environment = Environment {
        clock_hz: u32::try_from(cpu::ticks_per_second()).unwrap_or(u32::MAX),
        seed: seed::next(),
    };
    let start = boot::load(config, files, &environment, &ram, &mut memory);
    let start = start.map_err(|error| match &config.initramfs {
        Some(name) if error.is_of_initramfs() => format!("{name}: {error}"),
        _ => format!("{}: {error}", config.kernel),
    })?;
    let cpucfg = CpucfgTable::filtered(cpu::cpucfg, features(config));
    let clock = Clock {
        offset: cpu::ticks().wrapping_neg(),
        time: TimeSource {
            began: rtc::seconds(),
            hz: cpu::ticks_per_second(),
        },
    };
    let tables = Box::new(FrameTables::new(
        memory,
        nodes.first().copied().unwrap_or(0),
    ));
    let console = port.clone();
    let cpus: Vec<u32> = homes.iter().map(|home| home.id()).collect();
    let ram = (ram, Box::new(taken) as Box<dyn RamFrames>);
    let vm = Vm::new(config, ram, tables, cpucfg, clock, console, &cpus);
    let vm = Arc::new(vm.map_err(|error| error.to_string())?);
    let mut vcpus = Vec::new();
    for (index, &home) in (0..config.ids.len()).zip(homes.iter().cycle()) {
        let vcpu = Vcpu::new(vm.clone(), index).ok_or("no such vCPU")?;
        vcpus.push((Box::new(reset(vcpu)), home));
    }
    if let Some((first, _)) = vcpus.first_mut() {
        first.start(start.entry, start.arguments);
    }
    Ok((vm, vcpus))
}

/// What a VM is offered.
fn features(config: &VmConfig) -> PvFeatures {
    let mut features = PvFeatures::VIRT_EXTIOI;
    features.set(PvFeatures::IPI, config.pv_ipi);
    let steal = PvFeatures::STEAL_TIME | PvFeatures::PREEMPT;
    features.set(steal, config.pv_steal_time);
    features
}

/// The nodes of the CPUs that a VM of so many vCPUs runs on, the one with
/// most vCPUs first.
fn nodes_of(homes: &[&'static Mailbox], vcpus: usize) -> Vec<u32> {
    let of_vcpus = homes.iter().cycle().take(vcpus);
    let all: Vec<u32> = of_vcpus.map(|home| start::node_of(home.id())).collect();
    let mut nodes = all.clone();
    nodes.sort_unstable();
    nodes.dedup();
    nodes.sort_by_key(|node| Reverse(all.iter().filter(|other| *other == node).count()));
    nodes
}

/// The registers of a vCPU after reset that aren't 0.
fn reset(mut vcpu: Vcpu) -> Vcpu {
    let id = u64::from(vcpu.shared().id);
    bank::set(&mut vcpu.csrs, Csr::CRMD, CRMD::DA::SET.value);
    bank::set(&mut vcpu.csrs, Csr::CPUID, id);
    bank::set(&mut vcpu.csrs, Csr::TID, id);
    vcpu
}
