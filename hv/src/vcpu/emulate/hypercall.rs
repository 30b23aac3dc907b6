//! `hvcl`: calls of the guest to the hypervisor.
//!
//! A call from guest user mode, with a code or function that isn't offered,
//! is refused and has no effect.
//!
//! Source: platform ABI in `guest_pv::abi`; what is done where from
//! `kvm_handle_service` of Linux 7.2, arch/loongarch/kvm/exit.c.

use super::Outcome;
use crate::isa::gpr::{Gpr, Gprs};
use crate::mm::pte::Access;
use crate::stats::Stats;
use crate::vcpu::{Resume, StopReason};
use crate::vm::memory::{Progress, Request};
use guest_pv::abi::cpucfg::PvFeatures;
use guest_pv::abi::hypercall::{
    CODE_SERVICE, CallError, IPI_SET_BITS, NOTIFY, NOTIFY_STEAL_TIME, SEND_IPI, SUCCESS,
};
use guest_pv::abi::vendor::{self, ExitReason};

/// What a call can reach.
pub trait Env {
    /// The features that the VM is offered.
    fn features(&self) -> PvFeatures;
    /// The caller's counters.
    fn stats(&self) -> &Stats;
    /// How long the caller was ready while another vCPU had its CPU, in ns.
    fn stolen(&self) -> u64;
    /// Stops the VM.
    fn stop(&self, reason: StopReason);
    /// The caller names its steal-time record, as a2 of the call does.
    ///
    /// # Errors
    /// It can't be one.
    fn name_steal_record(&self, a2: u64) -> Result<(), CallError>;
    /// Whether the VM may change its own memory and where its vCPUs run.
    fn controls(&self) -> bool;
    /// Brings `bytes` bytes at the guest physical address `address` into a
    /// state.
    ///
    /// # Errors
    /// They can't be brought there, or aren't whole pages of RAM.
    fn change_memory(
        &self,
        request: Request,
        address: u64,
        bytes: u64,
    ) -> Result<Progress, CallError>;
    /// Moves the vCPU with this physical id to this one of its VM's CPUs.
    ///
    /// # Errors
    /// There is no such vCPU or CPU.
    fn move_vcpu(&self, physical_id: u64, place: u64) -> Result<(), CallError>;
    /// Raises SWI0 on the vCPU with this physical id, if there is one.
    fn raise_swi0(&self, physical_id: u64);
}

/// Carries out a call with `code`, made at privilege level `plv`.
#[inline(always)]
pub fn call(env: &impl Env, gprs: &mut Gprs, code: u16, plv: u64) -> Outcome {
    if plv != 0 || code != CODE_SERVICE {
        return answer(gprs, refuse(env));
    }
    match gprs.get(Gpr::A0) {
        SEND_IPI if env.features().contains(PvFeatures::IPI) => {
            env.stats().call(SEND_IPI);
            let set = u128::from(gprs.get(Gpr::A1)) | u128::from(gprs.get(Gpr::A2)) << 64;
            send_ipi(env, set, gprs.get(Gpr::A3));
        }
        vendor::NULL_GENERAL => env.stats().call(vendor::NULL_GENERAL),
        function => return rare(env, function, gprs),
    }
    gprs.set(Gpr::A0, SUCCESS);
    Outcome::Done
}

#[inline(always)]
fn answer(gprs: &mut Gprs, result: Result<u64, CallError>) -> Outcome {
    gprs.set(Gpr::A0, result.unwrap_or_else(CallError::register));
    Outcome::Done
}

/// A call that isn't offered.
fn refuse(env: &impl Env) -> Result<u64, CallError> {
    env.stats().call(0);
    Err(CallError::InvalidCode)
}

#[cold]
fn rare(env: &impl Env, function: u64, gprs: &mut Gprs) -> Outcome {
    let result = match function {
        vendor::STOP => {
            env.stats().call(vendor::STOP);
            env.stop(StopReason::Asked(gprs.get(Gpr::A1)));
            return Outcome::Then(Resume::Stop);
        }
        vendor::MEMORY_RELEASE..=vendor::MOVE_VCPU if env.controls() => {
            env.stats().call(function);
            match control(env, function, gprs) {
                Ok(Progress::Wait) => return Outcome::Retry,
                Ok(Progress::Done) => Ok(SUCCESS),
                Err(refused) => Err(refused),
            }
        }
        _ => rare_service(env, function, gprs),
    };
    answer(gprs, result)
}

