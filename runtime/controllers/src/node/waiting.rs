//! The Nodes that wait to be initialised: what the watch and our own writes say of them, and whose turn it is.
//!
//! Pure: the clock is an argument. Others' Nodes and complete ones are not kept, so at rest there is nothing in here.

use std::collections::BTreeMap;
use std::time::Duration;

use pileus_cloud::Retry;
use tokio::time::Instant;

use crate::facts::node::NodeFacts;
use crate::schedule::Schedule;

/// The Nodes that wait.
#[derive(Default)]
pub(super) struct Waiting {
    nodes: BTreeMap<String, NodeFacts>,
    schedule: Schedule,
    /// The Nodes of a list that is still coming in.
    listing: BTreeMap<String, NodeFacts>,
    /// What our own writes made of Nodes whose last state the watch hasn't shown yet.
    completed: BTreeMap<String, NodeFacts>,
    is_synced: bool,
}

impl Waiting {
    /// A list of all Nodes begins.
    pub(super) fn list_begins(&mut self) {
        self.listing.clear();
    }

    /// Whether a list has ever come to its end.
    pub(super) fn is_synced(&self) -> bool {
        self.is_synced
    }

    /// A Node of the list.
    pub(super) fn listed(&mut self, facts: NodeFacts) {
        self.listing.insert(facts.name.clone(), facts);
    }

    /// The list is complete: what isn't in it is gone.
    pub(super) fn list_ends(&mut self, now: Instant) {
        let listed = std::mem::take(&mut self.listing);
        let missing: Vec<_> = self.nodes.keys().filter(|name| !listed.contains_key(*name)).cloned().collect();
        for name in &missing {
            self.gone(name);
        }
        self.completed.retain(|name, _| listed.contains_key(name));
        for facts in listed.into_values() {
            self.changed(facts, now);
        }
        self.is_synced = true;
    }

    /// A waiting Node is new or has changed. It is looked at now if what decisions are made of has changed: a
    /// heartbeat is no reason to hurry, nor is news from before our own last write.
    pub(super) fn changed(&mut self, facts: NodeFacts, now: Instant) {
        if let Some(completed) = self.completed.get(&facts.name)
            && completed.uid == facts.uid
            && !is_newer(&facts, completed)
        {
            return;
        }
        self.completed.remove(&facts.name);
        let name = facts.name.clone();
        let is_news = self.nodes.get(&name).is_none_or(|known| {
            NodeFacts { resource_version: facts.resource_version.clone(), ..known.clone() } != facts
        });
        self.nodes.insert(name.clone(), facts);
        if is_news {
            self.schedule.changed(&name, now);
        }
    }

    /// A Node is gone, is complete, or is not ours.
    pub(super) fn gone(&mut self, name: &str) {
        self.completed.remove(name);
        if self.nodes.remove(name).is_some() {
            self.schedule.gone(name);
        }
    }

    /// Takes up to `most` Nodes whose turn it is. Nothing before the first list is complete: a Node that is only late
    /// should go out with the others.
    pub(super) fn take(&mut self, now: Instant, most: usize) -> Vec<NodeFacts> {
        if !self.is_synced {
            return Vec::new();
        }
        let due = self.schedule.take(now, most);
        due.iter().filter_map(|name| self.nodes.get(name).cloned()).collect()
    }

    /// What is known of a Node now, where it still waits.
    pub(super) fn get(&self, name: &str) -> Option<&NodeFacts> {
        self.nodes.get(name)
    }

    /// When the next Node's turn comes.
    pub(super) fn next(&self) -> Option<Instant> {
        self.schedule.next().filter(|_| self.is_synced)
    }

    /// Nothing is left to do for a Node until it changes, or until `again` has passed.
    pub(super) fn settled(&mut self, name: &str, now: Instant, again: Option<Duration>) {
        self.schedule.settled(name, now, again.filter(|_| self.nodes.contains_key(name)));
    }

    /// Our own writes have completed a Node, and this is what it is now.
    pub(super) fn initialised(&mut self, facts: NodeFacts, now: Instant) {
        let name = facts.name.clone();
        self.schedule.settled(&name, now, None);
        if self.nodes.get(&name).is_some_and(|node| node.uid == facts.uid) {
            self.gone(&name);
            self.completed.insert(name, facts);
        }
    }

    /// The work on a Node failed; how often it has failed in a row, which is 0 where the Node is gone.
    pub(super) fn failed(&mut self, name: &str, now: Instant, retry: Retry, jitter: f64) -> u32 {
        if self.nodes.contains_key(name) {
            self.schedule.failed(name, now, retry, jitter)
        } else {
            self.schedule.settled(name, now, None);
            0
        }
    }

