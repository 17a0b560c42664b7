//! A cluster and a cloud for tests of the reconciler: without an API server, without a provider, with a clock that a test
//! moves. Services and Nodes are JSON, become facts, pass the reconciler and its patches, and are JSON again.
#![expect(clippy::needless_pass_by_value, reason = "tables of JSON read better without ampersands")]

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use pileus_cloud::{
    AnnotationType, Cluster, Error as CloudError, ErrorKind, Ingress, IngressPoint, Retry, Service,
    ServiceAction, ServiceChange, ServiceProgress, ServiceRequirements, TargetSelection,
};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::Settings;
use super::reconciler::Reconciler;
use super::targets::Targets;
use super::work::{Listing, ListingReport, Work, Write};
use crate::api_server::patch_service;
use crate::error::Error;
use crate::facts::service::ServiceFacts;
use crate::model::PROVIDER;
use crate::nodes::PatchTarget;
use crate::scenarios::{StoredNode, merge};

pub(super) const FINALIZER: &str = "service.kubernetes.io/load-balancer-cleanup";
pub(super) const AUDIT: Duration = Duration::from_mins(30);

/// An annotation with which a Service chooses Nodes, and one that the provider sets and reads.
pub(super) const NODES: &str = "example.com/nodes";
pub(super) const ID: &str = "example.com/id";

pub(super) fn requirements() -> ServiceRequirements {
    let annotations = [(NODES, AnnotationType::NodeSelector), (ID, AnnotationType::Text)];
    ServiceRequirements {
        largest_batch: 1000,
        allows_concurrent_calls: true,
        takes_missing_node_ports: true,
        annotations: annotations.map(|(key, kind)| (key.to_owned(), kind)).to_vec(),
        written_annotations: vec![ID.to_owned()],
        ..ServiceRequirements::default()
    }
}

/// A Service of type LoadBalancer, changed by a merge patch.
pub(super) fn service(name: &str, change: Value) -> Value {
    let mut service = json!({
        "metadata": {"namespace": "default", "name": name, "uid": format!("uid-{name}"), "resourceVersion": "1"},
        "spec": {
            "type": "LoadBalancer",
            "ports": [{"name": "", "protocol": "TCP", "port": 80, "targetPort": 8080, "nodePort": 30080}],
            "ipFamilies": ["IPv4"],
        },
    });
    merge(&mut service, &change);
    service
}

pub(super) fn facts(service: &Value) -> ServiceFacts {
    ServiceFacts::read(serde_json::from_value(service.clone()).unwrap(), &requirements())
}

/// A Node that is initialized and ready and has an instance, changed by a merge patch.
pub(super) fn node(name: &str, change: Value) -> StoredNode {
    StoredNode::registered(&json!({
        "metadata": {"name": name, "uid": format!("uid-{name}")},
        "spec": {"taints": null, "providerID": format!("simulated://{name}")},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    }))
    .with(&change)
}

pub(super) fn nodes(names: &[&str]) -> Vec<StoredNode> {
    names.iter().map(|name| node(name, json!({}))).collect()
}

pub(super) fn targets(nodes: &[StoredNode]) -> Targets {
    let facts: Vec<_> = nodes.iter().map(|node| Arc::new(node.facts())).collect();
    Targets::of(&facts, PROVIDER, &[])
}

/// The names of the Nodes that take traffic.
pub(super) fn behind(nodes: &[StoredNode]) -> Vec<String> {
    targets(nodes).table().iter().map(|target| target.node.clone()).collect()
}

