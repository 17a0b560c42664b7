//! One token bucket: how many requests it lets through at which time, and what it learns from the cloud's refusals. It
//! holds what the operator and the provider allow at most, and below that what the cloud turned out to allow. Pure
//! arithmetic: every function is told the time, which never runs backwards.

mod heritage;

use std::time::{Duration, Instant};

pub(crate) use heritage::Heritage;

use crate::limits::{
    closures::{Closure, PROBE},
    known::Rate,
    learned::Learned,
    throughput::ThroughputMeter,
    window::Window,
};

/// What a sum of fractions may lack of a whole token.
const DUST: f64 = 1e-6;
/// A token that is worth no more than this is worth nothing.
const WORTHLESS: f64 = 1e-9;
/// As good as never, and far from what a duration can't hold.
const LONGEST: f64 = 365.0 * 86_400.0;

/// A token that was taken.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Token {
    pub(crate) at: Instant,
    /// How many were left.
    left: f64,
    /// What those that were out had lost before.
    lost: f64,
    /// Its number since the cloud refused last.
    number: f64,
}

/// A token bucket. A request takes a token, and has it back until it is surely sent.
#[derive(Debug)]
pub(crate) struct Bucket {
    learned: Learned,
    tokens: f64,
    filled: Instant,
    closure: Option<Closure>,
    window: Window,
    /// When the last token was taken.
    taken: Option<Instant>,
    /// How many tokens could be put back. With those that are there never more than fit: what would have run over had
    /// nothing been taken is lost, for all that are out alike.
    out: f64,
    /// What each of them has lost so far, as the logarithm of what it is still worth.
    lost: f64,
    meter: ThroughputMeter,
    /// When the last refusal came that changed anything.
    refused: Option<Instant>,
}

impl Bucket {
    /// A bucket that was empty at that time and has been filling since.
    pub(crate) fn new(most: Rate, empty: Instant, now: Instant) -> Self {
        let mut bucket = Self {
            learned: Learned::new(most),
            tokens: 0.0,
            filled: empty,
            closure: None,
            window: Window::default(),
            taken: None,
            out: 0.0,
            lost: 0.0,
            meter: ThroughputMeter::default(),
            refused: None,
        };
        bucket.fill(now);
        bucket
    }

    /// Empties the bucket, as though everything that it held had been spent just now.
    pub(crate) fn empty(&mut self, now: Instant) {
        self.fill(now);
        self.tokens = self.tokens.min(0.0);
    }

    /// Brings the bucket to this time. All other functions expect that it was.
    pub(crate) fn fill(&mut self, now: Instant) {
        let span = now.saturating_duration_since(self.filled).as_secs_f64();
        self.tokens = (self.tokens + self.learned.rate().per_second * span).min(self.room());
        let space = self.room() - self.tokens;
        if self.out > space {
            let kept = (space / self.out).max(WORTHLESS);
            self.out *= kept;
            self.lost -= kept.ln();
        }
        self.learned.grow(span);
        self.filled = self.filled.max(now);
    }

    /// A closed bucket keeps no more than the probe's token: what comes after is to come slowly.
    fn room(&self) -> f64 {
        if self.closure.is_some() { 1.0 } else { self.learned.rate().burst }
    }

    /// How many whole requests may go now, as a number that may be negative or broken.
    pub(crate) fn free(&self, now: Instant) -> f64 {
        if self.is_open(now) { self.tokens.min(self.window.free()) + DUST } else { 0.0 }
    }

    /// Whether no closure holds requests back now.
    pub(crate) fn is_open(&self, now: Instant) -> bool {
        self.closure.as_ref().is_none_or(|closure| closure.opens(now) <= now)
    }

    /// When so many tokens can be had, if nothing changes; now, if they can be had at once.
    pub(crate) fn when(&self, now: Instant, tokens: f64) -> Instant {
        let opens = self.closure.as_ref().map_or(now, |closure| closure.opens(now));
        let answered = self.taken.filter(|_| self.window.free() < tokens).map_or(now, |taken| taken + PROBE);
        self.holds(now, opens.max(answered), tokens)
    }

    /// Whether the next one has to wait for an answer to one that is under way.
    pub(crate) fn is_crowded(&self) -> bool {
        self.window.free() < 1.0
    }

    /// When so many tokens will be had, if a probe that is under way succeeds at once.
    pub(crate) fn expected(&self, now: Instant, tokens: f64) -> Instant {
        self.holds(now, self.closed_until(now).unwrap_or(now), tokens)
    }

