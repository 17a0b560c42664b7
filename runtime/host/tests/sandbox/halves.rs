//! A provider that fails at one Node of a batch: that Node has an error of its own, all others have their answers.

use std::sync::Arc;
use std::time::{Duration, Instant};

use pileus_cloud::{Answer, Error, ErrorKind, Instances as _, Purpose};
use pileus_host::{Guest, Limits, Metrics};
use prometheus_client::registry::Registry;

use crate::fixture::{configured, count, engine, gate, nodes};

/// A guest that does this at one Node, or at all, and what is counted of it.
async fn fails(behaviour: &str, only: Option<&str>, hard: Duration) -> (Arc<Guest>, Registry) {
    let mut registry = Registry::default();
    let metrics = Metrics::register(&mut registry);
    let configuration = serde_json::json!({"behaviour": behaviour, "only": only}).to_string();
    // Past its soft deadline, as where it had to wait for a processor, a guest begins nothing, and nothing goes wrong.
    let limits = Limits { lookup_soft: hard, lookup_hard: hard, ..Limits::default() };
    (configured(&engine(), &configuration, gate(Vec::new()), limits, &metrics).await, registry)
}

/// Each Node has the answer of its own, but for this one, which has an error that names it.
fn assert_one_fails(answers: &[Result<Answer, Error>], culprit: usize, parts: &[&str]) {
    for (place, answer) in answers.iter().enumerate() {
        match answer {
            Ok(Answer::Found(found)) => {
                assert_eq!(found.provider_id.as_str(), format!("hostile://node-{place}"));
                assert_ne!(place, culprit);
            }
            Err(error) => {
                assert_eq!((place, error.kind), (culprit, ErrorKind::Broken), "{error}");
                for part in parts {
                    assert!(error.message.contains(part), "{part:?} is missing: {error}");
                }
            }
            Ok(other) => panic!("{place}: {other:?}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_trap_about_one_node_of_300_costs_the_others_nothing() {
    let (guest, registry) = fails("panic", Some("node-137"), Duration::from_secs(20)).await;
    let answers = guest.lookup(Purpose::Initialise, &nodes("node", 300)).await.unwrap();
    assert_eq!(answers.len(), 300);
    assert_one_fails(&answers, 137, &["provider hostile: lookup of node node-137 trapped", "hostile panic"]);
    assert_eq!(count(&registry, "culprits"), 1);
    let repeats = count(&registry, "repeats");
    assert!((9..=18).contains(&repeats), "9 levels of halves: {repeats}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sleeper_is_found_in_less_and_less_time() {
    let (guest, _) = fails("sleep", Some("node-3"), Duration::from_secs(2)).await;
    let answers = guest.lookup(Purpose::Initialise, &nodes("node", 4)).await.unwrap();
    assert_one_fails(&answers, 3, &["lookup of node node-3 stopped at its deadline of 500 ms"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn where_every_node_hangs_the_search_ends_in_time_with_an_error_for_each() {
    let hard = Duration::from_secs(2);
    let (guest, registry) = fails("sleep", None, hard).await;
    let started = Instant::now();
    let answers = guest.lookup(Purpose::Refresh, &nodes("node", 500)).await.unwrap();
    let took = started.elapsed();
    assert_eq!(answers.len(), 500);
    let is_broken =
        |answer: &Result<_, Error>| answer.as_ref().is_err_and(|error| error.kind == ErrorKind::Broken);
    assert_eq!(answers.iter().find(|answer| !is_broken(answer)), None);
    // One call, three times as long for repeats, and what the last of them takes.
    assert!(took < hard * 10, "{took:?}");
    assert!((4..32).contains(&count(&registry, "repeats")), "time ended it, not their number");
    assert_eq!(count(&registry, "culprits"), 0, "nobody was alone");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cloud_that_has_had_enough_is_not_asked_for_the_culprit() {
    let (guest, registry) = fails("overload", None, Duration::from_secs(20)).await;
    let answers = guest.lookup(Purpose::Refresh, &nodes("node", 16)).await.unwrap();
    assert_eq!(answers.len(), 16);
    let throttled = ErrorKind::Throttled(Some(Duration::from_secs(7)));
    assert!(answers.iter().all(|answer| answer.as_ref().is_err_and(|error| error.kind == throttled)));
    assert_eq!(count(&registry, "repeats"), 3, "twice eight, and the first four");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lookup_of_one_node_is_not_repeated() {
    let (guest, registry) = fails("trap", None, Duration::from_secs(20)).await;
    let error = guest.lookup(Purpose::Initialise, &nodes("node", 1)).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Broken);
    assert_eq!(count(&registry, "repeats"), 0);
}
