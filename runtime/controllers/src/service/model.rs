//! The reconciler against a simulated API server, a simulated cloud and random users, by seed. For every order of events,
//! in the end the cloud holds exactly what the cluster asks for, and then all writes cease.
//!
//! The watch lags and skips short-lived states. Writes and calls take effect at some moment between their start and their
//! answer or later, answers get lost, operations take time and fail late. The cloud shows earlier states. The process is
//! killed at any moment; the next one begins with a list that may be old, and perhaps with other classes
//! and as another default.

mod api;
mod chance;
mod cloud;
mod observations;

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;
use std::time::Duration;

use pileus_cloud::{
    Cluster, Error as CloudError, ErrorKind, Retry, ServiceAction, ServiceProgress, ServiceRequirements,
    TrafficPolicy,
};
use tokio::time::Instant;

use super::Settings;
use super::ownership::Demand;
use super::reconciler::Reconciler;
use super::scope::ServiceScope;
use super::targets::Targets;
use super::work::{Call, Key, Listing, PendingEvent, Work, Write};
use crate::error::Error;
use crate::facts::node::NodeFacts;
use crate::facts::service::ServiceFacts;
use crate::model::{PROVIDER, uid};
use api::{Api, CLASSES, News};
use chance::Chance;
use cloud::{CLUSTER, Cloud, DesiredSpec, name};
use observations::Observations;

const AUDIT: Duration = Duration::from_mins(30);

type Outcomes = Result<Vec<Result<ServiceProgress, CloudError>>, CloudError>;

#[derive(Debug)]
enum Event {
    User,
    /// The watch delivers its news.
    Watch,
    /// A write takes effect, and then its answer arrives.
    Write(Arc<ServiceFacts>, Write),
    WriteResult(String, Write, Result<Arc<ServiceFacts>, Error>),
    /// A call takes effect, and then its answer arrives.
    Call(Call),
    CallResult(Call, Outcomes),
    /// The cloud is listed, then the API server, and then both results arrive.
    List,
    Present(Vec<pileus_cloud::OwnedLoadBalancer>),
    ListResult(Result<Listing, Retry>),
}

struct Simulation {
    chance: Chance,
    faults: bool,
    now: Instant,
    /// The events to come, by time and order.
    events: BTreeMap<(Instant, u64), Event>,
    count: u64,
    api: Api,
    cloud: Cloud,
    nodes: BTreeSet<u64>,
    requirements: ServiceRequirements,
    settings: Settings,
    scope: ServiceScope,
    reconciler: Reconciler,
    /// The objects of work in flight.
    in_flight: HashSet<Key>,
    calls: Vec<(&'static str, usize)>,
    /// The names that this process has observed, and follows until they are gone.
    followed: HashSet<String>,
    /// The observations of this process.
    seen: Observations,
    /// The Services, name by UID, that this process has ensured.
    ensured: BTreeMap<String, String>,
    events_sent: usize,
    /// The Service that users change most.
    focus: u64,
}

impl Simulation {
    fn new(seed: u64) -> Self {
        let mut chance = Chance(seed);
        let requirements = ServiceRequirements {
            largest_batch: chance.pick(&[1, 3, 1000]).unwrap(),
            allows_concurrent_calls: chance.percent(50),
            wants_endpoints: chance.percent(50),
            wants_known: chance.percent(50),
            takes_missing_node_ports: true,
            ..ServiceRequirements::default()
        };
        let settings = Settings {
            cluster: Cluster { name: "kubernetes".to_owned(), uid: Some(CLUSTER.to_owned()) },
            classes: CLASSES.map(str::to_owned).to_vec(),
            is_default: true,
            marks_services: chance.percent(50),
            // With hardly any audits, no audit hides an error.
            audit_period: if chance.percent(50) { AUDIT } else { AUDIT * 10_000 },
            calls: 1 + usize::try_from(chance.below(4)).unwrap(),
        };
        let now = Instant::now();
        let mut cloud = Cloud::default();
        cloud.add("of another cluster", Some("another cluster"), Some("u1"));
        cloud.add("of no cluster", None, Some("u2"));
        cloud.add("of no service", Some(CLUSTER), None);
        cloud.add("an orphan", Some(CLUSTER), Some(&uid("long gone")));
        let mut simulation = Self {
            reconciler: Reconciler::new(requirements.clone(), PROVIDER, &settings, now),
            chance,
            faults: true,
            now,
            events: BTreeMap::new(),
            count: 0,
            api: Api::default(),
            cloud,
            nodes: (0..2).collect(),
            requirements,
            scope: ServiceScope::new(PROVIDER, &settings),
            settings,
            in_flight: HashSet::new(),
            calls: Vec::new(),
            followed: HashSet::new(),
            seen: Observations::default(),
            ensured: BTreeMap::new(),
            events_sent: 0,
            focus: 0,
        };
        simulation.api.serves(&simulation.scope);
        simulation.target();
        simulation
    }

