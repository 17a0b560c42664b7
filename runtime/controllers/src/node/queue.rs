//! The Nodes that the provider serves, and when each of them is looked up next.
//!
//! A Node that waits to be initialized is looked up at once. An initialized Node is looked up together with all others, in
//! periodic sweeps, so that no Node costs the cloud a list of its own. Between sweeps it is looked up only when another
//! client has changed what Pileus keeps up to date.
//!
//! Pure: the clock is an argument.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use pileus_cloud::{Provider, Retry};
use tokio::time::Instant;

use super::Settings;
use super::work_kind::WorkKind;
use crate::facts::node::NodeFacts;
use crate::nodes::Change;
use crate::schedule::{Backoff, Schedule};
use crate::well_known::TOPOLOGY_LABELS;

/// The shortest time between two lookups of an initialized Node because of changes by other clients. Two clients that fight
/// over a label must not cost the cloud a lookup for each change.
const CHANGE_INTERVAL: Duration = Duration::from_mins(1);

/// The same for a Node that waits to be initialized. Most of its changes help it, but a kubelet can change its Node without
/// end, and each change must not cost a lookup either.
const CHANGE_INTERVAL_WAITING: Duration = Duration::from_secs(1);

/// The first delay before a failed refresh is retried, so that a cloud that fails gets time to recover.
const REFRESH_RETRY: Duration = Duration::from_secs(10);

/// When a Node is looked up again, unless it changes before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NextLookup {
    /// With all other Nodes, at the next sweep.
    AtSweep,
    /// Only when the Node changes.
    OnChange,
    /// After this time, as the cloud has asked for.
    After(Duration),
    /// After a backoff, since the Node could not be brought up to date.
    OnRetry(Retry),
}

/// The queue of Nodes.
pub(super) struct NodeQueue {
    provider: Provider,
    nodes: BTreeMap<String, Entry>,
    initialize: Schedule,
    refresh: Schedule,
    /// The backoff of failed refreshes, for which no user waits.
    refresh_backoff: Backoff,
    /// The time of the first sweep, which is when the first Nodes came. The others follow each `period`.
    first_sweep: Option<Instant>,
    period: Duration,
    /// Whether it matters that a Node has got its routes.
    waits_for_routes: bool,
    /// Whether Nodes with a node manager are served, too.
    serves_managed: bool,
    /// The number of Nodes with the uninitialized taint.
    uninitialized: usize,
}

struct Entry {
    facts: Arc<NodeFacts>,
    /// Whether another client has changed the Node since its last lookup.
    has_foreign_change: bool,
    /// When it was last looked up for such a change.
    change_looked_up: Option<Instant>,
    /// How many times in a row the cloud has asked to come back later.
    pending: u32,
}

impl NodeQueue {
    /// A queue without Nodes.
    pub(super) fn new(provider: Provider, settings: &Settings) -> Self {
        let period = settings.refresh_period.max(Duration::from_secs(1));
        let first = REFRESH_RETRY.min(period);
        Self {
            provider,
            nodes: BTreeMap::new(),
            initialize: Schedule::default(),
            refresh: Schedule::default(),
            refresh_backoff: Backoff { soon: first, first, longest: period, slow: period },
            first_sweep: None,
            period,
            waits_for_routes: settings.waits_for_routes,
            serves_managed: settings.is_node_manager,
            uninitialized: 0,
        }
    }

    /// All Nodes that the provider serves.
    pub(super) fn nodes(&self) -> impl Iterator<Item = &NodeFacts> {
        self.nodes.values().map(|entry| &*entry.facts)
    }

    /// Whether the provider serves the Node of this name.
    pub(super) fn contains(&self, name: &str) -> bool {
        self.nodes.contains_key(name)
    }

    /// Applies changes of Nodes. The first call has all Nodes of the cluster, and starts the first sweep. A Node that appears
    /// later is looked up at once even if it is initialized: before that it takes no traffic.
    pub(super) fn observe(&mut self, changes: Vec<Change>, now: Instant) {
        self.first_sweep = self.first_sweep.or(Some(now));
        for change in changes {
            match change {
                Change::Present(facts) if self.serves(&facts) => {
                    self.on_present(&facts, now);
                }
                Change::Present(facts) => self.on_gone(&facts.name),
                Change::Gone(name) => self.on_gone(&name),
            }
        }
    }

    /// Whether a Node is kept up to date here.
    fn serves(&self, node: &NodeFacts) -> bool {
        let is_ours = node.belongs_to(&self.provider.name) && (self.serves_managed || !node.has_node_manager);
        is_ours && !node.is_deleting
    }

