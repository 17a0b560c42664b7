//! All Services that matter, and what to do next for each: the service controller without clock, network and chance.
//!
//! What is observed of a Service goes into its [`Record`]. [`plan`] says which step is next and why; the work queue says
//! when, and with which others. Work leaves as values, and its result changes the record again. For one Service at most one
//! piece of work is in flight (U-11), and two Services of the same name are served one after the other.

mod beginnings;
mod outcomes;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use pileus_cloud::ServiceRequirements;
use tokio::time::Instant;

use super::Settings;
use super::event_log::EventLog;
use super::orphans::Orphans;
use super::plan::{PlanContext, Step, is_same_spec, plan};
use super::record::Record;
use super::refusals::Refusals;
use super::scope::ServiceScope;
use super::targets::Targets;
use super::work::{Key, PendingEvent, Summary, Work};
use super::work_queue::{CallLimits, Priority, WorkQueue};
use crate::facts::service::ServiceFacts;

/// The Services, and the work that they need.
#[derive(Debug)]
pub(super) struct Reconciler {
    requirements: ServiceRequirements,
    scope: ServiceScope,
    audit_period: Duration,
    /// By UID.
    records: HashMap<String, Record>,
    /// The UIDs of the Services of each name that exist or aren't cleaned up.
    names: HashMap<String, BTreeSet<String>>,
    targets: Option<Arc<Targets>>,
    /// The Services that wait to be written to, and from when.
    writes: BTreeMap<String, Instant>,
    queue: WorkQueue,
    orphans: Orphans,
    refusals: Refusals,
    next_audit: Instant,
    /// When [`Reconciler::next`] was last called.
    last_next: Instant,
    event_log: EventLog,
}

impl Reconciler {
    /// That of the provider of this name. Knows no Services yet. It asks for a list of what the cloud has at once, but for
    /// no other call before it has observed targets.
    pub(super) fn new(
        requirements: ServiceRequirements,
        provider: &str,
        settings: &Settings,
        now: Instant,
    ) -> Self {
        let concurrency = requirements.allows_concurrent_calls.then_some(settings.calls.max(1));
        let queue =
            WorkQueue::new(CallLimits { max_changes: requirements.largest_batch.max(1), concurrency });
        Self {
            requirements,
            scope: ServiceScope::new(provider, settings),
            audit_period: settings.audit_period,
            records: HashMap::new(),
            names: HashMap::new(),
            targets: None,
            writes: BTreeMap::new(),
            queue,
            orphans: Orphans::new(settings.cluster.uid.clone(), now),
            refusals: Refusals::default(),
            next_audit: now + settings.audit_period,
            last_next: now,
            event_log: EventLog::default(),
        }
    }

    /// Records that a Service is so; ignores an observation that is older than the last.
    pub(super) fn observe(&mut self, facts: &Arc<ServiceFacts>, now: Instant) {
        let uid = &facts.service.uid;
        self.observe_others_gone(&facts.key(), uid, now);
        match self.records.get_mut(uid) {
            Some(record) if facts.is_older_than(&record.facts) => return,
            Some(record) => {
                if !is_same_spec(&record.facts, facts) {
                    self.refusals.on_spec_changed(self.queue.subject(uid));
                }
                record.observe(facts, &self.scope, now);
            }
            None => {
                let mut record = Record::new(facts, &self.scope, self.orphans.is_expected(uid), now);
                if !self.orphans.has_listed {
                    record.cloud.mark_unknown();
                }
                self.records.insert(uid.clone(), record);
                self.names.entry(facts.key()).or_default().insert(uid.clone());
            }
        }
        if let Some(record) = self.records.get_mut(uid).filter(|record| !record.facts.is_deleting) {
            let warnings = match self.scope.warning(&record.facts) {
                Some(warning) => vec![warning],
                None if record.is_wanted(&self.scope) => record.facts.warnings.clone(),
                None => Vec::new(),
            };
            self.event_log.record_own_warnings(record, warnings);
        }
        self.replan(uid, now);
    }

    /// Records that the Service of this name, `namespace/name`, is gone.
    pub(super) fn observe_gone(&mut self, name: &str, now: Instant) {
        self.observe_others_gone(name, "", now);
    }

    /// Records which Nodes take traffic. First called when all Services and all Nodes are known: a slow start must not take
    /// the targets from a load balancer.
    pub(super) fn observe_targets(&mut self, targets: Arc<Targets>, now: Instant) {
        let version = |targets: &Arc<Targets>| targets.version();
        if self.targets.as_ref().map(version) != Some(targets.version()) {
            self.targets = Some(targets);
            self.replan_all(now);
        }
    }

    /// Whether the cloud may have something for the Service of this name, `namespace/name`, which exists as far as is known.
    pub(super) fn may_have_load_balancer(&self, name: &str) -> bool {
        let may_exist = |record: &Record| record.cloud.may_exist() || record.ownership.is_listed();
        self.of_name(name).any(|record| record.is_present && may_exist(record))
    }

