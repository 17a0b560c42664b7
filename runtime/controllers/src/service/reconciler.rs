//! All Services that matter, and what is to be done next for which: the service controller as a machine without clock,
//! network and chance.
//!
//! Each Service goes round by itself: what is observed of it becomes its record, `plan` says which step is next and why,
//! the queue say when, work goes out as values, and what became of it changes the record. Never is more than one piece of
//! work under way for one Service (P-11), nor for two that bear the same name one after the other.

mod outcomes;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use pileus_cloud::{LocalEndpoints, ServiceAction, ServiceRequirements};
use tokio::time::Instant;

use super::Settings;
use super::batch::Batch;
use super::event_log::EventLog;
use super::orphans::Orphans;
use super::plan::{Step, World, plan, wants_ours};
use super::record::{Doubt, Record};
use super::targets::Targets;
use super::work::{Call, Key, PendingEvent, Summary, Work};
use super::work_queue::{CallLimits, Priority, WorkQueue};
use crate::facts::service::ServiceFacts;

/// The Services.
#[derive(Debug)]
pub(super) struct Reconciler {
    terms: ServiceRequirements,
    classes: Vec<String>,
    audit_period: Duration,
    /// By UID.
    records: HashMap<String, Record>,
    /// The UIDs of those that bear a name, or bore it and aren't cleaned up.
    names: HashMap<String, BTreeSet<String>>,
    targets: Option<Arc<Targets>>,
    /// Services that wait to be written to, and from when.
    writes: BTreeMap<String, Instant>,
    queue: WorkQueue,
    orphans: Orphans,
    audit: Instant,
    /// When work was last asked for.
    looked: Instant,
    event_log: EventLog,
}

impl Reconciler {
    /// Knows of nothing yet, and wants nothing of the cloud before it has been told of targets. What the cloud has is to be
    /// listed at once.
    pub(super) fn new(terms: ServiceRequirements, settings: &Settings, now: Instant) -> Self {
        let side_by_side = terms.allows_concurrent_calls.then_some(settings.calls.max(1));
        let queue = WorkQueue::new(CallLimits { largest: terms.largest_batch.max(1), side_by_side });
        Self {
            terms,
            classes: settings.classes.clone(),
            audit_period: settings.audit_period,
            records: HashMap::new(),
            names: HashMap::new(),
            targets: None,
            writes: BTreeMap::new(),
            queue,
            orphans: Orphans::new(settings.cluster.uid.clone(), now),
            audit: now + settings.audit_period,
            looked: now,
            event_log: EventLog::default(),
        }
    }

    /// A Service is there, and so. One that an older look shows than the last is not news.
    pub(super) fn observe(&mut self, facts: &Arc<ServiceFacts>, now: Instant) {
        let uid = &facts.service.uid;
        self.vanish_others(&facts.key(), uid, now);
        match self.records.get_mut(uid) {
            Some(record) if facts.is_older_than(&record.facts) => return,
            Some(record) => record.observe(facts, &self.classes, now),
            None => {
                let mut record = Record::new(facts, &self.classes, self.orphans.expects(uid), now);
                if !self.orphans.has_listed {
                    record.mark_unknown();
                }
                self.records.insert(uid.clone(), record);
                self.names.entry(facts.key()).or_default().insert(uid.clone());
            }
        }
        self.replan(uid, now);
    }

    /// Whether the cloud may have something of the Service of this name, `namespace/name`, which is there as far as is known.
    pub(super) fn may_have_load_balancer(&self, name: &str) -> bool {
        self.of_name(name).any(|record| record.is_present && (record.may_exist || record.is_listed))
    }

    fn of_name(&self, name: &str) -> impl Iterator<Item = &Record> {
        self.names.get(name).into_iter().flatten().filter_map(|uid| self.records.get(uid))
    }

    /// The Service of this name, `namespace/name`, is gone.
    pub(super) fn observe_gone(&mut self, name: &str, now: Instant) {
        self.vanish_others(name, "", now);
    }

    /// Those of this name but one are gone.
    fn vanish_others(&mut self, name: &str, kept: &str, now: Instant) {
        let uids = self.names.get(name).into_iter().flatten().filter(|uid| *uid != kept);
        for uid in uids.cloned().collect::<Vec<_>>() {
            if let Some(record) = self.records.get_mut(&uid) {
                record.vanish(&self.classes, now);
                self.replan(&uid, now);
            }
        }
    }

    /// The Nodes that may take traffic have changed. First told once all Services and Nodes are known: no load balancer is
    /// to lose its targets because a start is slow.
    pub(super) fn observe_targets(&mut self, targets: Arc<Targets>, now: Instant) {
        let digest = |targets: &Arc<Targets>| targets.digest();
        if self.targets.as_ref().map(digest) != Some(targets.digest()) {
            self.targets = Some(targets);
            self.replan_all(now);
        }
    }

    /// What may begin now. What it is about is busy until told of. `jitter`, from 0 to 1, spreads audits.
    pub(super) fn next(&mut self, now: Instant, jitter: f64) -> Vec<Work> {
        self.looked = now;
        let mut work = self.due_writes(now);
        let Some(targets) = self.targets.clone() else { return work };
        if self.audit <= now {
            self.audit = now + self.audit_period.mul_f64(1.0 + jitter / 10.0);
            self.orphans.list_at(now);
            for record in self.records.values_mut() {
                record.forgets(now);
                record.is_refused = false;
                // However long what was asked for goes back and forth.
                record.looks = now;
                if record.doubt == Doubt::None {
                    record.doubt = Doubt::Audit;
                }
            }
            self.replan_all(now);
        }
        while let Some((priority, keys)) = self.queue.next(now) {
            work.push(Work::Call(self.call(priority, keys, &targets, now)));
        }
        if self.orphans.is_list_due(now) && self.queue.can_list(now) {
            self.queue.is_listing = true;
            self.orphans.listing_begins();
            work.push(Work::ListOwned);
        }
        work
    }

