//! All Services that matter, and what is to be done next for which: the service controller as a machine without clock,
//! network and chance.
//!
//! Each Service goes round by itself: what is observed of it becomes its record, `plan` says which step is next and why,
//! the lanes say when, work goes out as values, and what became of it changes the record. Never is more than one piece of
//! work under way for one Service (P-11), nor for two that bear the same name one after the other.

mod answers;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use pileus_cloud::ServiceTerms;
use tokio::time::Instant;

use super::Settings;
use super::batch::Batch;
use super::lanes::{Lane, Lanes, Shape};
use super::orphans::Orphans;
use super::plan::{Step, World, plan, wants};
use super::record::{Doubt, Record};
use super::targets::Targets;
use super::telling::Told;
use super::work::{Call, Census, Key, Telling, Work};
use crate::facts::service::ServiceFacts;

/// How long what was written and undone by somebody else stays undone: two that disagree write no faster than that.
const RESTORING: Duration = Duration::from_secs(5);

/// The Services.
#[derive(Debug)]
pub(super) struct Roster {
    terms: ServiceTerms,
    classes: Vec<String>,
    audit_period: Duration,
    /// By UID.
    records: HashMap<String, Record>,
    /// The UIDs of those that bear a name, or bore it and aren't cleaned up.
    names: HashMap<String, BTreeSet<String>>,
    targets: Option<Arc<Targets>>,
    /// Services that wait to be written to, and from when.
    writes: BTreeMap<String, Instant>,
    lanes: Lanes,
    orphans: Orphans,
    audit: Instant,
    /// When work was last asked for.
    looked: Instant,
    told: Told,
}

impl Roster {
    /// Knows of nothing yet, and wants nothing of the cloud before it has been told of targets. An audit is due at once.
    pub(super) fn new(terms: ServiceTerms, settings: &Settings, now: Instant) -> Self {
        let side_by_side = terms.is_side_by_side.then_some(settings.calls.max(1));
        let lanes = Lanes::new(Shape { largest: terms.largest_change.max(1), side_by_side });
        Self {
            terms,
            classes: settings.classes.clone(),
            audit_period: settings.audit_period,
            records: HashMap::new(),
            names: HashMap::new(),
            targets: None,
            writes: BTreeMap::new(),
            lanes,
            orphans: Orphans::new(settings.cluster.uid.clone()),
            audit: now,
            looked: now,
            told: Told::default(),
        }
    }

    /// A Service is there, and so. One that an older look shows than the last is not news.
    pub(super) fn present(&mut self, facts: &Arc<ServiceFacts>, now: Instant) {
        let uid = &facts.service.uid;
        self.vanish_others(&facts.key(), uid, now);
        match self.records.get_mut(uid) {
            Some(record) if facts.is_older_than(&record.facts) => return,
            Some(record) => record.observe(facts, &self.classes, now),
            None => {
                let record = Record::new(facts, &self.classes, self.orphans.expects(uid), now);
                self.records.insert(uid.clone(), record);
                self.names.entry(facts.key()).or_default().insert(uid.clone());
            }
        }
        self.replan(uid, now);
    }

    /// The Service of this name, `namespace/name`, is gone.
    pub(super) fn gone(&mut self, name: &str, now: Instant) {
        self.vanish_others(name, "", now);
    }

    /// Those of this name but one are gone.
    fn vanish_others(&mut self, name: &str, kept: &str, now: Instant) {
        let uids = self.names.get(name).into_iter().flatten().filter(|uid| *uid != kept);
        for uid in uids.cloned().collect::<Vec<_>>() {
            self.vanish(&uid, now);
        }
    }

    fn vanish(&mut self, uid: &str, now: Instant) {
        if let Some(record) = self.records.get_mut(uid) {
            record.vanish(&self.classes, now);
            self.replan(uid, now);
        }
    }

