//! What was called and how it ended, and how many requests were under way at once. Benchmarks and tests read it to see
//! that a controller needs no more calls than it should.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::call::{Kind, Outcome};

/// The counters since the start, or since they were last reset.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// How many calls of each kind had each outcome. Every kind and outcome is there, also those at 0.
    pub calls: BTreeMap<Kind, BTreeMap<Outcome, u64>>,
    /// Requests that were under way at the same time.
    pub concurrent: Concurrent,
}

/// Requests that are, and at most were, under way at the same time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Concurrent {
    /// Right now.
    pub now: u64,
    /// At most.
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
    /// A request has arrived.
    pub fn arrived(&mut self) {
        self.concurrent.now += 1;
        self.concurrent.peak = self.concurrent.peak.max(self.concurrent.now);
    }

    /// A request that had arrived has ended.
    pub fn ended(&mut self, kind: Kind, outcome: Outcome) {
        self.concurrent.now = self.concurrent.now.saturating_sub(1);
        *self.calls.entry(kind).or_default().entry(outcome).or_default() += 1;
    }

    /// Starts counting anew. Requests that are under way stay so, and are counted when they end.
    pub fn reset(&mut self) {
        let now = self.concurrent.now;
        *self = Self { concurrent: Concurrent { now, peak: now }, ..Self::default() };
    }

    /// How many calls of this kind had this outcome.
    pub fn of(&self, kind: Kind, outcome: Outcome) -> u64 {
        self.calls.get(&kind).and_then(|outcomes| outcomes.get(&outcome)).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peak_outlives_the_requests_that_made_it() {
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
    fn a_reset_keeps_what_is_under_way() {
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
        for kind in ["list", "get", "create", "change", "delete", "token"] {
            assert_eq!(json["calls"][kind], none, "{kind}");
        }
    }
}