/// Calls by which the VM controls itself.
fn control(env: &impl Env, function: u64, gprs: &Gprs) -> Result<Progress, CallError> {
    let [a1, a2, a3] = [Gpr::A1, Gpr::A2, Gpr::A3].map(|register| gprs.get(register));
    match function {
        vendor::MEMORY_RELEASE => env.change_memory(Request::Release, a1, a2),
        vendor::MEMORY_CLAIM => env.change_memory(Request::Claim, a1, a2),
        vendor::MEMORY_PROTECT => {
            if a3 & !(vendor::PROTECT_WRITE | vendor::PROTECT_EXECUTE) != 0 {
                return Err(CallError::InvalidParameter);
            }
            let access = Access {
                write: a3 & vendor::PROTECT_WRITE != 0,
                execute: a3 & vendor::PROTECT_EXECUTE != 0,
            };
            env.change_memory(Request::Protect(access), a1, a2)
        }
        vendor::MOVE_VCPU => env.move_vcpu(a1, a2).map(|()| Progress::Done),
        _ => Err(CallError::InvalidCode),
    }
}

fn rare_service(env: &impl Env, function: u64, gprs: &Gprs) -> Result<u64, CallError> {
    let argument = gprs.get(Gpr::A1);
    match function {
        NOTIFY if env.features().contains(PvFeatures::STEAL_TIME) => {
            env.stats().call(NOTIFY);
            return notify(env, argument, gprs.get(Gpr::A2));
        }
        vendor::NULL
        | vendor::IDENTIFY
        | vendor::EXIT_COUNT
        | vendor::CALL_COUNT
        | vendor::STOLEN => {
            env.stats().call(function);
        }
        _ => return refuse(env),
    }
    match function {
        vendor::IDENTIFY => Ok(vendor::SIGNATURE),
        vendor::EXIT_COUNT => {
            let reason = ExitReason::ALL.get(usize::try_from(argument).unwrap_or(usize::MAX));
            let reason = reason.ok_or(CallError::InvalidParameter)?;
            Ok(env.stats().exits(*reason))
        }
        vendor::CALL_COUNT => {
            let count = env.stats().calls(argument);
            count.ok_or(CallError::InvalidParameter)
        }
        vendor::STOLEN => Ok(env.stolen()),
        _ => Ok(SUCCESS),
    }
}

fn notify(env: &impl Env, feature: u64, a2: u64) -> Result<u64, CallError> {
    if feature != NOTIFY_STEAL_TIME {
        return Err(CallError::InvalidCode);
    }
    env.name_steal_record(a2).map(|()| SUCCESS)
}

