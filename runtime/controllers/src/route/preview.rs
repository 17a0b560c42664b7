//! Previews a pass of the route controller: which routes it would change, and why. `pileus plan` shows this to operators.
//!
//! Pure, as the plan is.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;

use ipnet::IpNet;
use pileus_cloud::{ListedRoute, RouteAction};

use super::pending::PendingChanges;
use super::plan::{self, KnownRoute, Plan, PlanInputs};
use crate::facts::node::NodeFacts;

/// Everything in the cluster that determines the routes.
#[derive(Debug, Clone, Copy)]
pub struct Inputs<'a> {
    /// All Nodes that can be read.
    pub nodes: &'a [Arc<NodeFacts>],
    /// The ranges of all other Nodes, whose routes stay as they are.
    pub unreadable_ranges: &'a HashSet<IpNet>,
    /// The name of the provider. Only its Nodes get routes.
    pub provider: &'a str,
    /// The keys of the Node labels that the provider reads.
    pub node_labels: &'a [String],
    /// The UID of the cluster; none where it isn't known.
    pub cluster_uid: Option<&'a str>,
    /// The cluster's CIDRs, at most one of each family.
    pub cluster_ranges: &'a [IpNet],
    /// Whether Nodes wait for their routes, and so get them before they are initialized.
    pub nodes_wait: bool,
}

/// The changes that a pass would make.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Preview {
    /// The changes, the deletions first.
    pub changes: Vec<PlannedChange>,
    /// Ranges that a Node doesn't get because another Node or cluster has them: the range, the Node, and why.
    pub conflicts: Vec<(IpNet, String, String)>,
    /// The number of routes that are as desired.
    pub settled: usize,
    /// Nodes that get no routes yet, because their instances aren't known.
    pub waiting: Vec<String>,
}

/// A change and its reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedChange {
    /// The change.
    pub action: RouteAction,
    /// Why it is made.
    pub reason: ChangeReason,
    /// Whether it is made only after the present route of the range is deleted.
    pub is_next: bool,
}

/// Why a route is created or deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChangeReason {
    /// A Node has no route for a range.
    Missing {
        /// The Node.
        node: String,
        /// The range.
        range: IpNet,
    },
    /// The route is a blackhole.
    Blackhole,
    /// A Node has the range, and the route leads elsewhere.
    LeadsElsewhere {
        /// The Node.
        node: String,
    },
    /// No Node has the range.
    Unwanted {
        /// The Node of the route, as the cloud reports it.
        was_for: Option<String>,
    },
}

impl fmt::Display for ChangeReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing { node, range } => write!(f, "node {node} has no route for {range}"),
            Self::Blackhole => write!(f, "it is a blackhole"),
            Self::LeadsElsewhere { node } => {
                write!(f, "it does not lead to node {node}, which has the range")
            }
            Self::Unwanted { was_for: None } => write!(f, "no node wants this route"),
            Self::Unwanted { was_for: Some(node) } => {
                write!(f, "no node wants this route; it was for node {node}")
            }
        }
    }
}

/// Previews the changes from a list that the cloud has just given.
pub fn preview(inputs: Inputs<'_>, listed: Vec<ListedRoute>) -> Preview {
    let Inputs { nodes, unreadable_ranges, provider, node_labels, cluster_uid, cluster_ranges, nodes_wait } =
        inputs;
    let routes: Vec<_> = listed.into_iter().map(KnownRoute::listed).collect();
    let inputs = PlanInputs {
        nodes,
        unreadable_ranges,
        provider,
        cluster_uid,
        routes: &routes,
        cluster_ranges,
        nodes_wait,
        pending: &PendingChanges::default(),
    };
    let Plan { deletes, creates, conflicts, networks: _ } = plan::plan(inputs);
    let mut by_range: HashMap<IpNet, &NodeFacts> = HashMap::new();
    for node in nodes {
        for range in &node.pod_cidrs {
            by_range.entry(*range).or_insert(node);
        }
    }
    let is_settled = |known: &&KnownRoute| {
        let node = known.destination.and_then(|range| by_range.get(&range));
        let is_ours = known.other_cluster(cluster_uid).is_none();
        is_ours && node.is_some_and(|node| known.leads_to(node))
    };
    let settled = routes.iter().filter(is_settled).count();
    let occupied: HashSet<_> = deletes.iter().filter_map(|known| known.destination).collect();
    let deletes = deletes.into_iter().map(|known| {
        let reason = reason(&known, &by_range);
        PlannedChange { action: RouteAction::Delete(known.route), reason, is_next: false }
    });
    let creates = creates.into_iter().map(|wanted| PlannedChange {
        action: RouteAction::Create(plan::desired_route(&wanted, node_labels)),
        is_next: occupied.contains(&wanted.range),
        reason: ChangeReason::Missing { node: wanted.node.name.clone(), range: wanted.range },
    });
    let conflicts = conflicts
        .into_iter()
        .map(|(wanted, owner)| (wanted.range, wanted.node.name.clone(), owner.to_string()));
    let is_waiting =
        |node: &&Arc<NodeFacts>| !plan::has_instance(node, nodes_wait) && !node.pod_cidrs.is_empty();
    Preview {
        changes: deletes.chain(creates).collect(),
        conflicts: conflicts.collect(),
        settled,
        waiting: nodes.iter().filter(is_waiting).map(|node| node.name.clone()).collect(),
    }
}

