//! What a pass would change in the cloud's table, and why: the plan of a pass, told to somebody who wants to know before
//! it happens. Pure, as the plan is.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;

use ipnet::IpNet;
use pileus_cloud::{ListedRoute, RouteAction};

use super::plan::{self, Known, Plan, World};
use crate::facts::node::NodeFacts;

/// The cluster, as far as routes follow from it.
#[derive(Debug, Clone, Copy)]
pub struct Surroundings<'a> {
    /// All Nodes that can be worked on.
    pub nodes: &'a [Arc<NodeFacts>],
    /// The ranges of the others, whose routes stay as they are.
    pub left_alone: &'a HashSet<IpNet>,
    /// The schemes of provider IDs that are the provider's own.
    pub schemes: &'a [String],
    /// The cluster's ranges, one of each family at most.
    pub cluster_ranges: &'a [IpNet],
    /// Whether Nodes wait for their routes, and so get them before they are initialised.
    pub nodes_wait: bool,
}

/// What a pass would do.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outlook {
    /// The changes, the deletions first.
    pub changes: Vec<Expected>,
    /// Ranges that a Node doesn't get since another has them: the range, the Node, and the other's name.
    pub contested: Vec<(IpNet, String, String)>,
    /// How many routes of Nodes are as they should be.
    pub settled: usize,
    /// Nodes that get no routes yet, since their machines aren't known.
    pub waiting: Vec<String>,
}

/// A change, and why it is made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expected {
    /// It.
    pub action: RouteAction,
    /// Why.
    pub reason: Reason,
    /// Whether it is made only once the route that is there has been deleted.
    pub is_next: bool,
}

/// Why a route is changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reason {
    /// A Node has a range without a route.
    Missing {
        /// The Node.
        node: String,
        /// The range.
        range: IpNet,
    },
    /// It leads nowhere.
    Blackhole,
    /// A Node has the range, and it doesn't lead there.
    LeadsElsewhere {
        /// The Node.
        node: String,
    },
    /// No Node has the range.
    Unwanted {
        /// The Node that it is for, as the cloud tells.
        was_for: Option<String>,
    },
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing { node, range } => write!(f, "node {node} has no route for {range}"),
            Self::Blackhole => write!(f, "blackhole: it leads nowhere"),
            Self::LeadsElsewhere { node } => {
                write!(f, "it leads elsewhere than to node {node}, which has the range")
            }
            Self::Unwanted { was_for: None } => write!(f, "no node wants this route"),
            Self::Unwanted { was_for: Some(node) } => {
                write!(f, "no node wants this route; it was for node {node}")
            }
        }
    }
}

/// Compares what there should be with a list that the cloud has just given.
pub fn outlook(cluster: Surroundings<'_>, listed: Vec<ListedRoute>) -> Outlook {
    let Surroundings { nodes, left_alone, schemes, cluster_ranges, nodes_wait } = cluster;
    let routes: Vec<_> = listed.into_iter().map(Known::listed).collect();
    let Plan { deletes, creates, contested, networks: _ } =
        plan::plan(World { nodes, left_alone, schemes, routes: &routes, cluster_ranges, nodes_wait });
    let mut by_range: HashMap<IpNet, &NodeFacts> = HashMap::new();
    for node in nodes {
        for range in &node.pod_cidrs {
            by_range.entry(*range).or_insert(node);
        }
    }
    let leads_home = |known: &&Known| {
        let node = known.destination.and_then(|range| by_range.get(&range));
        node.is_some_and(|node| known.leads_to(node))
    };
    let settled = routes.iter().filter(leads_home).count();
    let taken: HashSet<_> = deletes.iter().filter_map(|known| known.destination).collect();
    let deletes = deletes.into_iter().map(|known| {
        let reason = reason(&known, &by_range);
        Expected { action: RouteAction::Delete(known.route), reason, is_next: false }
    });
    let creates = creates.into_iter().map(|wanted| Expected {
        action: RouteAction::Create(plan::route(&wanted)),
        is_next: taken.contains(&wanted.range),
        reason: Reason::Missing { node: wanted.node.name.clone(), range: wanted.range },
    });
    let contested =
        contested.into_iter().map(|(wanted, owner)| (wanted.range, wanted.node.name.clone(), owner));
    let is_waiting = |node: &&Arc<NodeFacts>| !plan::is_known(node, nodes_wait) && !node.pod_cidrs.is_empty();
    Outlook {
        changes: deletes.chain(creates).collect(),
        contested: contested.collect(),
        settled,
        waiting: nodes.iter().filter(is_waiting).map(|node| node.name.clone()).collect(),
    }
}

