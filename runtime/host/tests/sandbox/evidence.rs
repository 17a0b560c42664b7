//! What a provider says to be missing, and what the cloud said: the hostile provider takes every outcome for an answer, and
//! the host believes it only where the cloud answered.

use std::sync::Arc;

use pileus_cloud::{
    Answer, Cluster, ErrorKind, InstanceState, Instances as _, LoadBalancers, NodeReference, Purpose,
    Routes as _, Service, ServiceAction, ServiceCall, ServiceChange, ServiceProgress,
};
use pileus_gate::{Effect, Fence};
use pileus_host::{Component, Guest, Limits, Metrics};
use pileus_loader::Verified;
use prometheus_client::registry::Registry;
use serde_json::{Value, json};

use crate::cloud::{Answers, Cloud, NAME, Watched, rule, whole};
use crate::fixture::{configured, count, engine, guest, node};

/// A guest with this behavior and these requests, the metrics of the host, and the cloud.
async fn behaving(behaviour: &str, attempts: &Value) -> (Arc<Guest>, Registry, Cloud) {
    let cloud = Cloud::by_path().await;
    let (loopback, rules) = (Answers::new(&[&["127.0.0.1"]]), vec![rule("GET", "/**", Effect::Read)]);
    let gate = Watched::with(vec![cloud.grant()], loopback, rules, Fence::default());
    let mut attempts = attempts.clone();
    for attempt in attempts.as_array_mut().unwrap() {
        let attempt = attempt.as_object_mut().unwrap();
        attempt.entry("authority").or_insert_with(|| json!(format!("{NAME}:{}", cloud.port)));
    }
    let configuration = json!({"behaviour": behaviour, "attempts": attempts}).to_string();
    let mut registry = Registry::default();
    let metrics = Metrics::register(&mut registry);
    let guest = configured(&engine(), &configuration, gate.gate, Limits::default(), &metrics).await;
    (guest, registry, cloud)
}

fn named(names: &[&str]) -> Vec<NodeReference> {
    names.iter().map(|name| node(name)).collect()
}

/// What the provider sends, and whether the cloud has said with it that something is missing.
fn rows() -> Vec<(&'static str, Value, bool)> {
    let get = |path: &str| json!({"path": path});
    let denied = json!({"authority": "denied.example"});
    let only_if_cached = json!({"path": "/200", "headers": [["cache-control", "only-if-cached"]]});
    let mut rows = vec![
        ("nothing", json!([]), false),
        ("a denied request", json!([denied]), false),
        ("a request to be answered from the cache alone", json!([only_if_cached]), false),
        ("no answer in time", json!([{"path": "/silent", "timeout": 50_000_000}]), false),
        ("an answer that is cut off", json!([get("/cut")]), false),
        ("a list that isn't read", json!([{"path": "/200", "reads": 0}]), false),
        ("a list whose last byte isn't read", json!([{"path": "/200", "reads": 1}]), false),
        ("a request in flight", json!([{"path": "/200", "leaves": true}]), false),
        ("a list and a denied request", json!([get("/200"), denied]), false),
        ("a list and a request in flight", json!([get("/200"), {"path": "/silent", "leaves": true}]), false),
        ("a list and a list that is cut off", json!([get("/200"), get("/cut")]), false),
        ("a list", json!([get("/200")]), true),
        ("a list in chunks", json!([get("/chunks")]), true),
        ("a list whose length is read", json!([{"path": "/200", "reads": 2}]), true),
        ("not found", json!([get("/404")]), true),
        ("gone", json!([get("/410")]), true),
        ("a redirect that is followed", json!([get("/302"), get("/200")]), true),
        ("a read that succeeds at the second time", json!([get("/flaky"), get("/flaky")]), true),
        ("a read that was answered before", json!([get("/200"), only_if_cached]), true),
    ];
    for status in ["302", "401", "403", "407", "408", "429", "500", "502", "503", "504"] {
        rows.push(("a status", json!([get(&format!("/{status}"))]), false));
        if status != "302" {
            rows.push(("a list and a status", json!([get("/200"), get(&format!("/{status}"))]), false));
        }
    }
    rows
}

