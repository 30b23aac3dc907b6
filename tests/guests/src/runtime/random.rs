//! Random numbers that a seed repeats.

/// Random numbers (xorshift64*): a period of 2⁶⁴ − 1 is enough here.
pub struct Random(u64);

impl Random {
    /// The numbers of `seed`.
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// Any number.
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number below `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        (self.next() >> 32) % end
    }

    /// A number whose magnitude is random too: edges are likelier.
    pub fn any(&mut self) -> u64 {
        let bits = self.next() % 65;
        let value = self.next().checked_shr(bits as u32).unwrap_or(0);
        if self.next() & 1 == 0 { value } else { !value }
    }
}
