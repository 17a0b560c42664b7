//! What one call of a provider may read from the cache, and what it has received. A controller that draws a conclusion
//! from the answers of a call learns here what they prove: found may be old, absent must be new.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::cache::directives::{CacheDirectives, floor};
use crate::cache::history::{CallAlive, ViewHistory};

/// What one call of a provider may read from the cache, and what it has received. Clones are the same view. It belongs
/// to calls through one gate.
///
/// A list counts as read when its first page was: its further pages are of the same paged read, and none of them was
/// requested earlier than the first. For a request that has to wait, nothing is too old that was requested after the
/// request came.
#[derive(Debug, Clone)]
pub struct View(Arc<ViewInner>);

#[derive(Debug)]
struct ViewInner {
    bound: AgeBound,
    history: Mutex<ViewHistory>,
    /// Tells a paged read whether the call that began it continues.
    is_alive: Arc<()>,
    /// Notified when the call ends.
    waiting: OnceLock<Arc<Notify>>,
}

#[derive(Debug, Clone, Copy)]
enum AgeBound {
    Since(Instant),
    AtMost(Duration),
    AsRequested,
}

/// What the answers of one view prove.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Evidence {
    /// When the oldest answer was requested that came from the cache or from a fetch of another call; for a page of a
    /// list, when its first page was. None if this view requested all of them itself.
    pub oldest: Option<Instant>,
    /// Whether the pages of a list are not of one paged read, so that what they lack proves nothing.
    pub is_torn: bool,
}

impl View {
    /// Reads nothing that was requested before this call of `fresh`.
    pub fn fresh() -> Self {
        Self::new(AgeBound::Since(Instant::now()))
    }

    /// Reads nothing that was requested longer ago than this at the time of the read. The age of an answer that took 5 s or more
    /// counts from when it came, and a read under way is joined: a call that has no time left leaves its read to the next.
    /// [`Evidence::oldest`] is always the time of the request.
    pub fn at_most(age: Duration) -> Self {
        Self::new(AgeBound::AtMost(age))
    }

    /// Reads what each request says itself: with `Cache-Control: max-age=N` nothing that was requested longer than N seconds ago.
    /// A request without a `max-age` (or `no-cache`) goes to the cloud as if there were no view: it neither reads the cache nor
    /// fills it. With `only-if-cached` alone it is answered 504 by the gate, since nothing may answer it.
    ///
    /// For a call that changes something: it must edit the present state, but may name data that changes rarely.
    pub fn as_requested() -> Self {
        Self::new(AgeBound::AsRequested)
    }

    fn new(bound: AgeBound) -> Self {
        let (history, is_alive) = (Mutex::default(), Arc::new(()));
        Self(Arc::new(ViewInner { bound, history, is_alive, waiting: OnceLock::new() }))
    }

    /// What the answers so far prove.
    pub fn evidence(&self) -> Evidence {
        let history = self.history();
        Evidence { oldest: history.oldest.map(Instant::from_std), is_torn: history.is_torn }
    }

    /// The earliest time at which the answer to a request that came at `arrived` may have been requested.
    pub(crate) fn floor(&self, arrived: Instant, now: Instant) -> Option<std::time::Instant> {
        match self.0.bound {
            AgeBound::Since(made) => Some(made.into_std()),
            AgeBound::AtMost(age) => floor(age, arrived.into_std(), now.into_std()),
            // The request says it.
            AgeBound::AsRequested => None,
        }
    }

    /// Whether a request with these directives may be answered from the cache.
    pub(crate) fn admits(&self, directives: &CacheDirectives) -> bool {
        !matches!(self.0.bound, AgeBound::AsRequested) || directives.max_age.is_some()
    }

    /// Whether the age of an answer that took long counts from when it came.
    pub(crate) fn accepts_slow(&self) -> bool {
        matches!(self.0.bound, AgeBound::AtMost(_))
    }

    pub(crate) fn history(&self) -> MutexGuard<'_, ViewHistory> {
        // No code that holds it can panic halfway through a change.
        self.0.history.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells a paged read whether this view continues. Notifies `waiting` when it ends.
    pub(crate) fn leading(&self, waiting: &Arc<Notify>) -> CallAlive {
        self.0.waiting.get_or_init(|| waiting.clone());
        Arc::downgrade(&self.0.is_alive)
    }
}

impl Drop for ViewInner {
    fn drop(&mut self) {
        self.is_alive = Arc::default();
        if let Some(waiting) = self.waiting.get() {
            waiting.notify_waiters();
        }
    }
}
