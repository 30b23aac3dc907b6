//! The target of message-signalled interrupts: writing a vector raises it.
//!
//! Threats: only vectors of the range that is set apart for messages can be
//! raised; any other value is dropped. Not emulated: nothing; the one
//! register reads 0.
//!
//! Source: Loongson 7A1000 manual, chapter on the interrupt controller;
//! Linux, drivers/irqchip/irq-loongson-pch-msi.c.

use crate::dev::irq_line::EiointcVector;
use crate::dev::layout::MSI_VECTORS;

/// The vector that a write of `value` at `offset` raises, if any.
#[must_use]
pub fn vector(offset: u64, value: u64) -> Option<EiointcVector> {
    let vector = EiointcVector::new(u8::try_from(value).ok()?);
    (offset == 0 && MSI_VECTORS.contains(&vector)).then_some(vector)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_vectors_for_messages_are_raised() {
        for value in 64..256 {
            let raised = vector(0, value).map(EiointcVector::number);
            assert_eq!(raised, Some(value as u8));
        }
        for value in [0, 63, 256, 0x1_0040, u64::MAX] {
            assert_eq!(vector(0, value), None, "{value:#x}");
        }
        assert_eq!(vector(4, 64), None);
    }
}
