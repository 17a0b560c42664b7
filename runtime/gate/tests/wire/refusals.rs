//! Refusals whose meaning the provider declares, on real sockets: what closes, what the gate learns and counts, and that the
//! provider sees every response as it was sent.

use std::collections::HashSet;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::StatusCode;
use http_body_util::{BodyExt, Full};
use pileus_gate::{
    Body, CodePlace, Config, CpuAccount, CredentialKind, Effect, Error, Limit, Refusal, RefusalMeaning,
    Replies, ReplyCounts, Rule, View,
};
use tokio::io::AsyncWriteExt;

use crate::OK;
use crate::cloud::{Answers, Cloud, NAME, Watched, get, nothing, plenty, text, within};
use crate::credentials::{answering, credential, file, json};

fn refusal(status: u16, place: CodePlace, code: &str, meaning: RefusalMeaning) -> Refusal {
    let (host, code) = (NAME.parse().unwrap(), code.parse().unwrap());
    Refusal { host, status: StatusCode::from_u16(status).unwrap(), place, code, meaning }
}

fn in_json(path: &str) -> CodePlace {
    CodePlace::Json(path.to_owned())
}

/// What the cloud of these tests means.
fn refusals() -> Vec<Refusal> {
    use RefusalMeaning::{Absent, Later, Locked, Other, Throttled};
    let in_xml = || CodePlace::Xml("Code".to_owned());
    vec![
        refusal(429, in_json("error.code"), "RetryableError", Locked),
        refusal(409, CodePlace::Header("x-code".parse().unwrap()), "Busy*", Locked),
        refusal(429, in_json("error.code"), "Strange", Other),
        refusal(403, in_json("error.errors.0.reason"), "rateLimitExceeded", Throttled),
        refusal(400, in_xml(), "Throttling*", Throttled),
        refusal(400, in_xml(), "*.NotFound", Absent),
        refusal(400, in_json("error.code"), "InUse*", Later),
        refusal(503, in_xml(), "RequestLimitExceeded", Throttled),
        refusal(503, in_json("error.code"), "NotReady", Later),
        refusal(404, in_json("error.code"), "ParentNotFound", Other),
    ]
}

/// The configuration of a gate where GET reads, everything else writes, and all counts against one limit.
fn config(cloud: &Cloud, refusals: Vec<Refusal>) -> Config {
    let rule = |method: &str, effect| Rule {
        host: NAME.parse().unwrap(),
        method: method.parse().unwrap(),
        path: "/**".parse().unwrap(),
        operation: None,
        effect,
        limits: vec!["all".parse().unwrap()],
        cache_scope: None,
        fold_case: false,
        page: None,
    };
    let rules = vec![rule("GET", Effect::Read), rule("*", Effect::Write)];
    let limits = vec![Limit::new("all", 1_000, 1_000.0).unwrap()];
    Config { grants: vec![cloud.grant()], rules, refusals, limits, ..nothing() }
}

fn watched(cloud: &Cloud, refusals: Vec<Refusal>) -> Watched {
    let watched = Watched::of(config(cloud, refusals), Answers::new(&[&["127.0.0.1"]]));
    watched.gate.refill_limits(Duration::MAX);
    watched
}

async fn send(gate: &Watched, method: &str, uri: &str, time: Duration) -> http::Response<Body> {
    let request = http::Request::builder().method(method).uri(uri).body(Full::<Bytes>::default()).unwrap();
    gate.gate.send(request, within(time)).await.unwrap()
}

const LONG: Duration = Duration::from_secs(20);

fn is_own(response: &http::Response<Body>) -> bool {
    response.headers().contains_key("pileus-gate")
}

