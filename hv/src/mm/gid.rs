//! Guest identifiers: which TLB entries belong to which vCPU.
//!
//! Each physical CPU gives the vCPUs that it runs an identifier out of a
//! small number, and every entry in its TLB carries one. When they have all
//! been given the CPU forgets its whole TLB and starts again: a generation
//! number tells which leases are older than that. 0 is the host's.
//!
//! Source: GSTAT.GIDBIT and the identifier's use in arch/loongarch/kvm/main.c
//! of Linux 7.2.

/// An identifier, never 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gid(u16);

impl Gid {
    /// The number, 1 to 2^GIDBIT − 1.
    #[must_use]
    pub const fn number(self) -> u16 {
        self.0
    }
}

/// An identifier with what it takes to tell whether it still holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The identifier.
    pub gid: Gid,
    generation: u64,
    cpu: u32,
}

/// A fresh identifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "the TLB may have to be flushed first"]
pub struct Renewal {
    /// What the vCPU runs with from now on.
    pub lease: Lease,
    /// Every entry of every guest on this CPU must be invalidated first.
    pub flush_all: bool,
}

/// The identifiers of one physical CPU.
#[derive(Debug)]
pub struct GidPool {
    cpu: u32,
    last: u16,
    next: u16,
    generation: u64,
}

impl GidPool {
    /// Identifiers of `bits` bits (GSTAT.GIDBIT) for the physical CPU `cpu`.
    /// `None` where that isn't 1 to 16 bits: there is none to give.
    #[must_use]
    pub const fn new(cpu: u32, bits: u32) -> Option<Self> {
        if bits == 0 || bits > 16 {
            return None;
        }
        Some(Self {
            cpu,
            last: (u16::MAX) >> (16 - bits),
            next: 1,
            generation: 1,
        })
    }

    /// Whether a vCPU may go on with `lease` on this CPU.
    #[must_use]
    pub fn holds(&self, lease: Option<Lease>) -> bool {
        lease.is_some_and(|l| l.cpu == self.cpu && l.generation == self.generation)
    }

    /// Gives an identifier that no entry of this CPU's TLB carries, once the
    /// flush it may ask for has been done.
    pub const fn renew(&mut self) -> Renewal {
        let flush_all = self.next > self.last || self.next == 0;
        if flush_all {
            self.generation += 1;
            self.next = 1;
        }
        let gid = Gid(self.next);
        self.next = self.next.wrapping_add(1);
        Renewal {
            lease: Lease {
                gid,
                generation: self.generation,
                cpu: self.cpu,
            },
            flush_all,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zero_is_never_given_and_a_wrap_flushes() {
        for bits in 1..=16 {
            let mut pool = GidPool::new(0, bits).unwrap();
            let guests = (1u32 << bits) - 1;
            for round in 0..2 {
                for number in 1..=guests {
                    let renewal = pool.renew();
                    assert_eq!(u32::from(renewal.lease.gid.number()), number);
                    assert_eq!(renewal.flush_all, round > 0 && number == 1);
                }
            }
        }
    }

    #[test]
    fn leases_end_with_their_generation() {
        let mut pool = GidPool::new(3, 1).unwrap();
        let first = pool.renew().lease;
        assert!(pool.holds(Some(first)));
        let second = pool.renew();
        assert!(second.flush_all);
        assert_eq!(second.lease.gid, first.gid);
        assert!(!pool.holds(Some(first)) && pool.holds(Some(second.lease)));
    }

    #[test]
    fn leases_are_good_for_one_cpu() {
        let lease = GidPool::new(0, 8).unwrap().renew().lease;
        assert!(!GidPool::new(1, 8).unwrap().holds(Some(lease)));
        assert!(!GidPool::new(0, 8).unwrap().holds(None));
    }

    #[test]
    fn widths_without_an_identifier_are_refused() {
        assert!(GidPool::new(0, 0).is_none() && GidPool::new(0, 17).is_none());
    }
}
