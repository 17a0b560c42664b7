//! Decides whether a release does worse than another: by errors, traps, throttled calls and latency. Pure.

use jiff::SignedDuration;
use serde::{Deserialize, Serialize};

/// How the lookups and changes of a release went since it took its present role on this replica: one for each node, Service
/// and route of a call, and one for a list.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rates {
    /// All of them.
    pub items: u64,
    /// Those that failed, apart from the next two.
    pub errors: u64,
    /// Those at which the provider trapped, ran out of time or violated the contract.
    pub traps: u64,
    /// Those that the cloud throttled.
    pub throttled: u64,
    /// How many calls made lookups.
    pub lookups: u64,
    /// The time within which half of these calls ended: a moment in which the machine or the cloud stalls makes a few of them slow,
    /// and not half. Changes and lists take as long as the cloud's own operations.
    pub latency: SignedDuration,
}

/// Fewer of them say nothing until the time of the comparison is over.
const SAMPLE: u64 = 20;
/// Increases, in thousandths of all, that are within chance or within what a cloud does at times.
const TRAPS: u64 = 10;
const ERRORS: u64 = 50;
const THROTTLED: u64 = 100;
/// Latencies below this vary by more than a factor of two.
const LATENCY: SignedDuration = SignedDuration::from_millis(100);

/// In words, how `after` is worse than `before`. `is_over` says that the comparison ends, so that few count, too:
/// of these only traps, which are defects of the provider, while a cloud's errors come in groups.
pub(super) fn regression(before: &Rates, after: &Rates, is_over: bool) -> Option<String> {
    let is_sample = after.items >= SAMPLE;
    if after.items == 0 || !(is_sample || is_over) {
        return None;
    }
    let rates = [
        ("trapped", before.traps, after.traps, TRAPS),
        ("failed", before.errors, after.errors, ERRORS),
        ("were throttled", before.throttled, after.throttled, THROTTLED),
    ];
    let judged = if is_sample { rates.len() } else { 1 };
    for (verb, old, new, tolerance) in rates.into_iter().take(judged) {
        if per_mille(new, after.items) > per_mille(old, before.items) + tolerance {
            let (all, earlier) = (after.items, before.items);
            return Some(format!(
                "{new} of {all} lookups and changes {verb}, before it was {old} of {earlier}"
            ));
        }
    }
    let limit = before.latency.saturating_mul(2).saturating_add(LATENCY);
    if before.lookups.min(after.lookups) >= SAMPLE && after.latency > limit {
        return Some(format!(
            "half of the calls for lookups ended within {:#}, before it was {:#}",
            after.latency, before.latency
        ));
    }
    None
}

fn per_mille(part: u64, whole: u64) -> u64 {
    part.saturating_mul(1000) / whole.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_is_worse_by_rates_and_latency_once_there_are_enough_calls() {
        let ms = SignedDuration::from_millis;
        let good = Rates { items: 1000, errors: 10, traps: 0, throttled: 10, lookups: 200, latency: ms(200) };
        let few = Rates { items: 5, ..Rates::default() };
        let rows = [
            ("same", good, false, false),
            ("no call", Rates::default(), true, false),
            ("a trap in 50", Rates { items: 50, traps: 1, ..good }, false, true),
            ("a trap in 200", Rates { items: 200, traps: 1, ..good }, false, false),
            ("a trap in few calls", Rates { traps: 1, ..few }, false, false),
            ("a trap in few calls, at the end", Rates { traps: 1, ..few }, true, true),
            ("only errors in few calls, at the end", Rates { errors: 5, ..few }, true, false),
            ("errors", Rates { errors: 61, ..good }, false, true),
            ("slightly more errors", Rates { errors: 60, ..good }, false, false),
            ("throttled", Rates { throttled: 111, ..good }, false, true),
            ("slightly more throttled", Rates { throttled: 110, ..good }, false, false),
            ("slower", Rates { latency: ms(501), ..good }, false, true),
            ("slightly slower", Rates { latency: ms(500), ..good }, false, false),
            ("slower in few lookups", Rates { lookups: 19, latency: ms(900), ..good }, true, false),
        ];
        for (name, after, is_over, expected) in rows {
            let found = regression(&good, &after, is_over);
            assert_eq!(found.is_some(), expected, "{name}: {found:?}");
        }
        let slow = Rates { items: 1000, lookups: 1000, latency: ms(9000), ..Rates::default() };
        assert_eq!(regression(&Rates::default(), &slow, true), None, "no latency to compare with");
    }
}
