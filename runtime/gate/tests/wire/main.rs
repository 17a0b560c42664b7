//! The gate on real sockets: what arrives at a cloud, what comes back, and how clouds that misbehave are handled.

#![expect(clippy::unwrap_used, reason = "a test that can't go on should stop")]

mod attacks;
mod bodies;
mod cache;
mod cloud;
mod credentials;
mod dry_run;
mod environment;
mod fence;
mod limits;
mod metadata;
mod present;
mod proxy;
mod reads;
mod recent;
mod refusals;
mod replies;
mod token_endpoints;
mod writes;

use std::sync::atomic::Ordering;
use std::time::Duration;

use cloud::{Answers, Cloud, NAME, Unresolved, Watched, get, plenty, text, within};
use http_body_util::BodyExt;
use pileus_gate::{Deadlines, Error, Grant, Phase};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio::time::timeout;

const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
/// Long for loopback, short for a test.
const SHORT: Duration = Duration::from_millis(150);

#[tokio::test]
async fn a_connection_is_used_again() {
    let cloud = Cloud::answering(OK).await;
    let answers = Answers::new(&[&["127.0.0.1"]]);
    let gate = Watched::resolving(vec![cloud.grant()], answers.clone());
    for _ in 0..5 {
        let (gate, request) = (gate.gate.clone(), get(&cloud.uri("/")));
        // Each in a task of its own, as in the host.
        let answer = tokio::spawn(async move { text(gate.send(request, plenty()).await?).await });
        assert_eq!(answer.await.unwrap().unwrap(), "ok");
    }
    assert_eq!((cloud.connections(), cloud.requests().len()), (1, 5));
    assert_eq!(answers.lookups.load(Ordering::SeqCst), 1, "resolved once a connection");
}

#[tokio::test]
async fn a_response_loses_cookies_hop_by_hop_headers_and_trailers_and_stays_encoded() {
    let answer = "HTTP/1.1 200 OK\r\nset-cookie: a=b\r\nconnection: x-hop\r\nx-hop: 1\r\ncontent-encoding: gzip\r\n\
                  transfer-encoding: chunked\r\n\r\n3\r\n\x1fgz\r\n0\r\nset-cookie: late=1\r\n\r\n";
    let cloud = Cloud::answering(answer).await;
    let gate = Watched::new(vec![cloud.grant()]);
    let found = gate.get(&cloud.uri("/")).await.unwrap();
    let names: Vec<_> = found.headers().keys().map(http::HeaderName::as_str).collect();
    assert_eq!(names, ["content-encoding"]);
    let whole = found.into_body().collect().await.unwrap();
    assert_eq!(whole.trailers(), None);
    assert_eq!(whole.to_bytes(), "\x1fgz");
}

#[tokio::test]
async fn a_cloud_that_never_answers_is_given_up_at_the_first_byte_timeout() {
    let (closed, mut watch) = mpsc::unbounded_channel();
    let cloud = Cloud::serving(move |mut stream, seen| {
        let closed = closed.clone();
        async move {
            seen.request(&mut stream).await;
            // The first bytes of the head don't extend the timeout.
            let _ = stream.write_all(b"HTTP/1.1 ").await;
            let _ = closed.send(stream.read(&mut [0]).await.unwrap_or(0));
        }
    })
    .await;
    // A read: a write would be waited for, though not by its caller.
    let gate = Watched::with(
        vec![cloud.grant()],
        Answers::new(&[&["127.0.0.1"]]),
        fence::reads(),
        pileus_gate::Fence::default(),
    );
    let refused =
        gate.gate.send(get(&cloud.uri("/")), Deadlines { first_byte: Some(SHORT), ..plenty() }).await;
    assert!(matches!(refused, Err(Error::Timeout { phase: Phase::FirstByte, .. })), "{refused:?}");
    assert_eq!(
        timeout(Duration::from_secs(5), watch.recv()).await.unwrap(),
        Some(0),
        "the connection is closed"
    );
}

#[tokio::test]
async fn a_name_that_is_never_resolved_is_given_up_at_the_connect_timeout() {
    let cloud = Cloud::answering(OK).await;
    let gate = Watched::resolving(vec![cloud.grant()], std::sync::Arc::new(Unresolved));
    for wish in [SHORT, Duration::ZERO] {
        let deadlines = Deadlines { connect: Some(wish), ..plenty() };
        let refused = gate.gate.send(get(&cloud.uri("/")), deadlines).await;
        assert!(matches!(refused, Err(Error::Timeout { phase: Phase::Connect, .. })), "{refused:?}");
    }
    let refused = gate.gate.send(get(&cloud.uri("/")), within(SHORT)).await;
    assert!(matches!(refused, Err(Error::Timeout { .. })), "{refused:?}");
}

#[tokio::test]
async fn the_second_address_is_dialed_when_the_first_refuses() {
    let cloud = Cloud::answering(OK).await;
    let gate = Watched::resolving(vec![cloud.grant()], Answers::new(&[&["127.0.0.3", "127.0.0.1"]]));
    assert_eq!(gate.get(&cloud.uri("/")).await.unwrap().status(), 200);
}

#[tokio::test]
async fn a_failed_connection_is_counted_with_its_reason() {
    let cloud = Cloud::answering(OK).await;
    let gate = Watched::new(vec![Grant { addresses: Vec::new(), ..cloud.grant() }]);
    assert!(gate.get(&cloud.uri("/")).await.is_err());
    let grant = format!("http://{NAME}:{}", cloud.port);
    let line = format!(
        r#"pileus_gate_connections_total{{provider="test",grant="{grant}",result="address_blocked"}} 1"#
    );
    assert!(gate.metrics().contains(&line), "{}", gate.metrics());
}

#[tokio::test]
async fn nothing_is_sent_past_the_soft_deadline() {
    let cloud = Cloud::answering(OK).await;
    let gate = Watched::new(vec![cloud.grant()]);
    let deadlines = Deadlines { soft: tokio::time::Instant::now(), ..plenty() };
    let refused = gate.gate.send(get(&cloud.uri("/")), deadlines).await;
    assert!(matches!(refused, Err(Error::DeadlinePassed)), "{refused:?}");
    assert_eq!(cloud.connections(), 0);
}

#[tokio::test]
async fn a_request_that_was_sent_is_not_sent_again_when_the_connection_breaks() {
    let cloud = Cloud::serving(|mut stream, seen| async move {
        seen.request(&mut stream).await;
    })
    .await;
    let gate = Watched::new(vec![cloud.grant()]);
    let broken = gate.get(&cloud.uri("/")).await;
    assert!(matches!(broken, Err(Error::Protocol { .. })), "{broken:?}");
    assert_eq!(cloud.requests().len(), 1);
}

#[tokio::test]
async fn a_refused_connection_and_a_host_without_tls_are_different_errors() {
    let cloud = Cloud::answering(OK).await;
    let gate = Watched::resolving(vec![cloud.grant()], Answers::new(&[&["127.0.0.3"]]));
    let refused = gate.get(&cloud.uri("/")).await;
    assert!(matches!(refused, Err(Error::Connect { .. })), "{refused:?}");

    let plain = Cloud::serving(|mut stream, _| async move {
        let _ = stream.read(&mut [0; 16]).await;
        let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
    })
    .await;
    let gate = Watched::new(vec![Grant { tls: true, ..plain.grant() }]);
    let refused = gate.get(&format!("https://{NAME}:{}/", plain.port)).await;
    assert!(matches!(refused, Err(Error::Tls { .. })), "{refused:?}");
}
