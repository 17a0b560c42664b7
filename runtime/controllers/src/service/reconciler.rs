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
mod tests {
    use std::time::Duration;

    use pileus_cloud::{
        ErrorKind, Ingress, IngressPoint, OwnedLoadBalancer, Retry, ServiceProgress, TargetSelection,
    };
    use serde_json::{Value, json};

    use super::*;
    use crate::error::Error;
    use crate::service::scenarios::{AUDIT, FINALIZER, Stage, fails, ingress, nodes, service, terms};
    use crate::service::work::{Listing, ListingReport};

    const ENSURE: &str = r#"ensure a ["n"]"#;
    const DELETING: &str = "2026-01-02T03:04:05Z";

    /// A Service that is settled, and nothing said of it yet.
    fn settled(change: Value) -> Stage {
        let mut stage = Stage::with(&nodes(&["n"]));
        stage.put(service("a", change));
        assert_eq!(stage.settles().calls(), [ENSURE]);
        assert_eq!(stage.events(), ["EnsuringLoadBalancer a", "EnsuredLoadBalancer a"]);
        (stage.patches, stage.sizes) = (0, Vec::new());
        stage
    }

    fn under(after: u64, note: &str) -> ServiceProgress {
        ServiceProgress::InProgress { after: Duration::from_secs(after), resume: Some(note.to_owned()) }
    }

    fn status(ip: &str) -> Value {
        json!({"loadBalancer": {"ingress": [{"ip": ip}]}})
    }

    #[test]
    fn a_finalizer_that_is_stripped_returns_but_no_two_fight_over_it() {
        let mut stage = settled(json!({}));
        let mut last = stage.now;
        for (after, seconds) in [(0, 5.0), (0, 10.0), (0, 20.0), (1, 40.0), (179, 179.0), (0, 5.0), (0, 10.0)]
        {
            stage.passes(Duration::from_secs(after));
            stage.change("a", json!({"metadata": {"finalizers": null}}));
            while stage.get("a")["metadata"]["finalizers"] != json!([FINALIZER]) {
                stage.passes(Duration::from_millis(500));
            }
            let took = (stage.now - last).as_secs_f64();
            assert!((seconds - 1.0..=seconds + 0.5).contains(&took), "{took} s instead of {seconds}");
            last = stage.now;
        }
        assert_eq!((stage.patches, stage.calls().len()), (7, 0));
    }

    #[test]
    fn who_undoes_all_that_is_written_again_and_again_makes_no_storm() {
        let mut stage = settled(json!({}));
        for _ in 0..600 {
            stage.change("a", json!({"metadata": {"finalizers": null}, "status": null}));
            stage.passes(Duration::from_secs(1));
        }
        assert!((16..=24).contains(&stage.patches), "{}", stage.patches);
        stage.rests(Duration::from_mins(3));
        assert_eq!(stage.get("a")["metadata"]["finalizers"], json!([FINALIZER]));
        assert!(stage.get("a")["status"]["loadBalancer"].get("ingress").is_some());
    }

    #[test]
    fn who_puts_a_finalizer_back_that_was_removed_makes_no_storm() {
        let mut stage = settled(json!({}));
        stage.change("a", json!({"spec": {"type": "ClusterIP"}}));
        assert_eq!(stage.settles().calls(), ["delete uid-a"]);
        for _ in 0..600 {
            stage.change("a", json!({"metadata": {"finalizers": [FINALIZER]}}));
            stage.passes(Duration::from_secs(1));
        }
        assert!((8..=12).contains(&stage.patches), "{}", stage.patches);
        stage.rests(Duration::from_mins(10));
        assert_eq!(stage.get("a")["metadata"]["finalizers"], json!([]));
    }

    #[test]
    fn what_is_none_of_ours_any_more_is_forgotten_with_the_next_audit() {
        let mut stage = settled(json!({}));
        stage.change("a", json!({"spec": {"type": "ClusterIP"}}));
        assert_eq!(stage.settles().calls(), ["delete uid-a"]);
        assert_eq!(stage.reconciler.records.len(), 1, "it may turn back, while the cloud shows it still");
        stage.passes(AUDIT * 11 / 10);
        assert!(stage.reconciler.records.is_empty() && stage.reconciler.names.is_empty());
    }

    #[test]
    fn what_we_undo_ourselves_is_no_fight() {
        let mut stage = settled(json!({}));
        for (kind, ingresses) in [("ClusterIP", 0), ("LoadBalancer", 1)].repeat(8) {
            stage.change("a", json!({"spec": {"type": kind}}));
            stage.passes(Duration::from_secs(2));
            let facts = stage.facts("a");
            assert_eq!((facts.finalizers.len(), facts.service.status.len()), (ingresses, ingresses));
        }
    }

    #[test]
    fn one_that_is_wanted_again_while_it_is_let_go_stays_ours_to_clean_up() {
        let mut stage = settled(json!({}));
        stage.change("a", json!({"spec": {"type": "ClusterIP"}}));
        stage.now += Duration::from_millis(100);
        let [Work::Call(call)] = &stage.reconciler.next(stage.now, 0.0)[..] else {
            panic!("a delete is due")
        };
        let done = ServiceProgress::Done { status: Vec::new(), warnings: Vec::new() };
        stage.reconciler.on_call_result(call, Ok(vec![Ok(done)]), stage.now, 0.0);
        let writes = |stage: &mut Stage, change: Value, answer: Option<ServiceFacts>| {
            let [Work::Write { .. }] = stage.reconciler.next(stage.now, 0.0)[..] else {
                panic!("a write is due")
            };
            stage.change("a", change);
            let answer = Arc::new(answer.unwrap_or_else(|| stage.facts("a")));
            stage.reconciler.on_write_result("uid-a", Ok(&answer), stage.now, 0.0);
        };
        let let_go = ServiceFacts { finalizers: Vec::new(), ..stage.facts("a") };
        let metadata = json!({"finalizers": null});
        writes(&mut stage, json!({"spec": {"type": "LoadBalancer"}, "metadata": metadata}), Some(let_go));
        let metadata = json!({"finalizers": [FINALIZER]});
        writes(&mut stage, json!({"spec": {"loadBalancerClass": "foreign"}, "metadata": metadata}), None);
        stage.settles();
        assert_eq!(stage.get("a")["metadata"]["finalizers"], json!([]));
    }

