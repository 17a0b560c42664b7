//! Writes at the end of a process: which the fence refuses, which a closed gate gives up, and which it finishes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::Method;
use http_body_util::Full;
use pileus_gate::{Effect, Error, Fence, Rule, View};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::{Notify, mpsc};
use tokio::time::timeout;

use crate::SHORT;
use crate::cloud::{Answers, Cloud, Unresolved, Watched, plenty, rule, text};

const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
const SOON: Duration = Duration::from_secs(5);

/// A fence that can be opened and closed.
fn fence(is_open: &Arc<AtomicBool>) -> Fence {
    let is_open = is_open.clone();
    Fence::new(move || is_open.load(Ordering::SeqCst))
}

/// GET reads; every other method has no rule, so it is a write.
pub(crate) fn reads() -> Vec<Rule> {
    vec![rule("GET", "/**", Effect::Read)]
}

fn gate(cloud: &Cloud, fence: Fence) -> Watched {
    Watched::with(vec![cloud.grant()], Answers::new(&[&["127.0.0.1"]]), reads(), fence)
}

fn request(cloud: &Cloud, method: &Method, body: &'static str) -> http::Request<Full<Bytes>> {
    let request = http::Request::builder().method(method).uri(cloud.uri("/a"));
    request.body(Full::new(Bytes::from_static(body.as_bytes()))).unwrap()
}

/// Every framing of a write.
const CHANGES: [(Method, &str); 5] = [
    (Method::PUT, "body"),
    (Method::PUT, ""),
    (Method::POST, ""),
    (Method::DELETE, ""),
    (Method::DELETE, "body"),
];

#[tokio::test]
async fn a_fence_that_closes_while_connecting_stops_the_change() {
    for (method, body) in CHANGES {
        let (closed, mut watch) = mpsc::unbounded_channel();
        let cloud = Cloud::serving(move |mut stream, _| {
            let closed = closed.clone();
            async move { closed.send(stream.read(&mut [0; 64]).await.unwrap_or(0)).unwrap() }
        })
        .await;
        let is_open = Arc::new(AtomicBool::new(true));
        let resolver = Arc::new(Closing { is_open: is_open.clone() });
        let gate = Watched::with(vec![cloud.grant()], resolver, reads(), fence(&is_open));
        let refused = gate.gate.send(request(&cloud, &method, body), plenty()).await;
        assert!(matches!(refused, Err(Error::Fenced)), "{method} {body:?}: {refused:?}");
        timeout(SOON, gate.gate.wait_for_writes()).await.unwrap();
        let received = timeout(SOON, watch.recv()).await.unwrap();
        assert_eq!(received, Some(0), "{method} {body:?}: connected, and closed without a byte");
    }
}

/// Closes the fence when a connection is about to be made.
#[derive(Debug)]
struct Closing {
    is_open: Arc<AtomicBool>,
}

impl pileus_gate::Resolve for Closing {
    fn resolve(
        &self,
        _: String,
    ) -> std::pin::Pin<Box<dyn Future<Output = std::io::Result<Vec<std::net::IpAddr>>> + Send>> {
        self.is_open.store(false, Ordering::SeqCst);
        Box::pin(async { Ok(vec!["127.0.0.1".parse().unwrap()]) })
    }
}

