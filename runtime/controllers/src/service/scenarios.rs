//! Upstream's scenarios of its service controller (ccm-behaviour 10.4, S01 to S139; 10.5, H23 to H26), on as much of the real
//! way as there is without an API server and a cloud: Services and Nodes as JSON, their facts, the reconciler, the patches, and
//! the Services as JSON again. H19 to H22 are beside the facts.
//!
//! Two differences run through all of them. Upstream reads a cloud before it deletes; here the deletion is the provider's,
//! who answers that there is nothing. And upstream's node queue and service queue are one reconciler here: what changes is
//! compared with what the cloud last confirmed, by what a provider sees of it.
#![expect(clippy::needless_pass_by_value, reason = "tables of JSON read better without ampersands")]

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use pileus_cloud::{
    Cluster, Error as CloudError, ErrorKind, Ingress, IngressPoint, IpMode, Retry, Service, ServiceAction,
    ServiceChange, ServiceProgress, ServiceRequirements,
};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::Settings;
use super::plan::{Step, World, plan};
use super::reconciler::Reconciler;
use super::record::Record;
use super::targets::Targets;
use super::work::{Listing, ListingReport, Summary, Work, Write};
use crate::api_server::patch_service;
use crate::error::Error;
use crate::facts::service::ServiceFacts;
use crate::nodes::Part;
use crate::scenarios::{Stored, merge};

pub(super) const FINALIZER: &str = "service.kubernetes.io/load-balancer-cleanup";
const EXCLUDE: &str = "node.kubernetes.io/exclude-from-external-load-balancers";
const LEAVING: &str = "ToBeDeletedByClusterAutoscaler";
pub(super) const AUDIT: Duration = Duration::from_mins(30);

