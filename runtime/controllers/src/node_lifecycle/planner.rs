//! The lifecycle controller without its network: which Nodes a pass looks up, what the answers mean, and what to write.
//!
//! A pass calls `candidates` and looks these Nodes up in several calls. After each it calls `on_lookup`, looks the suspects up
//! directly, and calls `on_confirmation`; `plan_help` has the writes that need no other answer. Finally it calls `plan`. An old answer may say that an instance exists, but never that it is gone. A write that deletes a Node or
//! lifts its hold rests on a direct read that began after the lookup.
//!
//! Pure: the clocks are arguments.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use pileus_cloud::{Answer, Error, InstanceState, NodeReference, Provider, Retry, Stance};

use super::breaker::{Breaker, BreakerState};
use super::plan::{self, Action, Decision, Finding};
use crate::facts::node::{NodeFacts, Readiness};

/// The age below which a Node isn't looked up: a cloud may not show a new instance in its first seconds. Upstream deletes such
/// a Node at once (U-01).
const MIN_AGE: SignedDuration = SignedDuration::from_mins(1);

/// How long a Node is skipped after a direct read has contradicted a list. Otherwise a wrong list would cost a read for each
/// Node in each pass.
const CONTRADICTION_PAUSE: Duration = Duration::from_mins(1);

/// How long a Node is skipped after an error that an operator has to fix. Otherwise a Node whose deletion is denied would cost a
/// direct read and two events in each pass.
const ERROR_PAUSE: Duration = Duration::from_mins(1);

/// The time of the caller's clocks.
#[derive(Debug, Clone, Copy)]
pub(super) struct Now {
    /// The wall clock, to compare with times in objects.
    pub(super) wall: Timestamp,
    /// The time since the controller's start, to measure durations: it never jumps.
    pub(super) uptime: Duration,
}

/// A Node that was looked up, with the answer.
pub(super) type NodeAnswer = (Arc<NodeFacts>, Result<Answer, Error>);

/// Plans the passes of the lifecycle controller, and keeps what must be remembered between them.
pub(super) struct LifecyclePlanner {
    provider: Provider,
    wants_out_of_service: bool,
    breaker: Breaker,
    /// Until when a Node, by UID, isn't looked up.
    paused_until: BTreeMap<String, Duration>,
    /// The Nodes, by UID, whose last lookup failed.
    unknown: BTreeSet<String>,
    /// The Nodes, by UID, that the provider doesn't manage and that are asked about again only when they change, each as it was
    /// looked up.
    unmanaged: BTreeMap<String, NodeReference>,
    /// The Nodes, by UID, that a list lacked and that no direct read has settled since. Released Nodes are left out.
    suspects: BTreeSet<String>,
}

/// What one pass has learned about instances, by the UID of the Node.
#[derive(Debug, Default)]
pub(super) struct Findings {
    known: BTreeMap<String, (Arc<NodeFacts>, Finding)>,
    /// The number of instances that a list lacked and a direct read found.
    pub(super) contradicted: u64,
    /// The first error of the pass, if lookups failed.
    pub(super) first_error: Option<Error>,
}

/// The writes of a pass, and the numbers to report.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) actions: Vec<Action>,
    pub(super) breaker: BreakerState,
    /// The number of Nodes on hold after these writes.
    pub(super) held: usize,
}

impl LifecyclePlanner {
    pub(super) fn new(provider: Provider, wants_out_of_service: bool) -> Self {
        Self {
            provider,
            wants_out_of_service,
            breaker: Breaker::default(),
            paused_until: BTreeMap::new(),
            unknown: BTreeSet::new(),
            unmanaged: BTreeMap::new(),
            suspects: BTreeSet::new(),
        }
    }

    /// The Nodes to look up in this pass. A ready Node isn't one of them: its instance works, regardless of what a cloud says.
    pub(super) fn candidates(&mut self, nodes: &[Arc<NodeFacts>], now: Now) -> Vec<Arc<NodeFacts>> {
        self.paused_until.retain(|_, until| *until > now.uptime);
        let is_old_enough = |node: &NodeFacts| now.wall.duration_since(node.created_at) >= MIN_AGE;
        let watched: Vec<_> = nodes
            .iter()
            .filter(|node| self.is_ours(node) && node.readiness != Readiness::True && is_old_enough(node))
            .collect();
        let uids: BTreeSet<_> = watched.iter().map(|node| &node.uid).collect();
        self.unknown.retain(|uid| uids.contains(uid));
        self.suspects.retain(|uid| uids.contains(uid));
        let present: BTreeSet<_> = nodes.iter().map(|node| &node.uid).collect();
        self.unmanaged.retain(|uid, _| present.contains(uid));
        let is_settled = |node: &NodeFacts| {
            let known = self.unmanaged.get(&node.uid);
            known.is_some_and(|known| *known == node.reference(&self.provider.node_labels))
        };
        let is_paused = |node: &NodeFacts| self.paused_until.contains_key(&node.uid);
        watched.into_iter().filter(|node| !is_paused(node) && !is_settled(node)).cloned().collect()
    }

