//! Requests and responses: framing, headers, bodies, unfinished exchanges, and what belongs to other providers.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::stream;
use http_body_util::{BodyExt, Full, StreamBody};
use pileus_gate::{
    Classification, Config, CpuAccount, Credential, CredentialKind, Deadlines, Error, Fence, Grant,
    Interception, Interceptor, Limit, Operation, Phase, Place, Request, Rule, SecretFile,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::cloud::{Answers, Cloud, NAME, Watched, get, nothing, plenty, text, within};
use crate::{OK, SHORT, fence};

#[tokio::test]
async fn row_07_row_08_exactly_one_framing_and_no_forbidden_header_arrive() {
    let cloud = Cloud::answering(OK).await;
    let gate = Watched::new(vec![cloud.grant()]);
    let mut trailers = http::HeaderMap::new();
    trailers.insert("authorization", "Bearer smuggled".parse().unwrap());
    let frames = [
        Ok::<_, Error>(http_body::Frame::data(Bytes::from("ab"))),
        Ok(http_body::Frame::data(Bytes::new())),
        Ok(http_body::Frame::data(Bytes::from("c"))),
        Ok(http_body::Frame::trailers(trailers)),
    ];
    let request = http::Request::post(cloud.uri("/"))
        .header("host", "evil.test")
        .header("content-length", "1")
        .header("content-length", "9000")
        .header("transfer-encoding", "chunked")
        .header("connection", "x-hop, keep-alive")
        .header("x-hop", "1")
        .header("trailer", "authorization")
        .header("authorization", "Bearer own")
        .header("cookie", "a=b")
        .header("metadata", "true")
        .header("x-aws-ec2-metadata-token", "t")
        .header("accept", "text/plain")
        .body(StreamBody::new(stream::iter(frames)))
        .unwrap();
    text(gate.gate.send(request, plenty()).await.unwrap()).await.unwrap();
    let arrived = cloud.requests().concat();
    let (head, body) = arrived.split_once("\r\n\r\n").unwrap();
    let mut lines: Vec<_> = head.lines().skip(1).collect();
    lines.sort_unstable();
    let host = format!("host: {NAME}:{}", cloud.port);
    assert_eq!(lines, ["accept: text/plain", "content-length: 3", host.as_str()]);
    assert_eq!(body, "abc");
    let empty = http::Request::post(cloud.uri("/empty")).body(Full::<Bytes>::default()).unwrap();
    text(gate.gate.send(empty, plenty()).await.unwrap()).await.unwrap();
    let arrived = cloud.requests().concat();
    assert_eq!(arrived.matches("content-length: 0\r\n").count(), 1, "servers want it of a POST: {arrived}");
    // All except Host, the two Content-Length and Accept.
    let label = format!(r#"provider="test",grant="http://{NAME}:{}""#, cloud.port);
    let line = format!("pileus_gate_stripped_headers_total{{{label}}} 8\n");
    assert!(gate.metrics().contains(&line), "{}", gate.metrics());
}

/// A cloud that sends a piece of an endless body as often as said.
async fn dripping(every: Duration) -> Cloud {
    Cloud::serving(move |mut stream, seen| async move {
        seen.request(&mut stream).await;
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\nx").await;
        while stream.write_all(b"x").await.is_ok() {
            tokio::time::sleep(every).await;
        }
    })
    .await
}

#[tokio::test]
async fn row_11_a_stalled_body_ends_at_the_between_bytes_timeout_and_a_slow_one_at_the_hard_deadline() {
    let stalls = dripping(Duration::from_mins(1)).await;
    let gate = Watched::new(vec![stalls.grant()]);
    let deadlines = Deadlines { between_bytes: Some(SHORT), ..plenty() };
    let answer = gate.gate.send(get(&stalls.uri("/")), deadlines).await.unwrap();
    // A pause of the provider isn't a pause of the cloud.
    tokio::time::sleep(SHORT * 2).await;
    let broken = text(answer).await;
    assert!(matches!(broken, Err(Error::Timeout { phase: Phase::BetweenBytes, .. })), "{broken:?}");
    assert!(gate.metrics().contains(r#"result="timeout"} 1"#), "{}", gate.metrics());

    let drips = dripping(Duration::from_millis(10)).await;
    let gate = Watched::new(vec![drips.grant()]);
    // On a busy machine some pieces may arrive together.
    let wish = Duration::from_secs(1);
    let deadlines = Deadlines { between_bytes: Some(wish), ..within(wish * 5 / 2) };
    let answer = gate.gate.send(get(&drips.uri("/")), deadlines).await.unwrap();
    let broken = text(answer).await;
    assert!(matches!(broken, Err(Error::Timeout { phase: Phase::Call, .. })), "{broken:?}");
}

#[tokio::test]
async fn row_11_an_endless_response_is_cut_at_its_cap_and_a_declared_one_is_refused_at_once() {
    let (closed, mut watch) = mpsc::unbounded_channel();
    let endless = Cloud::serving(move |mut stream, seen| {
        let closed = closed.clone();
        async move {
            seen.request(&mut stream).await;
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n").await;
            let chunk = [b"10000\r\n".to_vec(), vec![b'x'; 0x10000], b"\r\n".to_vec()].concat();
            while stream.write_all(&chunk).await.is_ok() {}
            let _ = closed.send(());
        }
    })
    .await;
    let gate = Watched::new(vec![endless.grant()]);
    let mut body = gate.get(&endless.uri("/")).await.unwrap().into_body();
    let mut received = 0;
    let refused = loop {
        match body.frame().await.unwrap() {
            Ok(frame) => received += frame.into_data().unwrap().len(),
            Err(error) => break error,
        }
    };
    assert!(matches!(refused, Error::ResponseTooLarge { part: "body", .. }), "{refused:?}");
    assert!(received <= 16 << 20 && received > 15 << 20, "{received}");
    assert!(body.frame().await.is_none(), "nothing comes after the refusal");
    timeout(Duration::from_secs(5), watch.recv()).await.expect("the connection is closed");

    let declared = Cloud::answering("HTTP/1.1 200 OK\r\ncontent-length: 16777217\r\n\r\n").await;
    let gate = Watched::new(vec![declared.grant()]);
    let refused = gate.get(&declared.uri("/")).await;
    assert!(matches!(refused, Err(Error::ResponseTooLarge { part: "body", .. })), "{refused:?}");
    let head = http::Request::head(declared.uri("/")).body(Full::<Bytes>::default()).unwrap();
    assert_eq!(gate.gate.send(head, plenty()).await.unwrap().status(), 200, "a HEAD has no body to refuse");
}

#[tokio::test]
async fn row_11_a_huge_response_head_is_refused() {
    let lines = "x-a: b\r\n".repeat(101);
    let long = format!("x-a: {}\r\n", "b".repeat(1 << 20));
    for headers in [lines, long] {
        let cloud = Cloud::answering(format!("HTTP/1.1 200 OK\r\n{headers}content-length: 0\r\n\r\n")).await;
        let gate = Watched::new(vec![cloud.grant()]);
        let refused = gate.get(&cloud.uri("/")).await;
        assert!(matches!(refused, Err(Error::ResponseTooLarge { part: "head", .. })), "{refused:?}");
    }
}

/// 1 MiB of zeros in 1 kB; the same compressed twice would be 1 GiB.
#[tokio::test]
async fn row_11_a_compressed_response_stays_compressed() {
    let begin = b"\x1f\x8b\x08\0\0\0\0\0\x02\x03\xed\xc1\x31\x01\0\0\0\xc2\xa0\xf5\x4f\x6d\x08\x5f\xa0";
    let end = b"\x3e\x03\x1c\xea\x38\xa7\0\0\x10\0";
    let bomb = [&begin[..], &[0; 1016], end].concat();
    let head = format!("HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: {}\r\n\r\n", bomb.len());
    let cloud = Cloud::answering([head.as_bytes(), &bomb].concat()).await;
    let gate = Watched::new(vec![cloud.grant()]);
    let answer = gate.get(&cloud.uri("/")).await.unwrap();
    assert_eq!(answer.headers()["content-encoding"], "gzip");
    assert_eq!(answer.into_body().collect().await.unwrap().to_bytes(), bomb);
    assert!(!cloud.requests()[0].contains("accept-encoding"), "the gate does not add it");
}

#[tokio::test]
async fn row_14_dropping_an_unfinished_read_or_body_closes_its_connection_and_counts_it_once() {
    let (closed, mut watch) = mpsc::unbounded_channel();
    let cloud = Cloud::serving(move |mut stream, seen| {
        let closed = closed.clone();
        async move {
            if seen.request(&mut stream).await.is_some_and(|request| request.contains("/body")) {
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nx").await;
            }
            let _ = closed.send(stream.read(&mut [0]).await.unwrap_or(0));
        }
    })
    .await;
    let gate =
        Watched::with(vec![cloud.grant()], Answers::new(&[&["127.0.0.1"]]), fence::reads(), Fence::default());
    let unfinished = timeout(SHORT, gate.get(&cloud.uri("/head"))).await;
    assert!(unfinished.is_err());
    assert_eq!(timeout(Duration::from_secs(5), watch.recv()).await.unwrap(), Some(0));
    drop(gate.get(&cloud.uri("/body")).await.unwrap());
    assert_eq!(timeout(Duration::from_secs(5), watch.recv()).await.unwrap(), Some(0));
    let metrics = gate.metrics();
    for result in ["cancelled", "ok"] {
        assert!(metrics.contains(&format!(r#"effect="read",result="{result}"}} 1"#)), "{metrics}");
    }
}

#[tokio::test]
async fn row_15_providers_and_grants_share_no_connection() {
    let cloud = Cloud::answering(OK).await;
    let read = Grant { methods: vec!["GET".parse().unwrap()], ..cloud.grant() };
    let write = Grant { methods: vec!["PUT".parse().unwrap()], addresses: Vec::new(), ..cloud.grant() };
    let (one, other) = (Watched::new(vec![read.clone(), write]), Watched::new(vec![read]));
    for gate in [&one, &other] {
        text(gate.get(&cloud.uri("/")).await.unwrap()).await.unwrap();
    }
    assert_eq!(cloud.connections(), 2);
    // The idle connection of the first grant leads there, but the second grant doesn't open loopback.
    let put = http::Request::put(cloud.uri("/")).body(Full::<Bytes>::default()).unwrap();
    let refused = one.gate.send(put, plenty()).await;
    assert!(matches!(refused, Err(Error::AddressBlocked { .. })), "{refused:?}");
}

/// Two providers whose limits have the same key: using one up leaves the other unchanged.
#[tokio::test]
async fn row_15_providers_share_no_limit() {
    let cloud = Cloud::answering(OK).await;
    let gate = |provider: &str| {
        let rules = fence::reads().into_iter();
        let rules = rules.map(|rule| Rule { limits: vec!["reads".parse().unwrap()], ..rule }).collect();
        let limit = Limit::new("reads", 1, 0.5).unwrap();
        let (provider, grants) = (provider.to_owned(), vec![cloud.grant()]);
        let config = Config { provider, grants, rules, limits: vec![limit], ..nothing() };
        Watched::of(config, Answers::new(&[&["127.0.0.1"]]))
    };
    let (one, other) = (gate("one"), gate("other"));
    // A limit is empty at first. Two seconds later both let one request through.
    assert_eq!(one.get(&cloud.uri("/")).await.unwrap().status(), 200);
    for (gate, status) in [(&one, 429), (&other, 200)] {
        let answer = gate.gate.send(get(&cloud.uri("/")), within(Duration::from_secs(1))).await.unwrap();
        assert_eq!(answer.status(), status);
    }
    assert!(one.metrics().contains(r#"provider="one""#) && !one.metrics().contains(r#"provider="other""#));
}

#[tokio::test]
async fn row_15_a_token_of_one_provider_is_not_sent_for_another() {
    let cloud = Cloud::answering(OK).await;
    let folder = tempfile::tempdir().unwrap();
    let gate = |provider: &str, has_token: bool| {
        let path = folder.path().join(provider);
        std::fs::write(&path, format!("token-of-{provider}")).unwrap();
        let credential = Credential {
            name: "main".to_owned(),
            hosts: vec![NAME.parse().unwrap()],
            paths: Vec::new(),
            auxiliary: Vec::new(),
            plain: true,
            addresses: Vec::new(),
            kind: CredentialKind::Bearer { token: Arc::new(SecretFile::new(path)) },
        };
        let credentials = if has_token { vec![credential] } else { Vec::new() };
        let (provider, grants) = (provider.to_owned(), vec![cloud.grant()]);
        let config = Config { provider, grants, credentials, ..nothing() };
        Watched::of(config, Answers::new(&[&["127.0.0.1"]]))
    };
    for (provider, has_token) in [("one", true), ("other", true), ("third", false)] {
        let gate = gate(provider, has_token);
        text(gate.get(&cloud.uri("/")).await.unwrap()).await.unwrap();
        let request = cloud.requests().pop().unwrap();
        let own = format!("authorization: Bearer token-of-{provider}\r\n");
        assert_eq!(request.contains(&own), has_token, "{request}");
        assert_eq!(request.matches("token-of-").count(), usize::from(has_token), "{request}");
    }
}

/// Answers each request before it is sent.
#[derive(Debug)]
struct Answering;

impl Interceptor for Answering {
    fn intercept(&self, _: &Request, _: &[u8], _: &Classification) -> Interception {
        Interception::Respond(http::Response::new(Bytes::new()))
    }
}

/// Eight places in a body of 8 MiB: read for each of them, it took 0.4 s at one go.
#[tokio::test]
async fn row_24_a_long_body_is_read_once_in_a_thread_of_its_own_and_charged_to_the_call() {
    let cloud = Cloud::answering(OK).await;
    let rules = (0..8).map(|number| {
        let operation =
            Operation { place: Place::JsonField(format!("place{number}")), name: "x".parse().unwrap() };
        Rule { method: "POST".parse().unwrap(), operation: Some(operation), ..fence::reads().remove(0) }
    });
    let gate = Watched::with(
        vec![cloud.grant()],
        Answers::new(&[&["127.0.0.1"]]),
        rules.collect(),
        Fence::default(),
    );
    let body = format!("{{\"a\":[{}1],\"place7\":\"y\"}}", "[1,{}],".repeat((8 << 20) / 7 - 10));
    // This runtime has one thread, so a task that computes would stop this clock.
    let longest = Arc::new(Mutex::new(Duration::ZERO));
    let clock = {
        let longest = Arc::clone(&longest);
        tokio::spawn(async move {
            loop {
                let begun = Instant::now();
                tokio::time::sleep(Duration::from_millis(1)).await;
                let mut longest = longest.lock().unwrap();
                *longest = begun.elapsed().max(*longest);
            }
        })
    };
    let account = CpuAccount::new(Duration::MAX);
    // Reading so much would keep the test's cloud busy, and with it the thread.
    let gated = gate.gate.clone().with_account(account.clone()).with_interceptor(Arc::new(Answering));
    let request = http::Request::post(cloud.uri("/")).body(Full::new(Bytes::from(body))).unwrap();
    text(gated.send(request, plenty()).await.unwrap()).await.unwrap();
    clock.abort();
    let (read, stopped) = (account.used(), *longest.lock().unwrap());
    println!("read in {read:?}, the thread stopped for {stopped:?}");
    assert!(!read.is_zero() && read < Duration::from_secs(2), "{read:?}");
    assert!(stopped < read / 2, "read in {read:?}, stopped for {stopped:?}");
    // A request that no grant allows isn't read at all.
    let account = CpuAccount::new(Duration::MAX);
    let gated = gate.gate.clone().with_account(account.clone());
    let denied = http::Request::post("http://denied.test/").body(Full::new(Bytes::from("x".repeat(1 << 20))));
    assert!(matches!(gated.send(denied.unwrap(), plenty()).await, Err(Error::Denied { .. })));
    assert!(account.used().is_zero());
}