    /// When so many tokens are there, but not before it opens.
    fn holds(&self, now: Instant, opens: Instant, tokens: f64) -> Instant {
        let waited = opens.duration_since(now).as_secs_f64();
        let held = (self.tokens + self.learned.rate().per_second * waited).min(self.room());
        let missing = tokens - held - DUST;
        if missing <= 0.0 {
            return opens;
        }
        let span = Duration::from_secs_f64((missing / self.learned.rate().per_second).min(LONGEST));
        // Rounded up, or whoever wakes then would find a fraction missing.
        opens + span + Duration::from_micros(1)
    }

    /// What a span of time brings.
    pub(crate) fn brings(&self, span: Duration) -> f64 {
        self.learned.rate().per_second * span.as_secs_f64()
    }

    /// Takes a token that is there.
    pub(crate) fn take(&mut self, now: Instant) -> Token {
        let token = self.take_in_advance(now);
        self.tokens = self.tokens.max(0.0);
        Token { left: self.tokens, ..token }
    }

    /// Takes a token whether it is there or not. What is missing flows in before the next one can be had.
    pub(crate) fn take_in_advance(&mut self, now: Instant) -> Token {
        self.tokens -= 1.0;
        self.window.sent();
        self.taken = Some(now);
        self.out += 1.0;
        if let Some(closure) = &mut self.closure {
            closure.probe(now);
        }
        Token { at: now, left: self.tokens, lost: self.lost, number: self.meter.count(now) }
    }

    /// Puts back the token of a request that surely wasn't sent, as far as it wouldn't have run over in the meantime:
    /// more could be sent at once than the burst allows, else.
    pub(crate) fn put_back(&mut self, token: Token) {
        self.tokens = (self.tokens + self.worth(token)).min(self.room());
        self.meter.take_back();
        self.finished(token);
    }

    /// A request that took this token is answered, or won't be.
    pub(crate) fn finished(&mut self, token: Token) {
        self.window.finished();
        self.out = (self.out - self.worth(token)).max(0.0);
        if let Some(closure) = &mut self.closure {
            closure.free(token.at);
        }
    }

    fn worth(&self, token: Token) -> f64 {
        (token.lost - self.lost).exp()
    }

    /// The cloud took a request that was sent then.
    pub(crate) fn accepted(&mut self, sent: Instant) {
        if self.closure.as_ref().is_some_and(|closure| closure.was_tried(sent)) {
            self.closure = None;
        }
        self.window.accepted();
    }

    /// The cloud says that it takes so many more. What is under way may count against them.
    pub(crate) fn remaining(&mut self, requests: u32) {
        let requests = f64::from(requests.saturating_sub(self.window.under_way()));
        // The broken token stays, or a cloud that always says 0 would stop a bucket that fills slowly altogether.
        self.tokens = self.tokens.min(requests + self.tokens.fract());
    }

    /// Whether a request that was sent then tried whether a closure is over.
    pub(crate) fn was_tried(&self, sent: Instant) -> bool {
        self.closure.as_ref().is_some_and(|closure| closure.was_tried(sent))
    }

    /// The cloud refused a request with this token, because of what this bucket stands for, and if it is throttled,
    /// because of the number of requests. Says whether that is news: of many that were under way together only the
    /// first is.
    pub(crate) fn refused(
        &mut self,
        now: Instant,
        token: Token,
        after: Option<Duration>,
        throttled: bool,
    ) -> bool {
        if self.refused.is_some_and(|refused| token.at < refused) {
            // The time that the cloud named may still be later.
            if let (Some(closure), Some(after)) = (&mut self.closure, after) {
                closure.extend(now + after);
            }
            return false;
        }
        // A probe was one request: that it is refused says nothing about how many would have been too many.
        if throttled && !self.was_tried(token.at) {
            self.learn(now, token);
        } else {
            self.meter.restart(now);
        }
        self.closure = Some(Closure::new(now, after, self.closure));
        self.refused = Some(now);
        self.tokens = self.tokens.min(1.0);
        true
    }

    fn learn(&mut self, now: Instant, token: Token) {
        let measured = self.meter.measure(now, token.at, token.number, self.learned.rate().per_second);
        self.window.refused();
        self.learned.refused(measured, Some(token.left).filter(|left| left + DUST >= 1.0));
    }

