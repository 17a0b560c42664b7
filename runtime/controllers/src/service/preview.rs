//! What the service controller would ask of the cloud, and why, before it does: for `pileus plan`.
//!
//! A reconciler is asked for its work as if each write to a Service succeeded and each call was postponed. Nothing is sent,
//! and the time is an argument.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use pileus_cloud::{
    Cluster, Error as CloudError, ErrorKind, OwnedLoadBalancer, Service, ServiceAction, ServiceChange,
    ServiceRequirements, Target,
};
use tokio::time::Instant;

use super::Settings;
use super::ownership::Demand;
use super::reconciler::Reconciler;
use super::scope::ServiceScope;
use super::targets::Targets;
use super::work::{Call, Listing, ListingReport, Work, Write};
use crate::facts::node::NodeFacts;
use crate::facts::service::ServiceFacts;
use crate::well_known::FINALIZER_LOAD_BALANCER;

/// How far into the future the reconciler is asked. Changes gather for a second, and those that follow from the cloud's list
/// for a second more.
const HORIZON: Duration = Duration::from_secs(10);

/// How long each call is postponed: beyond the horizon.
const POSTPONED: Duration = Duration::from_hours(1);

/// The cluster, as far as load balancers follow from it, and what the cloud has for it.
#[derive(Debug, Clone)]
pub struct Inputs<'a> {
    /// The cluster.
    pub cluster: &'a Cluster,
    /// The load balancer classes that are served.
    pub classes: &'a [String],
    /// Whether Services without a class are served.
    pub is_default: bool,
    /// What the provider asks to be told about Services, and how calls may be made.
    pub requirements: &'a ServiceRequirements,
    /// The name of the provider.
    pub provider: &'a str,
    /// The keys of the Node labels that the provider reads.
    pub node_labels: &'a [String],
    /// The Nodes.
    pub nodes: &'a [Arc<NodeFacts>],
    /// The Services that matter, and those for which the cloud has something.
    pub services: &'a [Arc<ServiceFacts>],
    /// All Services of the cluster, by UID, as `namespace/name`: from a read that began after the cloud had answered
    /// `owned`.
    pub present: &'a HashMap<String, String>,
    /// What the cloud has for Services.
    pub owned: &'a [OwnedLoadBalancer],
}

/// What the controller would ask for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Preview {
    /// The Nodes that take traffic.
    pub targets: Vec<Target>,
    /// The changes, which can go in one call, in the order of their objects.
    pub changes: Vec<PlannedChange>,
    /// Invalid Services, as `namespace/name`, with their problems. The cloud isn't asked for them.
    pub refused: Vec<(String, String)>,
    /// The cloud's names of objects that name no cluster or no Service for certain. They stay.
    pub unattributed: Vec<String>,
    /// Live Services of another provider or controller for which the cloud has something of this cluster, as `namespace/name`,
    /// and whose they are, in words. It stays.
    pub class_conflicts: Vec<(String, String)>,
}

/// A change, and why it is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedChange {
    /// The change.
    pub change: ServiceChange,
    /// The Service as `namespace/name`, or the cloud's name for an orphan.
    pub object: String,
    /// Why it is asked for.
    pub reason: Reason,
    /// Whether the cloud may have something for the object.
    pub may_exist: bool,
}

/// Why a change is asked for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Reason {
    /// The Service has no load balancer yet, as far as its status says.
    #[error("type LoadBalancer without a load balancer")]
    Missing,
    /// The Service has a load balancer, which is compared with it.
    #[error("its targets or what it wants differ from the cloud")]
    Differs,
    /// The Service is being deleted.
    #[error("it is being deleted")]
    Deleting,
    /// The Service has another type by now.
    #[error("its type is not LoadBalancer any more")]
    Unwanted,
    /// The Service is gone.
    #[error("orphan of service {service}, which is gone")]
    Orphan {
        /// The Service, by name where the cloud reports it, else by UID.
        service: String,
    },
}

