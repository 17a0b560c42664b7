//! Compares the desired routes with the routes in the cloud's table, and plans the changes.
//!
//! A route belongs to the cluster if its range lies in the cluster's CIDRs and it isn't labeled with another cluster's UID. All
//! other routes in the table are left alone: clusters with overlapping CIDRs may share a table. As long as the UID of this
//! cluster isn't known, a labeled route is never deleted. The rules are upstream's where clouds rely on them, with these differences. A range that two Nodes claim goes to one of them, and
//! the other gets an event. A range that a Node names twice counts once. Ranges are compared as ranges and not as texts. A route
//! that may be correct is never replaced.
//!
//! Pure.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use ipnet::IpNet;
use pileus_cloud::{Route, is_uid_of};

use super::elsewhere::Elsewhere;
pub(super) use super::known::KnownRoute;
use super::memory::create_key;
use super::pending::PendingChanges;
use crate::facts::node::NodeFacts;
use crate::well_known::REASON_ROUTE_CREATED;

/// The inputs of a plan.
#[derive(Debug, Clone, Copy)]
pub(super) struct PlanInputs<'a> {
    /// All Nodes of the cluster.
    pub(super) nodes: &'a [Arc<NodeFacts>],
    /// The ranges of Nodes that can't be read, whose routes stay as they are.
    pub(super) unreadable_ranges: &'a HashSet<IpNet>,
    /// The name of the provider. Only its Nodes get routes.
    pub(super) provider: &'a str,
    /// The UID of the cluster; none where it isn't known.
    pub(super) cluster_uid: Option<&'a str>,
    /// The cloud's table.
    pub(super) routes: &'a [KnownRoute],
    /// The cluster's CIDRs, at most one of each family.
    pub(super) cluster_ranges: &'a [IpNet],
    /// Whether Nodes wait for their routes before they are initialized.
    pub(super) nodes_wait: bool,
    /// The changes that aren't done.
    pub(super) pending: &'a PendingChanges,
}

/// A desired route: a Node and one of its Pod CIDRs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct WantedRoute {
    /// The Node.
    pub(super) node: Arc<NodeFacts>,
    /// The range.
    pub(super) range: IpNet,
}

/// What has a range that a Node wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum RangeHolder {
    /// The Node of this name.
    Node(String),
    /// A route of the cluster with this UID.
    Cluster(String),
}

impl fmt::Display for RangeHolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Node(name) => write!(f, "node {name} has the same Pod CIDR; each node needs its own"),
            Self::Cluster(uid) => write!(
                f,
                "the route table has a route of another cluster for it (UID {uid}); each cluster needs its own Pod CIDRs"
            ),
        }
    }
}

/// The planned changes.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Plan {
    /// Routes of the cluster that no Node wants, or that lead elsewhere.
    pub(super) deletes: Vec<KnownRoute>,
    /// Missing routes.
    pub(super) creates: Vec<WantedRoute>,
    /// Ranges that a Node doesn't get, with what has them.
    pub(super) conflicts: Vec<(WantedRoute, RangeHolder)>,
    /// By Node, all ranges that need a route for its network to be available. A Node with an empty list has lost its ranges;
    /// as with upstream, its network is unavailable.
    pub(super) networks: Vec<(Arc<NodeFacts>, Vec<IpNet>)>,
}