fn code(code: &str) -> String {
    format!(r#"{{"error": {{"code": "{code}", "message": "m"}}}}"#)
}

fn xml(code: &str) -> String {
    format!("<Response><Errors><Error><Code>{code}</Code></Error></Errors></Response>")
}

fn reason(reason: &str) -> String {
    format!(r#"{{"error": {{"code": 403, "errors": [{{"domain": "usage", "reason": "{reason}"}}]}}}}"#)
}

/// A cloud in which an address can't be deleted once, since its load balancer is being written.
async fn locking() -> Cloud {
    let released = Mutex::new(HashSet::new());
    answering(move |_, request| {
        let path = request.split(' ').nth(1).unwrap().to_owned();
        let is_first = request.starts_with("DELETE /addresses/") && released.lock().unwrap().insert(path);
        if is_first { json(429, &code("RetryableError")) } else { OK.to_owned() }
    })
    .await
}

#[tokio::test]
async fn a_lock_on_100_addresses_while_their_load_balancer_is_written_closes_no_limit() {
    let cloud = locking().await;
    let gate = watched(&cloud, refusals());
    let address = |number: usize| cloud.uri(&format!("/addresses/{number}"));
    for number in 0..100 {
        let locked = send(&gate, "DELETE", &address(number), LONG).await;
        assert_eq!((locked.status().as_u16(), is_own(&locked)), (429, false), "{number}");
        assert_eq!(text(locked).await.unwrap(), code("RetryableError"));
    }
    let limit = &gate.gate.limits().limits[0];
    assert_eq!((limit.paused_for, limit.learned), (None, None));
    // At once: the gate would answer it itself if it had to wait.
    let other = send(&gate, "PUT", &cloud.uri("/loadBalancers/1"), Duration::from_millis(500)).await;
    assert_eq!((other.status().as_u16(), is_own(&other)), (200, false));
    let metrics = gate.metrics();
    assert!(metrics.contains(r#"effect="write",result="locked"} 100"#), "{metrics}");
    assert!(!metrics.contains("pileus_gate_limit_closures_total{"), "{metrics}");
}

#[tokio::test]
async fn a_locked_path_waits_or_is_held_back_for_writes_alone_and_whatever_the_query() {
    let locked = "HTTP/1.1 409 Conflict\r\nx-code: BusyNow\r\nretry-after: 2\r\ncontent-length: 0\r\n\r\n";
    let is_locked = Mutex::new(true);
    let cloud = answering(move |_, request| {
        let is_write = request.starts_with("PUT /a");
        if is_write && std::mem::take(&mut *is_locked.lock().unwrap()) {
            locked.to_owned()
        } else {
            OK.to_owned()
        }
    })
    .await;
    let gate = watched(&cloud, refusals());
    let (uri, begun) = (cloud.uri("/a?version=1"), Instant::now());
    assert_eq!(send(&gate, "PUT", &uri, LONG).await.status(), 409);
    assert_eq!(gate.gate.limits().paused_resources, 1);
    for method in ["PUT", "DELETE", "POST"] {
        let held = send(&gate, method, &cloud.uri("/a?version=2"), Duration::from_millis(200)).await;
        let reason = held.headers()["pileus-gate"].to_str().unwrap().to_owned();
        assert_eq!(
            (held.status().as_u16(), reason.as_str()),
            (429, r#"reason=resource_closed; limit="none""#)
        );
        assert_eq!(held.headers()["retry-after"], "2", "{method}");
    }
    for (method, path) in [("GET", "/a"), ("PUT", "/b"), ("PUT", "/a/b")] {
        let open = send(&gate, method, &cloud.uri(path), Duration::from_millis(500)).await;
        assert_eq!((open.status().as_u16(), is_own(&open)), (200, false), "{method} {path}");
    }
    assert!(begun.elapsed() < Duration::from_secs(2), "the machine is too busy for this test");
    assert_eq!(send(&gate, "PUT", &uri, LONG).await.status(), 200);
    assert!(begun.elapsed() >= Duration::from_millis(1_900), "{:?}", begun.elapsed());
    assert_eq!(gate.gate.limits().paused_resources, 0);
}

#[tokio::test]
async fn throttling_is_what_the_provider_calls_so() {
    let rows = [
        (403, reason("rateLimitExceeded"), true),
        (403, reason("forbidden"), false),
        (400, xml("Throttling"), true),
        (400, xml("ThrottlingException"), true),
        (400, xml("ValidationError"), false),
        (503, xml("RequestLimitExceeded"), true),
        (503, xml("ServiceUnavailable"), false),
        (503, code("NotReady"), false),
        (429, code("TooManyRequests"), true),
        (429, code("Strange"), false),
        (429, String::new(), true),
    ];
    for (status, body, throttles) in rows {
        let cloud = Cloud::answering(json(status, &body)).await;
        let gate = watched(&cloud, refusals());
        for path in ["/1", "/2"] {
            let response = send(&gate, "PUT", &cloud.uri(path), LONG).await;
            assert_eq!((response.status().as_u16(), is_own(&response)), (status, false), "{body}");
            assert_eq!(text(response).await.unwrap(), body);
        }
        let metrics = gate.metrics();
        let closed = r#"pileus_gate_limit_closures_total{provider="test",limit="all"} 1"#;
        assert_eq!(metrics.contains(closed), throttles, "{status} {body}");
        assert_eq!(gate.gate.limits().limits[0].learned.is_some(), throttles, "{status} {body}");
        let is_told = throttles && !matches!(status, 429);
        assert_eq!(metrics.contains(r#"effect="write",result="throttled"} 2"#), is_told, "{metrics}");
    }
}

#[tokio::test]
async fn a_refusal_counts_as_evidence_by_its_meaning() {
    let none = ReplyCounts::default();
    let gone = ReplyCounts { gone: 1, ..none };
    let (changed, refused) = (ReplyCounts { changed: 1, ..none }, ReplyCounts { refused: 1, ..none });
    let failed = ReplyCounts { failed: 1, ..none };
    for (status, body, of_get, of_delete) in [
        (400, xml("InvalidInstanceID.NotFound"), gone, changed),
        (400, xml("ValidationError"), refused, refused),
        (400, xml("Throttling"), failed, failed),
        (400, code("InUseSubnet"), failed, failed),
        (404, code("NotFound"), gone, changed),
        (404, code("ParentNotFound"), refused, refused),
        (429, code("RetryableError"), failed, failed),
        (429, code("Strange"), failed, failed),
    ] {
        for (method, expected) in [("GET", of_get), ("DELETE", of_delete)] {
            for view in [None, Some(View::fresh())] {
                let cloud = Cloud::answering(json(status, &body)).await;
                let (watched, replies) = (watched(&cloud, refusals()), Replies::default());
                let gate = watched.gate.clone().with_replies(replies.clone());
                let gate = match view.clone() {
                    Some(view) => gate.with_view(view),
                    None => gate,
                };
                let request = http::Request::builder().method(method).uri(cloud.uri("/a"));
                let request = request.body(Full::<Bytes>::default()).unwrap();
                let _body = text(gate.send(request, plenty()).await.unwrap()).await;
                assert_eq!(replies.counts(), expected, "{method} {status} {body} {view:?}");
            }
        }
    }
}

#[tokio::test]
async fn a_404_that_is_no_absence_is_not_kept_as_one() {
    for (body, asked) in [(code("NotFound"), 1), (code("ParentNotFound"), 2)] {
        let cloud = Cloud::answering(json(404, &body)).await;
        let gate = watched(&cloud, refusals()).gate.with_view(View::at_most(LONG));
        for _ in 0..2 {
            assert_eq!(text(gate.send(get(&cloud.uri("/a")), plenty()).await.unwrap()).await.unwrap(), body);
        }
        assert_eq!(cloud.requests().len(), asked, "{body}");
    }
}

/// What a provider sees of a response: head, body, and how the body ends.
async fn seen(gate: &Watched, uri: &str) -> (StatusCode, http::HeaderMap, Vec<u8>, Option<String>) {
    let response = gate.gate.send(get(uri), plenty()).await.unwrap();
    let (head, mut body) = response.into_parts();
    let mut received = Vec::new();
    loop {
        match body.frame().await {
            None => return (head.status, head.headers, received, None),
            Some(Ok(frame)) => received.extend_from_slice(&frame.into_data().unwrap()),
            Some(Err(error)) => {
                let label = error.label().to_owned();
                return (head.status, head.headers, received, Some(label));
            }
        }
    }
}

#[tokio::test]
async fn the_provider_sees_every_response_as_without_refusals() {
    let folder = tempfile::tempdir().unwrap();
    let long = |length: usize| {
        format!(r#"{{"error": {{"code": "RetryableError"}}, "m": "{}"}}"#, "x".repeat(length))
    };
    let whole = |body: &str| json(429, body);
    let chunked = |body: &str, size: usize| {
        let chunk = |piece: &[u8]| format!("{:x}\r\n{}\r\n", piece.len(), String::from_utf8_lossy(piece));
        let chunks: Vec<_> = body.as_bytes().chunks(size).map(chunk).collect();
        let head = "HTTP/1.1 429 So\r\ntransfer-encoding: chunked";
        format!("{head}\r\n\r\n{}0\r\nx-trailer: a\r\n\r\n", chunks.concat())
    };
    let answers = [
        whole(""),
        whole(&code("RetryableError")),
        whole(&long(70_000)),
        whole(&long(1 << 20)),
        chunked(&code("RetryableError"), 1),
        chunked(&long(5_000), 1),
        chunked(&long(70_000), 1_000),
        chunked("", 1),
        // Cut off within and after what is read ahead.
        whole(&long(100)).replace("content-length: ", "content-length: 9"),
        whole(&long(200_000)).replace("content-length: ", "content-length: 9"),
    ];
    for answer in answers {
        let cut = answer.contains("content-length: 9");
        let cloud = Cloud::serving(move |mut stream, seen| {
            let answer = answer.clone();
            async move {
                while seen.request(&mut stream).await.is_some() {
                    if stream.write_all(answer.as_bytes()).await.is_err() || cut {
                        return;
                    }
                }
            }
        })
        .await;
        for has_credential in [false, true] {
            let token = file(&folder, "token", "planted-hunter2");
            let credentials = has_credential.then(|| credential(CredentialKind::Bearer { token }));
            let credentials: Vec<_> = credentials.into_iter().collect();
            let mut all = Vec::new();
            for refusals in [Vec::new(), refusals()] {
                let config = Config { credentials: credentials.clone(), ..config(&cloud, refusals) };
                let gate = Watched::of(config, Answers::new(&[&["127.0.0.1"]]));
                all.push(seen(&gate, &cloud.uri("/a")).await);
            }
            let ends: Vec<_> = all.iter().map(|(status, _, body, end)| (status, body.len(), end)).collect();
            assert!(all[0] == all[1], "{ends:?}");
            assert_eq!(all[0].3.is_some(), cut);
        }
    }
}

#[tokio::test]
async fn a_body_that_does_not_come_holds_the_head_back_for_a_moment_and_the_status_counts() {
    let cloud = Cloud::serving(|mut stream, seen| async move {
        seen.request(&mut stream).await;
        let head = b"HTTP/1.1 429 So\r\ncontent-length: 100\r\n\r\n{\"error\": {\"code\": \"Retry";
        stream.write_all(head).await.unwrap();
        std::future::pending::<()>().await;
    })
    .await;
    let gate = watched(&cloud, refusals());
    let begun = Instant::now();
    let response = send(&gate, "PUT", &cloud.uri("/a"), LONG).await;
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    assert_eq!(response.status(), 429);
    let first = response.into_body().frame().await.unwrap().unwrap().into_data().unwrap();
    assert!(first.starts_with(b"{\"error\""));
    let refused = send(&gate, "PUT", &cloud.uri("/a"), Duration::from_millis(100)).await;
    assert!(is_own(&refused), "as a 429 without a meaning");
}

#[tokio::test]
async fn the_search_of_a_write_is_charged_to_its_call() {
    let body = format!(r#"{{"m": "{}", "error": {{"code": "RetryableError"}}}}"#, "x".repeat(60_000));
    let cloud = Cloud::answering(json(429, &body)).await;
    let (gate, account) = (watched(&cloud, refusals()), CpuAccount::new(LONG));
    let charged = gate.gate.clone().with_account(account.clone());
    let put = http::Request::put(cloud.uri("/a")).body(Full::<Bytes>::default()).unwrap();
    assert_eq!(charged.send(put, plenty()).await.unwrap().status(), 429);
    assert!(account.used() > Duration::ZERO);
}

#[tokio::test]
async fn a_provider_learns_nothing_of_its_credential_by_the_codes_that_it_declares() {
    let folder = tempfile::tempdir().unwrap();
    let locked = |code: &str| refusal(429, in_json("got"), code, RefusalMeaning::Locked);
    for (shown, closes) in [("Bearer planted-hunter2", false), ("Bearer planted-nothing", true)] {
        let cloud = Cloud::answering(json(429, &format!(r#"{{"got": "{shown}"}}"#))).await;
        let token = file(&folder, "token", "planted-hunter2");
        let credentials = vec![credential(CredentialKind::Bearer { token })];
        let config = Config { credentials, ..config(&cloud, vec![locked("Bearer planted-*")]) };
        let gate = Watched::of(config, Answers::new(&[&["127.0.0.1"]]));
        let read = text(send(&gate, "PUT", &cloud.uri("/a"), LONG).await).await;
        assert_eq!(matches!(read, Err(Error::CredentialEchoed { .. })), !closes, "{read:?}");
        // As a 429 it closes its path to all writes as well, but it isn't counted as what the code says.
        assert_eq!(gate.metrics().contains(r#"result="locked"} 1"#), closes, "{}", gate.metrics());
    }
}

#[tokio::test]
async fn what_a_header_tells_of_one_limit_empties_that_bucket_alone() {
    const HEADER: &str = "x-ms-ratelimit-remaining-resource";
    let lines = format!("{HEADER}: Compute/High;1,Compute/Other;0\r\n{HEADER}: Compute/More;2\r\n");
    let cloud = Cloud::answering(format!("HTTP/1.1 200 OK\r\n{lines}content-length: 0\r\n\r\n")).await;
    for is_told in [true, false] {
        let mut config = config(&cloud, Vec::new());
        let limit = |key: &str| Limit::new(key, 100, 0.1).unwrap();
        config.limits = ["subscription", "high"].map(limit).into();
        if is_told {
            config.limits[1] = limit("high").with_told_by(HEADER, "compute/high").unwrap();
        }
        for rule in &mut config.rules {
            rule.limits = ["subscription", "high"].map(|key| key.parse().unwrap()).into();
        }
        let gate = Watched::of(config, Answers::new(&[&["127.0.0.1"]]));
        gate.gate.refill_limits(Duration::MAX);
        assert_eq!(gate.get(&cloud.uri("/a")).await.unwrap().status(), 200);
        let left: Vec<_> = gate.gate.limits().limits.iter().map(|limit| limit.tokens.floor()).collect();
        assert_eq!(left, if is_told { [99.0, 1.0] } else { [0.0, 0.0] });
    }
}