/// Collects all that the reconciler of a new leader asks for.
pub fn preview(inputs: &Inputs<'_>, now: Instant) -> Preview {
    let targets = Arc::new(Targets::of(inputs.nodes, inputs.provider, inputs.node_labels));
    let table = targets.table().to_vec();
    let settings = settings(inputs);
    let scope = ServiceScope::new(inputs.provider, &settings);
    let (changes, report) = collect(inputs, &settings, targets, now);
    let facts: HashMap<&str, &ServiceFacts> =
        inputs.services.iter().map(|facts| (&*facts.service.uid, &**facts)).collect();
    let is_refused =
        |facts: &&Arc<ServiceFacts>| Demand::of(facts, &scope) == Demand::Ours && !facts.problems.is_empty();
    let refused = inputs.services.iter().filter(is_refused);
    let mut changes: Vec<_> = changes.into_iter().map(|change| explain(change, &facts)).collect();
    // In an order that two previews can be compared in; the reconciler's is by priority and UID.
    changes.sort_by(|a, b| a.object.cmp(&b.object));
    Preview {
        targets: table,
        changes,
        refused: refused.map(|facts| (facts.key(), facts.problems.join("; "))).collect(),
        unattributed: report.new_unattributed,
        class_conflicts: report.new_class_conflicts,
    }
}

/// The settings of the controller that is previewed. Marks are no changes in the cloud.
fn settings(inputs: &Inputs<'_>) -> Settings {
    Settings {
        cluster: inputs.cluster.clone(),
        classes: inputs.classes.to_vec(),
        is_default: inputs.is_default,
        marks_services: false,
        audit_period: POSTPONED,
        calls: 1,
    }
}

/// The changes that the reconciler asks for within the horizon, and what the list shows.
fn collect(
    inputs: &Inputs<'_>,
    settings: &Settings,
    targets: Arc<Targets>,
    now: Instant,
) -> (Vec<ServiceChange>, ListingReport) {
    // In as few calls as possible; the caller divides them by the provider's own limits.
    let requirements = ServiceRequirements {
        largest_batch: usize::MAX,
        allows_concurrent_calls: false,
        ..inputs.requirements.clone()
    };
    let mut reconciler = Reconciler::new(requirements, inputs.provider, settings, now);
    for facts in inputs.services.iter().filter(|facts| facts.is_load_balancer || facts.has_finalizer()) {
        reconciler.observe(facts, now);
    }
    reconciler.observe_targets(targets, now);
    let (mut asked, mut changes, mut report) = (HashSet::new(), Vec::new(), ListingReport::default());
    let mut at = now;
    loop {
        for work in reconciler.next(at, 0.0) {
            match work {
                Work::Write { facts, write } => pretend_written(&mut reconciler, &facts, &write, at),
                Work::Call(call) => {
                    let new =
                        call.keys.iter().zip(&call.changes).filter(|(key, _)| asked.insert((*key).clone()));
                    changes.extend(new.map(|(_, change)| change.clone()));
                    postpone(&mut reconciler, &call, at);
                }
                Work::ListOwned => report = list(&mut reconciler, inputs, at),
            }
        }
        match reconciler.next_wake() {
            Some(wake) if wake <= now + HORIZON => at = at.max(wake),
            _ => return (changes, report),
        }
    }
}

/// Lets a write succeed. Only an added finalizer leads to a change in the cloud.
fn pretend_written(reconciler: &mut Reconciler, facts: &Arc<ServiceFacts>, write: &Write, now: Instant) {
    if let Write::AddFinalizer(mark) = write {
        let mut written = ServiceFacts::clone(facts);
        written.mark = mark.clone().or(written.mark);
        written.finalizers.push(FINALIZER_LOAD_BALANCER.to_owned());
        reconciler.on_write_result(&facts.service.uid, Ok(&Arc::new(written)), now, 0.0);
    }
}

/// Lets a call end without a change.
fn postpone(reconciler: &mut Reconciler, call: &Call, now: Instant) {
    let later = CloudError::new(ErrorKind::Throttled(Some(POSTPONED)), "later");
    reconciler.on_call_result(call, Err(later), now, 0.0);
}

