//! When a write may be repeated that another controller has undone. It is repeated, but ever later, so that two controllers
//! that disagree cause no storm of writes.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

use super::work::Write;
use crate::schedule::Backoff;

/// The first delay before a write is repeated that another controller has undone. It doubles from then on.
const FIRST_DELAY: Duration = Duration::from_secs(5);

/// The last write to one Service of each kind.
#[derive(Debug, Default)]
pub(super) struct WriteBackoff(BTreeMap<&'static str, LastWrite>);

#[derive(Debug)]
struct LastWrite {
    write: Write,
    at: Instant,
    /// How many times in a row it was undone at once.
    undone: u32,
}

impl WriteBackoff {
    /// This was written. Users may take a load balancer and give it up in turns: what we undo ourselves is no dispute, and
    /// so isn't delayed.
    pub(super) fn on_written(&mut self, write: Write, now: Instant) {
        let is_release = |write: &Write| matches!(write, Write::Finish | Write::Release);
        self.0.retain(|_, last| is_release(&last.write) == is_release(&write));
        let last = self.0.get(write.as_str());
        let last = last.filter(|last| last.write == write && now <= last.at + last.delay() * 2);
        let undone = last.map_or(0, |last| last.undone.saturating_add(1));
        self.0.insert(write.as_str(), LastWrite { write, at: now, undone });
    }

    /// When this may be written again at the earliest; none where it wasn't the last write of its kind.
    pub(super) fn not_before(&self, write: &Write) -> Option<Instant> {
        let last = self.0.get(write.as_str()).filter(|last| last.write == *write)?;
        Some(last.at + last.delay())
    }
}

impl LastWrite {
    fn delay(&self) -> Duration {
        FIRST_DELAY.saturating_mul(1 << self.undone.min(16)).min(Backoff::default().longest)
    }
}
