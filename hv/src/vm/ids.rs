//! From a physical id to its vCPU, in one load and with no search.

use super::VcpuShared;
use crate::config::MAX_PHYSICAL_ID;
use alloc::boxed::Box;
use alloc::sync::Arc;
use guest_pv::abi::hypercall::IPI_SET_BITS;

/// Which vCPU has a physical id: one load, no search.
#[derive(Debug)]
pub(super) struct PhysicalIds([u8; MAX_PHYSICAL_ID as usize]);

const NOBODY: u8 = u8::MAX;

impl PhysicalIds {
    /// The ids of a VM's vCPUs, by index.
    pub(super) fn new(ids: &[u32]) -> Self {
        let mut map = [NOBODY; MAX_PHYSICAL_ID as usize];
        for (index, &id) in (0..NOBODY).zip(ids) {
            if let Some(place) = map.get_mut(id as usize) {
                *place = index;
            }
        }
        Self(map)
    }

    /// The index of the vCPU with the id `id`.
    #[inline]
    pub(super) fn find(&self, id: u64) -> Option<usize> {
        let index = *self.0.get(usize::try_from(id).ok()?)?;
        (index != NOBODY).then_some(usize::from(index))
    }
}

/// Bits of a physical id.
pub const ID_BITS: u32 = MAX_PHYSICAL_ID.ilog2();

/// Ids that one call can name: any base id, and [`IPI_SET_BITS`] from there.
const TARGETS: usize = MAX_PHYSICAL_ID as usize + IPI_SET_BITS as usize;

/// The address of each vCPU's [`VcpuShared`] by physical id, 0 for nobody:
/// for the short cuts of the exception entry, which check no id but the base.
#[derive(Debug)]
pub struct Targets([u64; TARGETS]);

static NOBODY_AT_ALL: Targets = Targets([0; TARGETS]);

impl Targets {
    /// The addresses of `vcpus`, which live as long as this does.
    pub(super) fn new(vcpus: &[Arc<VcpuShared>]) -> Box<Self> {
        let mut targets = Box::new(Self([0; TARGETS]));
        for vcpu in vcpus {
            if let Some(place) = targets.0.get_mut(vcpu.id as usize) {
                *place = Arc::as_ptr(vcpu) as u64;
            }
        }
        targets
    }

    /// The table in which no id is anybody's.
    #[must_use]
    pub fn nobody() -> &'static Self {
        &NOBODY_AT_ALL
    }

    /// Where it is.
    #[must_use]
    pub fn address(&self) -> u64 {
        (&raw const self.0) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_found_by_id_alone() {
        let vcpus = [0, 5, 1023].map(|id| Arc::new(VcpuShared::new(id, 0, 0)));
        let targets = Targets::new(&vcpus);
        for vcpu in &vcpus {
            assert_eq!(targets.0[vcpu.id as usize], Arc::as_ptr(vcpu) as u64);
        }
        assert_eq!(targets.0.iter().filter(|address| **address != 0).count(), 3);
        assert!(targets.0.len() > (1 << ID_BITS) - 1 + 127);
    }

    #[test]
    fn physical_ids_are_no_indices() {
        let ids = PhysicalIds::new(&[0, 5, 64, 127, 1023]);
        for (id, index) in [(0, 0), (5, 1), (64, 2), (127, 3), (1023, 4)] {
            assert_eq!(ids.find(id), Some(index));
        }
        for id in [1, 4, 63, 1022, 1024, u64::MAX, 1 << 32] {
            assert_eq!(ids.find(id), None, "{id:#x}");
        }
    }
}
