//! The Nodes that the provider serves, and whose turn it is to be looked up.
//!
//! Each Node is in one of two lanes, by what it is. One that waits to be initialised is looked up at once. One that
//! takes part in the cluster is looked up at common times, the sweeps, so that no Node ever costs the cloud a list of
//! its own; and in between when somebody else has changed what we keep.
//!
//! Pure: the clock is an argument.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use pileus_cloud::{Provider, Purpose, Retry};
use tokio::time::Instant;

use super::Settings;
use crate::facts::node::NodeFacts;
use crate::nodes::Change;
use crate::schedule::{Delays, Schedule};
use crate::well_known::LABELS_OF_THE_CLOUD;

/// The least time between two lookups of a Node because of what somebody else changed: two who fight over a label must
/// not cost the cloud a lookup each time.
const TRUCE: Duration = Duration::from_mins(1);

/// The same for a Node that waits: what changes it most often helps it, but one that never stops changing, as its kubelet
/// can bring about, must not cost a lookup each time either.
const SHORT_TRUCE: Duration = Duration::from_secs(1);

/// The least time before the failed turn of a Node for which nobody waits is repeated: a cloud in trouble is given a
/// rest.
const REST: Duration = Duration::from_secs(10);

/// What a Node is looked up for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lane {
    /// It waits to be initialised, or has no provider ID (P-26).
    Initialise,
    /// It takes part in the cluster, and follows its machine.
    Refresh,
}

impl Lane {
    /// Both, the urgent one first.
    pub(super) const ALL: [Self; 2] = [Self::Initialise, Self::Refresh];

    /// The lane of a Node.
    pub(super) fn of(node: &NodeFacts) -> Self {
        if node.is_uninitialised() || node.provider_id.is_none() { Self::Initialise } else { Self::Refresh }
    }

    /// What the provider is told.
    pub(super) const fn purpose(self) -> Purpose {
        match self {
            Self::Initialise => Purpose::Initialise,
            Self::Refresh => Purpose::Refresh,
        }
    }
}

/// When a Node whose turn has ended gets its next one, unless something changes before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Again {
    /// With all others, at the next sweep.
    AtSweep,
    /// When the cloud expects to know more.
    After(Duration),
    /// It failed.
    Failed(Retry),
}

/// The Nodes.
pub(super) struct Roster {
    provider: Provider,
    nodes: BTreeMap<String, Entry>,
    initialise: Schedule,
    refresh: Schedule,
    /// How long failed turns of Nodes for which nobody waits are put off.
    delays: Delays,
    /// The time of the first sweep, when the first Nodes came. The others follow each `period`.
    began: Option<Instant>,
    period: Duration,
    /// Whether it is news that a Node has its routes.
    waits_for_routes: bool,
    /// How many Nodes have the taint.
    uninitialised: usize,
}

struct Entry {
    facts: Arc<NodeFacts>,
    /// Whether it is to be looked up because somebody else has changed it.
    is_hurried: bool,
    /// When it was last looked up for that reason.
    hurried_at: Option<Instant>,
    /// In how many turns in a row the cloud has asked for patience.
    pending: u32,
}

impl Roster {
    /// Without any Node yet.
    pub(super) fn new(provider: Provider, settings: &Settings) -> Self {
        let period = settings.refresh_period.max(Duration::from_secs(1));
        let rest = REST.min(period);
        Self {
            provider,
            nodes: BTreeMap::new(),
            initialise: Schedule::default(),
            refresh: Schedule::default(),
            delays: Delays { soon: rest, first: rest, longest: period, slow: period },
            began: None,
            period,
            waits_for_routes: settings.waits_for_routes,
            uninitialised: 0,
        }
    }

    /// Takes in what has changed. What comes first are all Nodes that there are: the first sweep.
    pub(super) fn observe(&mut self, changes: Vec<Change>, now: Instant) {
        let joins_at = if self.began.is_none() { now } else { self.sweep_after(now) };
        self.began = self.began.or(Some(now));
        for change in changes {
            match change {
                Change::Present(facts)
                    if !facts.is_deleting && self.provider.serves(facts.provider_id.as_ref()) =>
                {
                    self.present(&facts, now, joins_at);
                }
                Change::Present(facts) => self.gone(&facts.name),
                Change::Gone(name) => self.gone(&name),
            }
        }
    }

