//! From an exit to what happens next.
//!
//! The pc moves here and nowhere else, and only once an instruction has been
//! carried out. What an exit needs of the machine is behind [`Hardware`], so
//! that the same code runs on the host, under test.

use super::emulate::{Outcome, device, hypercall, iocsr, mmio};
use super::exception::Exception;
use super::exit::{AccessKind, ExitInfo, Unit, VmExit, decode};
use super::interrupt::Apply;
use super::steal::{StealClock, nanoseconds};
use super::{Resume, StopReason, Vcpu, Yield};
use crate::dev::bus::Place;
use crate::isa::exception::{Ecode, Interrupt};
use crate::isa::gpr::Gprs;
use crate::isa::insn::{self, Insn, decode_sensitive};
use crate::mm::addr::{Gpa, Hpa};
use crate::stats::Stats;
use crate::vcpu::postbox::Posts;
use crate::vm::memory::{PageRange, Progress, Request};
use crate::vm::{Notifier, VcpuShared, Vm};
use guest_pv::abi::cpucfg::PvFeatures;
use guest_pv::abi::hypercall::CallError;
use guest_pv::abi::vendor::ExitReason;

/// The physical CPU, with this vCPU loaded.
pub trait Hardware: Notifier {
    /// The guest's privilege level.
    fn privilege(&self) -> u64;
    /// The guest's pending interrupts that it has enabled, as in ESTAT.
    fn pending(&self) -> u64;
    /// Gives the guest an exception at `pc`; returns its new pc.
    fn inject(&mut self, pc: u64, exception: &Exception) -> u64;
    /// Changes the guest's interrupt lines.
    fn apply(&mut self, change: &Apply);
    /// Forgets what the TLB knows of a guest physical address of the vCPU's.
    fn forget(&mut self, vcpu: &Vcpu, gpa: Gpa);
    /// Turns the guest's floating-point and vector units on.
    fn load_units(&mut self, vcpu: &mut Vcpu);
    /// Takes the interrupts of the physical CPU.
    fn host_interrupt(&mut self, estat: u64) -> Resume;
    /// The stable counter.
    fn ticks(&self) -> u64;
    /// Clears RAM of the VM's that nobody has used yet.
    fn clear(&self, hpa: Hpa, bytes: u64);
    /// Passes on a byte of the VM's console.
    fn console(&self, vm: &Vm, byte: u8);
}

/// Bytes of the smallest page that a guest may have. Of an access that begins
/// in RAM and ends in a device, it is the second page that faults.
const LEAST_PAGE: u64 = 4096;

/// Handles an exit. The frequent kinds have a path of their own; what it
/// does is what `handle_any` does.
#[inline(always)]
pub fn handle(vcpu: &mut Vcpu, info: ExitInfo, hardware: &mut impl Hardware) -> Resume {
    const GSPR: u64 = Ecode::Gspr.number();
    const HVC: u64 = Ecode::Hvc.number();
    const PIL: u64 = Ecode::Pil.number();
    match info.ecode() {
        GSPR => sensitive(vcpu, info.word(), hardware),
        HVC => call(vcpu, info.hypercall(), hardware),
        PIL => {
            let gpa = Gpa::new(info.badv);
            let outcome = memory(vcpu, gpa, AccessKind::Load, info.word(), hardware);
            finish(vcpu, outcome, hardware)
        }
        // Taken apart: three registers, where a reference would be to memory.
        _ => handle_any(vcpu, info.estat, info.badv, info.badi, hardware),
    }
}

/// Handles an exit of any kind. It saves no register for the one that ends
/// each time slice.
#[inline(never)]
fn handle_any(
    vcpu: &mut Vcpu,
    estat: u64,
    badv: u64,
    badi: u64,
    hardware: &mut impl Hardware,
) -> Resume {
    let info = ExitInfo { estat, badv, badi };
    if info.ecode() == Ecode::Int.number() {
        return interrupted(vcpu, estat, hardware);
    }
    handle_rare(vcpu, estat, badv, badi, hardware)
}