    fn after(&mut self, most: u64, event: Event) {
        let at = self.now + Duration::from_millis(self.chance.below(most));
        self.count += 1;
        self.events.insert((at, self.count), event);
    }

    fn targets(&self) -> Arc<Targets> {
        let node = |number: &u64| {
            let mut node = NodeFacts::registered(&format!("n{number}"));
            node.provider_id =
                Some(pileus_cloud::ProviderId::parse(&format!("simulated://{number}")).unwrap());
            Arc::new(node)
        };
        let nodes: Vec<_> = self.nodes.iter().map(node).collect();
        Arc::new(Targets::of(&nodes, PROVIDER, &[]))
    }

    fn target(&mut self) {
        let targets = self.targets();
        self.reconciler.observe_targets(targets, self.now);
    }

    /// The process is killed, and the next one begins. What the former had sent takes effect and shows by then, or never
    /// does: the next process couldn't know of anything else.
    fn restart(&mut self) {
        let (own, others): (BTreeMap<_, _>, BTreeMap<_, _>) = std::mem::take(&mut self.events)
            .into_iter()
            .partition(|(_, event)| !matches!(event, Event::User | Event::Watch));
        self.events = others;
        for event in own.into_values() {
            match event {
                Event::Write(facts, write) if self.chance.percent(50) => drop(self.api.write(&facts, &write)),
                Event::Call(call) if self.chance.percent(50) => drop(self.perform(&call)),
                _ => {}
            }
        }
        (self.in_flight, self.calls, self.followed) = (HashSet::new(), Vec::new(), HashSet::new());
        self.ensured.clear();
        self.seen = Observations::default();
        self.cloud.catches_up(self.now);
        let classes: &[&str] = if self.chance.percent(70) { &CLASSES } else { &[] };
        self.settings.classes = classes.iter().map(|class| (*class).to_owned()).collect();
        self.settings.is_default = self.chance.percent(80);
        self.scope = ServiceScope::new(PROVIDER, &self.settings);
        self.api.serves(&self.scope);
        self.reconciler = Reconciler::new(self.requirements.clone(), PROVIDER, &self.settings, self.now);
        for facts in self.api.list(self.chance.below(8)) {
            self.deliver(News::Present(facts));
        }
        self.target();
    }

    /// Delivers news of Services that matter, or did, as the watch does.
    fn deliver(&mut self, news: News) {
        match news {
            News::Present(facts) => {
                let matters = facts.is_load_balancer || facts.has_finalizer();
                if matters {
                    self.followed.insert(facts.key());
                }
                if self.followed.contains(&facts.key()) {
                    self.see(&facts);
                    self.reconciler.observe(&facts, self.now);
                }
            }
            News::Gone(name) => {
                if self.followed.remove(&name) {
                    self.seen.gone(&name, "");
                    self.reconciler.observe_gone(&name, self.now);
                }
            }
        }
    }