    /// A Node is new or has changed. While it is being worked on, that is only noted: most changes are our own writes
    /// then, and which are not shows when the work has ended.
    fn present(&mut self, facts: &Arc<NodeFacts>, now: Instant, joins_at: Instant) {
        let is_busy = self.initialise.is_busy(&facts.name) || self.refresh.is_busy(&facts.name);
        let known = self.keep(Arc::clone(facts));
        match known {
            _ if is_busy => {}
            Some(known) if known.uid == facts.uid && Lane::of(&known) == Lane::of(facts) => {
                if self.is_news(facts, &known) {
                    self.hurry(facts, now);
                }
            }
            _ => self.join(facts, now, joins_at),
        }
    }

    /// A Node is gone, is being deleted, or is not the provider's.
    fn gone(&mut self, name: &str) {
        if let Some(entry) = self.nodes.remove(name) {
            self.uninitialised -= usize::from(entry.facts.is_uninitialised());
        }
        self.initialise.gone(name);
        self.refresh.gone(name);
    }

    /// Takes up to `most` Nodes of a lane whose turn it is; their turn lasts until it is `ended`.
    pub(super) fn take(&mut self, lane: Lane, now: Instant, most: usize) -> Vec<Arc<NodeFacts>> {
        let mut taken = Vec::new();
        for name in self.schedule(lane).take(now, most) {
            let Some(entry) = self.nodes.get_mut(&name) else { continue };
            if std::mem::take(&mut entry.is_hurried) {
                entry.hurried_at = Some(now);
            }
            taken.push(Arc::clone(&entry.facts));
        }
        taken
    }

    /// When the next turn in a lane comes. In the past where it has come.
    pub(super) fn next(&self, lane: Lane) -> Option<Instant> {
        match lane {
            Lane::Initialise => self.initialise.next(),
            Lane::Refresh => self.refresh.next(),
        }
    }

    /// What is known of the Node that was looked up in this lane, unless an answer about that one is of no use for it:
    /// it may be another Node that bears the name now, be named or waited for in another way, or have other labels that the
    /// provider reads. Addresses don't count, as its kubelet writes them just then.
    pub(super) fn current(&self, lane: Lane, looked_up: &NodeFacts) -> Option<Arc<NodeFacts>> {
        let now = &self.nodes.get(&looked_up.name)?.facts;
        let mut read = self.provider.node_labels.iter();
        let is_same = now.uid == looked_up.uid
            && now.provider_id == looked_up.provider_id
            && read.all(|key| now.labels.get(key) == looked_up.labels.get(key));
        (is_same && Lane::of(now) == lane).then(|| Arc::clone(now))
    }

    /// The turn of a Node in a lane has ended, and this is how it was left. All changes up to then must have been
    /// observed. How often its turns have failed in a row, or the cloud has asked for patience, whichever it is now; 0 where
    /// it isn't the same any more.
    pub(super) fn ended(
        &mut self,
        lane: Lane,
        left: &NodeFacts,
        again: Again,
        now: Instant,
        jitter: f64,
    ) -> u32 {
        let (name, sweep) = (left.name.as_str(), self.sweep_after(now));
        let Some(entry) = self.nodes.get_mut(name) else {
            self.schedule(lane).settled(name, now, None);
            return 0;
        };
        let facts = Arc::clone(&entry.facts);
        let is_pending = facts.uid == left.uid && matches!(again, Again::After(_));
        entry.pending = if is_pending { entry.pending.saturating_add(1) } else { 0 };
        let mut in_a_row = entry.pending;
        if facts.uid != left.uid || Lane::of(&facts) != lane {
            self.schedule(lane).settled(name, now, None);
            self.join(&facts, now, sweep);
        } else {
            let delays = if facts.is_uninitialised() { Delays::default() } else { self.delays };
            let schedule = self.schedule(lane);
            match again {
                Again::AtSweep => schedule.settled(name, now, Some(sweep - now)),
                Again::After(after) => schedule.settled(name, now, Some(after.max(delays.soon))),
                Again::Failed(retry) => in_a_row = schedule.failed(name, now, retry, delays, jitter),
            }
            schedule.changed(name, sweep);
        }
        if facts.uid == left.uid && self.is_news(&facts, left) {
            self.hurry(&facts, now);
        }
        in_a_row
    }

