//! A provider that fails at one Node of a batch: that Node gets an error of its own, and all others get answers.

use std::sync::Arc;
use std::time::{Duration, Instant};

use pileus_cloud::{Answer, Error, ErrorKind, Instances as _, Purpose};
use pileus_host::{Guest, Limits, Metrics};
use prometheus_client::registry::Registry;

use crate::fixture::{configured, count, engine, gate, nodes};

/// A guest with this behavior at one Node, or at all Nodes, and its metrics.
async fn fails(behaviour: &str, only: Option<&str>, hard: Duration) -> (Arc<Guest>, Registry) {
    let mut registry = Registry::default();
    let metrics = Metrics::register(&mut registry);
    let configuration = serde_json::json!({"behaviour": behaviour, "only": only}).to_string();
    // After its soft deadline, a guest starts nothing, and so it would not fail on a busy machine.
    let limits = Limits { lookup_soft: hard, lookup_hard: hard, ..Limits::default() };
    (configured(&engine(), &configuration, gate(Vec::new()), limits, &metrics).await, registry)
}

/// Each Node has its own answer, except for one, which has an error with these parts.
fn assert_one_fails(answers: &[Result<Answer, Error>], failing: usize, parts: &[&str]) {
    for (place, answer) in answers.iter().enumerate() {
        match answer {
            Ok(Answer::Found(found)) => {
                assert_eq!(found.provider_id.as_str(), format!("hostile://node-{place}"));
                assert_ne!(place, failing);
            }
            Err(error) => {
                assert_eq!((place, error.kind), (failing, ErrorKind::Broken), "{error}");
                for part in parts {
                    assert!(error.message.contains(part), "{part:?} is missing: {error}");
                }
            }
            Ok(other) => panic!("{place}: {other:?}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_trap_about_one_node_of_300_does_not_affect_the_others() {
    let (guest, registry) = fails("panic", Some("node-137"), Duration::from_secs(20)).await;
    let answers = guest.lookup(Purpose::Initialise, &nodes("node", 300)).await.unwrap();
    assert_eq!(answers.len(), 300);
    assert_one_fails(&answers, 137, &["provider hostile: lookup of node node-137 trapped", "hostile panic"]);
    assert_eq!(count(&registry, "culprits"), 1);
    let repeats = count(&registry, "repeats");
    assert!((9..=18).contains(&repeats), "9 levels: {repeats}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_at_which_a_guest_sleeps_is_found_with_shorter_and_shorter_deadlines() {
    let (guest, _) = fails("sleep", Some("node-3"), Duration::from_secs(2)).await;
    let answers = guest.lookup(Purpose::Initialise, &nodes("node", 4)).await.unwrap();
    assert_one_fails(&answers, 3, &["lookup of node node-3 stopped at its deadline of 500 ms"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn where_the_guest_hangs_at_every_node_the_search_ends_in_time_with_an_error_for_each() {
    let hard = Duration::from_secs(2);
    let (guest, registry) = fails("sleep", None, hard).await;
    let started = Instant::now();
    let answers = guest.lookup(Purpose::Refresh, &nodes("node", 500)).await.unwrap();
    let took = started.elapsed();
    assert_eq!(answers.len(), 500);
    let is_broken =
        |answer: &Result<_, Error>| answer.as_ref().is_err_and(|error| error.kind == ErrorKind::Broken);
    assert_eq!(answers.iter().find(|answer| !is_broken(answer)), None);
    // One call, three times as long for repeats, and the last repeat.
    assert!(took < hard * 10, "{took:?}");
    assert!(
        (4..32).contains(&count(&registry, "repeats")),
        "the time ended the search, not the number of repeats"
    );
    assert_eq!(count(&registry, "culprits"), 0, "no node was repeated alone");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_throttled_part_ends_the_search() {
    let (guest, registry) = fails("overload", None, Duration::from_secs(20)).await;
    let answers = guest.lookup(Purpose::Refresh, &nodes("node", 16)).await.unwrap();
    assert_eq!(answers.len(), 16);
    let throttled = ErrorKind::Throttled(Some(Duration::from_secs(7)));
    assert!(answers.iter().all(|answer| answer.as_ref().is_err_and(|error| error.kind == throttled)));
    assert_eq!(count(&registry, "repeats"), 3, "both eights, and the first four");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lookup_of_one_node_is_not_repeated() {
    let (guest, registry) = fails("trap", None, Duration::from_secs(20)).await;
    let error = guest.lookup(Purpose::Initialise, &nodes("node", 1)).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Broken);
    assert_eq!(count(&registry, "repeats"), 0);
}
