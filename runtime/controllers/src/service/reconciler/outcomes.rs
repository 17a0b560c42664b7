//! The results of work.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use pileus_cloud::{Error as CloudError, ErrorKind, Retry, ServiceProgress};
use tokio::time::Instant;

use super::Reconciler;
use crate::error::Error;
use crate::facts::service::ServiceFacts;
use crate::service::attempt::Attempt;
use crate::service::plan::Step;
use crate::service::refusals::{CallReport, Verdict};
use crate::service::targets::Targets;
use crate::service::work::{Call, Key, Listing, ListingReport};
use crate::service::work_queue::Priority;

impl Reconciler {
    /// The result of a write: the Service as it is since then, or an error.
    pub(in crate::service) fn on_write_result(
        &mut self,
        uid: &str,
        result: Result<&Arc<ServiceFacts>, &Error>,
        now: Instant,
        jitter: f64,
    ) {
        let Some(record) = self.records.get_mut(uid) else { return };
        let counts = record.write_attempt.end();
        match result {
            Ok(facts) => {
                if let Step::Write(write) = record.step.clone() {
                    record.on_written(write, &self.scope, now);
                }
                if counts {
                    record.write_attempt = Attempt::new(now);
                }
                // A late answer brings back neither a deleted Service nor an older state.
                if record.is_present && !facts.is_older_than(&record.facts) {
                    record.observe(facts, &self.scope, now);
                }
            }
            Err(Error::Gone) => record.observe_gone(&self.scope, now),
            Err(error) if counts => {
                let kind = match error.retry() {
                    Retry::Soon => ErrorKind::Conflict(None),
                    Retry::Slowly => ErrorKind::Denied,
                    Retry::WithBackoff | Retry::Uncertain | Retry::After(_) => ErrorKind::Unavailable(None),
                };
                let failure = CloudError::new(kind, error.to_string());
                if record.write_attempt.fail(&failure, now, jitter) {
                    self.event_log.record_failure(record, &failure);
                }
                if matches!(error, Error::Refused(_) | Error::Forbidden(_))
                    && let Step::Write(write) = record.step.clone()
                {
                    record.give_up_write(&write, now);
                }
            }
            Err(_) => {}
        }
        self.replan(uid, now);
    }