    /// How many Nodes wait to be initialised.
    pub(super) const fn uninitialised(&self) -> usize {
        self.uninitialised
    }

    /// Keeps what is known of a Node; what was known before.
    fn keep(&mut self, facts: Arc<NodeFacts>) -> Option<Arc<NodeFacts>> {
        self.uninitialised += usize::from(facts.is_uninitialised());
        let Some(entry) = self.nodes.get_mut(&facts.name) else {
            let entry = Entry { facts, is_hurried: false, hurried_at: None, pending: 0 };
            self.nodes.insert(entry.facts.name.clone(), entry);
            return None;
        };
        let known = std::mem::replace(&mut entry.facts, facts);
        self.uninitialised -= usize::from(known.is_uninitialised());
        Some(known)
    }

    /// A Node is new in its lane.
    fn join(&mut self, facts: &NodeFacts, now: Instant, joins_at: Instant) {
        self.initialise.gone(&facts.name);
        self.refresh.gone(&facts.name);
        match Lane::of(facts) {
            Lane::Initialise => self.initialise.changed(&facts.name, now),
            Lane::Refresh => self.refresh.changed(&facts.name, joins_at),
        }
    }

    /// A Node is due for what somebody else has changed.
    fn hurry(&mut self, facts: &NodeFacts, now: Instant) {
        let Some(entry) = self.nodes.get_mut(&facts.name) else { return };
        entry.is_hurried = true;
        let truce = if facts.is_uninitialised() { SHORT_TRUCE } else { TRUCE };
        let at = entry.hurried_at.map_or(now, |last| now.max(last + truce));
        self.schedule(Lane::of(facts)).changed(&facts.name, at);
    }

    /// Whether two states of a Node differ in what we keep, or in what the provider finds its machine by. A heartbeat
    /// doesn't count, nor does a label of others.
    fn is_news(&self, facts: &NodeFacts, known: &NodeFacts) -> bool {
        let told = LABELS_OF_THE_CLOUD.iter().flatten().copied();
        let read = self.provider.node_labels.iter().chain(&facts.owned_labels).map(String::as_str);
        let waited = self.waits_for_routes && facts.is_uninitialised();
        facts.provider_id != known.provider_id
            || (waited && facts.has_routes() && !known.has_routes())
            || facts.addresses != known.addresses
            || facts.node_ips != known.node_ips
            || facts.owned_labels != known.owned_labels
            || told.chain(read).any(|key| facts.labels.get(key) != known.labels.get(key))
    }

    fn schedule(&mut self, lane: Lane) -> &mut Schedule {
        match lane {
            Lane::Initialise => &mut self.initialise,
            Lane::Refresh => &mut self.refresh,
        }
    }