    /// The number of Nodes that are not ready and whose last lookup failed.
    pub(super) fn unknown(&self) -> usize {
        self.unknown.len()
    }

    /// Applies the answers of the first lookup. Returns the Nodes that need a direct read.
    pub(super) fn on_lookup(
        &mut self,
        findings: &mut Findings,
        answers: Vec<NodeAnswer>,
        now: Now,
    ) -> Vec<NodeAnswer> {
        let mut to_confirm = Vec::new();
        for (node, answer) in answers {
            let Some(answer) = self.definite(findings, &node, answer, now) else { continue };
            let needs_read = match finding(&answer, false) {
                None if plan::is_released(&node) => true,
                // A Node on hold that isn't released is only looked up to find out whether its instance is back, and one that
                // never had an instance to find out whether it has one now.
                None => !node.is_held && !plan::is_joining(&node, now.wall),
                Some(_) if node.is_held => true,
                Some(found) => {
                    findings.record(&node, found);
                    matches!(found, Finding::Stopped { .. })
                        && self.wants_out_of_service
                        && plan::lacks_out_of_service(&node)
                }
            };
            if needs_read && answer == Answer::Absent && !plan::is_released(&node) {
                self.suspects.insert(node.uid.clone());
            } else {
                self.suspects.remove(&node.uid);
            }
            if needs_read {
                to_confirm.push((node, Ok(answer)));
            }
        }
        to_confirm
    }

    /// Applies the answers of the direct read of the Nodes that [`LifecyclePlanner::on_lookup`] returned.
    pub(super) fn on_confirmation(
        &mut self,
        findings: &mut Findings,
        looked_up: &[NodeAnswer],
        answers: Vec<NodeAnswer>,
        now: Now,
    ) {
        for ((_, listed), (node, answer)) in looked_up.iter().zip(answers) {
            // A Node without an answer stays suspect, as where a cloud limits the number of direct reads.
            if matches!(answer, Ok(Answer::Found(_) | Answer::Absent | Answer::Unmanaged(_))) {
                self.suspects.remove(&node.uid);
            }
            let Some(answer) = self.definite(findings, &node, answer, now) else { continue };
            let (was_absent, is_absent) = (*listed == Ok(Answer::Absent), answer == Answer::Absent);
            if was_absent != is_absent {
                self.pause(&node, CONTRADICTION_PAUSE, now);
            }
            findings.contradicted += u64::from(was_absent && !is_absent);
            findings.record(&node, finding(&answer, true).unwrap_or(Finding::Absent));
        }
    }

    /// Plans the writes that help these Nodes as they are now. They need not wait for the answers about other Nodes.
    pub(super) fn plan_help(&self, nodes: &[Arc<NodeFacts>], findings: &Findings, now: Now) -> Vec<Action> {
        let mut actions = plan::plan(&self.decisions(nodes, findings, now), BreakerState::default());
        actions.retain(|action| action.write.helps());
        actions
    }

    /// The decisions about the provider's Nodes as they are now. A finding counts only for a Node that would be looked up again
    /// with the same reference.
    fn decisions(
        &self,
        nodes: &[Arc<NodeFacts>],
        findings: &Findings,
        now: Now,
    ) -> Vec<(Arc<NodeFacts>, Decision)> {
        let decision = |node: &Arc<NodeFacts>| {
            let labels = &self.provider.node_labels;
            let is_same = |looked_up: &NodeFacts| looked_up.reference(labels) == node.reference(labels);
            let known = findings.known.get(&node.uid).filter(|(looked_up, _)| is_same(looked_up));
            let finding = known.map(|(_, finding)| *finding);
            (Arc::clone(node), plan::decide(node, finding, self.wants_out_of_service, now.wall))
        };
        nodes.iter().filter(|node| self.is_ours(node)).map(decision).collect()
    }

    /// Plans all writes, for all Nodes as they are now.
    pub(super) fn plan(&self, nodes: &[Arc<NodeFacts>], findings: &Findings, now: Now) -> Plan {
        let decisions = self.decisions(nodes, findings, now);
        // A Node that never had an instance says nothing about the others.
        let counts = |node: &NodeFacts| node.is_held || !plan::is_joining(node, now.wall);
        let present = decisions.iter().filter(|(node, _)| counts(node));
        let present = present.map(|(node, _)| node.uid.as_str()).collect();
        let is_suspect = |(node, decision): &&(Arc<NodeFacts>, Decision)| {
            *decision == Decision::Nothing
                && counts(node)
                && node.readiness != Readiness::True
                && self.suspects.contains(&node.uid)
        };
        let suspects = decisions.iter().filter(is_suspect).map(|(node, _)| node.uid.as_str());
        let absent = plan::absent(&decisions).into_iter().chain(suspects).collect();
        let breaker = self.breaker.evaluate(&present, &absent, now.uptime);
        let is_held = |decision: &Decision| match decision {
            Decision::KeepHeld => true,
            Decision::ConfirmedGone => breaker.is_open,
            Decision::Nothing | Decision::Write(_) => false,
        };
        let held = decisions.iter().filter(|(_, decision)| is_held(decision)).count();
        Plan { actions: plan::plan(&decisions, breaker), breaker, held }
    }