/// Compares the desired routes with the known ones.
pub(super) fn plan(inputs: PlanInputs<'_>) -> Plan {
    let mut by_range: HashMap<IpNet, Vec<usize>> = HashMap::new();
    let mut foreign_ranges: HashMap<IpNet, &str> = HashMap::new();
    for (index, known) in inputs.routes.iter().enumerate() {
        match (known.destination, known.other_cluster(inputs.cluster_uid)) {
            (Some(range), Some(cluster)) => drop(foreign_ranges.insert(range, cluster)),
            (Some(range), None) => by_range.entry(range).or_default().push(index),
            (None, _) => {}
        }
    }
    let mut plan = Plan::default();
    let mut is_kept = vec![false; inputs.routes.len()];
    let owners = owners(inputs, &by_range);
    let is_other = |known: &KnownRoute| known.other_cluster(inputs.cluster_uid).is_some();
    let within = inputs.routes.iter().filter(|known| inputs.is_within(known) && !is_other(known));
    let is_named: HashSet<&str> = within.filter_map(|known| known.route.node.as_deref()).collect();
    for node in inputs.nodes.iter().filter(|node| inputs.serves(node)) {
        let mut needed = Vec::new();
        for range in &node.pod_cidrs {
            let wanted = WantedRoute { node: Arc::clone(node), range: *range };
            needed.push(*range);
            if let Some(owner) = owners.get(range).filter(|owner| owner.name != node.name) {
                plan.conflicts.push((wanted, RangeHolder::Node(owner.name.clone())));
                continue;
            }
            let mut is_missing = true;
            for index in by_range.get(range).into_iter().flatten() {
                let (Some(known), Some(kept)) = (inputs.routes.get(*index), is_kept.get_mut(*index)) else {
                    continue;
                };
                let is_right = known.leads_to(node);
                is_missing &= !is_right;
                *kept |= is_right || known.may_lead_to(node);
            }
            // A cloud may list a route before it works, or although it never will.
            is_missing |= inputs.pending.has_begun(&create_key(&wanted));
            // A Node whose instance isn't known yet gets its routes later, and a Node that is being deleted gets none.
            if is_missing && has_instance(node, inputs.nodes_wait) && !node.is_deleting {
                match foreign_ranges.get(range) {
                    Some(cluster) => {
                        plan.conflicts.push((wanted, RangeHolder::Cluster((*cluster).to_owned())));
                    }
                    None => plan.creates.push(wanted),
                }
            }
        }
        let has_lost_all = needed.is_empty() && is_named.contains(&*node.name);
        if (!needed.is_empty() && has_instance(node, inputs.nodes_wait)) || has_lost_all {
            plan.networks.push((Arc::clone(node), needed));
        }
    }
    let foreign: Vec<_> = inputs.nodes.iter().filter(|node| !inputs.serves(node)).collect();
    // A route for a Node of another provider is never deleted.
    let may_delete =
        |known: &&KnownRoute| inputs.may_own(known) && !foreign.iter().any(|node| known.is_for(node));
    let unwanted = inputs.routes.iter().zip(is_kept).filter_map(|(known, kept)| (!kept).then_some(known));
    plan.deletes = unwanted.filter(may_delete).cloned().collect();
    plan
}

/// The owner of each range. Of several Nodes that claim a range, it is the one with the route, else the oldest.
fn owners<'a>(
    inputs: PlanInputs<'a>,
    by_range: &HashMap<IpNet, Vec<usize>>,
) -> HashMap<IpNet, &'a NodeFacts> {
    let mut owners: HashMap<IpNet, &NodeFacts> = HashMap::new();
    for node in inputs.nodes {
        for range in &node.pod_cidrs {
            let has_it = |node: &NodeFacts| {
                by_range
                    .get(range)
                    .is_some_and(|there| there.iter().any(|index| inputs.leads_to(*index, node)))
            };
            let rank = |node: &NodeFacts| (!has_it(node), node.created_at, node.name.clone());
            owners
                .entry(*range)
                .and_modify(|owner| {
                    if rank(node) < rank(owner) {
                        *owner = node;
                    }
                })
                .or_insert(node);
        }
    }
    owners
}