/// Raises SWI0 on each vCPU of `set`, whose bit 0 stands for id `base`. Ids
/// beyond 64 bits are nobody's.
fn send_ipi(env: &impl Env, set: u128, base: u64) {
    let mut left = set;
    while left != 0 {
        let bit = left.trailing_zeros();
        debug_assert!(bit < IPI_SET_BITS);
        left &= left - 1;
        if let Some(id) = base.checked_add(u64::from(bit)) {
            env.raise_swi0(id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::cell::{Cell, RefCell};
    use guest_pv::abi::hypercall::{CODE_SOFTWARE_BREAKPOINT, CODE_USER_SERVICE};

    #[derive(Default)]
    struct Fake {
        stats: Stats,
        no_features: bool,
        controls: bool,
        waits: Cell<u32>,
        changed: RefCell<Vec<(Request, u64, u64)>>,
        moved: RefCell<Vec<(u64, u64)>>,
        named: RefCell<Vec<u64>>,
        raised: RefCell<Vec<u64>>,
        stopped: RefCell<Option<StopReason>>,
    }

    impl Env for Fake {
        fn features(&self) -> PvFeatures {
            if self.no_features {
                PvFeatures::empty()
            } else {
                PvFeatures::IPI | PvFeatures::STEAL_TIME
            }
        }

        fn stats(&self) -> &Stats {
            &self.stats
        }

        fn stolen(&self) -> u64 {
            10 * self.stats.stolen.get()
        }

        fn stop(&self, reason: StopReason) {
            assert_eq!(self.stopped.replace(Some(reason)), None);
        }

        fn name_steal_record(&self, a2: u64) -> Result<(), CallError> {
            self.named.borrow_mut().push(a2);
            if a2 == 2 {
                return Err(CallError::InvalidParameter);
            }
            Ok(())
        }

        fn controls(&self) -> bool {
            self.controls
        }

        fn change_memory(
            &self,
            request: Request,
            address: u64,
            bytes: u64,
        ) -> Result<Progress, CallError> {
            if self.waits.get() > 0 {
                self.waits.set(self.waits.get() - 1);
                return Ok(Progress::Wait);
            }
            self.changed.borrow_mut().push((request, address, bytes));
            (bytes != 0)
                .then_some(Progress::Done)
                .ok_or(CallError::InUse)
        }

        fn move_vcpu(&self, physical_id: u64, place: u64) -> Result<(), CallError> {
            self.moved.borrow_mut().push((physical_id, place));
            Ok(())
        }

        fn raise_swi0(&self, physical_id: u64) {
            self.raised.borrow_mut().push(physical_id);
        }
    }

    fn make(env: &Fake, code: u16, plv: u64, arguments: [u64; 4]) -> (Outcome, u64) {
        let mut gprs = Gprs::new();
        for (register, value) in [Gpr::A0, Gpr::A1, Gpr::A2, Gpr::A3]
            .into_iter()
            .zip(arguments)
        {
            gprs.set(register, value);
        }
        let outcome = call(env, &mut gprs, code, plv);
        (outcome, gprs.get(Gpr::A0))
    }

    const MINUS_1: u64 = u64::MAX;
    const MINUS_2: u64 = u64::MAX - 1;

    #[test]
    fn ipis_reach_the_ids_of_the_set() {
        let env = Fake::default();
        let result = make(
            &env,
            CODE_SERVICE,
            0,
            [SEND_IPI, 1 | 1 << 63, 1 << 63, 1000],
        );
        assert_eq!(result, (Outcome::Done, 0));
        assert_eq!(*env.raised.borrow(), [1000, 1063, 1127]);
    }

    #[test]
    fn ids_never_wrap() {
        let env = Fake::default();
        let all = u64::MAX;
        assert_eq!(
            make(&env, CODE_SERVICE, 0, [SEND_IPI, all, all, all - 1]).1,
            0
        );
        assert_eq!(*env.raised.borrow(), [u64::MAX - 1, u64::MAX]);
    }

    #[test]
    fn what_is_not_offered_is_refused_without_effect() {
        let env = Fake {
            no_features: true,
            ..Fake::default()
        };
        for (code, plv, function) in [
            (CODE_SERVICE, 0, SEND_IPI),
            (CODE_SERVICE, 3, vendor::NULL),
            (CODE_SERVICE, 3, vendor::STOP),
            (CODE_SERVICE, 0, NOTIFY),
            (CODE_SERVICE, 0, 0),
            (CODE_SERVICE, 0, vendor::FIRST + vendor::COUNT),
            (CODE_SERVICE, 0, vendor::MEMORY_RELEASE),
            (CODE_SERVICE, 0, vendor::MOVE_VCPU),
            (CODE_SERVICE, 0, u64::MAX),
            (CODE_SOFTWARE_BREAKPOINT, 0, vendor::STOP),
            (CODE_USER_SERVICE, 0, SEND_IPI),
            (0, 0, SEND_IPI),
            (0x7fff, 0, SEND_IPI),
        ] {
            let result = make(&env, code, plv, [function, 1, 0, 0]);
            assert_eq!(
                result,
                (Outcome::Done, MINUS_1),
                "{code:#x} {plv} {function:#x}"
            );
        }
        assert!(env.raised.borrow().is_empty() && env.stopped.borrow().is_none());
    }

    #[test]
    fn notify_names_the_steal_record_and_nothing_else() {
        let env = Fake::default();
        let notify = |feature, a2| make(&env, CODE_SERVICE, 0, [NOTIFY, feature, a2, 0]).1;
        assert_eq!(notify(NOTIFY_STEAL_TIME, 0x4001), 0);
        assert_eq!(notify(NOTIFY_STEAL_TIME, 2), MINUS_2);
        for feature in [0, 1, 2, NOTIFY_STEAL_TIME | 1, 8, u64::MAX] {
            assert_eq!(notify(feature, 0x4001), MINUS_1, "{feature:#x}");
        }
        assert_eq!(
            make(&env, CODE_SERVICE, 3, [NOTIFY, 4, 0x4001, 0]).1,
            MINUS_1
        );
        assert_eq!(*env.named.borrow(), [0x4001, 2]);
        assert_eq!(env.stats.calls(NOTIFY), Some(8));
    }

    #[test]
    fn a_vm_stops_when_it_asks() {
        let env = Fake::default();
        let result = make(&env, CODE_SERVICE, 0, [vendor::STOP, 7, 0, 0]).0;
        assert_eq!(result, Outcome::Then(Resume::Stop));
        assert_eq!(env.stopped.take(), Some(StopReason::Asked(7)));
    }

    #[test]
    fn a_vm_controls_itself_where_it_may() {
        let env = Fake {
            controls: true,
            waits: Cell::new(1),
            ..Fake::default()
        };
        let release = [vendor::MEMORY_RELEASE, 0x8000, 0x4000, 0];
        let (outcome, a0) = make(&env, CODE_SERVICE, 0, release);
        // As if it had not been made.
        assert_eq!(outcome, Outcome::Retry);
        assert_eq!(a0, vendor::MEMORY_RELEASE);
        assert_eq!(make(&env, CODE_SERVICE, 0, release), (Outcome::Done, 0));
        let call = |arguments| make(&env, CODE_SERVICE, 0, arguments).1;
        assert_eq!(call([vendor::MEMORY_CLAIM, 0, 0x4000, 0]), 0);
        assert_eq!(call([vendor::MEMORY_CLAIM, 0, 0, 0]), MINUS_1 - 3);
        assert_eq!(call([vendor::MEMORY_PROTECT, 0, 0x4000, 2]), 0);
        for access in [4, 1 << 63] {
            assert_eq!(call([vendor::MEMORY_PROTECT, 0, 0x4000, access]), MINUS_2);
        }
        assert_eq!(call([vendor::MOVE_VCPU, 64, 1, 0]), 0);
        assert_eq!(
            make(&env, CODE_SERVICE, 3, [vendor::MOVE_VCPU, 5, 1, 0]).1,
            MINUS_1
        );
        let executable = Access {
            write: false,
            execute: true,
        };
        let expected = [
            (Request::Release, 0x8000, 0x4000),
            (Request::Claim, 0, 0x4000),
            (Request::Claim, 0, 0),
            (Request::Protect(executable), 0, 0x4000),
        ];
        assert_eq!(*env.changed.borrow(), expected);
        assert_eq!(*env.moved.borrow(), [(64, 1)]);
        assert_eq!(env.stats.calls(vendor::MEMORY_RELEASE), Some(2));
    }

    #[test]
    fn counters_can_be_read() {
        let env = Fake::default();
        env.stats.exit(ExitReason::Iocsr);
        let read = |function, index| make(&env, CODE_SERVICE, 0, [function, index, 0, 0]).1;
        assert_eq!(read(vendor::EXIT_COUNT, ExitReason::Iocsr as u64), 1);
        assert_eq!(read(vendor::EXIT_COUNT, 11), MINUS_2);
        assert_eq!(read(vendor::EXIT_COUNT, u64::MAX), MINUS_2);
        assert_eq!(read(vendor::CALL_COUNT, vendor::EXIT_COUNT), 3);
        assert_eq!(read(vendor::CALL_COUNT, 3), MINUS_2);
        assert_eq!(read(vendor::IDENTIFY, 0), vendor::SIGNATURE);
        env.stats.stolen.add(7);
        assert_eq!(
            (read(vendor::STOLEN, 0), env.stats.calls(vendor::STOLEN)),
            (70, Some(1))
        );
    }
}
