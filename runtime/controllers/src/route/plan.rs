//! Which routes there should be, against those that there are. Pure: Nodes and routes in, changes out.
//!
//! A route is ours if its range lies in the cluster's ranges; whatever else is in the table is somebody else's and stays
//! (ccm-behaviour 5.2, 5.3). Upstream's differences are kept where clouds rely on them; what is better here: a range that
//! two Nodes claim goes to one of them and the other is told, a range that a Node names twice is one, ranges are compared
//! as ranges and not as texts, and a route that may be right is never replaced on doubt.

use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use ipnet::IpNet;
use pileus_cloud::{ListedRoute, Route};

use crate::facts::node::NodeFacts;
use crate::well_known::REASON_ROUTE_CREATED;

/// A route that is in the cloud's table, as far as is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Known {
    /// It.
    pub(super) route: ListedRoute,
    /// Its range; none where the cloud's text is no range.
    pub(super) destination: Option<IpNet>,
    /// Whether the cloud has listed it so. One that we have created since isn't known well enough to be deleted.
    pub(super) is_listed: bool,
}

impl Known {
    /// A route that the cloud has listed.
    pub(super) fn listed(route: ListedRoute) -> Self {
        let destination = route.destination.parse().ok().map(|range: IpNet| range.trunc());
        Self { route, destination, is_listed: true }
    }

    /// A route that we have created.
    pub(super) fn created(route: &Route) -> Self {
        let Route { name_hint, node, target, addresses, destination } = route.clone();
        let listed = ListedRoute {
            name: name_hint,
            node: Some(node),
            target,
            addresses,
            destination: destination.to_string(),
            is_blackhole: false,
            extra: Vec::new(),
        };
        Self { route: listed, destination: Some(destination), is_listed: false }
    }

    /// Whether it carries traffic to this Node, by all that the cloud tells of it. Of next hops the cloud may tell none, or
    /// one of the Node's addresses.
    pub(super) fn leads_to(&self, node: &NodeFacts) -> bool {
        let ListedRoute { node: name, target, addresses, is_blackhole, .. } = &self.route;
        let is_its_machine = match (target, &node.provider_id) {
            (Some(target), Some(machine)) => Some(target == machine),
            _ => None,
        };
        let is_named = name.as_ref().map(|name| *name == node.name);
        let has_its_addresses = addresses.iter().all(|hop| has_address(node, &hop.value));
        let is_its_own = match (is_named, is_its_machine) {
            (Some(named), machine) => named && machine != Some(false),
            (None, Some(machine)) => machine,
            (None, None) => !addresses.is_empty(),
        };
        is_its_own && has_its_addresses && !is_blackhole
    }

    /// Whether that can't be told yet: the cloud tells of the route's machine alone, and the Node's isn't known before it is
    /// initialised.
    fn may_lead_to(&self, node: &NodeFacts) -> bool {
        let ListedRoute { node: name, target, is_blackhole, .. } = &self.route;
        let is_unknown = node.provider_id.is_none() && node.is_uninitialised();
        is_unknown && name.is_none() && target.is_some() && !is_blackhole
    }

    /// Whether it is about this Node, be it right or not.
    fn is_about(&self, node: &NodeFacts) -> bool {
        match (&self.route.node, &self.route.target) {
            (Some(name), _) => *name == node.name,
            (None, Some(target)) => node.provider_id.as_ref() == Some(target),
            (None, None) => false,
        }
    }
}

fn has_address(node: &NodeFacts, value: &str) -> bool {
    node.addresses.iter().any(|address| address.value == value)
}

/// What a plan is made from.
#[derive(Debug, Clone, Copy)]
pub(super) struct World<'a> {
    /// All Nodes of the cluster.
    pub(super) nodes: &'a [Arc<NodeFacts>],
    /// The ranges of Nodes that nobody can work on, whose routes stay as they are.
    pub(super) left_alone: &'a HashSet<IpNet>,
    /// The schemes of provider IDs that are the provider's own.
    pub(super) schemes: &'a [String],
    /// The cloud's table.
    pub(super) routes: &'a [Known],
    /// The cluster's ranges, one of each family at most.
    pub(super) cluster_ranges: &'a [IpNet],
    /// Whether Nodes wait for their routes before they are initialised.
    pub(super) nodes_wait: bool,
}

