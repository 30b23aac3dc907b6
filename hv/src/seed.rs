//! Seeds for the guests' random pools.
//!
//! The machine's firmware gives a seed; each guest gets another one made of
//! it, so that none can tell from its own what the others got, nor two boots
//! of one VM get the same. LoongArch has no instruction for random numbers:
//! where firmware gives no seed, guests get none, rather than one that could
//! be guessed and that their kernels would believe in.

use sha2::{Digest, Sha256};
use spin::Mutex;

/// Bytes of a seed.
pub const BYTES: usize = 32;

/// Less than this is no seed, in bytes.
const LEAST: usize = 16;

static POOL: Mutex<Option<Pool>> = Mutex::new(None);

/// What seeds are made of.
#[derive(Debug)]
struct Pool {
    secret: [u8; BYTES],
    count: u64,
}

impl Pool {
    /// A pool from these seeds and a number that differs from boot to boot;
    /// `None` where there isn't enough in them.
    fn new(seeds: &[&[u8]], salt: u64) -> Option<Self> {
        let enough = seeds.iter().any(|seed| seed.len() >= LEAST);
        let mut hash = Sha256::new();
        for seed in seeds {
            hash.update((seed.len() as u64).to_le_bytes());
            hash.update(seed);
        }
        hash.update(salt.to_le_bytes());
        enough.then(|| Self {
            secret: hash.finalize().into(),
            count: 0,
        })
    }

    /// The next seed. The secret changes too, so that who gets hold of it
    /// can't tell earlier seeds.
    fn next(&mut self) -> [u8; BYTES] {
        let derive = |label: &[u8], count: u64| {
            let mut hash = Sha256::new();
            hash.update(label);
            hash.update(self.secret);
            hash.update(count.to_le_bytes());
            hash.finalize().into()
        };
        let seed = derive(b"guest", self.count);
        self.secret = derive(b"next", self.count);
        self.count = self.count.wrapping_add(1);
        seed
    }
}

/// Takes firmware's seeds, and a number that differs from boot to boot.
pub fn set_up(seeds: &[&[u8]], salt: u64) {
    let pool = Pool::new(seeds, salt);
    if pool.is_none() {
        log::warn!("firmware gives no seed: guests get none");
    }
    *POOL.lock() = pool;
}

/// A seed for a guest, unlike all others; `None` where firmware gave none.
#[must_use]
pub fn next() -> Option<[u8; BYTES]> {
    POOL.lock().as_mut().map(Pool::next)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_seeds_are_alike() {
        let mut seen = std::collections::BTreeSet::new();
        for (first, salt) in [(1, 0), (1, 1), (2, 0)] {
            let mut pool = Pool::new(&[&[first; 32], &[]], salt).unwrap();
            for _ in 0..4 {
                assert!(seen.insert(pool.next()));
            }
        }
    }

    #[test]
    fn a_pool_of_nothing_gives_nothing() {
        assert!(Pool::new(&[], 7).is_none());
        assert!(Pool::new(&[&[1; 15], &[]], 7).is_none());
    }
}
