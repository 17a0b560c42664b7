//! What is known of all Nodes, from the watch and from the answers to our own writes, whichever is newer.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use ipnet::IpNet;
use pileus_cloud::ProviderId;

use crate::facts::node::{NodeFacts, Unreadable};

/// Something that followers are told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Change {
    /// A Node is new, or has changed.
    Present(Arc<NodeFacts>),
    /// A Node of this name is gone.
    Gone(String),
}

/// How many names of Nodes that are gone are remembered: more than go while a cloud's list may still show their machines.
const FORMER: usize = 10_000;

/// All Nodes by name.
#[derive(Debug, Default)]
pub(super) struct Store {
    nodes: BTreeMap<String, Arc<NodeFacts>>,
    /// The ranges of Pod addresses of those that nobody can work on, by name.
    unreadable: BTreeMap<String, Vec<IpNet>>,
    /// The Nodes of a list that is still coming in.
    listing: BTreeMap<String, NodeFacts>,
    listing_unreadable: BTreeMap<String, Vec<IpNet>>,
    is_synced: bool,
    /// The machines of Nodes that are gone, by the Node's name, and the names in the order in which they went.
    former: BTreeMap<String, ProviderId>,
    went: VecDeque<String>,
}

impl Store {
    /// All Nodes; none before a list has come to its end.
    pub(super) fn all(&self) -> Option<Vec<Arc<NodeFacts>>> {
        self.is_synced.then(|| self.nodes.values().cloned().collect())
    }

    /// The ranges of Pod addresses that Nodes have which nobody can work on.
    pub(super) fn unreadable_ranges(&self) -> impl Iterator<Item = IpNet> {
        self.unreadable.values().flatten().copied()
    }

    /// A list of all Nodes begins.
    pub(super) fn list_begins(&mut self) {
        self.listing.clear();
        self.listing_unreadable.clear();
    }

    /// A Node of the list.
    pub(super) fn listed(&mut self, facts: NodeFacts) {
        self.listing.insert(facts.name.clone(), facts);
    }

    /// A Node of the list that nobody can work on.
    pub(super) fn listed_unreadable(&mut self, node: Unreadable) {
        self.listing_unreadable.insert(node.name, node.pod_cidrs);
    }

    /// The list is complete: what isn't in it is gone.
    pub(super) fn list_ends(&mut self) -> Vec<Change> {
        self.is_synced = true;
        let listed = std::mem::take(&mut self.listing);
        let missing: Vec<_> = self.nodes.keys().filter(|name| !listed.contains_key(*name)).cloned().collect();
        let gone: Vec<_> = missing.iter().filter_map(|name| self.gone(name)).collect();
        self.unreadable = std::mem::take(&mut self.listing_unreadable);
        gone.into_iter().chain(listed.into_values().filter_map(|facts| self.changed(facts))).collect()
    }

    /// The watch shows a Node: nothing new where our own write has already told more.
    pub(super) fn changed(&mut self, facts: NodeFacts) -> Option<Change> {
        let is_old = |known: &Arc<NodeFacts>| known.uid == facts.uid && !is_newer(&facts, known);
        if self.nodes.get(&facts.name).is_some_and(is_old) {
            return None;
        }
        if let Some(other) = self.nodes.get(&facts.name).filter(|known| known.uid != facts.uid) {
            self.remember(&Arc::clone(other));
        }
        Some(self.keep(Arc::new(facts)))
    }

    /// The API server has answered a write or a read with this Node. One that the watch doesn't know, or knows to be
    /// gone, is not brought back by an answer that took its time.
    pub(super) fn learn(&mut self, facts: &Arc<NodeFacts>) -> Option<Change> {
        let known = self.nodes.get(&facts.name)?;
        (known.uid == facts.uid && is_newer(facts, known)).then(|| self.keep(Arc::clone(facts)))
    }

    /// The watch shows a Node that nobody can work on: to followers it is gone.
    pub(super) fn unreadable(&mut self, node: Unreadable) -> Option<Change> {
        let gone = self.gone(&node.name);
        self.unreadable.insert(node.name, node.pod_cidrs);
        gone
    }

    /// The watch shows that a Node is gone.
    pub(super) fn gone(&mut self, name: &str) -> Option<Change> {
        self.unreadable.remove(name);
        let facts = self.nodes.remove(name)?;
        self.remember(&facts);
        Some(Change::Gone(facts.name.clone()))
    }

    /// The machine of the last Node that bore this name and is gone.
    pub(super) fn former_machine(&self, name: &str) -> Option<&ProviderId> {
        self.former.get(name)
    }

