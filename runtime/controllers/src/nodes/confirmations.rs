//! Which Nodes have an instance that the cloud has confirmed. Only such Nodes become targets of load balancers and get routes:
//! a single Node whose provider ID names no instance can make a cloud refuse the change of a whole load balancer.
//!
//! The node controller and the lifecycle controller record what the cloud answers. After a start nothing is known, and a load
//! balancer must not lose targets for lack of knowledge. So a Node of the first list counts until the cloud says otherwise,
//! while a Node that joins later counts once it is confirmed. Many Nodes that are absent at once are more likely an error of
//! the cloud or of the credentials, and stay. Without a node controller nothing is recorded, and every Node counts.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use pileus_cloud::ProviderId;
use tokio::sync::watch;

use crate::facts::node::NodeFacts;

/// Absent instances are believed up to a share of 1 / `SHARE` of the Nodes, as deletions are.
const SHARE: usize = 4;

/// Below this number of Nodes they are always believed: in a small cluster one instance is a large share.
const MIN_ABSENT: usize = 4;

/// The recorded answers. [`super::Nodes`] shares one among all controllers.
#[derive(Debug)]
pub(crate) struct Confirmations {
    state: Mutex<State>,
    /// Incremented with each change that may matter to a reader.
    version: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct State {
    /// Whether a node controller records answers.
    is_recorded: bool,
    /// Whether the Nodes of the first list are known.
    has_begun: bool,
    /// By the UID of the Node.
    entries: HashMap<String, Entry>,
    /// The UIDs of the Nodes of the first list that no lookup has been answered for.
    unanswered: HashSet<String>,
}

/// What is known about the instance of one Node.
#[derive(Debug)]
struct Entry {
    provider_id: ProviderId,
    /// Whether the Node may have been a target before this process knew anything, or was confirmed once.
    is_established: bool,
    /// The last answer that says whether the instance exists.
    exists: Option<bool>,
}

impl Default for Confirmations {
    fn default() -> Self {
        Self { state: Mutex::default(), version: watch::Sender::new(0) }
    }
}

impl Confirmations {
    /// A node controller will record answers.
    pub(crate) fn expect_answers(&self) {
        self.update(|state| {
            state.is_recorded = true;
            true
        });
    }

    /// Records the Nodes of the first list. One without the uninitialized taint may be a target already.
    pub(crate) fn begin<'a>(&self, nodes: impl Iterator<Item = &'a NodeFacts>) {
        self.update(|state| {
            state.has_begun = true;
            for node in nodes {
                let Some(provider_id) = node.provider_id.clone() else { continue };
                let is_established = !node.is_uninitialized();
                state.unanswered.insert(node.uid.clone());
                state.entries.entry(node.uid.clone()).or_insert(Entry {
                    provider_id,
                    is_established,
                    exists: None,
                });
            }
            true
        });
    }

    /// The cloud has found the instance of a Node. `id` is the instance's provider ID, for a Node that has none yet.
    pub(crate) fn record_found(&self, node: &NodeFacts, id: &ProviderId) {
        let provider_id = node.provider_id.as_ref().unwrap_or(id);
        self.update(|state| {
            let was_awaited = state.unanswered.remove(&node.uid);
            let entry = state.entry(node, provider_id);
            entry.is_established = true;
            (entry.exists.replace(true) != Some(true)) | was_awaited
        });
    }

    /// The cloud has no instance for a Node. `is_direct` says that a direct read has confirmed that. A list alone is believed
    /// only about a Node that was never established.
    pub(crate) fn record_absent(&self, node: &NodeFacts, is_direct: bool) {
        let Some(provider_id) = &node.provider_id else { return };
        self.update(|state| {
            let was_awaited = state.unanswered.remove(&node.uid);
            let entry = state.entry(node, provider_id);
            let is_believed = is_direct || !entry.is_established;
            (is_believed && entry.exists.replace(false) != Some(false)) | was_awaited
        });
    }

    /// A lookup of a Node was answered in a way that says nothing about its instance, or has failed.
    pub(crate) fn record_unknown(&self, node: &NodeFacts) {
        self.update(|state| state.unanswered.remove(&node.uid));
    }

