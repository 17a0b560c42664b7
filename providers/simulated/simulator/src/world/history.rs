//! Items with their past: the current state, and the state at any moment that is not forgotten yet. Lists that lag and
//! listings that stay the same over all pages are both reads of a past state, so both use this module.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

/// Identifies a state of the whole history: the number of changes made by then.
pub(super) type Revision = u64;

/// Items by number, with their past.
#[derive(Clone, Debug)]
pub(super) struct History<T> {
    /// The versions of each item, ascending by revision, never empty.
    items: BTreeMap<u64, Vec<Version<T>>>,
    /// The changes since the oldest revision that can be read, ascending by time and revision.
    changes: VecDeque<Change>,
    newest: Revision,
    oldest: Revision,
}

/// An item from a revision on; `None` from its removal on.
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
        Self { items: BTreeMap::new(), changes: VecDeque::new(), newest: 0, oldest: 0 }
    }
}

impl<T> History<T> {
    /// The current item of this number.
    pub(super) fn current(&self, number: u64) -> Option<&Arc<T>> {
        self.items.get(&number)?.last()?.thing.as_ref()
    }

    /// All current items, by number.
    pub(super) fn all(&self) -> impl Iterator<Item = &Arc<T>> + Clone {
        self.items.values().filter_map(|versions| versions.last()?.thing.as_ref())
    }

    /// Replaces or removes the item of this number. The time must not be before that of the previous change.
    pub(super) fn change(&mut self, at: Duration, number: u64, thing: Option<Arc<T>>) {
        self.newest += 1;
        self.items.entry(number).or_default().push(Version { from: self.newest, thing });
        self.changes.push_back(Change { at, revision: self.newest, number });
    }

    /// The revision after the last change that was made at or before this time, or else the oldest one that is kept. Without a
    /// time, which means before the start, it is the oldest too.
    pub(super) fn revision_at(&self, at: Option<Duration>) -> Revision {
        let made = at.map_or(0, |at| self.changes.partition_point(|change| change.at <= at));
        made.checked_sub(1)
            .and_then(|last| self.changes.get(last))
            .map_or(self.oldest, |change| change.revision)
    }

    /// The current revision.
    pub(super) fn newest(&self) -> Revision {
        self.newest
    }

    /// The oldest revision that can still be read.
    pub(super) fn oldest(&self) -> Revision {
        self.oldest
    }

    /// The items at a revision after a number, by number. The revision must be kept.
    pub(super) fn after(&self, number: u64, revision: Revision) -> impl Iterator<Item = (u64, &Arc<T>)> {
        let range = (Bound::Excluded(number), Bound::Unbounded);
        self.items.range(range).filter_map(move |(number, versions)| {
            let version = versions.iter().rev().find(|version| version.from <= revision)?;
            Some((*number, version.thing.as_ref()?))
        })
    }

    /// Forgets states before the last change that was made at or before this time.
    pub(super) fn forget(&mut self, at: Duration) {
        while let Some(change) = self.changes.pop_front_if(|change| change.at <= at) {
            self.oldest = change.revision;
            let Some(versions) = self.items.get_mut(&change.number) else { continue };
            versions.retain(|version| version.from >= change.revision);
            if matches!(versions.as_slice(), [Version { thing: None, .. }]) {
                self.items.remove(&change.number);
            }
        }
    }

    /// The total number of kept versions.
    #[cfg(test)]
    pub(super) fn version_count(&self) -> usize {
        self.items.values().map(Vec::len).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    fn items(history: &History<&'static str>, revision: Revision) -> Vec<&'static str> {
        history.after(0, revision).map(|(_, thing)| **thing).collect()
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
            assert_eq!(items(&history, history.revision_at(Some(seconds(at)))), expected, "at {at}");
        }
    }

    #[test]
    fn forgotten_states_take_no_memory_and_kept_ones_stay_readable() {
        let mut history = history();
        history.forget(seconds(3));
        assert_eq!(history.revision_at(None), history.oldest());
        assert_eq!(items(&history, history.oldest()), ["a2", "b"]);
        assert_eq!(items(&history, history.newest()), ["a2"]);
        history.forget(seconds(4));
        assert_eq!(history.version_count(), 1);
        assert_eq!(items(&history, history.oldest()), ["a2"]);
    }
}
