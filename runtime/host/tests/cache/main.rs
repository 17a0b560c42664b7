//! Found may be old, absent must be new: tests lookups of the simulated provider as controllers make them, behind a gate with a
//! cache. The cloud is a process that counts its requests.

#![expect(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by panicking")]

#[expect(dead_code, reason = "shared with the tests of providers in other languages, which use all of it")]
#[path = "../languages/cloud.rs"]
mod cloud;
#[expect(dead_code, reason = "shared with the tests of the sandbox, which use all of it")]
#[path = "../sandbox/fixture.rs"]
mod fixture;

use std::time::Duration;

use cloud::Cloud;
use jiff::{SignedDuration, Timestamp};
use pileus_cloud::{Answer, Error, ErrorKind, Instances as _, NodeReference, ProviderId, Purpose};
use pileus_gate::Grant;
use pileus_host::{Component, Guest, Limits};
use pileus_loader::Verified;
use serde_json::Value;
use tokio::time::{Instant, sleep};

/// The most machines of a page.
const PAGE: usize = 1_000;

/// The provider, with access to its cloud.
async fn provider(cloud: &Cloud, limits: Limits) -> Guest {
    let (engine, metrics) = (fixture::engine(), fixture::metrics());
    let component =
        Component::load(&engine, Verified::from_operator(fixture::guest("simulated_provider"), "test"))
            .await
            .unwrap();
    let description = component.describe(&limits, &metrics).await.unwrap();
    let configuration = cloud.configuration();
    let settings = component.configure(&configuration, &limits, &metrics).await.unwrap();
    let grant = Grant {
        tls: false,
        host: "127.0.0.1".parse().unwrap(),
        port: cloud.port,
        methods: vec!["GET".parse().unwrap()],
        paths: vec!["/v1/".parse().unwrap()],
        addresses: vec!["127.0.0.0/8".parse().unwrap()],
    };
    let gate = fixture::gate_with(vec![grant], settings.rules);
    Guest::new(component, "simulated", description, &configuration, gate, &metrics).with_limits(limits)
}

/// How many requests the cloud has received: for pages of lists, and for single machines.
fn requests(cloud: &Cloud) -> (u64, u64) {
    let answer = cloud.send("GET", "/admin/counters", "");
    let counters: Value = serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap();
    let sum = |kind: &str| {
        let outcomes = counters["calls"][kind].as_object().unwrap();
        outcomes.values().map(|count| count.as_u64().unwrap()).sum()
    };
    (sum("list"), sum("get"))
}

/// A Node that was created this many seconds ago.
fn node(number: usize, age: i64) -> NodeReference {
    let created_at = Timestamp::now() - SignedDuration::from_secs(age);
    NodeReference { created_at, ..fixture::node(&format!("node-{number}")) }
}

fn nodes(numbers: std::ops::RangeInclusive<usize>, age: i64) -> Vec<NodeReference> {
    numbers.map(|number| node(number, age)).collect()
}

fn known(number: usize) -> NodeReference {
    let id = ProviderId::parse(&format!("simulated://m-{number:06}")).unwrap();
    NodeReference { provider_id: Some(id), ..node(number, 3_600) }
}

type Answers = Vec<Result<Answer, Error>>;

async fn lookup(guest: &Guest, purpose: Purpose, nodes: &[NodeReference]) -> Answers {
    guest.lookup(purpose, nodes).await.unwrap()
}

