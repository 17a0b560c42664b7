//! What one view has been given, as far as it decides about what it may be given next: which sweep of a list it reads, and
//! how far it has come.

use std::collections::HashMap;
use std::sync::Weak;
use std::time::Instant;

use crate::cache::key::Key;

/// The lists that a view remembers. A call has some dozens of requests, and one that reads more lists than this learns
/// less from them.
const MOST_LISTS: usize = 1024;

/// The number of an exchange with the cloud, and of the sweep that it begins.
pub(crate) type FlightId = u64;

/// Gone when the view is that began a sweep.
pub(crate) type Led = Weak<()>;

/// What one view has been given.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// When the oldest was asked for that it didn't ask for itself.
    pub(crate) oldest: Option<Instant>,
    /// Whether it was given pages of one list that aren't of one sweep.
    pub(crate) is_torn: bool,
    lists: HashMap<Key, Reading>,
}

/// How a view reads a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reading {
    /// The pages of a sweep that is kept. The one that it was given last was answered at `at`: the next may not have been
    /// asked for earlier, or what moved from one to the other meanwhile would be on neither.
    Sweep { id: FlightId, at: Instant },
    /// Pages that aren't kept, each asked for after the one before was answered; none where that isn't known here.
    Own { at: Option<Instant> },
}

impl Seen {
    pub(crate) fn reading(&self, list: Key) -> Option<Reading> {
        self.lists.get(&list).copied()
    }

    pub(crate) fn reads(&mut self, list: Key, reading: Reading) {
        if self.lists.len() < MOST_LISTS || self.lists.contains_key(&list) {
            self.lists.insert(list, reading);
        }
    }

    /// It was given something of somebody else's that was asked for then.
    pub(crate) fn was_given(&mut self, asked: Instant) {
        self.oldest = Some(self.oldest.map_or(asked, |oldest| oldest.min(asked)));
    }

    /// It asks for a page past the cache. A first page begins a list of its own; a later one belongs to that, or to none.
    pub(crate) fn passes_by(&mut self, list: Key, is_first: bool) {
        if !is_first && !matches!(self.reading(list), Some(Reading::Own { .. })) {
            self.is_torn = true;
        }
        self.reads(list, Reading::Own { at: None });
    }
}
