//! The gate on real sockets: what arrives at a cloud, what comes back, and what becomes of clouds that misbehave. The
//! names of the tests are the claims; most are rows of the list of attacks that a gate must withstand.

#![expect(clippy::unwrap_used, reason = "a test that can't go on should stop")]

mod cloud;
mod environment;
mod fence;
mod limits;
mod proxy;
mod recent;

use std::{sync::atomic::Ordering, time::Duration};

use bytes::Bytes;
use cloud::{Answers, Cloud, Log, NAME, Unresolved, Watched, get, plenty, text, within};
use futures::stream;
use http_body_util::{BodyExt, Full, StreamBody};
use pileus_gate::{Deadlines, Error, Fence, Grant, Missing, Phase, Reason};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
    sync::mpsc,
    time::timeout,
};

const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
/// Long for loopback, short for a test.
const SHORT: Duration = Duration::from_millis(150);

#[tokio::test]
async fn a_redirect_is_returned_as_it_is_and_never_followed() {
    let elsewhere = Cloud::answering(OK).await;
    for status in [301, 302, 307, 308] {
        let location = elsewhere.uri("/latest/meta-data");
        let answer =
            format!("HTTP/1.1 {status} Elsewhere\r\nlocation: {location}\r\ncontent-length: 0\r\n\r\n");
        let cloud = Cloud::answering(answer).await;
        // Even where the target is granted: the provider decides where it goes.
        let gate = Watched::new(vec![cloud.grant(), elsewhere.grant()]);
        let found = gate.get(&cloud.uri("/")).await.unwrap();
        assert_eq!(found.status(), status);
        assert_eq!(found.headers()["location"], location);
    }
    assert_eq!(elsewhere.connections(), 0);
}

#[tokio::test]
async fn a_connection_is_used_again() {
    let cloud = Cloud::answering(OK).await;
    let answers = Answers::new(&[&["127.0.0.1"]]);
    let gate = Watched::resolving(vec![cloud.grant()], answers.clone());
    for _ in 0..5 {
        let (gate, request) = (gate.gate.clone(), get(&cloud.uri("/")));
        // A task of its own for each, as the host has one for each request of a provider.
        let answer = tokio::spawn(async move { text(gate.send(request, plenty()).await?).await });
        assert_eq!(answer.await.unwrap().unwrap(), "ok");
    }
    assert_eq!((cloud.connections(), cloud.requests().len()), (1, 5));
    assert_eq!(answers.lookups.load(Ordering::SeqCst), 1, "resolved once a connection");
}

#[tokio::test]
async fn neither_two_providers_nor_two_grants_share_a_connection() {
    let cloud = Cloud::answering(OK).await;
    let read = Grant { methods: vec!["GET".parse().unwrap()], ..cloud.grant() };
    let write = Grant { methods: vec!["PUT".parse().unwrap()], addresses: Vec::new(), ..cloud.grant() };
    let (one, other) = (Watched::new(vec![read.clone(), write]), Watched::new(vec![read]));
    for gate in [&one, &other] {
        text(gate.get(&cloud.uri("/")).await.unwrap()).await.unwrap();
    }
    assert_eq!(cloud.connections(), 2);
    // The idle connection of the first grant would do, but the second one doesn't open loopback.
    let put = http::Request::put(cloud.uri("/")).body(Full::<Bytes>::default()).unwrap();
    let refused = one.gate.send(put, plenty()).await;
    assert!(matches!(refused, Err(Error::AddressBlocked { .. })), "{refused:?}");
}

#[tokio::test]
async fn a_path_in_absolute_form_never_reaches_a_wire() {
    let cloud = Cloud::answering(OK).await;
    let gate = Watched::new(vec![cloud.grant()]);
    for path in ["http://evil.test/", "//evil.test/", "*"] {
        let uri = http::Uri::builder().scheme("http").authority(format!("{NAME}:{}", cloud.port));
        // Some versions of the HTTP types refuse these by themselves, which is as good.
        let Ok(uri) = uri.path_and_query(path).build() else { continue };
        let mut request = get("http://replaced/");
        *request.uri_mut() = uri;
        let refused = gate.gate.send(request, plenty()).await;
        assert!(matches!(refused, Err(Error::Malformed { part: "path", .. })), "{path}: {refused:?}");
    }
    text(gate.get(&cloud.uri("/a/%62?c=%64")).await.unwrap()).await.unwrap();
    let lines = cloud.requests().concat();
    let host = format!("host: {NAME}:{}", cloud.port);
    assert!(lines.starts_with("GET /a/b?c=%64 HTTP/1.1\r\n") && lines.contains(&host), "{lines}");
}