    pub(crate) fn learned(&self) -> Rate {
        self.learned.rate()
    }

    pub(crate) fn most(&self) -> Rate {
        self.learned.most()
    }

    /// How many requests it would let through at once if it weren't closed.
    pub(crate) fn tokens(&self) -> f64 {
        self.tokens
    }

    /// Until when nothing may be sent.
    pub(crate) fn closed_until(&self, now: Instant) -> Option<Instant> {
        self.closure.as_ref().map(Closure::until).filter(|until| *until > now)
    }

    /// Whether a new bucket would be the same.
    pub(crate) fn is_as_new(&self) -> bool {
        let full = self.tokens + DUST >= self.most().burst;
        full && self.closure.is_none() && self.window.under_way() == 0 && self.learned.is_as_new()
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

    /// A token that left so many.
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
        let wait = |bucket: &Bucket| (bucket.when(now, 1.0) - now).as_secs_f64();
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
    fn a_bucket_says_exactly_when_a_token_will_be_there() {
        let (mut bucket, now) = full(2.0, 0.5);
        for _ in 0..2 {
            assert_eq!(bucket.when(now, 1.0), now);
            let token = bucket.take(now);
            bucket.finished(token);
        }
        for (tokens, after) in [(1.0, 2.0), (2.0, 4.0), (4.0, 8.0)] {
            let when = bucket.when(now, tokens);
            assert!(near((when - now).as_secs_f64(), after), "{tokens}: {:?}", when - now);
        }
        let (early, when) = (now + seconds(1.999), bucket.when(now, 1.0));
        bucket.fill(early);
        assert!(bucket.when(early, 1.0) > early);
        bucket.fill(when);
        assert_eq!(bucket.when(when, 1.0), when);
    }

    #[test]
    fn a_token_that_is_put_back_is_there_at_once_but_not_beyond_what_would_have_been() {
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
        // Without these two the bucket would have been full all the time, and one would be left.
        for token in tokens {
            bucket.put_back(token);
        }
        assert!(near(bucket.free(now + seconds(1.0)), 1.0));
    }

    #[test]
    fn what_the_cloud_says_remains_holds_but_never_stops_the_flow() {
        let (mut bucket, mut now) = full(100.0, 1.0);
        bucket.take(now);
        let token = bucket.take(now);
        bucket.finished(token);
        bucket.remaining(10);
        assert!(near(bucket.tokens(), 9.0), "one is under way");
        bucket.remaining(50);
        assert!(near(bucket.tokens(), 9.0));
        bucket.remaining(0);
        for _ in 0..9 {
            now += seconds(0.1);
            bucket.fill(now);
            bucket.remaining(0);
        }
        bucket.fill(now + seconds(0.2));
        assert!(bucket.free(now + seconds(0.2)) >= 1.0);
    }

    #[test]
    fn a_closure_lasts_as_the_cloud_says_or_twice_as_long_each_time() {
        let (mut bucket, mut now) = full(10.0, 10.0);
        let token = bucket.take(now);
        assert!(bucket.refused(now, token, Some(seconds(30.0)), true));
        assert_eq!(bucket.closed_until(now), Some(now + seconds(30.0)));
        now += seconds(30.0);
        for lasts in [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0] {
            bucket.fill(now);
            let probe = bucket.take(now);
            assert!(bucket.refused(now, probe, None, true));
            assert_eq!(bucket.closed_until(now), Some(now + seconds(lasts)));
            now += seconds(lasts);
        }
        assert!(bucket.learned().per_second > 5.0, "only the first said anything about the rate");
        bucket.accepted(now);
        let token = bucket.take(now);
        assert!(bucket.refused(now, token, None, true));
        assert_eq!(bucket.closed_until(now), Some(now + seconds(1.0)));
    }

    #[test]
    fn of_refusals_that_were_under_way_together_one_is_learned_from() {
        let (mut bucket, now) = full(10.0, 10.0);
        let later = now + seconds(0.1);
        let tokens = [bucket.take(now), bucket.take(now)];
        let news = tokens.map(|token| bucket.refused(later, token, Some(seconds(5.0)), true));
        assert_eq!(news, [true, false]);
        let token = bucket.take(now);
        assert!(!bucket.refused(later, token, Some(seconds(7.0)), true));
        assert_eq!(bucket.closed_until(later), Some(later + seconds(7.0)));
        bucket.accepted(now);
        assert!(bucket.closed_until(later).is_some(), "what was sent before doesn't open it");
    }

    /// Sends so many, one after another with a second between them, and has the next refused, which left so many tokens.
    fn learn(bucket: &mut Bucket, mut now: Instant, sent: u32, left: f64) {
        let mut token = Token { at: now, left, lost: 0.0, number: 0.0 };
        for _ in 0..=sent {
            bucket.fill(now);
            token = bucket.take(now);
            bucket.finished(token);
            now += seconds(1.0);
        }
        bucket.learn(now, Token { left, ..token });
    }

    #[test]
    fn a_refusal_cuts_the_rate_and_out_of_a_store_the_burst() {
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
    fn what_was_learned_grows_back_in_its_time_and_not_beyond() {
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

    /// What becomes of ten minutes of more requests than either side allows, with a round trip of 20 ms: which part of
    /// what the cloud would have taken it took, and which part of all answers were refusals. The first minute, in which
    /// most is learned, doesn't count.
    fn ten_minutes(declared: Rate, hidden: Rate, after: Option<Duration>) -> (f64, f64) {
        let (accepted, refused) = play(declared, hidden, after, 60_000..600_000);
        (accepted / (hidden.per_second * 540.0), refused / (accepted + refused))
    }

    /// How many were accepted and how many refused within these milliseconds.
    fn play(
        declared: Rate,
        hidden: Rate,
        after: Option<Duration>,
        counted: std::ops::Range<u64>,
    ) -> (f64, f64) {
        let start = Instant::now();
        let mut bucket = Bucket::new(declared, start, start);
        let mut cloud = Cloud { rate: hidden, tokens: hidden.burst, filled: start };
        let mut under_way: VecDeque<(Token, bool)> = VecDeque::new();
        let (mut accepted, mut refused) = (0.0, 0.0);
        for step in 0..counted.end {
            let now = start + Duration::from_millis(step);
            bucket.fill(now);
            while under_way.front().is_some_and(|(token, _)| token.at + seconds(0.02) <= now) {
                let Some((token, takes)) = under_way.pop_front() else { break };
                bucket.finished(token);
                let counts = if counted.contains(&step) { 1.0 } else { 0.0 };
                if takes {
                    bucket.accepted(token.at);
                    accepted += counts;
                } else {
                    refused += counts;
                    bucket.refused(now, token, after, true);
                }
            }
            while under_way.len() < 64 && bucket.when(now, 1.0) <= now {
                under_way.push_back((bucket.take(now), cloud.takes(now)));
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
    fn until_the_cloud_has_taken_more_few_are_under_way_and_an_answer_makes_room() {
        let (mut bucket, now) = full(100.0, 100.0);
        let tokens: Vec<_> = (0..4).map(|_| bucket.take(now)).collect();
        assert!(bucket.is_crowded() && bucket.tokens() >= 96.0);
        assert_eq!(
            bucket.when(now, 1.0),
            now + PROBE,
            "an answer that is lost doesn't hold the others back for ever"
        );
        bucket.finished(tokens[0]);
        assert_eq!(bucket.when(now, 1.0), now);
    }

    #[test]
    fn a_cloud_that_refused_everything_for_a_while_is_used_again_within_minutes() {
        let (mut bucket, mut now) = full(100.0, 10.0);
        // Each second probe goes through, and what comes after it is refused: nothing is to be learned from that.
        for _ in 0..100 {
            bucket.fill(now);
            let tokens = [bucket.take(now), bucket.take(now)];
            bucket.accepted(now);
            bucket.refused(now, tokens[1], Some(seconds(1.0)), true);
            now += seconds(1.0);
        }
        assert!(bucket.learned().per_second < 0.2);
        bucket.fill(now + seconds(300.0));
        assert!(bucket.learned().per_second > 9.0, "{:?}", bucket.learned());
    }

    #[test]
    fn a_hidden_limit_is_learned_so_that_refusals_are_few_and_little_is_left_unused() {
        let after = |after| Some(seconds(after));
        for (name, declared, hidden, after, few) in [
            ("as declared", rate(200.0, 10.0), rate(200.0, 10.0), after(1.0), 0.0),
            ("a tenth", rate(200.0, 100.0), rate(20.0, 10.0), after(1.0), 0.005),
            ("half, no time named", rate(200.0, 25.0), rate(200.0, 12.0), None, 0.005),
            ("a long closure", rate(200.0, 25.0), rate(100.0, 12.0), after(5.0), 0.005),
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