#[tokio::test]
async fn behind_a_closed_fence_reads_go_on_and_changes_are_not_even_connected() {
    let cloud = Cloud::answering(OK).await;
    let gate = gate(&cloud, Fence::new(|| false));
    for (method, body) in CHANGES {
        let refused = gate.gate.send(request(&cloud, &method, body), plenty()).await;
        assert!(matches!(refused, Err(Error::Fenced)), "{method} {body:?}: {refused:?}");
    }
    assert_eq!(cloud.connections(), 0);
    assert_eq!(text(gate.get(&cloud.uri("/a")).await.unwrap()).await.unwrap(), "ok");
    assert!(gate.metrics().contains(r#"effect="write",result="fenced"} 5"#), "{}", gate.metrics());
}

/// Rules of a provider that calls everything harmless.
fn lax(effect: Effect) -> Vec<Rule> {
    reads().into_iter().map(|rule| Rule { method: "*".parse().unwrap(), effect, ..rule }).collect()
}

#[tokio::test]
async fn no_rule_opens_a_closed_fence() {
    for effect in [Effect::Read, Effect::OperationPoll] {
        let cloud = Cloud::answering(OK).await;
        let names = Answers::new(&[&["127.0.0.1"]]);
        let gate = Watched::with(vec![cloud.grant()], names, lax(effect), Fence::new(|| false));
        for method in ["PUT", "PATCH", "DELETE", "POST", "MERGE", "PURGE"] {
            for view in [None, Some(View::at_most(Duration::from_mins(1)))] {
                let method = Method::from_bytes(method.as_bytes()).unwrap();
                let gate = view.map_or_else(|| gate.gate.clone(), |view| gate.gate.clone().with_view(view));
                let refused = gate.send(request(&cloud, &method, ""), plenty()).await;
                assert!(matches!(refused, Err(Error::Fenced)), "{method} as {effect:?}: {refused:?}");
            }
        }
        let disguised = http::Request::get(cloud.uri("/a?_method=DELETE")).body(Full::default()).unwrap();
        let refused = gate.gate.send(disguised, plenty()).await;
        assert!(matches!(refused, Err(Error::Fenced)), "{refused:?}");
        assert_eq!(cloud.connections(), 0);
        for method in [Method::GET, Method::OPTIONS, Method::HEAD] {
            gate.gate.send(request(&cloud, &method, ""), plenty()).await.unwrap();
        }
    }
}

#[tokio::test]
async fn a_read_by_post_that_waits_while_the_fence_closes_is_not_sent() {
    let (closed, mut watch) = mpsc::unbounded_channel();
    let cloud = Cloud::serving(move |mut stream, _| {
        let closed = closed.clone();
        async move { closed.send(stream.read(&mut [0; 64]).await.unwrap_or(0)).unwrap() }
    })
    .await;
    let is_open = Arc::new(AtomicBool::new(true));
    let resolver = Arc::new(Closing { is_open: is_open.clone() });
    let gate = Watched::with(vec![cloud.grant()], resolver, lax(Effect::Read), fence(&is_open));
    let refused = gate.gate.send(request(&cloud, &Method::POST, "query"), plenty()).await;
    assert!(matches!(refused, Err(Error::Fenced)), "{refused:?}");
    assert_eq!(timeout(SOON, watch.recv()).await.unwrap(), Some(0), "connected, and closed without a byte");
}

#[tokio::test]
async fn what_a_rule_calls_a_read_is_never_answered_from_the_cache_if_it_writes() {
    let cloud = Cloud::answering(OK).await;
    let names = Answers::new(&[&["127.0.0.1"]]);
    let gate = Watched::with(vec![cloud.grant()], names, lax(Effect::Read), Fence::default());
    let view = View::at_most(Duration::from_mins(1));
    let gate = gate.gate.clone().with_view(view);
    let sent = async |method: &Method| {
        let before = cloud.requests().len();
        for _ in 0..3 {
            text(gate.send(request(&cloud, method, ""), plenty()).await.unwrap()).await.unwrap();
        }
        cloud.requests().len() - before
    };
    for (method, expected) in [(Method::GET, 1), (Method::POST, 1), (Method::PUT, 3), (Method::DELETE, 3)] {
        assert_eq!(sent(&method).await, expected, "{method}");
    }
}

#[tokio::test]
async fn an_open_fence_changes_nothing_on_the_wire() {
    let cloud = Cloud::answering(OK).await;
    let gate = gate(&cloud, Fence::default());
    for (method, body) in CHANGES {
        text(gate.gate.send(request(&cloud, &method, body), plenty()).await.unwrap()).await.unwrap();
        let arrived = cloud.requests().pop().unwrap();
        let length = format!("content-length: {}\r\n", body.len());
        let wants_length = method != Method::DELETE || !body.is_empty();
        assert_eq!(arrived.contains(&length), wants_length, "{arrived}");
        assert!(
            !arrived.contains("transfer-encoding") && arrived.ends_with(&format!("\r\n\r\n{body}")),
            "{arrived}"
        );
    }
    assert_eq!(cloud.connections(), 1);
}

/// A cloud that doesn't answer until the test lets it, and reports if that was too late for the caller.
async fn slow(answer: Arc<Notify>) -> (Cloud, mpsc::UnboundedReceiver<()>) {
    let (tell, given_up) = mpsc::unbounded_channel();
    let cloud = Cloud::serving(move |mut stream, seen| {
        let (answer, tell) = (answer.clone(), tell.clone());
        async move {
            seen.request(&mut stream).await;
            let mut more = [0];
            let answered = tokio::select! {
                _ = stream.read(&mut more) => false,
                () = answer.notified() => true,
            };
            if answered {
                stream.write_all(OK.as_bytes()).await.unwrap();
            } else {
                tell.send(()).unwrap();
            }
        }
    });
    (cloud.await, given_up)
}

#[tokio::test]
async fn a_closed_gate_ends_reads_and_finishes_writes_in_flight() {
    let answer = Arc::new(Notify::new());
    let (cloud, mut given_up) = slow(answer.clone()).await;
    let gate = gate(&cloud, Fence::default());
    let send = |method| {
        let (gate, request) = (gate.gate.clone(), request(&cloud, &method, ""));
        tokio::spawn(async move { gate.send(request, plenty()).await })
    };
    let (read, change) = (send(Method::GET), send(Method::PUT));
    timeout(SOON, cloud.arrived(2)).await.unwrap();
    assert_eq!(gate.gate.writes_in_flight(), 1);
    gate.gate.close();
    let unread = timeout(SOON, read).await.unwrap().unwrap();
    assert!(matches!(unread, Err(Error::Closed)), "{unread:?}");
    timeout(SOON, given_up.recv()).await.unwrap();
    for method in [Method::GET, Method::PUT] {
        let refused = gate.gate.send(request(&cloud, &method, ""), plenty()).await;
        assert!(matches!(refused, Err(Error::Closed)), "{refused:?}");
    }
    assert_eq!(gate.gate.writes_in_flight(), 1);
    answer.notify_waiters();
    timeout(SOON, gate.gate.wait_for_writes()).await.unwrap();
    assert_eq!(change.await.unwrap().unwrap().status(), 200);
    assert_eq!(cloud.requests().len(), 2);
}

/// A resolver that never answers, and reports when it is called.
#[derive(Debug)]
struct Never(Notify);

impl pileus_gate::Resolve for Never {
    fn resolve(
        &self,
        _: String,
    ) -> std::pin::Pin<Box<dyn Future<Output = std::io::Result<Vec<std::net::IpAddr>>> + Send>> {
        self.0.notify_one();
        Box::pin(std::future::pending())
    }
}

#[tokio::test]
async fn a_closed_gate_does_not_wait_for_writes_that_have_not_begun() {
    for (method, body) in CHANGES {
        let cloud = Cloud::answering(OK).await;
        let resolver = Arc::new(Never(Notify::new()));
        let gate = Watched::with(vec![cloud.grant()], resolver.clone(), reads(), Fence::default());
        let (sender, request) = (gate.gate.clone(), request(&cloud, &method, body));
        let change = tokio::spawn(async move { sender.send(request, plenty()).await });
        timeout(SOON, resolver.0.notified()).await.unwrap();
        assert_eq!(gate.gate.writes_in_flight(), 1, "it may begin at any moment");
        gate.gate.close();
        timeout(SOON, gate.gate.wait_for_writes()).await.expect("the change is given up");
        let given_up = change.await.unwrap();
        assert!(matches!(given_up, Err(Error::Closed)), "{method} {body:?}: {given_up:?}");
        assert_eq!(cloud.connections(), 0);
    }
}

#[tokio::test]
async fn a_write_in_flight_is_finished_after_its_caller_has_gone() {
    let answer = Arc::new(Notify::new());
    let (cloud, mut given_up) = slow(answer.clone()).await;
    let gate = gate(&cloud, Fence::default());
    tokio::select! {
        _ = gate.gate.send(request(&cloud, &Method::PUT, "body"), plenty()) => unreachable!("the cloud does not answer"),
        () = cloud.arrived(1) => {}
    }
    assert!(timeout(SHORT, given_up.recv()).await.is_err(), "its connection stays");
    assert_eq!(gate.gate.writes_in_flight(), 1);
    answer.notify_waiters();
    timeout(SOON, gate.gate.wait_for_writes()).await.unwrap();
}

#[tokio::test]
async fn a_write_that_has_not_begun_ends_with_its_caller() {
    let cloud = Cloud::answering(OK).await;
    let gate = Watched::with(vec![cloud.grant()], Arc::new(Unresolved), reads(), Fence::default());
    let sending = gate.gate.send(request(&cloud, &Method::PUT, "body"), plenty());
    assert!(timeout(SHORT, sending).await.is_err());
    timeout(SOON, gate.gate.wait_for_writes()).await.unwrap();
    assert_eq!(cloud.connections(), 0);
}
