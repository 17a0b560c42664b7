//! One token bucket. It knows when it lets the next request through, within what operator and provider declare and what
//! the cloud has shown to take. Pure: time is an argument and must not go backwards.

mod snapshot;

use std::time::{Duration, Instant};

pub(crate) use snapshot::BucketSnapshot;

use crate::limits::learned::LearnedRate;
use crate::limits::limit::Rate;
use crate::limits::pauses::{PROBE, Pause};
use crate::limits::throughput::ThroughputMeter;
use crate::limits::window::InFlightWindow;

/// The rounding error that a sum of fractions may have.
const EPSILON: f64 = 1e-6;
/// A token worth less than this is worth nothing.
const WORTHLESS: f64 = 1e-9;
/// Stands for never, and fits a `Duration`.
const LONGEST: f64 = 365.0 * 86_400.0;

/// A token that was taken.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Token {
    pub(crate) at: Instant,
    /// The tokens that were left after it was taken.
    left: f64,
    /// The bucket's `lost` when it was taken.
    lost: f64,
    /// Its number since the last refusal.
    number: f64,
}

/// A token bucket. A request takes a token, which can be put back until the request is sent.
#[derive(Debug)]
pub(crate) struct Bucket {
    learned: LearnedRate,
    tokens: f64,
    filled: Instant,
    pause: Option<Pause>,
    window: InFlightWindow,
    /// When the last token was taken.
    taken: Option<Instant>,
    /// The taken tokens that may be put back. Together with those in the bucket they never exceed the burst: what would
    /// have overflowed, had none been taken, is lost, for all of them alike.
    out: f64,
    /// What each of those has lost so far: minus the logarithm of what it is still worth.
    lost: f64,
    meter: ThroughputMeter,
    /// When the last refusal that changed anything came.
    refused: Option<Instant>,
}

impl Bucket {
    /// A bucket that was empty at `empty` and has filled since.
    pub(crate) fn new(most: Rate, empty: Instant, now: Instant) -> Self {
        let mut bucket = Self {
            learned: LearnedRate::new(most),
            tokens: 0.0,
            filled: empty,
            pause: None,
            window: InFlightWindow::default(),
            taken: None,
            out: 0.0,
            lost: 0.0,
            meter: ThroughputMeter::default(),
            refused: None,
        };
        bucket.fill(now);
        bucket
    }

    /// Empties the bucket. Missing tokens stay missing.
    pub(crate) fn empty(&mut self, now: Instant) {
        self.fill(now);
        self.tokens = self.tokens.min(0.0);
    }

    /// Adds what flows in during this time.
    pub(crate) fn fill_for(&mut self, span: Duration) {
        self.tokens = (self.tokens + self.inflow(span)).min(self.room());
    }

    /// Fills the bucket up to this time. All other functions expect that this was done.
    pub(crate) fn fill(&mut self, now: Instant) {
        let span = now.saturating_duration_since(self.filled).as_secs_f64();
        self.tokens = (self.tokens + self.learned.rate().per_second * span).min(self.room());
        let space = self.room() - self.tokens;
        if self.out > space {
            let kept = (space / self.out).max(WORTHLESS);
            self.out *= kept;
            self.lost -= kept.ln();
        }
        self.learned.recover(span);
        self.filled = self.filled.max(now);
    }

    /// The tokens that it can hold. After a pause only the probe has a token: what follows must come slowly.
    fn room(&self) -> f64 {
        if self.pause.is_some() { 1.0 } else { self.learned.rate().burst }
    }

    /// The requests that may be sent now. May be negative or have a fraction.
    pub(crate) fn free(&self, now: Instant) -> f64 {
        if self.is_open(now) { self.tokens.min(self.window.free()) + EPSILON } else { 0.0 }
    }

    /// Whether no pause holds requests back now.
    pub(crate) fn is_open(&self, now: Instant) -> bool {
        self.pause.as_ref().is_none_or(|pause| pause.opens_at(now) <= now)
    }

