//! How far a transfer is, for a caller that shows it to a user.

use std::fmt;
use std::sync::Arc;

/// Is called with the bytes of a component that have been transferred, and with the bytes of all of it.
///
/// A transfer that begins anew reports less than before. The function is called for each part of a few KiB, on the task that
/// transfers, so it must return at once.
#[derive(Clone)]
pub struct Progress(Arc<dyn Fn(u64, u64) + Send + Sync>);

impl Progress {
    /// Progress for this function.
    pub fn new(report: impl Fn(u64, u64) + Send + Sync + 'static) -> Self {
        Self(Arc::new(report))
    }

    pub(crate) fn report(&self, done: u64, total: u64) {
        (self.0)(done, total);
    }
}

impl fmt::Debug for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Progress")
    }
}
