//! Random numbers from a seed, so that any run can be repeated.

/// A generator (splitmix64): every seed, also 0, gives a full period.
#[derive(Clone)]
pub struct Rng(u64);

impl Rng {
    /// A generator for this seed; `stream` keeps CPUs and checks apart.
    pub const fn new(seed: u64, stream: u64) -> Rng {
        Rng(seed.wrapping_mul(0xff51_afd7_ed55_8ccd) ^ stream.wrapping_mul(0x2545_f491_4f6c_dd1d))
    }

    /// The next 64 random bits.
    pub const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A random number below `limit` (1 or more).
    pub const fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }
}