    fn see(&mut self, facts: &Arc<ServiceFacts>) {
        self.seen.see(facts, &self.scope, self.now);
    }

    /// Lets a call take effect, each change by itself, and returns its outcomes.
    fn perform(&mut self, call: &Call) -> Outcomes {
        let mut outcomes = Vec::new();
        let gives_up = self.fault(3);
        for change in &call.changes {
            if gives_up && self.chance.percent(50) || self.fault(15) {
                outcomes.push(Err(self.error()));
                continue;
            }
            self.check_change(&change.action);
            let (chance, faults) = (&mut self.chance, self.faults);
            let outcome = self.cloud.change(&change.action, call.targets.table(), (chance, faults), self.now);
            outcomes.push(if self.fault(10) { Err(self.error()) } else { outcome });
        }
        if gives_up { Err(self.error()) } else { Ok(outcomes) }
    }

    /// Asserts that a change concerns only what is ours.
    fn check_change(&self, action: &ServiceAction) {
        let Api { wanted, unwanted, left, services, .. } = &self.api;
        match action {
            ServiceAction::Ensure(service) | ServiceAction::UpdateTargets(service) => {
                assert!(wanted.contains(&service.uid), "{} was never wanted", service.uid);
            }
            ServiceAction::Delete(pileus_cloud::Service { uid, .. }) => {
                assert!(unwanted.contains(uid), "{uid} was always wanted");
                assert!(wanted.contains(uid) || left.contains(uid), "{uid} was never ours");
            }
            ServiceAction::RemoveOrphan(owned) => {
                assert_eq!(owned.cluster_uid.as_deref(), Some(CLUSTER), "{owned:?}");
                let uid = owned.service_uid.as_ref().unwrap();
                assert!(services.values().all(|facts| facts.service.uid != *uid), "{owned:?}");
            }
        }
    }

    fn fault(&mut self, share: u64) -> bool {
        self.faults && self.chance.percent(share)
    }

    fn error(&mut self) -> CloudError {
        let kinds = [
            ErrorKind::Throttled(None),
            ErrorKind::Throttled(Some(Duration::from_secs(7))),
            ErrorKind::Conflict(None),
            ErrorKind::Invalid,
            ErrorKind::Denied,
            ErrorKind::Unavailable(None),
            ErrorKind::Broken,
        ];
        CloudError::new(self.chance.pick(&kinds).unwrap(), "by chance")
    }

