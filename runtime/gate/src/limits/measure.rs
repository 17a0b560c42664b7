//! How fast the cloud's own bucket fills, found from what it took between two of its refusals. Pure.
//!
//! At a refusal the cloud's bucket is empty. So what it took since the refusal before is what flowed in since then, if
//! nothing ran over while the limit was closed; and what flowed in while requests were sent, together with a full
//! store, if something did. Which of both can't be seen, but two such spans of different length tell: what the longer one
//! took more, it took in the time that it was longer. That is less than the rate where the store wasn't full, and just
//! then the first is exact; so the rate is the greater of the two.

use std::time::{Duration, Instant};

/// What was sent longer ago than this counts half, and so on: it says little about what the cloud takes now.
const MEMORY: Duration = Duration::from_mins(1);
/// How long a store's worth is guessed to flow in, where nothing is known of it.
const STORE: f64 = 1.0;
/// Times are no more exact than that; it also keeps a quotient finite.
const SHORTEST: f64 = 0.01;
/// From fewer requests nothing is measured.
const CREDIBLE: f64 = 5.0;
/// A span of which another one says anything is so many times as long.
const LONGER: f64 = 2.0;
/// Who sent less than this part of what he was allowed had nothing more to send, so that the cloud may take more.
const BUSY: f64 = 0.8;

/// What was sent between two refusals.
#[derive(Debug, Clone, Copy)]
struct Span {
    requests: f64,
    /// In seconds, from the first to the last of them.
    lasted: f64,
}

/// What a refusal shows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Measured {
    /// What the cloud takes each second.
    pub(crate) per_second: f64,
    /// Whether it was asked for so much that it can't be more.
    pub(crate) surely: bool,
}

/// The requests since the cloud refused last.
#[derive(Debug, Clone, Default)]
pub(crate) struct Measure {
    requests: f64,
    begun: Option<Instant>,
    /// For how long nothing was sent before that, in seconds; none where the cloud hasn't refused before.
    paused: Option<f64>,
    refused: Option<Instant>,
    before: Option<Span>,
}

impl Measure {
    /// A request is being sent. Says its number.
    pub(crate) fn sent(&mut self, now: Instant) -> f64 {
        match self.begun {
            None => {
                self.begun = Some(now);
                self.paused =
                    self.refused.map(|refused| now.saturating_duration_since(refused).as_secs_f64());
            }
            Some(begun) if now.saturating_duration_since(begun) > MEMORY => {
                self.begun = now.checked_sub(MEMORY / 2);
                self.requests /= 2.0;
                self.paused = self.paused.map(|paused| paused / 2.0);
            }
            Some(_) => {}
        }
        self.requests += 1.0;
        self.requests
    }

    /// A request wasn't sent after all.
    pub(crate) fn put_back(&mut self) {
        self.requests = (self.requests - 1.0).max(0.0);
    }

    /// The cloud refused for a reason that says nothing about how much it takes, so that nothing is sent for a while.
    pub(crate) fn interrupted(&mut self, now: Instant) {
        *self = Self { refused: Some(now), before: self.before, ..Self::default() };
    }

