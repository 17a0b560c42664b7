//! Decides on each Node from the state of its instance, and plans the writes of a pass for all Nodes together.
//!
//! A Node is deleted only after a direct read of the cloud has confirmed that its instance is gone. A write that can be undone
//! needs no confirmation, such as upstream's shutdown taint, which is removed when the kubelet reports again.
//!
//! Pure.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::breaker::BreakerState;
use crate::facts::node::{NodeFacts, Readiness, Taint};
use crate::well_known::{TAINT_AUTOSCALER_DELETES, TAINT_OUT_OF_SERVICE, TAINT_SHUTDOWN};

/// The value of the out-of-service taint that Pileus sets. Kubernetes' documentation tells operators to use `nodeshutdown`, and
/// a taint that an operator has set is the operator's to remove.
pub(super) const OUT_OF_SERVICE_VALUE: &str = "pileus-shutdown";

/// How long a Node that never had an instance is kept after its kubelet has fallen silent. Its name may differ from the
/// instance's, which an operator can correct (U-31).
const JOIN_GRACE: SignedDuration = SignedDuration::from_mins(10);

const NO_SCHEDULE: &str = "NoSchedule";
const NO_EXECUTE: &str = "NoExecute";

/// What is known of an instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Finding {
    /// The instance is running.
    Running,
    /// The instance exists. The cloud doesn't report whether it is running.
    Exists,
    /// The instance is stopped. `is_confirmed` where a direct read says so, which is never an old answer.
    Stopped { is_confirmed: bool },
    /// A direct read has confirmed that the instance is gone.
    Absent,
}

/// A write to a Node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Action {
    /// The Node, with the facts that the decision rests on.
    pub(super) node: Arc<NodeFacts>,
    pub(super) write: NodeWrite,
}

/// What to write to a Node. Writes that help a Node come before those that delete it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum NodeWrite {
    /// Replace the taints, unless the Node has changed.
    SetTaints(Vec<Taint>),
    /// Lift the hold: remove the condition and the release annotation.
    EndHold,
    /// Put the deletion on hold, because of this state of the breaker.
    Hold(BreakerState),
    /// Delete the Node if it is unchanged.
    Delete {
        /// Whether an operator or the cluster autoscaler has released the Node.
        is_released: bool,
    },
}

impl NodeWrite {
    /// Whether the write helps the Node, and so needs no decision of the breaker.
    pub(super) const fn helps(&self) -> bool {
        match self {
            Self::SetTaints(_) | Self::EndHold => true,
            Self::Hold(_) | Self::Delete { .. } => false,
        }
    }
}

/// The decision about a Node, before the breaker is evaluated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Decision {
    /// Nothing to do.
    Nothing,
    /// The deletion stays on hold.
    KeepHeld,
    /// Write this now, and decide again in the next pass.
    Write(NodeWrite),
    /// The instance is confirmed as gone. The breaker decides between deletion and hold.
    ConfirmedGone,
}

/// Decides about a Node. `wants_out_of_service` is whether Pods shall be moved off a stopped instance.
pub(super) fn decide(
    node: &NodeFacts,
    finding: Option<Finding>,
    wants_out_of_service: bool,
    now: Timestamp,
) -> Decision {
    let is_ready = node.readiness == Readiness::True;
    if !is_ready && finding == Some(Finding::Absent) {
        return match (node.is_held, is_released(node)) {
            (_, true) => Decision::Write(NodeWrite::Delete { is_released: true }),
            (true, false) => Decision::KeepHeld,
            (false, false) if is_joining(node, now) => Decision::Nothing,
            (false, false) => Decision::ConfirmedGone,
        };
    }
    let taints = match finding {
        _ if is_ready => without(&node.taints, &[is_shutdown, is_our_out_of_service]),
        // This taint would keep away the Pods that the Node needs to become ready: DaemonSets don't tolerate it by default.
        Some(Finding::Running) => without(&node.taints, &[is_our_out_of_service]),
        Some(Finding::Stopped { is_confirmed }) => {
            taints_when_stopped(&node.taints, is_confirmed, wants_out_of_service, now)
        }
        Some(Finding::Exists | Finding::Absent) | None => node.taints.clone(),
    };
    if taints != node.taints {
        return Decision::Write(NodeWrite::SetTaints(taints));
    }
    match (node.is_held, is_ready || finding.is_some()) {
        (false, _) => Decision::Nothing,
        (true, false) => Decision::KeepHeld,
        (true, true) => Decision::Write(NodeWrite::EndHold),
    }
}