/// Lets the list succeed, and the read of the Services that only the list names.
fn list(reconciler: &mut Reconciler, inputs: &Inputs<'_>, now: Instant) -> ListingReport {
    let listing = Listing { owned: inputs.owned.to_vec(), present: inputs.present.clone() };
    let report = reconciler.on_list_result(Ok(&listing), now, 0.0);
    for facts in inputs.services.iter().filter(|facts| report.unknown.contains(&facts.key())) {
        reconciler.observe(facts, now);
    }
    report
}

fn explain(change: ServiceChange, facts: &HashMap<&str, &ServiceFacts>) -> PlannedChange {
    let of = |service: &Service| facts.get(&*service.uid).copied();
    let name = |service: &Service| format!("{}/{}", service.namespace, service.name);
    let (object, reason, may_exist) = match &change.action {
        ServiceAction::Ensure(service) | ServiceAction::UpdateTargets(service) => {
            let has_address = !service.status.is_empty();
            let reason = if has_address { Reason::Differs } else { Reason::Missing };
            let has_finalizer = of(service).is_some_and(ServiceFacts::has_finalizer);
            (name(service), reason, has_address || has_finalizer)
        }
        ServiceAction::Delete(service) => {
            let reason = match of(service) {
                Some(facts) if !facts.is_deleting => Reason::Unwanted,
                _ => Reason::Deleting,
            };
            (name(service), reason, true)
        }
        ServiceAction::RemoveOrphan(owned) => {
            let named = owned.service.as_ref().map(|(namespace, name)| format!("{namespace}/{name}"));
            let service = named.or_else(|| owned.service_uid.clone()).unwrap_or_default();
            (owned.name.clone(), Reason::Orphan { service }, true)
        }
    };
    PlannedChange { change, object, reason, may_exist }
}

#[cfg(test)]
mod tests {
    use pileus_cloud::{Ingress, IngressPoint, IpMode, ProviderId};

    use super::*;
    use crate::model::uid;

    fn cluster() -> Cluster {
        Cluster { name: "kubernetes".to_owned(), uid: Some("ours".to_owned()) }
    }

    fn balanced(name: &str, change: impl FnOnce(&mut ServiceFacts)) -> Arc<ServiceFacts> {
        let mut facts = ServiceFacts::balanced(name);
        change(&mut facts);
        Arc::new(facts)
    }

    /// Gives a Service its finalizer and status.
    fn served(facts: &mut ServiceFacts) {
        facts.finalizers.push(FINALIZER_LOAD_BALANCER.to_owned());
        facts.service.status = vec![Ingress {
            point: IngressPoint::Ip("192.0.2.1".to_owned()),
            ip_mode: Some(IpMode::Vip),
            ports: Vec::new(),
        }];
    }

    fn owned(name: &str, cluster: Option<&str>, service: &str) -> OwnedLoadBalancer {
        OwnedLoadBalancer {
            cluster_uid: cluster.map(str::to_owned),
            service_uid: Some(if service == "gone" { uid(service) } else { format!("uid-{service}") }),
            service: Some(("default".to_owned(), service.to_owned())),
            name: name.to_owned(),
            extra: Vec::new(),
        }
    }

    fn of(services: &[Arc<ServiceFacts>], owned: &[OwnedLoadBalancer]) -> Preview {
        let node = Arc::new(NodeFacts {
            taints: Vec::new(),
            provider_id: Some(ProviderId::parse("sim://a").unwrap()),
            ..NodeFacts::registered("a")
        });
        let present = services.iter().map(|facts| (facts.service.uid.clone(), facts.key())).collect();
        let inputs = Inputs {
            cluster: &cluster(),
            classes: &["ours".to_owned()],
            is_default: true,
            requirements: &ServiceRequirements::default(),
            provider: crate::model::PROVIDER,
            node_labels: &[],
            nodes: &[node],
            services,
            present: &present,
            owned,
        };
        preview(&inputs, Instant::now())
    }

