//! The Nodes that the informer knows. Beside the facts it remembers the Pod CIDRs of Nodes that can't be read, whose routes
//! must stay, and the instances of Nodes that are gone, which a cloud's list may still show. To the facts of a Node it adds
//! whether another Node has the same provider ID, and which provider the Node belongs to.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use ipnet::IpNet;
use kube::ResourceExt as _;
use kube::runtime::watcher;
use pileus_cloud::ProviderId;

use super::Change;
use super::identities::Identities;
use crate::claims::Claims;
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
    objects: ObjectStore<NodeFacts>,
    /// The Nodes that can't be read, by name.
    unreadable: BTreeMap<String, UnreadableNode>,
    /// The same of a list that isn't complete yet.
    listing_unreadable: BTreeMap<String, UnreadableNode>,
    pub(super) identities: Identities,
    /// Those of the providers that run.
    claims: Claims,
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
        let changes = match event {
            watcher::Event::Init => {
                self.begin_list();
                Vec::new()
            }
            watcher::Event::InitApply(node) => {
                match self.read(node) {
                    Ok(facts) => self.objects.add_listed(facts),
                    Err(unreadable) => self.add_listed_unreadable(unreadable),
                }
                Vec::new()
            }
            watcher::Event::InitDone => self.finish_list(),
            watcher::Event::Apply(node) => match self.read(node) {
                Ok(facts) => self.on_applied(facts).into_iter().collect(),
                Err(unreadable) => self.on_unreadable(unreadable).into_iter().collect(),
            },
            watcher::Event::Delete(node) => self.on_deleted(&node.name_any()).into_iter().collect(),
        };
        self.settle(changes)
    }

    fn objects(&self) -> &ObjectStore<NodeFacts> {
        &self.objects
    }

    fn forget_versions(&mut self) {
        self.objects.forget_versions();
    }
}

impl Store {
    /// Reads a Node, with the present claims of the providers.
    pub(super) fn read(&self, node: Node) -> Result<NodeFacts, UnreadableNode> {
        NodeFacts::read(node, &self.claims)
    }

    /// Whether the provider of this name has a claim.
    pub(super) fn has_claim(&self, provider: &str) -> bool {
        self.claims.contains(provider)
    }

    /// Sets the claims of the providers. Returns the Nodes that belong to another provider since, or to none any more. The Nodes
    /// of a list that isn't complete yet get their owners, too.
    pub(super) fn set_claims(&mut self, claims: Claims) -> Vec<Change> {
        self.claims = claims;
        self.objects.amend_listed(|listed| other_owner(listed, &self.claims));
        let mut changes = Vec::new();
        for known in self.objects.all().into_iter().flatten() {
            if let Some(other) = other_owner(&known, &self.claims) {
                changes.push(self.objects.amend(other));
            }
        }
        changes
    }

    /// See [`super::Nodes::all_under`].
    pub(super) fn all_under(&self, claims: &Claims) -> Option<Vec<Arc<NodeFacts>>> {
        let under = |known: Arc<NodeFacts>| other_owner(&known, claims).map_or(known, Arc::new);
        Some(self.objects.all()?.into_iter().map(under).collect())
    }

    /// The Pod CIDRs of Nodes that can't be read.
    pub(super) fn unreadable_ranges(&self) -> impl Iterator<Item = IpNet> {
        self.unreadable.values().flat_map(|node| &node.pod_cidrs).copied()
    }

    /// Applies the Node in the response to a write, see [`ObjectStore::on_write_response`]. Returns the changes, and the Node as it
    /// is kept.
    pub(super) fn on_write_response(&mut self, facts: Arc<NodeFacts>) -> (Arc<NodeFacts>, Vec<Change>) {
        // The claims may have changed since it was read.
        let facts = other_owner(&facts, &self.claims).map_or(facts, Arc::new);
        let changes = self.objects.on_write_response(&facts).into_iter().collect();
        let changes = self.settle(changes);
        let kept = self
            .objects
            .get(&facts.name)
            .filter(|kept| kept.uid == facts.uid && kept.resource_version == facts.resource_version);
        (kept.cloned().unwrap_or(facts), changes)
    }