    /// Counts a Node that was deleted, or may have been, or whose deletion was denied. A released Node doesn't count.
    pub(super) fn on_deletion(&mut self, node: &NodeFacts, is_released: bool, now: Now) {
        if !is_released {
            self.breaker.on_deletion(&node.uid, now.uptime);
        }
    }

    /// Skips a Node for a while that the API server refuses to change or delete.
    pub(super) fn on_refusal(&mut self, node: &NodeFacts, now: Now) {
        self.pause(node, ERROR_PAUSE, now);
    }

    /// Whether the provider is responsible for a Node. Nothing says that a Node with neither a provider ID nor the uninitialized
    /// taint belongs to this cloud.
    fn is_ours(&self, node: &NodeFacts) -> bool {
        !node.is_deleting
            && (node.provider_id.is_some() || node.is_uninitialized())
            && node.belongs_to(&self.provider.name)
    }

    /// The answer, if it says whether the instance exists. After any other answer the Node stays as it is and is looked up again.
    fn definite(
        &mut self,
        findings: &mut Findings,
        node: &NodeFacts,
        answer: Result<Answer, Error>,
        now: Now,
    ) -> Option<Answer> {
        if let Err(error) = &answer {
            self.unknown.insert(node.uid.clone());
            findings.first_error.get_or_insert_with(|| error.clone());
        } else {
            self.unknown.remove(&node.uid);
        }
        if answer == Ok(Answer::Unmanaged(Stance::Released)) {
            self.unmanaged.insert(node.uid.clone(), node.reference(&self.provider.node_labels));
        } else {
            self.unmanaged.remove(&node.uid);
        }
        let after = match answer {
            Ok(answer @ (Answer::Found(_) | Answer::Absent)) => return Some(answer),
            Ok(Answer::Pending(after)) => after,
            Ok(Answer::Unmanaged(_)) => return None,
            Err(error) => match error.kind.retry() {
                Retry::After(after) => after,
                Retry::Slowly => ERROR_PAUSE,
                Retry::Soon | Retry::WithBackoff | Retry::Uncertain => return None,
            },
        };
        self.pause(node, after, now);
        None
    }

    fn pause(&mut self, node: &NodeFacts, after: Duration, now: Now) {
        self.paused_until.insert(node.uid.clone(), now.uptime.saturating_add(after));
    }
}

impl Findings {
    fn record(&mut self, node: &Arc<NodeFacts>, finding: Finding) {
        self.known.insert(node.uid.clone(), (Arc::clone(node), finding));
    }
}