    fn api_error(&mut self) -> Error {
        match self.chance.below(3) {
            0 => Error::Conflict,
            1 => Error::Refused("by chance".to_owned()),
            _ => Error::Unavailable("by chance".to_owned()),
        }
    }
}

impl Simulation {
    /// Processes an event.
    fn process(&mut self, event: Event) {
        let jitter = 0.5;
        match event {
            Event::User => self.user(),
            Event::Watch => {
                let mut news = std::mem::take(&mut self.api.news);
                // A watch that was restarted delivers only the last state.
                if self.chance.percent(20) {
                    let mut later = HashSet::new();
                    news.reverse();
                    news.retain(|news| later.insert(news.name()));
                    news.reverse();
                }
                for news in news {
                    self.deliver(news);
                }
            }
            Event::Write(facts, write) => {
                let result =
                    if self.fault(10) { Err(self.api_error()) } else { self.api.write(&facts, &write) };
                let result = if self.fault(10) { Err(self.api_error()) } else { result };
                self.after(50, Event::WriteResult(facts.service.uid.clone(), write, result));
            }
            Event::WriteResult(uid, write, result) => {
                self.in_flight.remove(&Key::Service(uid.clone()));
                if let Ok(facts) = &result {
                    if matches!(write, Write::Finish | Write::Release) {
                        self.seen.on_released(&uid, &self.scope);
                    }
                    self.see(facts);
                }
                self.reconciler.on_write_result(&uid, result.as_ref(), self.now, jitter);
            }
            Event::Call(call) => {
                let outcomes = self.perform(&call);
                self.after(300, Event::CallResult(call, outcomes));
            }
            Event::CallResult(call, outcomes) => {
                self.end_call(call.priority.as_str());
                self.in_flight.retain(|key| !call.keys.contains(key));
                self.reconciler.on_call_result(&call, outcomes, self.now, jitter);
            }
            Event::List => {
                let owned = self.cloud.owned();
                let next = if self.fault(20) {
                    Event::ListResult(Err(Retry::WithBackoff))
                } else {
                    Event::Present(owned)
                };
                self.after(2000, next);
            }
            Event::Present(owned) => {
                let uid = |facts: &ServiceFacts| (facts.service.uid.clone(), facts.key());
                let present = self.api.services.values().map(uid).collect();
                self.after(300, Event::ListResult(Ok(Listing { owned, present })));
            }
            Event::ListResult(listing) => {
                self.end_call("list");
                let owned = listing.iter().flat_map(|listing| &listing.owned);
                for owned in owned.filter(|owned| owned.cluster_uid.as_deref() == Some(CLUSTER)) {
                    owned.service_uid.iter().for_each(|uid| self.seen.on_leftover(uid, self.now));
                }
                let report = self.reconciler.on_list_result(
                    listing.as_ref().map_err(|retry| *retry),
                    self.now,
                    jitter,
                );
                for name in report.unknown {
                    self.followed.insert(name.clone());
                    if let Some(facts) = self.api.services.get(&name).cloned().map(Arc::new) {
                        self.see(&facts);
                        self.seen.on_leftover(&facts.service.uid, self.now);
                        self.reconciler.observe(&facts, self.now);
                    }
                }
            }
        }
    }

    fn user(&mut self) {
        match self.chance.below(40) {
            0 => self.restart(),
            1 | 2 => {
                let number = self.chance.below(4);
                if !self.nodes.remove(&number) {
                    self.nodes.insert(number);
                }
                self.target();
            }
            _ => {
                // Successive actions most often concern the same Service.
                if self.chance.percent(40) {
                    self.focus = self.chance.below(6);
                }
                self.api.user(self.focus, &mut self.chance);
            }
        }
    }

    fn start_call(&mut self, priority: &'static str, size: usize) {
        self.calls.push((priority, size));
        let beside = self.calls.iter().filter(|(other, _)| *other == priority).count();
        assert!(size <= self.requirements.largest_batch, "{size} at once");
        if !self.requirements.allows_concurrent_calls {
            assert_eq!(self.calls.len(), 1, "{:?}", self.calls);
        } else if priority == "user" {
            assert!(beside <= self.settings.calls && size <= 100, "{:?}", self.calls);
        } else if priority == "poll" {
            assert!(beside <= 2, "{:?}", self.calls);
        } else {
            assert_eq!(beside, 1, "{:?}", self.calls);
        }
    }

    fn end_call(&mut self, priority: &'static str) {
        let at = self.calls.iter().position(|(other, _)| *other == priority).unwrap();
        self.calls.remove(at);
    }