    /// When this many tokens are available if nothing changes. Now, if they are available at once.
    pub(crate) fn available_at(&self, now: Instant, tokens: f64) -> Instant {
        let opens = self.pause.as_ref().map_or(now, |pause| pause.opens_at(now));
        let answered = self.taken.filter(|_| self.window.free() < tokens).map_or(now, |taken| taken + PROBE);
        self.filled_at(now, opens.max(answered), tokens)
    }

    /// Whether the window is full, so that the next request waits for an answer.
    pub(crate) fn is_crowded(&self) -> bool {
        self.window.free() < 1.0
    }

    /// When this many tokens are expected to be available, if a probe in flight succeeds at once.
    pub(crate) fn expected_at(&self, now: Instant, tokens: f64) -> Instant {
        self.filled_at(now, self.paused_until(now).unwrap_or(now), tokens)
    }

    /// When this many tokens are in the bucket, but not before `opens`.
    fn filled_at(&self, now: Instant, opens: Instant, tokens: f64) -> Instant {
        let waited = opens.duration_since(now).as_secs_f64();
        let held = (self.tokens + self.learned.rate().per_second * waited).min(self.room());
        let missing = tokens - held - EPSILON;
        if missing <= 0.0 {
            return opens;
        }
        let span = Duration::from_secs_f64((missing / self.learned.rate().per_second).min(LONGEST));
        // Rounded up: a caller that wakes too early would miss a fraction.
        opens + span + Duration::from_micros(1)
    }

    /// The tokens that flow in during this time.
    pub(crate) fn inflow(&self, span: Duration) -> f64 {
        self.learned.rate().per_second * span.as_secs_f64()
    }

    /// Takes a token, which must be available.
    pub(crate) fn take(&mut self, now: Instant) -> Token {
        let token = self.take_in_advance(now);
        self.tokens = self.tokens.max(0.0);
        Token { left: self.tokens, ..token }
    }

    /// Takes a token even from an empty bucket. The missing token must flow in before the next one is available.
    pub(crate) fn take_in_advance(&mut self, now: Instant) -> Token {
        self.tokens -= 1.0;
        self.window.on_sent();
        self.taken = Some(now);
        self.out += 1.0;
        if let Some(pause) = &mut self.pause {
            pause.on_probe_sent(now);
        }
        Token { at: now, left: self.tokens, lost: self.lost, number: self.meter.count(now) }
    }

    /// Puts back the token of a request that was not sent, unless it would have overflowed since. Otherwise more could
    /// be sent at once than the burst allows.
    pub(crate) fn put_back(&mut self, token: Token) {
        self.tokens = (self.tokens + self.worth(token)).min(self.room());
        self.meter.take_back();
        self.on_finished(token);
    }

    /// Notes that the request with this token is answered, or never will be.
    pub(crate) fn on_finished(&mut self, token: Token) {
        self.window.on_finished();
        self.out = (self.out - self.worth(token)).max(0.0);
        if let Some(pause) = &mut self.pause {
            pause.on_probe_answered(token.at);
        }
    }

    fn worth(&self, token: Token) -> f64 {
        (token.lost - self.lost).exp()
    }

    /// Notes that the cloud accepted a request sent at this time.
    pub(crate) fn on_accepted(&mut self, sent: Instant) {
        if self.pause.as_ref().is_some_and(|pause| pause.is_probe(sent)) {
            self.pause = None;
        }
        self.window.on_accepted();
    }

    /// Keeps to the remaining quota that the cloud names. Requests in flight may count against it.
    pub(crate) fn on_remaining(&mut self, requests: u32) {
        let requests = f64::from(requests.saturating_sub(self.window.in_flight()));
        // The fraction of a token stays: a slow bucket would never fill under a cloud that always says 0.
        self.tokens = self.tokens.min(requests + self.tokens.fract());
    }

    /// Whether a request sent at this time is a probe: one that tests whether the pause is over.
    pub(crate) fn is_probe(&self, sent: Instant) -> bool {
        self.pause.as_ref().is_some_and(|pause| pause.is_probe(sent))
    }