    /// The Node with this name.
    pub(super) fn get(&self, name: &str) -> Option<&Arc<NodeFacts>> {
        self.objects.get(name)
    }

    /// Adds to each changed Node which other one has its provider ID, and to the changes the Nodes for which that is another one
    /// since.
    fn settle(&mut self, mut changes: Vec<Change>) -> Vec<Change> {
        let (mut ids, mut names) = (BTreeSet::new(), BTreeSet::new());
        for change in &changes {
            match change {
                Change::Present(facts) => {
                    ids.extend(self.identities.set(facts));
                    names.insert(facts.name.clone());
                }
                Change::Gone(name) => ids.extend(self.identities.remove(name)),
            }
        }
        for id in &ids {
            names.extend(self.identities.with_id(id).map(str::to_owned));
        }
        let mut amended = BTreeMap::new();
        for name in names {
            let Some(known) = self.objects.get(&name) else { continue };
            let twin = self.identities.twin(known);
            if known.twin.as_deref() != twin {
                let facts = NodeFacts { twin: twin.map(str::to_owned), ..NodeFacts::clone(known) };
                amended.insert(name, self.objects.amend(facts));
            }
        }
        let is_amended =
            |change: &Change| matches!(change, Change::Present(facts) if amended.contains_key(&facts.name));
        changes.retain(|change| !is_amended(change));
        changes.extend(amended.into_values());
        changes
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
        self.log_once(&node);
        self.listing_unreadable.insert(node.name.clone(), node);
    }

