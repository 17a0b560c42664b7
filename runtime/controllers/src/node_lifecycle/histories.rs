//! Random histories of a cluster and its cloud, made from a seed. Instances come, stop, start and vanish, lists lag and
//! are wrong, calls fail, Nodes change between any two steps of a pass, and the controller restarts. In every history no Node is
//! deleted whose instance exists. While even direct reads are wrong, no more Nodes are deleted than the breaker allows.
//! Once the world is quiet, each Node matches its instance.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use pileus_cloud::{InstanceState, Provider, Purpose};

use super::plan::{self, Action, NodeWrite};
use super::planner::{Findings, LifecyclePlanner, NodeAnswer, Now};
use crate::error::Error;
use crate::facts::node::{NodeFacts, Readiness, Taint};
use crate::model::{self, ApiServer, Cloud, Faults, Random};
use crate::well_known::{TAINT_OUT_OF_SERVICE, TAINT_SHUTDOWN};

/// The time after which the silence of a kubelet is noticed.
const SILENCE: Duration = Duration::from_secs(40);

struct World {
    random: Random,
    cloud: Cloud,
    api: ApiServer,
    /// Since the world's start.
    time: Duration,
    planner: LifecyclePlanner,
    started: Duration,
    wants_out_of_service: bool,
    /// When an instance last changed, by the name of its Node. The Node follows later.
    changed: BTreeMap<String, Duration>,
    /// Deletions without a release since the controller's start, by UID.
    deleted: BTreeMap<String, Duration>,
    /// Taints of others, by Node UID.
    foreign: BTreeMap<String, usize>,
    /// Whether other clients may act between two steps of a pass.
    is_busy: bool,
    /// Whether direct reads may deny an instance that exists.
    may_lie: bool,
    made: u64,
    tally: Tally,
}

/// Counts of what must happen in the histories for them to prove anything.
#[derive(Debug, Default)]
struct Tally {
    deleted: u64,
    released: u64,
    held: u64,
    hold_ended: u64,
    conflicts: u64,
    restarts: u64,
    shutdown: u64,
}

fn provider() -> Provider {
    Provider { largest_lookup_batch: 7, ..model::provider("model") }
}

impl World {
    fn new(seed: u64, nodes: u64, wants_out_of_service: bool) -> Self {
        let mut world = Self {
            random: Random(seed),
            cloud: Cloud::default(),
            api: ApiServer::default(),
            time: Duration::ZERO,
            planner: LifecyclePlanner::new(provider(), wants_out_of_service),
            started: Duration::ZERO,
            wants_out_of_service,
            changed: BTreeMap::new(),
            deleted: BTreeMap::new(),
            foreign: BTreeMap::new(),
            is_busy: true,
            may_lie: false,
            made: 0,
            tally: Tally::default(),
        };
        (0..nodes).for_each(|_| world.node_joins());
        world
    }

    fn now(&self) -> Now {
        Now { wall: self.wall(), uptime: self.time.saturating_sub(self.started) }
    }

    fn wall(&self) -> Timestamp {
        Timestamp::UNIX_EPOCH + SignedDuration::try_from(self.time).unwrap()
    }

    fn any_node(&mut self) -> Option<Arc<NodeFacts>> {
        let all = self.api.all();
        self.random.pick(&all).cloned()
    }

    fn node_joins(&mut self) {
        // Now and then a name is taken again, by another instance.
        let name = match self.random.below(2) {
            0 => format!("node-{}", self.random.below(self.made.max(1))),
            _ => format!("node-{}", self.made),
        };
        self.made += 1;
        if self.api.all().iter().any(|node| node.name == name) {
            return;
        }
        let mut node = NodeFacts { created_at: self.wall(), ..NodeFacts::registered(&name) };
        if self.random.percent(5) {
            return self.api.register(node.unserved("others://instance"));
        }
        let id = self.cloud.make(&name);
        if self.random.percent(70) {
            node.provider_id = Some(id);
            node.taints.clear();
        }
        self.api.register(node);
        self.changed.insert(name, self.time);
    }

    /// One random change.
    fn step(&mut self) {
        self.time += Duration::from_millis(self.random.below(4000));
        self.nodes_follow_their_instances();
        let Some(node) = self.any_node() else { return self.node_joins() };
        let name = node.name.as_str();
        match self.random.below(100) {
            0..12 => self.node_joins(),
            12..17 => self.instance_changes(&node, None),
            17..23 => self.instance_changes(&node, Some(InstanceState::Stopped)),
            23..40 => self.instance_changes(&node, Some(InstanceState::Running)),
            40..43 => self.instance_changes(&node, Some(InstanceState::Unknown)),
            43..63 => self.cloud.list_catches_up(),
            63..69 => {
                let key = format!("others/{}", self.made);
                self.made += 1;
                let taint = Taint { key, value: None, effect: "NoSchedule".to_owned(), time_added: None };
                self.api.edit(name, |node| node.taints.push(taint));
                *self.foreign.entry(node.uid.clone()).or_default() += 1;
            }
            69..71 => self.api.remove(name),
            71..77 if node.is_held => {
                // Some name another Node of that name by mistake.
                let uid = if self.random.percent(80) { node.uid.clone() } else { "another".to_owned() };
                self.api.edit(name, |node| node.release_deletion = Some(uid));
            }
            77..79 => self.restart(),
            79..83 => self.cloud.faults.lying_list = self.random.below(2) * 40,
            83..86 => self.cloud.faults.errors = self.random.below(3) * 30,
            86..88 => self.cloud.faults.failures = self.random.below(2) * 50,
            88..90 if self.may_lie => self.cloud.faults.lying_reads = self.random.below(3) * 50,
            90..93 => {
                // A slow kubelet.
                let readiness = if self.random.percent(50) { Readiness::False } else { Readiness::Unknown };
                self.api.edit(name, |node| node.readiness = readiness);
                self.changed.insert(name.to_owned(), self.time);
            }
            _ => {}
        }
    }