    #[test]
    fn a_status_that_others_write_or_wipe_returns() {
        let mut stage = settled(json!({}));
        for change in [json!({"status": null}), json!({"status": status("203.0.113.9")})] {
            stage.change("a", change);
            stage.rests(Duration::from_secs(11));
            assert_eq!(stage.get("a")["status"]["loadBalancer"]["ingress"][0]["ip"], "192.0.2.1");
        }
        assert_eq!((stage.patches, stage.calls().len(), stage.events().len()), (2, 0, 0));
    }

    #[test]
    fn one_that_becomes_somebody_elses_is_deleted_and_let_go_and_then_left_alone() {
        let mut stage = settled(json!({"spec": {"loadBalancerClass": "ours"}}));
        let foreign = json!({"spec": {"loadBalancerClass": "foreign"}, "status": status("203.0.113.9")});
        stage.change("a", foreign);
        assert_eq!(stage.settles().calls(), ["delete uid-a"]);
        assert_eq!(stage.get("a")["metadata"]["finalizers"], json!([]));
        assert_eq!(stage.get("a")["status"], status("203.0.113.9"), "it is theirs by now");
        stage.change("a", json!({"metadata": {"finalizers": [FINALIZER]}}));
        assert!(stage.rests(Duration::from_secs(11)).calls().is_empty() && stage.patches == 1);
        stage.change("a", json!({"spec": {"type": "ClusterIP", "loadBalancerClass": null}}));
        assert!(stage.settles().calls().is_empty(), "its controller is at it");
        assert_eq!(stage.reconciler.summary(), Summary::default());
    }

    #[test]
    fn what_one_who_led_before_has_begun_is_cleaned_up_however_old_the_first_look_was() {
        for first in
            [json!({"spec": {"loadBalancerClass": "foreign"}}), json!({"spec": {"type": "ClusterIP"}})]
        {
            let mut stage = Stage::with(&nodes(&["n"]));
            stage.put(service("a", json!({"spec": {"loadBalancerClass": "ours"}})));
            stage.change("a", first);
            stage.change("a", json!({"metadata": {"finalizers": [FINALIZER]}}));
            assert_eq!(stage.settles().calls(), ["delete uid-a"]);
            assert_eq!(stage.get("a")["metadata"]["finalizers"], json!([]));
        }
        let mut stage = Stage::with(&nodes(&["n"]));
        stage.put(service("a", json!({})));
        for change in [
            json!({"spec": {"type": "ClusterIP"}}),
            json!({"metadata": {"finalizers": [FINALIZER]}}),
            json!({"spec": {"type": "LoadBalancer", "loadBalancerClass": "foreign"}}),
        ] {
            stage.change("a", change);
        }
        stage.settles();
        assert_eq!(stage.get("a")["metadata"]["finalizers"], json!([]));
    }

    #[test]
    fn our_status_goes_with_our_load_balancer() {
        let mut stage = settled(json!({}));
        stage.change("a", json!({"spec": {"loadBalancerClass": "foreign"}}));
        assert_eq!(stage.settles().calls(), ["delete uid-a"]);
        assert!(stage.get("a")["status"]["loadBalancer"].get("ingress").is_none());
    }

    #[test]
    fn after_a_start_the_settled_are_looked_at_in_one_call_after_what_users_wait_for() {
        let mut stage = Stage::with(&nodes(&["n"]));
        for name in ["b", "c", "d"] {
            let metadata = json!({"finalizers": [FINALIZER]});
            stage.put(service(name, json!({"metadata": metadata, "status": status("192.0.2.1")})));
        }
        stage.put(service("a", json!({})));
        stage.rests(Duration::from_secs(2));
        assert_eq!(stage.sizes, [(1, false), (3, true)]);
        assert_eq!(stage.calls()[0], ENSURE);
        assert_eq!(stage.events(), ["EnsuringLoadBalancer a", "EnsuredLoadBalancer a"]);
        // And each half hour, without a word where all is as it was.
        stage.sizes.clear();
        stage.passes(AUDIT * 11 / 10);
        assert_eq!(stage.sizes, [(4, true)]);
        assert_eq!((stage.events().len(), stage.patches), (0, 2));
    }

    #[test]
    fn an_audit_that_finds_something_else_tells_and_writes_it() {
        let mut stage = settled(json!({}));
        let other = Ingress { point: IngressPoint::Ip("192.0.2.2".to_owned()), ..ingress() };
        stage.plans("a", Ok(ServiceProgress::Done { status: vec![other], warnings: vec!["oh".to_owned()] }));
        stage.passes(AUDIT * 11 / 10);
        assert_eq!(stage.events(), ["EnsuredLoadBalancer a", "LoadBalancerWarning a"]);
        assert_eq!(stage.get("a")["status"]["loadBalancer"]["ingress"][0]["ip"], "192.0.2.2");
        // The same warning isn't told with each audit.
        stage.plans(
            "a",
            Ok(ServiceProgress::Done { status: vec![ingress()], warnings: vec!["oh".to_owned()] }),
        );
        stage.passes(AUDIT * 11 / 10);
        assert_eq!(stage.events(), ["EnsuredLoadBalancer a"]);
        // Nor with each Node that joins, but with each ensure that a user waits for.
        let warned =
            || Ok(ServiceProgress::Done { status: vec![ingress()], warnings: vec!["oh".to_owned()] });
        stage.plans("a", warned());
        stage.nodes(&nodes(&["n", "o"]));
        stage.rests(Duration::from_secs(2));
        assert_eq!(stage.events(), ["UpdatedLoadBalancer a"]);
        stage.plans("a", warned());
        stage.change("a", json!({"spec": {"ports": [{"port": 81}]}}));
        stage.settles();
        assert_eq!(
            stage.events(),
            ["EnsuringLoadBalancer a", "EnsuredLoadBalancer a", "LoadBalancerWarning a"]
        );
        // What passes by itself isn't told to those who don't wait for anything.
        for kind in [ErrorKind::Unavailable, ErrorKind::Broken] {
            stage.plans("a", fails(kind));
        }
        stage.passes(AUDIT * 11 / 10);
        assert_eq!(stage.events(), ["SyncLoadBalancerFailed a"]);
        stage.passes(AUDIT / 10);
        // What an audit has set going is work like any other.
        stage.plans("a", Ok(under(3, "note")));
        stage.sizes.clear();
        stage.passes(AUDIT * 11 / 10);
        assert_eq!(stage.sizes, [(1, true), (1, false)]);
    }

