//! A VM on the host, for tests.

use super::memory::RamFrames;
use super::{Clock, Vm};
use crate::config::VmConfig;
use crate::console::Port;
use crate::dev::rtc::TimeSource;
use crate::mm::addr::{Hpa, PAGE_BYTES};
use crate::mm::guest_mem::GuestRam;
use crate::mm::stage2::TableSource;
use crate::vcpu::emulate::cpucfg::CpucfgTable;
use alloc::boxed::Box;
use alloc::sync::Arc;
use guest_pv::abi::cpucfg::PvFeatures;

/// Frames that are pages of a vector.
#[derive(Default)]
struct Tables(Vec<u64>);

impl TableSource for Tables {
    fn take(&mut self, pages: u64) -> Option<Hpa> {
        let words = PAGE_BYTES as usize / 8;
        let first = self
            .0
            .len()
            .next_multiple_of(words * pages as usize)
            .max(words * 2);
        self.0.resize(first + words * pages as usize, 0);
        Some(Hpa::new(first as u64 * 8))
    }

    fn give(&mut self, _: Hpa, _: u64) {}

    fn read(&self, at: Hpa) -> u64 {
        self.0[at.get() as usize / 8]
    }

    fn write(&mut self, at: Hpa, value: u64) {
        self.0[at.get() as usize / 8] = value;
    }
}

/// A VM of two vCPUs with ids 0 and 5, at home on CPUs 0 and 7, with every
/// device, paravirtual IPIs and stolen time, and control over itself.
pub fn vm(ram: GuestRam, frames: Box<dyn RamFrames>) -> Vm {
    let text = "name=a\nvcpus=2\nids=0,5\nmemory=256K\nkernel=k\ndevice=uart\npv_ipi=true\n\
        device=pch-pic\ndevice=pch-msi\ndevice=power\ndevice=ports\ndevice=rtc\ncontrol=true";
    let config = VmConfig::read(text).unwrap();
    let host = |word| if word == 1 { 47 << 4 } else { 0xf_ffff };
    let cpucfg = CpucfgTable::filtered(host, PvFeatures::IPI | PvFeatures::STEAL_TIME);
    let tables = Box::new(Tables::default());
    let port = Arc::new(Port::new(0, "a"));
    let time = TimeSource {
        began: 1_767_225_600,
        hz: 1000,
    };
    let clock = Clock { offset: 5, time };
    Vm::new(&config, (ram, frames), tables, cpucfg, clock, port, &[0, 7]).unwrap()
}