    fn instance_changes(&mut self, node: &NodeFacts, state: Option<InstanceState>) {
        if let Some((id, _)) = self.cloud.instance(node) {
            match state {
                None => self.cloud.vanish(&id),
                Some(state) => self.cloud.set(&id, state),
            }
            self.changed.insert(node.name.clone(), self.time);
        }
    }

    fn nodes_follow_their_instances(&mut self) {
        let (cloud, time) = (&self.cloud, self.time);
        let settled: Vec<_> = self
            .changed
            .iter()
            .filter(|(_, at)| time > **at + SILENCE)
            .map(|(name, _)| name.clone())
            .collect();
        for name in settled {
            self.changed.remove(&name);
            self.api.edit(&name, |node| {
                node.readiness = match cloud.instance(node).map(|(_, state)| state) {
                    Some(InstanceState::Running | InstanceState::Unknown) => Readiness::True,
                    Some(InstanceState::Stopped) | None => Readiness::Unknown,
                }
            });
        }
    }

    fn restart(&mut self) {
        self.planner = LifecyclePlanner::new(provider(), self.wants_out_of_service);
        self.started = self.time;
        self.deleted.clear();
        self.tally.restarts += 1;
    }

    /// Makes random changes between two steps.
    fn between(&mut self) {
        if self.is_busy {
            (0..self.random.below(3)).for_each(|_| self.step());
        }
    }

    /// Makes one pass like the controller. Returns what it wrote.
    fn pass(&mut self) -> Vec<Action> {
        let started = self.started;
        let now = self.now();
        let candidates = self.planner.candidates(&self.api.all(), now);
        let mut findings = Findings::default();
        let answers = self.look_up(Purpose::Refresh, &candidates);
        let now = self.now();
        let to_confirm = self.planner.on_lookup(&mut findings, answers, now);
        let nodes: Vec<_> = to_confirm.iter().map(|(node, _)| Arc::clone(node)).collect();
        let answers = self.look_up(Purpose::Confirm, &nodes);
        let now = self.now();
        self.planner.on_confirmation(&mut findings, &to_confirm, answers, now);
        let seen = self.api.all();
        self.between(); // the watch is late
        if self.started != started {
            return Vec::new(); // the controller has restarted
        }
        let plan = self.planner.plan(&seen, &findings, self.now());
        let bound = 3.max(self.provider_nodes(&seen) / 4);
        let mut written = Vec::new();
        for action in plan.actions {
            self.between();
            if self.started != started {
                return written;
            }
            self.write(&action);
            written.push(action);
        }
        if written.iter().any(|action| action.write == NodeWrite::Delete { is_released: false }) {
            let within = self.deleted_within().count();
            assert!(within <= bound, "{within} deleted within ten minutes, {bound} may be");
        }
        written
    }

    /// The provider's Nodes of these, and those that were deleted within ten minutes.
    fn provider_nodes(&self, nodes: &[Arc<NodeFacts>]) -> usize {
        let present: Vec<_> = nodes.iter().filter(|node| is_ours(node)).map(|node| &node.uid).collect();
        present.len() + self.deleted_within().filter(|uid| !present.contains(uid)).count()
    }

    fn deleted_within(&self) -> impl Iterator<Item = &String> {
        let recent = |at: Duration| self.time <= at + Duration::from_mins(10);
        self.deleted.iter().filter(move |(_, at)| recent(**at)).map(|(uid, _)| uid)
    }

    fn look_up(&mut self, purpose: Purpose, nodes: &[Arc<NodeFacts>]) -> Vec<NodeAnswer> {
        let mut answered = Vec::new();
        for chunk in nodes.chunks(7) {
            self.between();
            let references: Vec<_> = chunk.iter().map(|node| node.reference(&[])).collect();
            let answers = self.cloud.look_up(&mut self.random, purpose, &references);
            let answers = answers.unwrap_or_else(|error| vec![Err(error); chunk.len()]);
            answered.extend(chunk.iter().cloned().zip(answers));
        }
        answered
    }