    /// Applies a Node that is new or has changed. A change of a busy Node is only stored: most such changes are our own writes,
    /// and [`NodeQueue::finish`] compares the Node when its work has ended.
    fn on_present(&mut self, facts: &Arc<NodeFacts>, now: Instant) {
        let is_busy = self.initialize.is_busy(&facts.name) || self.refresh.is_busy(&facts.name);
        let known = self.store(Arc::clone(facts));
        match known {
            _ if is_busy => {}
            Some(known) if known.uid == facts.uid && WorkKind::of(&known) == WorkKind::of(facts) => {
                if self.differs(facts, &known) {
                    self.enqueue_changed(facts, now);
                }
            }
            _ => self.enqueue_new(facts, now, now),
        }
    }

    /// Removes a Node that is gone, is being deleted, or belongs to another provider or to its node manager.
    fn on_gone(&mut self, name: &str) {
        if let Some(entry) = self.nodes.remove(name) {
            self.uninitialized -= usize::from(entry.facts.is_uninitialized());
        }
        self.initialize.remove(name);
        self.refresh.remove(name);
    }

    /// Takes up to `most` Nodes that are due for this kind of work. They are busy until [`NodeQueue::finish`].
    pub(super) fn take(&mut self, kind: WorkKind, now: Instant, most: usize) -> Vec<Arc<NodeFacts>> {
        let mut taken = Vec::new();
        for name in self.schedule(kind).take(now, most) {
            let Some(entry) = self.nodes.get_mut(&name) else { continue };
            if std::mem::take(&mut entry.has_foreign_change) {
                entry.change_looked_up = Some(now);
            }
            taken.push(Arc::clone(&entry.facts));
        }
        taken
    }

    /// When the next work of this kind is due. In the past where it is due already.
    pub(super) fn next_due(&self, kind: WorkKind) -> Option<Instant> {
        match kind {
            WorkKind::Initialize => self.initialize.next_due(),
            WorkKind::Refresh => self.refresh.next_due(),
        }
    }

    /// The present facts of a Node that was looked up, if the answer still applies to it. It doesn't where another Node has the
    /// name now, or where the Node needs another kind of work, has another provider ID, or has other labels that the
    /// provider reads. Changed addresses don't matter: the kubelet writes them at this very time.
    pub(super) fn current(&self, kind: WorkKind, looked_up: &NodeFacts) -> Option<Arc<NodeFacts>> {
        let now = &self.nodes.get(&looked_up.name)?.facts;
        let is_same = now.uid == looked_up.uid
            && now.provider_id == looked_up.provider_id
            && now.has_labels_of(looked_up, &self.provider.node_labels);
        (is_same && WorkKind::of(now) == kind).then(|| Arc::clone(now))
    }

    /// Ends the work on a Node, which `left` shows after the last write. The caller must have passed all changes up to then to
    /// [`NodeQueue::observe`]. Returns how many times in a row the Node's work has failed or the cloud has asked to
    /// come back later; 0 where neither is so now.
    pub(super) fn finish(
        &mut self,
        kind: WorkKind,
        left: &NodeFacts,
        next: NextLookup,
        now: Instant,
        jitter: f64,
    ) -> u32 {
        let (name, sweep) = (left.name.as_str(), self.sweep_after(now));
        let Some(entry) = self.nodes.get_mut(name) else {
            self.schedule(kind).on_success(name, now, None);
            return 0;
        };
        let facts = Arc::clone(&entry.facts);
        let is_pending = facts.uid == left.uid && matches!(next, NextLookup::After(_));
        entry.pending = if is_pending { entry.pending.saturating_add(1) } else { 0 };
        let mut in_a_row = entry.pending;
        if facts.uid == left.uid && next == NextLookup::OnChange {
            self.schedule(kind).on_success(name, now, None);
        } else if facts.uid != left.uid || WorkKind::of(&facts) != kind {
            self.schedule(kind).on_success(name, now, None);
            self.enqueue_new(&facts, now, sweep);
        } else {
            let backoff = if facts.is_uninitialized() { Backoff::default() } else { self.refresh_backoff };
            let schedule = self.schedule(kind);
            match next {
                NextLookup::AtSweep | NextLookup::OnChange => {
                    schedule.on_success(name, now, Some(sweep - now));
                }
                NextLookup::After(after) => schedule.on_success(name, now, Some(after.max(backoff.soon))),
                NextLookup::OnRetry(retry) => {
                    in_a_row = schedule.on_failure(name, now, retry, backoff, jitter);
                }
            }
            schedule.enqueue(name, sweep);
        }
        if facts.uid == left.uid && self.differs(&facts, left) {
            self.enqueue_changed(&facts, now);
        }
        in_a_row
    }