#[inline(never)]
fn handle_rare(
    vcpu: &mut Vcpu,
    estat: u64,
    badv: u64,
    badi: u64,
    hardware: &mut impl Hardware,
) -> Resume {
    let info = ExitInfo { estat, badv, badi };
    let outcome = match decode(&info) {
        VmExit::Sensitive(_) => return sensitive(vcpu, info.word(), hardware),
        VmExit::Hypercall(code) => return call(vcpu, code, hardware),
        VmExit::HostInterrupt => return interrupted(vcpu, info.estat, hardware),
        VmExit::Memory { gpa, kind, word } => memory(vcpu, gpa, kind, word, hardware),
        VmExit::UnitDisabled(unit) => unit_disabled(vcpu, unit, info.word(), hardware),
        VmExit::Unexpected => unexpected(vcpu, info.word()),
    };
    finish(vcpu, outcome, hardware)
}

#[inline(never)]
fn interrupted(vcpu: &Vcpu, estat: u64, hardware: &mut impl Hardware) -> Resume {
    let stats = &vcpu.shared().stats;
    if estat & Interrupt::IPI.bit() != 0 {
        stats.kicks.count();
    } else {
        stats.exit(ExitReason::HostInterrupt);
    }
    hardware.host_interrupt(estat)
}

#[cold]
fn unexpected(vcpu: &Vcpu, word: u32) -> Outcome {
    vcpu.shared().stats.exit(ExitReason::Other);
    Outcome::Fault(Exception::no_such_instruction(word))
}

/// Moves the pc as the emulation's end asks for.
#[inline(always)]
fn finish(vcpu: &mut Vcpu, outcome: Outcome, hardware: &mut impl Hardware) -> Resume {
    let pc = vcpu.context.pc;
    let (pc, resume) = match outcome {
        Outcome::Done => (pc.wrapping_add(4), Resume::Guest),
        Outcome::Then(resume) => (pc.wrapping_add(4), resume),
        Outcome::Again => (pc, Resume::Guest),
        Outcome::Retry => (pc, Resume::Yield(Yield::Retry)),
        Outcome::Fault(exception) => (hardware.inject(pc, &exception), Resume::Guest),
    };
    vcpu.context.pc = pc;
    resume
}

#[inline(always)]
fn sensitive(vcpu: &mut Vcpu, word: u32, hardware: &mut impl Hardware) -> Resume {
    if insn::is_idle(word) {
        let outcome = idle(vcpu, hardware);
        return finish(vcpu, outcome, hardware);
    }
    if insn::is_privileged(word) {
        return privileged(vcpu, word, hardware);
    }
    let reason = match decode_sensitive(word) {
        Some(Insn::Cpucfg { rd, rj }) => {
            let word = vcpu.vm().cpucfg.read(vcpu.context.gprs.get(rj));
            vcpu.context.gprs.set(rd, u64::from(word));
            ExitReason::Cpucfg
        }
        Some(Insn::Csr { op, csr, rd }) => {
            vcpu.soft.emulate(&mut vcpu.context.gprs, op, csr, rd);
            ExitReason::Csr
        }
        _ => {
            let outcome = unexpected(vcpu, word);
            return finish(vcpu, outcome, hardware);
        }
    };
    vcpu.shared().stats.exit(reason);
    finish(vcpu, Outcome::Done, hardware)
}

/// What the short cuts leave of the IOCSR accesses, and `cacop`. Apart from
/// the others: what it needs in registers would be got ready for all.
#[inline(never)]
fn privileged(vcpu: &mut Vcpu, word: u32, hardware: &mut impl Hardware) -> Resume {
    let reason = match decode_sensitive(word) {
        Some(Insn::IocsrRead { width, rd, rj }) => {
            let offset = vcpu.context.gprs.get(rj) as u32;
            let value = iocsr::read(vcpu.vm(), vcpu.shared(), offset, width);
            vcpu.context.gprs.set(rd, width.sign_extend(value));
            ExitReason::Iocsr
        }
        Some(Insn::IocsrWrite { width, rd, rj }) => {
            let gprs = &vcpu.context.gprs;
            let (offset, value) = (gprs.get(rj) as u32, gprs.get(rd));
            iocsr::write(vcpu.vm(), vcpu.shared(), offset, width, value, hardware);
            ExitReason::Iocsr
        }
        // The hardware carries out the harmless ones; the guest's caches are
        // coherent without the others.
        Some(Insn::Cacop { .. }) => ExitReason::Cacop,
        _ => {
            let outcome = unexpected(vcpu, word);
            return finish(vcpu, outcome, hardware);
        }
    };
    vcpu.shared().stats.exit(reason);
    finish(vcpu, Outcome::Done, hardware)
}

