//! Things with their past: what is there now, and what was there at any moment that is not yet forgotten. A list that
//! lags and a listing that stays the same over all its pages are both reads of the past, so there is one way to do it.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

/// A state of the whole history: how many changes had been made by then.
pub(super) type Revision = u64;

/// Things by number, with their past.
#[derive(Clone, Debug)]
pub(super) struct History<T> {
    /// Each thing's versions, ascending by revision, never empty.
    things: BTreeMap<u64, Vec<Version<T>>>,
    /// The changes since the oldest revision that can be read, ascending by time and revision.
    changes: VecDeque<Change>,
    newest: Revision,
    oldest: Revision,
}

/// What a thing was from a revision on; none from when it was removed.
#[derive(Clone, Debug)]
struct Version<T> {
    from: Revision,
    thing: Option<Arc<T>>,
}

#[derive(Clone, Debug)]
struct Change {
    at: Duration,
    revision: Revision,
    number: u64,
}

impl<T> Default for History<T> {
    fn default() -> Self {
        Self { things: BTreeMap::new(), changes: VecDeque::new(), newest: 0, oldest: 0 }
    }
}

impl<T> History<T> {
    /// What the thing of this number is now.
    pub(super) fn current(&self, number: u64) -> Option<&Arc<T>> {
        self.things.get(&number)?.last()?.thing.as_ref()
    }

    /// Everything that is there now, by number.
    pub(super) fn all(&self) -> impl Iterator<Item = &Arc<T>> + Clone {
        self.things.values().filter_map(|versions| versions.last()?.thing.as_ref())
    }

    /// The thing of this number becomes this, or goes. The time must not lie before that of the change before.
    pub(super) fn change(&mut self, at: Duration, number: u64, thing: Option<Arc<T>>) {
        self.newest += 1;
        self.things.entry(number).or_default().push(Version { from: self.newest, thing });
        self.changes.push_back(Change { at, revision: self.newest, number });
    }

    /// The state after the last change that was made at this time or before, or the oldest that is remembered; that is
    /// also the one of no time at all, the time before the start.
    pub(super) fn revision_at(&self, at: Option<Duration>) -> Revision {
        let made = at.map_or(0, |at| self.changes.partition_point(|change| change.at <= at));
        made.checked_sub(1)
            .and_then(|last| self.changes.get(last))
            .map_or(self.oldest, |change| change.revision)
    }

    /// The state now.
    pub(super) fn newest(&self) -> Revision {
        self.newest
    }

    /// The oldest state that can still be read.
    pub(super) fn oldest(&self) -> Revision {
        self.oldest
    }

    /// What was there at a revision, by number, beginning behind a number. The revision must be remembered.
    pub(super) fn behind(&self, number: u64, revision: Revision) -> impl Iterator<Item = (u64, &Arc<T>)> {
        let range = (Bound::Excluded(number), Bound::Unbounded);
        self.things.range(range).filter_map(move |(number, versions)| {
            let version = versions.iter().rev().find(|version| version.from <= revision)?;
            Some((*number, version.thing.as_ref()?))
        })
    }

    /// Forgets what was before the last change that was made at this time or before.
    pub(super) fn forget(&mut self, at: Duration) {
        while let Some(change) = self.changes.pop_front_if(|change| change.at <= at) {
            self.oldest = change.revision;
            let Some(versions) = self.things.get_mut(&change.number) else { continue };
            versions.retain(|version| version.from >= change.revision);
            if matches!(versions.as_slice(), [Version { thing: None, .. }]) {
                self.things.remove(&change.number);
            }
        }
    }

    /// How many versions are kept in all.
    #[cfg(test)]
    pub(super) fn weight(&self) -> usize {
        self.things.values().map(Vec::len).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    fn things(history: &History<&'static str>, revision: Revision) -> Vec<&'static str> {
        history.behind(0, revision).map(|(_, thing)| **thing).collect()
    }

    fn history() -> History<&'static str> {
        let mut history = History::default();
        history.change(seconds(1), 1, Some(Arc::new("a")));
        history.change(seconds(2), 2, Some(Arc::new("b")));
        history.change(seconds(3), 1, Some(Arc::new("a2")));
        history.change(seconds(4), 2, None);
        history
    }

    #[test]
    fn each_moment_can_be_read() {
        let history = history();
        let table: [(u64, &[&str]); 6] =
            [(0, &[]), (1, &["a"]), (2, &["a", "b"]), (3, &["a2", "b"]), (4, &["a2"]), (9, &["a2"])];
        for (at, expected) in table {
            assert_eq!(things(&history, history.revision_at(Some(seconds(at)))), expected, "at {at}");
        }
    }

    #[test]
    fn what_is_forgotten_takes_no_room_and_what_is_not_stays_readable() {
        let mut history = history();
        history.forget(seconds(3));
        assert_eq!(history.revision_at(None), history.oldest());
        assert_eq!(things(&history, history.oldest()), ["a2", "b"]);
        assert_eq!(things(&history, history.newest()), ["a2"]);
        history.forget(seconds(4));
        assert_eq!(history.weight(), 1);
        assert_eq!(things(&history, history.oldest()), ["a2"]);
    }
}