    /// The number of Nodes that wait to be initialized.
    pub(super) const fn uninitialized(&self) -> usize {
        self.uninitialized
    }

    /// Stores the facts of a Node, and returns the former ones.
    fn store(&mut self, facts: Arc<NodeFacts>) -> Option<Arc<NodeFacts>> {
        self.uninitialized += usize::from(facts.is_uninitialized());
        let Some(entry) = self.nodes.get_mut(&facts.name) else {
            let entry = Entry { facts, has_foreign_change: false, change_looked_up: None, pending: 0 };
            self.nodes.insert(entry.facts.name.clone(), entry);
            return None;
        };
        let known = std::mem::replace(&mut entry.facts, facts);
        self.uninitialized -= usize::from(known.is_uninitialized());
        Some(known)
    }

    /// Enqueues a Node that is new for its kind of work: at once to initialize it, at `refresh_at` to refresh it.
    fn enqueue_new(&mut self, facts: &NodeFacts, now: Instant, refresh_at: Instant) {
        self.initialize.remove(&facts.name);
        self.refresh.remove(&facts.name);
        match WorkKind::of(facts) {
            WorkKind::Initialize => self.initialize.enqueue(&facts.name, now),
            WorkKind::Refresh => self.refresh.enqueue(&facts.name, refresh_at),
        }
    }

    /// Enqueues a Node that another client has changed, no sooner than its change interval allows.
    fn enqueue_changed(&mut self, facts: &NodeFacts, now: Instant) {
        let Some(entry) = self.nodes.get_mut(&facts.name) else { return };
        entry.has_foreign_change = true;
        let interval = if facts.is_uninitialized() { CHANGE_INTERVAL_WAITING } else { CHANGE_INTERVAL };
        let at = entry.change_looked_up.map_or(now, |last| now.max(last + interval));
        self.schedule(WorkKind::of(facts)).enqueue(&facts.name, at);
    }

    /// Whether two versions of a Node differ in what Pileus keeps up to date, or in what the provider finds its instance by. A
    /// heartbeat makes no difference, nor does a label of another owner.
    fn differs(&self, facts: &NodeFacts, known: &NodeFacts) -> bool {
        let topology = TOPOLOGY_LABELS.iter().flatten().copied();
        let ours = facts.owned_labels.iter().map(String::as_str);
        let awaits_routes = self.waits_for_routes && facts.is_uninitialized();
        facts.provider_id != known.provider_id
            || facts.twin != known.twin
            || (awaits_routes && facts.has_routes() && !known.has_routes())
            || facts.addresses != known.addresses
            || facts.node_ips != known.node_ips
            || facts.system_uuid != known.system_uuid
            || (facts.is_uninitialized() && !known.is_uninitialized())
            || facts.owned_labels != known.owned_labels
            || !facts.has_labels_of(known, &self.provider.node_labels)
            || topology.chain(ours).any(|key| facts.labels.get(key) != known.labels.get(key))
    }

    fn schedule(&mut self, kind: WorkKind) -> &mut Schedule {
        match kind {
            WorkKind::Initialize => &mut self.initialize,
            WorkKind::Refresh => &mut self.refresh,
        }
    }