/// A Node and a range of its Pods.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Wanted {
    /// The Node.
    pub(super) node: Arc<NodeFacts>,
    /// The range.
    pub(super) range: IpNet,
}

/// What is to be done.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Plan {
    /// Routes of ours that no Node wants, or that lead elsewhere.
    pub(super) deletes: Vec<Known>,
    /// Routes that are missing.
    pub(super) creates: Vec<Wanted>,
    /// Ranges that another Node has already, and its name.
    pub(super) contested: Vec<(Wanted, String)>,
    /// All ranges that have to be there for a Node's network to be available, by Node. A Node with none has lost them:
    /// upstream takes its network for unavailable.
    pub(super) networks: Vec<(Arc<NodeFacts>, Vec<IpNet>)>,
}

/// Compares what there should be with what there is.
pub(super) fn plan(world: World<'_>) -> Plan {
    let mut by_range: HashMap<IpNet, Vec<usize>> = HashMap::new();
    for (index, known) in world.routes.iter().enumerate() {
        if let Some(range) = known.destination {
            by_range.entry(range).or_default().push(index);
        }
    }
    let mut plan = Plan::default();
    let mut is_kept = vec![false; world.routes.len()];
    let owners = owners(world, &by_range);
    let within = world.routes.iter().filter(|known| world.is_within(known));
    let is_named: HashSet<&str> = within.filter_map(|known| known.route.node.as_deref()).collect();
    for node in world.nodes.iter().filter(|node| world.serves(node)) {
        let mut needed = Vec::new();
        for range in &node.pod_cidrs {
            let wanted = Wanted { node: Arc::clone(node), range: *range };
            needed.push(*range);
            match owners.get(range) {
                Some(owner) if owner.name != node.name => {
                    plan.contested.push((wanted, owner.name.clone()));
                    continue;
                }
                _ => {}
            }
            let mut is_missing = true;
            for index in by_range.get(range).into_iter().flatten() {
                let (Some(known), Some(kept)) = (world.routes.get(*index), is_kept.get_mut(*index)) else {
                    continue;
                };
                let is_right = known.leads_to(node);
                is_missing &= !is_right;
                *kept |= is_right || known.may_lead_to(node);
            }
            // A Node that isn't known to the cloud yet gets its routes when it is, and one that goes gets none any more.
            if is_missing && is_known(node, world.nodes_wait) && !node.is_deleting {
                plan.creates.push(wanted);
            }
        }
        let has_lost_all = needed.is_empty() && is_named.contains(&*node.name);
        if (!needed.is_empty() && is_known(node, world.nodes_wait)) || has_lost_all {
            plan.networks.push((Arc::clone(node), needed));
        }
    }
    let strangers: Vec<_> = world.nodes.iter().filter(|node| !world.serves(node)).collect();
    // Ours to delete are those in the cluster's ranges that aren't about a Node of another provider, or of nobody's.
    let is_ours =
        |known: &&Known| world.is_within(known) && !strangers.iter().any(|node| known.is_about(node));
    let unwanted = world.routes.iter().zip(is_kept).filter_map(|(known, kept)| (!kept).then_some(known));
    plan.deletes = unwanted.filter(is_ours).cloned().collect();
    plan
}