impl PlanInputs<'_> {
    fn leads_to(&self, index: usize, node: &NodeFacts) -> bool {
        self.routes.get(index).is_some_and(|route| route.leads_to(node))
    }

    /// Whether a route is this cluster's to delete: see the documentation of this module.
    fn may_own(&self, known: &KnownRoute) -> bool {
        let is_ours = |label: &String| self.cluster_uid.is_some_and(|ours| is_uid_of(label, ours));
        self.is_within(known) && known.route.cluster_uid.as_ref().is_none_or(is_ours)
    }

    /// Whether a route lies in the cluster's CIDRs, and isn't that of a Node that can't be read.
    fn is_within(&self, known: &KnownRoute) -> bool {
        known.destination.is_some_and(|range| {
            is_in_cluster(self.cluster_ranges, range) && !self.unreadable_ranges.contains(&range)
        })
    }

    fn serves(&self, node: &NodeFacts) -> bool {
        node.belongs_to(self.provider)
    }
}

/// Whether the instance of a Node is known: because it is initialized or, where that waits for the routes, because it has a
/// provider ID. That of a Node whose provider ID another one keeps isn't.
pub(super) fn has_instance(node: &NodeFacts, nodes_wait: bool) -> bool {
    node.twin.is_none() && (!node.is_uninitialized() || (nodes_wait && node.provider_id.is_some()))
}

/// Whether a range lies in one of the cluster's CIDRs (R01 to R12). Upstream only checks the first and last address. So it would
/// delete a wider route that begins where a CIDR begins.
pub(super) fn is_in_cluster(cluster_ranges: &[IpNet], range: IpNet) -> bool {
    cluster_ranges.iter().any(|ours| ours.contains(&range))
}

/// The route that a Node needs for a range. The name hint is the Node's UID, as with upstream. Since a Node may have two ranges,
/// the range follows, in characters that clouds allow in names. `label_keys` are those that the provider reads.
pub(super) fn desired_route(wanted: &WantedRoute, label_keys: &[String]) -> Route {
    let WantedRoute { node, range } = wanted;
    let suffix = range.to_string().replace(['.', ':', '/'], "-");
    Route {
        name_hint: format!("{}-{suffix}", node.uid),
        node: node.name.clone(),
        target: node.provider_id.clone(),
        addresses: node.addresses.clone(),
        labels: node.labels_of(label_keys),
        destination: *range,
    }
}

/// A digest of everything that determines a Node's routes and their condition. A change of the Node that leaves it equal needs no
/// pass. Comparing digests avoids keeping the old facts.
pub(super) fn digest(node: &NodeFacts, label_keys: &[String]) -> u64 {
    let mut hasher = DefaultHasher::new();
    let NodeFacts { twin, owner, pod_cidrs, is_deleting, network_unavailable, .. } = node;
    let network = network_unavailable.as_ref().map(|condition| (&condition.status, &condition.reason));
    (twin, owner, pod_cidrs, is_deleting, node.is_uninitialized(), network).hash(&mut hasher);
    route_digest(node, label_keys).hash(&mut hasher);
    hasher.finish()
}

/// A digest of what the provider is told about a Node when it creates a route, except the range.
pub(super) fn route_digest(node: &NodeFacts, label_keys: &[String]) -> u64 {
    let mut hasher = DefaultHasher::new();
    let NodeFacts { name, uid, provider_id, addresses, .. } = node;
    (name, uid, provider_id, node.labels_of(label_keys)).hash(&mut hasher);
    for address in addresses {
        (address.kind.as_str(), &address.value).hash(&mut hasher);
    }
    hasher.finish()
}

/// The Nodes whose condition must be written, each with whether its network is available: every range of the Node has a route that
/// the cloud doesn't still make, or needs none.
pub(super) fn conditions(
    plan: &Plan,
    routes: &[KnownRoute],
    elsewhere: &Elsewhere,
    pending: &PendingChanges,
) -> Vec<(Arc<NodeFacts>, bool)> {
    let mut by_range: HashMap<IpNet, Vec<&KnownRoute>> = HashMap::new();
    for known in routes {
        if let Some(range) = known.destination {
            by_range.entry(range).or_default().push(known);
        }
    }
    let unfinished = plan.creates.iter().filter(|wanted| pending.has_begun(&create_key(wanted)));
    let unfinished: HashSet<_> = unfinished.map(|wanted| (&*wanted.node.uid, wanted.range)).collect();
    let has_route = |node: &NodeFacts, range: &IpNet| {
        let mut there = by_range.get(range).into_iter().flatten();
        let is_there = there.any(|route| route.leads_to(node)) && !unfinished.contains(&(&*node.uid, *range));
        is_there || elsewhere.has(node, *range)
    };
    let networks = plan.networks.iter().map(|(node, ranges)| {
        (Arc::clone(node), !ranges.is_empty() && ranges.iter().all(|range| has_route(node, range)))
    });
    networks.filter(|(node, is_available)| !has_condition(node, *is_available)).collect()
}