/// The finding of an answer. `None` where the answer is that the instance is gone.
fn finding(answer: &Answer, is_confirmed: bool) -> Option<Finding> {
    let Answer::Found(instance) = answer else { return None };
    Some(match instance.state {
        InstanceState::Running => Finding::Running,
        InstanceState::Stopped => Finding::Stopped { is_confirmed },
        InstanceState::Unknown => Finding::Exists,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::node::Taint;
    use crate::model::{self, instance};
    use crate::node_lifecycle::plan::NodeWrite;
    use crate::well_known::{TAINT_AUTOSCALER_DELETES, TAINT_OUT_OF_SERVICE};
    use pileus_cloud::{ErrorKind, ProviderId};

    fn provider() -> Provider {
        Provider {
            node_labels: vec!["pool".to_owned()],
            largest_lookup_batch: 1000,
            ..model::provider("model")
        }
    }

    /// A Node that was initialized an hour ago, and isn't ready.
    fn node(name: &str) -> NodeFacts {
        NodeFacts {
            provider_id: Some(ProviderId::parse(&format!("model://{name}")).unwrap()),
            taints: Vec::new(),
            readiness: Readiness::Unknown,
            ..NodeFacts::registered(name)
        }
    }

    fn nodes(count: usize) -> Vec<NodeFacts> {
        (0..count).map(|n| node(&format!("n{n}"))).collect()
    }

    fn at(seconds: u64) -> Now {
        let wall = Timestamp::UNIX_EPOCH + SignedDuration::from_hours(1);
        let uptime = Duration::from_secs(seconds);
        Now { wall: wall + SignedDuration::try_from(uptime).unwrap(), uptime }
    }

    fn found(state: InstanceState) -> Answer {
        Answer::Found(instance("model://m", state))
    }

    const ABSENT: Result<Answer, Error> = Ok(Answer::Absent);

    /// Makes a pass with these answers. Returns the plan, and the names of the Nodes that were looked up and read directly.
    fn pass(
        planner: &mut LifecyclePlanner,
        nodes: &[NodeFacts],
        now: Now,
        list: impl Fn(&NodeFacts) -> Result<Answer, Error>,
        read: impl Fn(&NodeFacts) -> Result<Answer, Error>,
    ) -> (Plan, Vec<String>, Vec<String>) {
        let nodes: Vec<_> = nodes.iter().cloned().map(Arc::new).collect();
        let names = |looked_up: &[NodeAnswer]| looked_up.iter().map(|(node, _)| node.name.clone()).collect();
        let mut findings = Findings::default();
        let listed: Vec<_> = planner
            .candidates(&nodes, now)
            .into_iter()
            .map(|node| (Arc::clone(&node), list(&node)))
            .collect();
        let looked_up = names(&listed);
        let to_confirm = planner.on_lookup(&mut findings, listed, now);
        let answers = to_confirm.iter().map(|(node, _)| (Arc::clone(node), read(node))).collect();
        planner.on_confirmation(&mut findings, &to_confirm, answers, now);
        (planner.plan(&nodes, &findings, now), looked_up, names(&to_confirm))
    }

    /// The writes of a plan, by Node name.
    fn writes(plan: &Plan) -> Vec<(&str, &NodeWrite)> {
        plan.actions.iter().map(|action| (action.node.name.as_str(), &action.write)).collect()
    }

    fn counts(plan: &Plan) -> (usize, usize) {
        let of = |wanted: fn(&NodeWrite) -> bool| plan.actions.iter().filter(|a| wanted(&a.write)).count();
        (
            of(|write| matches!(write, NodeWrite::Delete { .. })),
            of(|write| matches!(write, NodeWrite::Hold(_))),
        )
    }

    #[test]
    fn candidates_are_the_providers_own_nodes_that_are_old_enough_and_not_ready() {
        type Change = fn(&mut NodeFacts);
        let rows: [(&str, Change, bool); 11] = [
            ("not ready", |node| node.readiness = Readiness::False, true),
            ("silent", |node| node.readiness = Readiness::Unknown, true),
            ("ready", |node| node.readiness = Readiness::True, false),
            ("being deleted", |node| node.is_deleting = true, false),
            ("another provider's", |node| *node = node.clone().unserved("other://x"), false),
            ("without provider ID", |node| node.provider_id = None, false),
            (
                "waiting",
                |node| *node = NodeFacts { created_at: node.created_at, ..NodeFacts::registered("a") },
                true,
            ),
            ("59 s old", |node| node.created_at = at(0).wall - SignedDuration::from_secs(59), false),
            ("60 s old", |node| node.created_at = at(0).wall - SignedDuration::from_secs(60), true),
            ("from the future", |node| node.created_at = at(0).wall + SignedDuration::from_hours(9), false),
            ("held", |node| node.is_held = true, true),
        ];
        for (row, change, is_candidate) in rows {
            let mut node = node("a");
            change(&mut node);
            let looked_up = LifecyclePlanner::new(provider(), false).candidates(&[Arc::new(node)], at(0));
            assert_eq!(looked_up.len(), usize::from(is_candidate), "{row}");
        }
    }

    #[test]
    fn a_direct_read_precedes_what_can_not_be_undone() {
        let rows = [
            ("absent", false, None, false, ABSENT, true),
            ("absent, held", true, None, false, ABSENT, false),
            ("absent, held, released", true, Some("uid-a"), false, ABSENT, true),
            ("absent, held, another released", true, Some("uid-b"), false, ABSENT, false),
            ("back", true, None, false, Ok(found(InstanceState::Running)), true),
            ("runs", false, None, true, Ok(found(InstanceState::Running)), false),
            ("stopped", false, None, false, Ok(found(InstanceState::Stopped)), false),
            ("stopped, and its Pods are to move", false, None, true, Ok(found(InstanceState::Stopped)), true),
        ];
        for (row, is_held, released, wants, listed, is_read) in rows {
            let release_deletion = released.map(str::to_owned);
            let node = NodeFacts { is_held, release_deletion, ..node("a") };
            let mut planner = LifecyclePlanner::new(provider(), wants);
            let (_, _, read) = pass(&mut planner, &[node], at(0), |_| listed.clone(), |_| ABSENT);
            assert_eq!(read.len(), usize::from(is_read), "{row}");
        }
        let theirs = Taint {
            key: TAINT_OUT_OF_SERVICE.to_owned(),
            value: None,
            effect: "NoExecute".to_owned(),
            time_added: None,
        };
        let moving = NodeFacts { taints: vec![theirs], ..node("a") };
        let stopped = |_: &NodeFacts| Ok(found(InstanceState::Stopped));
        let (_, _, read) =
            pass(&mut LifecyclePlanner::new(provider(), true), &[moving], at(0), stopped, |_| ABSENT);
        assert!(read.is_empty(), "stopped, and its Pods move already");
    }

    #[test]
    fn nodes_that_never_had_an_instance_cost_no_read_and_say_nothing_about_others() {
        let joining = |name: &str| NodeFacts { created_at: at(0).wall, ..NodeFacts::registered(name) };
        let mut all: Vec<_> = (0..40).map(|n| joining(&format!("j{n}"))).collect();
        all.extend(nodes(8).into_iter().map(|node| NodeFacts { readiness: Readiness::True, ..node }));
        let mut planner = LifecyclePlanner::new(provider(), false);
        let mut round = |all: &[NodeFacts], seconds| {
            let (plan, looked_up, read) = pass(&mut planner, all, at(seconds), |_| ABSENT, |_| ABSENT);
            (looked_up.len(), read.len(), counts(&plan), (plan.breaker.gone, plan.breaker.total))
        };
        assert_eq!(round(&all, 61), (40, 0, (0, 0), (0, 8)));
        all.iter_mut().skip(40).take(4).for_each(|node| node.readiness = Readiness::Unknown);
        assert_eq!(round(&all, 71), (44, 4, (0, 4), (4, 8)), "half of the others are gone");
        assert_eq!(round(&all[..3], 599), (3, 0, (0, 0), (0, 0)));
        assert_eq!(round(&all[..3], 600), (3, 3, (3, 0), (3, 3)), "after ten minutes of silence");
    }

    #[test]
    fn only_a_confirmed_absent_deletes() {
        let pending = || Ok(Answer::Pending(Duration::from_secs(5)));
        let broken = || Err(Error::new(ErrorKind::Broken, "404"));
        for (row, listed, read, is_deleted) in [
            ("both", ABSENT, ABSENT, true),
            ("the list is wrong", ABSENT, Ok(found(InstanceState::Running)), false),
            ("the read fails", ABSENT, broken(), false),
            ("the read is pending", ABSENT, pending(), false),
            ("the read says that it is unmanaged", ABSENT, Ok(Answer::Unmanaged(Stance::LeftAlone)), false),
            ("the list fails", broken(), ABSENT, false),
            ("the list is pending", pending(), ABSENT, false),
            ("unmanaged", Ok(Answer::Unmanaged(Stance::LeftAlone)), ABSENT, false),
            ("released", Ok(Answer::Unmanaged(Stance::Released)), ABSENT, false),
            ("the read says that it is released", ABSENT, Ok(Answer::Unmanaged(Stance::Released)), false),
            ("found, may be old", Ok(found(InstanceState::Unknown)), ABSENT, false),
        ] {
            let mut planner = LifecyclePlanner::new(provider(), false);
            let (plan, ..) = pass(&mut planner, &[node("a")], at(0), |_| listed.clone(), |_| read.clone());
            assert_eq!(counts(&plan), (usize::from(is_deleted), 0), "{row}");
        }
    }

    #[test]
    fn a_released_node_is_asked_about_again_only_when_it_changes() {
        let released = |_: &NodeFacts| Ok(Answer::Unmanaged(Stance::Released));
        let left_alone = |_: &NodeFacts| Ok(Answer::Unmanaged(Stance::LeftAlone));
        let mut planner = LifecyclePlanner::new(provider(), false);
        let heartbeat = || NodeFacts { resource_version: "9".to_owned(), ..node("a") };
        let labeled = || NodeFacts { labels: [("pool", "b")].into(), ..node("a") };
        let renewed = || NodeFacts { uid: "other".to_owned(), ..labeled() };
        for (second, node, asked) in [
            (0, node("a"), 1),
            (5, heartbeat(), 0),
            (9999, node("a"), 0),
            (10_000, labeled(), 1),
            (10_005, labeled(), 0),
            (10_010, renewed(), 1),
            (10_015, labeled(), 1),
        ] {
            let (plan, looked_up, read) = pass(&mut planner, &[node], at(second), released, |_| ABSENT);
            assert_eq!((looked_up.len(), read.len(), counts(&plan)), (asked, 0, (0, 0)), "{second}");
        }
        for second in [20_000, 20_005] {
            let (_, looked_up, _) = pass(&mut planner, &[node("b")], at(second), left_alone, |_| ABSENT);
            assert_eq!(looked_up.len(), 1, "one that is left alone is asked about in each pass");
        }
    }

    #[test]
    fn an_answer_about_a_former_state_of_a_node_is_ignored() {
        type Change = fn(&mut NodeFacts);
        let rows: [(&str, Change, usize); 7] = [
            ("heartbeat", |node| node.resource_version = "9".to_owned(), 1),
            ("another of the name", |node| node.uid = "other".to_owned(), 0),
            ("another instance", |node| node.provider_id = Some(ProviderId::parse("model://b").unwrap()), 0),
            ("ready", |node| node.readiness = Readiness::True, 0),
            ("being deleted", |node| node.is_deleting = true, 0),
            ("another label that the provider reads", |node| node.labels.insert("pool", "b"), 0),
            ("another label", |node| node.labels.insert("x", "y"), 1),
        ];
        for (row, change, deleted) in rows {
            let (mut planner, mut findings) = (LifecyclePlanner::new(provider(), false), Findings::default());
            let looked_up = Arc::new(node("a"));
            let to_confirm = planner.on_lookup(&mut findings, vec![(Arc::clone(&looked_up), ABSENT)], at(0));
            planner.on_confirmation(&mut findings, &to_confirm, vec![(looked_up, ABSENT)], at(0));
            let mut changed = node("a");
            change(&mut changed);
            let plan = planner.plan(&[Arc::new(changed.clone())], &findings, at(0));
            assert_eq!(counts(&plan).0, deleted, "{row}");
            assert!(
                plan.actions.iter().all(|action| *action.node == changed),
                "{row}: with the present facts"
            );
        }
    }

    #[test]
    fn a_node_is_skipped_for_as_long_as_the_cloud_asks_for() {
        let error = |kind| Err(Error::new(kind, "why"));
        let throttled = |seconds: Option<u64>| error(ErrorKind::Throttled(seconds.map(Duration::from_secs)));
        for (row, listed, read, pause) in [
            ("pending", Ok(Answer::Pending(Duration::from_secs(30))), ABSENT, 30),
            ("throttled", throttled(Some(25)), ABSENT, 25),
            ("throttled, without a time", throttled(None), ABSENT, 0),
            ("unavailable", error(ErrorKind::Unavailable(None)), ABSENT, 0),
            ("denied", error(ErrorKind::Denied), ABSENT, 60),
            ("the read is pending", ABSENT, Ok(Answer::Pending(Duration::from_secs(20))), 20),
            ("the list is wrong", ABSENT, Ok(found(InstanceState::Running)), 60),
            ("absent", ABSENT, ABSENT, 0),
            ("runs", Ok(found(InstanceState::Running)), ABSENT, 0),
        ] {
            let mut planner = LifecyclePlanner::new(provider(), false);
            pass(&mut planner, &[node("a")], at(0), |_| listed.clone(), |_| read.clone());
            let mut is_candidate =
                |seconds| !planner.candidates(&[Arc::new(node("a"))], at(seconds)).is_empty();
            assert!(pause == 0 || !is_candidate(pause - 1), "{row}: too soon");
            assert!(is_candidate(pause), "{row}: too late");
        }
    }

    #[test]
    fn a_node_is_unknown_from_an_error_until_an_answer_or_until_it_is_ready() {
        let error = |_: &NodeFacts| Err(Error::new(ErrorKind::Denied, "no right"));
        let runs = |_: &NodeFacts| Ok(found(InstanceState::Running));
        let mut all = nodes(4);
        let mut planner = LifecyclePlanner::new(provider(), false);
        pass(&mut planner, &all, at(0), error, runs);
        assert_eq!(planner.unknown(), 4);
        pass(&mut planner, &all, at(10), runs, runs);
        assert_eq!(planner.unknown(), 4, "they are skipped, so nothing is known");
        all[0].readiness = Readiness::True;
        all[1].uid = "another".to_owned();
        planner.candidates(&all.clone().into_iter().map(Arc::new).collect::<Vec<_>>(), at(20));
        assert_eq!(planner.unknown(), 2);
        pass(&mut planner, &all, at(70), |node| if node.name == "n2" { ABSENT } else { runs(node) }, error);
        assert_eq!(planner.unknown(), 1, "the direct read has failed");
        pass(&mut planner, &all, at(140), runs, runs);
        assert_eq!(planner.unknown(), 0);
    }

    #[test]
    fn the_first_error_of_a_pass_is_reported() {
        let (mut planner, mut findings) = (LifecyclePlanner::new(provider(), false), Findings::default());
        let answers = ["", "first", "second"].map(|why| match why {
            "" => Ok(found(InstanceState::Running)),
            why => Err(Error::new(ErrorKind::Unavailable(None), why)),
        });
        let answered = nodes(3).into_iter().map(Arc::new).zip(answers).collect();
        planner.on_lookup(&mut findings, answered, at(0));
        assert_eq!(findings.first_error.map(|error| error.message).as_deref(), Some("first"));
    }

    #[test]
    fn a_wrong_list_is_counted_and_deletes_no_node() {
        let mut planner = LifecyclePlanner::new(provider(), false);
        let running = |_: &NodeFacts| Ok(found(InstanceState::Running));
        let all: Vec<_> = nodes(100).into_iter().map(Arc::new).collect();
        let mut findings = Findings::default();
        let to_confirm = planner.on_lookup(
            &mut findings,
            all.iter().map(|node| (Arc::clone(node), ABSENT)).collect(),
            at(0),
        );
        let answers = all.iter().map(|node| (Arc::clone(node), running(node))).collect();
        planner.on_confirmation(&mut findings, &to_confirm, answers, at(0));
        assert_eq!(findings.contradicted, 100);
        assert_eq!(planner.plan(&all, &findings, at(0)).actions, []);
    }

    #[test]
    fn a_cloud_that_denies_everything_deletes_no_node() {
        let mut planner = LifecyclePlanner::new(provider(), false);
        let (plan, ..) = pass(&mut planner, &nodes(100), at(0), |_| ABSENT, |_| ABSENT);
        assert_eq!((counts(&plan), plan.held, plan.breaker.is_open), ((0, 100), 100, true));
        let mut small = LifecyclePlanner::new(provider(), false);
        let (plan, ..) = pass(&mut small, &nodes(3), at(0), |_| ABSENT, |_| ABSENT);
        assert_eq!((counts(&plan), plan.held, plan.breaker.is_open), ((3, 0), 0, false));
    }

    #[test]
    fn a_cloud_that_denies_everything_deletes_no_node_even_if_it_confirms_few_at_a_time() {
        let all = nodes(100);
        let slow = || Ok(Answer::Pending(Duration::from_secs(5)));
        let error = || Err(Error::new(ErrorKind::Throttled(None), "slower"));
        for (row, others, deleted, held) in [
            ("the others are pending", slow(), 0, 10),
            ("the others fail", error(), 0, 10),
            ("the others are there", Ok(found(InstanceState::Running)), 10, 0),
            ("the others are unmanaged", Ok(Answer::Unmanaged(Stance::LeftAlone)), 10, 0),
        ] {
            let read = |node: &NodeFacts| if node.name.len() == 2 { ABSENT } else { others.clone() };
            let (plan, ..) =
                pass(&mut LifecyclePlanner::new(provider(), false), &all, at(0), |_| ABSENT, read);
            assert_eq!(counts(&plan), (deleted, held), "{row}");
        }
    }

    #[test]
    fn a_suspicion_lasts_until_it_is_settled() {
        type Change = fn(&mut NodeFacts);
        type Answers = fn(&NodeFacts) -> Result<Answer, Error>;
        let slow = |_: &NodeFacts| Ok(Answer::Pending(Duration::from_secs(5)));
        let runs = |_: &NodeFacts| Ok(found(InstanceState::Running));
        let absent = |_: &NodeFacts| ABSENT;
        let ready = |node: &mut NodeFacts| node.readiness = Readiness::True;
        let rows: [(&str, u64, Change, Answers, Answers, usize); 6] = [
            ("they are skipped", 1, |_| {}, absent, slow, 10),
            ("the direct read is pending", 10, |_| {}, absent, slow, 10),
            ("a list has them again", 10, |_| {}, runs, slow, 0),
            ("a direct read finds them", 10, |_| {}, absent, runs, 0),
            ("the direct read confirms", 10, |_| {}, absent, absent, 10),
            ("they are ready", 10, ready, absent, slow, 0),
        ];
        for (row, after, change, list, read, gone) in rows {
            let (mut planner, mut all) = (LifecyclePlanner::new(provider(), false), nodes(10));
            pass(&mut planner, &all, at(0), absent, slow);
            all.iter_mut().for_each(change);
            let (plan, ..) = pass(&mut planner, &all, at(after), list, read);
            assert_eq!(plan.breaker.gone, gone, "{row}");
            all.clear();
            let (plan, ..) = pass(&mut planner, &all, at(after + 1), list, read);
            assert_eq!((plan.breaker.gone, planner.suspects.len()), (0, 0), "{row}: forgotten with the Node");
        }
    }

    #[test]
    fn other_providers_nodes_and_deleted_nodes_do_not_dilute_the_share() {
        let mut all = nodes(10);
        for node in all.iter_mut().skip(5) {
            node.readiness = Readiness::True;
        }
        for n in 0..90 {
            let mut other = node(&format!("o{n}"));
            match n % 3 {
                0 => other = other.unserved("other://x"),
                1 => other.provider_id = None,
                _ => other.is_deleting = true,
            }
            all.push(other);
        }
        let (plan, ..) =
            pass(&mut LifecyclePlanner::new(provider(), false), &all, at(0), |_| ABSENT, |_| ABSENT);
        assert_eq!((counts(&plan), plan.breaker.gone, plan.breaker.total), ((0, 5), 5, 10));
    }

    #[test]
    fn a_hold_survives_a_falling_share_and_a_restart() {
        let mut all = nodes(100);
        all.iter_mut().take(20).for_each(|node| node.is_held = true);
        all.iter_mut().skip(22).for_each(|node| node.readiness = Readiness::True);
        let (plan, ..) =
            pass(&mut LifecyclePlanner::new(provider(), false), &all, at(0), |_| ABSENT, |_| ABSENT);
        assert_eq!((counts(&plan), plan.held, plan.breaker.is_open), ((2, 0), 20, false));
        all.iter_mut().skip(22).take(8).for_each(|node| node.readiness = Readiness::False);
        let (plan, ..) =
            pass(&mut LifecyclePlanner::new(provider(), false), &all, at(0), |_| ABSENT, |_| ABSENT);
        assert_eq!((counts(&plan), plan.held, plan.breaker.gone), ((0, 10), 30, 30));
    }

    #[test]
    fn an_operator_can_release_nodes_while_the_breaker_is_open() {
        let mut all = nodes(40);
        for node in all.iter_mut().take(20) {
            node.is_held = true;
        }
        for node in all.iter_mut().take(5) {
            node.release_deletion = Some(node.uid.clone());
        }
        all.iter_mut().skip(20).for_each(|node| node.readiness = Readiness::True);
        let mut planner = LifecyclePlanner::new(provider(), false);
        let (plan, ..) = pass(&mut planner, &all, at(0), |_| ABSENT, |_| ABSENT);
        assert!(plan.breaker.is_open);
        assert_eq!((counts(&plan), plan.held), ((5, 0), 15));
        assert!(writes(&plan).iter().all(|(_, write)| **write == NodeWrite::Delete { is_released: true }));
        // They no longer count.
        all.iter().take(5).for_each(|node| planner.on_deletion(node, true, at(0)));
        let (plan, ..) = pass(&mut planner, &all[5..], at(10), |_| ABSENT, |_| ABSENT);
        assert_eq!((plan.breaker.gone, plan.breaker.total), (15, 35));
        all.iter().take(5).for_each(|node| planner.on_deletion(node, false, at(0)));
        let (plan, ..) = pass(&mut planner, &all[5..], at(10), |_| ABSENT, |_| ABSENT);
        assert_eq!((plan.breaker.gone, plan.breaker.total), (20, 40), "as if no operator had released them");
    }

    #[test]
    fn nodes_that_the_autoscaler_removes_neither_count_nor_are_held() {
        let mut all = nodes(20);
        for node in all.iter_mut().take(10) {
            let key = TAINT_AUTOSCALER_DELETES.to_owned();
            node.taints.push(Taint { key, value: None, effect: "NoSchedule".to_owned(), time_added: None });
        }
        all.iter_mut().skip(14).for_each(|node| node.readiness = Readiness::True);
        let mut planner = LifecyclePlanner::new(provider(), false);
        let (plan, ..) = pass(&mut planner, &all, at(0), |_| ABSENT, |_| ABSENT);
        assert_eq!((plan.breaker.gone, plan.breaker.total, plan.breaker.is_open), (4, 20, false));
        assert_eq!((counts(&plan), plan.held), ((14, 0), 0));
        // A marked Node that is ready, or whose instance exists, isn't deleted.
        let marked = NodeFacts { readiness: Readiness::True, ..all[0].clone() };
        let (plan, ..) = pass(&mut planner, &[marked], at(10), |_| ABSENT, |_| ABSENT);
        assert_eq!(counts(&plan), (0, 0));
        let (plan, ..) =
            pass(&mut planner, &all[..1], at(20), |_| ABSENT, |_| Ok(found(InstanceState::Running)));
        assert_eq!(counts(&plan), (0, 0));
    }

    #[test]
    fn a_stale_list_does_not_lift_a_hold() {
        let held = NodeFacts { is_held: true, release_deletion: Some("uid-a".to_owned()), ..node("a") };
        let mut planner = LifecyclePlanner::new(provider(), false);
        for (read, expected) in [
            (Ok(found(InstanceState::Running)), Some(NodeWrite::EndHold)),
            (Err(Error::new(ErrorKind::Unavailable(None), "why")), None),
            (ABSENT, Some(NodeWrite::Delete { is_released: true })),
        ] {
            let (plan, ..) = pass(
                &mut planner,
                std::slice::from_ref(&held),
                at(0),
                |_| Ok(found(InstanceState::Running)),
                |_| read.clone(),
            );
            let actions = writes(&plan);
            assert_eq!(actions.first().map(|(_, write)| *write), expected.as_ref(), "{read:?}");
        }
    }
}
