//! The machine's extended I/O interrupt controller, for the one device whose
//! interrupt the hypervisor takes: the console.
//!
//! Source: Loongson 3A5000 manual, chapter on extended I/O interrupts; the
//! node map's values as in Linux, drivers/irqchip/irq-loongson-eiointc.c.

use crate::arch::iocsr;
use crate::dev::irq_line::EiointcVector;
use crate::isa::csr_exchange;
use crate::isa::exception::Interrupt;
use guest_pv::abi::iocsr::{
    EIOINTC_CORE_ISR, EIOINTC_CORE_MAP, EIOINTC_ENABLE, EIOINTC_IP_MAP, EIOINTC_NODE_MAP,
    MISC_EXT_IOI_EN, MISC_EXT_IOI_INT_ENCODE, MISC_FUNC,
};

/// The line that every vector raises: firmware and Linux leave HWI0 to the
/// legacy controller.
pub const LINE: Interrupt = Interrupt::hwi(1);
/// [`LINE`] for a group of 32 vectors, as the IP map has it: HWI0 is bit 0.
const LINE_OF_GROUP: u32 = 1 << 1;
/// CPUs of a node.
const NODE_CPUS: u32 = 4;
/// 32-bit registers of the node map.
const NODE_MAPS: u32 = 8;

/// Disables every vector, and forgets those that are pending for this CPU, of
/// the controller that it shares with its node.
pub fn silence() {
    for map in 0..NODE_MAPS {
        // SAFETY: firmware's interrupts, which nobody waits for any more.
        unsafe {
            iocsr::write_32(EIOINTC_ENABLE + 4 * map, 0);
            iocsr::write_32(EIOINTC_CORE_ISR + 4 * map, u32::MAX);
        }
    }
}

/// Turns the controller on, with no vector enabled or pending, and lets its line reach
/// this CPU.
pub fn set_up() {
    silence();
    // SAFETY: no vector is enabled here, and the line only ends `idle` or a
    // stay in the guest.
    unsafe {
        // Lines as sets, whatever firmware has chosen.
        let others = iocsr::read_64(MISC_FUNC) & !MISC_EXT_IOI_INT_ENCODE;
        iocsr::write_64(MISC_FUNC, others | MISC_EXT_IOI_EN);
        for map in 0..NODE_MAPS {
            let value = 1 << (2 * map + 1) << 16 | 1 << (2 * map);
            iocsr::write_32(EIOINTC_NODE_MAP + 4 * map, value);
        }
        for groups in 0..2 {
            let four = LINE_OF_GROUP * 0x0101_0101;
            iocsr::write_32(EIOINTC_IP_MAP + 4 * groups, four);
        }
        csr_exchange!(ECFG, LINE.bit(), LINE.bit());
    }
}

/// Routes `vector` to CPU `cpu`, and enables it.
pub fn enable(vector: EiointcVector, cpu: u32) {
    let number = u32::from(vector.number());
    let (map, shift) = (EIOINTC_CORE_MAP + (number & !3), number % 4 * 8);
    let route = (cpu / NODE_CPUS) << 4 | 1 << (cpu % NODE_CPUS);
    let (enable, bit) = register(EIOINTC_ENABLE, number);
    // SAFETY: the CPU takes the interrupt by its line, as `set_up` says.
    unsafe {
        let others = iocsr::read_32(map) & !(0xff << shift);
        iocsr::write_32(map, others | (route & 0xff) << shift);
        iocsr::write_32(enable, iocsr::read_32(enable) | bit);
    }
}

/// Acknowledges `vector` on this CPU.
pub fn acknowledge(vector: EiointcVector) {
    let (register, bit) = register(EIOINTC_CORE_ISR, vector.number().into());
    // SAFETY: whoever handles the vector looks at its device afterwards.
    unsafe { iocsr::write_32(register, bit) };
}

/// The 32-bit register and the bit of vector `number` in an array of bits.
const fn register(array: u32, number: u32) -> (u32, u32) {
    (array + number / 32 * 4, 1 << (number % 32))
}