    fn remember(&mut self, gone: &NodeFacts) {
        let Some(id) = &gone.provider_id else { return };
        if self.former.insert(gone.name.clone(), id.clone()).is_none() {
            self.went.push_back(gone.name.clone());
        }
        if self.went.len() > FORMER
            && let Some(oldest) = self.went.pop_front()
        {
            self.former.remove(&oldest);
        }
    }

    fn keep(&mut self, facts: Arc<NodeFacts>) -> Change {
        self.unreadable.remove(&facts.name);
        self.nodes.insert(facts.name.clone(), Arc::clone(&facts));
        Change::Present(facts)
    }
}

/// Whether one state of a Node is later than another. The API promises that resource versions of one resource can be
/// compared as whole numbers (KEP-5504); where a server's can't be, nothing is taken for old.
fn is_newer(facts: &NodeFacts, than: &NodeFacts) -> bool {
    let number = |facts: &NodeFacts| facts.resource_version.parse::<u128>().ok();
    match (number(facts), number(than)) {
        (Some(version), Some(other)) => version > other,
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str, version: &str) -> NodeFacts {
        NodeFacts { resource_version: version.to_owned(), ..NodeFacts::registered(name) }
    }

    fn present(facts: NodeFacts) -> Change {
        Change::Present(Arc::new(facts))
    }

    fn synced(nodes: &[NodeFacts]) -> Store {
        let mut store = Store::default();
        store.list_begins();
        nodes.iter().cloned().for_each(|node| store.listed(node));
        store.list_ends();
        store
    }

    #[test]
    fn nothing_is_known_before_a_list_is_complete() {
        let mut store = Store::default();
        store.list_begins();
        store.listed(node("a", "1"));
        assert_eq!(store.all(), None);
        assert_eq!(store.list_ends(), [present(node("a", "1"))]);
        assert_eq!(store.all().map(|all| all.len()), Some(1));
    }

    #[test]
    fn an_empty_cluster_is_known_too() {
        assert_eq!(synced(&[]).all(), Some(Vec::new()));
    }

    #[test]
    fn a_new_list_tells_what_is_gone_and_what_has_changed() {
        let mut store = synced(&[node("a", "1"), node("b", "1"), node("c", "1")]);
        store.list_begins();
        store.listed(node("a", "1"));
        store.listed(node("c", "2"));
        assert_eq!(store.list_ends(), [Change::Gone("b".to_owned()), present(node("c", "2"))]);
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
    fn a_list_that_broke_off_leaves_no_trace() {
        let mut store = synced(&[node("a", "1")]);
        store.list_begins();
        store.listed(node("ghost", "1"));
        store.list_begins();
        store.listed(node("a", "1"));
        assert_eq!(store.list_ends(), []);
    }

    #[test]
    fn the_watch_does_not_take_back_what_our_own_write_has_told() {
        let mut store = synced(&[node("a", "1")]);
        let written = Arc::new(node("a", "6"));
        assert_eq!(store.learn(&written), Some(Change::Present(Arc::clone(&written))));
        assert_eq!(store.changed(node("a", "5")), None);
        assert_eq!(store.changed(node("a", "6")), None);
        assert_eq!(store.changed(node("a", "7")), Some(present(node("a", "7"))));
        assert_eq!(store.learn(&written), None, "an answer that was late");
    }

    #[test]
    fn another_node_of_the_same_name_is_news_whatever_its_version() {
        let mut store = synced(&[node("a", "6")]);
        let other = NodeFacts { uid: "other".to_owned(), ..node("a", "5") };
        assert_eq!(store.changed(other.clone()), Some(present(other)));
        assert_eq!(store.learn(&Arc::new(node("a", "9"))), None, "an answer about the one before");
    }

    #[test]
    fn an_answer_does_not_bring_back_a_node_that_is_gone() {
        let mut store = synced(&[node("a", "1")]);
        assert_eq!(store.gone("a"), Some(Change::Gone("a".to_owned())));
        assert_eq!(store.gone("a"), None);
        assert_eq!(store.learn(&Arc::new(node("a", "2"))), None);
        assert_eq!(store.all(), Some(Vec::new()));
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
        assert_eq!((store.former_machine("a"), store.former.len(), store.went.len()), (None, FORMER, FORMER));
    }

    #[test]
    fn versions_that_are_no_numbers_are_never_old() {
        let mut store = synced(&[node("a", "x")]);
        assert_eq!(store.changed(node("a", "w")), Some(present(node("a", "w"))));
    }
}