fn reason(known: &Known, by_range: &HashMap<IpNet, &NodeFacts>) -> Reason {
    let node = known.destination.and_then(|range| by_range.get(&range));
    match node {
        _ if known.route.is_blackhole => Reason::Blackhole,
        Some(node) => Reason::LeadsElsewhere { node: node.name.clone() },
        None => Reason::Unwanted { was_for: known.route.node.clone() },
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
            is_blackhole,
            extra: Vec::new(),
        }
    }

    fn of(nodes: Vec<NodeFacts>, listed: Vec<ListedRoute>) -> Outlook {
        of_nodes_that_wait(false, nodes, listed)
    }

    fn of_nodes_that_wait(nodes_wait: bool, nodes: Vec<NodeFacts>, listed: Vec<ListedRoute>) -> Outlook {
        let nodes: Vec<_> = nodes.into_iter().map(Arc::new).collect();
        let (schemes, cluster_ranges) = (["sim".to_owned()], ["10.0.0.0/8".parse().unwrap()]);
        let left_alone = HashSet::new();
        let cluster = Surroundings {
            nodes: &nodes,
            left_alone: &left_alone,
            schemes: &schemes,
            cluster_ranges: &cluster_ranges,
            nodes_wait,
        };
        outlook(cluster, listed)
    }

    #[test]
    fn each_change_says_why() {
        let nodes = || vec![node("a", "10.0.1.0/24"), node("b", "10.0.2.0/24")];
        let new = NodeFacts { taints: NodeFacts::registered("c").taints, ..node("c", "10.0.3.0/24") };
        let there = || vec![listed("10.0.1.0/24", Some("a"), false), listed("10.0.2.0/24", Some("b"), false)];
        let missing = "create 10.0.2.0/24: node b has no route for 10.0.2.0/24";
        let rows = [
            ("as it should be", nodes(), there(), vec![], 2),
            ("a Node without a route", nodes(), there()[..1].to_vec(), vec![missing.to_owned()], 1),
            ("a Node that the cloud doesn't know yet", vec![new], vec![], vec![], 0),
            (
                "a Node that is gone",
                nodes()[..1].to_vec(),
                there(),
                vec!["delete 10.0.2.0/24: no node wants this route; it was for node b".to_owned()],
                1,
            ),
            (
                "nobody's",
                vec![],
                vec![listed("10.0.9.0/24", None, false)],
                vec!["delete 10.0.9.0/24: no node wants this route".to_owned()],
                0,
            ),
            (
                "a blackhole",
                nodes(),
                vec![there()[0].clone(), listed("10.0.2.0/24", Some("b"), true)],
                vec![
                    "delete 10.0.2.0/24: blackhole: it leads nowhere".to_owned(),
                    format!("{missing} (then)"),
                ],
                1,
            ),
            (
                "a range that has moved",
                nodes(),
                vec![there()[0].clone(), listed("10.0.2.0/24", Some("a"), false)],
                vec![
                    "delete 10.0.2.0/24: it leads elsewhere than to node b, which has the range".to_owned(),
                    format!("{missing} (then)"),
                ],
                1,
            ),
            ("somebody else's", vec![], vec![listed("192.168.0.0/24", None, false)], vec![], 0),
        ];
        for (name, nodes, routes, expected, settled) in rows {
            let outlook = of(nodes, routes);
            let told = outlook.changes.iter().map(|Expected { action, reason, is_next }| {
                let what = match action {
                    RouteAction::Delete(route) => format!("delete {}", route.destination),
                    RouteAction::Create(route) => format!("create {}", route.destination),
                };
                format!("{what}: {reason}{}", if *is_next { " (then)" } else { "" })
            });
            assert_eq!((told.collect::<Vec<_>>(), outlook.settled), (expected, settled), "{name}");
        }
    }

    #[test]
    fn who_gets_no_route_yet_or_not_at_all_is_told() {
        let new = NodeFacts { taints: NodeFacts::registered("c").taints, ..node("c", "10.0.3.0/24") };
        assert_eq!(of(vec![new.clone()], vec![]).waiting, ["c"]);
        // Where it waits for its routes it gets them before, as soon as its machine is known.
        let outlook = of_nodes_that_wait(true, vec![new.clone()], vec![]);
        assert_eq!((outlook.waiting.len(), outlook.changes.len()), (0, 1));
        let unknown = NodeFacts { provider_id: None, ..new };
        assert_eq!(of_nodes_that_wait(true, vec![unknown], vec![]).waiting, ["c"]);
        let outlook = of(vec![node("a", "10.0.1.0/24"), node("b", "10.0.1.0/24")], vec![]);
        let range = "10.0.1.0/24".parse().unwrap();
        assert_eq!(outlook.contested, [(range, "b".to_owned(), "a".to_owned())]);
    }
}
