//! Measures how many requests of one limit the cloud takes each second, between two of its refusals. Pure.
//!
//! At a refusal the cloud's own bucket is empty. What the cloud takes until the next refusal has flowed into that bucket
//! since. This includes what flowed in during the pause after the first refusal, unless the bucket was full before the
//! pause ended. The gate does not know the size of that bucket, so it counts about half of the pause.

use std::time::{Duration, Instant};

/// After this time the requests so far count half: they say little about what the cloud takes now.
const MEMORY: Duration = Duration::from_mins(1);
/// The part of a pause in which the cloud's bucket is assumed to have filled.
const FILLING: f64 = 0.53;
/// The seconds of inflow that the cloud's bucket is assumed to have held before the first refusal.
const STORE: f64 = 0.75;
/// The shortest time to divide by, in seconds.
const SHORTEST: f64 = 0.01;
/// Fewer requests than this measure nothing.
const CREDIBLE: f64 = 5.0;
/// A client that sent less than this part of what the limit let through had no more to send.
const BUSY: f64 = 0.8;

/// What the requests between two refusals show.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Throughput {
    /// The requests that the cloud took each second.
    pub(crate) per_second: f64,
    /// Whether the cloud takes no more than that. Unknown, and so false, at a first refusal and where the client had no
    /// more to send.
    pub(crate) is_limit: bool,
}

/// The requests since the last refusal.
#[derive(Debug, Clone, Default)]
pub(crate) struct ThroughputMeter {
    requests: f64,
    begun: Option<Instant>,
    /// The seconds between the last refusal and `begun`. None before the first refusal.
    paused: Option<f64>,
    refused: Option<Instant>,
}

impl ThroughputMeter {
    /// Counts a request that is being sent. Returns its number.
    pub(crate) fn count(&mut self, now: Instant) -> f64 {
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

    /// Takes back a request that was not sent.
    pub(crate) fn take_back(&mut self) {
        self.requests = (self.requests - 1.0).max(0.0);
    }

    /// Starts over after a refusal.
    pub(crate) fn restart(&mut self, now: Instant) {
        *self = Self { refused: Some(now), ..Self::default() };
    }

    /// Measures at a refusal and starts over. The refused request had this number and was sent at this time, while the
    /// limit let through `allowed` requests a second. None after too few requests.
    pub(crate) fn measure(
        &mut self,
        now: Instant,
        sent: Instant,
        number: f64,
        allowed: f64,
    ) -> Option<Throughput> {
        let Self { requests, begun, paused, .. } = *self;
        self.restart(now);
        let requests = number.min(requests);
        if requests < CREDIBLE {
            return None;
        }
        let lasted = sent.saturating_duration_since(begun?).as_secs_f64();
        let filling = paused.map_or(STORE, |paused| paused * FILLING);
        // All but the last one were accepted.
        let per_second = (requests - 1.0) / (lasted + filling).max(SHORTEST);
        let is_limit = paused.is_some() && requests >= BUSY * allowed * lasted;
        Some(Throughput { per_second, is_limit })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A cloud's own bucket.
    struct CloudBucket {
        burst: f64,
        per_second: f64,
    }

    impl CloudBucket {
        /// Sends at this rate until the cloud, whose bucket holds this much, refuses. Returns how long that took and
        /// what it shows.
        fn exhaust(
            &self,
            meter: &mut ThroughputMeter,
            from: Instant,
            held: f64,
            rate: f64,
        ) -> (f64, Option<Throughput>) {
            let mut sent = 0.0;
            loop {
                let lasted = sent / rate;
                let at = from + Duration::from_secs_f64(lasted);
                let number = meter.count(at);
                sent += 1.0;
                if sent > held + self.per_second * lasted {
                    return (lasted, meter.measure(at, at, number, rate));
                }
            }
        }

        /// What a second refusal shows, after a pause of this many seconds in which the bucket filled.
        fn shown_after(&self, paused: f64) -> Throughput {
            let (mut meter, start) = (ThroughputMeter::default(), Instant::now());
            let (first, _) = self.exhaust(&mut meter, start, self.burst, self.per_second * 10.0);
            let held = self.burst.min(self.per_second * paused);
            let again = start + Duration::from_secs_f64(first + paused);
            self.exhaust(&mut meter, again, held, self.per_second * 1.25).1.unwrap()
        }
    }

    #[test]
    fn two_refusals_show_the_rate() {
        for (burst, per_second, paused, error) in [
            (20.0, 40.0, 1.0, 0.12),
            (100.0, 200.0, 1.0, 0.12),
            (200.0, 10.0, 5.0, 0.12),
            (250.0, 25.0, 20.0, 0.12),
            // A bucket that was full long before the pause ended: less is measured than the cloud takes, never more.
            (50.0, 10.0, 60.0, 0.6),
        ] {
            let Throughput { per_second: shown, is_limit } =
                CloudBucket { burst, per_second }.shown_after(paused);
            assert!(is_limit, "{burst} and {per_second} after {paused} s");
            let ratio = shown / per_second;
            assert!((ratio - 1.0).abs() < error, "{burst} and {per_second} after {paused} s: {shown}");
        }
    }

    #[test]
    fn few_requests_show_nothing_and_a_first_refusal_no_limit() {
        let (mut meter, now) = (ThroughputMeter::default(), Instant::now());
        let number = meter.count(now);
        assert_eq!(meter.measure(now, now, number, 10.0), None);
        let cloud = CloudBucket { burst: 100.0, per_second: 10.0 };
        let (_, shown) = cloud.exhaust(&mut ThroughputMeter::default(), now, 100.0, 110.0);
        assert!(!shown.unwrap().is_limit);
    }

    #[test]
    fn a_client_with_no_more_to_send_shows_no_limit() {
        let (mut meter, now) = (ThroughputMeter::default(), Instant::now());
        let cloud = CloudBucket { burst: 10.0, per_second: 10.0 };
        cloud.exhaust(&mut meter, now, 10.0, 100.0);
        let later = now + Duration::from_secs(5);
        let mut number = 0.0;
        for second in 0..20 {
            number = meter.count(later + Duration::from_secs(second));
        }
        let last = later + Duration::from_secs(19);
        let Throughput { per_second, is_limit } = meter.measure(last, last, number, 100.0).unwrap();
        assert!(!is_limit && per_second < 2.0, "{per_second}");
    }

    #[test]
    fn older_requests_count_less() {
        let (mut meter, now) = (ThroughputMeter::default(), Instant::now());
        let sent = |meter: &mut ThroughputMeter, from: u64, until: u64, each: usize| {
            let mut number = 0.0;
            for second in from..until {
                for _ in 0..each {
                    number = meter.count(now + Duration::from_secs(second));
                }
            }
            number
        };
        sent(&mut meter, 0, 60, 100);
        let number = sent(&mut meter, 60, 360, 10);
        let end = now + Duration::from_mins(6);
        let per_second = meter.measure(end, end, number, 10.0).unwrap().per_second;
        assert!((9.0..13.0).contains(&per_second), "{per_second}");
    }
}
