//! What errors, metrics, logs and spans show of a request, which may hold secrets.

use bytes::Bytes;
use http_body_util::Full;
use pileus_gate::{Deadlines, Fence, Grant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::cloud::{Answers, Cloud, Log, NAME, Watched, plenty, text, within};
use crate::environment::{is_child, run_with};
use crate::{OK, SHORT};

#[tokio::test]
async fn row_17_a_denial_names_the_request_and_what_to_add_but_no_query() {
    let cloud = Cloud::answering(OK).await;
    let gate = Watched::new(vec![cloud.grant()]);
    let refused = gate.get("https://api.example.com:8443/subscriptions/1?sig=hunter2").await.unwrap_err();
    let message = refused.to_string();
    for part in
        ["GET https://api.example.com:8443/subscriptions/1", "provider test", "`port: 8443`", "CloudProvider"]
    {
        assert!(message.contains(part), "{part} in {message}");
    }
    assert!(!message.contains("hunter2") && !format!("{refused:?}").contains("hunter2"), "{message}");
}

/// A request with a secret in every place where a provider may put one.
fn with_secrets(uri: &str) -> http::Request<Full<Bytes>> {
    let request = http::Request::post(format!("{uri}?sig=hunter2")).header("x-key", "hunter2");
    request.body(Full::from("hunter2")).unwrap()
}

#[tokio::test]
async fn row_17_no_error_repeats_a_query_a_header_a_body_or_a_password() {
    let cloud = Cloud::answering(OK).await;
    let broken = Cloud::answering("hunter2").await;
    let large =
        Cloud::answering("HTTP/1.1 200 OK\r\ncontent-length: 99999999\r\nx-key: hunter2\r\n\r\n").await;
    let silent = Cloud::serving(|mut stream, seen| async move {
        seen.request(&mut stream).await;
        std::future::pending::<()>().await;
    })
    .await;
    let no_tls = Cloud::serving(|mut stream, _| async move {
        let _ = stream.read(&mut [0; 16]).await;
        let _ = stream.write_all(b"HTTP/1.1 400 hunter2\r\n\r\n").await;
    })
    .await;
    let tls = Grant { tls: true, ..no_tls.grant() };
    let grants = vec![cloud.grant(), broken.grant(), large.grant(), silent.grant(), tls];
    let gate = Watched::new(grants.clone());
    let resolving = |answers: &[&[&str]]| Watched::resolving(grants.clone(), Answers::new(answers));
    let closed = Watched::with(grants.clone(), Answers::new(&[]), Vec::new(), Fence::new(|| false));
    let mut long = with_secrets(&cloud.uri("/"));
    long.headers_mut().insert("x-long", "hunter2".repeat(9_000).parse().unwrap());
    let large_body = with_secrets(&cloud.uri("/")).map(|_| Full::from("hunter2".repeat(2 << 20)));
    let userinfo = with_secrets(&format!("http://admin:hunter2@{NAME}:{}/", cloud.port));
    let over_tls = with_secrets(&no_tls.uri("/").replace("http:", "https:"));
    let nowhere = with_secrets("http://denied.test/");
    let uri = cloud.uri("/");
    let short = || within(SHORT);
    let past = || Deadlines { soft: tokio::time::Instant::now(), ..plenty() };
    let (none, link) = (resolving(&[]), resolving(&[&["169.254.169.254"]]));
    let unheard = resolving(&[&["127.0.0.3"]]);
    let rows: [(_, _, _, fn() -> Deadlines); 13] = [
        ("malformed", &gate, userinfo, plenty),
        ("denied", &gate, nowhere, plenty),
        ("headers_too_large", &gate, long, plenty),
        ("body_too_large", &gate, large_body, plenty),
        ("deadline_passed", &gate, with_secrets(&uri), past),
        ("fenced", &closed, with_secrets(&uri), plenty),
        ("dns_error", &none, with_secrets(&uri), plenty),
        ("address_blocked", &link, with_secrets(&uri), plenty),
        ("connect_error", &unheard, with_secrets(&uri), plenty),
        ("tls_error", &gate, over_tls, plenty),
        ("timeout", &gate, with_secrets(&silent.uri("/")), short),
        ("response_too_large", &gate, with_secrets(&large.uri("/")), plenty),
        ("protocol_error", &gate, with_secrets(&broken.uri("/")), plenty),
    ];
    for (label, gate, request, deadlines) in rows {
        let error = gate.gate.send(request, deadlines()).await.unwrap_err();
        assert_eq!(error.label(), label, "{error}");
        let mut said = vec![format!("{error} {error:?} {}", gate.metrics())];
        let mut cause: Option<&dyn std::error::Error> = Some(&error);
        while let Some(current) = cause {
            said.push(format!("{current} {current:?}"));
            cause = current.source();
        }
        assert!(!said.concat().contains("hunter2"), "{label}: {said:?}");
    }
}

#[tokio::test]
async fn row_17_metrics_have_the_labels_of_grants_and_neither_hosts_nor_queries() {
    let cloud = Cloud::answering("HTTP/1.1 404 Not Found\r\ncontent-length: 2\r\n\r\nno").await;
    let gate = Watched::new(vec![Grant { host: "*.test".parse().unwrap(), ..cloud.grant() }]);
    text(gate.get(&cloud.uri("/secret?sig=hunter2")).await.unwrap()).await.unwrap();
    let _ = gate.get("http://denied.example/?sig=hunter2").await;
    let metrics = gate.metrics();
    let label = format!(r#"provider="test",grant="http://*.test:{}""#, cloud.port);
    for line in [
        format!(r#"pileus_gate_requests_total{{{label},effect="write",result="http_4xx"}} 1"#),
        r#"pileus_gate_requests_total{provider="test",grant="none",effect="unknown",result="denied"} 1"#
            .to_owned(),
        format!("pileus_gate_received_bytes_total{{{label}}} 2"),
        format!("pileus_gate_answer_duration_seconds_count{{{label}}} 1"),
        format!(r#"pileus_gate_connections_total{{{label},result="ok"}} 1"#),
        format!("pileus_gate_connect_duration_seconds_count{{{label}}} 1"),
        r#"pileus_gate_in_flight{provider="test"} 0"#.to_owned(),
    ] {
        assert!(metrics.contains(&line), "{line} in {metrics}");
    }
    for part in ["hunter2", "secret", NAME, "denied.example"] {
        assert!(!metrics.contains(part), "{part} in {metrics}");
    }
}

#[tokio::test]
async fn row_17_logs_identify_the_request_without_its_query_and_headers() {
    const TEST: &str = "attacks::secrets::row_17_logs_identify_the_request_without_its_query_and_headers";
    // In a process of its own: tracing caches for the whole process whether a call site is enabled, and another test's
    // thread that reaches one before the subscriber is set would leave it disabled.
    if !is_child() {
        return run_with(TEST, &[]);
    }
    let cloud = Cloud::answering(OK).await;
    let gate = Watched::new(vec![cloud.grant()]);
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_ansi(false)
        .with_max_level(tracing::Level::TRACE)
        .with_writer(move || writer.clone());
    tracing::subscriber::set_global_default(subscriber.finish()).unwrap();
    let request = http::Request::get(cloud.uri("/vms?sig=hunter2")).header("x-key", "swordfish");
    let answer = gate.gate.send(request.body(Full::<Bytes>::default()).unwrap(), plenty()).await.unwrap();
    text(answer).await.unwrap();
    gate.get("https://api.example.com/denied?sig=hunter2").await.unwrap_err();
    let log = log.text();
    let own: Vec<_> = log.lines().filter(|line| line.contains("pileus_gate")).collect();
    assert!(own.iter().any(|line| line.contains("/vms") && line.contains("result=\"ok\"")), "{log}");
    let denial = "GET https://api.example.com/denied isn't granted to provider test";
    assert_eq!(own.iter().filter(|line| line.contains("WARN") && line.contains(denial)).count(), 1, "{log}");
    for secret in ["hunter2", "swordfish"] {
        assert!(own.iter().all(|line| !line.contains(secret)), "{secret} in {log}");
    }
}
