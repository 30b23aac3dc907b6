//! A virtual machine: memory, devices, and what its vCPUs share.
//!
//! Everything here may be used from any CPU at any time; no frequent exit
//! takes the lock of the second-stage tables, only the first use of a block
//! of RAM and a fault on it do. Lock order: `memory`; the RAM's fresh blocks;
//! `stage2`; the UART's; `pch_pic`'s; `eiointc`'s. Postboxes have none.

mod devices;
#[cfg(test)]
pub mod fake;
mod ids;
pub mod memory;
pub mod placement;
pub mod ram;
pub mod wires;

use crate::config::VmConfig;
use crate::console::Port;
use crate::dev::bus::Bus;
use crate::dev::iocsr::eiointc::{self, Eiointc};
use crate::dev::iocsr::ipi;
use crate::dev::lane::Lane;
use crate::dev::pch_pic::PchPic;
use crate::dev::rtc::TimeSource;
use crate::dev::uart::Uart;
use crate::isa::exception::Interrupt;
use crate::mm::addr::{Gpa, Hpa, IocsrAddr};
use crate::mm::guest_mem::GuestRam;
use crate::mm::pte::Access;
use crate::mm::stage2::{MapError, Stage2, TableSource};
use crate::stats::Stats;
use crate::vcpu::StopReason;
use crate::vcpu::emulate::cpucfg::CpucfgTable;
use crate::vcpu::interrupt::HARDWARE_LINES;
use crate::vcpu::postbox::{Notify, Postbox, Posts};
use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use core::fmt;
use core::sync::atomic::{AtomicBool, Ordering};
pub use devices::{Device, IocsrDevice};
use ids::PhysicalIds;
pub use ids::{ID_BITS, Targets};
use memory::{Memory, RamFrames};
use placement::Placement;
use spin::{Mutex, Once};
use wires::{Input, Wires};

/// Source of table frames whose kind the VM needn't know.
pub type Tables = Box<dyn TableSource + Send>;

/// What other CPUs may use of a vCPU.
#[derive(Debug)]
#[repr(C)]
pub struct VcpuShared {
    /// What others want of it. First, for the short cuts of the exception
    /// entry.
    pub postbox: Postbox,
    /// Its native IPI registers.
    pub ipi: ipi::Core,
    /// Its counters.
    pub stats: Stats,
    /// Its physical id.
    pub id: u32,
    /// Its place among its VM's.
    pub index: usize,
    /// Which CPU has it.
    pub placement: Placement,
}

/// Tells physical CPUs to look at their posts.
pub trait Notifier {
    /// Carries out what a post asked for.
    fn tell(&self, notify: Notify);
}

/// A virtual machine.
#[derive(Debug)]
pub struct Vm {
    /// Its name.
    pub name: String,
    /// Its RAM.
    pub ram: GuestRam,
    /// Its CPUs' configuration words.
    pub cpucfg: CpucfgTable,
    /// Its devices.
    pub mmio: Bus<Gpa, Device>,
    /// Its IOCSR space.
    pub iocsr: Bus<IocsrAddr, IocsrDevice>,
    /// The controller that interrupts reach vCPUs by.
    pub eiointc: Eiointc,
    /// The controller of its devices' interrupts.
    pub pch_pic: PchPic,
    /// What it prints.
    pub console: Arc<Port>,
    /// Its time.
    pub clock: Clock,
    /// How long its idle vCPUs poll, in microseconds.
    pub idle_poll: u64,
    /// Whether it may change its own memory and where its vCPUs run.
    pub control: bool,
    // Dropped in this order: the tables, then the memory they lead to.
    stage2: Mutex<Stage2<Tables>>,
    memory: Mutex<Memory>,
    cpus: Box<[u32]>,
    root: Hpa,
    vcpus: Box<[Arc<VcpuShared>]>,
    ids: PhysicalIds,
    targets: Box<Targets>,
    stopped: Once<StopReason>,
    paused: AtomicBool,
}

/// How a VM's time is told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Clock {
    /// Added to the stable counter for its vCPUs (GCNTC).
    pub offset: u64,
    /// Its time of day, by its own counter.
    pub time: TimeSource,
}

