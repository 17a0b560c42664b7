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

    /// The event was sent, as the last one of this series.
    pub(super) fn set(&mut self, event: u64, series: Series) {
        self.series.insert(event, series);
    }
}

impl Series {
    /// A series of one event.
    pub(super) fn begin(first: Timestamp, now: Instant) -> Self {
        Self { first, count: 1, last: now }
    }

    /// The series with one event more.
    pub(super) fn again(self, now: Instant) -> Self {
        Self { count: self.count.saturating_add(1), last: now, ..self }
    }

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
        table.set(1, Series::begin(first, at(0)));
        table.set(2, Series::begin(first, at(0)));
        for (minute, expected) in [(5, 1), (10, 2), (16, 3)] {
            let series = table.open(1, at(minute)).unwrap();
            assert_eq!(series.count, expected);
            table.set(1, series.again(at(minute)));
        }
        assert_eq!(table.series.len(), 1, "the other one is over");
        assert_eq!(table.open(1, at(23)), None);
    }
}
