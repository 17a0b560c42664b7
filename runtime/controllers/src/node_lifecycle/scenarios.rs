//! What upstream's tests of this controller say, L01 to L28 (ccm-behaviour 10.2), as tests of ours.
//!
//! Upstream has each for two generations of provider interfaces; here is one, so that the first six stand for twelve. An
//! instance ID by name (V1's `InstanceID`) is the provider's own business: a lookup with no provider ID answers for it.
//! Each answer is the second one's too, where the first leads to a direct read.

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use pileus_cloud::{Answer, Error, ErrorKind, InstanceState, Provider, ProviderId};

use super::judge::{Findings, Judge, Now};
use super::plan::Write;
use crate::facts::node::{NodeFacts, Readiness, Taint};
use crate::model::instance;
use crate::well_known::TAINT_SHUTDOWN;

const ABSENT: Result<Answer, Error> = Ok(Answer::Absent);

/// `node0`, initialised long ago, as ready as the kubelet says.
fn node(readiness: Readiness) -> NodeFacts {
    let provider_id = Some(ProviderId::parse("fake://12345").unwrap());
    NodeFacts { readiness, provider_id, taints: Vec::new(), ..NodeFacts::registered("node0") }
}

/// It, before it has a provider ID.
fn unnamed(readiness: Readiness) -> NodeFacts {
    NodeFacts { readiness, ..NodeFacts::registered("node0") }
}

fn found(state: InstanceState) -> Answer {
    Answer::Found(instance("fake://12345", state))
}

fn error() -> Result<Answer, Error> {
    Err(Error::new(ErrorKind::Broken, "the cloud fails"))
}

/// What one pass writes to the Node; nothing is said to a question that isn't asked.
fn writes(node: NodeFacts, answer: &Result<Answer, Error>) -> Option<Write> {
    let provider = Provider {
        name: "fake".to_owned(),
        schemes: vec!["fake".to_owned()],
        node_labels: Vec::new(),
        largest_lookup_batch: 1,
        service_requirements: pileus_cloud::ServiceRequirements::default(),
        load_balancers: None,
        largest_route_batch: 1,
        routes: None,
        instances: None,
    };
    let (mut judge, mut findings) = (Judge::new(provider, false), Findings::default());
    let now = Now { wall: Timestamp::UNIX_EPOCH + SignedDuration::from_hours(1), uptime: Duration::ZERO };
    let nodes = [Arc::new(node)];
    let answers = judge.candidates(&nodes, now).into_iter().map(|node| (node, answer.clone())).collect();
    let doubted = judge.looked_up(&mut findings, answers, now);
    let answers = doubted.iter().map(|(node, _)| (Arc::clone(node), answer.clone())).collect();
    judge.confirmed(&mut findings, &doubted, answers, now);
    judge.plan(&nodes, &findings, now).actions.pop().map(|action| action.write)
}

fn deletes(node: NodeFacts, answer: &Result<Answer, Error>) -> bool {
    writes(node, answer) == Some(Write::Delete { is_released: false })
}

fn taints(node: NodeFacts, answer: &Result<Answer, Error>) -> bool {
    let mut wanted = node.taints.clone();
    wanted.push(Taint {
        key: TAINT_SHUTDOWN.to_owned(),
        value: None,
        effect: "NoSchedule".to_owned(),
        time_added: None,
    });
    writes(node, answer) == Some(Write::SetTaints(wanted))
}

#[test]
fn l01_l07_a_node_that_is_not_ready_and_has_no_machine_is_deleted() {
    assert!(deletes(node(Readiness::False), &ABSENT));
}

#[test]
fn l02_l08_a_node_is_kept_when_the_cloud_fails() {
    assert_eq!(writes(node(Readiness::False), &error()), None);
}

#[test]
fn l03_l09_a_node_that_is_not_ready_and_has_a_machine_is_kept() {
    assert_eq!(writes(node(Readiness::False), &Ok(found(InstanceState::Running))), None);
}