    fn write(&mut self, action: &Action) {
        let (node, tally) = (&action.node, &mut self.tally);
        let written = match &action.write {
            NodeWrite::SetTaints(taints) => {
                tally.shutdown += u64::from(taints.iter().any(|taint| taint.key == TAINT_SHUTDOWN));
                self.api.patch(node, true, |node| node.taints.clone_from(taints))
            }
            NodeWrite::EndHold => {
                tally.hold_ended += 1;
                self.api.patch(node, false, |node| {
                    node.is_held = false;
                    node.release_deletion = None;
                })
            }
            NodeWrite::Hold(_) => {
                tally.held += 1;
                self.api.patch(node, false, |node| node.is_held = true)
            }
            NodeWrite::Delete { is_released } => {
                let deleted = self.api.delete(node);
                if deleted.is_ok() {
                    self.has_been_deleted(node, *is_released);
                }
                deleted
            }
        };
        self.tally.conflicts += u64::from(matches!(written, Err(Error::Conflict)));
    }

    fn has_been_deleted(&mut self, node: &NodeFacts, is_released: bool) {
        let instance = self.cloud.instance(node);
        assert!(self.may_lie || instance.is_none(), "{node:?} has an instance: {instance:?}");
        assert!(is_ours(node) && node.readiness != Readiness::True && !node.is_deleting, "{node:?}");
        assert!(is_released || !plan::is_joining(node, self.wall()), "{node:?} may get an instance");
        assert_eq!(is_released, node.is_held, "a Node on hold waits for its release");
        assert!(!is_released || node.release_deletion.as_deref() == Some(node.uid.as_str()), "{node:?}");
        let now = self.now();
        self.planner.on_deletion(node, is_released, now);
        if is_released {
            self.tally.released += 1;
        } else {
            self.tally.deleted += 1;
            self.deleted.insert(node.uid.clone(), self.time);
        }
    }

    /// Nothing else happens any more, all faults end, and the controller makes as many passes as it likes.
    fn settle(&mut self) {
        (self.is_busy, self.may_lie) = (false, false);
        self.cloud.faults = Faults::default();
        self.cloud.list_catches_up();
        // Longer than a Node is kept that never had an instance.
        for _ in 0..70 {
            self.time += Duration::from_secs(10);
            self.nodes_follow_their_instances();
            self.pass();
        }
        assert_eq!(self.pass(), [], "a settled cluster needs no write");
        for node in self.api.all().into_iter().filter(|node| is_ours(node)) {
            let instance = self.cloud.instance(&node).map(|(_, state)| state);
            let taint = |key| node.taints.iter().any(|taint| taint.key == key);
            match instance {
                None => assert!(node.is_held, "{node:?} has no instance"),
                Some(state) => {
                    assert!(!node.is_held && node.release_deletion.is_none(), "{node:?} is held");
                    assert_eq!(taint(TAINT_SHUTDOWN), state == InstanceState::Stopped, "{node:?} {state:?}");
                    let moves = self.wants_out_of_service && state == InstanceState::Stopped;
                    assert_eq!(taint(TAINT_OUT_OF_SERVICE), moves, "{node:?} {state:?}");
                }
            }
            let foreign = node.taints.iter().filter(|taint| taint.key.starts_with("others/")).count();
            assert_eq!(foreign, self.foreign.get(&node.uid).copied().unwrap_or_default(), "{node:?}");
        }
    }

    /// An operator releases all Nodes on hold.
    fn release_all(&mut self) {
        for node in self.api.all().iter().filter(|node| node.is_held) {
            self.api.edit(&node.name, |node| node.release_deletion = Some(node.uid.clone()));
        }
        self.pass();
        let all = self.api.all();
        assert!(
            all.iter().all(|node| !is_ours(node) || self.cloud.instance(node).is_some()),
            "all were deleted"
        );
    }
}

fn is_ours(node: &NodeFacts) -> bool {
    node.provider_id.as_ref().is_none_or(|id| id.scheme() == "model")
}

#[test]
fn in_every_history_only_nodes_without_an_instance_are_deleted_and_all_settle() {
    let mut total = Tally::default();
    for seed in 0..24 {
        let mut world = World::new(seed, 3 + seed * 2, seed % 2 == 0);
        for may_lie in [false, true, false, true] {
            (world.is_busy, world.may_lie) = (true, may_lie);
            if may_lie {
                world.cloud.faults = Faults { lying_list: 40, lying_reads: 80, ..Faults::default() };
            }
            for _ in 0..30 {
                world.time += Duration::from_secs(world.random.below(15));
                world.between();
                world.pass();
            }
            world.settle();
        }
        world.release_all();
        let tally = world.tally;
        total.deleted += tally.deleted;
        total.released += tally.released;
        total.held += tally.held;
        total.hold_ended += tally.hold_ended;
        total.conflicts += tally.conflicts;
        total.restarts += tally.restarts;
        total.shutdown += tally.shutdown;
    }
    let Tally { deleted, released, held, hold_ended, conflicts, restarts, shutdown } = total;
    let all = [deleted, released, held, hold_ended, conflicts, restarts, shutdown];
    assert!(all.iter().all(|count| *count > 5), "{total:?} misses something");
}