    #[test]
    fn what_is_wrong_with_a_service_is_told_and_nothing_is_asked_but_its_deletion() {
        let wrong = json!({"spec": {"loadBalancerSourceRanges": ["everybody"]}});
        let mut stage = Stage::with(&nodes(&["n"]));
        stage.put(service("a", wrong.clone()));
        assert!(stage.settles().calls().is_empty() && stage.patches == 0);
        assert_eq!(stage.events(), ["SyncLoadBalancerFailed a"]);
        assert!(stage.notes[0].contains("192.0.2.0/24"), "{:?}", stage.notes);
        stage.change("a", json!({"metadata": {"labels": {"a": "b"}}}));
        assert!(stage.settles().events().is_empty(), "told once");
        stage.passes(AUDIT * 11 / 10);
        assert_eq!(stage.events(), ["SyncLoadBalancerFailed a"], "events go after an hour");
        stage.change("a", json!({"spec": {"loadBalancerSourceRanges": null}}));
        assert_eq!(stage.settles().calls(), [ENSURE]);
        stage.events();
        // It keeps what it has, and its finalizer.
        stage.change("a", wrong);
        stage.change("a", json!({"metadata": {"finalizers": null}}));
        stage.nodes(&nodes(&["n", "o"]));
        assert!(stage.rests(Duration::from_secs(6)).calls().is_empty());
        assert_eq!(stage.get("a")["metadata"]["finalizers"], json!([FINALIZER]));
        stage.change("a", json!({"metadata": {"deletionTimestamp": DELETING}}));
        assert_eq!(stage.settles().calls(), ["delete uid-a"]);
        let ServiceAction::Delete(deleted) = &stage.last[0].action else { panic!("{:?}", stage.last) };
        assert!(deleted.source_ranges.is_empty(), "as the provider last heard of it");
        assert_eq!((deleted.targets.clone(), deleted.status.len()), (TargetSelection::Rows(Vec::new()), 1));
    }

    #[test]
    fn one_of_the_same_name_waits_and_is_told_why() {
        let mut stage = settled(json!({}));
        stage.plans("a", fails(ErrorKind::Denied));
        stage.put(service("a", json!({"metadata": {"uid": "other"}})));
        assert_eq!(stage.settles().calls(), ["delete uid-a"]);
        let told = ["DeletingLoadBalancer a", "DeleteLoadBalancerFailed a", "SyncLoadBalancerFailed a"];
        assert_eq!(stage.events(), told);
        assert!(stage.notes.last().unwrap().contains("former service of this name"), "{:?}", stage.notes);
        assert_eq!(stage.rests(Duration::from_secs(61)).calls(), ["delete uid-a", ENSURE]);
    }

    #[test]
    fn what_changes_while_a_call_is_under_way_comes_after_it() {
        let mut stage = settled(json!({}));
        stage.change("a", json!({"spec": {"ports": [{"port": 81}]}}));
        stage.now += Duration::from_millis(100);
        let [Work::Call(call)] = &stage.reconciler.next(stage.now, 0.0)[..] else {
            panic!("an ensure is due")
        };
        stage.change("a", json!({"metadata": {"deletionTimestamp": DELETING}}));
        stage.nodes(&nodes(&["n", "o"]));
        assert!(stage.settles().calls().is_empty());
        // Of an operation that was for something else no note is kept, nor its time, nor its failure.
        stage.reconciler.on_call_result(call, Ok(vec![Ok(under(3600, "of the ensure"))]), stage.now, 0.0);
        assert_eq!(stage.settles().calls(), ["delete uid-a"]);
        assert_eq!(stage.last[0].resume, None);
        let ServiceAction::Delete(deleted) = &stage.last[0].action else { panic!("{:?}", stage.last) };
        assert_eq!(deleted.ports[0].port, 81);
    }

    #[test]
    fn a_note_comes_back_for_the_same_thing_alone() {
        let mut stage = settled(json!({}));
        let mut resumes = Vec::new();
        let mut asks = |stage: &mut Stage, change: Option<Value>| {
            stage.plans("a", Ok(under(2, "note")));
            if let Some(change) = change {
                stage.change("a", change);
            }
            stage.calls.clear();
            while stage.calls.is_empty() {
                stage.rests(Duration::from_millis(500)).now += Duration::from_millis(500);
            }
            resumes.push(stage.last[0].resume.is_some());
        };
        asks(&mut stage, Some(json!({"spec": {"ports": [{"port": 81}]}})));
        asks(&mut stage, None);
        asks(&mut stage, Some(json!({"spec": {"ports": [{"port": 82}]}})));
        asks(&mut stage, None);
        stage.nodes(&nodes(&["n", "o"]));
        asks(&mut stage, None);
        asks(&mut stage, None);
        asks(&mut stage, Some(json!({"metadata": {"deletionTimestamp": DELETING}})));
        asks(&mut stage, None);
        stage.nodes(&nodes(&["n"]));
        asks(&mut stage, None);
        assert_eq!(resumes, [false, true, false, true, false, true, false, true, true]);
    }

    #[test]
    fn where_one_call_may_run_at_a_time_all_that_is_ready_goes_along() {
        let mut stage =
            Stage::of(&nodes(&["n"]), ServiceRequirements { allows_concurrent_calls: false, ..terms() });
        for name in ["a", "b", "c"] {
            stage.put(service(name, json!({})));
        }
        stage.settles();
        stage.plans("b", Ok(under(1, "note")));
        stage.change("b", json!({"spec": {"ports": [{"port": 81}]}}));
        stage.passes(Duration::from_secs(1));
        stage.nodes(&nodes(&["n", "o"]));
        stage.now += Duration::from_millis(900);
        stage.change("a", json!({"spec": {"ports": [{"port": 81}]}}));
        stage.sizes.clear();
        stage.settles();
        assert_eq!(stage.sizes, [(3, false)]);
    }

    #[test]
    fn users_calls_are_of_a_hundred_four_at_a_time_and_those_about_targets_as_large_as_can_be() {
        let mut stage = Stage::with(&nodes(&["n"]));
        for n in 0..650 {
            stage.put(service(&format!("s{n}"), json!({"metadata": {"finalizers": [FINALIZER]}})));
        }
        stage.now += Duration::from_millis(100);
        let begun = stage.reconciler.next(stage.now, 0.0);
        let sizes = |work: &[Work]| -> Vec<usize> {
            work.iter().filter_map(|work| Some(calls(work)?.changes.len())).collect()
        };
        assert_eq!(sizes(&begun), [100; 4]);
        assert!(stage.reconciler.next(stage.now, 0.0).is_empty());
        for work in &begun {
            let done = ServiceProgress::Done { status: vec![ingress()], warnings: Vec::new() };
            if let Some(call) = calls(work) {
                let outcomes = call.keys.iter().map(|_| Ok(done.clone())).collect();
                stage.reconciler.on_call_result(call, Ok(outcomes), stage.now, 0.0);
            }
        }
        assert_eq!(sizes(&stage.reconciler.next(stage.now, 0.0)), [100, 100, 50]);
        let mut stage = settled(json!({}));
        for n in 0..650 {
            stage.put(service(&format!("s{n}"), json!({})));
        }
        stage.settles().sizes.clear();
        stage.nodes(&nodes(&["n", "o"]));
        stage.settles();
        assert_eq!(stage.sizes, [(651, false)]);
    }