    /// The cloud refused the request that was sent then with this number, at a time when so many a second were allowed.
    /// None where too few were sent to tell anything.
    pub(crate) fn refused(
        &mut self,
        now: Instant,
        sent: Instant,
        number: f64,
        allowed: f64,
    ) -> Option<Measured> {
        let lasted = self.begun.map_or(0.0, |begun| sent.saturating_duration_since(begun).as_secs_f64());
        let span = Span { requests: number.min(self.requests), lasted };
        let paused = self.paused;
        let before = self.before;
        *self = Self { refused: Some(now), before: Some(span), ..Self::default() };
        if span.requests < CREDIBLE {
            return None;
        }
        let Span { requests, lasted } = span;
        let busy = requests >= BUSY * allowed * lasted;
        let within = |time: f64| requests / time.max(SHORTEST);
        // Had the store been empty, and had it held all that could flow in.
        let (most, least) = (within(lasted), within(lasted + paused.unwrap_or_default()));
        let longer = |before: &Span| lasted >= (LONGER * before.lasted).max(before.lasted + SHORTEST);
        let (per_second, surely) = match (paused, before.filter(longer)) {
            (Some(_), Some(before)) => {
                let more = (requests - before.requests) / (lasted - before.lasted);
                (more.clamp(least, most), busy)
            }
            (Some(_), None) => ((least * most).sqrt(), false),
            (None, _) => ((within(lasted.max(STORE)) * most).sqrt(), false),
        };
        Some(Measured { per_second, surely })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A cloud's own bucket, from which so much is taken that it runs dry.
    struct Cloud {
        burst: f64,
        per_second: f64,
    }

    impl Cloud {
        /// Sends at this rate out of what it holds until it refuses. Says for how long and what that shows.
        fn exhaust(
            &self,
            measure: &mut Measure,
            from: Instant,
            held: f64,
            rate: f64,
        ) -> (f64, Option<Measured>) {
            let mut sent = 0.0;
            loop {
                let lasted = sent / rate;
                let at = from + Duration::from_secs_f64(lasted);
                let number = measure.sent(at);
                sent += 1.0;
                if sent > held + self.per_second * lasted {
                    return (lasted, measure.refused(at, at, number, rate));
                }
            }
        }

        /// The rate that shows after a pause of so many seconds, in which the bucket fills.
        fn shown_after(&self, paused: f64) -> Measured {
            let (mut measure, start) = (Measure::default(), Instant::now());
            let (first, _) = self.exhaust(&mut measure, start, self.burst, self.per_second * 10.0);
            let held = self.burst.min(self.per_second * paused);
            let again = start + Duration::from_secs_f64(first + paused);
            self.exhaust(&mut measure, again, held, self.per_second * 1.25).1.unwrap()
        }
    }

    #[test]
    fn two_refusals_show_the_rate_whether_the_store_ran_over_in_between_or_not() {
        for (burst, per_second, paused) in [
            (20.0, 40.0, 1.0),
            (100.0, 200.0, 1.0),
            (200.0, 10.0, 5.0),
            (250.0, 25.0, 20.0),
            (50.0, 10.0, 60.0),
        ] {
            let Measured { per_second: shown, surely } = Cloud { burst, per_second }.shown_after(paused);
            assert!(surely, "{burst} and {per_second} after {paused} s");
            let ratio = shown / per_second;
            assert!((0.93..1.07).contains(&ratio), "{burst} and {per_second} after {paused} s: {shown}");
        }
    }

    #[test]
    fn few_requests_show_nothing_and_one_refusal_little() {
        let (mut measure, now) = (Measure::default(), Instant::now());
        let number = measure.sent(now);
        assert_eq!(measure.refused(now, now, number, 10.0), None);
        let cloud = Cloud { burst: 100.0, per_second: 10.0 };
        let (_, shown) = cloud.exhaust(&mut Measure::default(), now, 100.0, 110.0);
        assert!(!shown.unwrap().surely);
    }

    #[test]
    fn who_had_nothing_more_to_send_shows_no_limit() {
        let (mut measure, now) = (Measure::default(), Instant::now());
        let cloud = Cloud { burst: 10.0, per_second: 10.0 };
        cloud.exhaust(&mut measure, now, 10.0, 100.0);
        let later = now + Duration::from_secs(5);
        let mut number = 0.0;
        for second in 0..20 {
            number = measure.sent(later + Duration::from_secs(second));
        }
        let last = later + Duration::from_secs(19);
        let Measured { per_second, surely } = measure.refused(last, last, number, 100.0).unwrap();
        assert!(!surely && per_second < 2.0, "{per_second}");
    }

    #[test]
    fn what_was_sent_long_ago_counts_ever_less() {
        let (mut measure, now) = (Measure::default(), Instant::now());
        let sent = |measure: &mut Measure, from: u64, until: u64, each: usize| {
            let mut number = 0.0;
            for second in from..until {
                for _ in 0..each {
                    number = measure.sent(now + Duration::from_secs(second));
                }
            }
            number
        };
        sent(&mut measure, 0, 60, 100);
        let number = sent(&mut measure, 60, 360, 10);
        let end = now + Duration::from_mins(6);
        let per_second = measure.refused(end, end, number, 10.0).unwrap().per_second;
        assert!((9.0..13.0).contains(&per_second), "{per_second}");
    }
}