/// A cluster, and a cloud that answers at once and confirms everything, unless other outcomes are planned.
pub(super) struct Harness {
    pub(super) reconciler: Reconciler,
    pub(super) now: Instant,
    services: BTreeMap<String, Value>,
    version: u64,
    /// The outcomes of the next calls, by the Service's name.
    planned_outcomes: BTreeMap<String, VecDeque<Result<ServiceProgress, CloudError>>>,
    /// The errors of the next writes.
    pub(super) write_errors: VecDeque<Error>,
    /// The cloud's list, or how to retry it.
    pub(super) listing: Result<Listing, Retry>,
    pub(super) reports: Vec<ListingReport>,
    /// The changes that the cloud was asked for, as `action name [nodes]`, sorted within each call.
    pub(super) calls: Vec<String>,
    /// How many changes each call had, and whether it was an audit.
    pub(super) sizes: Vec<(usize, bool)>,
    /// The changes of the last call.
    pub(super) last: Vec<ServiceChange>,
    pub(super) known: Vec<Service>,
    pub(super) patches: usize,
    /// The events, as `Reason name`, and their texts.
    pub(super) events: Vec<String>,
    pub(super) notes: Vec<String>,
}

impl Harness {
    /// A cluster with these Nodes.
    pub(super) fn with_nodes(nodes: &[StoredNode]) -> Self {
        Self::with_requirements(nodes, requirements())
    }

    /// A cluster with these Nodes, and a provider with these requirements.
    pub(super) fn with_requirements(nodes: &[StoredNode], requirements: ServiceRequirements) -> Self {
        let settings = Settings {
            cluster: Cluster { name: "kubernetes".to_owned(), uid: Some("cluster".to_owned()) },
            classes: vec!["ours".to_owned()],
            is_default: true,
            marks_services: false,
            audit_period: AUDIT,
            calls: 4,
        };
        let now = Instant::now();
        let mut harness = Self {
            reconciler: Reconciler::new(requirements, PROVIDER, &settings, now),
            now,
            services: BTreeMap::new(),
            version: 1,
            planned_outcomes: BTreeMap::new(),
            write_errors: VecDeque::new(),
            listing: Ok(Listing { owned: Vec::new(), present: HashMap::new() }),
            reports: Vec::new(),
            calls: Vec::new(),
            sizes: Vec::new(),
            last: Vec::new(),
            known: Vec::new(),
            patches: 0,
            events: Vec::new(),
            notes: Vec::new(),
        };
        harness.set_nodes(nodes);
        harness
    }

    pub(super) fn set_nodes(&mut self, nodes: &[StoredNode]) {
        self.reconciler.observe_targets(Arc::new(targets(nodes)), self.now);
    }

    /// Stores a Service, and lets the reconciler observe it.
    pub(super) fn store(&mut self, mut service: Value) {
        self.version += 1;
        service["metadata"]["resourceVersion"] = json!(self.version.to_string());
        let facts = facts(&service);
        self.services.insert(facts.key(), service);
        self.reconciler.observe(&Arc::new(facts), self.now);
    }

    /// Changes a Service by a merge patch.
    pub(super) fn change(&mut self, name: &str, change: Value) {
        let mut service = self.get(name);
        merge(&mut service, &change);
        self.store(service);
    }

    pub(super) fn get(&self, name: &str) -> Value {
        self.services[&format!("default/{name}")].clone()
    }

    pub(super) fn facts(&self, name: &str) -> ServiceFacts {
        facts(&self.get(name))
    }

    /// Plans the outcome of a later call for this Service.
    pub(super) fn plan_outcome(&mut self, name: &str, outcome: Result<ServiceProgress, CloudError>) {
        self.planned_outcomes.entry(name.to_owned()).or_default().push_back(outcome);
    }

    /// Runs until nothing is due for this long, which must be less than the time to the next audit.
    pub(super) fn run_until_quiet(&mut self, quiet: Duration) -> &mut Self {
        while let Some(at) = self.run_due().filter(|at| *at <= self.now + quiet) {
            self.now = at;
        }
        self
    }

    /// Runs for this long.
    pub(super) fn run_for(&mut self, time: Duration) -> &mut Self {
        let until = self.now + time;
        while let Some(at) = self.run_due().filter(|at| *at <= until) {
            self.now = at;
        }
        self.now = until;
        self
    }

