//! The last requests, as an operator on call finds them: with their results, and without secrets.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use pileus_gate::{Config, Effect, Grant, Limit, RecentRequest, Rule, Source, Urgency};

use crate::OK;
use crate::cloud::{Answers, Cloud, NAME, Watched, get, nothing, plenty, rule, text, within};

/// A gate whose limit lets one read through at once and then one every 2 s.
fn gate(cloud: &Cloud) -> Watched {
    let rule = Rule { limits: vec!["reads".parse().unwrap()], ..rule("GET", "/**", Effect::Read) };
    let config = Config {
        grants: vec![Grant { paths: vec!["/v1/".parse().unwrap()], ..cloud.grant() }],
        rules: vec![rule],
        limits: vec![Limit::new("reads", 1, 0.5).unwrap()],
        ..nothing()
    };
    Watched::of(config, Answers::new(&[&["127.0.0.1"]]))
}

#[tokio::test]
async fn every_request_is_listed_with_its_result_and_without_secrets() {
    let cloud = Cloud::answering(OK).await;
    let gate = gate(&cloud);
    let put = http::Request::put(cloud.uri("/v1/a?sig=hunter2"));
    let put = put.header("x-key", "hunter2").body(Full::new(Bytes::from("hunter2"))).unwrap();
    let urgent = gate.gate.clone().with_urgency(Urgency::User);
    text(urgent.send(put, plenty()).await.unwrap()).await.unwrap();
    text(gate.get(&cloud.uri("/v1/b")).await.unwrap()).await.unwrap();
    assert_eq!(
        gate.gate.send(get(&cloud.uri("/v1/c")), within(Duration::ZERO)).await.unwrap_err().label(),
        "deadline_passed"
    );
    let late = gate.gate.send(get(&cloud.uri("/v1/d")), within(Duration::from_millis(100))).await.unwrap();
    assert_eq!(late.status(), 429);
    drop(late);
    assert!(gate.get(&cloud.uri("/v2/e?sig=hunter2")).await.is_err());
    assert!(gate.get("http://hunter2@a.example/").await.is_err());
    let seen = gate.gate.recent();
    assert!(!format!("{seen:?}").contains("hunter2"), "{seen:?}");
    let grant = format!("http://{NAME}:{}", cloud.port);
    let row = |seen: &RecentRequest| {
        let status = seen.status.map_or(0, |status| status.as_u16());
        let path = seen.url.strip_prefix(&grant).unwrap_or(&seen.url).to_owned();
        (seen.method.clone(), path, seen.effect, seen.result, status, seen.source, seen.sent, seen.received)
    };
    let rows: Vec<_> = seen.iter().map(row).collect();
    let expected = [
        ("", "", "unknown", "malformed", 0, Source::Unanswered, 0, 0),
        ("GET", "/v2/e", "unknown", "denied", 0, Source::Unanswered, 0, 0),
        ("GET", "/v1/d", "read", "held_back", 429, Source::Limit, 0, 0),
        ("GET", "/v1/c", "unknown", "deadline_passed", 0, Source::Unanswered, 0, 0),
        ("GET", "/v1/b", "read", "ok", 200, Source::Cloud, 0, 2),
        ("PUT", "/v1/a", "write", "ok", 200, Source::Cloud, 7, 2),
    ];
    let expected = expected.map(|(method, path, effect, result, status, source, sent, received)| {
        (method.to_owned(), path.to_owned(), effect, result, status, source, sent, received)
    });
    assert_eq!(rows, expected);
    let [_, denied, _, _, read, write]: [RecentRequest; 6] = seen.try_into().unwrap();
    assert_eq!((&*denied.grant, &*read.grant), ("none", &*grant));
    assert_eq!((read.urgency, write.urgency), (Urgency::Background, Urgency::User));
    assert!(read.waited > Duration::from_millis(500), "one write took the token of its first 2 s: {read:?}");
    assert!(
        read.answered.is_some_and(|answered| read.waited <= answered && answered <= read.took),
        "{read:?}"
    );
    assert!(read.begun > write.begun);
}