    /// Logs a Node that can't be read, once for each problem: its kubelet changes it every few seconds.
    fn log_once(&self, node: &UnreadableNode) {
        let UnreadableNode { name, problem, .. } = node;
        if self.unreadable.get(name).is_none_or(|known| known.problem != *problem) {
            tracing::warn!(node = %name, problem, "node can't be read, so it is left alone");
        }
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
        self.log_once(&node);
        let change = self.on_deleted(&node.name);
        self.unreadable.insert(node.name.clone(), node);
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

/// The Node with the owner that it has under these claims, if that is another one.
fn other_owner(known: &NodeFacts, claims: &Claims) -> Option<NodeFacts> {
    let owner = claims.owner_of_node(&known.labels, known.provider_id.as_ref());
    (known.owner != owner).then(|| NodeFacts { owner, ..NodeFacts::clone(known) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claims::{Claim, NodeOwner};
    use crate::facts::service::NodeSelector;
    use proptest::prelude::*;
    use proptest::test_runner::{Config, RngAlgorithm};
    use serde_json::json;

    fn node(name: &str, version: &str) -> NodeFacts {
        NodeFacts { resource_version: version.to_owned(), ..NodeFacts::registered(name) }
    }

    /// The claim of a provider of this name, to the Nodes that it selects and to those with its scheme.
    fn claim(name: &str, selector: &str) -> Claim {
        Claim {
            node_selector: NodeSelector::of(selector),
            is_default: false,
            ..Claim::of_only_provider(name, vec![name.to_owned()])
        }
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
    fn the_store_says_which_node_has_the_same_provider_id_and_reports_when_that_changes() {
        let with_id = |name: &str, version: &str| NodeFacts {
            provider_id: Some(ProviderId::parse("fake://1").unwrap()),
            ..node(name, version)
        };
        let twins = |changes: &[Change]| -> Vec<(String, Option<String>)> {
            let twin = |change: &Change| match change {
                Change::Present(facts) => (facts.name.clone(), facts.twin.clone()),
                Change::Gone(name) => (name.clone(), None),
            };
            changes.iter().map(twin).collect()
        };
        let pair = |name: &str, twin: Option<&str>| (name.to_owned(), twin.map(str::to_owned));
        let mut store = synced(&[]);
        let apply = |store: &mut Store, facts: NodeFacts| {
            let changes = store.on_applied(facts).into_iter().collect();
            twins(&store.settle(changes))
        };
        assert_eq!(apply(&mut store, with_id("b", "1")), [pair("b", None)]);
        assert_eq!(apply(&mut store, with_id("c", "2")), [pair("c", Some("b"))]);
        assert_eq!(apply(&mut store, with_id("c", "3")), [pair("c", Some("b"))], "a heartbeat");
        let older = apply(&mut store, with_id("a", "4"));
        assert_eq!(
            older,
            [pair("a", None), pair("b", Some("a")), pair("c", Some("a"))],
            "by name, of the same age"
        );
        let (kept, _) = store.on_write_response(Arc::new(with_id("c", "5")));
        assert_eq!(kept.twin.as_deref(), Some("a"), "also in the response to a write");
        let going = NodeFacts { is_deleting: true, ..with_id("a", "6") };
        assert_eq!(apply(&mut store, going), [pair("a", Some("b")), pair("b", None), pair("c", Some("b"))]);
        let gone = store.on_deleted("b").into_iter().collect();
        assert_eq!(twins(&store.settle(gone)), [pair("b", None), pair("a", Some("c")), pair("c", None)]);
        let renewed = NodeFacts { uid: "second".to_owned(), ..with_id("c", "7") };
        assert_eq!(apply(&mut store, renewed), [pair("c", None)], "the same name registers anew");
    }

    #[test]
    fn new_claims_change_the_nodes_whose_owner_they_change_and_count_for_every_node_that_is_read() {
        let node = |name: &str, pool: &str, id: &str| -> Node {
            let labels = json!({"pool": pool});
            let metadata = json!({"name": name, "uid": name, "resourceVersion": "1", "labels": labels});
            serde_json::from_value(json!({"metadata": metadata, "spec": {"providerID": id}})).unwrap()
        };
        let claims = |providers: &[(&str, &str)]| {
            Claims::new(providers.iter().map(|(name, selector)| claim(name, selector)).collect()).0
        };
        let owners = |changes: &[Change]| -> Vec<String> {
            let owner = |change: &Change| match change {
                Change::Present(node) => match &node.owner {
                    NodeOwner::Provider(owner) => format!("{} {owner}", node.name),
                    NodeOwner::Unserved { contenders, .. } => format!("{} {contenders:?}", node.name),
                },
                Change::Gone(name) => format!("{name} gone"),
            };
            changes.iter().map(owner).collect()
        };
        let mut store = Store::default();
        assert_eq!(store.set_claims(claims(&[("a", "")])), [], "before the list");
        assert_eq!(store.all_under(&claims(&[("a", "")])), None);
        store.on_event(watcher::Event::Init);
        for listed in
            [node("n1", "x", ""), node("n2", "y", ""), node("n3", "x", "b://3"), node("n4", "x", "c://4")]
        {
            store.on_event(watcher::Event::InitApply(listed));
        }
        let listed = store.on_event(watcher::Event::InitDone);
        assert_eq!(owners(&listed), ["n1 a", "n2 a", "n3 []", "n4 []"]);
        assert_eq!(store.set_claims(claims(&[("a", "")])), [], "the same again");
        assert_eq!(owners(&store.set_claims(claims(&[("a", ""), ("b", "pool=x")]))), ["n1 b", "n3 b"]);
        let joins = store.on_event(watcher::Event::Apply(node("n5", "x", "")));
        assert_eq!(owners(&joins), ["n5 b"]);
        let contested = store.set_claims(claims(&[("a", "pool"), ("b", "pool=x")]));
        assert_eq!(owners(&contested), ["n1 [\"a\", \"b\"]", "n5 [\"a\", \"b\"]"]);
        assert_eq!(store.get("n2").unwrap().owner, NodeOwner::Provider("a".to_owned()));
        let present = |nodes: Vec<Arc<NodeFacts>>| nodes.into_iter().map(Change::Present).collect::<Vec<_>>();
        let under = present(store.all_under(&claims(&[("b", "pool=x")])).unwrap());
        assert_eq!(owners(&under), ["n1 b", "n2 []", "n3 b", "n4 []", "n5 b"]);
        assert_eq!(owners(&store.set_claims(Claims::default())).len(), 5, "nothing was changed");
    }

    /// What happens to the Nodes and their claims. Nodes have the names `n0` to `n3`.
    #[derive(Debug, Clone)]
    enum Step {
        Event(watcher::Event<Node>),
        Claims(Claims),
        /// The response to a write of a Node that was read under these claims.
        Response(Node, Claims),
    }

    fn any_node() -> impl Strategy<Value = Node> {
        (
            0..4,
            prop::sample::select(vec!["x", "y"]),
            prop::sample::select(vec!["", "a://1", "b://1"]),
            1_u32..9,
        )
            .prop_map(|(number, pool, id, version)| {
                let name = format!("n{number}");
                let (version, labels) = (version.to_string(), json!({"pool": pool}));
                let metadata =
                    json!({"name": name, "uid": name, "resourceVersion": version, "labels": labels});
                serde_json::from_value(json!({"metadata": metadata, "spec": {"providerID": id}})).unwrap()
            })
    }

    fn any_claims() -> impl Strategy<Value = Claims> {
        let selector = || prop::option::of(prop::sample::select(vec!["", "pool=x", "pool"]));
        (selector(), selector()).prop_map(|(a, b)| {
            let claims = [("a", a), ("b", b)];
            Claims::new(
                claims.into_iter().filter_map(|(name, selector)| Some(claim(name, selector?))).collect(),
            )
            .0
        })
    }

    fn any_step() -> impl Strategy<Value = Step> {
        use watcher::Event::{Apply, Delete, Init, InitApply, InitDone};
        prop_oneof![
            1 => Just(Step::Event(Init)),
            4 => any_node().prop_map(|node| Step::Event(InitApply(node))),
            1 => Just(Step::Event(InitDone)),
            2 => any_node().prop_map(|node| Step::Event(Apply(node))),
            1 => any_node().prop_map(|node| Step::Event(Delete(node))),
            2 => any_claims().prop_map(Step::Claims),
            1 => (any_node(), any_claims()).prop_map(|(node, claims)| Step::Response(node, claims)),
        ]
    }

    proptest! {
        #![proptest_config(Config { rng_algorithm: RngAlgorithm::XorShift, ..Config::default() })]
        #[test]
        fn whenever_claims_change_each_node_has_the_owner_that_they_say_and_subscribers_know_it(
            steps in prop::collection::vec(any_step(), 1..40)
        ) {
            use watcher::Event::{Apply, Delete, Init, InitDone};
            let (mut store, mut seen, mut is_listing) = (Store::default(), BTreeMap::new(), true);
            for step in steps {
                let changes = match step {
                    // A watch begins when the list is complete.
                    Step::Event(Apply(_) | Delete(_)) if is_listing => continue,
                    Step::Event(event) => {
                        is_listing = matches!(event, Init) || is_listing && !matches!(event, InitDone);
                        store.on_event(event)
                    }
                    Step::Claims(claims) => store.set_claims(claims),
                    Step::Response(node, claims) => {
                        store.on_write_response(Arc::new(NodeFacts::read(node, &claims).unwrap())).1
                    }
                };
                for change in changes {
                    match change {
                        Change::Present(facts) => drop(seen.insert(facts.name.clone(), facts)),
                        Change::Gone(name) => drop(seen.remove(&name)),
                    }
                }
                for known in store.objects.all().into_iter().flatten() {
                    prop_assert_eq!(other_owner(&known, &store.claims), None);
                    prop_assert_eq!(seen.get(&known.name), Some(&known));
                }
            }
        }
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