    /// Does all work that is due. Returns when more will be.
    fn run_due(&mut self) -> Option<Instant> {
        loop {
            let work = self.reconciler.next(self.now, 0.0);
            let is_idle = work.is_empty();
            for work in work {
                self.perform(work);
            }
            for event in self.reconciler.take_events() {
                self.events.push(format!("{} {}", event.reason.as_str(), event.facts.service.name));
                self.notes.push(event.note);
            }
            if is_idle {
                return self.reconciler.next_wake();
            }
        }
    }

    /// Runs until nothing is due for a second, which is shorter than most delays after a failure.
    pub(super) fn settle(&mut self) -> &mut Self {
        self.run_until_quiet(Duration::from_secs(1))
    }

    pub(super) fn perform(&mut self, work: Work) {
        match work {
            Work::Write { facts, write } => {
                let result = match self.write_errors.pop_front() {
                    Some(error) => Err(error),
                    None => Ok(self.apply_write(&facts, &write)),
                };
                self.reconciler.on_write_result(&facts.service.uid, result.as_ref(), self.now, 0.0);
            }
            Work::Call(call) => {
                self.sizes.push((call.changes.len(), call.is_audit));
                (self.last, self.known) = (call.changes.clone(), call.known.clone());
                // The Nodes that a Service gets.
                let behind = |service: &Service| -> Vec<&str> {
                    let is_chosen = |row: u32| match &service.targets {
                        TargetSelection::All => true,
                        TargetSelection::Rows(rows) => rows.contains(&row),
                    };
                    let rows = (0..).zip(call.targets.table()).filter(|(row, _)| is_chosen(*row));
                    rows.map(|(_, target)| target.node.as_str()).collect()
                };
                let mut lines = Vec::new();
                let mut outcomes = Vec::new();
                for change in &call.changes {
                    let (line, name, status) = match &change.action {
                        ServiceAction::Ensure(service) => (
                            format!("ensure {} {:?}", service.name, behind(service)),
                            &service.name,
                            vec![ingress()],
                        ),
                        ServiceAction::UpdateTargets(service) => (
                            format!("update {} {:?}", service.name, behind(service)),
                            &service.name,
                            vec![ingress()],
                        ),
                        ServiceAction::Delete(service) => {
                            (format!("delete {}", service.uid), &service.name, Vec::new())
                        }
                        ServiceAction::RemoveOrphan(owned) => {
                            (format!("remove {}", owned.name), &owned.name, Vec::new())
                        }
                    };
                    lines.push(line);
                    let outcome = self.planned_outcomes.get_mut(name).and_then(VecDeque::pop_front);
                    outcomes.push(outcome.unwrap_or(Ok(ServiceProgress::done(status))));
                }
                lines.sort();
                self.calls.extend(lines);
                self.reconciler.on_call_result(&call, Ok(outcomes), self.now, 0.0);
            }
            Work::ListOwned => {
                let listing = self.listing.as_ref().map_err(|retry| *retry);
                self.reports.push(self.reconciler.on_list_result(listing, self.now, 0.0));
            }
        }
    }

    fn apply_write(&mut self, facts: &ServiceFacts, write: &Write) -> Arc<ServiceFacts> {
        self.patches += 1;
        self.version += 1;
        let service = self.services.get_mut(&facts.key()).unwrap();
        patch_service(service, PatchTarget::Status, &write.patch(facts));
        service["metadata"]["resourceVersion"] = json!(self.version.to_string());
        Arc::new(self::facts(service))
    }

    /// Returns the changes that the cloud was asked for since the last time.
    pub(super) fn take_calls(&mut self) -> Vec<String> {
        std::mem::take(&mut self.calls)
    }

    /// Returns the events since the last time, as `Reason name`.
    pub(super) fn take_events(&mut self) -> Vec<String> {
        std::mem::take(&mut self.events)
    }
}

pub(super) fn ingress() -> Ingress {
    Ingress { point: IngressPoint::Ip("192.0.2.1".to_owned()), ip_mode: None, ports: Vec::new() }
}

pub(super) fn failure(kind: ErrorKind) -> Result<ServiceProgress, CloudError> {
    Err(CloudError::new(kind, "it is locked"))
}
