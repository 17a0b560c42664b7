//! How calls of a misbehaving guest end, and that other calls are not affected.

use std::sync::Arc;
use std::time::Duration;

use pileus_cloud::{
    Answer, ErrorKind, Instances as _, LocalAnswer, LocalInstance as _, NodeReference, ProviderId, Purpose,
};
use pileus_host::{Component, Fault, Guest, Limits, Metrics};
use pileus_loader::Verified;
use prometheus_client::registry::Registry;
use tokio::task::JoinSet;

use crate::fixture::{configured, engine, gate, guest, hostile, metrics, node};

/// Little CPU time, so that the tests are short, and long deadlines, within which a busy machine can provide it.
fn limits() -> Limits {
    Limits {
        cpu: Duration::from_millis(200),
        lookup_soft: Duration::from_secs(20),
        lookup_hard: Duration::from_mins(1),
        ..Limits::default()
    }
}

/// For a guest that waits until its deadline.
fn short() -> Limits {
    Limits { lookup_soft: Duration::from_millis(500), lookup_hard: Duration::from_secs(2), ..limits() }
}

/// For a guest that ends for another reason, and needs CPU time until then.
fn roomy() -> Limits {
    Limits { cpu: Limits::default().cpu, ..limits() }
}

type Check = fn(&Fault) -> bool;

