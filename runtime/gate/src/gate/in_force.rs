//! The limits in force for the gates of a provider: those of the release that serves calls. The next release as a canary and the
//! one before, while its last calls end, count against them too.

use std::sync::{Arc, PoisonError, RwLock};

use crate::limits::Limiter;
use crate::rules::Rules;

/// Limits, and the rules that say which requests count against which of them.
#[derive(Debug)]
pub(super) struct RuledLimits {
    pub(super) rules: Arc<Rules>,
    pub(super) limiter: Limiter,
}

/// The limits in force; none before the first gate. Clones share them.
#[derive(Debug, Clone, Default)]
pub(super) struct LimitsInForce(Arc<RwLock<Option<Arc<RuledLimits>>>>);

impl LimitsInForce {
    /// The limits in force, for a gate that has these.
    pub(super) fn get(&self, own: &Arc<RuledLimits>) -> Arc<RuledLimits> {
        let current = self.0.read().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(current.as_ref().unwrap_or(own))
    }

    /// Puts the limits of the first gate in force.
    pub(super) fn begin_with(&self, first: &Arc<RuledLimits>) {
        self.change(|current| current.is_none().then_some(first));
    }

    /// Puts limits in force, which take over what those before have learned and hold.
    pub(super) fn hand_over(&self, next: &Arc<RuledLimits>) {
        self.change(|current| {
            let before = current.filter(|before| !Arc::ptr_eq(before, next))?;
            next.limiter.take_over(&before.limiter);
            Some(next)
        });
    }

    /// Puts limits in force and lets the metrics show them, if there are to be others.
    fn change<'a>(&self, next: impl FnOnce(Option<&Arc<RuledLimits>>) -> Option<&'a Arc<RuledLimits>>) {
        // No code that holds the lock can panic halfway through a change.
        let mut current = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(next) = next(current.as_ref()) {
            next.limiter.show();
            *current = Some(Arc::clone(next));
        }
    }
}
