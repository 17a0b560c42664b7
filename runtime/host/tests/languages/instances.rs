//! Lookups of instances.

use std::time::{Duration, Instant};

use pileus_cloud::{
    Address, AddressKind, Answer, Error, ErrorKind, InstanceState, NodeReference, ProviderId, Purpose,
};
use pileus_host::{Guest, Limits};

use crate::Language;
use crate::cloud::{self, Cloud};

with_each_provider!(
    instances_are_found_by_name_and_by_id_and_missing_ones_are_absent,
    the_largest_batch_runs_concurrently_within_the_default_limits,
    refused_requests_are_errors_of_their_kind_with_the_nodes_name,
    a_cloud_without_a_grant_is_told_and_one_that_is_gone_is_unavailable,
    after_the_soft_deadline_missing_responses_are_pending,
    an_exception_for_one_node_is_that_nodes_error,
);

fn node(name: &str, provider_id: Option<&str>) -> NodeReference {
    NodeReference {
        name: name.to_owned(),
        uid: format!("uid-{name}"),
        provider_id: provider_id.map(|id| ProviderId::parse(id).unwrap()),
        created_at: jiff::Timestamp::UNIX_EPOCH,
        addresses: Vec::new(),
        node_ips: Vec::new(),
        labels: Vec::new(),
        system_uuid: None,
    }
}

/// The Nodes `node-1` and so on, which are looked up by name.
fn nodes(count: usize) -> Vec<NodeReference> {
    (1..=count).map(|number| node(&format!("node-{number}"), None)).collect()
}

async fn lookup(guest: &Guest, nodes: &[NodeReference]) -> Vec<Result<Answer, Error>> {
    guest.lookup_once(Purpose::Initialise, nodes).await.unwrap().unwrap()
}

/// The error kinds of failed answers.
fn kinds(answers: &[Result<Answer, Error>]) -> Vec<ErrorKind> {
    answers.iter().map(|answer| answer.as_ref().unwrap_err().kind).collect()
}

async fn instances_are_found_by_name_and_by_id_and_missing_ones_are_absent(language: &Language) {
    let cloud = Cloud::start(3);
    cloud.send("POST", "/v1/machines/m-000003/stop", "");
    let guest = language.provider(&cloud, Limits::default()).await;
    let answers = lookup(
        &guest,
        &[
            node("node-1", None),
            node("renamed", Some("simulated://m-000003")),
            node("node-9", None),
            node("node-1", Some("simulated://m-000009")),
            node("node-2", Some("other://m-000002")),
        ],
    )
    .await;
    let [Ok(Answer::Found(first)), Ok(Answer::Found(third)), gone @ .., wrong] = &answers[..] else {
        panic!("{answers:?}")
    };
    assert_eq!(first.provider_id.as_str(), "simulated://m-000001");
    assert_eq!(first.instance_type.as_deref(), Some("small-2"));
    assert_eq!((first.zone.as_deref(), first.region.as_deref()), (Some("sim-1a"), Some("sim-1")));
    let kinds: Vec<_> = first.addresses.iter().map(|address| address.kind).collect();
    assert_eq!(kinds, [AddressKind::InternalIp, AddressKind::ExternalIp, AddressKind::Hostname]);
    assert_eq!(first.addresses[0], Address { kind: AddressKind::InternalIp, value: "10.0.0.1".to_owned() });
    assert_eq!((first.state, third.state), (InstanceState::Running, InstanceState::Stopped));
    assert_eq!(gone, [Ok(Answer::Absent), Ok(Answer::Absent)]);
    assert_eq!(wrong.as_ref().unwrap_err().kind, ErrorKind::Invalid);
}

async fn the_largest_batch_runs_concurrently_within_the_default_limits(language: &Language) {
    let cloud = Cloud::start(64);
    cloud.send("PUT", "/admin/faults", r#"{"latency": {"fixedMs": 300}}"#);
    let guest = language.provider(&cloud, Limits::default()).await;
    let answers = lookup(&guest, &nodes(64)).await;
    assert!(answers.iter().all(|answer| matches!(answer, Ok(Answer::Found(_)))), "{answers:?}");
    let counters = cloud.send("GET", "/admin/counters", "");
    let peak: u32 =
        counters.split(r#""peak":"#).nth(1).unwrap().trim_end_matches(['}', '\n']).parse().unwrap();
    assert!(peak > 8, "not concurrent: {counters}");
}

async fn refused_requests_are_errors_of_their_kind_with_the_nodes_name(language: &Language) {
    let cloud = Cloud::start(2);
    let guest = language.provider(&cloud, Limits::default()).await;
    for (faults, expected) in [
        (
            r#"{"throttle": {"share": 1, "retryAfterSeconds": 7}}"#,
            ErrorKind::Throttled(Some(Duration::from_secs(7))),
        ),
        (r#"{"errors": {"share": 1, "status": 503}}"#, ErrorKind::Unavailable(None)),
    ] {
        cloud.send("PUT", "/admin/faults", faults);
        let answers = lookup(&guest, &nodes(2)).await;
        assert_eq!(kinds(&answers), [expected; 2], "{answers:?}");
        assert!(answers[1].as_ref().unwrap_err().message.starts_with("node node-2: "), "{answers:?}");
    }
}

async fn a_cloud_without_a_grant_is_told_and_one_that_is_gone_is_unavailable(language: &Language) {
    let cloud = Cloud::start(1);
    let guest = language.provider_with(&cloud.configuration(), 1, Limits::default()).await;
    let answers = lookup(&guest, &nodes(1)).await;
    assert_eq!(kinds(&answers), [language.denied]);
    assert!(answers[0].as_ref().unwrap_err().message.contains("add a grant"), "{answers:?}");
    let guest = language.provider(&cloud, Limits::default()).await;
    drop(cloud);
    assert_eq!(kinds(&lookup(&guest, &nodes(1)).await), [ErrorKind::Unavailable(None)]);
}

async fn after_the_soft_deadline_missing_responses_are_pending(language: &Language) {
    let cloud = Cloud::start(2);
    cloud.send("PUT", "/admin/faults", r#"{"latency": {"fixedMs": 8000, "kinds": ["get"]}}"#);
    let limits = Limits { lookup_soft: Duration::from_secs(2), ..Limits::default() };
    let guest = language.provider(&cloud, limits).await;
    let started = Instant::now();
    let answers = lookup(&guest, &[node("node-1", Some("simulated://m-000001")), node("node-2", None)]).await;
    assert!(matches!(&answers[..], [Ok(Answer::Pending(_)), Ok(Answer::Found(_))]), "{answers:?}");
    assert!(started.elapsed() < Duration::from_secs(6), "{:?}", started.elapsed());
}

async fn an_exception_for_one_node_is_that_nodes_error(language: &Language) {
    let port = cloud::answering(r#"{"machines": [{"id": "m-000001", "state": "melted"}]}"#);
    let configuration = format!(r#"{{"endpoint": "http://127.0.0.1:{port}"}}"#);
    let guest = language.provider_with(&configuration, port, Limits::default()).await;
    let answers = lookup(&guest, &nodes(1)).await;
    let error = answers[0].as_ref().unwrap_err();
    assert_eq!(error.kind, ErrorKind::Broken);
    assert!(error.message.starts_with(&format!("node node-1: {}", language.malformed_machine)), "{error}");
}