    /// The Nodes that may take traffic have changed. First told once all Services and Nodes are known: no load balancer is
    /// to lose its targets because a start is slow.
    pub(super) fn target(&mut self, targets: Arc<Targets>, now: Instant) {
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
                record.is_refused = false;
                if record.doubt == Doubt::None {
                    record.doubt = Doubt::Audit;
                }
            }
            self.replan_all(now);
        }
        while let Some((lane, keys)) = self.lanes.next(now) {
            work.push(Work::Call(self.call(lane, keys, &targets)));
        }
        if self.orphans.is_list_due(now) && self.lanes.may_list(now) {
            self.lanes.is_listing = true;
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

    fn call(&mut self, lane: Lane, keys: Vec<Key>, targets: &Arc<Targets>) -> Call {
        let batch = Batch { terms: &self.terms, targets };
        let (records, orphans, told) = (&mut self.records, &mut self.orphans, &mut self.told);
        let begin = |key: Key| {
            let change = match &key {
                Key::Service(uid) => {
                    let record = records.get_mut(uid)?;
                    let change = batch.change(record);
                    told.begins(record, targets);
                    record.begins();
                    change
                }
                Key::Orphan(name) => orphans.begins(name)?,
            };
            Some((key, change))
        };
        let (keys, changes): (Vec<_>, Vec<_>) = keys.into_iter().filter_map(begin).unzip();
        let known = if self.terms.wants_known { batch.known(&self.records, &keys) } else { Vec::new() };
        Call { keys, changes, known, targets: Arc::clone(targets), is_audit: lane == Lane::Audit, lane }
    }

    /// What is to be told since it was last asked for.
    pub(super) fn tellings(&mut self) -> Vec<Telling> {
        self.told.take()
    }

    /// When to ask for more work although nothing has been told to the roster; later than the last `next`.
    pub(super) fn wakes(&self) -> Option<Instant> {
        let write = self.writes.values().min().copied();
        let Some(_) = self.targets else { return write };
        let list = self.orphans.list_due().filter(|at| self.lanes.may_list(self.looked.max(*at)));
        [write, self.lanes.wakes(), list, Some(self.audit)].into_iter().flatten().min()
    }

    /// How Services fare.
    pub(super) fn census(&self) -> Census {
        let mut census = Census::default();
        for record in self.records.values() {
            let is_wanted = record.is_present && wants(&record.facts, &self.classes);
            census.wanted += usize::from(is_wanted);
            census.settled +=
                usize::from(is_wanted && record.step == Step::Rest && record.confirmed.is_some());
            census.leaving += usize::from(record.step == Step::Delete);
        }
        census
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
        let others = self.names.get(&name).into_iter().flatten().filter(|other| *other != uid);
        let is_name_taken = others.filter_map(|other| self.records.get(other)).any(|other| !other.is_present);
        let targets = self.targets.as_ref().map(|targets| targets.digest());
        let step = plan(record, World { classes: &self.classes, targets, is_name_taken });
        self.writes.remove(uid);
        self.lanes.remove(&Key::Service(uid.to_owned()));
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
        let ready = record.turn.ready;
        match &record.step {
            Step::Write(write) => {
                let restored = record.written.as_ref().filter(|(last, _)| last == write);
                let ready = restored.map_or(ready, |(_, at)| ready.max(*at + RESTORING));
                self.writes.insert(uid.to_owned(), ready);
            }
            Step::Refuse => {
                record.is_refused = true;
                record.step = Step::Rest;
                self.told.refuses(record);
            }
            Step::Rest | Step::Forget => {}
            step => self.lanes.put(&Key::Service(uid.to_owned()), lane(step, record.turn.is_under), ready),
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

fn lane(step: &Step, is_under: bool) -> Lane {
    match step {
        _ if is_under => Lane::Again,
        Step::Ensure { is_audit: true } => Lane::Audit,
        Step::UpdateTargets => Lane::Targets,
        _ => Lane::User,
    }
}