    /// The time of the first sweep after `now`.
    fn sweep_after(&self, now: Instant) -> Instant {
        let first = self.first_sweep.unwrap_or(now);
        let passed = now.saturating_duration_since(first).as_nanos() / self.period.as_nanos();
        let ahead = u32::try_from(passed + 1).unwrap_or(u32::MAX);
        first + self.period.saturating_mul(ahead)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claims::NodeOwner;
    use crate::model;
    use pileus_cloud::{Address, AddressKind, ProviderId};
    use proptest::prelude::*;
    use proptest::test_runner::{Config, RngAlgorithm};
    use std::collections::{BTreeMap, BTreeSet};

    const PERIOD: Duration = Duration::from_mins(30);

    fn empty() -> (NodeQueue, Instant) {
        let provider = Provider {
            node_labels: vec!["pool".to_owned()],
            largest_lookup_batch: 5000,
            ..model::provider("fake")
        };
        let settings = Settings { refresh_period: PERIOD, ..Settings::default() };
        (NodeQueue::new(provider, &settings), Instant::now())
    }

    /// A queue with these Nodes from the start.
    fn queue(nodes: &[NodeFacts]) -> (NodeQueue, Instant) {
        let (mut queue, now) = empty();
        see(&mut queue, nodes, now);
        (queue, now)
    }

    fn see(queue: &mut NodeQueue, nodes: &[NodeFacts], now: Instant) {
        queue.observe(nodes.iter().cloned().map(|node| Change::Present(Arc::new(node))).collect(), now);
    }

    fn waiting(name: &str) -> NodeFacts {
        NodeFacts::registered(name)
    }

    #[test]
    fn a_node_with_a_node_manager_is_served_by_that_alone() {
        let managed = NodeFacts { has_node_manager: true, ..working("a") };
        let (mut queue, now) = queue(&[managed.clone(), working("b")]);
        assert!(!queue.contains("a") && queue.contains("b"));
        see(&mut queue, &[NodeFacts { has_node_manager: true, ..working("b") }], now);
        assert!(!queue.contains("b"), "its node manager has taken over");
        see(&mut queue, &[working("a")], now);
        assert!(queue.contains("a"), "an operator has removed the mark");
        let settings = Settings { is_node_manager: true, ..Settings::default() };
        let mut of_node_manager = NodeQueue::new(model::provider("fake"), &settings);
        see(&mut of_node_manager, &[managed], now);
        assert!(of_node_manager.contains("a"));
    }

    fn working(name: &str) -> NodeFacts {
        NodeFacts {
            taints: Vec::new(),
            provider_id: Some(ProviderId::parse("fake://1").unwrap()),
            ..NodeFacts::registered(name)
        }
    }

    fn labelled(mut node: NodeFacts, key: &str, value: &str) -> NodeFacts {
        node.labels.insert(key, value);
        node
    }

    fn addressed(node: NodeFacts) -> NodeFacts {
        NodeFacts { addresses: vec![Address::new(AddressKind::InternalIp, "10.0.0.1")], ..node }
    }

    fn taken(queue: &mut NodeQueue, kind: WorkKind, now: Instant) -> Vec<String> {
        queue.take(kind, now, 9).iter().map(|node| node.name.clone()).collect()
    }

    fn secs(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn each_node_needs_one_kind_of_work() {
        let foreign = working("foreign").unserved("other://1");
        let (mut queue, now) = queue(&[
            waiting("tainted"),
            NodeFacts { taints: waiting("x").taints, ..working("tainted-with-id") },
            NodeFacts { provider_id: None, ..working("without-id") },
            working("works"),
            foreign,
            NodeFacts { is_deleting: true, ..waiting("going") },
        ]);
        assert_eq!(queue.uninitialized(), 2);
        assert_eq!(
            taken(&mut queue, WorkKind::Initialize, now),
            ["tainted", "tainted-with-id", "without-id"]
        );
        assert_eq!(taken(&mut queue, WorkKind::Refresh, now), ["works"]);
    }

    #[test]
    fn a_node_that_another_provider_takes_over_is_dropped_and_one_that_is_taken_over_is_looked_up_at_once() {
        let theirs = |node: NodeFacts| NodeFacts { owner: NodeOwner::Provider("other".to_owned()), ..node };
        let (mut queue, start) =
            queue(&[waiting("ours"), theirs(waiting("theirs")), theirs(working("working"))]);
        assert_eq!(taken(&mut queue, WorkKind::Initialize, start), ["ours"]);
        let now = start + secs(5);
        see(&mut queue, &[theirs(waiting("ours")), waiting("theirs"), working("working")], now);
        assert_eq!(
            queue.current(WorkKind::Initialize, &waiting("ours")),
            None,
            "an answer doesn't apply any more"
        );
        assert_eq!(queue.finish(WorkKind::Initialize, &waiting("ours"), NextLookup::AtSweep, now, 0.5), 0);
        assert_eq!(taken(&mut queue, WorkKind::Initialize, now), ["theirs"]);
        assert_eq!(
            (taken(&mut queue, WorkKind::Refresh, now), queue.uninitialized()),
            (vec!["working".to_owned()], 1)
        );
    }

    #[test]
    fn an_initialized_node_that_joins_is_looked_up_at_once_and_then_at_sweeps_with_all_others() {
        let (mut queue, start) = queue(&[working("a"), working("b")]);
        assert_eq!(
            taken(&mut queue, WorkKind::Refresh, start),
            ["a", "b"],
            "the first sweep is at the start"
        );
        let mut later = start;
        for name in ["a", "b"] {
            later += secs(100); // a long sweep
            queue.finish(WorkKind::Refresh, &working(name), NextLookup::AtSweep, later, 0.5);
        }
        let joined = start + secs(1000);
        see(&mut queue, &[working("c")], joined);
        assert_eq!(taken(&mut queue, WorkKind::Refresh, joined), ["c"]);
        queue.finish(WorkKind::Refresh, &working("c"), NextLookup::AtSweep, joined, 0.5);
        assert_eq!(queue.next_due(WorkKind::Refresh), Some(start + PERIOD));
        assert_eq!(taken(&mut queue, WorkKind::Refresh, start + PERIOD), ["a", "b", "c"]);
        let end = start + PERIOD * 3 + secs(1);
        queue.finish(WorkKind::Refresh, &working("a"), NextLookup::AtSweep, end, 0.5);
        assert_eq!(queue.next_due(WorkKind::Refresh), Some(start + PERIOD * 4), "a missed sweep is skipped");
    }

    #[test]
    fn a_node_that_is_initialized_joins_the_next_sweep() {
        let (mut queue, start) = queue(&[waiting("a")]);
        let looked_up = queue.take(WorkKind::Initialize, start, 9).remove(0);
        let now = start + secs(1);
        let left = addressed(working("a"));
        see(&mut queue, &[addressed(waiting("a")), left.clone()], now); // our own writes
        assert_eq!((queue.next_due(WorkKind::Initialize), queue.next_due(WorkKind::Refresh)), (None, None));
        assert_eq!(queue.current(WorkKind::Initialize, &looked_up), None, "it has an ID now");
        queue.finish(WorkKind::Initialize, &left, NextLookup::AtSweep, now, 0.5);
        assert_eq!(
            (queue.next_due(WorkKind::Initialize), queue.next_due(WorkKind::Refresh)),
            (None, Some(start + PERIOD))
        );
        assert_eq!(queue.uninitialized(), 0);
    }

    #[test]
    fn a_foreign_change_triggers_a_lookup_only_where_it_matters() {
        let base =
            || NodeFacts { owned_labels: ["rack".to_owned()].into(), ..labelled(working("a"), "rack", "7") };
        let rows: [(&str, NodeFacts, bool); 10] = [
            ("an address", addressed(base()), true),
            ("the system UUID", NodeFacts { system_uuid: Some("4c4c4544".to_owned()), ..base() }, true),
            (
                "--node-ip",
                NodeFacts { node_ips: crate::facts::node::NodeIps::Malformed(String::new()), ..base() },
                true,
            ),
            ("the zone", labelled(base(), "topology.kubernetes.io/zone", "x"), true),
            ("the old key of the type", labelled(base(), "beta.kubernetes.io/instance-type", "x"), true),
            ("a label of ours", labelled(base(), "rack", "8"), true),
            ("the owner of a label", NodeFacts { owned_labels: BTreeSet::new(), ..base() }, true),
            ("a label that the provider reads", labelled(base(), "pool", "blue"), true),
            ("a label of another owner", labelled(base(), "team", "x"), false),
            (
                "a heartbeat",
                NodeFacts {
                    readiness: crate::facts::node::Readiness::True,
                    resource_version: "2".to_owned(),
                    ..base()
                },
                false,
            ),
        ];
        for (claim, changed, matters) in rows {
            let (mut queue, start) = queue(&[base()]);
            queue.take(WorkKind::Refresh, start, 9);
            queue.finish(WorkKind::Refresh, &base(), NextLookup::AtSweep, start, 0.5);
            let now = start + secs(5);
            see(&mut queue, std::slice::from_ref(&changed), now);
            let next = if matters { now } else { start + PERIOD };
            assert_eq!(queue.next_due(WorkKind::Refresh), Some(next), "{claim}");
        }
    }

    #[test]
    fn a_released_node_joins_no_sweep_and_is_looked_up_again_when_it_changes() {
        let bare = || NodeFacts { provider_id: None, ..working("a") };
        // The Node before and after the release, a change of it, and whether it is looked up for that.
        for (before, left, changed, kind) in [
            (waiting("a"), bare(), labelled(bare(), "pool", "blue"), Some(WorkKind::Initialize)),
            (waiting("a"), bare(), waiting("a"), Some(WorkKind::Initialize)),
            (waiting("a"), bare(), working("a"), Some(WorkKind::Refresh)),
            (waiting("a"), bare(), NodeFacts { resource_version: "9".to_owned(), ..bare() }, None),
            (waiting("a"), bare(), labelled(bare(), "team", "x"), None),
            (working("a"), working("a"), addressed(working("a")), Some(WorkKind::Refresh)),
            (working("a"), working("a"), working("a"), None),
        ] {
            let (mut queue, start) = queue(std::slice::from_ref(&before));
            let work = WorkKind::of(&before);
            assert_eq!(taken(&mut queue, work, start), ["a"]);
            see(&mut queue, std::slice::from_ref(&left), start);
            queue.finish(work, &left, NextLookup::OnChange, start, 0.5);
            for kind in WorkKind::ALL {
                assert_eq!(queue.next_due(kind), None, "{changed:?}");
            }
            let now = start + PERIOD * 2;
            see(&mut queue, std::slice::from_ref(&changed), now);
            for other in WorkKind::ALL {
                let expected = (kind == Some(other)).then_some(now);
                assert_eq!(queue.next_due(other), expected, "{changed:?}");
            }
        }
    }

    #[test]
    fn a_change_during_a_release_is_looked_up() {
        let (mut queue, start) = queue(&[waiting("a")]);
        assert_eq!(taken(&mut queue, WorkKind::Initialize, start), ["a"]);
        let left = NodeFacts { provider_id: None, ..working("a") };
        see(&mut queue, &[labelled(left.clone(), "pool", "blue")], start);
        queue.finish(WorkKind::Initialize, &left, NextLookup::OnChange, start, 0.5);
        assert_eq!(taken(&mut queue, WorkKind::Initialize, start), ["a"]);
    }

    #[test]
    fn a_fight_over_a_label_costs_a_lookup_a_minute_or_a_second_while_the_node_waits() {
        for (kind, interval) in [(WorkKind::Refresh, secs(60)), (WorkKind::Initialize, secs(1))] {
            let node = if kind == WorkKind::Refresh { working } else { waiting };
            let (mut queue, start) = queue(&[node("a")]);
            let zone = |value| labelled(node("a"), "topology.kubernetes.io/zone", value);
            let mut lookups = Vec::new();
            for change in 0..30 {
                let now = start + interval / 10 * change;
                see(&mut queue, &[zone("theirs")], now);
                if !taken(&mut queue, kind, now).is_empty() {
                    lookups.push(now - start);
                    see(&mut queue, &[zone("ours")], now);
                    queue.finish(kind, &zone("ours"), NextLookup::AtSweep, now, 0.5);
                }
            }
            assert_eq!(lookups, [secs(0), interval, interval * 2]);
        }
    }

    #[test]
    fn our_own_writes_trigger_no_lookup_and_foreign_changes_meanwhile_do() {
        for theirs in [false, true] {
            let (mut queue, start) = queue(&[working("a")]);
            assert_eq!(taken(&mut queue, WorkKind::Refresh, start).len(), 1);
            let left = addressed(working("a"));
            see(&mut queue, std::slice::from_ref(&left), start);
            if theirs {
                see(&mut queue, &[labelled(left.clone(), "pool", "blue")], start);
            }
            assert_eq!(queue.next_due(WorkKind::Refresh), None);
            queue.finish(WorkKind::Refresh, &left, NextLookup::AtSweep, start, 0.5);
            assert_eq!(queue.next_due(WorkKind::Refresh), Some(if theirs { start } else { start + PERIOD }));
        }
    }

    #[test]
    fn failed_refreshes_back_off_up_to_the_next_sweep() {
        let (mut queue, start) = queue(&[working("a")]);
        let mut waited = Vec::new();
        let mut now = start;
        for failures in 1..=8 {
            queue.take(WorkKind::Refresh, now, 9);
            let failed = NextLookup::OnRetry(Retry::WithBackoff);
            assert_eq!(queue.finish(WorkKind::Refresh, &working("a"), failed, now, 0.0), failures);
            let next = queue.next_due(WorkKind::Refresh).unwrap();
            waited.push((next - now).as_secs());
            now = next;
        }
        assert_eq!(waited, [10, 20, 40, 80, 160, 320, 640, 530]);
        for (next, least, most) in [
            (NextLookup::OnRetry(Retry::Soon), secs(10), secs(20)),
            (NextLookup::OnRetry(Retry::After(secs(1))), secs(10), secs(20)),
            (NextLookup::After(secs(1)), secs(10), secs(10)),
            (NextLookup::OnRetry(Retry::Slowly), PERIOD, PERIOD),
        ] {
            for next in [NextLookup::AtSweep, next] {
                now += PERIOD;
                queue.take(WorkKind::Refresh, now, 9);
                queue.finish(WorkKind::Refresh, &working("a"), next, now, 0.9);
            }
            let after = queue.next_due(WorkKind::Refresh).unwrap() - now;
            assert!((least..=most).contains(&after), "{next:?}: {after:?}");
        }
    }

    #[test]
    fn pending_answers_are_counted_until_another_answer() {
        let (mut queue, mut now) = queue(&[waiting("a")]);
        let mut finish = |left: &NodeFacts, next| {
            now += PERIOD;
            queue.take(WorkKind::Initialize, now, 9);
            queue.finish(WorkKind::Initialize, left, next, now, 0.5)
        };
        let pending = NextLookup::After(secs(5));
        let counts = [
            pending,
            pending,
            NextLookup::OnRetry(Retry::WithBackoff),
            pending,
            NextLookup::AtSweep,
            pending,
            pending,
        ]
        .map(|next| finish(&waiting("a"), next));
        assert_eq!(counts, [1, 2, 1, 1, 0, 1, 2]);
        let other = NodeFacts { uid: "other".to_owned(), ..waiting("a") };
        assert_eq!(finish(&other, pending), 0, "another Node");
    }

    #[test]
    fn a_waiting_node_is_retried_soon_and_at_once_when_it_changes() {
        let (mut queue, start) = queue(&[waiting("a")]);
        queue.take(WorkKind::Initialize, start, 9);
        let left = addressed(waiting("a"));
        see(&mut queue, std::slice::from_ref(&left), start); // our first write; the second has failed
        assert_eq!(
            queue.finish(WorkKind::Initialize, &left, NextLookup::OnRetry(Retry::WithBackoff), start, 0.0),
            1
        );
        assert_eq!(queue.next_due(WorkKind::Initialize), Some(start + Duration::from_millis(500)));
        see(&mut queue, &[labelled(left, "pool", "blue")], start);
        assert_eq!(queue.next_due(WorkKind::Initialize), Some(start));
    }

    #[test]
    fn a_node_without_provider_id_is_looked_up_at_sweeps() {
        let without_id = NodeFacts { provider_id: None, ..working("a") };
        let (mut queue, start) = queue(std::slice::from_ref(&without_id));
        queue.take(WorkKind::Initialize, start, 9);
        queue.finish(WorkKind::Initialize, &without_id, NextLookup::AtSweep, start, 0.5);
        assert_eq!(queue.next_due(WorkKind::Initialize), Some(start + PERIOD));
        see(&mut queue, &[addressed(without_id.clone())], start + secs(1));
        assert_eq!(taken(&mut queue, WorkKind::Initialize, start + secs(1)), ["a"]);
        let failed = NextLookup::OnRetry(Retry::WithBackoff);
        queue.finish(WorkKind::Initialize, &addressed(without_id), failed, start + secs(1), 0.0);
        assert_eq!(
            queue.next_due(WorkKind::Initialize),
            Some(start + secs(11)),
            "with the backoff of refreshes"
        );
    }

    #[test]
    fn an_answer_does_not_apply_to_another_node_of_the_same_name() {
        let (mut queue, start) = queue(&[waiting("a"), working("b")]);
        let a = queue.take(WorkKind::Initialize, start, 9).remove(0);
        let b = queue.take(WorkKind::Refresh, start, 9).remove(0);
        assert!(
            queue.current(WorkKind::Initialize, &a).is_some()
                && queue.current(WorkKind::Refresh, &b).is_some()
        );
        queue.observe(vec![Change::Gone("a".to_owned())], start);
        let other = NodeFacts { uid: "other".to_owned(), ..waiting("a") };
        see(&mut queue, &[other, NodeFacts { taints: waiting("b").taints, ..working("b") }], start);
        assert_eq!(queue.current(WorkKind::Initialize, &a), None);
        assert_eq!(queue.current(WorkKind::Refresh, &b), None, "it waits to be initialized now");
        for (kind, node) in [(WorkKind::Initialize, a), (WorkKind::Refresh, b)] {
            assert_eq!(queue.next_due(WorkKind::Initialize), (kind == WorkKind::Refresh).then_some(start));
            assert_eq!(queue.finish(kind, &node, NextLookup::AtSweep, start, 0.5), 0);
        }
        assert_eq!(taken(&mut queue, WorkKind::Initialize, start), ["a", "b"]);
    }

    #[test]
    fn a_new_node_does_not_inherit_the_delay_of_a_former_node_of_its_name() {
        for next in [NextLookup::AtSweep, NextLookup::OnRetry(Retry::Slowly)] {
            let (mut queue, start) = queue(&[waiting("a")]);
            queue.take(WorkKind::Initialize, start, 9);
            queue.finish(WorkKind::Initialize, &waiting("a"), next, start, 0.5);
            see(&mut queue, &[NodeFacts { uid: "other".to_owned(), ..waiting("a") }], start + secs(1));
            assert_eq!(queue.next_due(WorkKind::Initialize), Some(start + secs(1)), "{next:?}");
        }
    }

    #[test]
    fn an_answer_does_not_apply_once_labels_that_the_provider_reads_have_changed() {
        for (kind, node) in [(WorkKind::Initialize, waiting("a")), (WorkKind::Refresh, working("a"))] {
            let (mut queue, start) = queue(std::slice::from_ref(&node));
            let looked_up = queue.take(kind, start, 9).remove(0);
            let beside = labelled(addressed(node.clone()), "team", "x");
            see(&mut queue, std::slice::from_ref(&beside), start);
            assert!(queue.current(kind, &looked_up).is_some(), "{kind:?}");
            see(&mut queue, &[labelled(beside, "pool", "blue")], start);
            assert_eq!(queue.current(kind, &looked_up), None, "{kind:?}");
            queue.finish(kind, &looked_up, NextLookup::AtSweep, start, 0.5);
            assert_eq!(queue.next_due(kind), Some(start), "{kind:?}: it is looked up again");
        }
    }

    #[test]
    fn a_node_that_is_deleted_while_it_is_busy_is_forgotten() {
        for next in [NextLookup::AtSweep, NextLookup::After(secs(1)), NextLookup::OnRetry(Retry::WithBackoff)]
        {
            let (mut queue, start) = queue(&[waiting("a")]);
            let node = queue.take(WorkKind::Initialize, start, 9).remove(0);
            queue.observe(vec![Change::Gone("a".to_owned())], start);
            assert_eq!(queue.finish(WorkKind::Initialize, &node, next, start, 0.5), 0);
            assert_eq!((queue.next_due(WorkKind::Initialize), queue.uninitialized()), (None, 0), "{next:?}");
            see(&mut queue, &[NodeFacts { uid: "other".to_owned(), ..waiting("a") }], start);
            assert_eq!(taken(&mut queue, WorkKind::Initialize, start), ["a"], "{next:?}");
        }
    }

    #[derive(Debug, Clone)]
    enum Step {
        See(Box<NodeFacts>),
        Gone(&'static str),
        Take(WorkKind),
        End(bool),
        Wait(u64),
    }

    fn any_step() -> impl Strategy<Value = Step> {
        let name = || prop::sample::select(vec!["a", "b", "c"]);
        let node = (name(), any::<bool>(), 0_u8..3, 0_u8..2).prop_map(|(name, waits, zone, uid)| {
            let node = if waits { waiting(name) } else { working(name) };
            let node = NodeFacts { uid: format!("{name}-{uid}"), ..node };
            labelled(node, "topology.kubernetes.io/zone", &zone.to_string())
        });
        prop_oneof![
            node.prop_map(|node| Step::See(Box::new(node))),
            name().prop_map(Step::Gone),
            prop::sample::select(WorkKind::ALL.to_vec()).prop_map(Step::Take),
            any::<bool>().prop_map(Step::End),
            (0_u64..100).prop_map(Step::Wait),
        ]
    }

    proptest! {
        // The generator that is the default takes most of the time: each alternative that isn't picked makes a new one.
        #![proptest_config(Config { rng_algorithm: RngAlgorithm::XorShift, ..Config::default() })]
        #[test]
        fn no_node_is_lost_or_busy_twice(steps in prop::collection::vec(any_step(), 0..60)) {
            let (mut queue, start) = empty();
            let mut now = start;
            let mut present = BTreeMap::new();
            let mut busy: Vec<(WorkKind, Arc<NodeFacts>)> = Vec::new();
            for step in steps {
                match step {
                    Step::See(node) => {
                        see(&mut queue, std::slice::from_ref(&*node), now);
                        present.insert(node.name.clone(), *node);
                    }
                    Step::Gone(name) => {
                        queue.observe(vec![Change::Gone(name.to_owned())], now);
                        present.remove(name);
                    }
                    Step::Take(kind) => for node in queue.take(kind, now, 9) {
                        prop_assert_eq!(Some(&*node), present.get(&node.name), "the latest facts are taken");
                        prop_assert_eq!(WorkKind::of(&node), kind);
                        prop_assert!(busy.iter().all(|(_, other)| other.name != node.name));
                        busy.push((kind, node));
                    },
                    Step::End(is_done) => if let Some((kind, node)) = busy.pop() {
                        let next = if is_done { NextLookup::AtSweep } else { NextLookup::OnRetry(Retry::WithBackoff) };
                        queue.finish(kind, &node, next, now, 0.5);
                    },
                    Step::Wait(seconds) => now += secs(seconds),
                }
                let uninitialized = present.values().filter(|node| node.is_uninitialized()).count();
                prop_assert_eq!(queue.uninitialized(), uninitialized);
            }
            for (kind, node) in busy {
                queue.finish(kind, &node, NextLookup::AtSweep, now, 0.5);
            }
            let end = now + PERIOD;
            let taken = WorkKind::ALL.into_iter().flat_map(|kind| queue.take(kind, end, 9));
            let names: BTreeSet<_> = taken.map(|node| node.name.clone()).collect();
            prop_assert_eq!(names, present.into_keys().collect(), "all Nodes are taken within a period");
        }
    }
}
