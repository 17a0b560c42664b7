//! What the operator asks for: which release, and how carefully to move to it. Pure.

use jiff::{SignedDuration, Timestamp};
use pileus_loader::Digest;
use serde::{Deserialize, Serialize};

/// What the operator asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spec {
    /// Grows with each change by the operator, as `metadata.generation` does.
    pub generation: u64,
    /// Which component.
    pub follow: Follow,
    /// The digest of configuration, grants, credential references and trust policy. What it stands for is stored before
    /// this is known, and stays stored as long as the status names it.
    pub settings: Digest,
    /// How to move to another release.
    pub policy: Policy,
}

/// Which component to run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Follow {
    /// Exactly this one.
    Digest(Digest),
    /// What this tag names.
    Tag(String),
    /// The highest version within this range.
    Range(String),
}

/// How to move to another release.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// How often a tag or range is resolved.
    pub interval: SignedDuration,
    /// When a swap may begin; None is always. It finishes after the window, too.
    pub window: Option<TimeWindow>,
    /// What to do if the candidate answers lookups differently.
    pub lookups: OnDifference,
    /// What to do if the candidate wants to change what is settled.
    pub writes: OnDifference,
    /// The share of lookups that the candidate answers first.
    pub canary: Canary,
    /// How long a new active release is compared with the one before.
    pub observe: SignedDuration,
    /// How long calls of a replaced release may take to finish.
    pub drain: SignedDuration,
}

/// What to do about a difference between candidate and active release.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnDifference {
    /// Hold the candidate until the operator orders the swap.
    Hold,
    /// Show the difference and go on.
    Proceed,
}

/// How much the candidate serves before it becomes active.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Canary {
    /// The percentage of nodes whose lookups it answers.
    pub share: u8,
    /// For how long. Without a share or without time there is no canary.
    pub duration: SignedDuration,
}

impl Canary {
    /// Whether the candidate serves anything before it becomes active.
    pub(super) fn is_wanted(self) -> bool {
        self.share > 0 && self.duration > SignedDuration::ZERO
    }
}

/// A part of each day, in UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimeWindow {
    /// When it opens, in minutes after midnight.
    pub opens_minute: u16,
    /// For how many minutes it stays open. It may reach into the next day.
    pub lasts_minutes: u16,
}

impl TimeWindow {
    /// `now` if the window is open, otherwise the time at which it opens next.
    pub(super) fn next_open(self, now: Timestamp) -> Timestamp {
        const DAY: i64 = 24 * 3600;
        let opens = i64::from(self.opens_minute) * 60 % DAY;
        let since = (now.as_second() - opens).rem_euclid(DAY);
        if since < i64::from(self.lasts_minutes) * 60 {
            return now;
        }
        Timestamp::from_second(now.as_second() + DAY - since).unwrap_or(Timestamp::MAX)
    }
}

/// `start` and `duration` after it.
pub(super) fn after(start: Timestamp, duration: SignedDuration) -> Timestamp {
    start.checked_add(duration).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_is_open_for_its_minutes_also_past_midnight() {
        let at = |text: &str| text.parse::<Timestamp>().unwrap();
        let night = TimeWindow { opens_minute: 23 * 60, lasts_minutes: 120 };
        let rows = [
            ("2026-01-01T22:59:59Z", "2026-01-01T23:00:00Z"),
            ("2026-01-01T23:00:00Z", "2026-01-01T23:00:00Z"),
            ("2026-01-02T00:59:59Z", "2026-01-02T00:59:59Z"),
            ("2026-01-02T01:00:00Z", "2026-01-02T23:00:00Z"),
        ];
        for (now, opens) in rows {
            assert_eq!(night.next_open(at(now)), at(opens), "{now}");
        }
        let always = TimeWindow { opens_minute: 5, lasts_minutes: 24 * 60 };
        assert_eq!(always.next_open(at("2026-01-01T00:04:00Z")), at("2026-01-01T00:04:00Z"));
    }
}
