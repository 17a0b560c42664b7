//! Randomness that spreads work and names processes. No secret is made of it.

use std::hash::{BuildHasher as _, RandomState};

/// Returns a number from 0 to 1 that spreads retries. It is keyed at random, so that replicas don't retry in step.
pub(crate) fn jitter() -> f64 {
    f64::from(u32::try_from(random() >> 96).unwrap_or_default()) / f64::from(u32::MAX)
}

/// Returns a number that is as random as the keys of hash maps.
pub(crate) fn random() -> u128 {
    let keys = RandomState::new();
    u128::from(keys.hash_one(0_u8)) << 64 | u128::from(keys.hash_one(1_u8))
}