#[tokio::test(flavor = "multi_thread")]
async fn an_absent_instance_is_believed_only_where_the_cloud_said_so() {
    let mut rows = rows();
    rows.push(("a change, which is denied", json!([{"method": "POST", "path": "/200"}]), false));
    rows.push(("a refused read", json!([{"path": "/400"}]), false));
    for (name, attempts, is_believed) in rows {
        let (guest, registry, _cloud) = behaving("fail-open", &attempts).await;
        let purposes = if name.contains("second time") {
            &[Purpose::Confirm][..]
        } else {
            &[Purpose::Initialise, Purpose::Refresh, Purpose::Confirm]
        };
        for purpose in purposes {
            let answers = guest.lookup(*purpose, &named(&["a"])).await.unwrap();
            let is_absent = matches!(answers.as_slice(), [Ok(Answer::Absent)]);
            assert!(is_absent || matches!(answers.as_slice(), [Ok(Answer::Pending(_))]), "{answers:?}");
            assert_eq!(is_absent, is_believed, "{name} {attempts} {purpose:?}");
        }
        let doubted = if is_believed { 0 } else { u32::try_from(purposes.len()).unwrap() };
        assert_eq!(count(&registry, "doubted"), doubted, "{name} {attempts}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_answer_about_one_instance_proves_nothing_about_others() {
    let nodes = named(&["a", "b", "c"]);
    for (name, attempts, is_believed) in [
        ("one is gone", json!([{"path": "/404/NAME", "only": "a"}]), false),
        ("two are gone", json!([{"path": "/404/a"}, {"path": "/404/b"}]), false),
        ("one and the same again", json!([{"path": "/404/a"}]), false),
        ("all are gone", json!([{"path": "/404/NAME"}]), true),
        ("a list", json!([{"path": "/200"}]), true),
        (
            "all are gone, but a request failed",
            json!([{"path": "/404/NAME"}, {"path": "/500", "only": "b"}]),
            false,
        ),
    ] {
        let (guest, _, _cloud) = behaving("fail-open", &attempts).await;
        let answers = guest.lookup(Purpose::Confirm, &nodes).await.unwrap();
        let absent = answers.iter().filter(|answer| matches!(answer, Ok(Answer::Absent))).count();
        assert_eq!(absent, if is_believed { 3 } else { 0 }, "{name}: {answers:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_confirmed_stop_needs_an_answer_too() {
    for (attempts, purpose, is_believed) in [
        (json!([]), Purpose::Confirm, false),
        (json!([{"path": "/500"}]), Purpose::Confirm, false),
        (json!([{"path": "/200"}]), Purpose::Confirm, true),
        (json!([]), Purpose::Refresh, true),
    ] {
        let (guest, _, _cloud) = behaving("fail-aside", &attempts).await;
        let answers = guest.lookup(purpose, &named(&["a"])).await.unwrap();
        let is_stopped =
            matches!(&answers[0], Ok(Answer::Found(found)) if found.state == InstanceState::Stopped);
        assert_eq!(is_stopped, is_believed, "{attempts} {purpose:?}: {answers:?}");
    }
}

fn cluster() -> Cluster {
    Cluster { name: "kubernetes".to_owned(), uid: Some("c-1".to_owned()) }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_is_believed_only_where_the_cloud_answered_every_read() {
    for (name, attempts, is_believed) in rows() {
        let (guest, registry, _cloud) = behaving("fail-open", &attempts).await;
        let listed = guest.list_owned(&cluster()).await;
        assert_eq!(listed.is_ok(), is_believed, "{name} {attempts}: {listed:?}");
        assert!(
            listed.is_ok() || listed.is_err_and(|error| error.kind == ErrorKind::Unavailable(None)),
            "{name}"
        );
        assert_eq!(count(&registry, "doubted"), u32::from(!is_believed), "{name} {attempts}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_route_table_is_believed_only_where_the_cloud_answered() {
    for (status, is_believed) in [("500", false), ("401", false), ("429", false), ("404", true)] {
        let cloud = Cloud::answering(whole(status)).await;
        let gate = Watched::new(vec![cloud.grant()]);
        let component = Component::load(&engine(), Verified::from_operator(guest("unruly_provider"), "test"))
            .await
            .unwrap();
        let (limits, metrics) = (Limits::default(), Metrics::register(&mut Registry::default()));
        let description = component.describe(&limits, &metrics).await.unwrap();
        let endpoint = format!("http://{NAME}:{}", cloud.port);
        let configuration = json!({"endpoint": endpoint, "breaks": "errors-are-empty-lists"}).to_string();
        let guest = Guest::new(component, "unruly", description, &configuration, gate.gate, &metrics);
        let listed = guest.list(&cluster()).await;
        assert_eq!(listed.is_ok(), is_believed, "{status}: {listed:?}");
    }
}

fn delete(name: &str) -> ServiceChange {
    let service = Service::named("default", name, format!("uid-{name}"));
    ServiceChange { action: ServiceAction::Delete(service), resume: None }
}

async fn change(
    guest: &Guest,
    changes: &[ServiceChange],
) -> Vec<Result<ServiceProgress, pileus_cloud::Error>> {
    let cluster = cluster();
    let call = ServiceCall { cluster: &cluster, targets: &[], known: &[], changes, is_audit: false };
    LoadBalancers::change(guest, call).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deletion_is_believed_only_where_the_cloud_answered() {
    let mut rows = vec![
        ("deleted", json!([{"method": "DELETE", "path": "/204"}]), true),
        ("being deleted, then gone", json!([{"method": "DELETE", "path": "/409"}, {"path": "/404"}]), true),
        ("a failed deletion", json!([{"method": "DELETE", "path": "/500"}]), false),
        (
            "a read, and a failed deletion",
            json!([{"path": "/200"}, {"method": "DELETE", "path": "/500"}]),
            false,
        ),
        ("a refused deletion", json!([{"method": "DELETE", "path": "/409"}]), false),
    ];
    rows.extend(self::rows());
    for (name, attempts, is_believed) in rows {
        for behaviour in ["fail-open", "fail-aside"] {
            let (guest, registry, _cloud) = behaving(behaviour, &attempts).await;
            let outcomes = change(&guest, &[delete("a")]).await;
            assert_eq!(outcomes[0].is_ok(), is_believed, "{name} {attempts}: {outcomes:?}");
            assert_eq!(count(&registry, "doubted"), u32::from(!is_believed), "{name} {attempts}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deletion_among_changes_that_fail_is_made_once_more_by_itself() {
    let attempts = json!([
        {"method": "DELETE", "path": "/204/NAME", "only": "a"},
        {"method": "DELETE", "path": "/500/NAME", "only": "b"},
    ]);
    let (guest, registry, cloud) = behaving("fail-open", &attempts).await;
    let ensure = Service::named("default", "b", "uid-b".to_owned());
    let ensure = ServiceChange { action: ServiceAction::Ensure(ensure), resume: None };
    let outcomes = change(&guest, &[ensure, delete("a")]).await;
    assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
    assert_eq!(count(&registry, "doubted"), 1);
    let mut paths: Vec<_> = cloud.requests().iter().map(|text| text[..13].to_owned()).collect();
    paths.sort_unstable();
    assert_eq!(paths, ["DELETE /204/a", "DELETE /204/a", "DELETE /500/b"]);
    let outcomes = change(&guest, &[delete("a"), delete("b")]).await;
    assert!(outcomes.iter().all(Result::is_err), "nothing tells whose request failed: {outcomes:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_reads_from_the_cache_what_its_request_allows_and_a_deletion_never_does() {
    for (control, expected) in [("max-age=60", 1), ("max-age=0", 2), ("no-cache", 2), ("max-stale=60", 2)] {
        let attempts = json!([{"path": "/200", "headers": [["cache-control", control]]}]);
        let (guest, _, cloud) = behaving("fail-open", &attempts).await;
        for _ in 0..2 {
            let ensure = ServiceAction::Ensure(Service::named("default", "a", "uid-a".to_owned()));
            let outcomes = change(&guest, &[ServiceChange { action: ensure, resume: None }]).await;
            assert!(outcomes[0].is_ok(), "{control}: {outcomes:?}");
        }
        assert_eq!(cloud.requests().len(), expected, "{control}");
        for _ in 0..2 {
            let outcomes = change(&guest, &[delete("a")]).await;
            assert!(outcomes[0].is_ok(), "{control}: {outcomes:?}");
        }
        assert_eq!(cloud.requests().len(), expected + 2, "{control}: a deletion asks the cloud");
    }
}