#[test]
fn l04_l10_a_node_that_is_not_heard_of_and_has_no_machine_is_deleted() {
    assert!(deletes(node(Readiness::Unknown), &ABSENT));
}

#[test]
fn l05_l11_a_node_that_is_not_heard_of_and_has_a_machine_is_kept() {
    assert_eq!(writes(node(Readiness::Unknown), &Ok(found(InstanceState::Running))), None);
}

#[test]
fn l06_l12_a_ready_node_is_kept_whatever_the_cloud_says() {
    assert_eq!(writes(node(Readiness::True), &ABSENT), None);
}

#[test]
fn l13_a_node_whose_machine_is_stopped_is_tainted_and_kept() {
    assert!(taints(node(Readiness::False), &Ok(found(InstanceState::Stopped))));
}

#[test]
fn l14_without_a_provider_id_a_stopped_machine_is_found_by_name() {
    assert!(taints(unnamed(Readiness::False), &Ok(found(InstanceState::Stopped))));
}

/// Upstream's answer is an empty instance ID; a provider of ours says that there is none.
#[test]
fn l15_without_a_provider_id_and_without_a_machine_a_node_is_deleted() {
    assert!(deletes(unnamed(Readiness::False), &ABSENT));
}

#[test]
fn l16_without_a_provider_id_a_node_is_kept_when_the_cloud_fails() {
    assert_eq!(writes(unnamed(Readiness::False), &error()), None);
}

/// Upstream's V1 knows an error that says so, and its V2 keeps such a Node forever (P-02); here it is no error.
#[test]
fn l17_not_found_by_name_is_absent() {
    assert!(deletes(unnamed(Readiness::Unknown), &ABSENT));
}

/// Upstream asks whether the machine exists and whether it is stopped one after the other, and the second question can
/// fail where the first says no. One answer says both here: of a machine that is gone there is no state.
#[test]
fn l18_l19_l21_a_machine_that_is_gone_has_no_state_that_could_matter() {
    for readiness in [Readiness::False, Readiness::Unknown] {
        assert!(deletes(node(readiness), &ABSENT));
    }
}

#[test]
fn l20_a_ready_node_is_not_tainted_whatever_the_cloud_says() {
    assert_eq!(writes(node(Readiness::True), &Ok(found(InstanceState::Stopped))), None);
}

/// Upstream asks for an ID first and then about the ID. A question of ours carries the Node's ID.
#[test]
fn l22_l23_a_lookup_carries_the_provider_id_that_the_node_has() {
    let node = node(Readiness::False);
    assert_eq!(node.reference(&[]).provider_id, node.provider_id);
}

/// Upstream makes `fake://` and the instance ID up, or takes the metadata's. Here a provider is asked by name and the
/// rest, and its answer is about the machine: no ID is needed to act on it.
#[test]
fn l24_l25_without_a_provider_id_the_name_is_what_a_lookup_carries() {
    let reference = unnamed(Readiness::False).reference(&[]);
    assert_eq!((reference.provider_id, reference.name.as_str()), (None, "node0"));
    assert_eq!(writes(unnamed(Readiness::False), &Ok(found(InstanceState::Running))), None);
}

/// Upstream goes on with an empty ID. Here a machine always has one, and a provider that finds none is heard no further.
#[test]
fn l26_an_empty_provider_id_is_none() {
    assert!(ProviderId::parse("").is_err());
    assert_eq!(writes(unnamed(Readiness::False), &Ok(Answer::Unmanaged)), None);
}

/// Upstream tells the two apart by the identity of an error, which a wrapped one loses. Here one is an answer and the other
/// an error, whatever its text says.
#[test]
fn l27_l28_not_found_is_an_answer_and_an_error_is_never_not_found() {
    let words = Err(Error::new(ErrorKind::Invalid, "instance not found"));
    assert_eq!(writes(unnamed(Readiness::False), &words), None);
    assert!(deletes(unnamed(Readiness::False), &ABSENT));
}