/// A behavior, the limits of its calls, and the check of their fault.
type Row = (&'static str, fn() -> Limits, Check);

/// The result of a lookup of one Node: its only answer, or the fault.
async fn lookup(guest: &Guest) -> Result<Result<Answer, pileus_cloud::Error>, Fault> {
    let answers = guest.lookup_once(Purpose::Initialise, &[node("a")]).await?;
    Ok(answers.map_or_else(Err, |mut answers| answers.remove(0)))
}

#[tokio::test(flavor = "multi_thread")]
async fn row_18_every_misbehavior_has_its_own_fault_and_the_engine_keeps_working() {
    let engine = engine();
    let rows: [Row; 11] = [
        ("loop", limits, |fault| *fault == Fault::Cpu { limit: limits().cpu }),
        ("recurse", roomy, |fault| *fault == Fault::StackOverflow),
        ("grow", roomy, |fault| matches!(fault, Fault::Memory { limit, .. } if *limit == limits().memory)),
        ("trap", roomy, |fault| matches!(fault, Fault::Trapped { stderr_tail: None, .. })),
        ("panic", roomy, |fault| {
            matches!(fault, Fault::Trapped { stderr_tail: Some(words), .. }
                if words.contains("behavior.rs") && words.contains("hostile panic about hostile://a"))
        }),
        ("sleep", short, |fault| *fault == Fault::Deadline { limit: short().lookup_hard, unanswered: None }),
        ("stdout-flood", limits, |fault| matches!(fault, Fault::Cpu { .. })),
        ("log-flood", limits, |fault| matches!(fault, Fault::Cpu { .. } | Fault::Exhausted(_))),
        ("huge-answer", roomy, |fault| matches!(fault, Fault::Exhausted(_))),
        ("random-flood", roomy, |fault| matches!(fault, Fault::Exhausted(_))),
        ("handles", roomy, |fault| matches!(fault, Fault::Exhausted(_))),
    ];
    for (behaviour, limits, is_expected) in rows {
        let guest = hostile(&engine, behaviour, limits()).await;
        let fault = lookup(&guest).await.expect_err(behaviour);
        assert!(is_expected(&fault), "{behaviour}: {fault:?}");
        let error = guest.lookup(Purpose::Initialise, &[node("a")]).await.expect_err(behaviour);
        assert_eq!(error.kind, ErrorKind::Broken, "{behaviour}");
        assert!(error.message.starts_with("provider hostile: lookup "), "{error}");
    }
    let echo = hostile(&engine, "echo", limits()).await;
    let Ok(Ok(Answer::Found(found))) = lookup(&echo).await else { panic!("the engine is damaged") };
    assert_eq!(found.provider_id.as_str(), "hostile://a");
}

#[tokio::test]
async fn a_call_is_in_flight_until_it_ends_or_is_dropped() {
    let mut registry = Registry::default();
    let metrics = Metrics::register(&mut registry);
    let in_flight = |count| {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        let line = format!("pileus_provider_in_flight{{provider=\"hostile\",function=\"lookup\"}} {count}\n");
        text.contains(&line)
    };
    let guest =
        configured(&engine(), r#"{"behaviour": "sleep"}"#, gate(Vec::new()), limits(), &metrics).await;
    let mut call = Box::pin(guest.lookup_once(Purpose::Initialise, &[]));
    assert!(futures::poll!(call.as_mut()).is_pending());
    assert!(in_flight(1));
    drop(call);
    while !in_flight(0) {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn other_calls_continue_while_guests_loop_and_sleep() {
    let engine = engine();
    let long = || Limits { cpu: Duration::from_secs(2), lookup_hard: Duration::from_secs(8), ..limits() };
    let looping = hostile(&engine, "loop", long()).await;
    let sleeping = hostile(&engine, "sleep", long()).await;
    let echo = hostile(&engine, "echo", limits()).await;
    let mut bad = JoinSet::new();
    for guest in [&looping, &looping, &looping, &looping, &sleeping, &sleeping] {
        let guest = Arc::clone(guest);
        bad.spawn(async move { lookup(&guest).await });
    }
    for _ in 0..20 {
        let answer = lookup(&echo).await;
        assert!(matches!(answer, Ok(Ok(Answer::Found(_)))), "{answer:?}");
    }
    assert!(bad.try_join_next().is_none(), "all bad calls still run: the good calls did not wait for them");
    while let Some(ended) = bad.join_next().await {
        let fault = ended.unwrap().unwrap_err();
        assert!(matches!(fault, Fault::Cpu { .. } | Fault::Deadline { .. }), "{fault:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn waiting_uses_no_cpu_time() {
    let guest = hostile(&engine(), "nap", Limits { cpu: Duration::from_millis(100), ..limits() }).await;
    let answer = lookup(&guest).await;
    assert!(matches!(answer, Ok(Ok(Answer::Found(_)))), "600 ms of naps, 100 ms of CPU time: {answer:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_guest_that_loops_is_charged_for_its_own_cpu_time() {
    let engine = engine();
    let looping = hostile(&engine, "loop", limits()).await;
    let mut loops = JoinSet::new();
    for _ in 0..6 {
        let looping = Arc::clone(&looping);
        loops.spawn(async move { lookup(&looping).await });
    }
    while let Some(ended) = loops.join_next().await {
        assert_eq!(ended.unwrap().unwrap_err(), Fault::Cpu { limit: limits().cpu });
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_answer_violates_the_contract() {
    let guest = hostile(&engine(), "misaligned", limits()).await;
    let fault = guest.lookup_once(Purpose::Refresh, &[node("a"), node("b")]).await.unwrap_err();
    assert_eq!(fault, Fault::Contract("lookup returned 1 answers about 2 nodes".to_owned()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_without_a_grant_is_denied_and_the_error_says_what_to_grant() {
    let guest = hostile(&engine(), "denied-host", limits()).await;
    let error = lookup(&guest).await.unwrap().unwrap_err();
    assert_eq!(error.kind, ErrorKind::Denied, "{error}");
    for part in ["GET http://denied.example/", "provider hostile", "add a grant", "`port: 80`"] {
        assert!(error.message.contains(part), "{part:?} is missing: {error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_of_configure_is_denied_and_reported() {
    let component =
        Component::load(&engine(), Verified::from_operator(guest("hostile_provider"), "test")).await.unwrap();
    let document = r#"{"behaviour": "ask-in-configure"}"#;
    let error = component.configure(document, &limits(), &metrics()).await.unwrap_err().to_string();
    for part in ["HttpRequestDenied", "GET http://denied.example/path is denied: configure has no network"] {
        assert!(error.contains(part), "{part:?} is missing: {error}");
    }
    assert!(!error.contains("secret"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn row_19_a_sandbox_exposes_nothing_of_the_host() {
    let engine = engine();
    let component =
        Component::load(&engine, Verified::from_operator(guest("hostile_provider"), "test")).await.unwrap();
    for linked in
        ["wasi:sockets/tcp@", "wasi:sockets/udp@", "wasi:filesystem/types@", "wasi:cli/environment@"]
    {
        assert!(component.imports.iter().any(|import| import.starts_with(linked)), "{linked} is not tried");
    }
    let guest = hostile(&engine, "peek", limits()).await;
    let Answer::Found(found) = lookup(&guest).await.unwrap().unwrap() else { panic!("found") };
    for (what, seen) in &found.labels {
        match what.as_str() {
            "variables" | "arguments" => assert_eq!(seen, "0", "{what}"),
            "input" => assert_eq!(seen, "empty"),
            _ => assert_ne!(seen, "allowed", "{what}"),
        }
    }
    assert_eq!(found.labels.len(), 9);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_instance_of_this_machine_is_described_in_a_call_like_any_other() {
    let engine = engine();
    let echo = hostile(&engine, "echo", limits()).await;
    let answer = echo.describe(&node("a")).await.unwrap();
    let LocalAnswer::Found(found) = answer else { panic!("{answer:?}") };
    assert_eq!(found.provider_id.as_str(), "hostile://a");
    let other = NodeReference { provider_id: Some(ProviderId::parse("hostile://b").unwrap()), ..node("a") };
    let error = echo.describe(&other).await.unwrap_err();
    assert!(error.message.contains("hostile://a") && error.message.contains("hostile://b"), "{error}");
    for (behaviour, limits) in [("panic", roomy()), ("loop", limits()), ("sleep", short())] {
        let error = hostile(&engine, behaviour, limits).await.describe(&node("a")).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Broken, "{behaviour}: {error}");
        assert!(error.message.contains("provider hostile: describe-local-instance"), "{behaviour}: {error}");
    }
}
