//! Random numbers that are the same for the same seed, so that a run with faults can be repeated.

/// A random number generator: SplitMix64, which is uniform enough for shares and needs eight lines.
#[derive(Clone, Debug)]
pub struct Random {
    state: u64,
}

impl Random {
    /// The generator of this seed.
    pub fn seeded(seed: u64) -> Self {
        Self { state: seed }
    }

    /// The next number, uniformly distributed.
    pub fn number(&mut self) -> u32 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.state;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^= bits >> 31;
        let [a, b, c, d, ..] = bits.to_be_bytes();
        u32::from_be_bytes([a, b, c, d])
    }

    /// The next number from 0 up to but not including 1, uniformly distributed.
    pub fn share(&mut self) -> f64 {
        // 32 bits fit a double exactly and are finer than any useful share.
        f64::from(self.number()) / 4_294_967_296.0
    }
}
