//! A limit as it is declared and as it is shown: plain data.

use std::ops::RangeInclusive;
use std::time::Duration;

use crate::error::Error;
use crate::limits::urgency::Urgency;
use crate::path::KeyPattern;

/// How many requests a limit lets through.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rate {
    /// At once, after a pause.
    pub burst: f64,
    /// In the long run, each second.
    pub per_second: f64,
}

impl Rate {
    /// What holds where nobody declared a number: so much that it never holds anything back, until the cloud refuses.
    pub(crate) const UNDECLARED: Self = Self { burst: 10_000.0, per_second: 10_000.0 };

    /// The lesser of both.
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
    /// The bursts that anything can be done with.
    pub const BURSTS: RangeInclusive<u32> = 1..=1_000_000;
    /// The same for the requests a second in the long run.
    pub const RATES: RangeInclusive<f64> = 0.001..=100_000.0;

    /// The limit of this key, which lets through so many requests at once and so many each second in the long run.
    ///
    /// Errors: [`Error::Syntax`] for a key that isn't written as it must be, and for numbers outside
    /// [`Self::BURSTS`] and [`Self::RATES`].
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

    /// Whether both are about the same: the numbers in a key are those of the path of a rule, and don't tell limits apart.
    pub fn is_the_same_as(&self, other: &Self) -> bool {
        self.key.name() == other.key.name()
    }
}

/// What one limit is like at some time.
#[derive(Debug, Clone, PartialEq)]
pub struct LimitState {
    /// Its key.
    pub key: String,
    /// What the provider declares.
    pub declared: Option<Rate>,
    /// What the operator allows at most.
    pub configured: Option<Rate>,
    /// What the cloud has shown to let through, where that is less; of several buckets the slowest.
    pub learned: Option<Rate>,
    /// What it lets through now: the least of all these, or so much that it holds nothing back.
    pub rate: Rate,
    /// How many requests it would let through at once if it weren't closed; of several buckets the emptiest.
    pub tokens: f64,
    /// How many buckets it has at the moment.
    pub buckets: usize,
    /// For how long it is still closed, since the cloud refused; of several buckets the longest.
    pub paused_for: Option<Duration>,
}

/// What all limits of a provider are like at some time.
#[derive(Debug, Clone, PartialEq)]
pub struct LimitsState {
    /// Each limit.
    pub limits: Vec<LimitState>,
    /// How many resources are closed for themselves.
    pub paused_resources: usize,
    /// How many requests wait, from the most urgent.
    pub waiting: [(Urgency, usize); 3],
    /// What these hold in memory, in bytes.
    pub waiting_bytes: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_nothing_can_be_done_with_are_refused() {
        for (burst, per_second) in
            [(0, 1.0), (1_000_001, 1.0), (1, 0.0), (1, -1.0), (1, f64::NAN), (1, f64::INFINITY), (1, 1e6)]
        {
            assert!(Limit::new("reads", burst, per_second).is_err(), "{burst} {per_second}");
        }
        assert!(Limit::new("reads/{", 1, 1.0).is_err());
        assert!(Limit::new("reads", 1, 0.001).is_ok());
    }
}