    /// Begins all work that the reconciler wants done.
    fn start_work(&mut self) {
        let jitter = self.chance.pick(&[0.0, 0.3, 1.0]).unwrap();
        for work in self.reconciler.next(self.now, jitter) {
            match work {
                Work::Write { facts, write } => {
                    let uid = &facts.service.uid;
                    assert!(self.in_flight.insert(Key::Service(uid.clone())), "two at once for {uid}");
                    let Api { wanted, left, .. } = &self.api;
                    assert!(
                        wanted.contains(uid) || left.contains(uid),
                        "{write:?} to {uid}, which was never ours"
                    );
                    let may_clean_up = self.seen.may_clean_up(uid, &self.scope, self.now);
                    let is_last = matches!(write, Write::Finish | Write::Release);
                    assert!(may_clean_up || !is_last, "{uid}: another controller may be working on it");
                    assert!(
                        !self.scope.is_marked_by_other(&facts),
                        "{uid}: the finalizer is another provider's"
                    );
                    self.after(50, Event::Write(facts, write));
                }
                Work::Call(call) => {
                    self.start_call(call.priority.as_str(), call.keys.len());
                    self.check_call(&call);
                    self.after(500, Event::Call(call));
                }
                Work::ListOwned => {
                    self.start_call("list", 0);
                    self.after(1000, Event::List);
                }
            }
        }
        // Problems of a Service, and finalizers that block its deletion, are reported repeatedly.
        let scope = &self.scope;
        let is_news = |PendingEvent { facts, .. }: &PendingEvent| {
            facts.problems.is_empty() && !scope.is_of_other(facts) && !scope.is_marked_by_other(facts)
        };
        self.events_sent += self.reconciler.take_events().iter().filter(|telling| is_news(telling)).count();
        let now = self.now;
        assert!(self.reconciler.next_wake().is_none_or(|at| at > now), "it wakes up without end");
    }

    fn check_call(&mut self, call: &Call) {
        assert_eq!(call.keys.len(), call.changes.len());
        for key in &call.keys {
            assert!(self.in_flight.insert(key.clone()), "two at once for {key:?}");
        }
        assert!(self.requirements.wants_known || call.known.is_empty());
        for known in &call.known {
            assert!(
                !call.keys.contains(&Key::Service(known.uid.clone())),
                "{} is known and changed",
                known.uid
            );
        }
        for change in &call.changes {
            if let ServiceAction::Ensure(service) = &change.action {
                let key = format!("{}/{}", service.namespace, service.name);
                let former = self.ensured.iter().filter(|(uid, name)| **uid != service.uid && **name == key);
                for (uid, _) in former {
                    assert!(!self.cloud.there.contains_key(&name(uid)), "{key}: {uid} is still there");
                }
                self.ensured.insert(service.uid.clone(), key);
            }
            if let ServiceAction::Delete(pileus_cloud::Service { uid, .. }) = &change.action {
                let may_clean_up = self.seen.may_clean_up(uid, &self.scope, self.now);
                assert!(may_clean_up, "{uid} may belong to another controller");
                self.seen.on_leftover(uid, self.now);
            }
        }
    }

    /// Runs until this time.
    fn run(&mut self, until: Instant) {
        loop {
            if !self.api.news.is_empty() && !self.events.values().any(|event| matches!(event, Event::Watch)) {
                self.after(400, Event::Watch);
            }
            self.start_work();
            let next = self.events.first_key_value().map(|((at, _), _)| *at);
            let Some(at) =
                next.into_iter().chain(self.reconciler.next_wake()).min().filter(|at| *at <= until)
            else {
                break;
            };
            self.now = self.now.max(at);
            self.cloud.advance(self.now);
            if let Some(entry) = self.events.first_entry().filter(|entry| entry.key().0 <= at) {
                let event = entry.remove();
                self.process(event);
            }
        }
        self.now = until;
    }

