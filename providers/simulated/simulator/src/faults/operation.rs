//! Faults of writes with long operations: how long an operation takes, whether it fails at its end, and whether another client
//! has just written. They have random numbers of their own, so that setting them doesn't shift other faults.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Faults, Random, milliseconds};
use crate::world::WriteFaults;

/// The faults of operations.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Operations {
    /// Each operation takes at least this long; by default it ends immediately.
    #[serde(rename = "takesMs", with = "milliseconds")]
    pub takes: Duration,
    /// And up to this much longer, uniformly distributed.
    #[serde(rename = "jitterMs", with = "milliseconds")]
    pub jitter: Duration,
    /// These fail at their end.
    pub late_failures: Chance,
    /// Whether a write replaces an operation in progress, instead of being refused. Nothing replaces a deletion.
    pub overtake: bool,
}

/// A share of all, and a number of the next ones.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Chance {
    /// Their share, from 0 to 1.
    pub share: f64,
    /// This many of the next ones, regardless of the share. Counts down.
    pub next: u32,
}

impl Chance {
    fn applies(&self, random: f64) -> bool {
        self.next > 0 || random < self.share
    }

    fn count_down(&mut self) {
        self.next = self.next.saturating_sub(1);
    }
}

impl Faults {
    /// The faults of the next write. Takes the same number of random numbers regardless of what is set.
    pub fn write_faults(&self, random: &mut Random) -> WriteFaults {
        let [late, broken, preempted] = std::array::from_fn(|_| random.share());
        let Operations { takes, jitter, late_failures, overtake } = &self.operations;
        WriteFaults {
            takes: takes.saturating_add(jitter.mul_f64(late)),
            fails: late_failures.applies(broken),
            is_preempted: self.preconditions.applies(preempted),
            overtakes: *overtake,
        }
    }

    /// Counts down after an operation has begun.
    pub fn count_down_operation(&mut self) {
        self.operations.late_failures.count_down();
    }

    /// Counts down after a write was refused as if another client had just written.
    pub fn count_down_preemption(&mut self) {
        self.preconditions.count_down();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(json: &str) -> Faults {
        Faults::parse(json.as_bytes()).unwrap()
    }

    #[test]
    fn operations_succeed_immediately_by_default() {
        assert_eq!(Faults::default().write_faults(&mut Random::seeded(1)), WriteFaults::default());
    }

    #[test]
    fn an_operation_takes_its_time_and_up_to_the_jitter_more() {
        let faults = faults(r#"{"operations":{"takesMs":500,"jitterMs":1000}}"#);
        let mut random = Random::seeded(1);
        let takes: Vec<_> = (0..100).map(|_| faults.write_faults(&mut random).takes.as_millis()).collect();
        assert!(takes.iter().all(|takes| (500..1_500).contains(takes)), "{takes:?}");
        assert!(
            takes.iter().any(|takes| *takes < 700) && takes.iter().any(|takes| *takes > 1_300),
            "{takes:?}"
        );
    }

    #[test]
    fn the_next_operations_fail_until_they_are_counted_down() {
        let mut faults = faults(r#"{"operations":{"lateFailures":{"next":1}},"preconditions":{"next":1}}"#);
        let mut random = Random::seeded(1);
        for _ in 0..2 {
            let write_faults = faults.write_faults(&mut random);
            assert!(write_faults.fails && write_faults.is_preempted);
        }
        faults.count_down_operation();
        faults.count_down_preemption();
        assert_eq!(faults.write_faults(&mut random), WriteFaults::default());
    }
}
