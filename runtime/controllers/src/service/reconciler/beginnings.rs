//! The work that begins.

use std::sync::Arc;

use tokio::time::Instant;

use super::Reconciler;
use crate::service::batch::{Batch, endpoints};
use crate::service::plan::Step;
use crate::service::targets::Targets;
use crate::service::work::{Call, Key, Work};
use crate::service::work_queue::Priority;

impl Reconciler {
    /// The targets for the next call about a Service.
    #[cfg(test)]
    pub(in crate::service) fn targets_for(&mut self, uid: &str, all: &Arc<Targets>) -> Arc<Targets> {
        self.refusals.targets(self.queue.subject(uid), all)
    }

    pub(super) fn start_writes(&mut self, now: Instant) -> Vec<Work> {
        let due = self.writes.extract_if(.., |_, ready_at| *ready_at <= now).map(|(uid, _)| uid);
        let mut work = Vec::new();
        for uid in due {
            if let Some(record) = self.records.get_mut(&uid)
                && let Step::Write(write) = &record.step
            {
                record.write_attempt.start();
                work.push(Work::Write { facts: Arc::clone(&record.facts), write: write.clone() });
            }
        }
        work
    }

    pub(super) fn start_call(
        &mut self,
        priority: Priority,
        keys: Vec<Key>,
        targets: &Arc<Targets>,
        now: Instant,
    ) -> Call {
        let batch = Batch { requirements: &self.requirements, targets };
        let (records, orphans, event_log) = (&mut self.records, &mut self.orphans, &mut self.event_log);
        let start = |key: Key| {
            let change = match &key {
                Key::Service(uid) => {
                    let record = records.get_mut(uid)?;
                    let change = batch.change(record);
                    event_log.record_started(record, targets);
                    record.on_call_started(targets, endpoints(&change.action), now);
                    change
                }
                Key::Orphan(name) => orphans.start_removal(name)?,
            };
            Some((key, change))
        };
        let (keys, changes): (Vec<_>, Vec<_>) = keys.into_iter().filter_map(start).unzip();
        let mut known = Vec::new();
        if self.requirements.wants_known {
            known = batch.known(&self.records, &self.scope, &keys);
        }
        let is_audit = priority == Priority::Audit;
        Call { keys, changes, known, targets: Arc::clone(targets), is_audit, priority }
    }

    /// The first of these objects and all others whose calls bring the same targets, with these targets. The others wait for
    /// another call.
    pub(super) fn with_same_targets(
        &mut self,
        priority: Priority,
        keys: Vec<Key>,
        all: &Arc<Targets>,
    ) -> (Arc<Targets>, Vec<Key>) {
        let mut first: Option<Arc<Targets>> = None;
        let mut taken = Vec::new();
        for key in keys {
            let (uid, record) = match &key {
                Key::Service(uid) => (uid.as_str(), self.records.get(uid)),
                Key::Orphan(_) => ("", None),
            };
            let targets = self.refusals.targets(self.queue.subject(uid), all);
            match (&first, record) {
                (Some(others), Some(record)) if others.version() != targets.version() => {
                    self.queue.enqueue(&key, priority, record.attempt.ready_at);
                    continue;
                }
                (None, Some(_)) => first = Some(targets),
                _ => {}
            }
            taken.push(key);
        }
        (first.unwrap_or_else(|| Arc::clone(all)), taken)
    }
}
