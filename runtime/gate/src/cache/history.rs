//! What one view has received, as far as it decides what it may receive next: the paged read of each list, and the
//! position in it.

use std::collections::HashMap;
use std::sync::Weak;
use std::time::Instant;

use crate::cache::key::Key;

/// The most lists that a view remembers. A call has some dozens of requests; one with more lists than this finds less
/// in the cache.
const MOST_LISTS: usize = 1024;

/// The number of a fetch, and of the paged read that it begins.
pub(crate) type FetchId = u64;

/// No longer alive when the call that began a paged read has ended.
pub(crate) type CallAlive = Weak<()>;

/// What one view has received.
#[derive(Debug, Default)]
pub(crate) struct ViewHistory {
    /// When the oldest answer that the view did not request itself was requested.
    pub(crate) oldest: Option<Instant>,
    /// Whether it received pages of one list that are not of one paged read.
    pub(crate) is_torn: bool,
    lists: HashMap<Key, ListPosition>,
}

/// The position of a view in a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ListPosition {
    /// In a stored paged read. The last page was answered at `at`. The next page must not have been requested earlier:
    /// an item that moved between the pages meanwhile would be on neither.
    Stored { id: FetchId, at: Instant },
    /// In pages that are not stored, each requested after the one before was answered at `at`. None where that time is
    /// not known.
    Own { at: Option<Instant> },
}

impl ViewHistory {
    pub(crate) fn position(&self, list: Key) -> Option<ListPosition> {
        self.lists.get(&list).copied()
    }

    pub(crate) fn set_position(&mut self, list: Key, reading: ListPosition) {
        if self.lists.len() < MOST_LISTS || self.lists.contains_key(&list) {
            self.lists.insert(list, reading);
        }
    }

    /// Notes an answer that was requested at this time, not by the view itself.
    pub(crate) fn on_received(&mut self, asked: Instant) {
        self.oldest = Some(self.oldest.map_or(asked, |oldest| oldest.min(asked)));
    }

    /// Notes a page that bypasses the cache. A first page begins a list of the view's own; a later page belongs to such
    /// a list or to none.
    pub(crate) fn on_bypass(&mut self, list: Key, is_first: bool) {
        if !is_first && !matches!(self.position(list), Some(ListPosition::Own { .. })) {
            self.is_torn = true;
        }
        self.set_position(list, ListPosition::Own { at: None });
    }
}
