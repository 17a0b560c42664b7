//! A read as it is decided on, and the decision.

use std::sync::Arc;
use std::time::Instant;

use crate::cache::key::{Key, List};
use crate::cache::scopes::Scope;
use crate::cache::seen::{FlightId, Led};
use crate::cache::slot::Page;
use crate::cache::stored::Stored;
use crate::limits::Urgency;

/// A read that may be answered from the cache.
#[derive(Debug, Clone)]
pub(crate) struct Ask {
    pub(crate) key: Key,
    pub(crate) list: Option<List>,
    pub(crate) scope: Scope,
    /// Before when nothing may have been asked for that answers it.
    pub(crate) floor: Option<Instant>,
    pub(crate) urgency: Urgency,
    /// Whether it would rather have no answer than ask the cloud.
    pub(crate) only_stored: bool,
    /// Until when it may wait for another's sweep to end.
    pub(crate) patience: Instant,
    pub(crate) led: Led,
}

/// How a read is answered.
#[derive(Debug, Clone)]
pub(crate) enum Verdict {
    /// With this.
    Stored(Page),
    /// By this exchange of another.
    Join(FlightId),
    /// By an exchange of its own that others may join, and in which the cloud may say that this is still right.
    Lead(FlightId, Option<Arc<Stored>>),
    /// It is to be asked again when a sweep has changed, at this time at the latest.
    Wait(Instant),
    /// Not at all.
    Nothing,
}