    /// The work that may begin now; its objects are in flight until its result is reported. `jitter`, from 0 to 1, spreads
    /// audits.
    pub(super) fn next(&mut self, now: Instant, jitter: f64) -> Vec<Work> {
        self.last_next = now;
        let mut work = self.start_writes(now);
        let Some(targets) = self.targets.clone() else { return work };
        if self.refusals.expire(now) {
            self.replan_all(now);
        }
        if self.next_audit <= now {
            self.next_audit = now + self.audit_period.mul_f64(1.0 + jitter / 10.0);
            self.orphans.schedule_list(now);
            self.records.values_mut().for_each(|record| record.on_audit_due(now));
            self.replan_all(now);
        }
        while let Some((priority, keys)) = self.queue.next(now) {
            let (targets, keys) = self.with_same_targets(priority, keys, &targets);
            work.push(Work::Call(self.start_call(priority, keys, &targets, now)));
        }
        if self.orphans.is_list_due(now) && self.queue.can_list(now) {
            self.queue.is_listing = true;
            self.orphans.on_list_started();
            work.push(Work::ListOwned);
        }
        work
    }

    /// When to call [`Reconciler::next`] again if nothing is observed or reported before; later than the last call of it.
    pub(super) fn next_wake(&self) -> Option<Instant> {
        let write = self.writes.values().min().copied();
        let Some(_) = self.targets else { return write };
        let list = self.orphans.list_due().filter(|at| self.queue.can_list(self.last_next.max(*at)));
        let expiry = self.refusals.next_expiry();
        [write, self.queue.next_wake(), list, expiry, Some(self.next_audit)].into_iter().flatten().min()
    }

    /// Returns the events since the last time.
    pub(super) fn take_events(&mut self) -> Vec<PendingEvent> {
        self.event_log.take()
    }

    /// How many Services are in which state.
    pub(super) fn summary(&self) -> Summary {
        let mut summary = Summary::default();
        for record in self.records.values() {
            let is_wanted = record.is_wanted(&self.scope);
            let is_believed = matches!(record.step, Step::Idle | Step::Ensure { is_audit: true })
                && record.facts.problems.is_empty();
            summary.wanted += usize::from(is_wanted);
            summary.settled += usize::from(is_wanted && is_believed && record.cloud.is_confirmed());
            summary.leaving += usize::from(record.step == Step::Delete);
        }
        summary
    }

    fn of_name(&self, name: &str) -> impl Iterator<Item = &Record> {
        self.names.get(name).into_iter().flatten().filter_map(|uid| self.records.get(uid))
    }

    /// Records that the Services of this name are gone, but for the one with this UID.
    fn observe_others_gone(&mut self, name: &str, kept: &str, now: Instant) {
        let uids = self.names.get(name).into_iter().flatten().filter(|uid| *uid != kept);
        for uid in uids.cloned().collect::<Vec<_>>() {
            if let Some(record) = self.records.get_mut(&uid) {
                record.observe_gone(&self.scope, now);
                self.replan(&uid, now);
            }
        }
    }

    fn replan_all(&mut self, now: Instant) {
        for uid in self.records.keys().cloned().collect::<Vec<_>>() {
            self.replan(&uid, now);
        }
    }

    /// Decides what is next for a Service, unless work on it is in flight.
    fn replan(&mut self, uid: &str, now: Instant) {
        let Some(record) = self.records.get(uid) else { return };
        if record.is_in_flight() {
            return;
        }
        let name = record.facts.key();
        let has_name = |other: &Record| !other.is_present && other.facts.service.uid != uid;
        let is_name_taken = self.of_name(&name).any(has_name);
        let subject = self.queue.subject(uid);
        let targets = self.targets.as_ref();
        let targets = targets.map(|all| self.refusals.targets(subject, all).selection(&record.facts).digest);
        let step = plan(record, PlanContext { scope: &self.scope, targets, is_name_taken });
        self.writes.remove(uid);
        self.queue.remove(&Key::Service(uid.to_owned()));
        if step == Step::Forget {
            self.forget(uid, &name, now);
        } else {
            self.schedule(uid, step, now);
        }
    }

    /// Makes this the next step of a Service.
    fn schedule(&mut self, uid: &str, step: Step, now: Instant) {
        let Some(record) = self.records.get_mut(uid) else { return };
        // A step after an idle time has no delay, and a write has none but its own.
        let was_idle = !record.step.is_work();
        let ready_at = if step.is_call() {
            if was_idle {
                record.attempt.ready_at = now;
            }
            record.attempt.ready_at
        } else {
            if was_idle || record.step.is_call() {
                record.write_attempt.ready_at = now;
            }
            record.write_attempt.ready_at
        };
        record.step = step;
        let ready_at = record.not_before(&self.scope).map_or(ready_at, |at| at.max(ready_at));
        match &record.step {
            Step::Write(_) => drop(self.writes.insert(uid.to_owned(), ready_at)),
            Step::ReportInvalid => {
                record.step = Step::Idle;
                self.event_log.record_invalid(record);
            }
            Step::Idle | Step::Forget => {}
            step => {
                let priority = priority(step, record.attempt.is_in_progress());
                self.queue.enqueue(&Key::Service(uid.to_owned()), priority, ready_at);
            }
        }
    }

    /// Forgets a Service; others of its name may wait for that.
    fn forget(&mut self, uid: &str, name: &str, now: Instant) {
        self.records.remove(uid);
        self.refusals.forget(uid);
        let Some(uids) = self.names.get_mut(name) else { return };
        uids.remove(uid);
        let left: Vec<_> = uids.iter().cloned().collect();
        if left.is_empty() {
            self.names.remove(name);
        }
        for other in left {
            self.replan(&other, now);
        }
    }
}

fn priority(step: &Step, is_in_progress: bool) -> Priority {
    match step {
        _ if is_in_progress => Priority::Poll,
        Step::Ensure { is_audit: true } => Priority::Audit,
        Step::UpdateTargets => Priority::Targets,
        _ => Priority::User,
    }
}

#[cfg(test)]
mod tests;