    /// The time of the first sweep after `now`.
    fn sweep_after(&self, now: Instant) -> Instant {
        let began = self.began.unwrap_or(now);
        let passed = now.saturating_duration_since(began).as_nanos() / self.period.as_nanos();
        let ahead = u32::try_from(passed + 1).unwrap_or(u32::MAX);
        began + self.period.saturating_mul(ahead)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pileus_cloud::{Address, AddressKind, ProviderId};
    use proptest::prelude::*;
    use std::collections::{BTreeMap, BTreeSet};

    const PERIOD: Duration = Duration::from_mins(30);

    fn empty() -> (Roster, Instant) {
        let provider = Provider {
            name: "fake".to_owned(),
            schemes: vec!["fake".to_owned()],
            node_labels: vec!["pool".to_owned()],
            largest_lookup_batch: 5000,
            service_requirements: pileus_cloud::ServiceRequirements::default(),
            load_balancers: None,
            largest_route_batch: 1,
            routes: None,
            instances: None,
        };
        let settings = Settings { refresh_period: PERIOD, ..Settings::default() };
        (Roster::new(provider, &settings), Instant::now())
    }

    /// With these Nodes from the start.
    fn roster(nodes: &[NodeFacts]) -> (Roster, Instant) {
        let (mut roster, now) = empty();
        see(&mut roster, nodes, now);
        (roster, now)
    }

    fn see(roster: &mut Roster, nodes: &[NodeFacts], now: Instant) {
        roster.observe(nodes.iter().cloned().map(|node| Change::Present(Arc::new(node))).collect(), now);
    }

    fn waiting(name: &str) -> NodeFacts {
        NodeFacts::registered(name)
    }

    fn working(name: &str) -> NodeFacts {
        NodeFacts {
            taints: Vec::new(),
            provider_id: Some(ProviderId::parse("fake://1").unwrap()),
            ..NodeFacts::registered(name)
        }
    }

    fn labelled(node: NodeFacts, key: &str, value: &str) -> NodeFacts {
        let labels = node.labels.iter().map(|(key, value)| (key.clone(), value.clone()));
        NodeFacts { labels: labels.chain([(key.to_owned(), value.to_owned())]).collect(), ..node }
    }

    fn addressed(node: NodeFacts) -> NodeFacts {
        NodeFacts { addresses: vec![Address::new(AddressKind::InternalIp, "10.0.0.1")], ..node }
    }

    fn taken(roster: &mut Roster, lane: Lane, now: Instant) -> Vec<String> {
        roster.take(lane, now, 9).iter().map(|node| node.name.clone()).collect()
    }

    fn secs(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn each_node_is_in_one_lane_by_what_it_is() {
        let foreign =
            NodeFacts { provider_id: Some(ProviderId::parse("other://1").unwrap()), ..working("foreign") };
        let (mut roster, now) = roster(&[
            waiting("tainted"),
            NodeFacts { taints: waiting("x").taints, ..working("tainted-with-id") },
            NodeFacts { provider_id: None, ..working("without-id") },
            working("works"),
            foreign,
            NodeFacts { is_deleting: true, ..waiting("going") },
        ]);
        assert_eq!(roster.uninitialised(), 2);
        assert_eq!(taken(&mut roster, Lane::Initialise, now), ["tainted", "tainted-with-id", "without-id"]);
        assert_eq!(taken(&mut roster, Lane::Refresh, now), ["works"]);
    }

    #[test]
    fn sweeps_are_at_common_times_and_a_node_that_joins_waits_for_the_next() {
        let (mut roster, start) = roster(&[working("a"), working("b")]);
        assert_eq!(taken(&mut roster, Lane::Refresh, start), ["a", "b"], "the first is at the start");
        let mut later = start;
        for name in ["a", "b"] {
            later += secs(100); // a long sweep
            roster.ended(Lane::Refresh, &working(name), Again::AtSweep, later, 0.5);
        }
        see(&mut roster, &[working("c")], start + secs(1000));
        assert_eq!(roster.next(Lane::Refresh), Some(start + PERIOD));
        assert_eq!(taken(&mut roster, Lane::Refresh, start + PERIOD), ["a", "b", "c"]);
        let end = start + PERIOD * 3 + secs(1);
        roster.ended(Lane::Refresh, &working("a"), Again::AtSweep, end, 0.5);
        assert_eq!(roster.next(Lane::Refresh), Some(start + PERIOD * 4), "what a sweep missed is left out");
    }

    #[test]
    fn a_node_that_is_initialised_joins_the_next_sweep() {
        let (mut roster, start) = roster(&[waiting("a")]);
        let looked_up = roster.take(Lane::Initialise, start, 9).remove(0);
        let now = start + secs(1);
        let left = addressed(working("a"));
        see(&mut roster, &[addressed(waiting("a")), left.clone()], now); // our own writes
        assert_eq!((roster.next(Lane::Initialise), roster.next(Lane::Refresh)), (None, None));
        assert_eq!(roster.current(Lane::Initialise, &looked_up), None, "it has an ID now");
        roster.ended(Lane::Initialise, &left, Again::AtSweep, now, 0.5);
        assert_eq!((roster.next(Lane::Initialise), roster.next(Lane::Refresh)), (None, Some(start + PERIOD)));
        assert_eq!(roster.uninitialised(), 0);
    }

    #[test]
    fn what_others_change_is_looked_at_at_once_and_what_does_not_concern_us_is_not() {
        let base =
            || NodeFacts { owned_labels: ["rack".to_owned()].into(), ..labelled(working("a"), "rack", "7") };
        let rows: [(&str, NodeFacts, bool); 9] = [
            ("an address", addressed(base()), true),
            (
                "--node-ip",
                NodeFacts { node_ips: crate::facts::node::NodeIps::Malformed(String::new()), ..base() },
                true,
            ),
            ("the zone", labelled(base(), "topology.kubernetes.io/zone", "x"), true),
            ("the old key of the type", labelled(base(), "beta.kubernetes.io/instance-type", "x"), true),
            ("a label of ours", labelled(base(), "rack", "8"), true),
            ("whose a label is", NodeFacts { owned_labels: BTreeSet::new(), ..base() }, true),
            ("a label that the provider reads", labelled(base(), "pool", "blue"), true),
            ("a label of others", labelled(base(), "team", "x"), false),
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
        for (claim, changed, is_news) in rows {
            let (mut roster, start) = roster(&[base()]);
            roster.take(Lane::Refresh, start, 9);
            roster.ended(Lane::Refresh, &base(), Again::AtSweep, start, 0.5);
            let now = start + secs(5);
            see(&mut roster, std::slice::from_ref(&changed), now);
            let next = if is_news { now } else { start + PERIOD };
            assert_eq!(roster.next(Lane::Refresh), Some(next), "{claim}");
        }
    }

    #[test]
    fn who_fights_over_a_label_costs_a_lookup_a_minute_or_a_second_while_the_node_waits() {
        for (lane, truce) in [(Lane::Refresh, secs(60)), (Lane::Initialise, secs(1))] {
            let node = if lane == Lane::Refresh { working } else { waiting };
            let (mut roster, start) = roster(&[node("a")]);
            let zone = |value| labelled(node("a"), "topology.kubernetes.io/zone", value);
            let mut lookups = Vec::new();
            for change in 0..30 {
                let now = start + truce / 10 * change;
                see(&mut roster, &[zone("theirs")], now);
                if !taken(&mut roster, lane, now).is_empty() {
                    lookups.push(now - start);
                    see(&mut roster, &[zone("ours")], now);
                    roster.ended(lane, &zone("ours"), Again::AtSweep, now, 0.5);
                }
            }
            assert_eq!(lookups, [secs(0), truce, truce * 2]);
        }
    }

    #[test]
    fn our_own_writes_are_no_news_and_what_others_change_meanwhile_is() {
        for theirs in [false, true] {
            let (mut roster, start) = roster(&[working("a")]);
            assert_eq!(taken(&mut roster, Lane::Refresh, start).len(), 1);
            let left = addressed(working("a"));
            see(&mut roster, std::slice::from_ref(&left), start);
            if theirs {
                see(&mut roster, &[labelled(left.clone(), "pool", "blue")], start);
            }
            assert_eq!(roster.next(Lane::Refresh), None);
            roster.ended(Lane::Refresh, &left, Again::AtSweep, start, 0.5);
            assert_eq!(roster.next(Lane::Refresh), Some(if theirs { start } else { start + PERIOD }));
        }
    }

    #[test]
    fn failed_refreshes_are_tried_again_ever_later_and_with_the_sweep_at_the_latest() {
        let (mut roster, start) = roster(&[working("a")]);
        let mut waited = Vec::new();
        let mut now = start;
        for failures in 1..=8 {
            roster.take(Lane::Refresh, now, 9);
            let failed = Again::Failed(Retry::WithBackoff);
            assert_eq!(roster.ended(Lane::Refresh, &working("a"), failed, now, 0.0), failures);
            let next = roster.next(Lane::Refresh).unwrap();
            waited.push((next - now).as_secs());
            now = next;
        }
        assert_eq!(waited, [10, 20, 40, 80, 160, 320, 640, 530]);
        for (again, least, most) in [
            (Again::Failed(Retry::Soon), secs(10), secs(20)),
            (Again::Failed(Retry::After(secs(1))), secs(10), secs(20)),
            (Again::After(secs(1)), secs(10), secs(10)),
            (Again::Failed(Retry::Slowly), PERIOD, PERIOD),
        ] {
            for again in [Again::AtSweep, again] {
                now += PERIOD;
                roster.take(Lane::Refresh, now, 9);
                roster.ended(Lane::Refresh, &working("a"), again, now, 0.9);
            }
            let after = roster.next(Lane::Refresh).unwrap() - now;
            assert!((least..=most).contains(&after), "{again:?}: {after:?}");
        }
    }

    #[test]
    fn how_often_the_cloud_has_asked_for_patience_is_counted_until_it_says_something_else() {
        let (mut roster, mut now) = roster(&[waiting("a")]);
        let mut turn = |left: &NodeFacts, again| {
            now += PERIOD;
            roster.take(Lane::Initialise, now, 9);
            roster.ended(Lane::Initialise, left, again, now, 0.5)
        };
        let pending = Again::After(secs(5));
        let counts =
            [pending, pending, Again::Failed(Retry::WithBackoff), pending, Again::AtSweep, pending, pending]
                .map(|again| turn(&waiting("a"), again));
        assert_eq!(counts, [1, 2, 1, 1, 0, 1, 2]);
        let other = NodeFacts { uid: "other".to_owned(), ..waiting("a") };
        assert_eq!(turn(&other, pending), 0, "of another Node");
    }

    #[test]
    fn a_node_that_waits_is_tried_again_soon_and_at_once_when_it_changes() {
        let (mut roster, start) = roster(&[waiting("a")]);
        roster.take(Lane::Initialise, start, 9);
        let left = addressed(waiting("a"));
        see(&mut roster, std::slice::from_ref(&left), start); // our first write; the second has failed
        assert_eq!(roster.ended(Lane::Initialise, &left, Again::Failed(Retry::WithBackoff), start, 0.0), 1);
        assert_eq!(roster.next(Lane::Initialise), Some(start + Duration::from_millis(500)));
        see(&mut roster, &[labelled(left, "pool", "blue")], start);
        assert_eq!(roster.next(Lane::Initialise), Some(start));
    }

    #[test]
    fn a_node_that_is_nobodys_is_asked_about_at_sweeps() {
        let nobodys = NodeFacts { provider_id: None, ..working("a") };
        let (mut roster, start) = roster(std::slice::from_ref(&nobodys));
        roster.take(Lane::Initialise, start, 9);
        roster.ended(Lane::Initialise, &nobodys, Again::AtSweep, start, 0.5);
        assert_eq!(roster.next(Lane::Initialise), Some(start + PERIOD));
        see(&mut roster, &[addressed(nobodys.clone())], start + secs(1));
        assert_eq!(taken(&mut roster, Lane::Initialise, start + secs(1)), ["a"]);
        let failed = Again::Failed(Retry::WithBackoff);
        roster.ended(Lane::Initialise, &addressed(nobodys), failed, start + secs(1), 0.0);
        assert_eq!(roster.next(Lane::Initialise), Some(start + secs(11)), "nobody waits for it");
    }

    #[test]
    fn an_answer_is_of_no_use_for_another_node_of_the_name() {
        let (mut roster, start) = roster(&[waiting("a"), working("b")]);
        let a = roster.take(Lane::Initialise, start, 9).remove(0);
        let b = roster.take(Lane::Refresh, start, 9).remove(0);
        assert!(
            roster.current(Lane::Initialise, &a).is_some() && roster.current(Lane::Refresh, &b).is_some()
        );
        roster.observe(vec![Change::Gone("a".to_owned())], start);
        let other = NodeFacts { uid: "other".to_owned(), ..waiting("a") };
        see(&mut roster, &[other, NodeFacts { taints: waiting("b").taints, ..working("b") }], start);
        assert_eq!(roster.current(Lane::Initialise, &a), None);
        assert_eq!(roster.current(Lane::Refresh, &b), None, "it waits now");
        for (lane, node) in [(Lane::Initialise, a), (Lane::Refresh, b)] {
            assert_eq!(roster.next(Lane::Initialise), (lane == Lane::Refresh).then_some(start));
            assert_eq!(roster.ended(lane, &node, Again::AtSweep, start, 0.5), 0);
        }
        assert_eq!(taken(&mut roster, Lane::Initialise, start), ["a", "b"]);
    }

    #[test]
    fn another_node_of_a_name_does_not_wait_for_what_the_one_before_was_put_off_by() {
        for again in [Again::AtSweep, Again::Failed(Retry::Slowly)] {
            let (mut roster, start) = roster(&[waiting("a")]);
            roster.take(Lane::Initialise, start, 9);
            roster.ended(Lane::Initialise, &waiting("a"), again, start, 0.5);
            see(&mut roster, &[NodeFacts { uid: "other".to_owned(), ..waiting("a") }], start + secs(1));
            assert_eq!(roster.next(Lane::Initialise), Some(start + secs(1)), "{again:?}");
        }
    }

    #[test]
    fn an_answer_is_of_no_use_once_the_labels_that_it_rests_on_are_others() {
        for (lane, node) in [(Lane::Initialise, waiting("a")), (Lane::Refresh, working("a"))] {
            let (mut roster, start) = roster(std::slice::from_ref(&node));
            let looked_up = roster.take(lane, start, 9).remove(0);
            let beside = labelled(addressed(node.clone()), "team", "x");
            see(&mut roster, std::slice::from_ref(&beside), start);
            assert!(roster.current(lane, &looked_up).is_some(), "{lane:?}");
            see(&mut roster, &[labelled(beside, "pool", "blue")], start);
            assert_eq!(roster.current(lane, &looked_up), None, "{lane:?}");
            roster.ended(lane, &looked_up, Again::AtSweep, start, 0.5);
            assert_eq!(roster.next(lane), Some(start), "{lane:?}: it is looked up anew");
        }
    }

    #[test]
    fn a_node_that_went_while_it_was_worked_on_is_forgotten() {
        for again in [Again::AtSweep, Again::After(secs(1)), Again::Failed(Retry::WithBackoff)] {
            let (mut roster, start) = roster(&[waiting("a")]);
            let node = roster.take(Lane::Initialise, start, 9).remove(0);
            roster.observe(vec![Change::Gone("a".to_owned())], start);
            assert_eq!(roster.ended(Lane::Initialise, &node, again, start, 0.5), 0);
            assert_eq!((roster.next(Lane::Initialise), roster.uninitialised()), (None, 0), "{again:?}");
            see(&mut roster, &[NodeFacts { uid: "other".to_owned(), ..waiting("a") }], start);
            assert_eq!(taken(&mut roster, Lane::Initialise, start), ["a"], "{again:?}");
        }
    }

    #[derive(Debug, Clone)]
    enum Step {
        See(Box<NodeFacts>),
        Gone(&'static str),
        Take(Lane),
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
            prop::sample::select(Lane::ALL.to_vec()).prop_map(Step::Take),
            any::<bool>().prop_map(Step::End),
            (0_u64..100).prop_map(Step::Wait),
        ]
    }

    proptest! {
        #[test]
        fn no_node_is_forgotten_or_worked_on_twice_at_once(steps in prop::collection::vec(any_step(), 0..60)) {
            let (mut roster, start) = empty();
            let mut now = start;
            let mut present = BTreeMap::new();
            let mut busy: Vec<(Lane, Arc<NodeFacts>)> = Vec::new();
            for step in steps {
                match step {
                    Step::See(node) => {
                        see(&mut roster, std::slice::from_ref(&*node), now);
                        present.insert(node.name.clone(), *node);
                    }
                    Step::Gone(name) => {
                        roster.observe(vec![Change::Gone(name.to_owned())], now);
                        present.remove(name);
                    }
                    Step::Take(lane) => for node in roster.take(lane, now, 9) {
                        prop_assert_eq!(Some(&*node), present.get(&node.name), "what is known is what is taken");
                        prop_assert_eq!(Lane::of(&node), lane);
                        prop_assert!(busy.iter().all(|(_, other)| other.name != node.name));
                        busy.push((lane, node));
                    },
                    Step::End(is_done) => if let Some((lane, node)) = busy.pop() {
                        let again = if is_done { Again::AtSweep } else { Again::Failed(Retry::WithBackoff) };
                        roster.ended(lane, &node, again, now, 0.5);
                    },
                    Step::Wait(seconds) => now += secs(seconds),
                }
                let uninitialised = present.values().filter(|node| node.is_uninitialised()).count();
                prop_assert_eq!(roster.uninitialised(), uninitialised);
            }
            for (lane, node) in busy {
                roster.ended(lane, &node, Again::AtSweep, now, 0.5);
            }
            let end = now + PERIOD;
            let turns = Lane::ALL.into_iter().flat_map(|lane| roster.take(lane, end, 9));
            let names: BTreeSet<_> = turns.map(|node| node.name.clone()).collect();
            prop_assert_eq!(names, present.into_keys().collect(), "all have a turn within a period");
        }
    }
}
