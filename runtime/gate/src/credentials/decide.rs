//! Decides when a credential is acquired, whether its value is valid, and whether a refused value is worth another
//! attempt. Pure: a [`RenewalState`] is told what happens and when; its caller acquires.

use std::time::{Duration, Instant};

/// A token is renewed this long before it expires at the latest, if its lifetime is long enough...
const SPARE: Duration = Duration::from_mins(5);
/// ...which is twice that. Shorter ones are renewed after three quarters.
const LONG: Duration = Duration::from_mins(10);
/// The random part by which a token is renewed earlier: replicas that started together diverge.
const SPREAD: f64 = 0.1;
/// The least time before a token is renewed, however short its lifetime.
const SOONEST: Duration = Duration::from_secs(1);
/// How often a value without expiry is read again. Kubernetes itself takes up to a minute to update a mount.
const REREAD: Duration = Duration::from_secs(10);
/// The pause after the first failure; doubled after each...
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// ...up to this.
const LONGEST_PAUSE: Duration = Duration::from_mins(1);
/// The random part by which a pause is shorter.
const PAUSE_SPREAD: f64 = 0.25;
/// The longest `Retry-After` that is obeyed: an endpoint's mistake must not cost a day.
const MOST_OBEYED: Duration = Duration::from_mins(10);
/// A token acquired within this time is as good as the next one: what refuses it would refuse that one too.
const FRESH: Duration = Duration::from_secs(30);
/// The same for a static value, which costs less to read.
const JUST_SEEN: Duration = Duration::from_secs(1);

/// What is known of one credential. Values are numbered from 1, in the order in which they were acquired.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RenewalState {
    held: Option<HeldValue>,
    /// When the first of the failed attempts was, and how many there were in a row.
    failing: Option<(Instant, u32)>,
    /// When it is acquired next. In the past during an attempt.
    due: Instant,
    /// The number of attempts that have ended.
    attempts: u64,
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct HeldValue {
    number: u64,
    /// When it was requested or read.
    asked: Instant,
    expires: Option<Instant>,
}

/// What to do about a value that the cloud refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RenewalDecision {
    /// Use the newer value that there is.
    UseNewer,
    /// Wait until this many attempts have ended: one is in progress, and may bring a newer value.
    Await(u64),
    /// Keep it: another would not help, or can't be acquired now.
    Keep,
}

/// The condition of a credential, logged when it changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Condition {
    /// No value was acquired so far, and no attempt failed.
    New,
    /// A value is valid, and the last attempt succeeded.
    Ready,
    /// A value is valid, but the last attempt failed.
    Failing,
    /// No value is valid.
    Missing,
}

impl RenewalState {
    /// Nothing is known, and a value is to be acquired at once.
    pub(crate) fn new(now: Instant) -> Self {
        Self { held: None, failing: None, due: now, attempts: 0 }
    }

    /// When it is acquired next. In the past during an attempt.
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

    /// Notes an acquired value that was requested at `asked` and is valid this long from then, or without end. It is
    /// new unless it equals the last one. `chance` is between 0 and 1.
    pub(crate) fn on_acquired(
        &mut self,
        asked: Instant,
        lifetime: Option<Duration>,
        is_new: bool,
        chance: f64,
    ) {
        let last = self.held.map_or(0, |held| held.number);
        let number = last + u64::from(is_new || last == 0);
        self.held = Some(HeldValue { number, asked, expires: lifetime.map(|lifetime| asked + lifetime) });
        self.failing = None;
        self.attempts += 1;
        self.due = asked + lifetime.map_or(REREAD, |lifetime| renewal(lifetime, chance));
    }

    /// Notes a failed attempt. The endpoint may have said how long to wait.
    pub(crate) fn on_failure(&mut self, now: Instant, retry_after: Option<Duration>, chance: f64) {
        let (since, before) = self.failing.unwrap_or((now, 0));
        let pause = FIRST_PAUSE.saturating_mul(2_u32.saturating_pow(before)).min(LONGEST_PAUSE);
        let pause = pause.mul_f64(1.0 - PAUSE_SPREAD * chance);
        self.failing = Some((since, before.saturating_add(1)));
        self.attempts += 1;
        self.due = now + pause.max(retry_after.unwrap_or_default().min(MOST_OBEYED));
    }

    /// Decides about the value with this number, which the cloud refused.
    pub(crate) fn on_refused(&mut self, now: Instant, number: u64) -> RenewalDecision {
        let Some(held) = self.held else { return RenewalDecision::Keep };
        if number < held.number {
            return RenewalDecision::UseNewer;
        }
        let good = if held.expires.is_some() { FRESH } else { JUST_SEEN };
        if now < self.due {
            // The pauses after failures apply here too.
            if self.failing.is_some() || now < held.asked + good {
                return RenewalDecision::Keep;
            }
            self.due = now;
        }
        RenewalDecision::Await(self.attempts + 1)
    }
}

