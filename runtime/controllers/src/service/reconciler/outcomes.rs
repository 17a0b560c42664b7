//! What has become of work.

use std::sync::Arc;

use pileus_cloud::{Error as CloudError, ErrorKind, Retry, ServiceProgress};
use tokio::time::Instant;

use super::Reconciler;
use crate::error::Error;
use crate::facts::service::ServiceFacts;
use crate::service::attempt::Attempt;
use crate::service::plan::{Step, wants_ours};
use crate::service::work::{Call, Key, Listing, ListingReport, Write};
use crate::service::work_queue::Priority;

impl Reconciler {
    /// What became of a write: the Service as it is since, or why it isn't written.
    pub(in crate::service) fn on_write_result(
        &mut self,
        uid: &str,
        result: Result<&Arc<ServiceFacts>, &Error>,
        now: Instant,
        jitter: f64,
    ) {
        let Some(record) = self.records.get_mut(uid) else { return };
        let counts = record.turn.ends();
        match result {
            Ok(facts) => {
                if let Step::Write(write) = record.step.clone() {
                    // From here on it is somebody else's, or nobody's, unless it is wanted again by now.
                    if matches!(write, Write::Finish | Write::Release) {
                        let is_wanted = record.is_present && wants_ours(&record.facts, &self.classes);
                        (record.is_ours, record.is_leftover) = (is_wanted, false);
                    }
                    record.wrote(write, now);
                }
                if counts {
                    record.turn = Attempt::new(now);
                }
                // An answer that took its time brings nothing back.
                if record.is_present && !facts.is_older_than(&record.facts) {
                    record.observe(facts, &self.classes, now);
                }
            }
            Err(Error::Gone) => record.vanish(&self.classes, now),
            Err(error) if counts => {
                let kind = match error.retry() {
                    Retry::Soon => ErrorKind::Conflict,
                    Retry::Slowly => ErrorKind::Denied,
                    Retry::WithBackoff | Retry::Uncertain | Retry::After(_) => ErrorKind::Unavailable,
                };
                let error = CloudError::new(kind, error.to_string());
                if record.turn.failed(&error, now, jitter) {
                    self.event_log.failed(record, &error);
                }
            }
            Err(_) => {}
        }
        self.replan(uid, now);
    }

    /// What became of a call.
    pub(in crate::service) fn on_call_result(
        &mut self,
        call: &Call,
        outcomes: Result<Vec<Result<ServiceProgress, CloudError>>, CloudError>,
        now: Instant,
        jitter: f64,
    ) {
        self.queue.on_call_ended(call.priority);
        let outcomes =
            outcomes.unwrap_or_else(|error| call.keys.iter().map(|_| Err(error.clone())).collect());
        let targets = call.targets.digest();
        for (key, outcome) in call.keys.iter().zip(&outcomes) {
            match key {
                Key::Service(uid) => self.came_of(uid, outcome, targets, now, jitter),
                Key::Orphan(name) => match self.orphans.came(name, outcome, now, jitter) {
                    Some((ready, true)) => self.queue.enqueue(key, Priority::Again, ready),
                    Some((ready, false)) => self.queue.enqueue(key, Priority::Targets, ready),
                    None => {}
                },
            }
        }
    }

    fn came_of(
        &mut self,
        uid: &str,
        outcome: &Result<ServiceProgress, CloudError>,
        targets: u64,
        now: Instant,
        jitter: f64,
    ) {
        let Some(record) = self.records.get_mut(uid) else { return };
        self.event_log.came(record, outcome);
        record.learn(outcome, targets, now);
        let counts = record.turn.ends();
        match outcome {
            Ok(ServiceProgress::Done { .. } | ServiceProgress::Elsewhere) => {
                if record.step == Step::Delete {
                    self.orphans.deleted(uid);
                }
                if counts {
                    record.turn = Attempt::new(now);
                }
            }
            Ok(ServiceProgress::InProgress { after, resume }) if counts => {
                // What is to be deleted has no targets, whatever they are.
                let targets = (record.step != Step::Delete).then_some(targets);
                record.turn.goes_on(*after, resume.clone(), targets, now);
            }
            Err(error) if counts && record.turn.failed(error, now, jitter) => self.fails(uid, error),
            _ => {}
        }
        self.replan(uid, now);
    }

    /// Tells of a failure; where that of a Service that is gone keeps another one of its name waiting, that one as well.
    fn fails(&mut self, uid: &str, error: &CloudError) {
        let Some(record) = self.records.get(uid) else { return };
        self.event_log.failed(record, error);
        let others = self.names.get(&record.facts.key()).into_iter().flatten();
        let others = others.filter_map(|other| self.records.get(other));
        for other in others.filter(|other| !record.is_present && other.is_present) {
            self.event_log.waits_for_former(other, error);
        }
    }

    /// What the cloud has, or when to try the list again: it failed, or the read of the API server after it did.
    pub(in crate::service) fn on_list_result(
        &mut self,
        listing: Result<&Listing, Retry>,
        now: Instant,
        jitter: f64,
    ) -> ListingReport {
        self.queue.is_listing = false;
        let listing = match listing {
            Ok(listing) => listing,
            Err(retry) => {
                self.orphans.not_listed(retry, now, jitter);
                return ListingReport::default();
            }
        };
        let is_known = |uid: &str| self.records.contains_key(uid);
        let (mut report, changed) = self.orphans.listed(listing, is_known, now);
        for (key, ready) in changed.orphans {
            match ready {
                Some(ready) => self.queue.enqueue(&key, Priority::Targets, ready),
                None => self.queue.remove(&key),
            }
        }
        for uid in changed.known {
            if let Some(record) = self.records.get_mut(&uid) {
                let is_news = record.listed(&self.classes);
                if record.has_class_conflict(&self.classes) {
                    report.class_conflicts += 1;
                    let class = record.facts.service.class.clone().unwrap_or_default();
                    report.new_class_conflicts.extend(is_news.then(|| (record.facts.key(), class)));
                }
                self.replan(&uid, now);
            }
        }
        self.tell_held();
        report
    }

    /// Tells of deletions that wait for somebody else, again with each list as long as that is so: not at once, since whoever
    /// serves the class may be at it.
    fn tell_held(&mut self) {
        for record in self.records.values_mut() {
            let is_held = record.is_held(&self.classes);
            if std::mem::replace(&mut record.was_held, is_held) && is_held {
                self.event_log.is_held(record);
            }
        }
    }
}