fn idle(vcpu: &mut Vcpu, hardware: &mut impl Hardware) -> Outcome {
    vcpu.shared().stats.exit(ExitReason::Idle);
    if hardware.pending() != 0 {
        return Outcome::Done;
    }
    vcpu.waiting = true;
    Outcome::Then(Resume::Yield(Yield::Sleep))
}

/// What a hypercall can reach, of a vCPU whose registers it changes.
struct CallEnv<'a, N> {
    vm: &'a Vm,
    shared: &'a VcpuShared,
    steal: &'a StealClock,
    notifier: &'a N,
}

impl<N: Hardware> hypercall::Env for CallEnv<'_, N> {
    fn features(&self) -> PvFeatures {
        self.vm.cpucfg.features()
    }

    fn stats(&self) -> &Stats {
        &self.shared.stats
    }

    fn controls(&self) -> bool {
        self.vm.control
    }

    fn stolen(&self) -> u64 {
        nanoseconds(self.shared.stats.stolen.get(), self.vm.clock.time.hz)
    }

    fn stop(&self, reason: StopReason) {
        self.vm.stop(reason, self.notifier);
    }

    fn name_steal_record(&self, a2: u64) -> Result<(), CallError> {
        let clear = |hpa, bytes| self.notifier.clear(hpa, bytes);
        self.vm.populate(Gpa::new(a2), clear);
        let hold = |gpa, bytes| self.vm.hold(self.shared, gpa, bytes);
        self.steal.name(a2, hold)?;
        if !self.steal.is_named() {
            self.vm.let_go(self.shared);
        }
        Ok(())
    }

    fn change_memory(
        &self,
        request: Request,
        address: u64,
        bytes: u64,
    ) -> Result<Progress, CallError> {
        let range = PageRange::new(&self.vm.ram, address, bytes);
        let range = range.ok_or(CallError::InvalidParameter)?;
        let clear = |hpa, bytes| self.notifier.clear(hpa, bytes);
        self.vm
            .change_memory(self.shared, request, range, self.notifier, clear)
    }

    fn move_vcpu(&self, id: u64, place: u64) -> Result<(), CallError> {
        let cpu = usize::try_from(place).ok();
        let cpu = cpu.and_then(|place| self.vm.cpus().get(place));
        let cpu = *cpu.ok_or(CallError::InvalidParameter)?;
        let moved = self.vm.move_vcpu(id, cpu, self.notifier);
        moved.map_err(|_| CallError::InvalidParameter)
    }

    fn raise_swi0(&self, physical_id: u64) {
        if let Some(target) = self.vm.by_id(physical_id) {
            let line = Posts::interrupts(Interrupt::SWI0.bit());
            target.post(line, self.notifier);
        }
    }
}

#[inline(always)]
fn call(vcpu: &mut Vcpu, code: u16, hardware: &mut impl Hardware) -> Resume {
    let plv = hardware.privilege();
    let Vcpu {
        context,
        vm,
        shared,
        steal,
        ..
    } = vcpu;
    let env = CallEnv {
        vm,
        shared,
        steal,
        notifier: hardware,
    };
    let outcome = hypercall::call(&env, &mut context.gprs, code, plv);
    finish(vcpu, outcome, hardware)
}

#[cold]
fn unit_disabled(vcpu: &mut Vcpu, unit: Unit, word: u32, hardware: &mut impl Hardware) -> Outcome {
    vcpu.shared().stats.exit(ExitReason::UnitDisabled);
    let [float, lsx, lasx] = vcpu.vm().cpucfg.units();
    let offered = match unit {
        Unit::Float => float,
        Unit::Lsx => lsx,
        Unit::Lasx => lasx,
        Unit::Lbt => false,
    };
    if offered && !vcpu.units_loaded {
        hardware.load_units(vcpu);
        return Outcome::Again;
    }
    Outcome::Fault(Exception::no_such_instruction(word))
}

