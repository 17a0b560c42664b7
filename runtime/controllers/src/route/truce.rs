//! Keeps the route controller from answering another writer of the condition `NetworkUnavailable` write for write, such as a
//! network plugin with a reason of its own.
//!
//! The first change by another client is answered at once, each further one after a longer time. Where both agree on the
//! status, the other's reason stays, unless the Node waits for ours. Pure: the clock is an argument.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

use super::plan::condition;
use crate::facts::node::NodeFacts;

/// The time between the first two answers; it doubles with each further one.
const FIRST_INTERVAL: Duration = Duration::from_mins(1);

/// The longest time between two answers.
const LONGEST_INTERVAL: Duration = Duration::from_mins(30);

/// What was written to the condition of each Node, by the Node's UID.
#[derive(Debug, Default)]
pub(super) struct Truces(BTreeMap<String, Truce>);

#[derive(Debug)]
struct Truce {
    is_available: bool,
    /// How many times in a row another client had replaced it when it was written.
    answers: u32,
    next_answer: Instant,
    is_reported: bool,
}

impl Truces {
    /// Whether to write this to the condition of a Node, which has another one now.
    pub(super) fn may_write(&self, node: &NodeFacts, is_available: bool, now: Instant) -> bool {
        let Some(truce) = self.0.get(&node.uid).filter(|truce| truce.is_available == is_available) else {
            return true;
        };
        let (status, _) = condition(is_available);
        let agrees = node.network_unavailable.as_ref().is_some_and(|theirs| theirs.status == status);
        let is_settled = agrees && truce.answers > 0 && !node.is_uninitialized();
        !is_settled && truce.next_answer <= now
    }

    /// Whether this differs from what was last written to the condition of a Node.
    pub(super) fn is_news(&self, node: &NodeFacts, is_available: bool) -> bool {
        self.0.get(&node.uid).is_some_and(|truce| truce.is_available != is_available)
    }

    /// When the condition of a Node may be answered again, where it may not now.
    pub(super) fn next_answer(&self, node: &NodeFacts) -> Option<Instant> {
        self.0.get(&node.uid).map(|truce| truce.next_answer)
    }

    /// This was written to the condition of a Node.
    pub(super) fn on_written(&mut self, node: &NodeFacts, is_available: bool, now: Instant) {
        let known = self.0.get(&node.uid).filter(|truce| truce.is_available == is_available);
        let answers = known.map_or(0, |truce| truce.answers.saturating_add(1));
        let interval = match answers.checked_sub(1) {
            None => Duration::ZERO,
            Some(exponent) => FIRST_INTERVAL.saturating_mul(1 << exponent.min(10)).min(LONGEST_INTERVAL),
        };
        let is_reported = known.is_some_and(|truce| truce.is_reported);
        let truce = Truce { is_available, answers, next_answer: now + interval, is_reported };
        self.0.insert(node.uid.clone(), truce);
    }

    /// Whether to report now that another client writes the condition of a Node: once, after the first answer didn't last.
    pub(super) fn take_report(&mut self, node: &NodeFacts) -> bool {
        let truce = self.0.get_mut(&node.uid).filter(|truce| truce.answers > 0);
        truce.is_some_and(|truce| !std::mem::replace(&mut truce.is_reported, true))
    }

    /// Forgets Nodes that are gone.
    pub(super) fn retain(&mut self, is_present: impl Fn(&str) -> bool) {
        self.0.retain(|uid, _| is_present(uid));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::node::NetworkUnavailable;

    /// Lets another client write this each second for two hours. Returns how often it is answered and reported.
    fn fight(status: &str, reason: &str, is_waiting: bool, is_available: bool) -> (usize, usize) {
        let condition = NetworkUnavailable { status: status.to_owned(), reason: reason.to_owned() };
        let mut node = NodeFacts { network_unavailable: Some(condition), ..NodeFacts::registered("a") };
        if !is_waiting {
            node.taints.clear();
        }
        let (mut truces, start) = (Truces::default(), Instant::now());
        let (mut answers, mut reports) = (0, 0);
        for second in 0..7200 {
            let now = start + Duration::from_secs(second);
            if truces.may_write(&node, is_available, now) {
                truces.on_written(&node, is_available, now);
                answers += 1;
            } else {
                reports += usize::from(truces.take_report(&node));
            }
        }
        (answers, reports)
    }

    #[test]
    fn another_writer_is_answered_ever_less_often_and_reported_once() {
        for (status, reason, is_waiting, is_available, most) in [
            ("False", "CalicoIsUp", false, true, 2),
            ("True", "NoRouteCreated", false, false, 2),
            ("True", "CalicoIsDown", false, true, 10),
            ("False", "CiliumIsUp", false, false, 10),
            ("False", "CalicoIsUp", true, true, 10),
        ] {
            let (answers, reports) = fight(status, reason, is_waiting, is_available);
            assert!((2..=most).contains(&answers), "{status} {reason} {is_waiting}: {answers} answers");
            assert_eq!(reports, 1, "{status} {reason} {is_waiting}");
        }
    }

    #[test]
    fn a_change_of_our_own_is_written_at_once() {
        let (node, now) = (NodeFacts::registered("a"), Instant::now());
        let mut truces = Truces::default();
        for _ in 0..3 {
            truces.on_written(&node, true, now);
        }
        assert!(!truces.may_write(&node, true, now) && truces.may_write(&node, false, now));
        truces.on_written(&node, false, now);
        assert!(truces.may_write(&node, false, now), "the first change by another client");
        let other = NodeFacts { uid: "other".to_owned(), ..node.clone() };
        assert!(truces.may_write(&other, true, now));
        truces.retain(|_| false);
        assert!(truces.may_write(&node, true, now));
    }
}