/// To which Node a range belongs that several claim: the one that has the route, else the one that was there first.
fn owners<'a>(world: World<'a>, by_range: &HashMap<IpNet, Vec<usize>>) -> HashMap<IpNet, &'a NodeFacts> {
    let mut owners: HashMap<IpNet, &NodeFacts> = HashMap::new();
    for node in world.nodes {
        for range in &node.pod_cidrs {
            let has_it = |node: &NodeFacts| {
                by_range
                    .get(range)
                    .is_some_and(|there| there.iter().any(|index| world.leads_to(*index, node)))
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

impl World<'_> {
    fn leads_to(&self, index: usize, node: &NodeFacts) -> bool {
        self.routes.get(index).is_some_and(|route| route.leads_to(node))
    }

    /// Whether a route lies in the cluster's ranges, and in none that is left alone.
    fn is_within(&self, known: &Known) -> bool {
        known
            .destination
            .is_some_and(|range| is_ours(self.cluster_ranges, range) && !self.left_alone.contains(&range))
    }

    /// Whether a Node is the provider's, or nobody's yet.
    fn serves(&self, node: &NodeFacts) -> bool {
        let is_own = |scheme: &str| self.schemes.iter().any(|own| own == scheme);
        node.provider_id.as_ref().is_none_or(|id| is_own(id.scheme()))
    }
}

/// Whether a Node's machine is known: since it is initialised, or where that waits for its routes, since it has a provider
/// ID.
pub(super) fn is_known(node: &NodeFacts, nodes_wait: bool) -> bool {
    !node.is_uninitialised() || (nodes_wait && node.provider_id.is_some())
}

/// Whether a range lies in one of the cluster's (R01 to R12). Upstream looks at its ends alone, and so takes a wider route
/// that begins where the cluster's range begins for its own, and deletes it.
pub(super) fn is_ours(cluster_ranges: &[IpNet], range: IpNet) -> bool {
    cluster_ranges.iter().any(|ours| ours.contains(&range))
}

/// The route that a Node wants for a range. The hint is upstream's: the Node's UID, and as that is the same for both of a
/// Node's ranges, the range as far as names of clouds allow.
pub(super) fn route(wanted: &Wanted) -> Route {
    let Wanted { node, range } = wanted;
    let range_in_words = range.to_string().replace(['.', ':', '/'], "-");
    Route {
        name_hint: format!("{}-{range_in_words}", node.uid),
        node: node.name.clone(),
        target: node.provider_id.clone(),
        addresses: node.addresses.clone(),
        destination: *range,
    }
}

/// What a Node's routes and their condition follow from. Where it is the same as before, a change of the Node is no news,
/// and it is compared rather than the facts, so that those that are old needn't be kept for it.
pub(super) fn digest(node: &NodeFacts) -> u64 {
    let mut hasher = DefaultHasher::new();
    let NodeFacts { uid, provider_id, pod_cidrs, addresses, is_deleting, network_unavailable, .. } = node;
    let network = network_unavailable.as_ref().map(|told| (&told.status, &told.reason));
    (uid, provider_id, pod_cidrs, is_deleting, node.is_uninitialised(), network).hash(&mut hasher);
    for address in addresses {
        (address.kind.as_str(), &address.value).hash(&mut hasher);
    }
    hasher.finish()
}

/// Which of the Nodes' conditions have to be written, and whether the network of each is available: it is where every
/// range of a Node has its route.
pub(super) fn conditions(plan: &Plan, routes: &[Known]) -> Vec<(Arc<NodeFacts>, bool)> {
    let mut by_range: HashMap<IpNet, Vec<&Known>> = HashMap::new();
    for known in routes {
        if let Some(range) = known.destination {
            by_range.entry(range).or_default().push(known);
        }
    }
    let has_route = |node: &NodeFacts, range: &IpNet| {
        by_range.get(range).is_some_and(|there| there.iter().any(|route| route.leads_to(node)))
    };
    let networks = plan.networks.iter().map(|(node, ranges)| {
        (Arc::clone(node), !ranges.is_empty() && ranges.iter().all(|range| has_route(node, range)))
    });
    networks.filter(|(node, is_available)| !says(node, *is_available)).collect()
}

/// Whether a Node's condition says so already, with our reason: upstream's own since 1.36 (P-21, R34 to R42).
pub(super) fn says(node: &NodeFacts, is_available: bool) -> bool {
    let (status, reason) = condition(is_available);
    node.network_unavailable.as_ref().is_some_and(|found| found.status == status && found.reason == reason)
}

/// Status and reason of the condition `NetworkUnavailable`.
pub(super) fn condition(is_available: bool) -> (&'static str, &'static str) {
    if is_available { ("False", REASON_ROUTE_CREATED) } else { ("True", "NoRouteCreated") }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use pileus_cloud::{Address, AddressKind, ProviderId};
    use proptest::prelude::*;

    use super::*;

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

    fn listed(range: &str) -> Known {
        Known::listed(ListedRoute {
            name: range.to_owned(),
            node: None,
            target: None,
            addresses: Vec::new(),
            destination: range.to_owned(),
            is_blackhole: false,
            extra: Vec::new(),
        })
    }

    fn to(range: &str, change: impl FnOnce(&mut ListedRoute)) -> Known {
        let mut route = listed(range).route;
        change(&mut route);
        Known::listed(route)
    }

    fn planned(nodes: &[Arc<NodeFacts>], routes: &[Known]) -> Plan {
        let (schemes, cluster) = (["sim".to_owned()], ["10.0.0.0/8".parse().unwrap()]);
        let left_alone = HashSet::new();
        plan(World {
            nodes,
            left_alone: &left_alone,
            schemes: &schemes,
            routes,
            cluster_ranges: &cluster,
            nodes_wait: false,
        })
    }

    #[test]
    fn a_route_is_right_by_all_that_the_cloud_tells_of_it() {
        let node = node("a", "10.0.1.0/24", 0);
        let id = |text: &str| Some(ProviderId::parse(text).unwrap());
        let hop = |value: &str| vec![Address::new(AddressKind::InternalIp, value)];
        let range = "10.0.1.0/24";
        for (name, route, is_right) in [
            ("by name", to(range, |route| route.node = Some("a".to_owned())), true),
            ("by machine", to(range, |route| route.target = id("sim://a")), true),
            ("by address", to(range, |route| route.addresses = hop("address of a")), true),
            ("another name", to(range, |route| route.node = Some("b".to_owned())), false),
            ("another machine", to(range, |route| route.target = id("sim://b")), false),
            (
                "the name of a Node that was there before",
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
            ("nothing told", listed(range), false),
        ] {
            let plan = planned(std::slice::from_ref(&node), std::slice::from_ref(&route));
            assert_eq!(plan.creates.is_empty(), is_right, "{name}");
            assert_eq!(plan.deletes.is_empty(), is_right, "{name}");
        }
    }

    #[test]
    fn a_range_that_two_nodes_claim_is_the_one_s_that_has_it_or_was_there_first() {
        let (a, b) = (node("a", "10.0.1.0/24", 5), node("b", "10.0.1.0/24", 3));
        let plan = planned(&[a.clone(), b.clone()], &[]);
        let wanted =
            |node: &Arc<NodeFacts>| Wanted { node: node.clone(), range: "10.0.1.0/24".parse().unwrap() };
        assert_eq!((plan.creates, plan.contested), (vec![wanted(&b)], vec![(wanted(&a), "b".to_owned())]));
        let has = Known::created(&route(&wanted(&a)));
        let plan = planned(&[a, b.clone()], &[has]);
        assert_eq!((plan.creates, plan.contested), (vec![], vec![(wanted(&b), "a".to_owned())]));
        assert_eq!(plan.deletes, []);
    }

    #[test]
    fn what_is_not_ours_stays() {
        let other = Arc::new(NodeFacts {
            provider_id: Some(ProviderId::parse("other://x").unwrap()),
            ..(*node("x", "10.0.9.0/24", 0)).clone()
        });
        for (name, route) in [
            ("outside", listed("192.168.0.0/24")),
            ("around", listed("0.0.0.0/0")),
            ("around, from the same first address", listed("10.0.0.0/7")),
            ("no range", listed("a prefix list")),
            ("of another provider's Node", to("10.0.9.0/24", |route| route.node = Some("x".to_owned()))),
        ] {
            assert_eq!(planned(std::slice::from_ref(&other), &[route]).deletes, [], "{name}");
        }
        assert_eq!(planned(&[other], &[listed("10.0.9.0/24")]).deletes.len(), 1);
    }

    #[test]
    fn a_node_without_a_range_lacks_a_route_only_if_one_of_ours_led_to_it() {
        let bare = Arc::new(NodeFacts { pod_cidrs: Vec::new(), ..(*node("a", "10.0.1.0/24", 0)).clone() });
        for (range, expected) in [("10.0.1.0/24", vec![(bare.clone(), false)]), ("192.168.0.0/24", vec![])] {
            let routes = [to(range, |route| route.node = Some("a".to_owned()))];
            assert_eq!(conditions(&planned(std::slice::from_ref(&bare), &routes), &routes), expected);
        }
    }

    #[test]
    fn a_node_that_the_cloud_does_not_know_yet_or_that_goes_gets_no_route_and_loses_none() {
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
    fn a_route_told_by_its_machine_alone_stays_until_the_nodes_machine_is_known() {
        let known = node("a", "10.0.1.0/24", 0);
        let new = Arc::new(NodeFacts {
            provider_id: None,
            taints: NodeFacts::registered("a").taints,
            ..(*known).clone()
        });
        let leads_to = |machine: &str| {
            let machine = ProviderId::parse(&format!("sim://{machine}")).unwrap();
            to("10.0.1.0/24", |route| route.target = Some(machine))
        };
        for (node, machine, is_deleted) in
            [(&new, "a", false), (&known, "a", false), (&new, "b", false), (&known, "b", true)]
        {
            let route = leads_to(machine);
            let plan = planned(std::slice::from_ref(node), std::slice::from_ref(&route));
            assert_eq!(!plan.deletes.is_empty(), is_deleted, "{node:?} {machine}");
        }
    }

    #[test]
    fn a_node_concerns_routes_by_a_few_of_its_facts() {
        let old = node("a", "10.0.1.0/24", 0);
        let heartbeat = NodeFacts { resource_version: "9".to_owned(), ..(*old).clone() };
        assert_eq!(digest(&old), digest(&heartbeat));
        let network =
            crate::facts::node::NetworkUnavailable { status: "True".to_owned(), reason: String::new() };
        for new in [
            NodeFacts { uid: "other".to_owned(), ..(*old).clone() },
            NodeFacts { provider_id: None, ..(*old).clone() },
            NodeFacts { pod_cidrs: Vec::new(), ..(*old).clone() },
            NodeFacts { addresses: Vec::new(), ..(*old).clone() },
            NodeFacts { is_deleting: true, ..(*old).clone() },
            NodeFacts { taints: NodeFacts::registered("a").taints, ..(*old).clone() },
            NodeFacts { network_unavailable: Some(network), ..(*old).clone() },
        ] {
            assert_ne!(digest(&old), digest(&new), "{new:?}");
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

    fn routes() -> impl Strategy<Value = Vec<Known>> {
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
        fn once_done_there_is_nothing_to_do(nodes in nodes(), mut routes in routes()) {
            let first = planned(&nodes, &routes);
            routes.retain(|route| !first.deletes.contains(route));
            routes.extend(first.creates.iter().map(|wanted| Known::created(&route(wanted))));
            let second = planned(&nodes, &routes);
            prop_assert_eq!(&second.deletes, &[]);
            prop_assert_eq!(&second.creates, &[]);
            prop_assert_eq!(&second.contested, &first.contested);
            for (node, is_available) in conditions(&second, &routes) {
                let is_contested = second.contested.iter().any(|(wanted, _)| wanted.node.name == node.name);
                prop_assert_eq!(is_available, !node.pod_cidrs.is_empty() && !is_contested && !node.is_deleting);
            }
        }

        #[test]
        fn no_range_is_created_twice_or_while_its_route_is_right(nodes in nodes(), routes in routes()) {
            let plan = planned(&nodes, &routes);
            let mut ranges: Vec<_> = plan.creates.iter().map(|wanted| wanted.range).collect();
            let all = ranges.len();
            ranges.sort();
            ranges.dedup();
            prop_assert_eq!(ranges.len(), all);
        }
    }

    fn to_machine(range: &str, machine: &str) -> Known {
        to(range, |route| route.target = Some(ProviderId::parse(machine).unwrap()))
    }

    #[test]
    fn a_route_of_another_machine_goes_unless_the_nodes_own_is_not_known_before_it_is_initialised() {
        let known = node("a", "10.0.1.0/24", 0);
        let route = to_machine("10.0.1.0/24", "sim://b");
        for (has_machine, is_new, is_deleted) in
            [(true, true, true), (false, false, true), (false, true, false)]
        {
            let node = Arc::new(NodeFacts {
                provider_id: known.provider_id.clone().filter(|_| has_machine),
                taints: if is_new { NodeFacts::registered("a").taints } else { Vec::new() },
                ..(*known).clone()
            });
            let plan = planned(&[node], std::slice::from_ref(&route));
            assert_eq!(!plan.deletes.is_empty(), is_deleted, "{has_machine} {is_new}");
        }
    }

    #[test]
    fn a_route_to_the_machine_of_another_providers_node_stays_and_one_to_nobodys_goes() {
        let provider_id = Some(ProviderId::parse("other://a").unwrap());
        let stranger = Arc::new(NodeFacts { provider_id, ..(*node("a", "10.0.1.0/24", 0)).clone() });
        for (machine, is_deleted) in [("other://a", false), ("sim://gone", true)] {
            let route = to_machine("10.0.2.0/24", machine);
            let plan = planned(&[Arc::clone(&stranger)], std::slice::from_ref(&route));
            assert_eq!(!plan.deletes.is_empty(), is_deleted, "{machine}");
        }
    }
}
