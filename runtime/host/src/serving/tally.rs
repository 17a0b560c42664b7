//! Counts how the lookups and changes of one release went, since it took its present role.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::SignedDuration;
use pileus_cloud::{Error, ErrorKind};

use crate::swap::Rates;

/// The counts of one release.
#[derive(Debug, Default)]
pub(super) struct Tally(Mutex<Counts>);

/// The upper bounds of latencies in milliseconds, each a quarter more than the one before, up to ten minutes.
const BUCKETS: usize = 61;

#[derive(Debug, Clone)]
struct Counts {
    rates: Rates,
    latencies: [u64; BUCKETS],
}

impl Default for Counts {
    fn default() -> Self {
        Self { rates: Rates::default(), latencies: [0; BUCKETS] }
    }
}

impl Tally {
    /// Forgets everything.
    pub(super) fn reset(&self) {
        *self.lock() = Counts::default();
    }

    /// How it went so far.
    pub(super) fn rates(&self) -> Rates {
        let counts = self.lock().clone();
        let mut below = 0;
        let median = counts.latencies.iter().position(|calls| {
            below += calls;
            below * 2 >= counts.rates.lookups && counts.rates.lookups > 0
        });
        let latency = median.map_or(SignedDuration::ZERO, |bucket| {
            SignedDuration::from_millis(bounds().nth(bucket).unwrap_or(i64::MAX / 1_000_000))
        });
        Rates { latency, ..counts.rates }
    }

    /// Counts the outcomes of a call about so many items.
    pub(super) fn items<T>(&self, items: usize, outcomes: &Result<Vec<Result<T, Error>>, Error>) {
        match outcomes {
            Ok(outcomes) => outcomes.iter().for_each(|outcome| self.item(outcome.as_ref().err())),
            Err(error) => (0..items).for_each(|_| self.item(Some(error))),
        }
    }

    /// Counts one outcome.
    pub(super) fn item(&self, error: Option<&Error>) {
        let rates = &mut self.lock().rates;
        rates.items += 1;
        match error.map(|error| error.kind) {
            Some(ErrorKind::Broken) => rates.traps += 1,
            Some(ErrorKind::Throttled(_)) => rates.throttled += 1,
            Some(ErrorKind::Denied | ErrorKind::Unavailable(_)) => rates.errors += 1,
            // A conflict ends by itself, and what is invalid is the user's object.
            Some(ErrorKind::Conflict(_) | ErrorKind::Invalid) | None => {}
        }
    }

    /// Counts the duration of a lookup.
    pub(super) fn looked_up(&self, duration: Duration) {
        let millis = i64::try_from(duration.as_millis()).unwrap_or(i64::MAX);
        let bucket = bounds().position(|bound| millis <= bound).unwrap_or(BUCKETS - 1);
        let mut counts = self.lock();
        counts.rates.lookups += 1;
        if let Some(calls) = counts.latencies.get_mut(bucket) {
            *calls += 1;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn bounds() -> impl Iterator<Item = i64> {
    std::iter::successors(Some(1), |bound| Some(bound + (bound / 4).max(1))).take(BUCKETS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latency_is_the_median_of_the_lookups_within_a_quarter() {
        let tally = Tally::default();
        assert_eq!(tally.rates(), Rates::default());
        (0..50).for_each(|_| tally.looked_up(Duration::from_millis(40)));
        (0..50).for_each(|_| tally.looked_up(Duration::from_secs(9)));
        let latency = tally.rates().latency.as_millis();
        assert!((40..=50).contains(&latency), "{latency}");
        tally.looked_up(Duration::from_secs(9));
        let latency = tally.rates().latency.as_millis();
        assert!((9_000..=11_250).contains(&latency), "{latency}");
        tally.looked_up(Duration::from_hours(1));
        assert!(bounds().last() >= Some(600_000), "{:?}", bounds().last());
        tally.reset();
        assert_eq!(tally.rates(), Rates::default());
    }

    #[test]
    fn errors_count_by_whose_defect_they_are() {
        let tally = Tally::default();
        let error = |kind| Err::<(), _>(Error::new(kind, "no"));
        tally.items(
            6,
            &Ok(vec![
                Ok(()),
                error(ErrorKind::Broken),
                error(ErrorKind::Denied),
                error(ErrorKind::Unavailable(None)),
                error(ErrorKind::Throttled(None)),
                error(ErrorKind::Invalid),
            ]),
        );
        tally.items::<()>(4, &Err(Error::new(ErrorKind::Denied, "no")));
        let Rates { items, errors, traps, throttled, .. } = tally.rates();
        assert_eq!((items, errors, traps, throttled), (10, 6, 1, 1));
    }
}