    /// Removes what is known about Nodes that are gone.
    pub(crate) fn retain(&self, is_present: impl Fn(&str) -> bool) {
        self.update(|state| {
            state.entries.retain(|uid, _| is_present(uid));
            let before = state.unanswered.len();
            state.unanswered.retain(|uid| is_present(uid));
            before != state.unanswered.len()
        });
    }

    /// The UIDs of those of all Nodes that must not be sent to the cloud as the end of traffic.
    pub(crate) fn unusable<'a>(&self, nodes: impl Iterator<Item = &'a NodeFacts>) -> HashSet<String> {
        self.state().unusable(nodes)
    }

    /// A receiver that is notified of changes.
    pub(crate) fn subscribe(&self) -> watch::Receiver<u64> {
        self.version.subscribe()
    }

    /// Returns once a lookup of each Node of the first list was answered, or failed. Returns at once where nothing is recorded.
    pub(crate) async fn first_answers(&self) {
        let mut changes = self.subscribe();
        while self.state().is_awaited() {
            if changes.changed().await.is_err() {
                return;
            }
        }
    }

    fn update(&self, update: impl FnOnce(&mut State) -> bool) {
        let is_change = update(&mut self.state());
        if is_change {
            self.version.send_modify(|version| *version += 1);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn is_awaited(&self) -> bool {
        self.is_recorded && !(self.has_begun && self.unanswered.is_empty())
    }

    /// The entry of a Node with this provider ID. What was known about another provider ID of the Node doesn't count.
    fn entry(&mut self, node: &NodeFacts, provider_id: &ProviderId) -> &mut Entry {
        let new = || Entry { provider_id: provider_id.clone(), is_established: false, exists: None };
        let entry = self.entries.entry(node.uid.clone()).or_insert_with(new);
        if entry.provider_id != *provider_id {
            *entry = new();
        }
        entry
    }

    fn unusable<'a>(&self, nodes: impl Iterator<Item = &'a NodeFacts>) -> HashSet<String> {
        let (mut unusable, mut absent, mut established) = (HashSet::new(), Vec::new(), 0);
        if !self.is_recorded || !self.has_begun {
            return unusable;
        }
        for node in nodes {
            let Some(provider_id) = &node.provider_id else { continue };
            let entry = self.entries.get(&node.uid).filter(|entry| entry.provider_id == *provider_id);
            let Some(entry) = entry.filter(|entry| entry.is_established) else {
                // A node manager has asked the instance itself, and records nothing here.
                if !node.has_node_manager {
                    unusable.insert(node.uid.clone());
                }
                continue;
            };
            established += 1;
            if entry.exists == Some(false) {
                absent.push(&node.uid);
            }
        }
        if absent.len() < MIN_ABSENT || absent.len() * SHARE <= established {
            unusable.extend(absent.into_iter().cloned());
        }
        unusable
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::node::Taint;
    use crate::well_known::TAINT_UNINITIALIZED;

    fn id(text: &str) -> ProviderId {
        ProviderId::parse(&format!("fake://{text}")).unwrap()
    }

    fn node(name: &str, is_tainted: bool) -> NodeFacts {
        let taint = Taint {
            key: TAINT_UNINITIALIZED.to_owned(),
            value: None,
            effect: "NoSchedule".to_owned(),
            time_added: None,
        };
        let taints = if is_tainted { vec![taint] } else { Vec::new() };
        NodeFacts {
            uid: format!("uid-{name}"),
            provider_id: Some(id(name)),
            taints,
            ..NodeFacts::registered(name)
        }
    }

    fn is_usable(confirmations: &Confirmations, node: &NodeFacts) -> bool {
        confirmations.unusable([node].into_iter()).is_empty()
    }

    fn begun(nodes: &[NodeFacts]) -> Confirmations {
        let confirmations = Confirmations::default();
        confirmations.expect_answers();
        confirmations.begin(nodes.iter());
        confirmations
    }

    #[test]
    fn a_node_counts_once_it_is_confirmed_and_no_more_once_it_is_confirmed_absent() {
        let record = |of: &Confirmations, node: &NodeFacts, answer: &str| match answer {
            "found" => of.record_found(node, &id("other")),
            "listed absent" => of.record_absent(node, false),
            "absent" => of.record_absent(node, true),
            _ => of.record_unknown(node),
        };
        // Whether the Node was in the first list, whether it is tainted, the answers, and whether it counts then.
        for (was_listed, is_tainted, answers, expected) in [
            (true, false, &[][..], true),
            (true, false, &["unknown"], true),
            (true, false, &["listed absent"], true),
            (true, false, &["absent"], false),
            (true, false, &["absent", "unknown"], false),
            (true, false, &["absent", "found"], true),
            (true, true, &[], false),
            (true, true, &["unknown"], false),
            (true, true, &["found"], true),
            (true, true, &["listed absent"], false),
            (false, false, &[], false),
            (false, false, &["unknown"], false),
            (false, false, &["listed absent"], false),
            (false, false, &["found"], true),
            (false, false, &["found", "unknown"], true),
            (false, false, &["found", "listed absent"], true),
            (false, false, &["found", "absent"], false),
            (false, true, &["found"], true),
            (false, true, &["listed absent", "found"], true),
        ] {
            let node = node("a", is_tainted);
            let listed = if was_listed { vec![node.clone()] } else { Vec::new() };
            let confirmations = begun(&listed);
            for answer in answers {
                record(&confirmations, &node, answer);
            }
            assert_eq!(is_usable(&confirmations, &node), expected, "{was_listed} {is_tainted} {answers:?}");
        }
    }

    #[test]
    fn without_a_controller_that_asks_every_node_counts() {
        let confirmations = Confirmations::default();
        confirmations.record_absent(&node("a", false), true);
        assert!(is_usable(&confirmations, &node("a", true)));
        // Nor is a Node left out before the first list is known.
        confirmations.expect_answers();
        assert!(is_usable(&confirmations, &node("a", true)));
    }

    #[test]
    fn a_confirmation_is_for_one_node_and_one_provider_id() {
        let confirmations = begun(&[]);
        let joins = NodeFacts { provider_id: None, ..node("a", true) };
        confirmations.record_found(&joins, &id("a"));
        assert!(is_usable(&confirmations, &node("a", false)), "with the provider ID of the instance");
        let other_id = NodeFacts { provider_id: Some(id("b")), ..node("a", false) };
        let other_node = NodeFacts { uid: "another".to_owned(), ..node("a", false) };
        assert!(!is_usable(&confirmations, &other_id) && !is_usable(&confirmations, &other_node));
        confirmations.retain(|_| false);
        assert!(!is_usable(&confirmations, &node("a", false)));
    }

    #[test]
    fn many_nodes_that_are_absent_at_once_stay_but_none_that_was_never_confirmed_comes_in() {
        for (absent, total, is_believed) in [(3, 3, true), (4, 15, false), (4, 16, true), (16, 16, false)] {
            let nodes: Vec<_> = (0..total).map(|number| node(&format!("n-{number}"), false)).collect();
            let confirmations = begun(&nodes);
            nodes[..absent].iter().for_each(|node| confirmations.record_absent(node, true));
            let joins: Vec<_> = (0..total).map(|number| node(&format!("new-{number}"), false)).collect();
            for node in &joins {
                confirmations.record_absent(node, true);
            }
            let unusable = confirmations.unusable(nodes.iter().chain(&joins));
            let expected = total + if is_believed { absent } else { 0 };
            assert_eq!(unusable.len(), expected, "{absent} of {total}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_answers_are_awaited_only_where_there_will_be_some() {
        let wait = std::time::Duration::from_secs(1);
        let is_answered = |of: &Confirmations| {
            let waiting = of.first_answers();
            let mut waiting = Box::pin(waiting);
            futures::FutureExt::now_or_never(&mut waiting).is_some()
        };
        let confirmations = Confirmations::default();
        assert!(is_answered(&confirmations));
        confirmations.expect_answers();
        assert!(!is_answered(&confirmations));
        confirmations.begin([node("a", false), node("b", true)].iter());
        assert!(!is_answered(&confirmations));
        confirmations.record_found(&node("a", false), &id("a"));
        assert!(!is_answered(&confirmations));
        let answered = tokio::time::timeout(wait, confirmations.first_answers());
        let (answered, ()) = tokio::join!(answered, async { confirmations.record_unknown(&node("b", true)) });
        assert!(answered.is_ok());
    }
}
