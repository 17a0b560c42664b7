//! What follows for each Node from what the cloud says of its machine, decided for all Nodes of a pass together.
//!
//! A Node is deleted only after the cloud's own direct word that its machine is gone. Everything that can be taken back
//! is written without that: upstream's shutdown taint, which goes once the kubelet reports again.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;

use super::breaker::Verdict;
use crate::facts::node::{NodeFacts, Readiness, Taint};
use crate::well_known::{TAINT_AUTOSCALER_DELETES, TAINT_OUT_OF_SERVICE, TAINT_SHUTDOWN};

/// The value of the out-of-service taint where it is ours. Documentation tells people to write `nodeshutdown`; what
/// they have written is theirs to take away.
pub(super) const OUT_OF_SERVICE_IS_OURS: &str = "pileus-shutdown";

const NO_SCHEDULE: &str = "NoSchedule";
const NO_EXECUTE: &str = "NoExecute";

/// What the cloud says of a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Finding {
    /// It runs.
    Runs,
    /// It exists; the cloud doesn't tell whether it runs.
    Exists,
    /// It exists and is stopped. `is_confirmed` where a direct read says so, which is never an old answer.
    Stopped { is_confirmed: bool },
    /// A direct read says that it is gone.
    Absent,
}

/// One write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Action {
    /// The Node, with the facts that this was decided on.
    pub(super) node: Arc<NodeFacts>,
    pub(super) write: Write,
}

/// What to write to a Node. Those that help a Node come before those that take it away.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Write {
    /// Replace the taints, unless the Node has changed.
    SetTaints(Vec<Taint>),
    /// It isn't held any more: take the condition away, and what somebody said about its release.
    EndHold,
    /// Hold it, for this reason.
    Hold(Verdict),
    /// Delete it, if it is still as these facts say.
    Delete {
        /// Somebody has said so.
        is_released: bool,
    },
}

/// What a Node comes to, before it is known how many others go the same way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Fate {
    /// Nothing is to be done.
    Rests,
    /// It is held, and stays so.
    StaysHeld,
    /// This is to be written, and then it will be looked at again.
    Write(Write),
    /// Its machine is gone.
    Doomed,
}

/// What a Node comes to. `wants_out_of_service`: whether Pods shall leave a machine that is stopped.
pub(super) fn fate(
    node: &NodeFacts,
    finding: Option<Finding>,
    wants_out_of_service: bool,
    now: Timestamp,
) -> Fate {
    let is_ready = node.readiness == Readiness::True;
    if !is_ready && finding == Some(Finding::Absent) {
        return match (node.is_held, is_let_go(node)) {
            (_, true) => Fate::Write(Write::Delete { is_released: true }),
            (true, false) => Fate::StaysHeld,
            (false, false) => Fate::Doomed,
        };
    }
    let taints = match finding {
        _ if is_ready => without(&node.taints, &[is_shutdown, is_our_out_of_service]),
        // It would keep away what the Node needs to become ready: a DaemonSet doesn't tolerate it by itself.
        Some(Finding::Runs) => without(&node.taints, &[is_our_out_of_service]),
        Some(Finding::Stopped { is_confirmed }) => {
            stopped(&node.taints, is_confirmed, wants_out_of_service, now)
        }
        Some(Finding::Exists | Finding::Absent) | None => node.taints.clone(),
    };
    if taints != node.taints {
        return Fate::Write(Write::SetTaints(taints));
    }
    match (node.is_held, is_ready || finding.is_some()) {
        (false, _) => Fate::Rests,
        (true, false) => Fate::StaysHeld,
        (true, true) => Fate::Write(Write::EndHold),
    }
}

