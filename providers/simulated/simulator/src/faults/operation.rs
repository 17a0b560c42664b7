//! How writes of things fare whose writes take their time: how long, whether they fail when everybody believes them
//! under way, and whether somebody else was just a bit faster. It has dice of its own, so that whoever sets it doesn't
//! shift the other faults.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Faults, Random, milliseconds};
use crate::world::Luck;

/// How operations go.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Operations {
    /// They take at least this long; where nothing is set, they end at once.
    #[serde(rename = "takesMs", with = "milliseconds")]
    pub takes: Duration,
    /// And up to this much longer, evenly spread.
    #[serde(rename = "jitterMs", with = "milliseconds")]
    pub jitter: Duration,
    /// These fail at their end.
    pub late_failures: Chance,
    /// Whether a write takes the place of the operation that is under way, instead of being refused. Nothing overtakes a
    /// deletion.
    pub overtake: bool,
}

/// A share of all, and the next so many.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Chance {
    /// How many of them, from 0 to 1.
    pub share: f64,
    /// So many of the next ones, whatever the share. Counts down.
    pub next: u32,
}

impl Chance {
    fn falls(&self, dice: f64) -> bool {
        self.next > 0 || dice < self.share
    }

    fn count_off(&mut self) {
        self.next = self.next.saturating_sub(1);
    }
}

impl Faults {
    /// How the next write fares. Rolls the same number of dice whatever is set.
    pub fn luck(&self, random: &mut Random) -> Luck {
        let [late, broken, disturbed] = std::array::from_fn(|_| random.share());
        let Operations { takes, jitter, late_failures, overtake } = &self.operations;
        Luck {
            takes: takes.saturating_add(jitter.mul_f64(late)),
            fails: late_failures.falls(broken),
            is_disturbed: self.preconditions.falls(disturbed),
            overtakes: *overtake,
        }
    }

    /// Counts off an operation that has begun.
    pub fn count_off_operation(&mut self) {
        self.operations.late_failures.count_off();
    }

    /// Counts off a write that was told that somebody else was faster.
    pub fn count_off_disturbance(&mut self) {
        self.preconditions.count_off();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(json: &str) -> Faults {
        Faults::parse(json.as_bytes()).unwrap()
    }

    #[test]
    fn operations_end_at_once_and_well_unless_something_is_set() {
        assert_eq!(Faults::default().luck(&mut Random::seeded(1)), Luck::default());
    }

    #[test]
    fn an_operation_takes_its_time_and_up_to_the_jitter_more() {
        let faults = faults(r#"{"operations":{"takesMs":500,"jitterMs":1000}}"#);
        let mut random = Random::seeded(1);
        let takes: Vec<_> = (0..100).map(|_| faults.luck(&mut random).takes.as_millis()).collect();
        assert!(takes.iter().all(|takes| (500..1_500).contains(takes)), "{takes:?}");
        assert!(
            takes.iter().any(|takes| *takes < 700) && takes.iter().any(|takes| *takes > 1_300),
            "{takes:?}"
        );
    }

    #[test]
    fn the_next_ones_fail_until_they_are_counted_off() {
        let mut faults = faults(r#"{"operations":{"lateFailures":{"next":1}},"preconditions":{"next":1}}"#);
        let mut random = Random::seeded(1);
        for _ in 0..2 {
            let luck = faults.luck(&mut random);
            assert!(luck.fails && luck.is_disturbed);
        }
        faults.count_off_operation();
        faults.count_off_disturbance();
        assert_eq!(faults.luck(&mut random), Luck::default());
    }
}