/// Why a VM couldn't be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VmError {
    /// The second-stage tables couldn't be built.
    Map(MapError),
    /// Two devices overlap.
    Devices,
    /// The heap has no room for what is noted of each block of RAM.
    NoHeap,
}

impl fmt::Display for VmError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Map(MapError::OutOfFrames) => {
                f.write_str("no RAM left for the second-stage tables")
            }
            Self::Map(error) => write!(f, "its RAM can't be mapped: {error:?}"),
            Self::Devices => f.write_str("two devices overlap"),
            Self::NoHeap => f.write_str("no heap left for what is noted of its RAM"),
        }
    }
}

impl Vm {
    /// A VM as `config`, which has been checked, wants it, with this RAM and
    /// the frames behind it, on the machine's CPUs with the physical ids
    /// `cpus`, its vCPUs in turn.
    ///
    /// # Errors
    /// See [`VmError`].
    pub fn new(
        config: &VmConfig,
        (ram, frames): (GuestRam, Box<dyn RamFrames>),
        tables: Tables,
        cpucfg: CpucfgTable,
        clock: Clock,
        console: Arc<Port>,
        cpus: &[u32],
    ) -> Result<Self, VmError> {
        let stage2 = map(&ram, tables, cpucfg.physical_bits()).map_err(VmError::Map)?;
        let homes = cpus.iter().copied().cycle();
        let vcpus = config.ids.iter().zip(homes).enumerate();
        let vcpus: Box<[_]> = vcpus
            .map(|(index, (&id, home))| Arc::new(VcpuShared::new(id, index, home)))
            .collect();
        let memory = Memory::new(&ram, frames, vcpus.len()).ok_or(VmError::NoHeap)?;
        Ok(Self {
            name: config.name.clone(),
            memory: Mutex::new(memory),
            ram,
            cpucfg,
            targets: Targets::new(&vcpus),
            vcpus,
            mmio: devices::mmio(config, clock)?,
            iocsr: devices::iocsr()?,
            eiointc: Eiointc::default(),
            pch_pic: PchPic::default(),
            console,
            clock,
            idle_poll: config.idle_poll,
            control: config.control,
            cpus: cpus.into(),
            root: stage2.root(),
            stage2: Mutex::new(stage2),
            ids: PhysicalIds::new(&config.ids),
            stopped: Once::new(),
            paused: AtomicBool::new(false),
        })
    }

    /// Root of the second-stage tables, for PGDL.
    #[must_use]
    pub const fn root(&self) -> Hpa {
        self.root
    }

    /// The second-stage tables.
    pub const fn stage2(&self) -> &Mutex<Stage2<Tables>> {
        &self.stage2
    }

    /// If `gpa` lies in a block of RAM that nobody has used yet, `clear` gets
    /// its address and bytes, and it is mapped. False where it was in use
    /// already, or is no RAM.
    pub fn populate(&self, gpa: Gpa, clear: impl FnOnce(Hpa, u64)) -> bool {
        self.ram.first_use(gpa, |block| {
            clear(block.hpa, block.bytes);
            let mapped = self
                .stage2
                .lock()
                .map(block.gpa, block.hpa, block.bytes, Access::ALL);
            // A TLB that holds it as absent faults once more, and forgets it.
            mapped.is_ok()
        })
    }

    /// Its vCPUs, by index.
    #[must_use]
    pub const fn vcpus(&self) -> &[Arc<VcpuShared>] {
        &self.vcpus
    }

    /// Its vCPUs by physical id, for the exception entry.
    #[must_use]
    pub fn targets(&self) -> &Targets {
        &self.targets
    }

    /// The vCPU with physical id `id`.
    #[inline]
    #[must_use]
    pub fn by_id(&self, id: u64) -> Option<&VcpuShared> {
        self.vcpus.get(self.ids.find(id)?).map(Arc::as_ref)
    }

    /// Carries out a write to a send register.
    pub fn send(&self, send: ipi::Send, notifier: &impl Notifier) {
        let Some(target) = self.by_id(u64::from(send.target)) else {
            return;
        };
        if send.offset.wrapping_sub(eiointc::BASE) < eiointc::BYTES {
            let lane = Lane::half_but(send.offset.into(), send.keep);
            let (data, wires) = (u64::from(send.data), Wires { vm: self, notifier });
            self.eiointc
                .write(target.id, send.offset, lane, data, &wires);
            return;
        }
        if target.ipi.write_word(send.offset, send.data, send.keep) == ipi::Effect::Line {
            target.post(Posts::interrupts(Interrupt::IPI.bit()), notifier);
        }
    }

