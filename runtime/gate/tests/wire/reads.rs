//! Calls that may only read, and providers whose word about a POST doesn't suffice.

use http::{Method, StatusCode};
use http_body_util::Full;
use pileus_gate::{Config, Effect, Error, Gate, Rule};

use crate::OK;
use crate::cloud::{Answers, Cloud, Watched, nothing, plenty, rule};

fn gate(cloud: &Cloud, rules: Vec<Rule>) -> Watched {
    let config = Config { grants: vec![cloud.grant()], rules, ..nothing() };
    Watched::of(config, Answers::new(&[&["127.0.0.1"]]))
}

async fn send(
    gate: &Gate,
    cloud: &Cloud,
    method: &Method,
    path: &str,
    body: &'static str,
) -> Result<u16, Error> {
    let request = http::Request::builder().method(method).uri(cloud.uri(path));
    let answer = gate.send(request.body(Full::from(body)).unwrap(), plenty()).await?;
    Ok(answer.status().as_u16())
}

#[tokio::test]
async fn a_call_that_may_only_read_sends_no_write() {
    let cloud = Cloud::answering(OK).await;
    let rules = vec![
        rule("GET", "/operations/*", Effect::OperationPoll),
        rule("GET", "/writes", Effect::Write),
        rule("POST", "/search", Effect::Read),
        rule("DELETE", "/liar", Effect::Read),
    ];
    let watched = gate(&cloud, rules);
    let reader = watched.gate.clone().read_only("lookup");
    for (method, path, body, is_sent) in [
        (Method::GET, "/no-rule", "", true),
        (Method::HEAD, "/no-rule", "", true),
        (Method::GET, "/operations/1", "", true),
        (Method::POST, "/search", "{}", true),
        (Method::GET, "/writes", "", false),
        (Method::GET, "/no-rule?_method=DELETE", "", false),
        (Method::GET, "/no-rule", "_method=DELETE", false),
        (Method::POST, "/search?_method=DELETE", "{}", false),
        (Method::POST, "/a", "{}", false),
        (Method::PUT, "/a", "{}", false),
        (Method::DELETE, "/a", "", false),
        (Method::DELETE, "/liar", "", false),
    ] {
        let before = cloud.requests().len();
        let sent = send(&reader, &cloud, &method, path, body).await;
        assert_eq!(cloud.requests().len() - before, usize::from(is_sent), "{method} {path}");
        match sent {
            Ok(status) => assert_eq!((status, is_sent), (200, true), "{method} {path}"),
            Err(error) => {
                let path = path.split('?').next().unwrap();
                let expected =
                    format!("{method} {} of provider test is denied: lookup may only read", cloud.uri(path));
                assert!(!is_sent && error.to_string().starts_with(&expected), "{error}");
            }
        }
    }
    assert!(watched.metrics().contains(r#"effect="write",result="read_only"} "#), "{}", watched.metrics());
    assert_eq!(
        send(&watched.gate, &cloud, &Method::DELETE, "/a", "").await.unwrap(),
        200,
        "other calls may write"
    );
}

#[tokio::test]
async fn a_dry_run_carries_a_post_that_the_rules_of_the_other_gate_call_a_read_too() {
    let cloud = Cloud::answering(OK).await;
    let active = gate(&cloud, vec![rule("POST", "/search", Effect::Read)]);
    let rules = vec![rule("POST", "/**", Effect::Read), rule("GET", "/**", Effect::Read)];
    let candidate = gate(&cloud, rules);
    let (dry_run, wanted) = candidate.gate.clone().with_reads_of(&active.gate).dry_run();
    let long: &'static str = "x".repeat(65 << 10).leak();
    for (method, path, body, is_sent) in [
        (Method::POST, "/search", "{}", true),
        (Method::GET, "/a", "", true),
        (Method::POST, "/delete", "{}", false),
        (Method::POST, "/search", long, false),
    ] {
        let status = send(&dry_run, &cloud, &method, path, body).await.unwrap();
        let expected = if is_sent { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
        assert_eq!(status, expected, "{method} {path}");
    }
    assert_eq!((cloud.requests().len(), wanted.take().list.len()), (2, 2));
    assert_eq!(send(&candidate.gate, &cloud, &Method::POST, "/delete", "{}").await.unwrap(), 200);
}
