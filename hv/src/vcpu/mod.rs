//! A virtual CPU: what it is, how it enters and leaves the guest.
//!
//! The modules here that don't touch the machine are plain logic, tested on
//! the host.

#![cfg_attr(
    not(test),
    deny(
        clippy::indexing_slicing,
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::unreachable
    )
)]

pub mod emulate;
pub mod exception;
pub mod exit;
pub mod handle;
pub mod interrupt;
pub mod postbox;
pub mod run;
pub mod steal;
pub mod timer;

use crate::isa::gpr::Gprs;
use crate::mm::addr::{Gpa, Hpa};
use crate::mm::gid::Lease;
use crate::vm::{Targets, VcpuShared, Vm};
use alloc::sync::Arc;
use emulate::csr::SoftCsrs;
use guest_pv::abi::cpucfg::PvFeatures;
use postbox::Posts;
use steal::StealClock;
use timer::SavedTimer;

/// What happens after an exit has been handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a handler decides what the vCPU does next"]
pub enum Resume {
    /// Back into the guest.
    Guest,
    /// The CPU is given back to the scheduler.
    Yield(Yield),
    /// The VM has been stopped.
    Stop,
}

/// Why a vCPU gives its CPU back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Yield {
    /// It waits for an interrupt.
    Sleep,
    /// Another may want to run.
    Preempted,
    /// Its VM is paused.
    Paused,
    /// Another CPU is to have it.
    Moved,
    /// What it asked for takes a moment: it asks again.
    Retry,
}

/// Why a VM has stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopReason {
    /// It asked for it, with this code.
    Asked(u64),
    /// It switched itself off.
    PowerOff,
    /// It wants to start anew.
    Reset,
    /// The user stopped it.
    Stopped,
    /// The user wants it to start anew.
    Restarted,
}

impl core::fmt::Display for StopReason {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Asked(code) => write!(f, "it asked for it, code {code}"),
            Self::PowerOff => f.write_str("it switched itself off"),
            Self::Reset => f.write_str("it reset itself"),
            Self::Stopped => f.write_str("the user stopped it"),
            Self::Restarted => f.write_str("the user reset it"),
        }
    }
}

/// What the world switch saves and restores at every entry and exit.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Context {
    /// The guest's general registers.
    pub gprs: Gprs,
    /// The guest's pc.
    pub pc: u64,
    /// The host's registers that its compiler keeps for itself.
    pub host: HostContext,
    /// For the short cuts of the exception entry: its [`VcpuShared`].
    pub shared: u64,
    /// The VM's [`Targets`].
    pub targets: u64,
    /// The same, or one with nobody in it where the VM isn't offered
    /// paravirtual IPIs.
    pub pv_targets: u64,
}

/// Registers of the host that a stay in the guest must not change and that
/// the compiler can't be told to give up: ra, sp, fp, s8.
#[derive(Debug, Default)]
#[repr(C)]
pub struct HostContext {
    /// Where the world switch returns to.
    pub ra: u64,
    /// Stack.
    pub sp: u64,
    /// Frame pointer.
    pub fp: u64,
    /// The compiler's base pointer.
    pub s8: u64,
}

/// How many registers of the guest's bank are kept in an image.
pub const BANKED: usize = 43;

/// The guest's bank while it isn't loaded, in the order of `arch::bank`.
#[derive(Debug)]
pub struct GuestCsrs(pub [u64; BANKED]);

impl Default for GuestCsrs {
    fn default() -> Self {
        Self([0; BANKED])
    }
}

/// Whether a vCPU has been started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Power {
    /// Waits for the boot IPI.
    Parked,
    /// Runs.
    On,
}

/// A vCPU, as the CPU that runs it has it. What every exit looks at is in
/// front, where one instruction reaches it; the large parts are at the end.
#[derive(Debug)]
#[repr(C)]
pub struct Vcpu {
    /// General registers and pc.
    pub context: Context,
    /// Whether it has been started.
    pub power: Power,
    /// It waits: for an enabled interrupt after `idle`, or to be started.
    pub waiting: bool,
    /// The unit registers belong to it and are on.
    pub units_loaded: bool,
    /// The owner's side of its postbox.
    pub owner: postbox::Owner,
    shared: Arc<VcpuShared>,
    vm: Arc<Vm>,
    /// Registers that software keeps.
    pub soft: SoftCsrs,
    /// Its TLB entries' identifier.
    pub lease: Option<Lease>,
    /// What others took of its time.
    pub steal: StealClock,
    /// The guest's bank, valid while not loaded.
    pub csrs: GuestCsrs,
    /// ESTAT, likewise; its HWI bits are in `gintc`.
    pub estat: u64,
    /// GINTC, likewise.
    pub gintc: u64,
    /// The guest's timer, likewise.
    pub timer: SavedTimer,
    /// The unit registers while they aren't loaded.
    pub units: Units,
    /// It doesn't run before this, in ticks of the stable counter.
    pub begins: u64,
}

