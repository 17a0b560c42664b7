//! Writes that outlive their callers: how long the gate waits for them, how they are recorded, and which writes wait for
//! them.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, StatusCode};
use http_body_util::Full;
use pileus_gate::{Config, Deadlines, Error, Fence, Gate, GateFamily, Metrics, Phase, Source};
use prometheus_client::registry::Registry;
use tokio::io::AsyncWriteExt;
use tokio::sync::Notify;
use tokio::time::timeout;

use crate::cloud::{Answers, Cloud, Unresolved, Watched, nothing, plenty, text, within};
use crate::fence::reads;
use crate::{OK, SHORT};

const SOON: Duration = Duration::from_secs(5);

/// A cloud that answers requests to `/slow` when the test lets it, and all others at once.
async fn cloud() -> (Cloud, Arc<Notify>) {
    let answer = Arc::new(Notify::new());
    let told = answer.clone();
    let cloud = Cloud::serving(move |mut stream, seen| {
        let told = told.clone();
        async move {
            while let Some(request) = seen.request(&mut stream).await {
                if request.contains(" /slow") && !request.contains("another") {
                    told.notified().await;
                }
                if stream.write_all(OK.as_bytes()).await.is_err() {
                    return;
                }
            }
        }
    });
    (cloud.await, answer)
}

fn gate(cloud: &Cloud) -> Watched {
    Watched::with(vec![cloud.grant()], Answers::new(&[&["127.0.0.1"]]), reads(), Fence::default())
}

fn request(cloud: &Cloud, method: Method, path: &str, body: &'static str) -> http::Request<Full<Bytes>> {
    let request = http::Request::builder().method(method).uri(cloud.uri(path));
    request.body(Full::new(Bytes::from_static(body.as_bytes()))).unwrap()
}

/// Sends a write, and drops it when it has arrived.
async fn leave(gate: &Gate, cloud: &Cloud, method: Method, body: &'static str) {
    let before = cloud.requests().len();
    tokio::select! {
        _ = gate.send(request(cloud, method, "/slow", body), plenty()) => unreachable!("the cloud does not answer"),
        () = cloud.arrived(before + 1) => {}
    }
    assert_eq!(gate.writes_in_flight(), 1);
}