#[inline(always)]
fn memory(
    vcpu: &mut Vcpu,
    gpa: Gpa,
    kind: AccessKind,
    word: u32,
    hardware: &mut impl Hardware,
) -> Outcome {
    // Devices first: RAM is mapped before it is used.
    let Vcpu { context, vm, .. } = vcpu;
    let Some(place) = vm.mmio.place(gpa) else {
        return no_device(vcpu, gpa, kind, word, hardware);
    };
    let access = mmio::Access::decode(word, kind, &context.gprs);
    let Some(access) = access.filter(|access| access.bytes() <= place.left) else {
        return bad_access(vcpu, gpa, kind, word);
    };
    let Place { device, offset, .. } = place;
    if offset == 0 && begins_before(gpa, word, &context.gprs) {
        return bad_access(vcpu, gpa, kind, word);
    }
    vcpu.shared.stats.exit(ExitReason::Mmio);
    match access {
        mmio::Access::Load { width, signed, rd } => {
            let value = device::load(vm, device, offset, width, hardware);
            mmio::complete(&mut context.gprs, rd, width, signed, value);
            Outcome::Done
        }
        mmio::Access::Store { width, value } => {
            match device::store(vm, device, offset, width, value, hardware) {
                None => Outcome::Done,
                Some(reason) => {
                    vm.stop(reason, hardware);
                    Outcome::Then(Resume::Stop)
                }
            }
        }
    }
}

/// Whether the access of instruction `word`, which faulted at `gpa`, has begun
/// in the page before.
#[cold]
fn begins_before(gpa: Gpa, word: u32, gprs: &Gprs) -> bool {
    gpa.is_aligned(LEAST_PAGE) && !insn::address(word, gprs).is_multiple_of(LEAST_PAGE)
}

/// The guest's own fault: it accessed what can't be accessed so.
#[cold]
fn bad_access(vcpu: &Vcpu, gpa: Gpa, kind: AccessKind, word: u32) -> Outcome {
    vcpu.shared().stats.exit(ExitReason::Mmio);
    address_error(vcpu, gpa, kind, word)
}

/// The exception for an access that nothing answers.
fn address_error(vcpu: &Vcpu, gpa: Gpa, kind: AccessKind, word: u32) -> Outcome {
    Outcome::Fault(match kind {
        AccessKind::Fetch => Exception::bad_fetch(vcpu.context.pc, word),
        _ => Exception::bad_address(gpa.get(), word),
    })
}

/// A fault where no device is.
#[cold]
fn no_device(
    vcpu: &Vcpu,
    gpa: Gpa,
    kind: AccessKind,
    word: u32,
    hardware: &mut impl Hardware,
) -> Outcome {
    if vcpu.vm().ram.find(gpa, 1).is_some() {
        ram_fault(vcpu, gpa, kind, word, hardware)
    } else {
        bad_access(vcpu, gpa, kind, word)
    }
}

/// A fault on the VM's own RAM: its first use, a TLB entry from before the
/// page was mapped, or an access that the mapping doesn't allow.
#[cold]
fn ram_fault(
    vcpu: &Vcpu,
    gpa: Gpa,
    kind: AccessKind,
    word: u32,
    hardware: &mut impl Hardware,
) -> Outcome {
    vcpu.shared().stats.exit(ExitReason::Memory);
    vcpu.vm()
        .populate(gpa, |hpa, bytes| hardware.clear(hpa, bytes));
    let mapping = vcpu.vm().stage2().lock().translate(gpa);
    let allowed = mapping.is_some_and(|mapping| match kind {
        AccessKind::Load => true,
        AccessKind::Store => mapping.access.write,
        AccessKind::Fetch => mapping.access.execute,
    });
    if allowed {
        hardware.forget(vcpu, gpa);
        return Outcome::Again;
    }
    address_error(vcpu, gpa, kind, word)
}

#[cfg(test)]
mod tests;