    /// Pauses the bucket after a refusal. If the request was throttled, also lowers the rate. Returns whether the
    /// refusal is news: of requests that were in flight together, only the first refusal is.
    pub(crate) fn on_refused(
        &mut self,
        now: Instant,
        token: Token,
        after: Option<Duration>,
        throttled: bool,
    ) -> bool {
        if self.refused.is_some_and(|refused| token.at < refused) {
            // The cloud may have named a later time.
            if let (Some(pause), Some(after)) = (&mut self.pause, after) {
                pause.extend(now + after);
            }
            return false;
        }
        // A probe is a single request: its refusal does not show how many requests are too many.
        if throttled && !self.is_probe(token.at) {
            self.learn(now, token);
        } else {
            self.meter.restart(now);
        }
        self.pause = Some(Pause::new(now, after, self.pause));
        self.refused = Some(now);
        self.tokens = self.tokens.min(1.0);
        true
    }

    fn learn(&mut self, now: Instant, token: Token) {
        let measured = self.meter.measure(now, token.at, token.number, self.learned.rate().per_second);
        self.window.on_refused();
        self.learned.on_refused(measured, Some(token.left).filter(|left| left + EPSILON >= 1.0));
    }

    pub(crate) fn learned(&self) -> Rate {
        self.learned.rate()
    }

    pub(crate) fn ceiling(&self) -> Rate {
        self.learned.ceiling()
    }

    /// The requests that it would let through at once if it were not paused.
    pub(crate) fn tokens(&self) -> f64 {
        self.tokens
    }

    /// The end of the pause, if it is paused.
    pub(crate) fn paused_until(&self, now: Instant) -> Option<Instant> {
        self.pause.as_ref().map(Pause::until).filter(|until| *until > now)
    }

