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
    pub(crate) urgency: Urgency,
    /// Whether it may only be answered from the cache.
    pub(crate) only_stored: bool,
    /// Until when it may wait for another's paged read to end.
    pub(crate) wait_until: Instant,
    pub(crate) owner_alive: CallAlive,
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