/// FPR, LSX and LASX registers (one file), FCSR0 and FCC0 to FCC7.
#[derive(Debug, Default)]
#[repr(C, align(32))]
pub struct Units {
    /// The 32 registers at their widest.
    pub file: [[u64; 4]; 32],
    /// FCC0 to FCC7, a byte each.
    pub fcc: u64,
    /// FCSR0.
    pub fcsr: u64,
}

impl Vcpu {
    /// vCPU `index` of `vm` as after reset, for its first CPU; `None` where
    /// the VM has no such vCPU. It is parked.
    #[must_use]
    pub fn new(vm: Arc<Vm>, index: usize) -> Option<Self> {
        let shared = vm.vcpus().get(index)?.clone();
        let cpu = shared.placement.home();
        let offered = vm.cpucfg.features().contains(PvFeatures::IPI);
        let pv_targets = if offered {
            vm.targets()
        } else {
            Targets::nobody()
        };
        Some(Self {
            context: Context {
                shared: Arc::as_ptr(&shared) as u64,
                targets: vm.targets().address(),
                pv_targets: pv_targets.address(),
                ..Context::default()
            },
            csrs: GuestCsrs::default(),
            estat: 0,
            gintc: 0,
            timer: SavedTimer::default(),
            soft: SoftCsrs::default(),
            lease: None,
            owner: postbox::Owner::new(cpu),
            power: Power::Parked,
            waiting: true,
            units_loaded: false,
            units: Units::default(),
            steal: StealClock::default(),
            begins: 0,
            shared,
            vm,
        })
    }

    /// The first instruction of the boot CPU: at `entry`, with the
    /// arguments of the boot protocol.
    pub fn start(&mut self, entry: Gpa, arguments: [u64; 3]) {
        use crate::isa::gpr::Gpr;
        self.context.pc = entry.get();
        for (register, value) in [Gpr::A0, Gpr::A1, Gpr::A2].into_iter().zip(arguments) {
            self.context.gprs.set(register, value);
        }
        self.power = Power::On;
        self.waiting = false;
    }

    /// Its VM.
    #[must_use]
    pub const fn vm(&self) -> &Arc<Vm> {
        &self.vm
    }

    /// Root of its VM's second-stage tables.
    #[must_use]
    pub fn root(&self) -> Hpa {
        self.vm.root()
    }

    /// What it shares with other CPUs.
    #[inline]
    #[must_use]
    pub fn shared(&self) -> &VcpuShared {
        &self.shared
    }

    /// From here on it counts as in the guest; what was posted until now.
    #[inline]
    pub fn enter_guest(&self) -> Posts {
        self.shared.postbox.enter(&self.owner)
    }

    /// It will not enter the guest again before [`Self::enter_guest`].
    #[inline]
    pub fn leave_guest(&self) {
        self.shared.postbox.leave();
    }

    /// Publishes "asleep" until something that it waits for is posted, with
    /// the guest's ECFG; false where it already is.
    #[must_use]
    pub fn go_to_sleep(&self, ecfg: u64) -> bool {
        self.shared().postbox.sleep(&self.owner, self.wakes(ecfg))
    }

    /// Publishes "asleep" until the VM's state changes; false where it just
    /// has.
    #[must_use]
    pub fn go_to_pause(&self) -> bool {
        self.shared()
            .postbox
            .sleep(&self.owner, postbox::Posts::NONE)
    }

    /// It is taken off its CPU: from here on it is `cpu`'s, which looks once
    /// more at everything before it enters the guest.
    pub fn hand_over(&mut self, cpu: u32) {
        self.owner.set_cpu(cpu);
        self.shared.placement.set_home(cpu);
        // It is outside: there is nobody to tell.
        let _ = self.shared.postbox.post(Posts::CONTROL);
    }

    /// Its home CPU wakes it without a post.
    pub fn wake_up(&self) {
        self.leave_guest();
    }
}
