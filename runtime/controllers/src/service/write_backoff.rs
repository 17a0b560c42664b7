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

/// Writes that a provider asks for while a change is in progress. A provider that reports something else with each poll would
/// have it written each second.
#[derive(Debug, Default)]
pub(super) struct InterimWrites(BTreeMap<&'static str, (Instant, u32)>);

impl InterimWrites {
    /// Whether such a write may be made now. The first may be made at once; the next ones ever later. One that may not be made
    /// is dropped: the next poll reports it again.
    pub(super) fn may_begin(&mut self, write: &Write, now: Instant) -> bool {
        let (not_before, count) = self.0.entry(write.as_str()).or_insert((now, 0));
        let may_begin = *not_before <= now;
        if may_begin {
            *not_before = now + delay(*count);
            *count = count.saturating_add(1);
        }
        may_begin
    }
}

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
        delay(self.undone)
    }
}

/// The delay after a write that was undone so often before.
fn delay(undone: u32) -> Duration {
    FIRST_DELAY.saturating_mul(1 << undone.min(16)).min(Backoff::default().longest)
}
