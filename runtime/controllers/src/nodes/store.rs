//! What is known of all Nodes besides their facts: what those that nobody can work on still have, and which machines those
//! had that are gone.

use std::collections::{BTreeMap, VecDeque};

use ipnet::IpNet;
use kube::ResourceExt as _;
use kube::runtime::watcher;
use pileus_cloud::ProviderId;

use super::Change;
use crate::facts::node::{Node, NodeFacts, Unreadable};
use crate::objects::{Facts, Keep, Kept};

impl Facts for NodeFacts {
    fn key(&self) -> String {
        self.name.clone()
    }

    fn uid(&self) -> &str {
        &self.uid
    }

    fn resource_version(&self) -> &str {
        &self.resource_version
    }
}

/// All Nodes by name.
#[derive(Debug, Default)]
pub(super) struct Store {
    pub(super) kept: Kept<NodeFacts>,
    /// The ranges of Pod addresses of those that nobody can work on, by name.
    unreadable: BTreeMap<String, Vec<IpNet>>,
    /// Those of a list that is still coming in.
    listing_unreadable: BTreeMap<String, Vec<IpNet>>,
    former: Former,
}

/// How many names of Nodes that are gone are remembered: more than go while a cloud's list may still show their machines.
const FORMER: usize = 10_000;

/// The machines of Nodes that are gone.
#[derive(Debug, Default)]
struct Former {
    /// By the Node's name.
    machines: BTreeMap<String, ProviderId>,
    /// The names in the order in which they went.
    went: VecDeque<String>,
}

impl Keep for Store {
    type Object = Node;
    type Facts = NodeFacts;

    fn take_in(&mut self, event: watcher::Event<Node>) -> Vec<Change> {
        match event {
            watcher::Event::Init => {
                self.list_begins();
                Vec::new()
            }
            watcher::Event::InitApply(node) => {
                match readable(node) {
                    Ok(facts) => self.kept.listed(facts),
                    Err(unreadable) => self.listed_unreadable(unreadable),
                }
                Vec::new()
            }
            watcher::Event::InitDone => self.list_ends(),
            watcher::Event::Apply(node) => match readable(node) {
                Ok(facts) => self.changed(facts).into_iter().collect(),
                Err(unreadable) => self.unreadable(unreadable).into_iter().collect(),
            },
            watcher::Event::Delete(node) => self.gone(&node.name_any()).into_iter().collect(),
        }
    }

    fn kept(&self) -> &Kept<NodeFacts> {
        &self.kept
    }
}

/// The facts of a Node, unless nobody can work on it.
fn readable(node: Node) -> Result<NodeFacts, Unreadable> {
    NodeFacts::read(node).inspect_err(|unreadable| tracing::warn!("{unreadable}; it is left alone"))
}

impl Store {
    /// The ranges of Pod addresses that Nodes have which nobody can work on.
    pub(super) fn unreadable_ranges(&self) -> impl Iterator<Item = IpNet> {
        self.unreadable.values().flatten().copied()
    }

    /// The machine of the last Node that bore this name and is gone.
    pub(super) fn former_machine(&self, name: &str) -> Option<&ProviderId> {
        self.former.machines.get(name)
    }

    fn list_begins(&mut self) {
        self.kept.list_begins();
        self.listing_unreadable.clear();
    }

    fn listed_unreadable(&mut self, node: Unreadable) {
        self.listing_unreadable.insert(node.name, node.pod_cidrs);
    }

    fn list_ends(&mut self) -> Vec<Change> {
        self.unreadable = std::mem::take(&mut self.listing_unreadable);
        self.kept.list_ends(|node| self.former.remember(node))
    }

    fn changed(&mut self, facts: NodeFacts) -> Option<Change> {
        self.unreadable.remove(&facts.name);
        self.kept.changed(facts, |node| self.former.remember(node))
    }

    /// The watch shows a Node that nobody can work on: to followers it is gone.
    fn unreadable(&mut self, node: Unreadable) -> Option<Change> {
        let gone = self.gone(&node.name);
        self.unreadable.insert(node.name, node.pod_cidrs);
        gone
    }

    fn gone(&mut self, name: &str) -> Option<Change> {
        self.unreadable.remove(name);
        self.kept.gone(name, |node| self.former.remember(node))
    }
}

impl Former {
    fn remember(&mut self, gone: &NodeFacts) {
        let Some(id) = &gone.provider_id else { return };
        if self.machines.insert(gone.name.clone(), id.clone()).is_none() {
            self.went.push_back(gone.name.clone());
        }
        if self.went.len() > FORMER
            && let Some(oldest) = self.went.pop_front()
        {
            self.machines.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str, version: &str) -> NodeFacts {
        NodeFacts { resource_version: version.to_owned(), ..NodeFacts::registered(name) }
    }

    fn synced(nodes: &[NodeFacts]) -> Store {
        let mut store = Store::default();
        store.kept.list_begins();
        nodes.iter().cloned().for_each(|node| store.kept.listed(node));
        store.list_ends();
        store
    }

    #[test]
    fn the_ranges_of_nodes_that_nobody_can_work_on_are_known_as_long_as_they_are_there() {
        let unreadable = |name: &str, range: &str| Unreadable {
            name: name.to_owned(),
            problem: String::new(),
            pod_cidrs: vec![range.parse().unwrap()],
        };
        let ranges =
            |store: &Store| store.unreadable_ranges().map(|range| range.to_string()).collect::<Vec<_>>();
        let mut store = synced(&[node("a", "1")]);
        assert_eq!(store.unreadable(unreadable("a", "10.0.1.0/24")), Some(Change::Gone("a".to_owned())));
        assert_eq!(ranges(&store), ["10.0.1.0/24"]);
        store.changed(node("a", "2"));
        assert_eq!(ranges(&store), Vec::<String>::new());
        store.list_begins();
        store.listed_unreadable(unreadable("b", "10.0.2.0/24"));
        assert_eq!(ranges(&store), Vec::<String>::new(), "the list isn't complete");
        store.list_ends();
        assert_eq!(ranges(&store), ["10.0.2.0/24"]);
        store.gone("b");
        assert_eq!(ranges(&store), Vec::<String>::new());
    }

    #[test]
    fn the_machine_of_a_node_that_is_gone_is_remembered_for_a_while() {
        let id = |number: usize| ProviderId::parse(&format!("fake://{number}")).unwrap();
        let known = |number: usize| NodeFacts { provider_id: Some(id(number)), ..node("a", "1") };
        let mut store = synced(&[known(1)]);
        assert_eq!(store.former_machine("a"), None);
        store.gone("a");
        assert_eq!(store.former_machine("a"), Some(&id(1)));
        store.changed(NodeFacts { uid: "second".to_owned(), ..known(2) });
        store.changed(NodeFacts { uid: "third".to_owned(), ..node("a", "3") });
        assert_eq!(store.former_machine("a"), Some(&id(2)), "whose going was not seen");
        store.gone("a");
        assert_eq!(store.former_machine("a"), Some(&id(2)), "the third had none");
        for number in 0..FORMER {
            let name = format!("n-{number}");
            store.changed(NodeFacts { provider_id: Some(id(number)), ..node(&name, "1") });
            store.gone(&name);
        }
        assert_eq!(
            (store.former_machine("a"), store.former.machines.len(), store.former.went.len()),
            (None, FORMER, FORMER)
        );
    }
}