pub(super) fn terms() -> ServiceRequirements {
    ServiceRequirements {
        largest_batch: 1000,
        allows_concurrent_calls: true,
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

fn facts(service: &Value) -> ServiceFacts {
    ServiceFacts::read(serde_json::from_value(service.clone()).unwrap(), &terms())
}

/// A Node that takes part and is ready, with a machine, changed by a merge patch.
pub(super) fn node(name: &str, change: Value) -> Stored {
    Stored::registered(&json!({
        "metadata": {"name": name, "uid": format!("uid-{name}")},
        "spec": {"taints": null, "providerID": format!("simulated://{name}")},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    }))
    .with(&change)
}

pub(super) fn nodes(names: &[&str]) -> Vec<Stored> {
    names.iter().map(|name| node(name, json!({}))).collect()
}

fn targets(nodes: &[Stored]) -> Targets {
    let facts: Vec<_> = nodes.iter().map(|node| Arc::new(node.facts())).collect();
    Targets::of(&facts, &["simulated".to_owned()], &[])
}

/// The names of the Nodes that take traffic.
fn behind(nodes: &[Stored]) -> Vec<String> {
    targets(nodes).table().iter().map(|target| target.node.clone()).collect()
}

/// A cluster and a cloud that answers at once, unless something else is planned.
pub(super) struct Stage {
    pub(super) reconciler: Reconciler,
    pub(super) now: Instant,
    services: BTreeMap<String, Value>,
    version: u64,
    /// What becomes of the next calls, by the Service's name.
    fates: BTreeMap<String, VecDeque<Result<ServiceProgress, CloudError>>>,
    /// What becomes of the next writes.
    pub(super) write_fates: VecDeque<Error>,
    /// What the cloud lists, or when it can be tried again.
    pub(super) listing: Result<Listing, Retry>,
    pub(super) reports: Vec<ListingReport>,
    /// What was asked of the cloud, as `action name [nodes]`, in the order of the names in each call.
    pub(super) calls: Vec<String>,
    /// How many changes there were in each call, and whether it was an audit.
    pub(super) sizes: Vec<(usize, bool)>,
    /// The last call.
    pub(super) last: Vec<ServiceChange>,
    pub(super) known: Vec<Service>,
    pub(super) patches: usize,
    /// What was told, as `Reason name`, and the notes.
    pub(super) events: Vec<String>,
    pub(super) notes: Vec<String>,
}

impl Stage {
    /// One with these Nodes.
    pub(super) fn with(nodes: &[Stored]) -> Self {
        Self::of(nodes, terms())
    }

    /// One with these Nodes, and a provider of these terms.
    pub(super) fn of(nodes: &[Stored], terms: ServiceRequirements) -> Self {
        let settings = Settings {
            cluster: Cluster { name: "kubernetes".to_owned(), uid: Some("cluster".to_owned()) },
            classes: vec!["ours".to_owned()],
            audit_period: AUDIT,
            calls: 4,
        };
        let now = Instant::now();
        let mut stage = Self {
            reconciler: Reconciler::new(terms, &settings, now),
            now,
            services: BTreeMap::new(),
            version: 1,
            fates: BTreeMap::new(),
            write_fates: VecDeque::new(),
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
        stage.nodes(nodes);
        stage
    }

    pub(super) fn nodes(&mut self, nodes: &[Stored]) {
        self.reconciler.observe_targets(Arc::new(targets(nodes)), self.now);
    }

    /// A Service is so.
    pub(super) fn put(&mut self, mut service: Value) {
        self.version += 1;
        service["metadata"]["resourceVersion"] = json!(self.version.to_string());
        let facts = facts(&service);
        self.services.insert(facts.key(), service);
        self.reconciler.observe(&Arc::new(facts), self.now);
    }

    /// A Service changes by a merge patch.
    pub(super) fn change(&mut self, name: &str, change: Value) {
        let mut service = self.get(name);
        merge(&mut service, &change);
        self.put(service);
    }

    pub(super) fn get(&self, name: &str) -> Value {
        self.services[&format!("default/{name}")].clone()
    }

    pub(super) fn facts(&self, name: &str) -> ServiceFacts {
        facts(&self.get(name))
    }

    pub(super) fn plans(&mut self, name: &str, fate: Result<ServiceProgress, CloudError>) {
        self.fates.entry(name.to_owned()).or_default().push_back(fate);
    }

    /// Goes on until there is nothing to do for so long: less than it is to the next audit.
    pub(super) fn rests(&mut self, quiet: Duration) -> &mut Self {
        while let Some(at) = self.works().filter(|at| *at <= self.now + quiet) {
            self.now = at;
        }
        self
    }

    /// Goes on for so long.
    pub(super) fn passes(&mut self, time: Duration) -> &mut Self {
        let until = self.now + time;
        while let Some(at) = self.works().filter(|at| *at <= until) {
            self.now = at;
        }
        self.now = until;
        self
    }

    /// Does all that is due, and says when something will be.
    fn works(&mut self) -> Option<Instant> {
        loop {
            let work = self.reconciler.next(self.now, 0.0);
            let is_idle = work.is_empty();
            for work in work {
                self.does(work);
            }
            for telling in self.reconciler.take_events() {
                self.events.push(format!("{:?} {}", telling.reason, telling.facts.service.name));
                self.notes.push(telling.note);
            }
            if is_idle {
                return self.reconciler.next_wake();
            }
        }
    }

    /// As it is seconds later, short of what failed in the meantime being tried again.
    pub(super) fn settles(&mut self) -> &mut Self {
        self.rests(Duration::from_secs(1))
    }

    fn does(&mut self, work: Work) {
        match work {
            Work::Write { facts, write } => {
                let result = match self.write_fates.pop_front() {
                    Some(error) => Err(error),
                    None => Ok(self.writes(&facts, &write)),
                };
                self.reconciler.on_write_result(&facts.service.uid, result.as_ref(), self.now, 0.0);
            }
            Work::Call(call) => {
                let nodes: Vec<_> = call.targets.table().iter().map(|target| target.node.as_str()).collect();
                self.sizes.push((call.changes.len(), call.is_audit));
                (self.last, self.known) = (call.changes.clone(), call.known.clone());
                let mut lines = Vec::new();
                let mut outcomes = Vec::new();
                for change in &call.changes {
                    let (line, name, status) = match &change.action {
                        ServiceAction::Ensure(service) => {
                            (format!("ensure {} {nodes:?}", service.name), &service.name, vec![ingress()])
                        }
                        ServiceAction::UpdateTargets(service) => {
                            (format!("update {} {nodes:?}", service.name), &service.name, vec![ingress()])
                        }
                        ServiceAction::Delete(service) => {
                            (format!("delete {}", service.uid), &service.name, Vec::new())
                        }
                        ServiceAction::RemoveOrphan(owned) => {
                            (format!("remove {}", owned.name), &owned.name, Vec::new())
                        }
                    };
                    lines.push(line);
                    let fate = self.fates.get_mut(name).and_then(VecDeque::pop_front);
                    outcomes.push(fate.unwrap_or(Ok(ServiceProgress::Done { status, warnings: Vec::new() })));
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

    fn writes(&mut self, facts: &ServiceFacts, write: &Write) -> Arc<ServiceFacts> {
        self.patches += 1;
        self.version += 1;
        let service = self.services.get_mut(&facts.key()).unwrap();
        patch_service(service, Part::Status, &write.patch(facts));
        service["metadata"]["resourceVersion"] = json!(self.version.to_string());
        Arc::new(self::facts(service))
    }

    /// The calls since the last time.
    pub(super) fn calls(&mut self) -> Vec<String> {
        std::mem::take(&mut self.calls)
    }

    pub(super) fn events(&mut self) -> Vec<String> {
        std::mem::take(&mut self.events)
    }
}

pub(super) fn ingress() -> Ingress {
    Ingress { point: IngressPoint::Ip("192.0.2.1".to_owned()), ip_mode: None, ports: Vec::new() }
}

pub(super) fn fails(kind: ErrorKind) -> Result<ServiceProgress, CloudError> {
    Err(CloudError::new(kind, "it is locked"))
}

/// A Service that is seen for the first time, with two Nodes: the calls, and how many patches.
#[track_caller]
fn assert_seen(change: Value, calls: &[&str], patches: usize) {
    let mut stage = Stage::with(&nodes(&["node1", "node2"]));
    stage.put(service("a", change));
    stage.settles();
    assert_eq!(
        (stage.calls(), stage.patches),
        (calls.iter().map(|call| (*call).to_owned()).collect(), patches)
    );
    // And then nothing more.
    assert_eq!((stage.settles().calls(), stage.patches), (Vec::new(), patches));
}

const ENSURE: &str = r#"ensure a ["node1", "node2"]"#;

#[test]
fn s01_a_cluster_ip_without_load_balancer_is_nothing_to_us() {
    assert_seen(json!({"spec": {"type": "ClusterIP"}}), &[], 0);
}

#[test]
fn s02_s03_s04_s34_s74_a_load_balancer_of_each_protocol_gets_its_finalizer_its_address_and_its_status() {
    for protocol in ["UDP", "TCP", "SCTP"] {
        assert_seen(json!({"spec": {"ports": [{"protocol": protocol, "port": 80}]}}), &[ENSURE], 2);
    }
}

#[test]
fn s05_one_with_a_class_of_somebody_else_is_left_alone() {
    assert_seen(json!({"spec": {"loadBalancerClass": "foreign"}}), &[], 0);
    // Better (P-13): whatever finalizer it bears, also while it is being deleted.
    let metadata = json!({"finalizers": [FINALIZER], "deletionTimestamp": "2026-01-02T03:04:05Z"});
    assert_seen(json!({"spec": {"loadBalancerClass": "foreign"}, "metadata": metadata}), &[], 0);
}

/// Upstream needs two patches for what is one here.
#[test]
fn s06_s07_s72_s76_what_is_left_behind_or_being_deleted_is_deleted_in_the_cloud_and_let_go() {
    let status = json!({"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}});
    for change in [
        json!({"spec": {"type": "ClusterIP"}}),
        json!({"metadata": {"deletionTimestamp": "2026-01-02T03:04:05Z"}}),
    ] {
        let mut left =
            service("a", json!({"metadata": {"finalizers": ["x/y", FINALIZER]}, "status": status}));
        merge(&mut left, &change);
        let mut stage = Stage::with(&nodes(&["node1"]));
        stage.put(left);
        assert_eq!(stage.settles().calls(), ["delete uid-a"], "{change}");
        assert_eq!(stage.patches, 1);
        assert_eq!(stage.get("a")["metadata"]["finalizers"], json!(["x/y"]));
        assert_eq!(facts(&stage.get("a")).service.status, []);
        assert_eq!(stage.events(), ["DeletingLoadBalancer a", "DeletedLoadBalancer a"]);
        assert!(stage.settles().calls().is_empty());
    }
}

#[test]
fn s08_s69_one_that_has_the_finalizer_gets_its_status_alone() {
    assert_seen(json!({"metadata": {"finalizers": [FINALIZER]}}), &[ENSURE], 1);
}

/// These Services, settled, and then a Node joins: what is asked of the cloud.
#[track_caller]
fn assert_node_joins(services: &[Value], expected: &[&str]) {
    let mut stage = Stage::with(&nodes(&["node1", "node2"]));
    for service in services {
        stage.put(service.clone());
    }
    stage.settles().calls();
    stage.nodes(&nodes(&["node1", "node2", "node3"]));
    let expected: Vec<_> =
        expected.iter().map(|name| format!(r#"update {name} ["node1", "node2", "node3"]"#)).collect();
    assert_eq!(stage.settles().calls(), expected);
    assert!(stage.settles().calls().is_empty());
}

/// A Service that is null can't be; there is none here.
#[test]
fn s09_s10_s11_s12_s13_s14_s15_a_new_node_is_told_once_to_each_load_balancer() {
    let balanced = |name| service(name, json!({}));
    let other = |name, kind| service(name, json!({"spec": {"type": kind}}));
    assert_node_joins(&[], &[]);
    assert_node_joins(&[other("a", "ClusterIP"), other("b", "NodePort")], &[]);
    assert_node_joins(&[balanced("a")], &["a"]);
    assert_node_joins(&["a", "b", "c"].map(balanced), &["a", "b", "c"]);
    assert_node_joins(
        &[balanced("a"), other("b", "ClusterIP"), balanced("c"), other("d", "NodePort")],
        &["a", "c"],
    );
    assert_node_joins(&["a", "b", "c", "d"].map(balanced), &["a", "b", "c", "d"]);
}

/// Two Services with policy Local and one with Cluster, with two Nodes behind them.
fn three() -> Stage {
    let mut stage = Stage::with(&nodes(&["node1", "node2"]));
    let local = json!({"spec": {"externalTrafficPolicy": "Local", "healthCheckNodePort": 32000}});
    for (name, change) in [("a", local.clone()), ("b", local), ("c", json!({}))] {
        stage.put(service(name, change));
    }
    assert_eq!(stage.settles().calls().len(), 3);
    stage.events();
    stage
}

/// The Nodes become these: whom all three are told of, or none.
#[track_caller]
fn assert_three_follow(change: &[Stored], told: Option<&[&str]>) {
    let mut stage = three();
    stage.nodes(change);
    let expected = told.map(|told| ["a", "b", "c"].map(|name| format!("update {name} {told:?}")));
    assert_eq!(stage.settles().calls(), expected.map(Vec::from).unwrap_or_default());
}

#[test]
fn s16_the_same_nodes_change_nothing() {
    assert_three_follow(&nodes(&["node2", "node1"]), None);
}

#[test]
fn s17_a_node_that_joins_is_told_to_all() {
    assert_three_follow(&nodes(&["node1", "node2", "node3"]), Some(&["node1", "node2", "node3"]));
}

/// And each that failed is tried again by itself: at once with all the rest where the cloud refused, and the other ones
/// aren't touched.
#[test]
fn s18_an_update_that_fails_is_not_lost() {
    let mut stage = three();
    stage.plans("a", fails(ErrorKind::Conflict));
    stage.nodes(&nodes(&["node1", "node2", "node3"]));
    let updates = ["a", "b", "c"].map(|name| format!(r#"update {name} ["node1", "node2", "node3"]"#));
    let again = r#"ensure a ["node1", "node2", "node3"]"#.to_owned();
    assert_eq!(stage.settles().calls(), [updates.as_slice(), &[again]].concat());
    stage.nodes(&nodes(&["node1", "node2", "node3"]));
    assert!(stage.settles().calls().is_empty());
    let told = stage.events();
    assert!(told.contains(&"UpdateLoadBalancerFailed a".to_owned()), "{told:?}");
    assert!(told.contains(&"UpdatedLoadBalancer b".to_owned()), "{told:?}");
}

fn ready(status: &str) -> Value {
    json!({"status": {"conditions": [{"type": "Ready", "status": status}]}})
}

fn tainted(key: &str) -> Value {
    json!({"spec": {"taints": [{"key": key, "effect": "NoSchedule"}]}})
}

#[test]
fn s19_s21_s25_readiness_and_taints_of_others_change_nothing() {
    for change in [ready("False"), ready("Unknown"), tainted("x/y")] {
        assert_three_follow(&[node("node1", json!({})), node("node2", change)], None);
    }
}

/// Better for the autoscaler's taint and for a deletion: upstream notices them at the next sync for another reason.
#[test]
fn s20_s22_s23_s24_who_goes_or_is_labelled_out_gets_no_traffic() {
    let excluded = json!({"metadata": {"labels": {EXCLUDE: ""}}});
    let deleting = json!({"metadata": {"deletionTimestamp": "2026-01-02T03:04:05Z"}});
    for change in [tainted(LEAVING), excluded, deleting] {
        assert_three_follow(&[node("node1", json!({})), node("node2", change)], Some(&["node1"]));
    }
    assert_three_follow(&nodes(&["node1"]), Some(&["node1"]));
}

#[test]
fn s26_s27_s28_four_load_balancers_follow_nodes_that_come() {
    let mut stage = Stage::with(&[]);
    for name in ["a", "b", "c", "d"] {
        stage.put(service(name, json!({})));
    }
    assert_eq!(stage.settles().calls().len(), 4);
    for names in [["node1"].as_slice(), &["node1", "node2"], &["node1", "node2", "node3", "node4"]] {
        stage.nodes(&nodes(names));
        let expected = ["a", "b", "c", "d"].map(|name| format!("update {name} {names:?}"));
        assert_eq!(stage.settles().calls(), expected);
    }
}

/// Nodes are watched, and a watch that fails leaves the last ones standing. Before the first are known nobody is asked.
#[test]
fn s29_s30_while_nodes_are_not_known_all_wait() {
    let settings = Settings {
        cluster: Cluster { name: String::new(), uid: None },
        classes: Vec::new(),
        audit_period: AUDIT,
        calls: 1,
    };
    let mut stage = Stage::with(&[]);
    stage.reconciler = Reconciler::new(terms(), &settings, stage.now);
    for name in ["a", "b", "c", "d"] {
        stage.put(service(name, json!({})));
    }
    assert!(stage.settles().calls().is_empty());
    stage.nodes(&nodes(&["node1"]));
    assert_eq!(stage.settles().calls().len(), 4);
}

#[test]
fn s31_s32_s33_s107_s108_s109_a_node_with_another_machine_is_another_target() {
    let with = |id: &str| [node("node1", json!({"spec": {"providerID": id}})), node("node2", json!({}))];
    let mut stage = Stage::with(&with("simulated://1"));
    stage.put(service("a", json!({})));
    stage.put(service("b", json!({})));
    stage.settles().calls();
    let both = |nodes: &str| ["a", "b"].map(|name| format!("update {name} [{nodes}]"));
    for (nodes, told) in [
        (with("simulated://2"), Some(r#""node1", "node2""#)),
        (with("simulated://2"), None),
        // Better (P-19): one without a machine isn't sent, nor one of another cloud.
        (with(""), Some(r#""node2""#)),
        (with("other://2"), None),
        (with("simulated://1"), Some(r#""node1", "node2""#)),
        (nodes(&["node3", "node2"]).try_into().unwrap(), Some(r#""node2", "node3""#)),
    ] {
        stage.nodes(&nodes);
        assert_eq!(stage.settles().calls(), told.map(|told| both(told).to_vec()).unwrap_or_default());
    }
}

/// A Service of two ports that is settled, before and after a change, and what is asked of the cloud for it.
#[track_caller]
fn assert_changed(before: Value, after: Value, expected: &[&str]) {
    let mut stage = Stage::with(&nodes(&["node1", "node2"]));
    stage.put(service("a", before));
    assert_eq!(stage.settles().calls().len(), 1);
    stage.change("a", after.clone());
    let expected: Vec<_> = expected.iter().map(|call| (*call).to_owned()).collect();
    assert_eq!(stage.settles().calls(), expected, "{after}");
    assert!(stage.settles().calls().is_empty());
}

#[test]
fn s35_s48_s49_s53_s54_s58_s59_s61_s62_what_a_provider_sees_is_brought_to_it() {
    let spec = |change: Value| json!({"spec": change});
    let port = |change: Value| {
        let mut port = json!({"protocol": "TCP", "port": 80, "nodePort": 30080});
        merge(&mut port, &change);
        json!({"spec": {"ports": [port]}})
    };
    let local = |port: u16| json!({"spec": {"externalTrafficPolicy": "Local", "healthCheckNodePort": port}});
    for (before, after) in [
        (spec(json!({"loadBalancerIP": "192.0.2.1"})), spec(json!({"loadBalancerIP": "192.0.2.2"}))),
        (port(json!({})), port(json!({"port": 81}))),
        (json!({}), local(32000)),
        (local(32000), local(32001)),
        (spec(json!({"ipFamilies": ["IPv4"]})), spec(json!({"ipFamilies": ["IPv4", "IPv6"]}))),
        (spec(json!({"ipFamilies": ["IPv4", "IPv6"]})), spec(json!({"ipFamilies": ["IPv4"]}))),
        (port(json!({})), port(json!({"appProtocol": "http"}))),
        (port(json!({"appProtocol": "http"})), port(json!({"appProtocol": "tcp"}))),
        // Better: upstream doesn't look at labels.
        (json!({}), json!({"metadata": {"labels": {"a": "b"}}})),
    ] {
        assert_changed(before, after, &[ENSURE]);
    }
    assert_changed(json!({}), spec(json!({"type": "ClusterIP"})), &["delete uid-a"]);
}

/// Better for target ports and external addresses, which no provider sees: upstream asks the cloud for all of it anew.
#[test]
fn s50_s51_s55_s56_s57_s60_what_no_provider_sees_costs_no_call() {
    let with = |target: Value| {
        let port = json!({"protocol": "TCP", "port": 80, "targetPort": target, "appProtocol": "http"});
        json!({"spec": {"ports": [port], "externalIPs": ["192.0.2.1"], "ipFamilies": ["IPv4", "IPv6"]}})
    };
    for after in [
        json!({"spec": {"externalIPs": ["192.0.2.1", "192.0.2.2"]}}),
        json!({"spec": {"externalIPs": ["192.0.2.9"]}}),
        with(json!(21)),
        with(json!("http")),
        with(json!(20)),
        json!({"metadata": {"annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}"}}}),
    ] {
        assert_changed(with(json!(20)), after, &[]);
    }
}

#[test]
fn s52_one_of_another_uid_is_another_whose_turn_comes_when_the_former_is_gone() {
    assert_changed(json!({}), json!({"metadata": {"uid": "other"}}), &["delete uid-a", ENSURE]);
}

/// Upstream's conflict; ours can't be one, as its patch names no resourceVersion, but the API server may refuse it.
#[test]
fn s36_a_status_that_can_not_be_written_is_told_and_tried_again() {
    let mut stage = Stage::with(&nodes(&["node1", "node2"]));
    stage.put(service("a", json!({"metadata": {"finalizers": [FINALIZER]}})));
    stage.write_fates.push_back(Error::Conflict);
    assert_eq!(stage.settles().calls(), [ENSURE]);
    assert!(
        stage.notes.iter().any(|note| note.contains("failed to update load balancer status")),
        "{:?}",
        stage.notes
    );
    assert!(stage.events().contains(&"SyncLoadBalancerFailed a".to_owned()));
    assert_eq!(facts(&stage.get("a")).service.status.len(), 1);
}

#[test]
fn s37_a_service_that_is_gone_when_its_status_is_written_is_no_failure() {
    let mut stage = Stage::with(&nodes(&["node1", "node2"]));
    stage.put(service("a", json!({"metadata": {"finalizers": [FINALIZER]}})));
    stage.write_fates.push_back(Error::Gone);
    // Better: what was made for it is deleted.
    assert_eq!(stage.settles().calls(), [ENSURE, "delete uid-a"]);
    assert!(!stage.events().iter().any(|event| event.contains("Failed")));
}

/// Keys aren't parsed here: a Service is told by its facts.
#[test]
fn s38_s39_s40_s42_who_is_gone_is_forgotten_with_its_load_balancer_and_nobody_is_asked_about_others() {
    let mut stage = Stage::with(&nodes(&["node1", "node2"]));
    for name in ["one/two/three", "default/a"] {
        stage.reconciler.observe_gone(name, stage.now);
        assert!(stage.settles().calls().is_empty());
    }
    stage.put(service("a", json!({})));
    assert_eq!(stage.settles().calls(), [ENSURE]);
    stage.reconciler.observe_gone("default/a", stage.now);
    assert_eq!(stage.settles().calls(), ["delete uid-a"]);
    assert_eq!(stage.reconciler.summary(), Summary::default());
}

#[test]
fn s41_a_deletion_that_fails_is_told_and_tried_again() {
    let mut stage = Stage::with(&nodes(&["node1", "node2"]));
    stage.put(service("a", json!({})));
    stage.settles().calls();
    stage.events();
    stage.plans("a", fails(ErrorKind::Denied));
    stage.reconciler.observe_gone("default/a", stage.now);
    assert_eq!(stage.settles().calls(), ["delete uid-a"]);
    assert_eq!(stage.events(), ["DeletingLoadBalancer a", "DeleteLoadBalancerFailed a"]);
    assert_eq!(stage.notes.last().unwrap(), "Error deleting load balancer: it is locked");
    assert_eq!(stage.rests(Duration::from_secs(70)).calls(), ["delete uid-a"]);
    assert_eq!(stage.events(), ["DeletedLoadBalancer a"]);
}

#[test]
fn s43_s44_s45_s46_cleaned_up_is_what_has_the_finalizer_and_wants_none_or_goes() {
    let step = |change: Value| {
        let facts = Arc::new(facts(&service("a", change)));
        let record = Record::new(&facts, &[], false, Instant::now());
        plan(&record, World { classes: &[], targets: Some(0), is_name_taken: false })
    };
    let finalizers = json!({"finalizers": [FINALIZER]});
    assert_eq!(step(json!({"spec": {"type": "NodePort"}})), Step::Forget);
    assert_eq!(step(json!({"spec": {"type": "NodePort"}, "metadata": finalizers})), Step::Delete);
    assert_eq!(step(json!({"metadata": finalizers})), Step::Ensure { is_audit: false });
    let going = json!({"finalizers": [FINALIZER], "deletionTimestamp": "2026-01-02T03:04:05Z"});
    assert_eq!(step(json!({"metadata": going})), Step::Delete);
}

/// A Node joins while the update of one of two is under way: what is sent next is what is true then (P-20).
#[test]
fn s47_no_stale_nodes_are_sent_after_fresh_ones() {
    let mut stage = Stage::with(&nodes(&["node1"]));
    stage.put(service("a", json!({})));
    stage.put(service("b", json!({})));
    stage.settles().calls();
    stage.nodes(&nodes(&["node1", "node2"]));
    stage.now += Duration::from_secs(1);
    let [Work::Call(slow)] = &stage.reconciler.next(stage.now, 0.0)[..] else { panic!("one call is due") };
    stage.nodes(&nodes(&["node1", "node2", "node3"]));
    stage.change("b", json!({"spec": {"ports": [{"protocol": "TCP", "port": 81}]}}));
    assert!(stage.settles().calls().is_empty(), "both are in the call that is under way");
    let done = ServiceProgress::Done { status: vec![ingress()], warnings: Vec::new() };
    stage.reconciler.on_call_result(slow, Ok(vec![Ok(done.clone()), Ok(done)]), stage.now, 0.0);
    let [ensure, update] = [("ensure", "b"), ("update", "a")]
        .map(|(verb, name)| format!(r#"{verb} {name} ["node1", "node2", "node3"]"#));
    assert_eq!(stage.settles().calls(), [ensure, update]);
}

#[test]
fn s63_s64_s65_s66_s67_s68_each_service_is_known_once_until_it_is_gone() {
    let mut stage = Stage::with(&[]);
    let wanted = |stage: &Stage| stage.reconciler.summary().wanted;
    stage.put(service("a", json!({})));
    stage.put(service("a", json!({})));
    assert_eq!(wanted(&stage), 1);
    stage.settles();
    stage.reconciler.observe_gone("default/a", stage.now);
    stage.settles();
    assert_eq!(wanted(&stage), 0);
    stage.put(service("b", json!({})));
    assert_eq!(wanted(&stage), 1);
    stage.put(service("c", json!({})));
    assert_eq!(wanted(&stage), 2);
    assert_eq!(stage.reconciler.summary().settled, 0);
    stage.settles();
    assert_eq!(stage.reconciler.summary(), Summary { wanted: 2, settled: 2, leaving: 0 });
}

#[test]
fn s70_s71_s73_s75_what_is_already_so_is_not_written() {
    // The finalizer and the status come, once each.
    assert_seen(json!({"metadata": {"finalizers": ["x/y"]}}), &[ENSURE], 2);
    // Nothing is removed where nothing is.
    assert_seen(json!({"spec": {"type": "ClusterIP"}, "metadata": {"finalizers": ["x/y"]}}), &[], 0);
    let settled = |ip: &str| {
        let status = json!({"loadBalancer": {"ingress": [{"ip": ip, "ipMode": "VIP"}]}});
        json!({"metadata": {"finalizers": [FINALIZER]}, "status": status})
    };
    assert_seen(settled("192.0.2.1"), &[ENSURE], 0);
    assert_seen(settled("192.0.2.9"), &[ENSURE], 1);
    // Nor is a status where the cloud gives no way in.
    let mut stage = Stage::with(&[]);
    stage.plans("a", Ok(ServiceProgress::Done { status: Vec::new(), warnings: Vec::new() }));
    stage.put(service("a", json!({"metadata": {"finalizers": [FINALIZER]}})));
    assert_eq!((stage.settles().calls().len(), stage.patches), (1, 0));
}

/// Upstream's predicate `Ready` is of its tests alone, and isn't asked here either.
#[test]
fn s77_s78_s79_s80_s81_s82_s83_s84_s85_s86_targets_are_nodes_with_a_machine_that_stay_and_are_not_labelled_out()
 {
    let excluded = |value: &str| json!({"metadata": {"labels": {EXCLUDE: value}}});
    for (change, is_target) in [
        (json!({"spec": {"providerID": null}, "status": {"conditions": null}}), false),
        (json!({}), true),
        // Better (P-19): there is nothing to send traffic to.
        (json!({"spec": {"providerID": null}}), false),
        // Better: the load balancer's health checks know sooner (KEP-3458).
        (ready("False"), true),
        (json!({"metadata": {"labels": {}}}), true),
        (excluded(""), false),
        (excluded("false"), true),
        (excluded("true"), false),
        (excluded("foo"), false),
        (tainted(LEAVING), false),
    ] {
        assert_eq!(behind(&[node("node1", change.clone())]).len(), usize::from(is_target), "{change}");
    }
    for (value, is_target) in
        [("0", true), ("f", true), ("F", true), ("FALSE", true), ("False", true), ("no", false)]
    {
        assert_eq!(behind(&[node("node1", excluded(value))]).len(), usize::from(is_target), "{value}");
    }
}

/// Upstream's list takes any predicate, and its test picks Nodes by their phase, which nobody has set for years. Here the
/// only choice is that of targets.
#[test]
fn s87_s88_s89_nodes_of_all_phases_are_targets() {
    let phases = ["Pending", "Running", "Pending", "Running", "Terminated"];
    let nodes: Vec<_> = (0..)
        .zip(phases)
        .map(|(n, phase)| node(&format!("node{n}"), json!({"status": {"phase": phase}})))
        .collect();
    assert_eq!(behind(&nodes), ["node0", "node1", "node2", "node3", "node4"]);
}

/// A Node in some state changes: whether targets change by that, or the other way round.
#[track_caller]
fn assert_matters(state: &Value, changes: &[(Value, Value, bool)]) {
    for (before, after, matters) in changes {
        let [before, after] =
            [before, after].map(|change| targets(&[node("node1", state.clone()).with(change)]));
        assert_eq!(before.digest() != after.digest(), *matters, "{state}: {before:?}, {after:?}");
    }
}

fn id(id: &str) -> Value {
    json!({"spec": {"providerID": id}})
}

fn excluded() -> Value {
    json!({"metadata": {"labels": {EXCLUDE: ""}}})
}

#[test]
fn s90_s91_s92_s93_the_label_matters_and_nothing_changes_by_itself() {
    let none = json!({});
    assert_matters(
        &none,
        &[
            (none.clone(), none.clone(), false),
            (none.clone(), excluded(), true),
            (excluded(), none.clone(), true),
            (excluded(), excluded(), false),
        ],
    );
}

#[test]
fn s94_s95_s96_s97_s98_s99_s100_s101_s102_s103_s104_s105_taints_labels_and_conditions_of_others_do_not_matter()
 {
    let none = json!({});
    let label = json!({"metadata": {"labels": {"a": "b"}}});
    let pressure = |ready: &str, status: &str| {
        let conditions =
            json!([{"type": "Ready", "status": ready}, {"type": "DiskPressure", "status": status}]);
        json!({"status": {"conditions": conditions}})
    };
    let unset = json!({"status": {"conditions": null}});
    let mut changes = Vec::new();
    for (a, b) in [
        (none.clone(), tainted("x/y")),
        (none.clone(), label),
        (ready("False"), none.clone()),
        (ready("False"), unset.clone()),
        (unset.clone(), unset),
        (pressure("False", "False"), pressure("False", "True")),
        (pressure("True", "False"), pressure("True", "True")),
    ] {
        changes.extend([(a.clone(), b.clone(), false), (b, a, false)]);
    }
    assert_matters(&none, &changes);
}

/// Better: upstream notices at the next sync for another reason.
#[test]
fn s106_a_node_that_is_being_deleted_gets_no_traffic_from_then_on() {
    let deleting = json!({"metadata": {"deletionTimestamp": "2026-01-02T03:04:05Z"}});
    assert_matters(&json!({}), &[(json!({}), deleting, true)]);
}

/// Better: upstream syncs, although nothing changes for any load balancer.
#[test]
fn s110_s111_s112_s113_s114_s115_s116_nothing_matters_about_a_node_that_the_autoscaler_takes_away() {
    let none = json!({});
    assert_matters(
        &tainted(LEAVING),
        &[
            (none.clone(), excluded(), false),
            (excluded(), none.clone(), false),
            (id(""), none.clone(), false),
            (none.clone(), id(""), false),
            (none.clone(), id("simulated://2"), false),
            (ready("False"), none.clone(), false),
            (none, ready("False"), false),
        ],
    );
}

/// Better for another machine: upstream syncs, although nothing changes for any load balancer.
#[test]
fn s117_s118_s119_s120_s121_s122_s123_nothing_matters_about_a_node_that_is_labelled_out() {
    let none = json!({});
    assert_matters(
        &excluded(),
        &[
            (none.clone(), tainted(LEAVING), false),
            (tainted(LEAVING), none.clone(), false),
            (ready("False"), none.clone(), false),
            (none.clone(), ready("False"), false),
            (id(""), none.clone(), false),
            (none.clone(), id(""), false),
            (none, id("simulated://2"), false),
        ],
    );
}

/// Better for the autoscaler's taint, which upstream notices late.
#[test]
fn s124_s125_s126_s127_s128_s129_s130_a_node_that_is_not_ready_is_a_target_like_any_other() {
    let none = json!({});
    assert_matters(
        &ready("False"),
        &[
            (none.clone(), tainted(LEAVING), true),
            (tainted(LEAVING), none.clone(), true),
            (none.clone(), excluded(), true),
            (excluded(), none.clone(), true),
            (id(""), none.clone(), true),
            (none.clone(), id(""), true),
            (none, id("simulated://2"), true),
        ],
    );
}

/// Better for the label: upstream syncs, although there is nothing to send traffic to.
#[test]
fn s131_s132_s133_s134_s135_s136_nothing_matters_about_a_node_without_a_machine() {
    let none = json!({});
    assert_matters(
        &id(""),
        &[
            (none.clone(), excluded(), false),
            (excluded(), none.clone(), false),
            (ready("False"), none.clone(), false),
            (none.clone(), ready("False"), false),
            (tainted(LEAVING), none.clone(), false),
            (none, tainted(LEAVING), false),
        ],
    );
}

/// A first call that ends so: after how long the next one comes.
fn again(fate: Result<ServiceProgress, CloudError>) -> Option<Duration> {
    let mut stage = Stage::with(&nodes(&["node1", "node2"]));
    stage.plans("a", fate);
    stage.put(service("a", json!({})));
    assert_eq!(stage.rests(Duration::from_millis(100)).calls(), [ENSURE]);
    let failed = stage.now;
    while stage.calls.is_empty() {
        stage.now = stage.reconciler.next_wake().filter(|at| *at < failed + AUDIT / 2)?;
        for work in stage.reconciler.next(stage.now, 0.0) {
            stage.does(work);
        }
    }
    Some(stage.now - failed)
}

#[test]
fn s137_what_is_done_is_not_looked_at_before_an_audit() {
    assert_eq!(again(Ok(ServiceProgress::Done { status: vec![ingress()], warnings: Vec::new() })), None);
    assert_eq!(again(Ok(ServiceProgress::Elsewhere)), None);
}

/// Each gathers what comes with it for a tenth of a second.
#[test]
fn s138_what_fails_is_tried_again_with_a_delay_that_grows() {
    assert_eq!(again(fails(ErrorKind::Unavailable)), Some(Duration::from_millis(600)));
    let mut stage = Stage::with(&nodes(&["node1", "node2"]));
    for _ in 0..4 {
        stage.plans("a", fails(ErrorKind::Unavailable));
    }
    stage.put(service("a", json!({})));
    let begun = stage.now;
    assert_eq!(stage.rests(Duration::from_secs(5)).calls(), [ENSURE; 5]);
    // 0.5 + 1 + 2 + 4 s, and five times a tenth.
    assert_eq!(stage.now - begun, Duration::from_secs(8));
    // The first, the second and the fourth failure.
    assert_eq!(stage.events().iter().filter(|event| event.starts_with("SyncLoadBalancerFailed")).count(), 3);
}

#[test]
fn s139_what_the_cloud_says_to_ask_after_in_42_seconds_is_asked_after_then_and_is_no_failure() {
    let after = Duration::from_secs(42);
    let under = || Ok(ServiceProgress::InProgress { after, resume: Some("note".to_owned()) });
    assert_eq!(again(under()), Some(after));
    let mut stage = Stage::with(&nodes(&["node1", "node2"]));
    stage.plans("a", under());
    stage.plans("a", under());
    stage.put(service("a", json!({})));
    assert_eq!(stage.rests(after).calls(), [ENSURE; 3]);
    // EventLog once an operation (P-15).
    assert_eq!(stage.events(), ["EnsuringLoadBalancer a", "LoadBalancerPending a", "EnsuredLoadBalancer a"]);
    // And when it is deleted (P-15).
    stage.plans("a", under());
    stage.change("a", json!({"metadata": {"deletionTimestamp": "2026-01-02T03:04:05Z"}}));
    assert_eq!(stage.rests(after).calls(), ["delete uid-a"; 2]);
    assert_eq!(stage.events(), ["DeletingLoadBalancer a", "LoadBalancerPending a", "DeletedLoadBalancer a"]);
}

#[test]
fn h23_the_finalizer_is_found_among_others() {
    for (finalizers, has_it) in [
        (json!(null), false),
        (json!(["x/y"]), false),
        (json!([FINALIZER]), true),
        (json!(["x/y", FINALIZER, "z"]), true),
    ] {
        let service = service("a", json!({"metadata": {"finalizers": finalizers}}));
        assert_eq!(facts(&service).has_finalizer(), has_it, "{service}");
    }
}

#[test]
fn h24_a_patch_leaves_alone_what_others_have_changed_meanwhile() {
    let before = service("a", json!({"metadata": {"finalizers": ["x/y"]}}));
    let patch = Write::AddFinalizer.patch(&facts(&before));
    assert!(patch.get("spec").is_none(), "{patch}");
    assert_eq!(patch["metadata"]["$setElementOrder/finalizers"], json!(["x/y", FINALIZER]));
    let change = json!({"metadata": {"annotations": {"a": "b"}, "finalizers": ["x/y", "z"]}, "spec": {"type": "ClusterIP"}});
    let mut stored = service("a", change.clone());
    patch_service(&mut stored, Part::Status, &patch);
    let mut expected = service("a", change);
    expected["metadata"]["finalizers"] = json!(["x/y", "z", FINALIZER]);
    assert_eq!(stored, expected);
}

/// Taints are known by their key here, and a list of them is only written by the node controllers.
#[test]
fn h25_h26_a_status_is_compared_whole() {
    let ingress = |ip: &str, mode: &str, protocol: &str| json!({"ip": ip, "ipMode": mode, "ports": [{"port": 80, "protocol": protocol}]});
    let read = |ingress: Value| {
        let status = json!({"loadBalancer": {"ingress": ingress}});
        facts(&service("a", json!({"status": status}))).service.status
    };
    let first = || json!([ingress("192.0.2.1", "VIP", "TCP")]);
    let one_sided = json!([{"ip": "192.0.2.1", "ports": [{"port": 80, "protocol": "TCP"}]}]);
    for (a, b, is_same) in [
        (json!([]), json!(null), true),
        (first(), first(), true),
        // What the API server fills in as well, so that one side without it isn't another status (ccm-behaviour 4.5).
        (first(), one_sided, true),
        (first(), json!([ingress("192.0.2.2", "VIP", "TCP")]), false),
        (first(), json!([ingress("192.0.2.1", "Proxy", "TCP")]), false),
        (first(), json!([ingress("192.0.2.1", "VIP", "UDP")]), false),
        (first(), json!([{"ip": "192.0.2.1", "ipMode": "VIP"}]), false),
        (first(), json!([ingress("192.0.2.1", "VIP", "TCP"), {"hostname": "a.example"}]), false),
    ] {
        assert_eq!(read(a.clone()) == read(b.clone()), is_same, "{a} {b}");
    }
    let known = Arc::new(facts(&service("a", json!({"status": {"loadBalancer": {"ingress": first()}}}))));
    let record = Record::new(&known, &[], false, Instant::now());
    let mut proxy = known.service.status.clone();
    assert!(!record.is_news(&proxy));
    proxy[0].ip_mode = Some(IpMode::Proxy);
    assert!(record.is_news(&proxy));
    assert_eq!(targets(&[node("a", tainted("x/y"))]).table().len(), 1);
}