/// Whether somebody has said that this very Node may go: an operator who released it while it was held, or the cluster
/// autoscaler, which takes a machine away on purpose and marks its Node before. That many go at once is no surprise then.
pub(super) fn is_let_go(node: &NodeFacts) -> bool {
    // Another UID is a word about another Node of the same name.
    let is_released = node.is_held && node.release_deletion.as_deref() == Some(node.uid.as_str());
    is_released || node.taints.iter().any(|taint| taint.key == TAINT_AUTOSCALER_DELETES)
}

/// Whether a Node whose machine is stopped still lacks a taint that moves its Pods.
pub(super) fn lacks_out_of_service(node: &NodeFacts) -> bool {
    !node.taints.iter().any(is_out_of_service)
}

/// All writes of a pass: `fates` of all Nodes of the provider, and how the breaker judges those that are doomed.
pub(super) fn plan(fates: &[(Arc<NodeFacts>, Fate)], verdict: Verdict) -> Vec<Action> {
    let action = |(node, fate): &(Arc<NodeFacts>, Fate)| {
        let write = match fate {
            Fate::Rests | Fate::StaysHeld => return None,
            Fate::Write(write) => write.clone(),
            Fate::Doomed if verdict.is_open => Write::Hold(verdict),
            Fate::Doomed => Write::Delete { is_released: false },
        };
        Some(Action { node: Arc::clone(node), write })
    };
    let mut actions: Vec<_> = fates.iter().filter_map(action).collect();
    actions.sort_by_key(|action| match action.write {
        Write::SetTaints(_) => 0,
        Write::EndHold => 1,
        Write::Hold(_) => 2,
        Write::Delete { .. } => 3,
    });
    actions
}

/// The UIDs of those Nodes whose machines are gone, as far as is known.
pub(super) fn absent(fates: &[(Arc<NodeFacts>, Fate)]) -> BTreeSet<&str> {
    let is_absent = |(node, fate): &&(Arc<NodeFacts>, Fate)| match fate {
        Fate::StaysHeld | Fate::Doomed => true,
        // One that was held counts until it is gone; one that nobody wondered about never did.
        Fate::Write(Write::Delete { .. }) => node.is_held,
        Fate::Rests | Fate::Write(_) => false,
    };
    fates.iter().filter(is_absent).map(|(node, _)| node.uid.as_str()).collect()
}

/// The taints of a Node whose machine is stopped.
fn stopped(taints: &[Taint], is_confirmed: bool, wants_out_of_service: bool, now: Timestamp) -> Vec<Taint> {
    let mut wanted =
        if wants_out_of_service { taints.to_vec() } else { without(taints, &[is_our_out_of_service]) };
    if !taints.iter().any(is_shutdown) {
        // As upstream's: without a time.
        wanted.push(taint(TAINT_SHUTDOWN, None, NO_SCHEDULE, None));
    }
    // Pods are killed by force and volumes torn off for this one: a machine that runs again by now must not have it.
    if wants_out_of_service && is_confirmed && !taints.iter().any(is_out_of_service) {
        // The API server sets no time; who adds such a taint does.
        let time = now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        wanted.push(taint(TAINT_OUT_OF_SERVICE, Some(OUT_OF_SERVICE_IS_OURS), NO_EXECUTE, Some(time)));
    }
    wanted
}

fn taint(key: &str, value: Option<&str>, effect: &str, time_added: Option<String>) -> Taint {
    Taint { key: key.to_owned(), value: value.map(str::to_owned), effect: effect.to_owned(), time_added }
}

fn without(taints: &[Taint], unwanted: &[fn(&Taint) -> bool]) -> Vec<Taint> {
    taints.iter().filter(|taint| !unwanted.iter().any(|is| is(taint))).cloned().collect()
}

// A taint is what its key and effect are, as for the API server, which refuses a second one.

fn is_shutdown(taint: &Taint) -> bool {
    taint.key == TAINT_SHUTDOWN && taint.effect == NO_SCHEDULE
}

fn is_out_of_service(taint: &Taint) -> bool {
    taint.key == TAINT_OUT_OF_SERVICE && taint.effect == NO_EXECUTE
}

