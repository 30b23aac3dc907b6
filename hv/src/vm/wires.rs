//! How an interrupt gets from a device to a vCPU.
//!
//! Device, PCH-PIC, EIOINTC and vCPU know only the next one's trait; here
//! they are joined. Nothing here keeps state.

use super::{Notifier, Vm};
use crate::dev::iocsr::eiointc::Targets;
use crate::dev::irq_line::{EiointcVector, Hwi, IrqLine, PchPicInput};
use crate::dev::pch_pic::Vectors;
use crate::vcpu::postbox::Posts;

/// The wires of a VM.
#[derive(Clone, Copy)]
pub struct Wires<'a, N> {
    /// The VM.
    pub vm: &'a Vm,
    /// Tells the vCPUs' CPUs.
    pub notifier: &'a N,
}

impl<N: Notifier> Targets for Wires<'_, N> {
    fn changed(&self, cpu: u32, hwi: Hwi) {
        if let Some(target) = self.vm.by_id(cpu.into()) {
            target.post(Posts::interrupts(hwi.interrupt().bit()), self.notifier);
        }
    }
}

impl<N: Notifier> Vectors for Wires<'_, N> {
    fn set(&self, vector: EiointcVector, high: bool) {
        self.vm.eiointc.set(vector, high, self);
    }
}

/// A device's wire to an input of PCH-PIC.
pub struct Input<'a, N> {
    /// The wires that it is one of.
    pub wires: Wires<'a, N>,
    /// Where it ends; `None` where it leads nowhere.
    pub input: Option<PchPicInput>,
}

impl<N: Notifier> IrqLine for Input<'_, N> {
    fn set(&self, high: bool) {
        let Wires { vm, .. } = self.wires;
        if let Some(input) = self.input {
            vm.pch_pic.set(input, high, &self.wires);
        }
    }
}