fn reason(known: &KnownRoute, by_range: &HashMap<IpNet, &NodeFacts>) -> ChangeReason {
    let node = known.destination.and_then(|range| by_range.get(&range));
    match node {
        _ if known.route.is_blackhole => ChangeReason::Blackhole,
        Some(node) => ChangeReason::LeadsElsewhere { node: node.name.clone() },
        None => ChangeReason::Unwanted { was_for: known.route.node.clone() },
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use pileus_cloud::ProviderId;

    use super::*;

    fn node(name: &str, range: &str) -> NodeFacts {
        NodeFacts {
            taints: Vec::new(),
            provider_id: Some(ProviderId::parse(&format!("sim://{name}")).unwrap()),
            pod_cidrs: vec![range.parse().unwrap()],
            created_at: Timestamp::UNIX_EPOCH,
            ..NodeFacts::registered(name)
        }
    }

    fn listed(range: &str, node: Option<&str>, is_blackhole: bool) -> ListedRoute {
        ListedRoute {
            name: format!("to {range}"),
            node: node.map(str::to_owned),
            target: None,
            addresses: Vec::new(),
            destination: range.to_owned(),
            cluster_uid: None,
            is_blackhole,
            extra: Vec::new(),
        }
    }

    fn preview_of(nodes: Vec<NodeFacts>, listed: Vec<ListedRoute>) -> Preview {
        preview_of_waiting(false, nodes, listed)
    }

    fn preview_of_waiting(nodes_wait: bool, nodes: Vec<NodeFacts>, listed: Vec<ListedRoute>) -> Preview {
        let nodes: Vec<_> = nodes.into_iter().map(Arc::new).collect();
        let cluster_ranges = ["10.0.0.0/8".parse().unwrap()];
        let unreadable_ranges = HashSet::new();
        let inputs = Inputs {
            nodes: &nodes,
            node_labels: &[],
            cluster_uid: None,
            unreadable_ranges: &unreadable_ranges,
            provider: crate::model::PROVIDER,
            cluster_ranges: &cluster_ranges,
            nodes_wait,
        };
        preview(inputs, listed)
    }

    #[test]
    fn each_change_has_a_reason() {
        let nodes = || vec![node("a", "10.0.1.0/24"), node("b", "10.0.2.0/24")];
        let new = NodeFacts { taints: NodeFacts::registered("c").taints, ..node("c", "10.0.3.0/24") };
        let there = || vec![listed("10.0.1.0/24", Some("a"), false), listed("10.0.2.0/24", Some("b"), false)];
        let missing = "create 10.0.2.0/24: node b has no route for 10.0.2.0/24";
        let rows = [
            ("as desired", nodes(), there(), vec![], 2),
            ("a Node without a route", nodes(), there()[..1].to_vec(), vec![missing.to_owned()], 1),
            ("a Node that is not initialized", vec![new], vec![], vec![], 0),
            (
                "a Node that is gone",
                nodes()[..1].to_vec(),
                there(),
                vec!["delete 10.0.2.0/24: no node wants this route; it was for node b".to_owned()],
                1,
            ),
            (
                "of no Node",
                vec![],
                vec![listed("10.0.9.0/24", None, false)],
                vec!["delete 10.0.9.0/24: no node wants this route".to_owned()],
                0,
            ),
            (
                "a blackhole",
                nodes(),
                vec![there()[0].clone(), listed("10.0.2.0/24", Some("b"), true)],
                vec!["delete 10.0.2.0/24: it is a blackhole".to_owned(), format!("{missing} (then)")],
                1,
            ),
            (
                "a range that has moved",
                nodes(),
                vec![there()[0].clone(), listed("10.0.2.0/24", Some("a"), false)],
                vec![
                    "delete 10.0.2.0/24: it does not lead to node b, which has the range".to_owned(),
                    format!("{missing} (then)"),
                ],
                1,
            ),
            ("outside the cluster's CIDRs", vec![], vec![listed("192.168.0.0/24", None, false)], vec![], 0),
        ];
        for (name, nodes, routes, expected, settled) in rows {
            let preview = preview_of(nodes, routes);
            let changes = preview.changes.iter().map(|PlannedChange { action, reason, is_next }| {
                let what = match action {
                    RouteAction::Delete(route) => format!("delete {}", route.destination),
                    RouteAction::Create(route) => format!("create {}", route.destination),
                };
                format!("{what}: {reason}{}", if *is_next { " (then)" } else { "" })
            });
            assert_eq!((changes.collect::<Vec<_>>(), preview.settled), (expected, settled), "{name}");
        }
    }

    #[test]
    fn nodes_that_get_no_route_are_reported() {
        let new = NodeFacts { taints: NodeFacts::registered("c").taints, ..node("c", "10.0.3.0/24") };
        assert_eq!(preview_of(vec![new.clone()], vec![]).waiting, ["c"]);
        // Where Nodes wait for routes, a Node gets them as soon as its instance is known.
        let preview = preview_of_waiting(true, vec![new.clone()], vec![]);
        assert_eq!((preview.waiting.len(), preview.changes.len()), (0, 1));
        let unknown = NodeFacts { provider_id: None, ..new };
        assert_eq!(preview_of_waiting(true, vec![unknown], vec![]).waiting, ["c"]);
        let preview = preview_of(vec![node("a", "10.0.1.0/24"), node("b", "10.0.1.0/24")], vec![]);
        let range = "10.0.1.0/24".parse().unwrap();
        assert_eq!(
            preview.conflicts,
            [(range, "b".to_owned(), plan::RangeHolder::Node("a".to_owned()).to_string())]
        );
    }
}