    /// A byte has come in for its console; false where there is no room for
    /// it, or no UART.
    pub fn receive(&self, byte: u8, notifier: &impl Notifier) -> bool {
        let mut uarts = self.uarts(notifier);
        uarts
            .next()
            .is_some_and(|(uart, input)| uart.receive(byte, &input))
    }

    /// Its console takes more of what it prints.
    pub fn go_on_printing(&self, notifier: &impl Notifier) {
        self.uarts(notifier)
            .for_each(|(uart, input)| uart.go_on(&input));
    }

    /// Its UARTs, with the wires of their interrupts.
    fn uarts<'a, N: Notifier>(
        &'a self,
        notifier: &'a N,
    ) -> impl Iterator<Item = (&'a Uart, Input<'a, N>)> {
        self.mmio.devices().filter_map(move |device| match device {
            Device::Uart(uart, input) => {
                let (wires, input) = (Wires { vm: self, notifier }, *input);
                Some((uart.as_ref(), Input { wires, input }))
            }
            _ => None,
        })
    }

    /// The level of those of the lines `lines` of `vcpu` that are levels.
    /// Both are as in ESTAT.
    #[must_use]
    pub fn levels(&self, vcpu: &VcpuShared, lines: u64) -> u64 {
        let mut levels = 0;
        if lines & Interrupt::IPI.bit() != 0 && vcpu.ipi.line() {
            levels |= Interrupt::IPI.bit();
        }
        if lines & HARDWARE_LINES != 0 {
            let high = self.eiointc.levels(vcpu.id);
            levels |= u64::from(high) << Interrupt::hwi(0).number() & lines;
        }
        levels
    }

    /// Stops the VM: its vCPUs leave the guest for good. The first reason
    /// counts.
    pub fn stop(&self, reason: StopReason, notifier: &impl Notifier) {
        self.stopped.call_once(|| reason);
        for vcpu in self.vcpus.iter() {
            vcpu.post(Posts::CONTROL, notifier);
        }
    }

    /// Halts the VM's vCPUs, or lets them go on. Its clock goes on anyhow.
    pub fn pause(&self, paused: bool, notifier: &impl Notifier) {
        self.paused.store(paused, Ordering::SeqCst);
        for vcpu in self.vcpus.iter() {
            vcpu.post(Posts::CONTROL, notifier);
        }
    }

    /// Whether its vCPUs are to halt.
    #[inline]
    #[must_use]
    pub fn paused(&self) -> bool {
        self.paused.load(Ordering::Relaxed)
    }

    /// Why the VM has stopped, `None` while it runs.
    #[must_use]
    pub fn stopped(&self) -> Option<StopReason> {
        self.stopped.get().copied()
    }
}

/// Tables in which all of `ram` but the blocks that nobody has used yet is
/// mapped.
fn map(ram: &GuestRam, tables: Tables, gpa_bits: u32) -> Result<Stage2<Tables>, MapError> {
    let mut stage2 = Stage2::new(tables, gpa_bits)?;
    for region in ram.regions() {
        // No vCPU has run yet: no TLB knows these tables.
        let _ = stage2.map(region.gpa, region.hpa, region.bytes, Access::ALL)?;
    }
    // Likewise. The directory stays: mapping it again takes no frame.
    ram.each_fresh(|block| stage2.unmap(block.gpa, block.bytes).map(drop))?;
    Ok(stage2)
}

impl VcpuShared {
    fn new(id: u32, index: usize, home: u32) -> Self {
        Self {
            postbox: Postbox::new(),
            ipi: ipi::Core::default(),
            stats: Stats::default(),
            id,
            index,
            placement: Placement::new(home),
        }
    }

    /// Posts, and tells whom it takes.
    #[inline]
    pub fn post(&self, posts: Posts, notifier: &impl Notifier) {
        match self.postbox.post(posts) {
            Notify::Nothing => {}
            notify => notifier.tell(notify),
        }
    }
}