/// Whether the Node has this condition already, with our reason. Upstream compares the reason since 1.36 (U-21, R34 to R42).
pub(super) fn has_condition(node: &NodeFacts, is_available: bool) -> bool {
    let (status, reason) = condition(is_available);
    node.network_unavailable.as_ref().is_some_and(|found| found.status == status && found.reason == reason)
}

/// The status and reason of the condition `NetworkUnavailable`.
pub(super) fn condition(is_available: bool) -> (&'static str, &'static str) {
    if is_available { ("False", REASON_ROUTE_CREATED) } else { ("True", "NoRouteCreated") }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use pileus_cloud::{Address, AddressKind, ListedRoute, ProviderId, RouteProgress};
    use proptest::prelude::*;
    use std::time::Duration;
    use tokio::time::Instant;

    use super::*;
    use crate::claims::NodeOwner;
    use crate::model::PROVIDER;

    const UID: &str = "0f3c7a1e-52b4-4d6e-9a80-1c2d3e4f5a6b";
    const BEGINNING: &str = "0F3C7A1E52B44D6E9A801C2D";

    fn node(name: &str, range: &str, created: i64) -> Arc<NodeFacts> {
        Arc::new(NodeFacts {
            taints: Vec::new(),
            provider_id: Some(ProviderId::parse(&format!("sim://{name}")).unwrap()),
            pod_cidrs: vec![range.parse().unwrap()],
            created_at: Timestamp::from_second(created).unwrap(),
            addresses: vec![Address::new(AddressKind::InternalIp, format!("address of {name}"))],
            ..NodeFacts::registered(name)
        })
    }

    fn listed(range: &str) -> KnownRoute {
        KnownRoute::listed(ListedRoute {
            name: range.to_owned(),
            node: None,
            target: None,
            addresses: Vec::new(),
            destination: range.to_owned(),
            cluster_uid: None,
            is_blackhole: false,
            extra: Vec::new(),
        })
    }

    fn to(range: &str, change: impl FnOnce(&mut ListedRoute)) -> KnownRoute {
        let mut route = listed(range).route;
        change(&mut route);
        KnownRoute::listed(route)
    }

    fn planned(nodes: &[Arc<NodeFacts>], routes: &[KnownRoute]) -> Plan {
        let cluster = ["10.0.0.0/8".parse().unwrap()];
        let unreadable_ranges = HashSet::new();
        plan(PlanInputs {
            nodes,
            unreadable_ranges: &unreadable_ranges,
            provider: PROVIDER,
            cluster_uid: Some("ours"),
            routes,
            cluster_ranges: &cluster,
            nodes_wait: false,
            pending: &PendingChanges::default(),
        })
    }

    #[test]
    fn a_route_of_another_cluster_is_left_alone_and_blocks_its_range() {
        let unreadable_ranges = HashSet::new();
        let cluster = ["10.0.0.0/8".parse().unwrap()];
        let node = node("a", "10.0.1.0/24", 0);
        let labeled = |range: &str, uid: Option<&str>, leads_to_node| {
            to(range, |route| {
                route.cluster_uid = uid.map(str::to_owned);
                (route.node, route.target) = if leads_to_node {
                    (Some("a".to_owned()), node.provider_id.clone())
                } else {
                    (None, None)
                };
            })
        };
        // Our UID, the label, whether the route leads to the Node, and the deletions, creations and conflicts: for the range of
        // the Node, and for one that no Node has.
        for (ours, label, leads_to_node, its_own, unwanted) in [
            (Some("ours"), None, true, (0, 0, 0), 1),
            (Some("ours"), None, false, (1, 1, 0), 1),
            (Some("ours"), Some("ours"), true, (0, 0, 0), 1),
            (Some("ours"), Some("ours"), false, (1, 1, 0), 1),
            (Some("ours"), Some("other"), true, (0, 0, 1), 0),
            (Some("ours"), Some("other"), false, (0, 0, 1), 0),
            (Some(UID), Some(BEGINNING), true, (0, 0, 0), 1),
            (Some(UID), Some(BEGINNING), false, (1, 1, 0), 1),
            (Some(UID), Some(&BEGINNING[..23]), true, (0, 0, 1), 0),
            (Some(UID), Some("0f3c7a1e52b44d6e9a801c2e"), true, (0, 0, 1), 0),
            (None, Some(BEGINNING), false, (0, 1, 0), 0),
            (None, Some("other"), true, (0, 0, 0), 0),
            (None, Some("other"), false, (0, 1, 0), 0),
            (None, None, false, (1, 1, 0), 1),
        ] {
            let plan = |routes: &[KnownRoute]| {
                plan(PlanInputs {
                    nodes: &[Arc::clone(&node)],
                    unreadable_ranges: &unreadable_ranges,
                    provider: PROVIDER,
                    cluster_uid: ours,
                    routes,
                    cluster_ranges: &cluster,
                    nodes_wait: false,
                    pending: &PendingChanges::default(),
                })
            };
            let Plan { deletes, creates, conflicts, .. } =
                plan(&[labeled("10.0.1.0/24", label, leads_to_node)]);
            let counts = (deletes.len(), creates.len(), conflicts.len());
            assert_eq!(counts, its_own, "{ours:?} {label:?} {leads_to_node}");
            let deletes = plan(&[labeled("10.0.9.0/24", label, false)]).deletes;
            assert_eq!(deletes.len(), unwanted, "{ours:?} {label:?}");
        }
    }

    #[test]
    fn a_route_is_correct_only_by_everything_that_the_cloud_reports() {
        let node = node("a", "10.0.1.0/24", 0);
        let id = |text: &str| Some(ProviderId::parse(text).unwrap());
        let hop = |value: &str| vec![Address::new(AddressKind::InternalIp, value)];
        let range = "10.0.1.0/24";
        for (name, route, is_right) in [
            ("by name", to(range, |route| route.node = Some("a".to_owned())), true),
            ("by instance", to(range, |route| route.target = id("sim://a")), true),
            ("by address", to(range, |route| route.addresses = hop("address of a")), true),
            ("another name", to(range, |route| route.node = Some("b".to_owned())), false),
            ("another instance", to(range, |route| route.target = id("sim://b")), false),
            (
                "the name of a former Node",
                to(range, |route| {
                    route.node = Some("a".to_owned());
                    route.target = id("sim://old");
                }),
                false,
            ),
            (
                "an old address",
                to(range, |route| {
                    route.node = Some("a".to_owned());
                    route.addresses = hop("old");
                }),
                false,
            ),
            (
                "a blackhole",
                to(range, |route| {
                    route.node = Some("a".to_owned());
                    route.is_blackhole = true;
                }),
                false,
            ),
            ("nothing reported", listed(range), false),
        ] {
            let plan = planned(std::slice::from_ref(&node), std::slice::from_ref(&route));
            assert_eq!(plan.creates.is_empty(), is_right, "{name}");
            assert_eq!(plan.deletes.is_empty(), is_right, "{name}");
        }
    }

    #[test]
    fn a_range_that_two_nodes_claim_goes_to_the_one_with_the_route_or_the_oldest() {
        let (a, b) = (node("a", "10.0.1.0/24", 5), node("b", "10.0.1.0/24", 3));
        let plan = planned(&[a.clone(), b.clone()], &[]);
        let wanted =
            |node: &Arc<NodeFacts>| WantedRoute { node: node.clone(), range: "10.0.1.0/24".parse().unwrap() };
        assert_eq!(
            (plan.creates, plan.conflicts),
            (vec![wanted(&b)], vec![(wanted(&a), RangeHolder::Node("b".to_owned()))])
        );
        let has = KnownRoute::created(&desired_route(&wanted(&a), &[]));
        let plan = planned(&[a, b.clone()], &[has]);
        assert_eq!(
            (plan.creates, plan.conflicts),
            (vec![], vec![(wanted(&b), RangeHolder::Node("a".to_owned()))])
        );
        assert_eq!(plan.deletes, []);
    }

    #[test]
    fn routes_outside_the_cluster_stay() {
        let other = Arc::new((*node("x", "10.0.9.0/24", 0)).clone().unserved("other://x"));
        for (name, route) in [
            ("outside", listed("192.168.0.0/24")),
            ("around", listed("0.0.0.0/0")),
            ("around, from the same first address", listed("10.0.0.0/7")),
            ("invalid CIDR", listed("a prefix list")),
            ("of another provider's Node", to("10.0.9.0/24", |route| route.node = Some("x".to_owned()))),
        ] {
            assert_eq!(planned(std::slice::from_ref(&other), &[route]).deletes, [], "{name}");
        }
        assert_eq!(planned(&[other], &[listed("10.0.9.0/24")]).deletes.len(), 1);
    }

    #[test]
    fn a_node_without_pod_cidr_lacks_a_route_only_if_it_had_one() {
        let bare = Arc::new(NodeFacts { pod_cidrs: Vec::new(), ..(*node("a", "10.0.1.0/24", 0)).clone() });
        for (range, expected) in [("10.0.1.0/24", vec![(bare.clone(), false)]), ("192.168.0.0/24", vec![])] {
            let routes = [to(range, |route| route.node = Some("a".to_owned()))];
            assert_eq!(
                conditions(
                    &planned(std::slice::from_ref(&bare), &routes),
                    &routes,
                    &Elsewhere::default(),
                    &PendingChanges::default()
                ),
                expected
            );
        }
    }

    #[test]
    fn a_range_without_a_route_is_available_only_if_the_provider_needs_none() {
        let node = node("a", "10.0.1.0/24", 0);
        let range = node.pod_cidrs[0];
        let right = to("10.0.1.0/24", |route| route.node = Some("a".to_owned()));
        let wrong = to("10.0.1.0/24", |route| route.node = Some("b".to_owned()));
        for (row, route, outcome, is_available) in [
            ("no route", None, RouteProgress::Done, false),
            ("none needed", None, RouteProgress::Elsewhere, true),
            ("a route beside", Some(right), RouteProgress::Elsewhere, true),
            ("a route to another Node", Some(wrong), RouteProgress::Elsewhere, true),
        ] {
            let mut elsewhere = Elsewhere::default();
            let wanted = WantedRoute { node: Arc::clone(&node), range };
            elsewhere.on_outcome(&wanted, 1, &Ok(outcome), Instant::now(), Duration::from_secs(1));
            let routes = Vec::from_iter(route);
            let plan = planned(std::slice::from_ref(&node), &routes);
            assert_eq!(
                conditions(&plan, &routes, &elsewhere, &PendingChanges::default()),
                [(Arc::clone(&node), is_available)],
                "{row}"
            );
        }
    }

    #[test]
    fn a_desired_route_has_the_labels_that_the_provider_reads() {
        let labels = ["example.com/managed", "pool"].map(|key| (key.to_owned(), "1".to_owned())).into();
        let node = Arc::new(NodeFacts { labels, ..(*node("a", "10.0.1.0/24", 0)).clone() });
        let wanted = WantedRoute { range: node.pod_cidrs[0], node };
        let labels = desired_route(&wanted, &["example.com/*".to_owned()]).labels;
        assert_eq!(labels, [("example.com/managed".to_owned(), "1".to_owned())]);
    }

    #[test]
    fn an_uninitialized_or_deleted_node_gets_no_route_and_loses_none() {
        let plain = node("a", "10.0.1.0/24", 0);
        let new = Arc::new(NodeFacts { taints: NodeFacts::registered("a").taints, ..(*plain).clone() });
        let going = Arc::new(NodeFacts { is_deleting: true, ..(*plain).clone() });
        let has = to("10.0.1.0/24", |route| route.node = Some("a".to_owned()));
        for node in [new, going] {
            let plan = planned(std::slice::from_ref(&node), &[]);
            assert_eq!((plan.creates, plan.deletes), (vec![], vec![]));
            assert_eq!(planned(&[node], std::slice::from_ref(&has)).deletes, []);
        }
        let plan = planned(&[plain], &[]);
        assert_eq!(plan.creates.len(), 1);
    }

    #[test]
    fn a_route_known_only_by_its_instance_stays_until_the_nodes_instance_is_known() {
        let known = node("a", "10.0.1.0/24", 0);
        let new = Arc::new(NodeFacts {
            provider_id: None,
            taints: NodeFacts::registered("a").taints,
            ..(*known).clone()
        });
        let leads_to = |instance: &str| {
            let instance = ProviderId::parse(&format!("sim://{instance}")).unwrap();
            to("10.0.1.0/24", |route| route.target = Some(instance))
        };
        for (node, instance, is_deleted) in
            [(&new, "a", false), (&known, "a", false), (&new, "b", false), (&known, "b", true)]
        {
            let route = leads_to(instance);
            let plan = planned(std::slice::from_ref(node), std::slice::from_ref(&route));
            assert_eq!(!plan.deletes.is_empty(), is_deleted, "{node:?} {instance}");
        }
    }

    #[test]
    fn the_digest_has_only_the_facts_that_matter_to_routes() {
        let (old, keys) = (node("a", "10.0.1.0/24", 0), ["example.com/*".to_owned()]);
        let labeled = |key: &str| {
            let labels = [(key.to_owned(), "1".to_owned())].into();
            NodeFacts { labels, ..(*old).clone() }
        };
        let heartbeat = NodeFacts { resource_version: "9".to_owned(), ..labeled("pool") };
        assert_eq!(digest(&old, &keys), digest(&heartbeat, &keys));
        let network =
            crate::facts::node::NetworkUnavailable { status: "True".to_owned(), reason: String::new() };
        for new in [
            NodeFacts { uid: "other".to_owned(), ..(*old).clone() },
            NodeFacts { provider_id: None, ..(*old).clone() },
            NodeFacts { owner: NodeOwner::Provider("other".to_owned()), ..(*old).clone() },
            NodeFacts { pod_cidrs: Vec::new(), ..(*old).clone() },
            NodeFacts { addresses: Vec::new(), ..(*old).clone() },
            NodeFacts { is_deleting: true, ..(*old).clone() },
            NodeFacts { taints: NodeFacts::registered("a").taints, ..(*old).clone() },
            NodeFacts { network_unavailable: Some(network), ..(*old).clone() },
            labeled("example.com/managed"),
        ] {
            assert_ne!(digest(&old, &keys), digest(&new, &keys), "{new:?}");
        }
    }

    fn nodes() -> impl Strategy<Value = Vec<Arc<NodeFacts>>> {
        let one = (0..6_u8, proptest::collection::vec(0..8_u8, 0..3), any::<bool>());
        proptest::collection::btree_map(0..8_u8, one, 0..8).prop_map(|nodes| {
            let made = nodes.into_iter().map(|(name, (created, ranges, is_waiting))| {
                let mut facts = (*node(&format!("n{name}"), "10.0.0.0/24", i64::from(created))).clone();
                let ranges = ranges.into_iter().map(|range| format!("10.0.{range}.0/24").parse().unwrap());
                facts.pod_cidrs = ranges.collect();
                facts.pod_cidrs.dedup();
                if is_waiting && created == 0 {
                    facts.taints = NodeFacts::registered("x").taints;
                }
                Arc::new(facts)
            });
            made.collect()
        })
    }

    fn routes() -> impl Strategy<Value = Vec<KnownRoute>> {
        let one = (0..12_u8, proptest::option::of(0..8_u8), proptest::option::of(0..8_u8), any::<bool>());
        proptest::collection::vec(one, 0..12).prop_map(|routes| {
            let made = routes.into_iter().map(|(range, name, target, is_blackhole)| {
                to(&format!("10.0.{range}.0/24"), |route| {
                    route.node = name.map(|name| format!("n{name}"));
                    route.target = target.map(|name| ProviderId::parse(&format!("sim://n{name}")).unwrap());
                    route.is_blackhole = is_blackhole;
                })
            });
            made.collect()
        })
    }

    proptest! {
        #[test]
        fn a_plan_that_is_applied_leaves_nothing_to_do(nodes in nodes(), mut routes in routes()) {
            let first = planned(&nodes, &routes);
            routes.retain(|route| !first.deletes.contains(route));
            routes.extend(first.creates.iter().map(|wanted| KnownRoute::created(&desired_route(wanted, &[]))));
            let second = planned(&nodes, &routes);
            prop_assert_eq!(&second.deletes, &[]);
            prop_assert_eq!(&second.creates, &[]);
            prop_assert_eq!(&second.conflicts, &first.conflicts);
            for (node, is_available) in conditions(&second, &routes, &Elsewhere::default(), &PendingChanges::default()) {
                let is_contested = second.conflicts.iter().any(|(wanted, _)| wanted.node.name == node.name);
                prop_assert_eq!(is_available, !node.pod_cidrs.is_empty() && !is_contested && !node.is_deleting);
            }
        }

        #[test]
        fn no_route_is_created_twice_or_while_a_correct_one_exists(nodes in nodes(), routes in routes()) {
            let plan = planned(&nodes, &routes);
            let mut ranges: Vec<_> = plan.creates.iter().map(|wanted| wanted.range).collect();
            let all = ranges.len();
            ranges.sort();
            ranges.dedup();
            prop_assert_eq!(ranges.len(), all);
        }
    }

    fn to_instance(range: &str, instance: &str) -> KnownRoute {
        to(range, |route| route.target = Some(ProviderId::parse(instance).unwrap()))
    }

    #[test]
    fn a_route_to_another_instance_is_deleted_unless_the_nodes_own_is_unknown_before_initialization() {
        let known = node("a", "10.0.1.0/24", 0);
        let route = to_instance("10.0.1.0/24", "sim://b");
        for (has_instance, is_new, is_deleted) in
            [(true, true, true), (false, false, true), (false, true, false)]
        {
            let node = Arc::new(NodeFacts {
                provider_id: known.provider_id.clone().filter(|_| has_instance),
                taints: if is_new { NodeFacts::registered("a").taints } else { Vec::new() },
                ..(*known).clone()
            });
            let plan = planned(&[node], std::slice::from_ref(&route));
            assert_eq!(!plan.deletes.is_empty(), is_deleted, "{has_instance} {is_new}");
        }
    }

    #[test]
    fn a_route_to_another_providers_instance_stays_and_one_to_no_nodes_instance_is_deleted() {
        let foreign = Arc::new((*node("a", "10.0.1.0/24", 0)).clone().unserved("other://a"));
        for (instance, is_deleted) in [("other://a", false), ("sim://gone", true)] {
            let route = to_instance("10.0.2.0/24", instance);
            let plan = planned(&[Arc::clone(&foreign)], std::slice::from_ref(&route));
            assert_eq!(!plan.deletes.is_empty(), is_deleted, "{instance}");
        }
    }
}