/// Whether a Node never had an instance and is kept all the same: while its kubelet reports, which is the status `False` of the
/// condition `Ready`, and for [`JOIN_GRACE`] after that. A kubelet that has never reported is silent since the Node's creation.
pub(super) fn is_joining(node: &NodeFacts, now: Timestamp) -> bool {
    let silent_since = node.readiness_since.map_or(node.created_at, |since| since.max(node.created_at));
    let is_expected = match node.readiness {
        Readiness::True | Readiness::False => true,
        Readiness::Unknown => now.duration_since(silent_since) < JOIN_GRACE,
    };
    node.never_had_instance() && is_expected
}

/// Whether this very Node is released for deletion: by an operator while it was on hold, or by the cluster autoscaler, which
/// marks a Node before it removes the instance. Many such deletions at once are no sign of an error.
pub(super) fn is_released(node: &NodeFacts) -> bool {
    // Another UID means another Node of the same name.
    let by_operator = node.is_held && node.release_deletion.as_deref() == Some(node.uid.as_str());
    by_operator || node.taints.iter().any(|taint| taint.key == TAINT_AUTOSCALER_DELETES)
}

/// Whether a Node has no out-of-service taint, which would move its Pods.
pub(super) fn lacks_out_of_service(node: &NodeFacts) -> bool {
    !node.taints.iter().any(is_out_of_service)
}

/// Plans all writes of a pass from the decisions about all Nodes of the provider and the state of the breaker.
pub(super) fn plan(decisions: &[(Arc<NodeFacts>, Decision)], breaker: BreakerState) -> Vec<Action> {
    let action = |(node, decision): &(Arc<NodeFacts>, Decision)| {
        let write = match decision {
            Decision::Nothing | Decision::KeepHeld => return None,
            Decision::Write(write) => write.clone(),
            Decision::ConfirmedGone if breaker.is_open => NodeWrite::Hold(breaker),
            Decision::ConfirmedGone => NodeWrite::Delete { is_released: false },
        };
        Some(Action { node: Arc::clone(node), write })
    };
    let mut actions: Vec<_> = decisions.iter().filter_map(action).collect();
    actions.sort_by_key(|action| match action.write {
        NodeWrite::SetTaints(_) => 0,
        NodeWrite::EndHold => 1,
        NodeWrite::Hold(_) => 2,
        NodeWrite::Delete { .. } => 3,
    });
    actions
}

/// The UIDs of the Nodes whose instances are known to be gone.
pub(super) fn absent(decisions: &[(Arc<NodeFacts>, Decision)]) -> BTreeSet<&str> {
    let is_absent = |(node, decision): &&(Arc<NodeFacts>, Decision)| match decision {
        Decision::KeepHeld | Decision::ConfirmedGone => true,
        // A Node that was on hold counts until it is deleted. One that the autoscaler marked never counts.
        Decision::Write(NodeWrite::Delete { .. }) => node.is_held,
        Decision::Nothing | Decision::Write(_) => false,
    };
    decisions.iter().filter(is_absent).map(|(node, _)| node.uid.as_str()).collect()
}

/// The desired taints of a Node whose instance is stopped.
fn taints_when_stopped(
    taints: &[Taint],
    is_confirmed: bool,
    wants_out_of_service: bool,
    now: Timestamp,
) -> Vec<Taint> {
    let mut wanted =
        if wants_out_of_service { taints.to_vec() } else { without(taints, &[is_our_out_of_service]) };
    if !taints.iter().any(is_shutdown) {
        // As upstream sets it, without a time.
        wanted.push(taint(TAINT_SHUTDOWN, None, NO_SCHEDULE, None));
    }
    // This taint kills Pods and detaches volumes by force, so the instance must not be running again by now.
    if wants_out_of_service && is_confirmed && !taints.iter().any(is_out_of_service) {
        // The API server sets no time, so the client does.
        let time = now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        wanted.push(taint(TAINT_OUT_OF_SERVICE, Some(OUT_OF_SERVICE_VALUE), NO_EXECUTE, Some(time)));
    }
    wanted
}

