//! What one call of a provider may be told of the past, and what it was told. Whoever draws a conclusion from the
//! answers of a call asks here what they prove: found may be old, absent must be new.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::cache::seen::{Led, Seen};
use crate::cache::wish::floor;

/// What one call of a provider may read from the cache, and what it was given. Clones are the same view. It belongs to
/// calls through one gate.
///
/// A list counts as read at the moment at which its first page is: its further pages are of the same sweep, and none of
/// them was asked for earlier than the first. Of a request that has to wait, nothing that was asked for after it came is
/// too old.
#[derive(Debug, Clone)]
pub struct View(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    bound: Bound,
    seen: Mutex<Seen>,
    /// By which a sweep knows whether the call that began it goes on.
    is_alive: Arc<()>,
    /// Who wants to hear when it doesn't.
    waiting: OnceLock<Arc<Notify>>,
}

#[derive(Debug, Clone, Copy)]
enum Bound {
    Since(Instant),
    AtMost(Duration),
}

/// What the answers of one view are worth.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Evidence {
    /// When the oldest of the answers was asked for that came from the cache or from an exchange of somebody else; of a
    /// page of a list, when the first page of its sweep was. None where this view asked for all of them itself.
    pub oldest: Option<Instant>,
    /// Whether the pages of some list aren't of one sweep, so that what they lack proves nothing.
    pub is_torn: bool,
}

impl View {
    /// Nothing that was asked for before this call of `fresh`.
    pub fn fresh() -> Self {
        Self::new(Bound::Since(Instant::now()))
    }

    /// Nothing that was asked for longer ago than this at the moment of the read.
    pub fn at_most(age: Duration) -> Self {
        Self::new(Bound::AtMost(age))
    }

    fn new(bound: Bound) -> Self {
        let (seen, is_alive) = (Mutex::default(), Arc::new(()));
        Self(Arc::new(Inner { bound, seen, is_alive, waiting: OnceLock::new() }))
    }

    /// What the answers so far are worth.
    pub fn evidence(&self) -> Evidence {
        let seen = self.seen();
        Evidence { oldest: seen.oldest.map(Instant::from_std), is_torn: seen.is_torn }
    }

    /// Before when nothing may have been asked for that answers a request now which came at `arrived`.
    pub(crate) fn floor(&self, arrived: Instant, now: Instant) -> Option<std::time::Instant> {
        match self.0.bound {
            Bound::Since(made) => Some(made.into_std()),
            Bound::AtMost(age) => floor(age, arrived.into_std(), now.into_std()),
        }
    }

    pub(crate) fn seen(&self) -> MutexGuard<'_, Seen> {
        // No code that holds it can panic halfway through a change.
        self.0.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// By which a sweep knows whether this view goes on, of which these are told as well.
    pub(crate) fn leading(&self, waiting: &Arc<Notify>) -> Led {
        self.0.waiting.get_or_init(|| waiting.clone());
        Arc::downgrade(&self.0.is_alive)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.is_alive = Arc::default();
        if let Some(waiting) = self.waiting.get() {
            waiting.notify_waiters();
        }
    }
}