fn is_our_out_of_service(taint: &Taint) -> bool {
    is_out_of_service(taint) && taint.value.as_deref() == Some(OUT_OF_SERVICE_IS_OURS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NOW: Timestamp = Timestamp::constant(1_767_323_045, 0);
    const OPEN: Verdict = Verdict { is_open: true, gone: 9, of: 10 };
    const CLOSED: Verdict = Verdict { is_open: false, gone: 1, of: 10 };

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

    fn set(taints: &[Taint]) -> Fate {
        Fate::Write(Write::SetTaints(taints.to_vec()))
    }

    const STOPPED: Option<Finding> = Some(Finding::Stopped { is_confirmed: false });
    const STOPPED_SURELY: Option<Finding> = Some(Finding::Stopped { is_confirmed: true });
    const RUNS: Option<Finding> = Some(Finding::Runs);
    const EXISTS: Option<Finding> = Some(Finding::Exists);
    const ABSENT: Option<Finding> = Some(Finding::Absent);

    #[test]
    fn a_node_comes_to_what_its_machine_and_its_kubelet_say() {
        use Readiness::{False, True, Unknown};
        let end_hold = || Fate::Write(Write::EndHold);
        for (readiness, finding, bare, tainted, held) in [
            (True, None, Fate::Rests, set(&[]), end_hold()),
            (True, RUNS, Fate::Rests, set(&[]), end_hold()),
            (True, EXISTS, Fate::Rests, set(&[]), end_hold()),
            (True, STOPPED, Fate::Rests, set(&[]), end_hold()),
            (True, STOPPED_SURELY, Fate::Rests, set(&[]), end_hold()),
            (True, ABSENT, Fate::Rests, set(&[]), end_hold()),
            (False, None, Fate::Rests, Fate::Rests, Fate::StaysHeld),
            (False, RUNS, Fate::Rests, Fate::Rests, end_hold()),
            (False, EXISTS, Fate::Rests, Fate::Rests, end_hold()),
            (False, STOPPED, set(&[shutdown()]), Fate::Rests, set(&[shutdown()])),
            (False, STOPPED_SURELY, set(&[shutdown()]), Fate::Rests, set(&[shutdown()])),
            (False, ABSENT, Fate::Doomed, Fate::Doomed, Fate::StaysHeld),
            (Unknown, None, Fate::Rests, Fate::Rests, Fate::StaysHeld),
            (Unknown, RUNS, Fate::Rests, Fate::Rests, end_hold()),
            (Unknown, EXISTS, Fate::Rests, Fate::Rests, end_hold()),
            (Unknown, STOPPED, set(&[shutdown()]), Fate::Rests, set(&[shutdown()])),
            (Unknown, STOPPED_SURELY, set(&[shutdown()]), Fate::Rests, set(&[shutdown()])),
            (Unknown, ABSENT, Fate::Doomed, Fate::Doomed, Fate::StaysHeld),
        ] {
            let row = format!("{readiness:?} {finding:?}");
            let fate = |change: fn(&mut NodeFacts)| {
                fate(&NodeFacts { readiness, ..node(change) }, finding, false, NOW)
            };
            assert_eq!(fate(|_| {}), bare, "{row}");
            assert_eq!(fate(|node| node.taints = vec![shutdown()]), tainted, "{row}, tainted");
            assert_eq!(fate(|node| node.is_held = true), held, "{row}, held");
        }
    }

    #[test]
    fn only_the_uid_of_the_held_node_itself_releases_it() {
        let released = Fate::Write(Write::Delete { is_released: true });
        for (is_held, named, finding, expected) in [
            (true, Some("uid-a"), ABSENT, released),
            (true, Some("uid-b"), ABSENT, Fate::StaysHeld),
            (true, Some(""), ABSENT, Fate::StaysHeld),
            (true, None, ABSENT, Fate::StaysHeld),
            (true, Some("uid-a"), None, Fate::StaysHeld),
            (true, Some("uid-a"), RUNS, Fate::Write(Write::EndHold)),
            (false, Some("uid-a"), ABSENT, Fate::Doomed),
            (false, Some("uid-a"), None, Fate::Rests),
        ] {
            let node = node(|node| {
                node.is_held = is_held;
                node.release_deletion = named.map(str::to_owned);
            });
            assert_eq!(fate(&node, finding, false, NOW), expected, "{is_held} {named:?} {finding:?}");
        }
    }

    #[test]
    fn out_of_service_needs_a_direct_read_and_only_ours_is_taken_away() {
        let (ours, theirs) = (out_of_service(OUT_OF_SERVICE_IS_OURS), out_of_service("nodeshutdown"));
        let dated = Taint { time_added: Some("2026-01-02T03:04:05Z".to_owned()), ..ours.clone() };
        let both = |other: &Taint| vec![other.clone(), shutdown()];
        let all = |other: &Taint| Some(vec![other.clone(), shutdown(), dated.clone()]);
        let key = taint(TAINT_OUT_OF_SERVICE, Some(OUT_OF_SERVICE_IS_OURS), NO_SCHEDULE, None);
        let effect = taint("theirs", Some(OUT_OF_SERVICE_IS_OURS), NO_EXECUTE, None);
        for (row, wants, finding, readiness, taints, expected) in [
            ("wanted", true, STOPPED_SURELY, Readiness::False, vec![], Some(vec![shutdown(), dated.clone()])),
            ("its key alone stands", true, STOPPED_SURELY, Readiness::False, both(&key), all(&key)),
            ("its effect alone stands", true, STOPPED_SURELY, Readiness::False, both(&effect), all(&effect)),
            ("not sure", true, STOPPED, Readiness::False, vec![], Some(vec![shutdown()])),
            ("not wanted", false, STOPPED_SURELY, Readiness::False, vec![], Some(vec![shutdown()])),
            ("stands", true, STOPPED_SURELY, Readiness::False, both(&ours), None),
            ("stands, not sure", true, STOPPED, Readiness::False, both(&ours), None),
            ("theirs stands", true, STOPPED_SURELY, Readiness::False, both(&theirs), None),
            ("no longer wanted", false, STOPPED, Readiness::False, both(&ours), Some(vec![shutdown()])),
            ("runs again", true, RUNS, Readiness::False, both(&ours), Some(vec![shutdown()])),
            ("runs, theirs", true, RUNS, Readiness::False, both(&theirs), None),
            ("unknown", true, EXISTS, Readiness::False, both(&ours), None),
            ("ready", true, None, Readiness::True, both(&ours), Some(vec![])),
            ("ready, theirs", true, None, Readiness::True, both(&theirs), Some(vec![theirs.clone()])),
        ] {
            let node = NodeFacts { taints, readiness, ..node(|_| {}) };
            let expected = expected.map_or(Fate::Rests, |taints| set(&taints));
            assert_eq!(fate(&node, finding, wants, NOW), expected, "{row}");
        }
    }

    #[test]
    fn a_taint_is_its_key_and_effect_and_those_of_others_stay() {
        let other_effect = taint(TAINT_SHUTDOWN, None, NO_EXECUTE, None);
        let valued = taint(TAINT_SHUTDOWN, Some("x"), NO_SCHEDULE, None);
        let theirs = taint("theirs", None, NO_SCHEDULE, None);
        for (finding, readiness, taints, expected) in [
            (STOPPED, Readiness::False, vec![valued.clone()], Fate::Rests),
            (STOPPED, Readiness::False, vec![other_effect.clone()], set(&[other_effect.clone(), shutdown()])),
            (STOPPED, Readiness::False, vec![theirs.clone()], set(&[theirs.clone(), shutdown()])),
            (None, Readiness::True, vec![theirs.clone(), valued], set(std::slice::from_ref(&theirs))),
            (None, Readiness::True, vec![other_effect, theirs], Fate::Rests),
        ] {
            let node = NodeFacts { taints, readiness, ..node(|_| {}) };
            assert_eq!(fate(&node, finding, false, NOW), expected, "{:?}", node.taints);
        }
    }

    #[test]
    fn all_who_are_doomed_go_the_same_way_and_those_that_help_come_first() {
        let fates = [
            Fate::Write(Write::Delete { is_released: true }),
            Fate::Doomed,
            Fate::Rests,
            Fate::Doomed,
            Fate::StaysHeld,
            Fate::Write(Write::EndHold),
            set(&[]),
        ]
        .map(|fate| (Arc::new(node(|_| {})), fate));
        let writes =
            |verdict| plan(&fates, verdict).into_iter().map(|action| action.write).collect::<Vec<_>>();
        let (released, deleted) = (Write::Delete { is_released: true }, Write::Delete { is_released: false });
        let first = [Write::SetTaints(Vec::new()), Write::EndHold];
        let rest = |last: &[Write]| first.iter().chain(last).cloned().collect::<Vec<_>>();
        assert_eq!(writes(CLOSED), rest(&[released.clone(), deleted.clone(), deleted]));
        assert_eq!(writes(OPEN), rest(&[Write::Hold(OPEN), Write::Hold(OPEN), released]));
    }

    /// What a Node is after a write; none where it is gone.
    fn written(mut node: NodeFacts, write: Write) -> Option<NodeFacts> {
        match write {
            Write::SetTaints(taints) => node.taints = taints,
            Write::EndHold => (node.is_held, node.release_deletion) = (false, None),
            Write::Hold(_) => node.is_held = true,
            Write::Delete { .. } => return None,
        }
        Some(node)
    }

    fn any_taint() -> impl Strategy<Value = Taint> {
        let key = prop::sample::select(vec![TAINT_SHUTDOWN, TAINT_OUT_OF_SERVICE, "theirs"]);
        let value = prop::option::of(prop::sample::select(vec![OUT_OF_SERVICE_IS_OURS, "nodeshutdown"]));
        let effect = prop::sample::select(vec![NO_SCHEDULE, NO_EXECUTE]);
        (key, value, effect).prop_map(|(key, value, effect)| taint(key, value, effect, None))
    }

    proptest! {
        #[test]
        fn each_finding_comes_to_rest_after_two_writes_and_touches_no_taint_of_others(
            readiness in prop::sample::select(vec![Readiness::True, Readiness::False, Readiness::Unknown]),
            finding in prop::sample::select(vec![None, RUNS, EXISTS, STOPPED, STOPPED_SURELY, ABSENT]),
            taints in prop::collection::vec(any_taint(), 0..4),
            (is_held, release_deletion) in (any::<bool>(), prop::option::of("uid-[ab]")),
            (wants, is_open) in any::<(bool, bool)>(),
        ) {
            let theirs = |node: &NodeFacts| -> Vec<Taint> {
                let ours = |taint: &&Taint| !is_shutdown(taint) && !is_our_out_of_service(taint);
                node.taints.iter().filter(ours).cloned().collect()
            };
            let verdict = Verdict { is_open, ..OPEN };
            let mut now = Some(NodeFacts { taints, readiness, is_held, release_deletion, ..node(|_| {}) });
            for writes in 0.. {
                let Some(node) = now else { break };
                let fates = [(Arc::new(node.clone()), fate(&node, finding, wants, NOW))];
                let Some(action) = plan(&fates, verdict).pop() else { break };
                prop_assert!(writes < 2, "{action:?}");
                now = written(node.clone(), action.write);
                if let Some(now) = &now {
                    prop_assert_eq!(theirs(now), theirs(&node));
                }
            }
        }
    }
}
