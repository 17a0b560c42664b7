//! What one call of a provider may be told of the past, and what it was told. Whoever draws a conclusion from the
//! answers of a call asks here what they prove: found may be old, absent must be new.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

/// What one call of a provider may read from the cache, and what it was given. Clones are the same view. It belongs to
/// calls through one gate.
///
/// A list counts as read at the moment at which its first page is: its further pages are of the same sweep, and none of
/// them was asked for earlier than the first.
#[derive(Debug, Clone)]
pub struct View(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    bound: Bound,
    evidence: Mutex<Evidence>,
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
        Self(Arc::new(Inner { bound, evidence: Mutex::default() }))
    }

    /// What the answers so far are worth.
    pub fn evidence(&self) -> Evidence {
        *self.lock()
    }

    /// Before when nothing may have been asked for that is read at this time.
    pub(crate) fn floor(&self, now: Instant) -> Option<Instant> {
        match self.0.bound {
            Bound::Since(made) => Some(made),
            Bound::AtMost(age) => now.checked_sub(age),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Evidence> {
        // No code that holds it can panic halfway through a change.
        self.0.evidence.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