/// How many answers are found, absent, pending, and errors.
fn outcomes(answers: &Answers) -> [usize; 4] {
    let count = |is: fn(&Result<Answer, Error>) -> bool| answers.iter().filter(|answer| is(answer)).count();
    [
        count(|answer| matches!(answer, Ok(Answer::Found(_)))),
        count(|answer| matches!(answer, Ok(Answer::Absent))),
        count(|answer| matches!(answer, Ok(Answer::Pending(_)))),
        count(Result::is_err),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_that_join_within_seconds_need_two_sweeps() {
    const NODES: usize = 1_000;
    const MACHINES: usize = 2_500;
    const WITHIN: Duration = Duration::from_secs(2);
    let cloud = Cloud::start(MACHINES);
    cloud.send("PUT", "/admin/faults", r#"{"latency": {"fixedMs": 20}}"#);
    let guest = provider(&cloud, Limits::default()).await;

    // As the controller does: Nodes that join while a lookup is in flight are in the next.
    let begun = Instant::now();
    let (mut found, mut lookups) = (0, 0);
    while found < NODES {
        let since = usize::try_from(begun.elapsed().min(WITHIN).as_millis()).unwrap();
        let registered = NODES * since / usize::try_from(WITHIN.as_millis()).unwrap();
        if registered == found {
            sleep(Duration::from_millis(2)).await;
            continue;
        }
        let answers = lookup(&guest, Purpose::Initialise, &nodes(found + 1..=registered, 0)).await;
        assert_eq!(outcomes(&answers), [registered - found, 0, 0, 0]);
        (found, lookups) = (registered, lookups + 1);
    }
    let (pages, reads) = requests(&cloud);
    let sweeps = u64::try_from(2 * MACHINES.div_ceil(PAGE)).unwrap();
    assert!(pages + reads <= sweeps, "{pages} pages and {reads} reads for {lookups} lookups");
    assert!(lookups > 2, "without a cache, {lookups} lookups would cost no more");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_that_was_created_after_its_list_is_found_at_once() {
    let cloud = Cloud::start(9);
    let guest = provider(&cloud, Limits::default()).await;
    assert_eq!(outcomes(&lookup(&guest, Purpose::Initialise, &nodes(1..=9, 0)).await), [9, 0, 0, 0]);
    assert_eq!(requests(&cloud), (1, 0));
    cloud.send("POST", "/v1/machines", r#"{"name": "node-10"}"#);
    // With others, the list lacks it. Then it is read directly, because a list for one Node would be a waste.
    let answers = lookup(&guest, Purpose::Initialise, &nodes(1..=10, 0)).await;
    assert_eq!(outcomes(&answers), [10, 0, 0, 0]);
    assert_eq!(requests(&cloud), (2, 0), "one more, by name");
    cloud.send("POST", "/v1/machines", r#"{"name": "node-11"}"#);
    let answers = lookup(&guest, Purpose::Initialise, &nodes(11..=11, 0)).await;
    assert_eq!(outcomes(&answers), [1, 0, 0, 0], "alone");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_node_is_absent_by_a_list_from_before_its_creation() {
    let cloud = Cloud::start(9);
    let (lookup_soft, lookup_hard) = (Duration::from_secs(2), Duration::from_secs(3));
    let guest = provider(&cloud, Limits { lookup_soft, lookup_hard, ..Limits::default() }).await;
    let lookup_all = async |age| outcomes(&lookup(&guest, Purpose::Initialise, &nodes(1..=10, age)).await);
    assert_eq!(lookup_all(0).await, [9, 1, 0, 0], "the list is new");
    assert_eq!(requests(&cloud), (1, 0));
    assert_eq!(lookup_all(0).await, [9, 1, 0, 0], "the list is old, and the machine was read");
    assert_eq!(requests(&cloud), (2, 0));
    assert_eq!(lookup_all(120).await, [9, 1, 0, 0], "a Node of two minutes ago is older than the list");
    assert_eq!(requests(&cloud), (2, 0));

    cloud.send("PUT", "/admin/faults", r#"{"errors": {"share": 1, "status": 503}}"#);
    assert_eq!(lookup_all(0).await, [9, 0, 0, 1], "the cloud fails");
    cloud.send("PUT", "/admin/faults", r#"{"latency": {"fixedMs": 20000}}"#);
    assert_eq!(lookup_all(0).await, [9, 0, 0, 1], "the cloud is too slow");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lookup_that_a_slow_cloud_left_unanswered_names_the_request_and_serves_the_next() {
    let cloud = Cloud::start(9);
    cloud.send("PUT", "/admin/faults", r#"{"latency": {"fixedMs": 6000}}"#);
    let (lookup_soft, lookup_hard) = (Duration::from_secs(2), Duration::from_secs(4));
    let guest = provider(&cloud, Limits { lookup_soft, lookup_hard, ..Limits::default() }).await;
    let answers = lookup(&guest, Purpose::Initialise, &nodes(1..=9, 0)).await;
    for answer in &answers {
        let error = answer.as_ref().unwrap_err();
        assert_eq!(error.kind, ErrorKind::Unavailable(None), "{error}");
        let message = error.to_string();
        assert!(
            message.starts_with("GET http://127.0.0.1:") && message.contains("/v1/machines"),
            "{message}"
        );
        assert!(message.ends_with(" had no answer for 3 s"), "{message}");
    }
    let begun = Instant::now();
    let found = loop {
        let answers = lookup(&guest, Purpose::Initialise, &nodes(1..=9, 0)).await;
        if outcomes(&answers)[0] == 9 || begun.elapsed() > Duration::from_mins(1) {
            break answers;
        }
    };
    assert_eq!(outcomes(&found), [9, 0, 0, 0]);
    assert!(requests(&cloud).0 <= 3, "{:?}", requests(&cloud));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_confirmation_never_comes_from_the_cache() {
    let cloud = Cloud::start(9);
    let guest = provider(&cloud, Limits::default()).await;
    let all: Vec<_> = (1..=9).map(known).collect();
    assert_eq!(outcomes(&lookup(&guest, Purpose::Refresh, &all).await), [9, 0, 0, 0]);
    for gets in 1..=2 {
        assert_eq!(outcomes(&lookup(&guest, Purpose::Confirm, &all[..1]).await), [1, 0, 0, 0]);
        assert_eq!(requests(&cloud), (1, gets));
    }
    cloud.send("DELETE", "/v1/machines/m-000001", "");
    assert_eq!(outcomes(&lookup(&guest, Purpose::Confirm, &all[..1]).await), [0, 1, 0, 0]);
    cloud.send("PUT", "/admin/faults", r#"{"errors": {"share": 1, "status": 503}}"#);
    let answers = lookup(&guest, Purpose::Confirm, &all[1..2]).await;
    let error = answers[0].as_ref().unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unavailable(None), "{error}");
}
