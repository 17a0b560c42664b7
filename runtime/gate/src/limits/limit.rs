//! A limit as it is declared and as it is shown: plain data.

use std::ops::RangeInclusive;
use std::time::Duration;

use crate::error::Error;
use crate::limits::urgency::Urgency;
use crate::path::KeyPattern;

/// How many requests a limit lets through.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rate {
    /// Requests at once, after a pause.
    pub burst: f64,
    /// Requests per second in the long run.
    pub per_second: f64,
}

impl Rate {
    /// The rate of a limit without declared numbers: so high that it holds nothing back until the cloud refuses.
    pub(crate) const UNDECLARED: Self = Self { burst: 10_000.0, per_second: 10_000.0 };

    /// The lower of both, number by number.
    pub(crate) fn least(self, other: Self) -> Self {
        let Self { burst, per_second } = other;
        Self { burst: self.burst.min(burst), per_second: self.per_second.min(per_second) }
    }
}

/// A limit with its numbers, as a provider declares it or an operator tightens it.
#[derive(Debug, Clone, PartialEq)]
pub struct Limit {
    pub(super) key: KeyPattern,
    pub(super) rate: Rate,
}

impl Limit {
    /// The valid bursts.
    pub const BURSTS: RangeInclusive<u32> = 1..=1_000_000;
    /// The valid rates, in requests per second.
    pub const RATES: RangeInclusive<f64> = 0.001..=100_000.0;

    /// A limit with this key, this many requests at once and this many per second in the long run.
    ///
    /// # Errors
    /// [`Error::Syntax`] for a key that is not valid, and for numbers outside [`Self::BURSTS`] and [`Self::RATES`].
    pub fn new(key: &str, burst: u32, per_second: f64) -> Result<Self, Error> {
        let wrong = |cause| Error::Syntax {
            kind: "limit",
            text: key.to_owned(),
            cause,
            example: "a burst of 200 and 10 per second",
        };
        if !Self::BURSTS.contains(&burst) {
            return Err(wrong("has a burst that isn't in 1 to 1000000"));
        }
        if !Self::RATES.contains(&per_second) {
            return Err(wrong("has a rate that isn't in 0.001 to 100000 per second"));
        }
        Ok(Self { key: key.parse()?, rate: Rate { burst: f64::from(burst), per_second } })
    }

    /// Its key.
    pub fn key(&self) -> &KeyPattern {
        &self.key
    }

    /// How many requests it lets through.
    pub fn rate(&self) -> Rate {
        self.rate
    }

    /// Whether both are for the same requests: the numbers in a key refer to the path of a rule, and do not tell limits
    /// apart.
    pub fn is_the_same_as(&self, other: &Self) -> bool {
        self.key.name() == other.key.name()
    }
}

/// The state of one limit at some time.
#[derive(Debug, Clone, PartialEq)]
pub struct LimitState {
    /// Its key.
    pub key: String,
    /// The rate that the provider declares.
    pub declared: Option<Rate>,
    /// The rate that the operator allows.
    pub configured: Option<Rate>,
    /// The rate that the cloud has shown to take, if it is lower; of several buckets the slowest.
    pub learned: Option<Rate>,
    /// The rate in force: the lowest of these, or so high that it holds nothing back.
    pub rate: Rate,
    /// The requests that it would let through at once if it were not paused; of several buckets the emptiest.
    pub tokens: f64,
    /// The number of its buckets.
    pub buckets: usize,
    /// The remaining pause after a refusal of the cloud; of several buckets the longest.
    pub paused_for: Option<Duration>,
}

/// The state of all limits of a provider at some time.
#[derive(Debug, Clone, PartialEq)]
pub struct LimitsState {
    /// Each limit.
    pub limits: Vec<LimitState>,
    /// The number of resources that are paused on their own.
    pub paused_resources: usize,
    /// The number of requests that wait, the most urgent first.
    pub waiting: [(Urgency, usize); 3],
    /// The memory that these take, in bytes.
    pub waiting_bytes: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_numbers_are_rejected() {
        for (burst, per_second) in
            [(0, 1.0), (1_000_001, 1.0), (1, 0.0), (1, -1.0), (1, f64::NAN), (1, f64::INFINITY), (1, 1e6)]
        {
            assert!(Limit::new("reads", burst, per_second).is_err(), "{burst} {per_second}");
        }
        assert!(Limit::new("reads/{", 1, 1.0).is_err());
        assert!(Limit::new("reads", 1, 0.001).is_ok());
    }
}
