//! Counts calls by kind and outcome, and how many requests were in flight at once. Benchmarks and tests use the counts to check
//! that a controller makes no more calls than it should.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::call::{Kind, Outcome};

/// The counters since the start, or since they were last reset.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// The number of calls by kind and outcome. All kinds and outcomes are present, even with 0.
    pub calls: BTreeMap<Kind, BTreeMap<Outcome, u64>>,
    /// Requests that were in flight at the same time.
    pub concurrent: Concurrent,
}

/// Requests in flight at the same time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Concurrent {
    /// The current number.
    pub now: u64,
    /// The highest number.
    pub peak: u64,
}

impl Default for Counters {
    fn default() -> Self {
        let none = BTreeMap::from(Outcome::ALL.map(|outcome| (outcome, 0)));
        Self {
            calls: BTreeMap::from(Kind::ALL.map(|kind| (kind, none.clone()))),
            concurrent: Concurrent::default(),
        }
    }
}

impl Counters {
    /// Counts a request that has arrived.
    pub fn arrived(&mut self) {
        self.concurrent.now += 1;
        self.concurrent.peak = self.concurrent.peak.max(self.concurrent.now);
    }

    /// Counts the end of a request that had arrived.
    pub fn ended(&mut self, kind: Kind, outcome: Outcome) {
        self.concurrent.now = self.concurrent.now.saturating_sub(1);
        *self.calls.entry(kind).or_default().entry(outcome).or_default() += 1;
    }

    /// Resets the counters. Requests in flight stay so, and are counted when they end.
    pub fn reset(&mut self) {
        let now = self.concurrent.now;
        *self = Self { concurrent: Concurrent { now, peak: now }, ..Self::default() };
    }

    /// The number of calls of this kind with this outcome.
    pub fn of(&self, kind: Kind, outcome: Outcome) -> u64 {
        self.calls.get(&kind).and_then(|outcomes| outcomes.get(&outcome)).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peak_stays_after_the_requests_have_ended() {
        let mut counters = Counters::default();
        for _ in 0..3 {
            counters.arrived();
        }
        for _ in 0..2 {
            counters.ended(Kind::Get, Outcome::Ok);
        }
        counters.arrived();
        assert_eq!(counters.concurrent, Concurrent { now: 2, peak: 3 });
        assert_eq!(counters.of(Kind::Get, Outcome::Ok), 2);
    }

    #[test]
    fn a_reset_keeps_requests_in_flight() {
        let mut counters = Counters::default();
        counters.arrived();
        counters.arrived();
        counters.ended(Kind::List, Outcome::Throttled);
        counters.reset();
        assert_eq!(counters.of(Kind::List, Outcome::Throttled), 0);
        assert_eq!(counters.concurrent, Concurrent { now: 1, peak: 1 });
    }

    #[test]
    fn every_kind_and_outcome_is_shown_in_plain_words() {
        let json = serde_json::to_value(Counters::default()).unwrap();
        let none = serde_json::json!({
            "ok": 0, "not-found": 0, "unauthorized": 0, "throttled": 0, "error": 0, "lost": 0,
        });
        for kind in ["list", "get", "create", "change", "delete", "token", "metadata"] {
            assert_eq!(json["calls"][kind], none, "{kind}");
        }
    }
}