    /// How many Nodes wait.
    pub(super) fn len(&self) -> usize {
        self.nodes.len()
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
    use crate::facts::node::NodeIps;
    use jiff::Timestamp;
    use pileus_cloud::{Address, AddressKind};

    fn node(name: &str, version: u32) -> NodeFacts {
        NodeFacts {
            name: name.to_owned(),
            uid: format!("uid-{name}"),
            resource_version: version.to_string(),
            created_at: Timestamp::UNIX_EPOCH,
            is_deleting: false,
            provider_id: None,
            taints: Vec::new(),
            addresses: Vec::new(),
            node_ips: NodeIps::Given(Vec::new()),
            labels: BTreeMap::new(),
        }
    }

    fn addressed(node: NodeFacts) -> NodeFacts {
        NodeFacts { addresses: vec![Address::new(AddressKind::InternalIp, "10.0.0.1")], ..node }
    }

    /// After a list of these Nodes, at this time.
    fn synced(nodes: &[NodeFacts]) -> (Waiting, Instant) {
        let (mut waiting, now) = (Waiting::default(), Instant::now());
        waiting.list_begins();
        nodes.iter().cloned().for_each(|node| waiting.listed(node));
        waiting.list_ends(now);
        (waiting, now)
    }

    fn names(nodes: &[NodeFacts]) -> Vec<&str> {
        nodes.iter().map(|node| node.name.as_str()).collect()
    }

    #[test]
    fn nothing_goes_out_before_the_list_is_complete_and_then_all_together() {
        let (mut waiting, now) = (Waiting::default(), Instant::now());
        waiting.list_begins();
        waiting.listed(node("a", 1));
        assert!(waiting.take(now, 9).is_empty());
        waiting.changed(node("c", 2), now);
        assert_eq!(waiting.next(), None);
        waiting.listed(node("b", 1));
        waiting.list_ends(now);
        assert_eq!(names(&waiting.take(now, 9)), ["a", "b"], "c was not in the list, so it is gone");
    }

    #[test]
    fn a_heartbeat_is_no_news() {
        let (mut waiting, now) = synced(&[node("a", 1)]);
        waiting.take(now, 1);
        waiting.settled("a", now, Some(Duration::from_mins(1)));
        waiting.changed(node("a", 2), now);
        assert_eq!(waiting.next(), Some(now + Duration::from_mins(1)));
        waiting.changed(addressed(node("a", 3)), now);
        assert_eq!(waiting.next(), Some(now));
    }

    #[test]
    fn news_from_before_our_own_last_write_start_no_work() {
        let (mut waiting, now) = synced(&[node("a", 1)]);
        waiting.take(now, 1);
        waiting.changed(addressed(node("a", 5)), now); // our first write, seen while we are at the second
        waiting.initialised(addressed(node("a", 6)), now);
        assert_eq!((waiting.len(), waiting.next()), (0, None));
        waiting.changed(addressed(node("a", 5)), now);
        assert_eq!((waiting.len(), waiting.next()), (0, None), "the watch is only late");
        waiting.changed(addressed(node("a", 7)), now);
        assert_eq!(waiting.len(), 1, "somebody tainted it again");
    }

    #[test]
    fn another_node_of_the_same_name_is_news_whatever_its_version() {
        let (mut waiting, now) = synced(&[node("a", 1)]);
        waiting.take(now, 1);
        waiting.initialised(node("a", 6), now);
        waiting.changed(NodeFacts { uid: "other".to_owned(), ..node("a", 5) }, now);
        assert_eq!(waiting.len(), 1);
    }

    #[test]
    fn a_node_that_took_the_name_meanwhile_still_waits() {
        let (mut waiting, now) = synced(&[node("a", 1)]);
        waiting.take(now, 1);
        waiting.gone("a");
        waiting.changed(NodeFacts { uid: "other".to_owned(), ..node("a", 5) }, now);
        waiting.initialised(node("a", 3), now);
        assert_eq!(names(&waiting.take(now, 1)), ["a"]);
    }

    #[test]
    fn a_node_that_went_while_it_was_worked_on_is_not_remembered() {
        let (mut waiting, now) = synced(&[node("a", 1)]);
        waiting.take(now, 1);
        waiting.gone("a");
        waiting.initialised(node("a", 6), now);
        assert!(waiting.completed.is_empty());
        assert_eq!((waiting.len(), waiting.next()), (0, None));
    }

    type EndWork = fn(&mut Waiting, Instant);

    #[test]
    fn a_node_that_went_while_it_was_worked_on_may_come_back() {
        let rows: [(&str, EndWork); 3] = [
            ("failed", |waiting, now| assert_eq!(waiting.failed("a", now, Retry::Growing, 0.0), 0)),
            ("pending", |waiting, now| waiting.settled("a", now, Some(Duration::from_secs(5)))),
            ("settled", |waiting, now| waiting.settled("a", now, None)),
        ];
        for (outcome, end_work) in rows {
            let (mut waiting, now) = synced(&[node("a", 1)]);
            waiting.take(now, 1);
            waiting.gone("a");
            end_work(&mut waiting, now);
            assert_eq!(waiting.next(), None, "{outcome}: nobody waits");
            let later = now + Duration::from_mins(10);
            assert!(waiting.take(later, 1).is_empty(), "{outcome}");
            waiting.changed(NodeFacts { uid: "other".to_owned(), ..node("a", 9) }, later);
            assert_eq!(names(&waiting.take(later, 1)), ["a"], "{outcome}");
        }
    }

    #[test]
    fn a_new_list_drops_what_it_lacks_and_keeps_delays() {
        let (mut waiting, now) = synced(&[node("a", 1), node("b", 1)]);
        waiting.take(now, 9);
        waiting.failed("a", now, Retry::Slowly, 0.0);
        waiting.settled("b", now, None);
        let due = waiting.next();
        waiting.list_begins();
        waiting.listed(node("a", 9));
        waiting.list_ends(now);
        assert_eq!((waiting.len(), waiting.next()), (1, due));
    }
}