    /// Asserts that the cloud holds what the cluster asks for, and that the Services' statuses say so. Only an audit finds
    /// what a killed process has left behind.
    ///
    /// With `is_final` a target that the cloud has refused for a while has been tried again, too.
    fn check(&mut self, is_audited: bool, is_final: bool) {
        let (scope, all) = (&self.scope, self.targets());
        let mut expected: BTreeSet<_> =
            ["of another cluster", "of no cluster", "of no service"].map(str::to_owned).into();
        for facts in self.api.services.values() {
            let (uid, name) = (&facts.service.uid, name(&facts.service.uid));
            if Demand::of(facts, scope) != Demand::Ours {
                // A Service that may belong to another controller is left alone, which may use the same finalizer. One that
                // became ours a moment ago may not be cleaned up yet.
                let earlier = self.now.checked_sub(Duration::from_mins(5)).unwrap_or(self.now);
                let is_ours = self.seen.may_clean_up(uid, scope, earlier);
                let is_marked = scope.is_marked_by_other(facts);
                assert!(!is_ours || is_marked || !facts.has_finalizer(), "{facts:?} keeps its finalizer");
                // A load balancer from before this process stays: its owner isn't known.
                if scope.is_of_other(facts) && !facts.is_deleting && !self.seen.was_wanted(uid) {
                    expected.extend(self.cloud.there.contains_key(&name).then_some(name));
                }
                continue;
            }
            let there = self.cloud.there.get(&name);
            assert!(facts.has_finalizer() || (there.is_none() && !facts.problems.is_empty()), "{facts:?}");
            expected.extend(there.map(|_| name));
            if !facts.problems.is_empty() {
                continue;
            }
            let there = there.unwrap_or_else(|| panic!("{facts:?} has no load balancer"));
            assert_eq!(there.shape.0, Some(DesiredSpec::of(&facts.service)), "{uid}");
            let targets = if is_final { Arc::clone(&all) } else { self.reconciler.targets_for(uid, &all) };
            let is_local = matches!(facts.service.policy, TrafficPolicy::Local(_));
            let endpoints = if self.requirements.wants_endpoints && is_local {
                targets.endpoints(facts)
            } else {
                Vec::new()
            };
            assert_eq!(there.shape.1, (targets.table().to_vec(), endpoints), "{uid}");
            let shown: Vec<_> = facts.service.status.iter().map(|ingress| &ingress.point).collect();
            assert_eq!(
                shown,
                there.address.iter().map(|ingress| &ingress.point).collect::<Vec<_>>(),
                "{uid}"
            );
        }
        let there = self.cloud.there.keys().cloned().collect();
        if is_audited {
            assert_eq!(expected, there);
        } else {
            assert!(expected.is_subset(&there), "{expected:?} should be there, {there:?} is");
        }
    }
}

/// Plays a history of this many chapters. Each chapter ends with a time without faults.
fn play(seed: u64, chapters: usize) {
    let mut simulation = Simulation::new(seed);
    for _ in 0..chapters {
        simulation.faults = true;
        let pace = simulation.chance.pick(&[100, 1000, 4000]).unwrap();
        for _ in 0..simulation.chance.below(20) {
            simulation.after(pace, Event::User);
            let pause = if simulation.chance.percent(2) { 4_000_000 } else { simulation.chance.below(pace) };
            simulation.run(simulation.now + Duration::from_millis(pause));
        }
        simulation.faults = false;
        // Longer than any delay after a failure, and most often without an audit that would hide an error.
        simulation.run(simulation.now + Duration::from_mins(10));
        simulation.check(false, false);
    }
    simulation.run(simulation.now + AUDIT * 3);
    let is_audited = simulation.settings.audit_period == AUDIT;
    simulation.check(is_audited, true);
    let done = (simulation.cloud.writes, simulation.api.writes, simulation.events_sent);
    simulation.run(simulation.now + AUDIT * 3);
    simulation.check(is_audited, true);
    assert_eq!(
        (simulation.cloud.writes, simulation.api.writes, simulation.events_sent),
        done,
        "it doesn't settle"
    );
}

/// The variable with the number of histories; without it, as many as take half a second.
const HISTORIES: &str = "PILEUS_HISTORIES";

#[test]
fn in_the_end_the_cloud_holds_what_the_cluster_asks_for_and_writes_cease() {
    let histories = std::env::var(HISTORIES).map_or(40, |text| text.parse().unwrap());
    for seed in 0..histories {
        let played = std::panic::catch_unwind(|| play(seed, 12));
        assert!(played.is_ok(), "history {seed} fails; see above");
    }
}