    fn calls(work: &Work) -> Option<&Call> {
        match work {
            Work::Call(call) => Some(call),
            _ => None,
        }
    }

    #[test]
    fn without_a_node_a_load_balancer_is_made_all_the_same_and_it_is_told() {
        let mut stage = Stage::with(&[]);
        stage.put(service("a", json!({})));
        assert_eq!(stage.settles().calls(), ["ensure a []"]);
        let told = ["EnsuringLoadBalancer a", "UnAvailableLoadBalancer a", "EnsuredLoadBalancer a"];
        assert_eq!(stage.events(), told);
        stage.nodes(&nodes(&["n"]));
        assert_eq!(stage.settles().calls(), [r#"update a ["n"]"#]);
        assert_eq!(stage.events(), ["UpdatedLoadBalancer a"]);
        stage.nodes(&[]);
        stage.settles();
        assert_eq!(stage.events(), ["UnAvailableLoadBalancer a", "UpdatedLoadBalancer a"]);
    }

    #[test]
    fn endpoints_are_targets_and_others_are_known_where_a_provider_wants_that() {
        let wants = ServiceRequirements { wants_endpoints: true, wants_known: true, ..terms() };
        let mut stage = Stage::of(&nodes(&["n", "o"]), wants_ours);
        let local = json!({"spec": {"externalTrafficPolicy": "Local", "healthCheckNodePort": 32000}});
        for name in ["a", "b"] {
            stage.put(service(name, local.clone()));
        }
        stage.put(service("c", json!({"spec": {"type": "ClusterIP"}})));
        stage.settles().calls();
        let mut facts = stage.facts("a");
        facts.local_endpoints = [("o".to_owned(), 2), ("gone".to_owned(), 1)].into();
        stage.reconciler.observe(&Arc::new(facts), stage.now);
        assert_eq!(stage.settles().calls(), [r#"update a ["n", "o"]"#]);
        let ServiceAction::UpdateTargets(updated) = &stage.last[0].action else { panic!("{:?}", stage.last) };
        assert_eq!(updated.endpoints, [LocalEndpoints { row: 1, count: 2 }]);
        assert_eq!(stage.known.iter().map(|known| &*known.name).collect::<Vec<_>>(), ["b"]);
        assert!(stage.settles().calls().is_empty());
    }

    #[test]
    fn known_are_only_those_that_have_a_load_balancer_of_ours_and_keep_it() {
        let mut stage = Stage::of(&nodes(&["n"]), ServiceRequirements { wants_known: true, ..terms() });
        let finalizer = json!({"finalizers": [FINALIZER]});
        let there = |change: Value| {
            let mut there = json!({"metadata": finalizer, "status": status("192.0.2.1")});
            crate::scenarios::merge(&mut there, &change);
            there
        };
        let wrong = json!({"spec": {"loadBalancerSourceRanges": ["everybody"]}});
        stage.put(service("kept", there(json!({}))));
        stage.put(service("unreadable", there(wrong.clone())));
        stage.put(service("foreign", there(json!({"spec": {"loadBalancerClass": "foreign"}}))));
        stage.put(service("broken", there(json!({}))));
        stage.put(service("leaving", there(json!({"metadata": {"deletionTimestamp": DELETING}}))));
        stage.plans("leaving", Ok(under(600, "note")));
        stage.rests(Duration::from_secs(2));
        // What was heard of it while it could be read is what is there.
        stage.change("broken", wrong);
        stage.put(service("a", json!({})));
        assert!(stage.settles().calls().contains(&ENSURE.to_owned()));
        assert_eq!(stage.known.iter().map(|known| &*known.name).collect::<Vec<_>>(), ["broken", "kept"]);
    }

    #[test]
    fn one_that_somebody_else_serves_keeps_its_status_and_is_asked_about_when_it_changes() {
        let mut stage = Stage::with(&nodes(&["n"]));
        stage.plans("a", Ok(ServiceProgress::Elsewhere));
        stage.put(service(
            "a",
            json!({"status": status("203.0.113.9"), "metadata": {"finalizers": [FINALIZER]}}),
        ));
        stage.rests(Duration::from_secs(2));
        assert_eq!((stage.calls().len(), stage.patches, stage.events().len()), (1, 0, 0));
        stage.plans("a", Ok(ServiceProgress::Elsewhere));
        stage.change("a", json!({"metadata": {"labels": {"a": "b"}}}));
        assert_eq!(stage.settles().calls(), [ENSURE]);
        stage.plans("a", Ok(ServiceProgress::Elsewhere));
        stage.change("a", json!({"metadata": {"deletionTimestamp": DELETING}}));
        assert_eq!((stage.settles().calls().len(), stage.patches), (1, 1));
    }

    fn owned(name: &str, cluster: Option<&str>, uid: Option<&str>) -> OwnedLoadBalancer {
        OwnedLoadBalancer {
            cluster_uid: cluster.map(str::to_owned),
            service_uid: uid.map(str::to_owned),
            service: None,
            name: name.to_owned(),
            extra: Vec::new(),
        }
    }

    #[test]
    fn orphans_are_removed_the_unknown_are_named_and_strangers_stay() {
        let mut stage = settled(json!({}));
        let ours = Some("cluster");
        let listed = vec![
            owned("of a", ours, Some("uid-a")),
            owned("an orphan", ours, Some("gone")),
            owned("another orphan", ours, Some("gone")),
            owned("of b", ours, Some("uid-b")),
            owned("of another cluster", Some("other"), Some("gone")),
            owned("of no cluster", None, Some("gone")),
            owned("of no service", ours, None),
        ];
        let present = [("uid-b", "default/b")].map(|(uid, name)| (uid.to_owned(), name.to_owned())).into();
        stage.listing = Ok(Listing { owned: listed, present });
        stage.plans("an orphan", Ok(under(2, "note")));
        stage.plans("an orphan", fails(ErrorKind::Unavailable));
        stage.passes(AUDIT * 11 / 10);
        let mut removed = stage.calls();
        removed.retain(|call| call.starts_with("remove"));
        let again = ["remove an orphan"; 2];
        assert_eq!(removed, [["remove an orphan", "remove another orphan"], again].concat());
        let report = stage.reports.pop().unwrap();
        assert_eq!((report.orphans, report.unattributed), (2, 3));
        assert_eq!(report.unknown, ["default/b"]);
        assert_eq!(report.new_unattributed, ["of another cluster", "of no cluster", "of no service"]);
        // The Service that was named has to be cleaned up, whatever it looks like.
        stage.put(service("b", json!({"spec": {"type": "ClusterIP"}})));
        assert_eq!(stage.settles().calls(), ["delete uid-b"]);
        stage.put(service("c", json!({"spec": {"type": "ClusterIP"}})));
        assert!(stage.settles().calls().is_empty());
        stage.passes(AUDIT * 11 / 10);
        assert!(stage.reports.pop().unwrap().new_unattributed.is_empty());
    }

    #[test]
    fn an_orphan_is_removed_as_the_last_list_has_it() {
        let mut stage = Stage::with(&nodes(&["n"]));
        stage.settles();
        for version in ["1", "2"] {
            let extra = vec![("version".to_owned(), version.to_owned())];
            let listed =
                vec![OwnedLoadBalancer { extra, ..owned("an orphan", Some("cluster"), Some("gone")) }];
            stage.listing = Ok(Listing { owned: listed, present: HashMap::new() });
            stage.plans("an orphan", fails(ErrorKind::Denied));
            stage.passes(AUDIT * 11 / 10);
        }
        let ServiceAction::RemoveOrphan(owned) = &stage.last[0].action else { panic!("{:?}", stage.last) };
        assert_eq!(owned.extra[0].1, "2");
    }

    #[test]
    fn a_list_that_fails_is_tried_again_and_one_that_began_before_a_deletion_says_nothing_of_it() {
        let mut stage = settled(json!({}));
        stage.listing = Err(Retry::WithBackoff);
        let before = stage.reports.len();
        stage.passes(AUDIT * 11 / 10);
        assert!(stage.reports.len() > before + 1, "{}", stage.reports.len());
        let mut stage = settled(json!({}));
        stage.now += AUDIT;
        let work = stage.reconciler.next(stage.now, 0.0);
        assert!(matches!(work[..], [Work::ListOwned]), "{work:?}");
        stage.change("a", json!({"metadata": {"deletionTimestamp": DELETING}}));
        assert_eq!(stage.settles().calls(), ["delete uid-a"]);
        let listed = vec![owned("of a", Some("cluster"), Some("uid-a"))];
        let listing = Listing { owned: listed, present: HashMap::new() };
        assert_eq!(stage.reconciler.on_list_result(Ok(&listing), stage.now, 0.0).orphans, 0);
        assert!(stage.settles().calls().is_empty());
    }

    /// One of a foreign class that a start finds, and of which the list tells.
    fn class_conflicts() -> Stage {
        let mut stage = Stage::with(&nodes(&["n"]));
        stage.put(service("a", json!({"spec": {"loadBalancerClass": "foreign"}})));
        let listed = vec![owned("of a", Some("cluster"), Some("uid-a"))];
        stage.listing = Ok(Listing { owned: listed, present: HashMap::new() });
        assert!(stage.settles().calls().is_empty() && stage.patches == 0);
        stage
    }

    #[test]
    fn no_list_takes_a_load_balancer_from_a_live_service_of_a_foreign_class() {
        let mut stage = class_conflicts();
        stage.passes(AUDIT * 22 / 10);
        stage.change("a", json!({"metadata": {"labels": {"a": "b"}}}));
        assert!(stage.settles().calls().is_empty() && stage.patches == 0);
        let news = |report: &ListingReport| (report.class_conflicts, report.new_class_conflicts.len());
        assert_eq!(stage.reports.iter().map(news).collect::<Vec<_>>(), [(1, 1), (1, 0), (1, 0)]);
        let told = ("default/a".to_owned(), "foreign".to_owned());
        assert_eq!(stage.reports[0].new_class_conflicts, [told], "told once");
    }

    #[test]
    fn what_the_list_told_of_a_foreign_service_is_deleted_once_it_goes_or_turns() {
        type Change = fn(&mut Stage);
        let rows: [(&str, Change); 3] = [
            ("deleted", |stage| stage.change("a", json!({"metadata": {"deletionTimestamp": DELETING}}))),
            ("turned", |stage| {
                stage.change("a", json!({"spec": {"type": "ClusterIP", "loadBalancerClass": null}}));
            }),
            ("gone", |stage| stage.reconciler.observe_gone("default/a", stage.now)),
        ];
        for (name, change) in rows {
            let mut stage = class_conflicts();
            assert!(
                stage.reconciler.may_have_load_balancer("default/a"),
                "{name}: it is read before it is taken for gone"
            );
            change(&mut stage);
            assert_eq!(stage.settles().calls(), ["delete uid-a"], "{name}");
        }
        let mut stage = class_conflicts();
        stage.change("a", json!({"spec": {"loadBalancerClass": "ours"}}));
        assert_eq!(stage.settles().calls(), [ENSURE]);
    }

    #[test]
    fn what_somebody_else_has_made_since_for_what_was_ours_stays() {
        let mut stage = settled(json!({}));
        stage.change(
            "a",
            json!({"metadata": {"finalizers": null}, "status": null,
            "spec": {"loadBalancerClass": "foreign"}}),
        );
        assert_eq!(stage.settles().calls(), ["delete uid-a"]);
        let listed = vec![owned("of a", Some("cluster"), Some("uid-a"))];
        stage.listing = Ok(Listing { owned: listed, present: HashMap::new() });
        stage.passes(AUDIT * 11 / 10);
        assert!(stage.calls().is_empty());
        assert_eq!(stage.reports.last().map(|report| report.class_conflicts), Some(1));
    }

    #[test]
    fn a_write_that_fails_is_told_and_tried_again_later() {
        // One that has just started refuses what it takes some seconds later.
        let refusals = [(Error::Refused("no".to_owned()), 60), (Error::Forbidden("no".to_owned()), 0)];
        for (refusal, seconds) in refusals {
            let mut stage = Stage::with(&nodes(&["n"]));
            let note = format!("finalizer: {refusal}");
            stage.write_fates.push_back(refusal);
            stage.put(service("a", json!({})));
            assert!(stage.rests(Duration::from_millis(100)).calls().is_empty());
            assert_eq!(stage.events(), ["SyncLoadBalancerFailed a"]);
            assert!(stage.notes[0].ends_with(&note), "{:?}", stage.notes);
            let again = Duration::from_secs(seconds);
            assert!(stage.rests(again.saturating_sub(Duration::from_secs(1))).calls().is_empty(), "{note}");
            assert_eq!(stage.rests(again + Duration::from_secs(1)).calls(), [ENSURE], "{note}");
        }
    }

    #[test]
    fn one_that_was_not_gone_after_all_is_served_as_before() {
        let mut stage = settled(json!({}));
        stage.plans("a", Ok(under(3600, "of the deletion")));
        stage.reconciler.observe_gone("default/a", stage.now);
        assert_eq!(stage.settles().calls(), ["delete uid-a"]);
        stage.change("a", json!({}));
        assert_eq!(stage.settles().calls(), [ENSURE]);
        assert_eq!(stage.last[0].resume, None);
    }

    #[test]
    fn an_older_look_brings_nothing_back() {
        let mut stage = settled(json!({}));
        let mut older = stage.facts("a");
        (older.resource_version, older.finalizers) = ("2".to_owned(), Vec::new());
        stage.reconciler.observe(&Arc::new(older), stage.now);
        // For longer than what is written and undone stays undone.
        assert!(stage.rests(Duration::from_secs(11)).calls().is_empty() && stage.patches == 0);
    }

    #[test]
    fn only_what_is_there_and_may_have_something_is_read_before_it_is_taken_for_gone() {
        let mut stage = settled(json!({}));
        stage.put(service("foreign", json!({"spec": {"loadBalancerClass": "foreign"}})));
        let read = |stage: &Stage| {
            ["default/a", "default/foreign", "default/unknown"]
                .map(|name| stage.reconciler.may_have_load_balancer(name))
        };
        assert_eq!(read(&stage), [true, false, false]);
        stage.reconciler.observe_gone("default/a", stage.now);
        assert_eq!(read(&stage), [false; 3]);
    }

    #[test]
    fn audits_are_spread_over_a_tenth_of_their_period() {
        for (jitter, factor) in [(0.0, 1.0), (0.5, 1.05), (1.0, 1.1)] {
            let mut stage = Stage::with(&[]);
            stage.settles().now += AUDIT;
            assert!(matches!(stage.reconciler.next(stage.now, jitter)[..], [Work::ListOwned]));
            assert_eq!(stage.reconciler.next_wake(), Some(stage.now + AUDIT.mul_f64(factor)), "{jitter}");
        }
    }

    #[test]
    fn the_census_tells_those_that_are_served_from_those_that_can_not_be_and_those_that_leave() {
        let summary = |stage: &Stage| {
            let Summary { wanted, settled, leaving, .. } = stage.reconciler.summary();
            (wanted, settled, leaving)
        };
        let mut stage = settled(json!({}));
        stage.put(service("b", json!({"spec": {"loadBalancerSourceRanges": ["everybody"]}})));
        stage.put(service("c", json!({"spec": {"type": "ClusterIP"}})));
        stage.settles();
        assert_eq!(summary(&stage), (2, 1, 0));
        stage.change("a", json!({"spec": {"ports": [{"port": 81}]}}));
        assert_eq!(summary(&stage), (2, 0, 0));
        stage.plans("a", Ok(under(60, "note")));
        stage.change("a", json!({"metadata": {"deletionTimestamp": DELETING}}));
        stage.settles();
        assert_eq!(summary(&stage), (1, 0, 1));
    }

    #[test]
    fn a_finalizer_that_is_stripped_waits_for_no_call_that_is_tried_again_later() {
        let mut stage = settled(json!({}));
        stage.passes(Duration::from_secs(6));
        stage.plans("a", fails(ErrorKind::Denied));
        stage.change("a", json!({"spec": {"ports": [{"port": 81}]}}));
        assert_eq!(stage.settles().calls(), [ENSURE]);
        stage.change("a", json!({"metadata": {"finalizers": null}}));
        stage.passes(Duration::from_secs(1));
        assert_eq!(stage.get("a")["metadata"]["finalizers"], json!([FINALIZER]));
    }

    /// A Service whose first write has begun.
    fn writing() -> (Stage, Arc<ServiceFacts>) {
        let mut stage = Stage::with(&nodes(&["n"]));
        stage.settles();
        stage.put(service("a", json!({})));
        let Some(Work::Write { facts, .. }) = stage.reconciler.next(stage.now, 0.0).pop() else {
            panic!("a write is due")
        };
        (stage, facts)
    }

    #[test]
    fn a_write_that_fails_for_what_is_wanted_no_more_delays_and_tells_nothing() {
        let (mut stage, _) = writing();
        stage.change("a", json!({"spec": {"ports": [{"port": 81}]}}));
        stage.reconciler.on_write_result("uid-a", Err(&Error::Refused("no".to_owned())), stage.now, 0.0);
        assert_eq!(stage.settles().calls(), [ENSURE]);
        assert_eq!(stage.events(), ["EnsuringLoadBalancer a", "EnsuredLoadBalancer a"]);
    }

    #[test]
    fn the_answer_to_a_write_brings_no_service_back_that_is_gone() {
        let (mut stage, facts) = writing();
        stage.reconciler.observe_gone("default/a", stage.now);
        stage.reconciler.on_write_result("uid-a", Ok(&facts), stage.now, 0.0);
        assert!(stage.rests(Duration::from_secs(11)).calls().is_empty());
    }

    #[test]
    fn a_list_that_fails_is_tried_again_though_there_is_nothing_else_to_do() {
        let mut stage = Stage::with(&[]);
        stage.listing = Err(Retry::WithBackoff);
        stage.passes(Duration::from_secs(5));
        assert!(stage.reports.len() > 2, "{}", stage.reports.len());
    }

    #[test]
    fn an_orphan_that_the_cloud_is_at_is_asked_after_in_time_unless_a_list_lacks_it() {
        let mut stage = Stage::with(&nodes(&["n"]));
        stage.settles();
        let listed = vec![owned("an orphan", Some("cluster"), Some("gone"))];
        stage.listing = Ok(Listing { owned: listed, present: HashMap::new() });
        for _ in 0..2 {
            stage.plans("an orphan", Ok(under(3000, "note")));
        }
        stage.passes(AUDIT * 11 / 10);
        assert_eq!(stage.calls(), ["remove an orphan"]);
        stage.passes(AUDIT);
        assert!(stage.calls().is_empty(), "the next list shows it as well");
        stage.passes(AUDIT * 2 / 3);
        assert_eq!(stage.calls(), ["remove an orphan"]);
        stage.listing = Ok(Listing { owned: Vec::new(), present: HashMap::new() });
        stage.sizes.clear();
        stage.passes(AUDIT * 3);
        assert!(stage.sizes.is_empty(), "{:?}", stage.sizes);
    }

    #[test]
    fn targets_that_the_cloud_is_at_are_asked_after_as_such_and_only_their_end_is_told() {
        let mut stage = settled(json!({}));
        stage.plans("a", Ok(under(2, "note")));
        stage.nodes(&nodes(&["n", "o"]));
        assert_eq!(stage.rests(Duration::from_secs(3)).calls(), [r#"update a ["n", "o"]"#; 2]);
        assert_eq!(stage.events(), ["UpdatedLoadBalancer a"]);
    }

    #[test]
    fn a_cloud_that_wants_a_user_to_wait_is_told_once_and_of_an_audit_only_what_somebody_has_to_put_right() {
        let waits = || fails(ErrorKind::Throttled(Some(Duration::from_secs(5))));
        let mut stage = settled(json!({}));
        for _ in 0..2 {
            stage.plans("a", waits());
        }
        stage.change("a", json!({"spec": {"ports": [{"port": 81}]}}));
        stage.rests(Duration::from_secs(6));
        assert_eq!(
            stage.events(),
            ["EnsuringLoadBalancer a", "LoadBalancerPending a", "EnsuredLoadBalancer a"]
        );
        for (fate, told) in [(waits(), 0), (fails(ErrorKind::Unavailable), 0), (fails(ErrorKind::Denied), 1)]
        {
            let name = format!("{fate:?}");
            stage.plans("a", fate);
            stage.passes(AUDIT * 11 / 10);
            assert_eq!(stage.events().len(), told, "{name}");
        }
    }

    #[test]
    fn what_fails_of_one_that_leaves_is_told_in_words_of_its_own() {
        let leaves = json!({"metadata": {"deletionTimestamp": DELETING}});
        let note = |stage: &mut Stage| {
            stage.settles();
            let note = stage.notes.last().cloned().unwrap_or_default();
            (stage.events().pop().unwrap_or_default(), note)
        };
        let mut stage = settled(json!({}));
        stage.plans("a", fails(ErrorKind::Denied));
        stage.change("a", leaves.clone());
        let (reason, text) = note(&mut stage);
        assert_eq!(reason, "SyncLoadBalancerFailed a");
        assert!(text.starts_with("Error syncing load balancer: failed to delete load balancer: "), "{text}");
        let mut stage = settled(json!({}));
        stage.plans("a", fails(ErrorKind::Denied));
        stage.reconciler.observe_gone("default/a", stage.now);
        let (reason, text) = note(&mut stage);
        assert_eq!(reason, "DeleteLoadBalancerFailed a");
        assert!(text.starts_with("Error deleting load balancer: "), "{text}");
        let mut stage = settled(json!({}));
        stage.write_fates.push_back(Error::Forbidden("no".to_owned()));
        stage.change("a", leaves);
        stage.settles();
        let text = stage.notes.last().unwrap();
        assert!(text.contains("failed to remove load balancer cleanup finalizer"), "{text}");
    }

    #[test]
    fn a_look_that_shows_nothing_new_of_one_that_fails_shortens_no_delay() {
        let unseen = || json!({"metadata": {"annotations": {"a": "b"}}});
        let mut stage = settled(json!({}));
        stage.plans("a", fails(ErrorKind::Denied));
        stage.change("a", json!({"spec": {"ports": [{"port": 81}]}}));
        assert_eq!(stage.settles().calls(), [ENSURE]);
        stage.change("a", unseen());
        assert!(stage.settles().calls().is_empty());
        let mut stage = settled(json!({}));
        stage.plans("a", fails(ErrorKind::Denied));
        stage.change("a", json!({"metadata": {"deletionTimestamp": DELETING}}));
        assert_eq!(stage.settles().calls(), ["delete uid-a"]);
        stage.reconciler.observe_gone("default/a", stage.now);
        assert!(stage.settles().calls().is_empty(), "one that goes in the end");
    }

    #[test]
    fn what_is_left_without_a_finalizer_loses_its_address_in_one_write_if_it_has_one() {
        for (status, patches) in [(status("192.0.2.1"), 1), (Value::Null, 0)] {
            let mut stage = settled(json!({}));
            let metadata = json!({"finalizers": null});
            stage.change("a", json!({"spec": {"type": "ClusterIP"}, "metadata": metadata, "status": status}));
            assert_eq!(stage.rests(Duration::from_secs(11)).calls(), ["delete uid-a"]);
            assert_eq!((stage.facts("a").service.status.len(), stage.patches), (0, patches));
        }
    }

    /// What is asked of the cloud in the next minutes, short of an audit.
    fn later(stage: &mut Stage) -> Vec<String> {
        stage.sizes.clear();
        let mut calls = stage.passes(Duration::from_mins(5)).calls();
        let is_audit = |sizes: &[(usize, bool)]| sizes.iter().all(|(_, is_audit)| *is_audit);
        assert!(
            is_audit(&stage.sizes) && stage.events().is_empty(),
            "nobody waits for it: {:?}",
            stage.sizes
        );
        calls.retain(|call| call != "list");
        calls
    }

    #[test]
    fn what_changes_and_changes_back_is_looked_at_once_more_when_the_cloud_shows_all() {
        type Change = fn(&mut Stage);
        fn port(stage: &mut Stage, port: u16) {
            stage.change("a", json!({"spec": {"ports": [{"port": port, "nodePort": 30080}]}}));
        }
        fn kind(stage: &mut Stage, kind: &str) {
            stage.change("a", json!({"spec": {"type": kind}}));
        }
        let rows: [(&str, &[Change], usize); 8] = [
            ("another wish", &[|stage| port(stage, 81)], 0),
            ("two others", &[|stage| port(stage, 81), |stage| port(stage, 82)], 0),
            ("there and back", &[|stage| port(stage, 81), |stage| port(stage, 80)], 1),
            ("by two steps", &[|stage| port(stage, 81), |stage| port(stage, 82), |stage| port(stage, 80)], 1),
            ("other nodes", &[|stage| stage.nodes(&nodes(&["n", "o"]))], 0),
            (
                "nodes that go and come",
                &[|stage| stage.nodes(&nodes(&["n", "o"])), |stage| stage.nodes(&nodes(&["n"]))],
                1,
            ),
            (
                "one that is made again",
                &[|stage| kind(stage, "ClusterIP"), |stage| kind(stage, "LoadBalancer")],
                1,
            ),
            ("its status alone", &[|stage| stage.change("a", json!({"status": null}))], 0),
        ];
        for (name, changes, looks) in rows {
            // What comes after the first list has nothing in the cloud.
            let mut stage = Stage::with(&nodes(&["n"]));
            stage.settles().put(service("a", json!({})));
            stage.settles();
            for change in changes {
                change(&mut stage);
                stage.rests(Duration::from_secs(11)).calls();
            }
            stage.events();
            assert_eq!(stage.reconciler.summary(), Summary { wanted: 1, settled: 1, leaving: 0 }, "{name}");
            assert_eq!(later(&mut stage).len(), looks, "{name}");
            assert!(later(&mut stage).is_empty(), "{name}: once");
        }
    }

    #[test]
    fn what_goes_back_and_forth_for_long_is_looked_at_by_the_audits_and_once_at_the_end() {
        let mut stage = settled(json!({}));
        for round in 0..240 {
            stage.nodes(&nodes(if round % 2 == 0 { &["n", "o"] } else { &["n"] }));
            stage.passes(Duration::from_secs(21));
        }
        let looks = |stage: &Stage| stage.sizes.iter().filter(|(_, is_audit)| *is_audit).count();
        assert_eq!(looks(&stage), 2, "in 84 minutes");
        stage.sizes.clear();
        stage.passes(Duration::from_mins(5));
        assert_eq!((stage.sizes.len(), looks(&stage)), (1, 1));
    }

    #[test]
    fn an_audit_is_not_put_off_by_what_goes_back_and_forth_before_it_begins() {
        let mut stage = settled(json!({}));
        let audit = stage.reconciler.next_wake().unwrap();
        let period = Duration::from_secs(21);
        stage.now = (audit + Duration::from_millis(500)).checked_sub(period * 5).unwrap();
        for round in 0..10 {
            stage.nodes(&nodes(if round % 2 == 0 { &["n", "o"] } else { &["n"] }));
            stage.passes(period);
        }
        assert_eq!(stage.sizes.iter().filter(|(_, is_audit)| *is_audit).count(), 1);
    }

    /// One of a foreign class that bears the finalizer, of which the cloud has nothing.
    fn foreign() -> Stage {
        let mut stage = Stage::with(&nodes(&["n"]));
        let metadata = json!({"finalizers": [FINALIZER]});
        stage.put(service("a", json!({"spec": {"loadBalancerClass": "foreign"}, "metadata": metadata})));
        assert!(stage.settles().calls().is_empty() && stage.patches == 0);
        stage
    }

    const TURNED: &str = r#"{"spec": {"type": "ClusterIP", "loadBalancerClass": null}}"#;

    #[test]
    fn a_finalizer_that_may_be_anothers_goes_with_the_class_but_only_after_its_controller_had_its_time() {
        let turned: Value = serde_json::from_str(TURNED).unwrap();
        let deleting = json!({"metadata": {"deletionTimestamp": DELETING}});
        for also in [json!({}), deleting] {
            let mut stage = foreign();
            stage.change("a", turned.clone());
            stage.change("a", also);
            stage.passes(Duration::from_mins(29));
            assert!(stage.calls().is_empty() && stage.patches == 0, "its controller is at it");
            stage.passes(Duration::from_secs(62));
            assert_eq!(stage.calls(), ["delete uid-a"]);
            assert_eq!((stage.get("a")["metadata"]["finalizers"].clone(), stage.patches), (json!([]), 1));
        }
        // It is theirs again, has been seen to by them, or is gone with their word.
        let rows = [
            ("turned back", json!({"spec": {"type": "LoadBalancer", "loadBalancerClass": "foreign"}})),
            ("done", json!({"metadata": {"finalizers": null}})),
        ];
        for (name, change) in rows {
            let mut stage = foreign();
            stage.change("a", turned.clone());
            stage.passes(Duration::from_mins(29));
            stage.change("a", change);
            assert!(stage.passes(AUDIT * 3).calls().is_empty() && stage.patches == 0, "{name}");
        }
        let mut stage = foreign();
        stage.change("a", turned);
        stage.reconciler.observe_gone("default/a", stage.now);
        stage.put(service("a", json!({"metadata": {"uid": "other"}})));
        assert_eq!(stage.settles().calls(), [ENSURE], "the next of its name needn't wait");
    }

    #[test]
    fn a_deletion_that_waits_for_another_controller_is_told_with_each_list_but_not_at_once() {
        let mut stage = foreign();
        stage.change("a", json!({"metadata": {"deletionTimestamp": DELETING}}));
        stage.passes(AUDIT * 11 / 10);
        assert!(stage.events().is_empty(), "whoever serves it may be at it");
        for _ in 0..2 {
            stage.passes(AUDIT * 11 / 10);
            assert_eq!(stage.events(), ["SyncLoadBalancerFailed a"]);
            assert!(
                stage.notes.last().unwrap().contains("the class foreign is not ours"),
                "{:?}",
                stage.notes
            );
        }
        assert!(stage.calls().is_empty() && stage.patches == 0);
        // What the list shows of it is ours, and so is the finalizer.
        let listed = vec![owned("of a", Some("cluster"), Some("uid-a"))];
        stage.listing = Ok(Listing { owned: listed, present: HashMap::new() });
        stage.passes(AUDIT * 11 / 10);
        assert!(stage.calls().contains(&"delete uid-a".to_owned()));
        assert_eq!(stage.get("a")["metadata"]["finalizers"], json!([]));
    }

    #[test]
    fn one_that_turns_back_to_a_foreign_class_before_its_deletion_keeps_what_it_has() {
        let turned: Value = serde_json::from_str(TURNED).unwrap();
        let back = json!({"spec": {"type": "LoadBalancer", "loadBalancerClass": "foreign"}});
        let mut stage = class_conflicts();
        stage.change("a", turned.clone());
        stage.change("a", back.clone());
        assert!(stage.settles().calls().is_empty());
        // And what is begun isn't gone on with: they may have made it anew.
        stage.plans("a", Ok(under(60, "note")));
        stage.change("a", turned);
        assert_eq!(stage.settles().calls(), ["delete uid-a"]);
        stage.change("a", back);
        stage.passes(AUDIT * 11 / 10);
        assert!(stage.calls().iter().all(|call| call == "list"), "{:?}", stage.calls);
    }
}
