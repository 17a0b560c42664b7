//! What the service controller would ask of the cloud, and why, told to somebody who wants to know before it happens. Pure:
//! the reconciler itself is asked for its work, in a world where each write to a Service succeeds and each call is put off.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use pileus_cloud::{
    Cluster, Error as CloudError, ErrorKind, OwnedLoadBalancer, Service, ServiceAction, ServiceChange,
    ServiceRequirements, Target,
};
use tokio::time::Instant;

use super::Settings;
use super::plan::wants_ours;
use super::reconciler::Reconciler;
use super::targets::Targets;
use super::work::{Call, Listing, ListingReport, Work, Write};
use crate::facts::node::NodeFacts;
use crate::facts::service::ServiceFacts;
use crate::well_known::FINALIZER_LOAD_BALANCER;

/// How far the reconciler is asked into the future: all that waits is gathered within a second, and what waits for the list of
/// what the cloud has for a second more.
const HORIZON: Duration = Duration::from_secs(10);

/// How long each call is put off: beyond the horizon.
const PUT_OFF: Duration = Duration::from_hours(1);

/// The cluster, as far as load balancers follow from it, and what the cloud has for it.
#[derive(Debug, Clone)]
pub struct Inputs<'a> {
    /// The cluster.
    pub cluster: &'a Cluster,
    /// The load balancer classes that are ours besides no class.
    pub classes: &'a [String],
    /// How the provider wants Services brought to it.
    pub terms: &'a ServiceRequirements,
    /// The schemes of provider IDs that are the provider's own.
    pub schemes: &'a [String],
    /// The keys of the Node labels that the provider reads.
    pub node_labels: &'a [String],
    /// All Nodes that can be worked on.
    pub nodes: &'a [Arc<NodeFacts>],
    /// The Services that matter, and those of which the cloud has something.
    pub services: &'a [Arc<ServiceFacts>],
    /// All Services of the cluster, by UID, as `namespace/name`: from a read that began after `owned` had been answered.
    pub present: &'a HashMap<String, String>,
    /// What the cloud has for Services.
    pub owned: &'a [OwnedLoadBalancer],
}

/// What it would ask for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Preview {
    /// The Nodes that take traffic.
    pub targets: Vec<Target>,
    /// The changes, which can all be asked for in one call, in the order of their objects.
    pub changes: Vec<PlannedChange>,
    /// Services of which the cloud isn't told since something is wrong with them, as `namespace/name`, and what.
    pub refused: Vec<(String, String)>,
    /// What the cloud has, by its name, that can't be told to be anybody's. It stays.
    pub unattributed: Vec<String>,
    /// Live Services of which the cloud has something of this cluster's although their class isn't ours, as `namespace/name`,
    /// and their classes. It stays.
    pub class_conflicts: Vec<(String, String)>,
}

/// A change, and why it is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedChange {
    /// It.
    pub change: ServiceChange,
    /// The Service as `namespace/name`, or the cloud's name for an orphan.
    pub object: String,
    /// Why.
    pub reason: Reason,
    /// Whether the cloud may have something of it.
    pub may_exist: bool,
}

/// Why something is asked of the cloud.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Reason {
    /// There is none yet, as far as the Service says.
    #[error("type LoadBalancer without a load balancer")]
    Missing,
    /// It has one, which is looked at.
    #[error("its targets or what it wants differ from the cloud")]
    Differs,
    /// The Service is being deleted.
    #[error("it is being deleted")]
    Deleting,
    /// The Service wants none any more.
    #[error("its type is not LoadBalancer any more")]
    Unwanted,
    /// The Service is gone.
    #[error("orphan of service {service}, which is gone")]
    Orphan {
        /// The Service, by name where the cloud tells it, else by UID.
        service: String,
    },
}

/// Asks the reconciler of a leader that begins now for all that it wants done.
pub fn preview(world: &Inputs<'_>, now: Instant) -> Preview {
    let targets = Arc::new(Targets::of(world.nodes, world.schemes, world.node_labels));
    let table = targets.table().to_vec();
    let (changes, ListingReport { new_unattributed: unattributed, new_class_conflicts: class_conflicts, .. }) =
        work(world, targets, now);
    let facts: HashMap<&str, &ServiceFacts> =
        world.services.iter().map(|facts| (&*facts.service.uid, &**facts)).collect();
    let is_refused =
        |facts: &&Arc<ServiceFacts>| wants_ours(facts, world.classes) && !facts.problems.is_empty();
    let refused = world.services.iter().filter(is_refused);
    let mut changes: Vec<_> = changes.into_iter().map(|change| expected(change, &facts)).collect();
    // The reconciler goes by UIDs and by what is urgent; whoever compares two outlooks by names.
    changes.sort_by(|a, b| a.object.cmp(&b.object));
    Preview {
        targets: table,
        changes,
        refused: refused.map(|facts| (facts.key(), facts.problems.join("; "))).collect(),
        unattributed,
        class_conflicts,
    }
}

