//! A read as the cache decides on it, and the decision.

use std::sync::Arc;
use std::time::Instant;

use crate::cache::history::{CallAlive, FetchId};
use crate::cache::key::{Key, List};
use crate::cache::scopes::Scope;
use crate::cache::slot::Page;
use crate::cache::stored::Stored;
use crate::limits::Urgency;

/// A read that the cache can answer.
#[derive(Debug, Clone)]
pub(crate) struct CacheQuery {
    pub(crate) key: Key,
    pub(crate) list: Option<List>,
    pub(crate) scope: Scope,
    /// The earliest time at which its answer may have been requested.
    pub(crate) floor: Option<Instant>,
    /// Whether the age of an answer that took long counts from when it came. Otherwise no answer of a slow cloud would ever be
    /// new enough.
    pub(crate) accepts_slow: bool,
    /// A fetch that it doesn't join: one of a former call, for which it has waited long enough.
    pub(crate) avoided: Option<FetchId>,
    pub(crate) urgency: Urgency,
    /// Whether it may only be answered from the cache.
    pub(crate) only_stored: bool,
    /// Until when it may wait for another's paged read to end.
    pub(crate) wait_until: Instant,
    pub(crate) owner_alive: CallAlive,
}

impl CacheQuery {
    /// Whether an answer that was requested at `sent` isn't too old. `came` is when it came if it took long, or by when it
    /// comes at the latest.
    pub(crate) fn accepts(&self, sent: Instant, came: Option<Instant>) -> bool {
        let is_new = |floor| sent >= floor || (self.accepts_slow && came.is_some_and(|came| came >= floor));
        self.floor.is_none_or(is_new)
    }
}

/// How a read is answered.
#[derive(Debug, Clone)]
pub(crate) enum CacheDecision {
    /// From the cache.
    Stored(Page),
    /// By this fetch of another request.
    Join(FetchId),
    /// By a fetch of its own, which others may join. The cloud may confirm this earlier answer.
    Lead(FetchId, Option<Arc<Stored>>),
    /// It is decided again when a paged read has changed, at this time at the latest.
    Wait(Instant),
    /// Not at all.
    Nothing,
}
