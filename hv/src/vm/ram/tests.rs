//! VMs in the making, out of frames that run out at any moment.

use super::*;
use crate::boot::{self, Environment, Files};
use crate::console::Port;
use crate::mm::addr::{Gpa, PAGE_SHIFT};
use crate::mm::phys::FakeMem;
use crate::mm::stage2::TableSource;
use crate::vcpu::Vcpu;
use crate::vcpu::emulate::cpucfg::CpucfgTable;
use crate::vm::{Clock, Vm, VmError};
use alloc::boxed::Box;
use alloc::sync::Arc;
use guest_pv::abi::cpucfg::PvFeatures;
use std::collections::HashMap;

/// Frames of the machine, on two nodes, and what is in them.
struct Machine {
    source: &'static Source,
    memory: FakeMem,
}

/// Pages of each node.
const PAGES: u64 = 128;

impl Machine {
    fn new() -> Self {
        let half = PAGES * PAGE_BYTES;
        let nodes = [
            (frame::Range::new(0, half), 0),
            (frame::Range::new(half, 2 * half), 1),
        ];
        let mut frames = frame::Frames::default();
        frames.add(&[frame::Range::new(PAGE_BYTES, 2 * half)], &nodes);
        frames.keep(8);
        Self {
            source: Box::leak(Box::new(Mutex::new(Some(frames)))),
            memory: FakeMem(vec![0xee; 2 * half as usize]),
        }
    }

    /// Its frames.
    fn frames<R>(&self, with: impl FnOnce(&mut frame::Frames) -> R) -> R {
        with(self.source.lock().as_mut().unwrap())
    }

    fn limit(&self, takes: Option<u64>) {
        self.frames(|frames| frames.limit = takes);
    }

    /// Makes a VM as `launch` does.
    fn make(&mut self, config: &VmConfig) -> Result<Arc<Vm>, String> {
        let (taken, ram) = take(config, &[1, 0], self.source, &mut self.memory)?;
        let kernel = kernel();
        let files = Files {
            kernel: &kernel,
            initramfs: None,
        };
        let environment = Environment {
            clock_hz: 1,
            seed: None,
        };
        let start = boot::load(config, &files, &environment, &ram, &mut self.memory);
        start.map_err(|error| error.to_string())?;
        let host = |word| if word == 1 { 47 << 4 } else { 0xf_ffff };
        let cpucfg = CpucfgTable::filtered(host, PvFeatures::IPI);
        let tables = Box::new(Tables {
            source: self.source,
            words: HashMap::new(),
        });
        let (port, clock) = (Arc::new(Port::new(0, "a")), Clock::default());
        let ram: (_, Box<dyn RamFrames>) = (ram, Box::new(taken));
        let vm = Vm::new(config, ram, tables, cpucfg, clock, port, &[0]);
        let vm = Arc::new(vm.map_err(|error| format!("{error}"))?);
        for index in 0..config.ids.len() {
            Vcpu::new(vm.clone(), index).ok_or("no such vCPU")?;
        }
        Ok(vm)
    }
}

/// Tables in frames of the machine.
struct Tables {
    source: &'static Source,
    words: HashMap<u64, u64>,
}

impl TableSource for Tables {
    fn take(&mut self, pages: u64) -> Option<Hpa> {
        self.source.lock().as_mut()?.take(pages)
    }

    fn give(&mut self, table: Hpa, pages: u64) {
        self.source.lock().as_mut().unwrap().give(table, pages);
    }

    fn read(&self, at: Hpa) -> u64 {
        self.words[&at.get()]
    }

    fn write(&mut self, at: Hpa, value: u64) {
        self.words.insert(at.get(), value);
    }
}

/// An ELF whose one segment is at address 0.
fn kernel() -> Vec<u8> {
    let mut file = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
    file.extend([2, 0, 2, 1, 1, 0, 0, 0]);
    for value in [0u64, 64, 0] {
        file.extend(value.to_le_bytes());
    }
    file.extend([0, 0, 0, 0, 64, 0, 56, 0, 1, 0, 0, 0, 0, 0, 0, 0]);
    file.extend([1, 0, 0, 0, 7, 0, 0, 0]);
    for value in [120u64, 0, 0, 5, 5, 16] {
        file.extend(value.to_le_bytes());
    }
    file.extend(b"guest");
    file
}

/// A VM of so many pages.
fn config(pages: u64) -> VmConfig {
    let bytes = pages << PAGE_SHIFT;
    let text = format!("name=a\nvcpus=2\nmemory={bytes}\nkernel=k\ndevice=uart");
    VmConfig::read(&text).unwrap()
}

#[test]
fn wherever_frames_run_out_all_of_them_come_back() {
    let mut machine = Machine::new();
    let other = machine.make(&config(20)).unwrap();
    let at = |vm: &Vm, page: u64| {
        let gpa = Gpa::new(page << PAGE_SHIFT);
        vm.stage2().lock().translate(gpa).map(|found| found.hpa)
    };
    let there: Vec<_> = (0..21).map(|page| at(&other, page)).collect();
    let before = machine.frames(|frames| frames.free());
    // An odd number of pages: blocks of many sizes, from both nodes.
    let wanted = config(157);
    let mut reasons = Vec::new();
    for takes in 0.. {
        machine.limit(Some(takes));
        let made = machine.make(&wanted);
        machine.limit(None);
        if let Ok(vm) = made {
            assert!(at(&vm, 156).is_some() && at(&vm, 157).is_none());
            assert!(machine.frames(|frames| frames.free()) < before - 157);
            break;
        }
        reasons.extend(made.err());
        assert_eq!(machine.frames(|frames| frames.free()), before, "{takes}");
        let now: Vec<_> = (0..21).map(|page| at(&other, page)).collect();
        assert_eq!(now, there, "{takes}");
    }
    // RAM first, then the tables that lead to it: each is named.
    assert!(reasons.len() > 12, "{reasons:?}");
    reasons.dedup();
    let expected = [OUT_OF_RAM, "no RAM left for the second-stage tables"];
    assert_eq!(reasons, expected);
    // The VM that was made last is gone.
    assert_eq!(machine.frames(|frames| frames.free()), before);
    drop(other);
    machine.frames(|frames| assert_eq!(frames.free(), 2 * PAGES - 1));
}

#[test]
fn what_is_kept_is_left() {
    let mut machine = Machine::new();
    let free = machine.frames(|frames| frames.to_take());
    assert_eq!(machine.make(&config(free + 1)).unwrap_err(), OUT_OF_RAM);
    // All RAM, but nothing for tables.
    let why = machine.make(&config(free)).unwrap_err();
    assert_eq!(why, "no RAM left for the second-stage tables");
    machine.frames(|frames| assert_eq!(frames.to_take(), free));
    let vm = machine.make(&config(free - 16)).unwrap();
    assert!(vm.ram.regions().len() > 1);
}

#[test]
fn errors_are_words() {
    assert_eq!(VmError::Devices.to_string(), "two devices overlap");
}