/// The changes that the reconciler wants within the horizon, and what it reports.
fn work(world: &Inputs<'_>, targets: Arc<Targets>, now: Instant) -> (Vec<ServiceChange>, ListingReport) {
    // All in as few calls as they fit into: who asks the provider divides them.
    let terms = ServiceRequirements {
        largest_batch: usize::MAX,
        allows_concurrent_calls: false,
        ..world.terms.clone()
    };
    let settings = Settings {
        cluster: world.cluster.clone(),
        classes: world.classes.to_vec(),
        audit_period: PUT_OFF,
        calls: 1,
    };
    let mut reconciler = Reconciler::new(terms, &settings, now);
    for facts in world.services.iter().filter(|facts| facts.is_load_balancer || facts.has_finalizer()) {
        reconciler.observe(facts, now);
    }
    reconciler.observe_targets(targets, now);
    let (mut asked, mut changes, mut report) = (HashSet::new(), Vec::new(), ListingReport::default());
    let mut at = now;
    loop {
        for work in reconciler.next(at, 0.0) {
            match work {
                Work::Write { facts, write } => wrote(&mut reconciler, &facts, &write, at),
                Work::Call(call) => {
                    let new =
                        call.keys.iter().zip(&call.changes).filter(|(key, _)| asked.insert((*key).clone()));
                    changes.extend(new.map(|(_, change)| change.clone()));
                    put_off(&mut reconciler, &call, at);
                }
                Work::ListOwned => report = listed(&mut reconciler, world, at),
            }
        }
        match reconciler.next_wake() {
            Some(wakes) if wakes <= now + HORIZON => at = at.max(wakes),
            _ => return (changes, report),
        }
    }
}

/// A write to a Service succeeds. Only the finalizer leads to anything at the cloud.
fn wrote(reconciler: &mut Reconciler, facts: &Arc<ServiceFacts>, write: &Write, now: Instant) {
    if *write == Write::AddFinalizer {
        let mut written = ServiceFacts::clone(facts);
        written.finalizers.push(FINALIZER_LOAD_BALANCER.to_owned());
        reconciler.on_write_result(&facts.service.uid, Ok(&Arc::new(written)), now, 0.0);
    }
}

fn put_off(reconciler: &mut Reconciler, call: &Call, now: Instant) {
    let later = CloudError::new(ErrorKind::Throttled(Some(PUT_OFF)), "later");
    reconciler.on_call_result(call, Err(later), now, 0.0);
}

/// The cloud's list is there, and with it Services that only it tells of. And what it shows.
fn listed(reconciler: &mut Reconciler, world: &Inputs<'_>, now: Instant) -> ListingReport {
    let listing = Listing { owned: world.owned.to_vec(), present: world.present.clone() };
    let report = reconciler.on_list_result(Ok(&listing), now, 0.0);
    for facts in world.services.iter().filter(|facts| report.unknown.contains(&facts.key())) {
        reconciler.observe(facts, now);
    }
    report
}

fn expected(change: ServiceChange, facts: &HashMap<&str, &ServiceFacts>) -> PlannedChange {
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

    fn cluster() -> Cluster {
        Cluster { name: "kubernetes".to_owned(), uid: Some("ours".to_owned()) }
    }

    fn balanced(name: &str, change: impl FnOnce(&mut ServiceFacts)) -> Arc<ServiceFacts> {
        let mut facts = ServiceFacts::balanced(name);
        change(&mut facts);
        Arc::new(facts)
    }

    /// As a Service is that has its load balancer.
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
            service_uid: Some(format!("uid-{service}")),
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
        let world = Inputs {
            cluster: &cluster(),
            classes: &["ours".to_owned()],
            terms: &ServiceRequirements::default(),
            schemes: &["sim".to_owned()],
            node_labels: &[],
            nodes: &[node],
            services,
            present: &present,
            owned,
        };
        preview(&world, Instant::now())
    }

    /// What is asked for about one Service, in words.
    fn told(preview: &Preview) -> Vec<String> {
        let told = preview.changes.iter().map(|PlannedChange { change, object, reason, may_exist }| {
            let verb = match change.action {
                ServiceAction::Ensure(_) => "ensure",
                ServiceAction::UpdateTargets(_) => "update",
                ServiceAction::Delete(_) => "delete",
                ServiceAction::RemoveOrphan(_) => "remove",
            };
            format!("{verb} {object}: {reason}{}", if *may_exist { "" } else { " (new)" })
        });
        told.collect()
    }

    #[test]
    fn each_service_says_what_is_asked_for_it_and_why() {
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
            assert_eq!(told(&preview), expected, "{name}");
            let refused =
                if name == "invalid" { vec![("default/a".to_owned(), "no".to_owned())] } else { vec![] };
            assert_eq!((preview.refused, preview.targets.len()), (refused, 1), "{name}");
        }
    }

    #[test]
    fn what_only_the_cloud_tells_of_is_removed_if_it_is_ours_and_else_reported() {
        let lost = balanced("lost", |it| it.is_load_balancer = false);
        let theirs = balanced("theirs", |it| it.service.class = Some("theirs".to_owned()));
        let there = [
            owned("lb-gone", Some("ours"), "gone"),
            owned("lb-lost", Some("ours"), "lost"),
            owned("lb-theirs", Some("ours"), "theirs"),
            owned("lb-nobodys", None, "gone"),
        ];
        let preview = of(&[lost, theirs], &there);
        let told = told(&preview);
        let expected = [
            "delete default/lost: its type is not LoadBalancer any more",
            "remove lb-gone: orphan of service default/gone, which is gone",
        ];
        assert_eq!(
            (told, preview.unattributed),
            (expected.map(str::to_owned).to_vec(), vec!["lb-nobodys".to_owned()])
        );
        assert_eq!(preview.class_conflicts, [("default/theirs".to_owned(), "theirs".to_owned())]);
    }

    #[test]
    fn a_thousand_services_are_asked_for_once_each() {
        let changes: [fn(&mut ServiceFacts); 2] = [served, |_| {}];
        let service = |number: usize| balanced(&format!("s{number}"), changes[number % 2]);
        let services: Vec<_> = (0..1_000).map(service).collect();
        let preview = of(&services, &[]);
        let names: HashSet<_> = preview.changes.iter().map(|change| change.object.clone()).collect();
        assert_eq!((preview.changes.len(), names.len()), (1_000, 1_000));
    }
}
