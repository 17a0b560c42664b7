//! What was written to a Service, so that no two fight over it: what somebody else undoes at once comes back, and ever later.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

use super::work::Write;
use crate::schedule::Delays;

/// How long what was written and undone by somebody else stays undone, the first time: two that disagree write no faster
/// than that, and ever less often.
const RESTORING: Duration = Duration::from_secs(5);

/// The last write of each kind.
#[derive(Debug, Default)]
pub(super) struct Written(BTreeMap<&'static str, Last>);

#[derive(Debug)]
struct Last {
    write: Write,
    at: Instant,
    /// How often in a row it was undone at once.
    undone: u32,
}

impl Written {
    /// This was written. Where we let go of a Service and take it up again in turns, it is users who want that, and what we
    /// undo ourselves is no fight.
    pub(super) fn wrote(&mut self, write: Write, now: Instant) {
        let lets_go = |write: &Write| matches!(write, Write::Finish | Write::Release);
        self.0.retain(|_, last| lets_go(&last.write) == lets_go(&write));
        let last = self.0.get(write.as_str());
        let last = last.filter(|last| last.write == write && now <= last.at + last.delay() * 2);
        let undone = last.map_or(0, |last| last.undone.saturating_add(1));
        self.0.insert(write.as_str(), Last { write, at: now, undone });
    }

    /// When this may be written again at the earliest; none where something else was written last.
    pub(super) fn again(&self, write: &Write) -> Option<Instant> {
        let last = self.0.get(write.as_str()).filter(|last| last.write == *write)?;
        Some(last.at + last.delay())
    }
}

impl Last {
    fn delay(&self) -> Duration {
        RESTORING.saturating_mul(1 << self.undone.min(16)).min(Delays::default().longest)
    }
}