    /// The changes as text.
    fn changes_of(preview: &Preview) -> Vec<String> {
        let changes = preview.changes.iter().map(|PlannedChange { change, object, reason, may_exist }| {
            let verb = match change.action {
                ServiceAction::Ensure(_) => "ensure",
                ServiceAction::UpdateTargets(_) => "update",
                ServiceAction::Delete(_) => "delete",
                ServiceAction::RemoveOrphan(_) => "remove",
            };
            format!("{verb} {object}: {reason}{}", if *may_exist { "" } else { " (new)" })
        });
        changes.collect()
    }

    #[test]
    fn each_service_says_which_change_it_needs_and_why() {
        type Change = fn(&mut ServiceFacts);
        let rows: [(&str, Change, &[&str]); 9] = [
            ("new", |_| {}, &["ensure default/a: type LoadBalancer without a load balancer (new)"]),
            (
                "begun",
                |it| it.finalizers.push(FINALIZER_LOAD_BALANCER.to_owned()),
                &["ensure default/a: type LoadBalancer without a load balancer"],
            ),
            ("served", served, &["ensure default/a: its targets or what it wants differ from the cloud"]),
            (
                "of our class",
                |it| it.service.class = Some("ours".to_owned()),
                &["ensure default/a: type LoadBalancer without a load balancer (new)"],
            ),
            ("of another class", |it| it.service.class = Some("theirs".to_owned()), &[]),
            (
                "being deleted",
                |it| {
                    served(it);
                    it.is_deleting = true;
                },
                &["delete default/a: it is being deleted"],
            ),
            (
                "of another type now",
                |it| {
                    served(it);
                    it.is_load_balancer = false;
                },
                &["delete default/a: its type is not LoadBalancer any more"],
            ),
            ("of another type", |it| it.is_load_balancer = false, &[]),
            (
                "invalid",
                |it| {
                    served(it);
                    it.problems.push("no".to_owned());
                },
                &[],
            ),
        ];
        for (name, change, expected) in rows {
            let preview = of(&[balanced("a", change)], &[]);
            assert_eq!(changes_of(&preview), expected, "{name}");
            let refused =
                if name == "invalid" { vec![("default/a".to_owned(), "no".to_owned())] } else { vec![] };
            assert_eq!((preview.refused, preview.targets.len()), (refused, 1), "{name}");
        }
    }

    #[test]
    fn what_only_the_cloud_lists_is_removed_if_it_is_ours_and_else_reported() {
        let lost = balanced("lost", |it| it.is_load_balancer = false);
        let theirs = balanced("theirs", |it| it.service.class = Some("theirs".to_owned()));
        let there = [
            owned("lb-gone", Some("ours"), "gone"),
            owned("lb-lost", Some("ours"), "lost"),
            owned("lb-theirs", Some("ours"), "theirs"),
            owned("lb-unattributed", None, "gone"),
        ];
        let preview = of(&[lost, theirs], &there);
        let changes = changes_of(&preview);
        let expected = [
            "delete default/lost: its type is not LoadBalancer any more",
            "remove lb-gone: orphan of service default/gone, which is gone",
        ];
        assert_eq!(
            (changes, preview.unattributed),
            (expected.map(str::to_owned).to_vec(), vec!["lb-unattributed".to_owned()])
        );
        assert_eq!(preview.class_conflicts, [("default/theirs".to_owned(), "class theirs".to_owned())]);
    }

    #[test]
    fn each_of_a_thousand_services_gets_one_change() {
        let changes: [fn(&mut ServiceFacts); 2] = [served, |_| {}];
        let service = |number: usize| balanced(&format!("s{number}"), changes[number % 2]);
        let services: Vec<_> = (0..1_000).map(service).collect();
        let preview = of(&services, &[]);
        let names: HashSet<_> = preview.changes.iter().map(|change| change.object.clone()).collect();
        assert_eq!((preview.changes.len(), names.len()), (1_000, 1_000));
    }
}