    /// Whether it is the same as a new, full bucket.
    pub(crate) fn is_as_new(&self) -> bool {
        let full = self.tokens + EPSILON >= self.ceiling().burst;
        full && self.pause.is_none() && self.window.in_flight() == 0 && self.learned.is_as_new()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    fn rate(burst: f64, per_second: f64) -> Rate {
        Rate { burst, per_second }
    }

    fn seconds(seconds: f64) -> Duration {
        Duration::from_secs_f64(seconds)
    }

    fn near(found: f64, expected: f64) -> bool {
        (found - expected).abs() < 0.01
    }

    /// A token that left this many.
    fn left(left: f64) -> Token {
        Token { at: Instant::now(), left, lost: 0.0, number: 0.0 }
    }

    /// A bucket that is full, and the time.
    fn full(burst: f64, per_second: f64) -> (Bucket, Instant) {
        let now = Instant::now();
        (Bucket::new(rate(burst, per_second), now, now + seconds(1e6)), now + seconds(1e6))
    }

    #[test]
    fn a_token_taken_in_advance_is_missing_later() {
        let (mut bucket, now) = full(1.0, 0.5);
        let wait = |bucket: &Bucket| (bucket.available_at(now, 1.0) - now).as_secs_f64();
        bucket.take(now);
        let second = bucket.take_in_advance(now);
        assert!(near(wait(&bucket), 4.0), "for the one that is missing and the one that is wanted");
        bucket.put_back(second);
        assert!(near(wait(&bucket), 2.0));
        bucket.take_in_advance(now);
        bucket.empty(now);
        assert!(near(wait(&bucket), 4.0), "emptying forgives nothing");
    }

    #[test]
    fn a_bucket_says_exactly_when_a_token_is_available() {
        let (mut bucket, now) = full(2.0, 0.5);
        for _ in 0..2 {
            assert_eq!(bucket.available_at(now, 1.0), now);
            let token = bucket.take(now);
            bucket.on_finished(token);
        }
        for (tokens, after) in [(1.0, 2.0), (2.0, 4.0), (4.0, 8.0)] {
            let when = bucket.available_at(now, tokens);
            assert!(near((when - now).as_secs_f64(), after), "{tokens}: {:?}", when - now);
        }
        let (early, when) = (now + seconds(1.999), bucket.available_at(now, 1.0));
        bucket.fill(early);
        assert!(bucket.available_at(early, 1.0) > early);
        bucket.fill(when);
        assert_eq!(bucket.available_at(when, 1.0), when);
    }

    #[test]
    fn a_token_that_is_put_back_is_available_at_once_unless_it_would_have_overflowed() {
        let (mut bucket, now) = full(2.0, 1.0);
        let tokens = [bucket.take(now), bucket.take(now)];
        for token in tokens {
            bucket.put_back(token);
        }
        assert!(near(bucket.free(now), 2.0));
        let tokens = [bucket.take(now), bucket.take(now)];
        bucket.fill(now + seconds(1.0));
        bucket.take(now + seconds(1.0));
        assert!(near(bucket.free(now + seconds(1.0)), 0.0));
        // Without these two the bucket would have been full throughout, and one token would be left.
        for token in tokens {
            bucket.put_back(token);
        }
        assert!(near(bucket.free(now + seconds(1.0)), 1.0));
    }

    #[test]
    fn the_remaining_quota_is_kept_to_but_never_stops_the_inflow() {
        let (mut bucket, mut now) = full(100.0, 1.0);
        bucket.take(now);
        let token = bucket.take(now);
        bucket.on_finished(token);
        bucket.on_remaining(10);
        assert!(near(bucket.tokens(), 9.0), "one is in flight");
        bucket.on_remaining(50);
        assert!(near(bucket.tokens(), 9.0));
        bucket.on_remaining(0);
        for _ in 0..9 {
            now += seconds(0.1);
            bucket.fill(now);
            bucket.on_remaining(0);
        }
        bucket.fill(now + seconds(0.2));
        assert!(bucket.free(now + seconds(0.2)) >= 1.0);
    }

    #[test]
    fn a_pause_lasts_as_the_cloud_says_or_twice_as_long_each_time() {
        let (mut bucket, mut now) = full(10.0, 10.0);
        let token = bucket.take(now);
        assert!(bucket.on_refused(now, token, Some(seconds(30.0)), true));
        assert_eq!(bucket.paused_until(now), Some(now + seconds(30.0)));
        now += seconds(30.0);
        for lasts in [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0] {
            bucket.fill(now);
            let probe = bucket.take(now);
            assert!(bucket.on_refused(now, probe, None, true));
            assert_eq!(bucket.paused_until(now), Some(now + seconds(lasts)));
            now += seconds(lasts);
        }
        assert!(bucket.learned().per_second > 5.0, "only the first said anything about the rate");
        bucket.on_accepted(now);
        let token = bucket.take(now);
        assert!(bucket.on_refused(now, token, None, true));
        assert_eq!(bucket.paused_until(now), Some(now + seconds(1.0)));
    }

    #[test]
    fn of_refusals_in_flight_together_one_changes_the_rate() {
        let (mut bucket, now) = full(10.0, 10.0);
        let later = now + seconds(0.1);
        let tokens = [bucket.take(now), bucket.take(now)];
        let news = tokens.map(|token| bucket.on_refused(later, token, Some(seconds(5.0)), true));
        assert_eq!(news, [true, false]);
        let token = bucket.take(now);
        assert!(!bucket.on_refused(later, token, Some(seconds(7.0)), true));
        assert_eq!(bucket.paused_until(later), Some(later + seconds(7.0)));
        bucket.on_accepted(now);
        assert!(bucket.paused_until(later).is_some(), "what was sent before doesn't open it");
    }

    /// Sends this many requests, one a second. The next one is refused, with this many tokens left.
    fn learn(bucket: &mut Bucket, mut now: Instant, sent: u32, left: f64) {
        let mut token = Token { at: now, left, lost: 0.0, number: 0.0 };
        for _ in 0..=sent {
            bucket.fill(now);
            token = bucket.take(now);
            bucket.on_finished(token);
            now += seconds(1.0);
        }
        bucket.learn(now, Token { left, ..token });
    }

    #[test]
    fn a_refusal_lowers_the_rate_and_the_burst_if_tokens_were_left() {
        let (mut bucket, now) = full(100.0, 10.0);
        bucket.learn(now, left(69.0));
        assert_eq!(
            bucket.learned(),
            rate(30.0, 5.0),
            "30 went well and the 31st didn't; of the rate nothing is known"
        );
        learn(&mut bucket, now, 20, 29.0);
        let Rate { burst, per_second } = bucket.learned();
        assert!((6.0..6.4).contains(&burst), "no more than four fifths at once: {burst}");
        assert!((1.2..2.0).contains(&per_second), "one a second was sent: {per_second}");
        learn(&mut bucket, now + seconds(21.0), 9, 0.2);
        assert!(bucket.learned().burst >= burst, "no store was left: {:?}", bucket.learned());
    }

    #[test]
    fn a_learned_rate_recovers_in_time_and_not_beyond_the_declared_rate() {
        let (mut bucket, now) = full(100.0, 10.0);
        bucket.learn(now, left(0.0));
        assert_eq!(bucket.learned(), rate(100.0, 5.0));
        bucket.fill(now + seconds(30.0));
        assert!(near(bucket.learned().per_second, 5.0 * 0.5_f64.exp()));
        bucket.fill(now + seconds(60.0));
        let beyond = (60.0 - 60.0 * (9.0_f64 / 5.0).ln()) / 600.0;
        assert!(near(bucket.learned().per_second, 9.0 * beyond.exp()), "{:?}", bucket.learned());
        bucket.fill(now + seconds(3600.0));
        assert_eq!(bucket.learned(), rate(100.0, 10.0));
    }

    /// A cloud's own bucket.
    struct Cloud {
        rate: Rate,
        tokens: f64,
        filled: Instant,
    }

    impl Cloud {
        fn takes(&mut self, now: Instant) -> bool {
            let span = (now - self.filled).as_secs_f64();
            self.tokens = (self.tokens + self.rate.per_second * span).min(self.rate.burst);
            self.filled = now;
            let takes = self.tokens >= 1.0;
            self.tokens -= if takes { 1.0 } else { 0.0 };
            takes
        }
    }

    /// Sends more requests than either side allows for ten minutes, with a round trip of 20 ms. Returns the used part
    /// of the cloud's rate and the refused part of all answers, both without the first minute, in which most is
    /// learned.
    fn ten_minutes(declared: Rate, hidden: Rate, after: Option<Duration>) -> (f64, f64) {
        let (accepted, refused) = play(declared, hidden, after, 60_000..600_000);
        (accepted / (hidden.per_second * 540.0), refused / (accepted + refused))
    }

    /// Returns how many requests were accepted and how many refused within these milliseconds.
    fn play(
        declared: Rate,
        hidden: Rate,
        after: Option<Duration>,
        counted: std::ops::Range<u64>,
    ) -> (f64, f64) {
        let start = Instant::now();
        let mut bucket = Bucket::new(declared, start, start);
        let mut cloud = Cloud { rate: hidden, tokens: hidden.burst, filled: start };
        let mut in_flight: VecDeque<(Token, bool)> = VecDeque::new();
        let (mut accepted, mut refused) = (0.0, 0.0);
        for step in 0..counted.end {
            let now = start + Duration::from_millis(step);
            bucket.fill(now);
            while in_flight.front().is_some_and(|(token, _)| token.at + seconds(0.02) <= now) {
                let Some((token, takes)) = in_flight.pop_front() else { break };
                bucket.on_finished(token);
                let counts = if counted.contains(&step) { 1.0 } else { 0.0 };
                if takes {
                    bucket.on_accepted(token.at);
                    accepted += counts;
                } else {
                    refused += counts;
                    bucket.on_refused(now, token, after, true);
                }
            }
            while in_flight.len() < 64 && bucket.available_at(now, 1.0) <= now {
                in_flight.push_back((bucket.take(now), cloud.takes(now)));
            }
        }
        (accepted, refused)
    }

    #[test]
    fn a_hidden_limit_is_found_within_half_a_minute() {
        let stores = [rate(100.0, 200.0), rate(20.0, 40.0), rate(400.0, 40.0), rate(250.0, 25.0)];
        for (factor, few) in [(1.2, 0.005), (2.0, 0.006), (5.0, 0.007), (10.0, 0.01)] {
            for hidden in stores {
                let declared = rate(hidden.burst * factor, hidden.per_second * factor);
                let (accepted, refused) = play(declared, hidden, Some(seconds(1.0)), 0..30_000);
                let used = accepted / (hidden.burst + hidden.per_second * 30.0);
                let share = refused / (accepted + refused);
                println!("{factor} times {hidden:?}: {used:.3} used, {refused} = {share:.4} refused");
                assert!(used > 0.88, "{factor} times {hidden:?}: {used} of what the cloud takes");
                assert!(share <= few, "{factor} times {hidden:?}: {share} refused");
            }
        }
    }

    #[test]
    fn few_requests_are_in_flight_at_first_and_an_answer_makes_room() {
        let (mut bucket, now) = full(100.0, 100.0);
        let tokens: Vec<_> = (0..4).map(|_| bucket.take(now)).collect();
        assert!(bucket.is_crowded() && bucket.tokens() >= 96.0);
        assert_eq!(
            bucket.available_at(now, 1.0),
            now + PROBE,
            "an answer that is lost doesn't hold the others back forever"
        );
        bucket.on_finished(tokens[0]);
        assert_eq!(bucket.available_at(now, 1.0), now);
    }

    #[test]
    fn a_cloud_that_refused_everything_is_used_again_within_minutes() {
        let (mut bucket, mut now) = full(100.0, 10.0);
        // Each second probe is accepted and the request after it is refused: nothing can be learned from that.
        for _ in 0..100 {
            bucket.fill(now);
            let tokens = [bucket.take(now), bucket.take(now)];
            bucket.on_accepted(now);
            bucket.on_refused(now, tokens[1], Some(seconds(1.0)), true);
            now += seconds(1.0);
        }
        assert!(bucket.learned().per_second < 0.2);
        bucket.fill(now + seconds(300.0));
        assert!(bucket.learned().per_second > 9.0, "{:?}", bucket.learned());
    }

    #[test]
    fn a_hidden_limit_is_learned_with_few_refusals_and_is_used() {
        let after = |after| Some(seconds(after));
        for (name, declared, hidden, after, few) in [
            ("as declared", rate(200.0, 10.0), rate(200.0, 10.0), after(1.0), 0.0),
            ("a tenth", rate(200.0, 100.0), rate(20.0, 10.0), after(1.0), 0.005),
            ("half, no time named", rate(200.0, 25.0), rate(200.0, 12.0), None, 0.005),
            ("a long pause", rate(200.0, 25.0), rate(100.0, 12.0), after(5.0), 0.005),
            ("a small store", rate(50.0, 50.0), rate(5.0, 20.0), after(1.0), 0.005),
            // One refusal a minute, of 30 requests.
            ("a slow one", rate(50.0, 10.0), rate(5.0, 0.5), after(2.0), 0.05),
            ("nothing declared", Rate::UNDECLARED, rate(50.0, 20.0), after(1.0), 0.005),
            ("nothing declared of a slow one", Rate::UNDECLARED, rate(5.0, 2.0), after(1.0), 0.02),
        ] {
            let (used, refused) = ten_minutes(declared, hidden, after);
            println!("{name}: {used:.3} of the cloud's rate used, {refused:.4} refused");
            assert!(used > 0.9, "{name}: {used} of what the cloud takes");
            assert!(refused <= few, "{name}: {refused} refused");
        }
    }
}
