//! The Nodes that the informer knows. Beside the facts it remembers the Pod CIDRs of Nodes that can't be read, whose routes
//! must stay, and the instances of Nodes that are gone, which a cloud's list may still show.

use std::collections::{BTreeMap, VecDeque};

use ipnet::IpNet;
use kube::ResourceExt as _;
use kube::runtime::watcher;
use pileus_cloud::ProviderId;

use super::Change;
use crate::facts::node::{Node, NodeFacts, UnreadableNode};
use crate::informer::{Facts, InformerStore, ObjectStore};

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
    pub(super) objects: ObjectStore<NodeFacts>,
    /// The Pod CIDRs of Nodes that can't be read, by name.
    unreadable: BTreeMap<String, Vec<IpNet>>,
    /// The same of a list that isn't complete yet.
    listing_unreadable: BTreeMap<String, Vec<IpNet>>,
    former: FormerInstances,
}

/// The number of former Nodes that are remembered: more than are deleted while a cloud's list may still show their instances.
const MAX_FORMER: usize = 10_000;

/// The instances of Nodes that are gone.
#[derive(Debug, Default)]
struct FormerInstances {
    /// The provider ID of each, by the Node's name.
    ids: BTreeMap<String, ProviderId>,
    /// The names, the oldest first.
    order: VecDeque<String>,
}

impl InformerStore for Store {
    type Object = Node;
    type Facts = NodeFacts;

    fn on_event(&mut self, event: watcher::Event<Node>) -> Vec<Change> {
        match event {
            watcher::Event::Init => {
                self.begin_list();
                Vec::new()
            }
            watcher::Event::InitApply(node) => {
                match read(node) {
                    Ok(facts) => self.objects.add_listed(facts),
                    Err(unreadable) => self.add_listed_unreadable(unreadable),
                }
                Vec::new()
            }
            watcher::Event::InitDone => self.finish_list(),
            watcher::Event::Apply(node) => match read(node) {
                Ok(facts) => self.on_applied(facts).into_iter().collect(),
                Err(unreadable) => self.on_unreadable(unreadable).into_iter().collect(),
            },
            watcher::Event::Delete(node) => self.on_deleted(&node.name_any()).into_iter().collect(),
        }
    }

    fn objects(&self) -> &ObjectStore<NodeFacts> {
        &self.objects
    }

    fn forget_versions(&mut self) {
        self.objects.forget_versions();
    }
}

fn read(node: Node) -> Result<NodeFacts, UnreadableNode> {
    NodeFacts::read(node).inspect_err(|UnreadableNode { name, problem, .. }| {
        tracing::warn!(node = %name, problem, "node can't be read, so it is left alone");
    })
}

impl Store {
    /// The Pod CIDRs of Nodes that can't be read.
    pub(super) fn unreadable_ranges(&self) -> impl Iterator<Item = IpNet> {
        self.unreadable.values().flatten().copied()
    }

    /// The instance of the last Node with this name that is gone.
    pub(super) fn former_instance(&self, name: &str) -> Option<&ProviderId> {
        self.former.ids.get(name)
    }

    fn begin_list(&mut self) {
        self.objects.begin_list();
        self.listing_unreadable.clear();
    }

    fn add_listed_unreadable(&mut self, node: UnreadableNode) {
        self.listing_unreadable.insert(node.name, node.pod_cidrs);
    }

    fn finish_list(&mut self) -> Vec<Change> {
        self.unreadable = std::mem::take(&mut self.listing_unreadable);
        self.objects.finish_list(|node| self.former.remember(node))
    }

    fn on_applied(&mut self, facts: NodeFacts) -> Option<Change> {
        self.unreadable.remove(&facts.name);
        self.objects.on_applied(facts, |node| self.former.remember(node))
    }

    /// Applies a Node that can't be read. To subscribers it is gone.
    fn on_unreadable(&mut self, node: UnreadableNode) -> Option<Change> {
        let change = self.on_deleted(&node.name);
        self.unreadable.insert(node.name, node.pod_cidrs);
        change
    }

    fn on_deleted(&mut self, name: &str) -> Option<Change> {
        self.unreadable.remove(name);
        self.objects.on_deleted(name, |node| self.former.remember(node))
    }
}

impl FormerInstances {
    fn remember(&mut self, gone: &NodeFacts) {
        let Some(id) = &gone.provider_id else { return };
        if self.ids.insert(gone.name.clone(), id.clone()).is_none() {
            self.order.push_back(gone.name.clone());
        }
        if self.order.len() > MAX_FORMER
            && let Some(oldest) = self.order.pop_front()
        {
            self.ids.remove(&oldest);
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
        store.objects.begin_list();
        nodes.iter().cloned().for_each(|node| store.objects.add_listed(node));
        store.finish_list();
        store
    }

    #[test]
    fn the_pod_cidrs_of_unreadable_nodes_are_known_while_they_exist() {
        let unreadable = |name: &str, range: &str| UnreadableNode {
            name: name.to_owned(),
            problem: String::new(),
            pod_cidrs: vec![range.parse().unwrap()],
        };
        let ranges =
            |store: &Store| store.unreadable_ranges().map(|range| range.to_string()).collect::<Vec<_>>();
        let mut store = synced(&[node("a", "1")]);
        assert_eq!(store.on_unreadable(unreadable("a", "10.0.1.0/24")), Some(Change::Gone("a".to_owned())));
        assert_eq!(ranges(&store), ["10.0.1.0/24"]);
        store.on_applied(node("a", "2"));
        assert_eq!(ranges(&store), Vec::<String>::new());
        store.begin_list();
        store.add_listed_unreadable(unreadable("b", "10.0.2.0/24"));
        assert_eq!(ranges(&store), Vec::<String>::new(), "the list isn't complete");
        store.finish_list();
        assert_eq!(ranges(&store), ["10.0.2.0/24"]);
        store.on_deleted("b");
        assert_eq!(ranges(&store), Vec::<String>::new());
    }

    #[test]
    fn the_instance_of_a_deleted_node_is_remembered_for_a_while() {
        let id = |number: usize| ProviderId::parse(&format!("fake://{number}")).unwrap();
        let known = |number: usize| NodeFacts { provider_id: Some(id(number)), ..node("a", "1") };
        let mut store = synced(&[known(1)]);
        assert_eq!(store.former_instance("a"), None);
        store.on_deleted("a");
        assert_eq!(store.former_instance("a"), Some(&id(1)));
        store.on_applied(NodeFacts { uid: "second".to_owned(), ..known(2) });
        store.on_applied(NodeFacts { uid: "third".to_owned(), ..node("a", "3") });
        assert_eq!(store.former_instance("a"), Some(&id(2)), "whose deletion the watch did not show");
        store.on_deleted("a");
        assert_eq!(store.former_instance("a"), Some(&id(2)), "the third had none");
        for number in 0..MAX_FORMER {
            let name = format!("n-{number}");
            store.on_applied(NodeFacts { provider_id: Some(id(number)), ..node(&name, "1") });
            store.on_deleted(&name);
        }
        assert_eq!(
            (store.former_instance("a"), store.former.ids.len(), store.former.order.len()),
            (None, MAX_FORMER, MAX_FORMER)
        );
    }
}