fn taint(key: &str, value: Option<&str>, effect: &str, time_added: Option<String>) -> Taint {
    Taint { key: key.to_owned(), value: value.map(str::to_owned), effect: effect.to_owned(), time_added }
}

fn without(taints: &[Taint], unwanted: &[fn(&Taint) -> bool]) -> Vec<Taint> {
    taints.iter().filter(|taint| !unwanted.iter().any(|is| is(taint))).cloned().collect()
}

// A taint's identity is its key and effect, as for the API server, which rejects a second taint with both.

fn is_shutdown(taint: &Taint) -> bool {
    taint.key == TAINT_SHUTDOWN && taint.effect == NO_SCHEDULE
}

fn is_out_of_service(taint: &Taint) -> bool {
    taint.key == TAINT_OUT_OF_SERVICE && taint.effect == NO_EXECUTE
}

fn is_our_out_of_service(taint: &Taint) -> bool {
    is_out_of_service(taint) && taint.value.as_deref() == Some(OUT_OF_SERVICE_VALUE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use pileus_cloud::ProviderId;
    use proptest::prelude::*;

    const NOW: Timestamp = Timestamp::constant(1_767_323_045, 0);
    const OPEN: BreakerState = BreakerState { is_open: true, gone: 9, total: 10 };
    const CLOSED: BreakerState = BreakerState { is_open: false, gone: 1, total: 10 };

    fn node(change: impl FnOnce(&mut NodeFacts)) -> NodeFacts {
        let mut node = NodeFacts { taints: Vec::new(), ..NodeFacts::registered("a") };
        change(&mut node);
        node
    }

    fn shutdown() -> Taint {
        taint(TAINT_SHUTDOWN, None, NO_SCHEDULE, None)
    }

    fn out_of_service(value: &str) -> Taint {
        taint(TAINT_OUT_OF_SERVICE, Some(value), NO_EXECUTE, None)
    }

    fn set(taints: &[Taint]) -> Decision {
        Decision::Write(NodeWrite::SetTaints(taints.to_vec()))
    }

    const STOPPED: Option<Finding> = Some(Finding::Stopped { is_confirmed: false });
    const STOPPED_CONFIRMED: Option<Finding> = Some(Finding::Stopped { is_confirmed: true });
    const RUNNING: Option<Finding> = Some(Finding::Running);
    const EXISTS: Option<Finding> = Some(Finding::Exists);
    const ABSENT: Option<Finding> = Some(Finding::Absent);

    #[test]
    fn the_decision_follows_from_readiness_and_finding() {
        use Readiness::{False, True, Unknown};
        let end_hold = || Decision::Write(NodeWrite::EndHold);
        for (readiness, finding, bare, tainted, held) in [
            (True, None, Decision::Nothing, set(&[]), end_hold()),
            (True, RUNNING, Decision::Nothing, set(&[]), end_hold()),
            (True, EXISTS, Decision::Nothing, set(&[]), end_hold()),
            (True, STOPPED, Decision::Nothing, set(&[]), end_hold()),
            (True, STOPPED_CONFIRMED, Decision::Nothing, set(&[]), end_hold()),
            (True, ABSENT, Decision::Nothing, set(&[]), end_hold()),
            (False, None, Decision::Nothing, Decision::Nothing, Decision::KeepHeld),
            (False, RUNNING, Decision::Nothing, Decision::Nothing, end_hold()),
            (False, EXISTS, Decision::Nothing, Decision::Nothing, end_hold()),
            (False, STOPPED, set(&[shutdown()]), Decision::Nothing, set(&[shutdown()])),
            (False, STOPPED_CONFIRMED, set(&[shutdown()]), Decision::Nothing, set(&[shutdown()])),
            (False, ABSENT, Decision::ConfirmedGone, Decision::ConfirmedGone, Decision::KeepHeld),
            (Unknown, None, Decision::Nothing, Decision::Nothing, Decision::KeepHeld),
            (Unknown, RUNNING, Decision::Nothing, Decision::Nothing, end_hold()),
            (Unknown, EXISTS, Decision::Nothing, Decision::Nothing, end_hold()),
            (Unknown, STOPPED, set(&[shutdown()]), Decision::Nothing, set(&[shutdown()])),
            (Unknown, STOPPED_CONFIRMED, set(&[shutdown()]), Decision::Nothing, set(&[shutdown()])),
            (Unknown, ABSENT, Decision::ConfirmedGone, Decision::ConfirmedGone, Decision::KeepHeld),
        ] {
            let row = format!("{readiness:?} {finding:?}");
            let decision = |change: fn(&mut NodeFacts)| {
                decide(&NodeFacts { readiness, ..node(change) }, finding, false, NOW)
            };
            assert_eq!(decision(|_| {}), bare, "{row}");
            assert_eq!(decision(|node| node.taints = vec![shutdown()]), tainted, "{row}, tainted");
            assert_eq!(decision(|node| node.is_held = true), held, "{row}, held");
        }
    }

    #[test]
    fn a_node_that_never_had_an_instance_is_kept_while_its_kubelet_reports_and_ten_minutes_more() {
        use Readiness::{False, Unknown};
        let minutes_ago = |minutes| NOW - SignedDuration::from_mins(minutes);
        let (joins, gone) = (Decision::Nothing, Decision::ConfirmedGone);
        for (row, readiness, created, since, expected) in [
            ("reports", False, 2, Some(1), &joins),
            ("reports for hours", False, 600, Some(590), &joins),
            ("has reported nothing yet", Unknown, 2, None, &joins),
            ("has reported nothing for 10 minutes", Unknown, 10, None, &gone),
            ("is silent since a minute", Unknown, 600, Some(1), &joins),
            ("is silent since 9 minutes", Unknown, 600, Some(9), &joins),
            ("is silent since 10 minutes", Unknown, 600, Some(10), &gone),
            ("has a clock that is behind", Unknown, 2, Some(600), &joins),
            ("has a clock that is ahead", Unknown, 2, Some(-600), &joins),
        ] {
            let facts = |node: NodeFacts| NodeFacts {
                readiness,
                created_at: minutes_ago(created),
                readiness_since: since.map(minutes_ago),
                ..node
            };
            let named = ProviderId::parse("fake://typo").ok();
            for provider_id in [None, named] {
                let waits = facts(NodeFacts { provider_id, ..NodeFacts::registered("a") });
                assert_eq!(decide(&waits, ABSENT, false, NOW), *expected, "{row}");
                let released = NodeFacts {
                    taints: vec![
                        taint(TAINT_AUTOSCALER_DELETES, None, NO_SCHEDULE, None),
                        waits.taints[0].clone(),
                    ],
                    ..waits.clone()
                };
                let delete = Decision::Write(NodeWrite::Delete { is_released: true });
                assert_eq!(decide(&released, ABSENT, false, NOW), delete, "{row}, released");
                let owned_labels = BTreeSet::from(["topology.kubernetes.io/zone".to_owned()]);
                let had_one = NodeFacts { owned_labels, ..waits };
                assert_eq!(decide(&had_one, ABSENT, false, NOW), gone, "{row}, with an instance before");
            }
            let works = facts(node(|_| {}));
            assert_eq!(decide(&works, ABSENT, false, NOW), gone, "{row}, initialized");
        }
    }

    #[test]
    fn only_its_own_uid_releases_a_held_node() {
        let released = Decision::Write(NodeWrite::Delete { is_released: true });
        for (is_held, named, finding, expected) in [
            (true, Some("uid-a"), ABSENT, released),
            (true, Some("uid-b"), ABSENT, Decision::KeepHeld),
            (true, Some(""), ABSENT, Decision::KeepHeld),
            (true, None, ABSENT, Decision::KeepHeld),
            (true, Some("uid-a"), None, Decision::KeepHeld),
            (true, Some("uid-a"), RUNNING, Decision::Write(NodeWrite::EndHold)),
            (false, Some("uid-a"), ABSENT, Decision::ConfirmedGone),
            (false, Some("uid-a"), None, Decision::Nothing),
        ] {
            let node = node(|node| {
                node.is_held = is_held;
                node.release_deletion = named.map(str::to_owned);
            });
            assert_eq!(decide(&node, finding, false, NOW), expected, "{is_held} {named:?} {finding:?}");
        }
    }

    #[test]
    fn out_of_service_needs_a_direct_read_and_only_our_taint_is_removed() {
        let (ours, theirs) = (out_of_service(OUT_OF_SERVICE_VALUE), out_of_service("nodeshutdown"));
        let dated = Taint { time_added: Some("2026-01-02T03:04:05Z".to_owned()), ..ours.clone() };
        let both = |other: &Taint| vec![other.clone(), shutdown()];
        let all = |other: &Taint| Some(vec![other.clone(), shutdown(), dated.clone()]);
        let key = taint(TAINT_OUT_OF_SERVICE, Some(OUT_OF_SERVICE_VALUE), NO_SCHEDULE, None);
        let effect = taint("theirs", Some(OUT_OF_SERVICE_VALUE), NO_EXECUTE, None);
        for (row, wants, finding, readiness, taints, expected) in [
            (
                "wanted",
                true,
                STOPPED_CONFIRMED,
                Readiness::False,
                vec![],
                Some(vec![shutdown(), dated.clone()]),
            ),
            ("another taint has the key", true, STOPPED_CONFIRMED, Readiness::False, both(&key), all(&key)),
            (
                "another taint has the effect",
                true,
                STOPPED_CONFIRMED,
                Readiness::False,
                both(&effect),
                all(&effect),
            ),
            ("not confirmed", true, STOPPED, Readiness::False, vec![], Some(vec![shutdown()])),
            ("not wanted", false, STOPPED_CONFIRMED, Readiness::False, vec![], Some(vec![shutdown()])),
            ("present", true, STOPPED_CONFIRMED, Readiness::False, both(&ours), None),
            ("present, not confirmed", true, STOPPED, Readiness::False, both(&ours), None),
            ("theirs is present", true, STOPPED_CONFIRMED, Readiness::False, both(&theirs), None),
            ("no longer wanted", false, STOPPED, Readiness::False, both(&ours), Some(vec![shutdown()])),
            ("runs again", true, RUNNING, Readiness::False, both(&ours), Some(vec![shutdown()])),
            ("runs, theirs", true, RUNNING, Readiness::False, both(&theirs), None),
            ("unknown", true, EXISTS, Readiness::False, both(&ours), None),
            ("ready", true, None, Readiness::True, both(&ours), Some(vec![])),
            ("ready, theirs", true, None, Readiness::True, both(&theirs), Some(vec![theirs.clone()])),
        ] {
            let node = NodeFacts { taints, readiness, ..node(|_| {}) };
            let expected = expected.map_or(Decision::Nothing, |taints| set(&taints));
            assert_eq!(decide(&node, finding, wants, NOW), expected, "{row}");
        }
    }

    #[test]
    fn a_taint_is_identified_by_key_and_effect_and_other_taints_stay() {
        let other_effect = taint(TAINT_SHUTDOWN, None, NO_EXECUTE, None);
        let valued = taint(TAINT_SHUTDOWN, Some("x"), NO_SCHEDULE, None);
        let theirs = taint("theirs", None, NO_SCHEDULE, None);
        for (finding, readiness, taints, expected) in [
            (STOPPED, Readiness::False, vec![valued.clone()], Decision::Nothing),
            (STOPPED, Readiness::False, vec![other_effect.clone()], set(&[other_effect.clone(), shutdown()])),
            (STOPPED, Readiness::False, vec![theirs.clone()], set(&[theirs.clone(), shutdown()])),
            (None, Readiness::True, vec![theirs.clone(), valued], set(std::slice::from_ref(&theirs))),
            (None, Readiness::True, vec![other_effect, theirs], Decision::Nothing),
        ] {
            let node = NodeFacts { taints, readiness, ..node(|_| {}) };
            assert_eq!(decide(&node, finding, false, NOW), expected, "{:?}", node.taints);
        }
    }

    #[test]
    fn all_confirmed_nodes_are_treated_alike_and_helpful_writes_come_first() {
        let decisions = [
            Decision::Write(NodeWrite::Delete { is_released: true }),
            Decision::ConfirmedGone,
            Decision::Nothing,
            Decision::ConfirmedGone,
            Decision::KeepHeld,
            Decision::Write(NodeWrite::EndHold),
            set(&[]),
        ]
        .map(|decision| (Arc::new(node(|_| {})), decision));
        let writes =
            |breaker| plan(&decisions, breaker).into_iter().map(|action| action.write).collect::<Vec<_>>();
        let (released, deleted) =
            (NodeWrite::Delete { is_released: true }, NodeWrite::Delete { is_released: false });
        let first = [NodeWrite::SetTaints(Vec::new()), NodeWrite::EndHold];
        let rest = |last: &[NodeWrite]| first.iter().chain(last).cloned().collect::<Vec<_>>();
        assert_eq!(writes(CLOSED), rest(&[released.clone(), deleted.clone(), deleted]));
        assert_eq!(writes(OPEN), rest(&[NodeWrite::Hold(OPEN), NodeWrite::Hold(OPEN), released]));
    }

    /// The Node after a write. `None` where it is deleted.
    fn written(mut node: NodeFacts, write: NodeWrite) -> Option<NodeFacts> {
        match write {
            NodeWrite::SetTaints(taints) => node.taints = taints,
            NodeWrite::EndHold => (node.is_held, node.release_deletion) = (false, None),
            NodeWrite::Hold(_) => node.is_held = true,
            NodeWrite::Delete { .. } => return None,
        }
        Some(node)
    }

    fn any_taint() -> impl Strategy<Value = Taint> {
        let key = prop::sample::select(vec![TAINT_SHUTDOWN, TAINT_OUT_OF_SERVICE, "theirs"]);
        let value = prop::option::of(prop::sample::select(vec![OUT_OF_SERVICE_VALUE, "nodeshutdown"]));
        let effect = prop::sample::select(vec![NO_SCHEDULE, NO_EXECUTE]);
        (key, value, effect).prop_map(|(key, value, effect)| taint(key, value, effect, None))
    }

    proptest! {
        #[test]
        fn each_finding_reaches_a_fixpoint_after_two_writes_and_keeps_other_taints(
            readiness in prop::sample::select(vec![Readiness::True, Readiness::False, Readiness::Unknown]),
            finding in prop::sample::select(vec![None, RUNNING, EXISTS, STOPPED, STOPPED_CONFIRMED, ABSENT]),
            taints in prop::collection::vec(any_taint(), 0..4),
            (is_held, release_deletion) in (any::<bool>(), prop::option::of("uid-[ab]")),
            (wants, is_open) in any::<(bool, bool)>(),
        ) {
            let theirs = |node: &NodeFacts| -> Vec<Taint> {
                let ours = |taint: &&Taint| !is_shutdown(taint) && !is_our_out_of_service(taint);
                node.taints.iter().filter(ours).cloned().collect()
            };
            let breaker = BreakerState { is_open, ..OPEN };
            let mut now = Some(NodeFacts { taints, readiness, is_held, release_deletion, ..node(|_| {}) });
            for writes in 0.. {
                let Some(node) = now else { break };
                let decisions = [(Arc::new(node.clone()), decide(&node, finding, wants, NOW))];
                let Some(action) = plan(&decisions, breaker).pop() else { break };
                prop_assert!(writes < 2, "{action:?}");
                now = written(node.clone(), action.write);
                if let Some(now) = &now {
                    prop_assert_eq!(theirs(now), theirs(&node));
                }
            }
        }
    }
}