/// How long after it was requested a token with this lifetime is renewed.
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

    fn state() -> (RenewalState, Instant) {
        let now = Instant::now();
        (RenewalState::new(now), now)
    }

    /// A state with a token of this lifetime, acquired now.
    fn holding(lifetime: Option<Duration>) -> (RenewalState, Instant) {
        let (mut state, now) = state();
        state.on_acquired(now, lifetime, true, 0.0);
        (state, now)
    }

    #[test]
    fn a_token_is_renewed_long_before_it_expires() {
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
            state.on_acquired(now, Some(lifetime), true, chance);
            assert_eq!(state.due() - now, expected, "{lifetime:?} {chance}");
        }
    }

    #[test]
    fn a_value_without_expiry_is_reread_every_ten_seconds_and_stays_valid() {
        let (mut state, now) = holding(None);
        assert_eq!(state.due(), now + REREAD);
        assert_eq!(state.valid(now + 1000 * HOUR), Some(1));
        state.on_acquired(now + REREAD, None, false, 0.0);
        assert_eq!((state.valid(now), state.due()), (Some(1), now + 2 * REREAD));
        state.on_acquired(now + 2 * REREAD, None, true, 0.0);
        assert_eq!(state.valid(now), Some(2));
    }

    #[test]
    fn a_token_is_used_until_it_expires_regardless_of_failures() {
        let (mut state, now) = holding(Some(HOUR));
        let (late, last, over) = (now + 59 * MINUTE, now + 3599 * SECOND, now + HOUR);
        state.on_failure(late, None, 0.0);
        assert_eq!(state.condition(last), Condition::Failing);
        assert_eq!((state.valid(last), state.valid(over)), (Some(1), None));
        state.on_failure(over + MINUTE, None, 0.0);
        assert_eq!(state.condition(over + MINUTE), Condition::Missing);
        assert_eq!(state.failing_since(), Some(late), "since the first failure");
        state.on_acquired(over + 2 * MINUTE, Some(HOUR), true, 0.0);
        assert_eq!(state.condition(over + 2 * MINUTE), Condition::Ready);
        assert_eq!(state.failing_since(), None);
    }

    #[test]
    fn pauses_grow_to_a_minute_and_are_at_least_what_the_endpoint_says() {
        let (mut state, now) = state();
        let mut pause = |retry_after, chance| {
            state.on_failure(now, retry_after, chance);
            state.due() - now
        };
        for seconds in [1, 2, 4, 8, 16, 32, 60, 60] {
            assert_eq!(pause(None, 0.0), seconds * SECOND);
        }
        assert_eq!(pause(None, 1.0), 45 * SECOND);
        assert_eq!(pause(Some(SECOND), 0.0), MINUTE);
        assert_eq!(pause(Some(2 * MINUTE), 1.0), 2 * MINUTE);
        assert_eq!(pause(Some(24 * HOUR), 0.0), 10 * MINUTE);
        state.on_acquired(now, None, true, 0.0);
        state.on_failure(now, None, 0.0);
        assert_eq!(state.due() - now, SECOND, "success begins anew");
    }

    #[test]
    fn a_refused_value_is_acquired_again_once_and_only_if_that_may_help() {
        type Given = fn(&mut RenewalState, Instant);
        type Row = (&'static str, Option<Duration>, Given, u64, RenewalDecision);
        let rows: [Row; 9] = [
            ("an old token", Some(HOUR), |_, _| {}, 30, RenewalDecision::Await(2)),
            ("a token that was just acquired", Some(HOUR), |_, _| {}, 29, RenewalDecision::Keep),
            ("a value that was looked at before", None, |_, _| {}, 2, RenewalDecision::Await(2)),
            ("a value that was just looked at", None, |_, _| {}, 0, RenewalDecision::Keep),
            (
                "one that has a successor",
                Some(HOUR),
                |s, t| s.on_acquired(t, Some(HOUR), true, 0.0),
                1,
                RenewalDecision::UseNewer,
            ),
            (
                "one that was given out again",
                Some(HOUR),
                |s, t| s.on_acquired(t, Some(HOUR), false, 0.0),
                1,
                RenewalDecision::Keep,
            ),
            (
                "while a pause lasts",
                Some(HOUR),
                |s, t| s.on_failure(t + 40 * SECOND, None, 0.0),
                40,
                RenewalDecision::Keep,
            ),
            (
                "after it",
                Some(HOUR),
                |s, t| s.on_failure(t + 40 * SECOND, None, 0.0),
                41,
                RenewalDecision::Await(3),
            ),
            ("while it is renewed", Some(HOUR), |_, _| {}, 45 * 60, RenewalDecision::Await(2)),
        ];
        for (name, lifetime, given, after, expected) in rows {
            let (mut state, now) = holding(lifetime);
            given(&mut state, now);
            let then = now + Duration::from_secs(after);
            assert_eq!(state.on_refused(then, 1), expected, "{name}");
            if let RenewalDecision::Await(_) = expected {
                assert!(state.due() <= then, "{name}");
                assert_eq!(state.on_refused(then, 1), expected, "{name}, for all that were refused together");
            }
        }
        let (mut nothing, now) = state();
        assert_eq!(nothing.on_refused(now, 1), RenewalDecision::Keep);
    }

    proptest! {
        #[test]
        fn at_most_one_attempt_a_second_unless_the_cloud_refuses(
            events in prop::collection::vec((any::<bool>(), 0_u64..100_000, 0.0..1.0), 1..50),
        ) {
            let (mut state, mut now) = state();
            for (succeeds, lifetime, chance) in events {
                let asked = now;
                if succeeds {
                    state.on_acquired(asked, Some(Duration::from_millis(lifetime)), true, chance);
                } else {
                    state.on_failure(asked, None, chance);
                }
                prop_assert!(state.due() >= asked + SECOND.mul_f64(1.0 - PAUSE_SPREAD));
                prop_assert!(!succeeds || state.valid(asked).is_some() == (lifetime > 0));
                now = state.due();
            }
        }
    }
}