#[tokio::test]
async fn exactly_one_framing_and_no_forbidden_header_arrive() {
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
    // All but Host, the two Content-Length and Accept.
    let label = format!(r#"provider="test",grant="http://{NAME}:{}""#, cloud.port);
    let line = format!("pileus_gate_stripped_headers_total{{{label}}} 8\n");
    assert!(gate.metrics().contains(&line), "{}", gate.metrics());
}

#[tokio::test]
async fn an_answer_loses_cookies_hop_by_hop_headers_and_trailers_and_stays_encoded() {
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
async fn a_cloud_that_never_answers_is_given_up_at_the_first_byte_wish() {
    let (closed, mut watch) = mpsc::unbounded_channel();
    let cloud = Cloud::serving(move |mut stream, seen| {
        let closed = closed.clone();
        async move {
            seen.request(&mut stream).await;
            // One byte of the head in the middle doesn't help.
            let _ = stream.write_all(b"HTTP/1.1 ").await;
            let _ = closed.send(stream.read(&mut [0]).await.unwrap_or(0));
        }
    })
    .await;
    let gate = Watched::new(vec![cloud.grant()]);
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
async fn a_name_that_is_never_resolved_is_given_up_at_the_connect_wish() {
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
async fn a_body_that_stalls_ends_at_the_between_bytes_wish_and_one_that_drips_at_the_hard_deadline() {
    let stalls = dripping(Duration::from_mins(1)).await;
    let gate = Watched::new(vec![stalls.grant()]);
    let deadlines = Deadlines { between_bytes: Some(SHORT), ..plenty() };
    let answer = gate.gate.send(get(&stalls.uri("/")), deadlines).await.unwrap();
    // The provider's own pause isn't the cloud's.
    tokio::time::sleep(SHORT * 2).await;
    let broken = text(answer).await;
    assert!(matches!(broken, Err(Error::Timeout { phase: Phase::BetweenBytes, .. })), "{broken:?}");
    assert!(gate.metrics().contains(r#"result="timeout"} 1"#), "{}", gate.metrics());

    let drips = dripping(Duration::from_millis(10)).await;
    let gate = Watched::new(vec![drips.grant()]);
    let deadlines = Deadlines { between_bytes: Some(SHORT), ..within(SHORT * 3) };
    let answer = gate.gate.send(get(&drips.uri("/")), deadlines).await.unwrap();
    let broken = text(answer).await;
    assert!(matches!(broken, Err(Error::Timeout { phase: Phase::Call, .. })), "{broken:?}");
}

#[tokio::test]
async fn an_endless_answer_is_cut_at_its_cap_and_a_declared_one_refused_at_once() {
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
async fn a_huge_head_of_an_answer_is_refused() {
    let lines = "x-a: b\r\n".repeat(101);
    let long = format!("x-a: {}\r\n", "b".repeat(1 << 20));
    for headers in [lines, long] {
        let cloud = Cloud::answering(format!("HTTP/1.1 200 OK\r\n{headers}content-length: 0\r\n\r\n")).await;
        let gate = Watched::new(vec![cloud.grant()]);
        let refused = gate.get(&cloud.uri("/")).await;
        assert!(matches!(refused, Err(Error::ResponseTooLarge { part: "head", .. })), "{refused:?}");
    }
}

#[tokio::test]
async fn of_mixed_answers_only_the_permitted_address_gets_a_connection() {
    let good = Cloud::answering(OK).await;
    let bad = TcpListener::bind(("127.0.0.2", good.port)).await.unwrap();
    let bad = Cloud::on(bad, |_, _| async {});
    let grant = Grant { addresses: vec!["127.0.0.1/32".parse().unwrap()], ..good.grant() };
    let answers = Answers::new(&[&["127.0.0.2", "169.254.169.254", "::1", "127.0.0.1"]]);
    let gate = Watched::resolving(vec![grant], answers);
    text(gate.get(&good.uri("/")).await.unwrap()).await.unwrap();
    assert_eq!((good.connections(), bad.connections()), (1, 0));
}

#[tokio::test]
async fn the_second_address_is_dialled_when_the_first_takes_no_connection() {
    let cloud = Cloud::answering(OK).await;
    let gate = Watched::resolving(vec![cloud.grant()], Answers::new(&[&["127.0.0.3", "127.0.0.1"]]));
    assert_eq!(gate.get(&cloud.uri("/")).await.unwrap().status(), 200);
}

#[tokio::test]
async fn a_name_that_turns_to_another_address_later_is_checked_again() {
    let closing = "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
    let cloud = Cloud::answering(closing).await;
    let grant = Grant { addresses: vec!["127.0.0.1/32".parse().unwrap()], ..cloud.grant() };
    let answers = Answers::new(&[&["127.0.0.1"], &["127.0.0.2"]]);
    let gate = Watched::resolving(vec![grant], answers);
    assert!(gate.get(&cloud.uri("/")).await.is_ok());
    let refused = gate.get(&cloud.uri("/")).await;
    assert!(
        matches!(&refused, Err(Error::AddressBlocked { refused, .. })
            if *refused == [("127.0.0.2".parse().unwrap(), Reason::Loopback)]),
        "{refused:?}"
    );
}

#[tokio::test]
async fn a_literal_address_passes_the_same_filter_in_every_spelling() {
    let cloud = Cloud::answering(OK).await;
    let host = "127.0.0.1".parse().unwrap();
    let named = Grant { host, addresses: Vec::new(), ..cloud.grant() };
    let spellings =
        ["127.0.0.1", "127.1", "0x7f000001", "2130706433", "0177.0.0.1", "[::ffff:7f00:1]", "127.0.0.1."];
    for spelling in spellings {
        let uri = format!("http://{spelling}:{}/", cloud.port);
        let refused = Watched::new(vec![named.clone()]).get(&uri).await;
        assert!(matches!(refused, Err(Error::AddressBlocked { .. })), "{spelling}: {refused:?}");
    }
    assert_eq!(cloud.connections(), 0);
    let opened = Grant { addresses: vec!["127.0.0.1/32".parse().unwrap()], ..named };
    let gate = Watched::new(vec![opened]);
    for spelling in spellings {
        let uri = format!("http://{spelling}:{}/", cloud.port);
        assert_eq!(text(gate.get(&uri).await.unwrap()).await.unwrap(), "ok", "{spelling}");
    }
    assert_eq!(cloud.connections(), 1, "one host, however it is spelled");
}

#[tokio::test]
async fn metadata_services_are_denied_without_a_grant_and_blocked_by_address_with_one() {
    let cloud = Cloud::answering(OK).await;
    let anything = |host: &str, tls, port| Grant { host: host.parse().unwrap(), tls, port, ..cloud.grant() };
    let hosts = [
        "169.254.169.254",
        "[fd00:ec2::254]",
        "100.100.100.200",
        "192.0.0.192",
        "168.63.129.16",
        "[64:ff9b::a9fe:a9fe]",
        "[2002:a9fe:a9fe::1]",
    ];
    for host in hosts {
        let uri = format!("http://{host}/latest/meta-data");
        let denied = Watched::new(vec![cloud.grant()]).get(&uri).await;
        assert!(
            matches!(denied, Err(Error::Denied { missing: Missing::Endpoint { .. }, .. })),
            "{host}: {denied:?}"
        );
        let blocked = Watched::new(vec![anything(host, false, 80)]).get(&uri).await;
        assert!(matches!(blocked, Err(Error::AddressBlocked { .. })), "{host}: {blocked:?}");
    }
    let name = "metadata.google.internal";
    let answers = Answers::new(&[&["169.254.169.254"]]);
    let blocked =
        Watched::resolving(vec![anything(name, false, 80)], answers).get(&format!("http://{name}/")).await;
    assert!(matches!(blocked, Err(Error::AddressBlocked { .. })), "{blocked:?}");
}

#[tokio::test]
async fn a_connection_that_is_not_opened_is_counted_with_the_reason() {
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
async fn a_denial_names_what_was_wished_and_what_to_add_but_no_query() {
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

#[tokio::test]
async fn metrics_carry_the_labels_of_grants_and_neither_hosts_nor_queries_of_requests() {
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
async fn logs_say_which_request_it_was_and_carry_neither_its_query_nor_its_headers() {
    let cloud = Cloud::answering(OK).await;
    let gate = Watched::new(vec![cloud.grant()]);
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_ansi(false)
        .with_max_level(tracing::Level::TRACE)
        .with_writer(move || writer.clone());
    // For the whole process: tracing may remember of a place in the code that nobody listens, where another test's thread
    // came by first. What the other tests log is told apart by what is asked for.
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

#[tokio::test]
async fn dropping_an_unfinished_read_or_body_closes_its_connection_and_counts_it_once() {
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
async fn nothing_is_sent_past_the_soft_deadline() {
    let cloud = Cloud::answering(OK).await;
    let gate = Watched::new(vec![cloud.grant()]);
    let deadlines = Deadlines { soft: tokio::time::Instant::now(), ..plenty() };
    let refused = gate.gate.send(get(&cloud.uri("/")), deadlines).await;
    assert!(matches!(refused, Err(Error::DeadlinePassed)), "{refused:?}");
    assert_eq!(cloud.connections(), 0);
}

#[tokio::test]
async fn a_request_that_left_is_not_sent_again_when_the_connection_breaks() {
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
async fn a_host_that_takes_no_connection_or_speaks_no_tls_is_told_apart() {
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