#[tokio::test]
async fn a_detached_write_ends_in_one_record_and_its_connection_is_used_again() {
    let (cloud, answer) = cloud().await;
    let gate = gate(&cloud);
    leave(&gate.gate, &cloud, Method::PUT, "body").await;
    assert_eq!(gate.gate.recent(), [], "it isn't over");
    answer.notify_one();
    timeout(SOON, gate.gate.wait_for_writes()).await.unwrap();
    let mut recent = gate.gate.recent();
    while recent.is_empty() {
        // The rest of the response is read.
        tokio::time::sleep(Duration::from_millis(1)).await;
        recent = gate.gate.recent();
    }
    let [seen] = &recent[..] else { unreachable!("{recent:?}") };
    assert!(seen.outlived_caller && seen.source == Source::Cloud, "{seen:?}");
    assert_eq!((seen.status, seen.sent, seen.received), (Some(StatusCode::OK), 4, 2));
    let metrics = gate.metrics();
    assert!(
        metrics.contains(r#"effect="write",result="ok"} 1"#) && !metrics.contains("cancelled"),
        "{metrics}"
    );
    text(gate.get(&cloud.uri("/")).await.unwrap()).await.unwrap();
    assert_eq!((cloud.connections(), gate.gate.recent()[0].outlived_caller), (1, false));
}

#[tokio::test]
async fn a_write_that_has_not_begun_is_canceled_with_its_caller() {
    let cloud = Cloud::answering(OK).await;
    let gate = Watched::with(vec![cloud.grant()], Arc::new(Unresolved), reads(), Fence::default());
    let sending = gate.gate.send(request(&cloud, Method::PUT, "/", "body"), plenty());
    assert!(timeout(SHORT, sending).await.is_err());
    timeout(SOON, gate.gate.wait_for_writes()).await.unwrap();
    let recent = gate.gate.recent();
    let [seen] = &recent[..] else { unreachable!("{recent:?}") };
    assert!(seen.result == "cancelled" && !seen.outlived_caller, "{seen:?}");
}

#[tokio::test]
async fn the_timeout_of_a_caller_does_not_end_its_write() {
    for phase in [Phase::FirstByte, Phase::Call] {
        let (cloud, answer) = cloud().await;
        let gate = gate(&cloud);
        // Enough time to send it.
        let short = Duration::from_secs(1);
        let wish = Deadlines { first_byte: Some(short), ..plenty() };
        let deadlines = if phase == Phase::Call { within(short) } else { wish };
        let late = gate.gate.send(request(&cloud, Method::PUT, "/slow", ""), deadlines).await;
        assert!(matches!(late, Err(Error::Timeout { phase: found, .. }) if found == phase), "{late:?}");
        assert_eq!(gate.gate.writes_in_flight(), 1, "{phase:?}");
        answer.notify_one();
        timeout(SOON, gate.gate.wait_for_writes()).await.unwrap();
        let metrics = gate.metrics();
        assert!(metrics.contains(r#"result="ok"} 1"#) && !metrics.contains("timeout"), "{metrics}");
        // A response in time goes to the caller.
        let (sender, request) = (gate.gate.clone(), request(&cloud, Method::PUT, "/slow", ""));
        let waits = tokio::spawn(async move { text(sender.send(request, plenty()).await?).await });
        cloud.arrived(2).await;
        answer.notify_one();
        assert_eq!(waits.await.unwrap().unwrap(), "ok");
        assert!(!gate.gate.recent()[0].outlived_caller);
    }
}

#[tokio::test]
async fn a_write_in_flight_is_given_up_a_minute_after_it_was_sent() {
    let (cloud, _answer) = cloud().await;
    let gate = gate(&cloud);
    leave(&gate.gate, &cloud, Method::PUT, "").await;
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(59)).await;
    tokio::task::yield_now().await;
    assert_eq!(gate.gate.writes_in_flight(), 1);
    tokio::time::advance(Duration::from_secs(1)).await;
    timeout(SOON, gate.gate.wait_for_writes()).await.unwrap();
    let recent = gate.gate.recent();
    assert_eq!((recent.len(), recent[0].result, recent[0].outlived_caller), (1, "timeout", true));
}

#[tokio::test]
async fn only_writes_to_the_resource_of_a_detached_write_wait() {
    let rows = [
        ((Method::PUT, "one"), (Method::PUT, "/slow", "another"), true),
        ((Method::PUT, "one"), (Method::DELETE, "/slow", "another"), true),
        ((Method::PUT, "one"), (Method::PUT, "/slow?another", ""), true),
        ((Method::PUT, "one"), (Method::PUT, "/slow/another", ""), false),
        ((Method::PUT, "one"), (Method::GET, "/slow", "another"), false),
        ((Method::PUT, "one"), (Method::POST, "/slow", "another"), false),
        ((Method::POST, "one"), (Method::POST, "/slow", "one"), true),
        ((Method::POST, "one"), (Method::POST, "/slow", "another"), false),
        ((Method::POST, "one"), (Method::POST, "/slow?another", "one"), false),
    ];
    for ((method, body), (later, path, another), waits) in rows {
        let name = format!("{method} {body}, then {later} {path} {another}");
        let (cloud, answer) = cloud().await;
        let gate = gate(&cloud);
        leave(&gate.gate, &cloud, method, body).await;
        let (sender, later) = (gate.gate.clone(), request(&cloud, later, path, another));
        let mut later = tokio::spawn(async move { text(sender.send(later, plenty()).await?).await });
        if waits {
            assert!(timeout(SHORT, &mut later).await.is_err(), "{name}");
            assert_eq!(cloud.requests().len(), 1, "{name}");
            answer.notify_one();
            // An equal request is the same change, so it waits too.
            cloud.arrived(2).await;
            answer.notify_one();
        }
        assert_eq!(timeout(SOON, later).await.expect(&name).unwrap().unwrap(), "ok", "{name}");
    }
}

#[tokio::test]
async fn writes_that_are_waited_for_are_not_ordered() {
    let (cloud, _answer) = cloud().await;
    let gate = gate(&cloud);
    let send = || gate.gate.send(request(&cloud, Method::PUT, "/slow", ""), plenty());
    tokio::select! {
        _ = async { tokio::join!(send(), send()) } => unreachable!("the cloud does not answer"),
        () = cloud.arrived(2) => {}
    }
}

#[tokio::test]
async fn a_write_that_waits_in_vain_for_a_detached_one_is_answered_by_the_gate() {
    let (cloud, answer) = cloud().await;
    let gate = gate(&cloud);
    leave(&gate.gate, &cloud, Method::PUT, "").await;
    let refused = gate.gate.send(request(&cloud, Method::PUT, "/slow", ""), within(SHORT)).await.unwrap();
    assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
    let own = refused.headers()["pileus-gate"].to_str().unwrap();
    assert_eq!(own, r#"reason=write_unfinished; limit="none""#);
    let after: u64 = refused.headers()["retry-after"].to_str().unwrap().parse().unwrap();
    assert!((55..=60).contains(&after), "{after}: when it is over for sure");
    let line = r#"pileus_gate_held_back_total{provider="test",limit="none",reason="write_unfinished"} 1"#;
    assert!(gate.metrics().contains(line), "{}", gate.metrics());
    // A closed gate ends the wait, and finishes the detached write.
    let waits = gate.gate.send(request(&cloud, Method::PUT, "/slow", ""), plenty());
    let closes = async {
        tokio::time::sleep(Duration::from_millis(10)).await;
        gate.gate.close();
    };
    let (refused, ()) = tokio::join!(waits, closes);
    assert!(matches!(refused, Err(Error::Closed)), "{refused:?}");
    assert_eq!((cloud.requests().len(), gate.gate.writes_in_flight()), (1, 1));
    answer.notify_one();
    timeout(SOON, gate.gate.wait_for_writes()).await.unwrap();
}

#[tokio::test]
async fn the_gate_of_the_next_release_waits_for_writes_of_the_release_before_and_ends_with_it() {
    let (cloud, answer) = cloud().await;
    let (answers, metrics) = (Answers::new(&[&["127.0.0.1"]]), Metrics::register(&mut Registry::default()));
    let family = GateFamily::with_resolver("test", Fence::default(), &metrics, answers);
    let config = Config { grants: vec![cloud.grant()], rules: reads(), ..nothing() };
    let before = family.gate(config, &metrics).unwrap();
    let config = Config { grants: vec![cloud.grant()], ..nothing() };
    let next = family.gate(config, &metrics).unwrap();
    assert!(next.is(&next.clone()) && !next.is(&before));
    leave(&before, &cloud, Method::PUT, "one").await;
    assert_eq!(next.writes_in_flight(), 1);
    let (sender, later) = (next.clone(), request(&cloud, Method::PUT, "/slow", "another"));
    let mut later = tokio::spawn(async move { text(sender.send(later, plenty()).await?).await });
    assert!(
        timeout(SHORT, &mut later).await.is_err(),
        "two releases never write one resource at the same time"
    );
    answer.notify_one();
    cloud.arrived(2).await;
    answer.notify_one();
    assert_eq!(timeout(SOON, later).await.unwrap().unwrap().unwrap(), "ok");
    assert_eq!(next.recent().len(), 2, "one record");
    before.close();
    let refused = next.send(request(&cloud, Method::GET, "/", ""), plenty()).await;
    assert!(matches!(refused, Err(Error::Closed)), "{refused:?}");
}
