//! When a credential is acquired, what of it is valid, and when a refused one is worth another attempt. Pure: a
//! [`State`] is told what happens and when, and says what follows; acquiring itself is its caller's.

use std::time::{Duration, Instant};

/// So long before a token ends it is renewed at the latest, if it lives long enough...
const SPARE: Duration = Duration::from_mins(5);
/// ...which is twice that. Shorter ones are renewed after three quarters.
const LONG: Duration = Duration::from_mins(10);
/// What chance takes off the time until a token is renewed, at most: replicas that started together part.
const SPREAD: f64 = 0.1;
/// Renewing is never sooner again, however short a token is said to live.
const SOONEST: Duration = Duration::from_secs(1);
/// How often a value without expiry is looked at again. Kubernetes itself takes up to a minute to change a mount.
const LOOK: Duration = Duration::from_secs(10);
/// The pause after the first failure; doubled after each...
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// ...up to this.
const LONGEST_PAUSE: Duration = Duration::from_mins(1);
/// What chance takes off a pause, at most.
const PAUSE_SPREAD: f64 = 0.25;
/// A `Retry-After` over this is cut to it: an endpoint's slip shouldn't cost a day.
const MOST_OBEYED: Duration = Duration::from_mins(10);
/// A token that was acquired within this time is as good as the next one: what refuses it refuses that as well.
const FRESH: Duration = Duration::from_secs(30);
/// The same for a value that was looked at, which costs less.
const JUST_SEEN: Duration = Duration::from_secs(1);

/// What is known of one credential. Values are numbered from 1, in the order in which they were acquired.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct State {
    held: Option<Held>,
    /// Since when acquiring fails, and how many times in a row it has.
    failing: Option<(Instant, u32)>,
    /// When it is acquired next. Not later than now while that goes on.
    due: Instant,
    /// How many attempts have ended.
    attempts: u64,
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct Held {
    number: u64,
    /// When it was asked for, or looked at.
    asked: Instant,
    expires: Option<Instant>,
}

/// What became of a value that the cloud refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// There is a newer one by now.
    Newer,
    /// One is being acquired. Whether it is newer is known when so many attempts have ended.
    Await(u64),
    /// Another wouldn't help, or can't be had now.
    Keep,
}

/// What an operator is told when it changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Condition {
    /// Nothing was acquired yet, and nothing has failed.
    New,
    /// A value is valid, and the last attempt succeeded.
    Ready,
    /// A value is valid, but the last attempt failed.
    Failing,
    /// No value is valid.
    Missing,
}

impl State {
    /// Nothing is known, and something is to be acquired at once.
    pub(crate) fn new(now: Instant) -> Self {
        Self { held: None, failing: None, due: now, attempts: 0 }
    }

    /// When it is to be acquired next; a time that is past, while that goes on.
    pub(crate) fn due(&self) -> Instant {
        self.due
    }

    /// The number of the value, if it is valid.
    pub(crate) fn valid(&self, now: Instant) -> Option<u64> {
        let held = self.held.filter(|held| held.expires.is_none_or(|expires| now < expires));
        held.map(|held| held.number)
    }

    /// When the value expires, valid or not.
    pub(crate) fn expires(&self) -> Option<Instant> {
        self.held.and_then(|held| held.expires)
    }

    pub(crate) fn failing_since(&self) -> Option<Instant> {
        self.failing.map(|(since, _)| since)
    }

    pub(crate) fn attempts(&self) -> u64 {
        self.attempts
    }

    pub(crate) fn condition(&self, now: Instant) -> Condition {
        match (self.valid(now), self.failing) {
            (Some(_), None) => Condition::Ready,
            (Some(_), Some(_)) => Condition::Failing,
            (None, None) if self.held.is_none() => Condition::New,
            (None, _) => Condition::Missing,
        }
    }

    /// A value was acquired that was asked for then and lives so long from there, or for ever. It is new unless it equals
    /// the last one. `chance` is in 0 to 1.
    pub(crate) fn acquired(&mut self, asked: Instant, lifetime: Option<Duration>, is_new: bool, chance: f64) {
        let last = self.held.map_or(0, |held| held.number);
        let number = last + u64::from(is_new || last == 0);
        self.held = Some(Held { number, asked, expires: lifetime.map(|lifetime| asked + lifetime) });
        self.failing = None;
        self.attempts += 1;
        self.due = asked + lifetime.map_or(LOOK, |lifetime| renewal(lifetime, chance));
    }

