//! What a bucket hands over to its successor, so that a new version of a provider need not learn again by refusals.

use std::time::Instant;

use crate::limits::bucket::Bucket;
use crate::limits::learned::LearnedRate;
use crate::limits::pauses::Pause;
use crate::limits::window::InFlightWindow;

/// The tokens of a bucket and what it has learned.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct BucketSnapshot {
    tokens: f64,
    learned: LearnedRate,
    pause: Option<Pause>,
    window: InFlightWindow,
}

impl Bucket {
    /// Hands over its tokens and what it has learned. It is empty afterwards.
    pub(crate) fn hand_over(&mut self, now: Instant) -> BucketSnapshot {
        self.fill(now);
        let Self { learned, pause, window, .. } = *self;
        BucketSnapshot { tokens: std::mem::take(&mut self.tokens), learned, pause, window }
    }

    /// Continues where another bucket stopped. It takes over the tokens, so that both together let through no more than
    /// one. It takes over learned numbers where they are below what is declared now.
    pub(crate) fn take_over(&mut self, now: Instant, snapshot: BucketSnapshot) {
        self.fill(now);
        let BucketSnapshot { tokens, learned, pause, window } = snapshot;
        self.learned.take_over(learned);
        self.pause = pause.map(Pause::handed_over).or(self.pause);
        self.window.take_over(window);
        self.tokens = tokens.min(self.room());
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::limits::limit::Rate;

    const SECOND: Duration = Duration::from_secs(1);

    fn rate(burst: f64, per_second: f64) -> Rate {
        Rate { burst, per_second }
    }

    /// A bucket that is full.
    fn full(most: Rate, now: Instant) -> Bucket {
        let mut bucket = Bucket::new(most, now, now);
        bucket.tokens = most.burst;
        bucket
    }

    #[test]
    fn learned_numbers_are_taken_over_where_they_are_below_the_declared_ones() {
        let (most, less, least) = (rate(100.0, 10.0), rate(50.0, 5.0), rate(10.0, 1.0));
        let rows = [
            ("nothing learned, the same limit", most, most, most, most),
            ("nothing learned, a wider limit", less, less, most, most),
            ("nothing learned, a narrower limit", most, most, less, less),
            ("learned, the same limit", most, less, most, less),
            ("learned, a wider limit", less, least, most, least),
            ("learned, a narrower limit", most, less, least, least),
        ];
        for (name, declared, learned, declared_now, expected) in rows {
            let now = Instant::now();
            let mut old = full(declared, now);
            old.learned.take_over(LearnedRate::at(declared, learned));
            let mut new = Bucket::new(declared_now, now, now);
            new.take_over(now, old.hand_over(now));
            assert_eq!(new.learned(), expected, "{name}");
        }
    }

    #[test]
    fn tokens_are_taken_over_up_to_the_burst() {
        let now = Instant::now();
        for (burst, expected) in [(100.0, 7.0), (5.0, 5.0)] {
            let mut old = full(rate(10.0, 1.0), now);
            (0..3).for_each(|_| _ = old.take(now));
            let mut new = full(rate(burst, 1.0), now);
            new.take_over(now, old.hand_over(now));
            assert!((new.tokens - expected).abs() < 0.01, "{burst}: {}", new.tokens);
            assert!(old.tokens < 0.01, "the old one has none left");
        }
    }

    #[test]
    fn the_window_is_taken_over_but_not_the_requests_in_flight() {
        let now = Instant::now();
        let mut old = full(rate(100.0, 10.0), now);
        for _ in 0..8 {
            let tokens: Vec<_> = (0..4).map(|_| old.take(now)).collect();
            for token in tokens {
                old.on_finished(token);
                old.on_accepted(now);
            }
        }
        let (size, _under_way) = (old.window.free(), old.take(now));
        assert!(size > InFlightWindow::default().free(), "{size}");
        let mut new = full(rate(100.0, 10.0), now);
        new.take_over(now, old.hand_over(now));
        assert!((new.window.free() - size).abs() < 0.01, "{}", new.window.free());
    }

    #[test]
    fn a_pause_is_taken_over_without_the_probe_in_flight() {
        let now = Instant::now();
        let mut old = full(rate(10.0, 1.0), now);
        let token = old.take(now);
        assert!(old.on_refused(now, token, Some(30 * SECOND), true));
        let later = now + 31 * SECOND;
        old.fill(later);
        old.take(later);
        assert!(old.available_at(later, 1.0) > later, "its probe is in flight");
        let mut new = full(rate(10.0, 1.0), now);
        new.take_over(now, old.hand_over(later));
        assert_eq!(new.paused_until(now), Some(now + 30 * SECOND));
        new.fill(later + SECOND);
        assert!(new.available_at(later + SECOND, 1.0) <= later + SECOND, "it probes for itself");
    }
}