    fn due_writes(&mut self, now: Instant) -> Vec<Work> {
        let due = self.writes.extract_if(.., |_, ready| *ready <= now).map(|(uid, _)| uid);
        let mut work = Vec::new();
        for uid in due {
            if let Some(record) = self.records.get_mut(&uid)
                && let Step::Write(write) = &record.step
            {
                record.turn.begins();
                work.push(Work::Write { facts: Arc::clone(&record.facts), write: write.clone() });
            }
        }
        work
    }

    fn call(&mut self, priority: Priority, keys: Vec<Key>, targets: &Arc<Targets>, now: Instant) -> Call {
        let batch = Batch { terms: &self.terms, targets };
        let (records, orphans, event_log) = (&mut self.records, &mut self.orphans, &mut self.event_log);
        let begin = |key: Key| {
            let change = match &key {
                Key::Service(uid) => {
                    let record = records.get_mut(uid)?;
                    let change = batch.change(record);
                    event_log.begins(record, targets);
                    record.begins(targets, endpoints(&change.action), now);
                    change
                }
                Key::Orphan(name) => orphans.begins(name)?,
            };
            Some((key, change))
        };
        let (keys, changes): (Vec<_>, Vec<_>) = keys.into_iter().filter_map(begin).unzip();
        let mut known = Vec::new();
        if self.terms.wants_known {
            known = batch.known(&self.records, &self.classes, &keys);
        }
        Call {
            keys,
            changes,
            known,
            targets: Arc::clone(targets),
            is_audit: priority == Priority::Audit,
            priority,
        }
    }

    /// What is to be told since it was last asked for.
    pub(super) fn take_events(&mut self) -> Vec<PendingEvent> {
        self.event_log.take()
    }

    /// When to ask for more work although nothing has been told to the reconciler; later than the last `next`.
    pub(super) fn next_wake(&self) -> Option<Instant> {
        let write = self.writes.values().min().copied();
        let Some(_) = self.targets else { return write };
        let list = self.orphans.list_due().filter(|at| self.queue.can_list(self.looked.max(*at)));
        [write, self.queue.next_wake(), list, Some(self.audit)].into_iter().flatten().min()
    }

    /// How Services fare.
    pub(super) fn summary(&self) -> Summary {
        let mut summary = Summary::default();
        for record in self.records.values() {
            let is_wanted = record.is_present && wants_ours(&record.facts, &self.classes);
            let is_believed = matches!(record.step, Step::Idle | Step::Ensure { is_audit: true });
            summary.wanted += usize::from(is_wanted);
            summary.settled += usize::from(is_wanted && is_believed && record.confirmed.is_some());
            summary.leaving += usize::from(record.step == Step::Delete);
        }
        summary
    }

    fn replan_all(&mut self, now: Instant) {
        for uid in self.records.keys().cloned().collect::<Vec<_>>() {
            self.replan(&uid, now);
        }
    }

    /// Decides anew what is next for a Service; while work on it is under way that has to wait.
    fn replan(&mut self, uid: &str, now: Instant) {
        let Some(record) = self.records.get(uid) else { return };
        if record.turn.is_busy() {
            return;
        }
        let name = record.facts.key();
        let has_it = |other: &Record| !other.is_present && other.facts.service.uid != uid;
        let is_name_taken = self.of_name(&name).any(has_it);
        let targets = self.targets.as_ref().map(|targets| targets.digest());
        let step = plan(record, World { classes: &self.classes, targets, is_name_taken });
        self.writes.remove(uid);
        self.queue.remove(&Key::Service(uid.to_owned()));
        if step == Step::Forget {
            self.forget(uid, &name, now);
        } else {
            self.wait(uid, step, now);
        }
    }

    /// This is the next step of a Service, when its time comes.
    fn wait(&mut self, uid: &str, step: Step, now: Instant) {
        let Some(record) = self.records.get_mut(uid) else { return };
        // A delay is one of calls, or of writes; and what has rested begins now.
        if record.step.is_call() != step.is_call() || !record.step.is_work() {
            record.turn.ready = now;
        }
        record.step = step;
        let not_before = record.not_before(&self.classes);
        let ready = not_before.map_or(record.turn.ready, |at| at.max(record.turn.ready));
        match &record.step {
            Step::Write(_) => drop(self.writes.insert(uid.to_owned(), ready)),
            Step::ReportInvalid => {
                record.is_refused = true;
                record.step = Step::Idle;
                self.event_log.refuses(record);
            }
            Step::Idle | Step::Forget => {}
            step => {
                self.queue.enqueue(&Key::Service(uid.to_owned()), priority(step, record.turn.is_under), ready)
            }
        }
    }

    /// Nothing is left to do for a Service that is none of ours any more; what bears its name needn't wait for it now.
    fn forget(&mut self, uid: &str, name: &str, now: Instant) {
        self.records.remove(uid);
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

fn endpoints(action: &ServiceAction) -> &[LocalEndpoints] {
    match action {
        ServiceAction::Ensure(service) | ServiceAction::UpdateTargets(service) => &service.endpoints,
        ServiceAction::Delete(_) | ServiceAction::RemoveOrphan(_) => &[],
    }
}

fn priority(step: &Step, is_under: bool) -> Priority {
    match step {
        _ if is_under => Priority::Again,
        Step::Ensure { is_audit: true } => Priority::Audit,
        Step::UpdateTargets => Priority::Targets,
        _ => Priority::User,
    }
}

#[cfg(test)]
mod tests;
