//! The scenarios of upstream's tests of its lifecycle controller (L01 to L28 in UPSTREAM.md).
//!
//! Upstream tests two generations of provider interfaces. Here is one, so that the first six tests stand for twelve. To find an
//! instance ID by name (V1's `InstanceID`) is up to the provider: a lookup without provider ID does the same. Where an
//! answer leads to a direct read, the read gets the same answer.

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use pileus_cloud::{Answer, Error, ErrorKind, InstanceState, ProviderId, Stance};

use super::plan::NodeWrite;
use super::planner::{Findings, LifecyclePlanner, Now};
use crate::facts::node::{NodeFacts, Readiness, Taint};
use crate::model::{self, instance};
use crate::well_known::TAINT_SHUTDOWN;

const ABSENT: Result<Answer, Error> = Ok(Answer::Absent);

/// `node0`, initialized long ago, as ready as the kubelet says.
fn node(readiness: Readiness) -> NodeFacts {
    NodeFacts::with_instance("node0", Some("fake://12345"), false, readiness)
}

/// `node0` before it has a provider ID.
fn unnamed(readiness: Readiness) -> NodeFacts {
    NodeFacts::with_instance("node0", None, true, readiness)
}

fn found(state: InstanceState) -> Answer {
    Answer::Found(instance("fake://12345", state))
}

fn error() -> Result<Answer, Error> {
    Err(Error::new(ErrorKind::Broken, "the cloud fails"))
}

/// What one pass writes to the Node.
fn writes(node: NodeFacts, answer: &Result<Answer, Error>) -> Option<NodeWrite> {
    let mut planner = LifecyclePlanner::new(model::provider("fake"), false);
    let mut findings = Findings::default();
    let now = Now { wall: Timestamp::UNIX_EPOCH + SignedDuration::from_hours(1), uptime: Duration::ZERO };
    let nodes = [Arc::new(node)];
    let answers = planner.candidates(&nodes, now).into_iter().map(|node| (node, answer.clone())).collect();
    let to_confirm = planner.on_lookup(&mut findings, answers, now);
    let answers = to_confirm.iter().map(|(node, _)| (Arc::clone(node), answer.clone())).collect();
    planner.on_confirmation(&mut findings, &to_confirm, answers, now);
    planner.plan(&nodes, &findings, now).actions.pop().map(|action| action.write)
}

fn deletes(node: NodeFacts, answer: &Result<Answer, Error>) -> bool {
    writes(node, answer) == Some(NodeWrite::Delete { is_released: false })
}

fn taints(node: NodeFacts, answer: &Result<Answer, Error>) -> bool {
    let mut wanted = node.taints.clone();
    wanted.push(Taint {
        key: TAINT_SHUTDOWN.to_owned(),
        value: None,
        effect: "NoSchedule".to_owned(),
        time_added: None,
    });
    writes(node, answer) == Some(NodeWrite::SetTaints(wanted))
}

#[test]
fn l01_l07_a_node_that_is_not_ready_and_has_no_instance_is_deleted() {
    assert!(deletes(node(Readiness::False), &ABSENT));
}

#[test]
fn l02_l08_a_node_is_kept_when_the_cloud_fails() {
    assert_eq!(writes(node(Readiness::False), &error()), None);
}

#[test]
fn l03_l09_a_node_that_is_not_ready_and_has_an_instance_is_kept() {
    assert_eq!(writes(node(Readiness::False), &Ok(found(InstanceState::Running))), None);
}

#[test]
fn l04_l10_a_node_of_unknown_readiness_without_an_instance_is_deleted() {
    assert!(deletes(node(Readiness::Unknown), &ABSENT));
}

#[test]
fn l05_l11_a_node_of_unknown_readiness_with_an_instance_is_kept() {
    assert_eq!(writes(node(Readiness::Unknown), &Ok(found(InstanceState::Running))), None);
}

#[test]
fn l06_l12_a_ready_node_is_kept_regardless_of_the_cloud() {
    assert_eq!(writes(node(Readiness::True), &ABSENT), None);
}

#[test]
fn l13_a_node_whose_instance_is_stopped_is_tainted_and_kept() {
    assert!(taints(node(Readiness::False), &Ok(found(InstanceState::Stopped))));
}

#[test]
fn l14_without_a_provider_id_a_stopped_instance_is_found_by_name() {
    assert!(taints(unnamed(Readiness::False), &Ok(found(InstanceState::Stopped))));
}

/// Upstream gets an empty instance ID. Here the provider answers `absent`. The Node never had an instance, so it is kept while its
/// kubelet reports (U-31).
#[test]
fn l15_without_a_provider_id_and_without_an_instance_a_node_is_deleted() {
    assert!(deletes(unnamed(Readiness::Unknown), &ABSENT));
    assert_eq!(writes(unnamed(Readiness::False), &ABSENT), None);
}

#[test]
fn l16_without_a_provider_id_a_node_is_kept_when_the_cloud_fails() {
    assert_eq!(writes(unnamed(Readiness::False), &error()), None);
}

/// Upstream's V1 has an error for this, and its V2 keeps such a Node forever (U-02). Here it is an answer.
#[test]
fn l17_not_found_by_name_is_absent() {
    assert!(deletes(unnamed(Readiness::Unknown), &ABSENT));
}

/// Upstream asks for existence first and for the shutdown state second, and the second call can fail for an instance that is
/// gone. Here one answer has both, and an absent instance has no state.
#[test]
fn l18_l19_l21_an_absent_instance_has_no_state() {
    for readiness in [Readiness::False, Readiness::Unknown] {
        assert!(deletes(node(readiness), &ABSENT));
    }
}

#[test]
fn l20_a_ready_node_is_not_tainted_regardless_of_the_cloud() {
    assert_eq!(writes(node(Readiness::True), &Ok(found(InstanceState::Stopped))), None);
}

/// Upstream determines the ID first and then looks it up. Here the lookup has the Node's ID.
#[test]
fn l22_l23_a_lookup_has_the_provider_id_of_the_node() {
    let node = node(Readiness::False);
    assert_eq!(node.reference(&[]).provider_id, node.provider_id);
}

/// Upstream composes the ID from `fake://` and the instance ID, or takes the metadata's. Here the provider looks the Node up by
/// its name and other facts, and the controller needs no ID to act on the answer.
#[test]
fn l24_l25_without_a_provider_id_a_lookup_has_the_name() {
    let reference = unnamed(Readiness::False).reference(&[]);
    assert_eq!((reference.provider_id, reference.name.as_str()), (None, "node0"));
    assert_eq!(writes(unnamed(Readiness::False), &Ok(found(InstanceState::Running))), None);
}

/// Upstream continues with an empty ID. Here an instance always has one.
#[test]
fn l26_an_empty_provider_id_is_invalid() {
    assert!(ProviderId::parse("").is_err());
    assert_eq!(writes(unnamed(Readiness::False), &Ok(Answer::Unmanaged(Stance::LeftAlone))), None);
}

/// Upstream distinguishes the two by the identity of the error, which wrapping loses. Here one is an answer and the other an
/// error, regardless of its text.
#[test]
fn l27_l28_not_found_is_an_answer_and_an_error_is_never_not_found() {
    let words = Err(Error::new(ErrorKind::Invalid, "instance not found"));
    assert_eq!(writes(unnamed(Readiness::False), &words), None);
    assert!(deletes(node(Readiness::False), &ABSENT));
}