    /// An attempt failed; the endpoint may have said when to come again.
    pub(crate) fn failed(&mut self, now: Instant, retry_after: Option<Duration>, chance: f64) {
        let (since, before) = self.failing.unwrap_or((now, 0));
        let pause = FIRST_PAUSE.saturating_mul(2_u32.saturating_pow(before)).min(LONGEST_PAUSE);
        let pause = pause.mul_f64(1.0 - PAUSE_SPREAD * chance);
        self.failing = Some((since, before.saturating_add(1)));
        self.attempts += 1;
        self.due = now + pause.max(retry_after.unwrap_or_default().min(MOST_OBEYED));
    }

    /// The cloud refused the value with this number.
    pub(crate) fn refused(&mut self, now: Instant, number: u64) -> Verdict {
        let Some(held) = self.held else { return Verdict::Keep };
        if number < held.number {
            return Verdict::Newer;
        }
        let good = if held.expires.is_some() { FRESH } else { JUST_SEEN };
        if now < self.due {
            // The pauses after failures hold here too.
            if self.failing.is_some() || now < held.asked + good {
                return Verdict::Keep;
            }
            self.due = now;
        }
        Verdict::Await(self.attempts + 1)
    }
}

/// How long after it was asked for a token with this lifetime is renewed.
fn renewal(lifetime: Duration, chance: f64) -> Duration {
    let early = lifetime.mul_f64(0.75);
    let early = if lifetime < LONG { early } else { early.min(lifetime.saturating_sub(SPARE)) };
    early.mul_f64(1.0 - SPREAD * chance).max(SOONEST)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const MINUTE: Duration = Duration::from_mins(1);
    const HOUR: Duration = Duration::from_hours(1);

    fn state() -> (State, Instant) {
        let now = Instant::now();
        (State::new(now), now)
    }

    /// A state that has held a token of this lifetime since now.
    fn holding(lifetime: Option<Duration>) -> (State, Instant) {
        let (mut state, now) = state();
        state.acquired(now, lifetime, true, 0.0);
        (state, now)
    }

    #[test]
    fn a_token_is_renewed_long_before_it_ends() {
        for (lifetime, chance, expected) in [
            (24 * HOUR, 0.0, 18 * HOUR),
            (HOUR, 0.0, 45 * MINUTE),
            (HOUR, 1.0, 2430 * SECOND),
            (20 * MINUTE, 0.0, 15 * MINUTE),
            (12 * MINUTE, 0.0, 7 * MINUTE),
            (10 * MINUTE, 0.0, 5 * MINUTE),
            (9 * MINUTE, 0.0, 405 * SECOND),
            (4 * SECOND, 0.0, 3 * SECOND),
            (SECOND, 0.0, SECOND),
            (Duration::ZERO, 0.0, SECOND),
        ] {
            let (mut state, now) = state();
            state.acquired(now, Some(lifetime), true, chance);
            assert_eq!(state.due() - now, expected, "{lifetime:?} {chance}");
        }
    }

    #[test]
    fn what_has_no_expiry_is_looked_at_every_ten_seconds_and_stays_valid() {
        let (mut state, now) = holding(None);
        assert_eq!(state.due(), now + LOOK);
        assert_eq!(state.valid(now + 1000 * HOUR), Some(1));
        state.acquired(now + LOOK, None, false, 0.0);
        assert_eq!((state.valid(now), state.due()), (Some(1), now + 2 * LOOK));
        state.acquired(now + 2 * LOOK, None, true, 0.0);
        assert_eq!(state.valid(now), Some(2));
    }

    #[test]
    fn a_token_goes_on_until_it_expires_whatever_fails() {
        let (mut state, now) = holding(Some(HOUR));
        let (late, last, over) = (now + 59 * MINUTE, now + 3599 * SECOND, now + HOUR);
        state.failed(late, None, 0.0);
        assert_eq!(state.condition(last), Condition::Failing);
        assert_eq!((state.valid(last), state.valid(over)), (Some(1), None));
        state.failed(over + MINUTE, None, 0.0);
        assert_eq!(state.condition(over + MINUTE), Condition::Missing);
        assert_eq!(state.failing_since(), Some(late), "since the first failure");
        state.acquired(over + 2 * MINUTE, Some(HOUR), true, 0.0);
        assert_eq!(state.condition(over + 2 * MINUTE), Condition::Ready);
        assert_eq!(state.failing_since(), None);
    }

    #[test]
    fn pauses_grow_to_a_minute_and_are_no_shorter_than_the_endpoint_says() {
        let (mut state, now) = state();
        let mut pause = |retry_after, chance| {
            state.failed(now, retry_after, chance);
            state.due() - now
        };
        for seconds in [1, 2, 4, 8, 16, 32, 60, 60] {
            assert_eq!(pause(None, 0.0), seconds * SECOND);
        }
        assert_eq!(pause(None, 1.0), 45 * SECOND);
        assert_eq!(pause(Some(SECOND), 0.0), MINUTE);
        assert_eq!(pause(Some(2 * MINUTE), 1.0), 2 * MINUTE);
        assert_eq!(pause(Some(24 * HOUR), 0.0), 10 * MINUTE);
        state.acquired(now, None, true, 0.0);
        state.failed(now, None, 0.0);
        assert_eq!(state.due() - now, SECOND, "success begins anew");
    }

    #[test]
    fn a_refused_value_is_acquired_anew_once_and_only_where_that_may_help() {
        type Given = fn(&mut State, Instant);
        type Row = (&'static str, Option<Duration>, Given, u64, Verdict);
        let rows: [Row; 9] = [
            ("an old token", Some(HOUR), |_, _| {}, 30, Verdict::Await(2)),
            ("a token that was just acquired", Some(HOUR), |_, _| {}, 29, Verdict::Keep),
            ("a value that was looked at before", None, |_, _| {}, 2, Verdict::Await(2)),
            ("a value that was just looked at", None, |_, _| {}, 0, Verdict::Keep),
            (
                "one that has a successor",
                Some(HOUR),
                |s, t| s.acquired(t, Some(HOUR), true, 0.0),
                1,
                Verdict::Newer,
            ),
            (
                "one that was given out again",
                Some(HOUR),
                |s, t| s.acquired(t, Some(HOUR), false, 0.0),
                1,
                Verdict::Keep,
            ),
            (
                "while a pause lasts",
                Some(HOUR),
                |s, t| s.failed(t + 40 * SECOND, None, 0.0),
                40,
                Verdict::Keep,
            ),
            ("after it", Some(HOUR), |s, t| s.failed(t + 40 * SECOND, None, 0.0), 41, Verdict::Await(3)),
            ("while it is renewed", Some(HOUR), |_, _| {}, 45 * 60, Verdict::Await(2)),
        ];
        for (name, lifetime, given, after, expected) in rows {
            let (mut state, now) = holding(lifetime);
            given(&mut state, now);
            let then = now + Duration::from_secs(after);
            assert_eq!(state.refused(then, 1), expected, "{name}");
            if let Verdict::Await(_) = expected {
                assert!(state.due() <= then, "{name}");
                assert_eq!(state.refused(then, 1), expected, "{name}, for all that were refused together");
            }
        }
        let (mut nothing, now) = state();
        assert_eq!(nothing.refused(now, 1), Verdict::Keep);
    }

    proptest! {
        #[test]
        fn nothing_is_acquired_more_than_once_a_second_unless_a_cloud_refuses_it(
            events in prop::collection::vec((any::<bool>(), 0_u64..100_000, 0.0..1.0), 1..50),
        ) {
            let (mut state, mut now) = state();
            for (succeeds, lifetime, chance) in events {
                let asked = now;
                if succeeds {
                    state.acquired(asked, Some(Duration::from_millis(lifetime)), true, chance);
                } else {
                    state.failed(asked, None, chance);
                }
                prop_assert!(state.due() >= asked + SECOND.mul_f64(1.0 - PAUSE_SPREAD));
                prop_assert!(!succeeds || state.valid(asked).is_some() == (lifetime > 0));
                now = state.due();
            }
        }
    }
}