    /// The result of a call: an outcome for each of its changes, or an error for all of them.
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
        let searched = self.search_refused(call, &outcomes, now);
        for (key, outcome) in call.keys.iter().zip(&outcomes) {
            match key {
                Key::Service(uid) => {
                    let is_searched = searched.contains(uid);
                    self.on_outcome(uid, outcome, &call.targets, now, jitter, is_searched);
                }
                Key::Orphan(name) => {
                    if let Some(attempt) = self.orphans.on_outcome(name, outcome, now, jitter) {
                        let is_in_progress = attempt.is_in_progress();
                        let priority = if is_in_progress { Priority::Poll } else { Priority::Targets };
                        self.queue.enqueue(key, priority, attempt.ready_at);
                    }
                }
            }
        }
    }

    /// Looks for targets for which the cloud refuses the call. Returns the Services whose failure is a part of the search.
    fn search_refused(
        &mut self,
        call: &Call,
        outcomes: &[Result<ServiceProgress, CloudError>],
        now: Instant,
    ) -> BTreeSet<String> {
        let (mut searched, mut is_changed) = (BTreeSet::new(), false);
        let outcomes: Vec<_> = call
            .keys
            .iter()
            .zip(outcomes)
            .filter_map(|(key, outcome)| self.on_targets(key, outcome))
            .collect();
        let mut subjects: BTreeMap<Option<&str>, Vec<_>> = BTreeMap::new();
        for (uid, outcome) in outcomes {
            subjects.entry(self.queue.subject(uid)).or_default().push((uid, outcome));
        }
        for (subject, outcomes) in subjects {
            let is_refusal =
                |error: &CloudError| matches!(error.kind, ErrorKind::Invalid | ErrorKind::Broken);
            let refusals = outcomes.iter().filter_map(|(uid, outcome)| Some((*uid, outcome.as_ref().err()?)));
            let refusals: Vec<_> = refusals.filter(|(_, error)| is_refusal(error)).collect();
            let refused: Vec<_> = refusals.iter().map(|(uid, _)| *uid).collect();
            let is_done = |outcome: &Result<_, _>| matches!(outcome, Ok(ServiceProgress::Done { .. }));
            let accepted = outcomes.iter().filter(|(_, outcome)| is_done(outcome)).map(|(uid, _)| *uid);
            let accepted: Vec<_> = accepted.collect();
            let why = refusals.first().map_or("", |(_, error)| &error.message);
            // The search of a single Service is about the targets that it chooses.
            let service = subject.and_then(|uid| self.records.get(uid));
            let targets = service
                .map_or_else(|| Arc::clone(&call.targets), |it| call.targets.chosen_by(it.last_sent()));
            let report = CallReport { targets: &targets, accepted: &accepted, refused: &refused, why };
            let verdict = self.refusals.on_call_result(subject, report, now);
            is_changed |= subject.is_none() && verdict != Verdict::Unrelated;
            if verdict != Verdict::Unrelated {
                searched.extend(refused.iter().map(|uid| (*uid).to_owned()));
            }
            if let Verdict::Found(targets) = verdict {
                for uid in accepted.iter().chain(&refused) {
                    if let Some(record) = self.records.get(*uid) {
                        self.event_log.record_refused_targets(record, &targets);
                    }
                }
            }
        }
        if is_changed {
            self.replan_all(now);
        }
        searched
    }

    /// The UID of a Service and the outcome of its call, if that brought targets and is about the task of now.
    fn on_targets<'a, T>(&self, key: &'a Key, outcome: &'a T) -> Option<(&'a str, &'a T)> {
        let Key::Service(uid) = key else { return None };
        let record = self.records.get(uid)?;
        let brings_targets = matches!(record.step, Step::Ensure { .. } | Step::UpdateTargets);
        (brings_targets && !record.attempt.is_superseded()).then_some((uid.as_str(), outcome))
    }

    fn on_outcome(
        &mut self,
        uid: &str,
        outcome: &Result<ServiceProgress, CloudError>,
        targets: &Targets,
        now: Instant,
        jitter: f64,
        is_searched: bool,
    ) {
        let Some(record) = self.records.get_mut(uid) else { return };
        let targets = targets.selection(record.last_sent()).digest;
        self.event_log.record_outcome(record, outcome);
        record.on_outcome(outcome, targets, now);
        let counts = record.attempt.end();
        match outcome {
            Ok(ServiceProgress::Done { .. } | ServiceProgress::Elsewhere) => {
                if record.step == Step::Delete {
                    self.orphans.on_service_deleted(uid);
                }
                if counts {
                    record.complete_task(now);
                }
            }
            Ok(ServiceProgress::InProgress { after, resume, .. }) if counts => {
                // A deletion has no targets, and so its note serves for any.
                let targets = (record.step != Step::Delete).then_some(targets);
                record.attempt.poll_after(*after, resume.clone(), targets, now);
            }
            // The next call tries other targets, and users learn the result.
            Err(_) if counts && is_searched => record.attempt.restart(now),
            Err(error) if counts && record.attempt.fail(error, now, jitter) => {
                self.record_failure(uid, error);
            }
            _ => {}
        }
        self.replan(uid, now);
    }

    /// Records a failure. Where the load balancer of a deleted Service can't be deleted, a Service of the same name waits
    /// for that, and gets an event as well.
    fn record_failure(&mut self, uid: &str, error: &CloudError) {
        let Some(record) = self.records.get(uid) else { return };
        self.event_log.record_failure(record, error);
        let others = self.names.get(&record.facts.key()).into_iter().flatten();
        let others = others.filter_map(|other| self.records.get(other));
        for other in others.filter(|other| !record.is_present && other.is_present) {
            self.event_log.record_name_taken(other, error);
        }
    }

    /// The result of a list: what the cloud has, or how to retry where the list or the read of the API server after it
    /// failed.
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
                self.orphans.on_list_failed(retry, now, jitter);
                return ListingReport::default();
            }
        };
        let known: HashSet<&str> = self.records.keys().map(String::as_str).collect();
        let (mut report, changes) = self.orphans.on_listed(listing, &known, now);
        for (key, ready_at) in changes.orphans {
            match ready_at {
                Some(ready_at) => self.queue.enqueue(&key, Priority::Targets, ready_at),
                None => self.queue.remove(&key),
            }
        }
        for uid in changes.known {
            if let Some(record) = self.records.get_mut(&uid) {
                let is_news = record.on_listed(&self.scope);
                if record.has_class_conflict() {
                    report.class_conflicts += 1;
                    let owner = record.facts.owner_in_words();
                    report.new_class_conflicts.extend(is_news.then(|| (record.facts.key(), owner)));
                }
                self.replan(&uid, now);
            }
        }
        for record in self.records.values_mut() {
            self.event_log.record_blocked_deletion(record, &self.scope);
        }
        report
    }
}
