//! Whether there is a hypervisor, and what it offers.
//!
//! The words that say so lie where silicon may have words of its own one day,
//! so they mean something only once IOCSR has said that this machine is
//! virtual.
//!
//! Source: Linux, kernel/cpu-probe.c (the order of the questions) and
//! kernel/paravirt.c.

use crate::abi::cpucfg::{FEATURES, PvFeatures, SIGNATURE, SIGNATURE_VALUE};
use crate::abi::iocsr::{self, Features};
use crate::machine::Machine;

/// What the hypervisor offers: nothing where there is none, or none that
/// speaks KVM's ABI.
#[must_use]
pub fn features(machine: &impl Machine) -> PvFeatures {
    let platform = Features::from_bits_retain(machine.iocsr_read32(iocsr::FEATURES).into());
    if platform.contains(Features::VM) && machine.cpucfg(SIGNATURE) == SIGNATURE_VALUE {
        PvFeatures::from_bits_truncate(machine.cpucfg(FEATURES))
    } else {
        PvFeatures::empty()
    }
}
