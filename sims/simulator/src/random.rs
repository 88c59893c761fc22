//! Random numbers from a seed (xorshift64*): the same on every machine and in every version, which a library need not guarantee.

/// A source of numbers.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Any seed will do, 0 too.
    pub const fn new(seed: u64) -> Self {
        // Neighbouring seeds are to be far apart, and the state must not be 0 (splitmix64).
        let mut mixed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        Self((mixed ^ (mixed >> 31)) | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// From `low` to `high`, both included.
    pub fn between(&mut self, low: u32, high: u32) -> u32 {
        let span = u64::from(high.saturating_sub(low)) + 1;
        low + u32::try_from((self.next() >> 16) % span).unwrap_or(0)
    }

    /// True this many times in a thousand.
    pub fn one_in_thousand(&mut self, times: u32) -> bool {
        self.between(0, 999) < times
    }

    /// One of these.
    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> Option<&'a T> {
        let last = u32::try_from(from.len()).ok()?.checked_sub(1)?;
        from.get(self.between(0, last) as usize)
    }
}
