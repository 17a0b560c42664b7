//! Which events were sent lately. One that is sent again within some minutes gets no new object: the API server's object of the
//! first one counts it in its series, as client-go's recorder of `events.k8s.io` does it.
//!
//! Of each event this keeps 50 bytes, by a hash of the event. kube's own recorder keeps whole events, and goes through all of
//! them for each new one: those of 5,000 Nodes that join take 10 MB for six minutes.
//!
//! Pure: the clock is an argument.

use std::collections::HashMap;
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

/// How long after its last event a series ends (client-go's `finishTime`).
const LENGTH: Duration = Duration::from_mins(6);

/// The events that were sent lately, by a hash of what they say about which object.
#[derive(Debug)]
pub(super) struct SeriesTable {
    series: HashMap<u64, Series>,
    /// When series that have ended were last removed.
    cleaned_at: Instant,
}

/// An event that was sent so often.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Series {
    /// The time of the first, of which the name of the API server's object is made.
    pub(super) first: Timestamp,
    /// How often it was sent.
    pub(super) count: i32,
    last: Instant,
}

impl SeriesTable {
    /// A table without series.
    pub(super) fn new(now: Instant) -> Self {
        Self { series: HashMap::new(), cleaned_at: now }
    }

    /// The series that an event continues at this time.
    pub(super) fn open(&mut self, event: u64, now: Instant) -> Option<Series> {
        if now.duration_since(self.cleaned_at) >= LENGTH {
            self.series.retain(|_, series| series.is_open(now));
            self.cleaned_at = now;
        }
        self.series.get(&event).copied().filter(|series| series.is_open(now))
    }

    /// The event was sent, and continues no series.
    pub(super) fn begin(&mut self, event: u64, first: Timestamp, now: Instant) {
        self.series.insert(event, Series { first, count: 1, last: now });
    }

    /// The event was sent again.
    pub(super) fn go_on(&mut self, event: u64, now: Instant) {
        if let Some(series) = self.series.get_mut(&event) {
            series.count = series.count.saturating_add(1);
            series.last = now;
        }
    }
}

impl Series {
    fn is_open(&self, now: Instant) -> bool {
        now.duration_since(self.last) <= LENGTH
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_series_ends_some_minutes_after_its_last_event_and_is_removed_then() {
        let start = Instant::now();
        let mut table = SeriesTable::new(start);
        let at = |minutes: u64| start + Duration::from_mins(minutes);
        let first = Timestamp::UNIX_EPOCH;
        assert_eq!(table.open(1, at(0)), None);
        table.begin(1, first, at(0));
        table.begin(2, first, at(0));
        for (minute, expected) in [(5, 1), (10, 2), (16, 3)] {
            assert_eq!(table.open(1, at(minute)).map(|series| series.count), Some(expected));
            table.go_on(1, at(minute));
        }
        assert_eq!(table.series.len(), 1, "the other one is over");
        assert_eq!(table.open(1, at(23)), None);
    }
}
