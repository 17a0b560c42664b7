//! A dry run: the provider may send every request that it has grants for, and no write reaches the cloud.

use std::time::Duration;

use bytes::Bytes;
use http::header::AUTHORIZATION;
use http::{Method, StatusCode};
use http_body_util::Full;
use pileus_gate::{Config, DryRun, Effect, Error, Gate, Grant, Limit, Rule, Source, View};

use crate::OK;
use crate::cloud::{Answers, Cloud, NAME, Watched, get, nothing, plenty, text};
use crate::fence::reads;

fn rule(method: &str, path: &str, effect: Effect) -> Rule {
    let [read] = <[Rule; 1]>::try_from(reads()).unwrap();
    Rule { method: method.parse().unwrap(), path: path.parse().unwrap(), effect, ..read }
}

/// A gate that grants `/v1/`, where searches are reads and operations are polled.
fn gate(cloud: &Cloud) -> (Gate, DryRun, Watched) {
    let rules = vec![
        rule("GET", "/v1/operations/*", Effect::OperationPoll),
        rule("POST", "/v1/search", Effect::Read),
        rule("GET", "/v1/*", Effect::Read),
        rule("PUT", "/v1/*", Effect::Write),
        rule("PATCH", "/v1/wrong", Effect::Read),
        rule("DELETE", "/v1/wrong", Effect::OperationPoll),
    ];
    let config = Config {
        grants: vec![Grant { paths: vec!["/v1/".parse().unwrap()], ..cloud.grant() }],
        rules,
        ..nothing()
    };
    let watched = Watched::of(config, Answers::new(&[&["127.0.0.1"]]));
    let (gate, dry_run) = watched.gate.clone().dry_run();
    (gate, dry_run, watched)
}

fn request(cloud: &Cloud, method: &Method, path: &str) -> http::Request<Full<Bytes>> {
    let request = http::Request::builder().method(method).uri(cloud.uri(path));
    let request = request.header(AUTHORIZATION, "hunter2").header("x-api-key", "hunter2");
    request.body(Full::new(Bytes::from_static(b"{\"a\": 1}"))).unwrap()
}

#[tokio::test]
async fn reads_and_polls_reach_the_cloud_and_no_write_does() {
    let cloud = Cloud::answering(OK).await;
    let (gate, dry_run, _) = gate(&cloud);
    let rows = [
        (Method::GET, "/v1/a", true),
        (Method::GET, "/v1/operations/1", true),
        (Method::POST, "/v1/search", true),
        (Method::PUT, "/v1/a?sig=hunter2", false),
        // No rule matches these, so they are writes.
        (Method::GET, "/v1/a/b", false),
        (Method::HEAD, "/v1/a", false),
        (Method::DELETE, "/v1/a", false),
        (Method::POST, "/v1/a", false),
        (Method::GET, "/v1/a?_method=DELETE", false),
        // The rules are wrong about these.
        (Method::PATCH, "/v1/wrong", false),
        (Method::DELETE, "/v1/wrong", false),
    ];
    for (method, path, is_carried) in &rows {
        let before = (cloud.connections(), cloud.requests().len());
        let answer = gate.send(request(&cloud, method, path), plenty()).await.unwrap();
        let own = answer.headers().get("pileus-gate").map(|own| own.to_str().unwrap().to_owned());
        if *is_carried {
            assert_eq!((answer.status(), own), (StatusCode::OK, None), "{method} {path}");
            assert_eq!(cloud.requests().len(), before.1 + 1, "{method} {path}");
        } else {
            let expected = (StatusCode::SERVICE_UNAVAILABLE, Some("dry-run".to_owned()));
            assert_eq!((answer.status(), own), expected, "{method} {path}");
            assert!(text(answer).await.unwrap().contains("dry run"));
            assert_eq!((cloud.connections(), cloud.requests().len()), before, "{method} {path}");
            assert_eq!(gate.recent()[0].source, Source::Interceptor);
        }
    }
    let writes = dry_run.take();
    assert!(!format!("{writes:?}").contains("hunter2"), "{writes:?}");
    let base = format!("http://{NAME}:{}", cloud.port);
    let recorded: Vec<_> =
        writes.list.iter().map(|write| (&*write.method, write.url.strip_prefix(&base).unwrap())).collect();
    let expected = [
        ("PUT", "/v1/a?sig=…"),
        ("GET", "/v1/a/b"),
        ("HEAD", "/v1/a"),
        ("DELETE", "/v1/a"),
        ("POST", "/v1/a"),
        ("GET", "/v1/a?_method=DELETE"),
        ("PATCH", "/v1/wrong"),
        ("DELETE", "/v1/wrong"),
    ];
    assert_eq!(recorded, expected);
    assert!(writes.list.iter().all(|write| write.body == "{\"a\": 1}" && write.body_size == 8));
}

#[tokio::test]
async fn a_request_without_a_grant_is_denied_and_not_recorded() {
    let cloud = Cloud::answering(OK).await;
    let (gate, dry_run, _) = gate(&cloud);
    for method in [Method::GET, Method::PUT] {
        let denied = gate.send(request(&cloud, &method, "/v2/a"), plenty()).await;
        assert!(matches!(denied, Err(Error::Denied { .. })), "{denied:?}");
    }
    assert_eq!((dry_run.take().list, cloud.connections()), (Vec::new(), 0));
}

#[tokio::test]
async fn a_write_in_a_dry_run_drops_nothing_from_the_cache_and_waits_for_no_limit() {
    let cloud = Cloud::answering(OK).await;
    let config = Config {
        grants: vec![cloud.grant()],
        rules: vec![
            rule("GET", "/**", Effect::Read),
            Rule { limits: vec!["writes".parse().unwrap()], ..rule("PUT", "/**", Effect::Write) },
        ],
        // It takes a quarter of an hour to fill.
        limits: vec![Limit::new("writes", 1, 0.001).unwrap()],
        ..nothing()
    };
    let watched = Watched::of(config, Answers::new(&[&["127.0.0.1"]]));
    let (gate, dry_run) = watched.gate.clone().dry_run();
    let gate = gate.with_view(View::at_most(Duration::from_mins(1)));
    for _ in 0..3 {
        let answer = gate.send(get(&cloud.uri("/a")), plenty()).await.unwrap();
        assert_eq!(text(answer).await.unwrap(), "ok");
        let refused = gate.send(request(&cloud, &Method::PUT, "/a"), plenty()).await.unwrap();
        assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
    }
    assert_eq!((cloud.requests().len(), dry_run.take().list.len()), (1, 3));
    // The original gate isn't in a dry run.
    let real = watched.gate.send(request(&cloud, &Method::PUT, "/a"), plenty()).await.unwrap();
    assert_eq!(real.status(), StatusCode::TOO_MANY_REQUESTS);
}
