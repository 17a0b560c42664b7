//! What calls get while releases change: each call keeps the release that it began with, a canary gets its share of the lookups
//! alone, and each release is measured.

use std::collections::BTreeSet;
use std::time::Duration;

use pileus_cloud::{Answer, Cluster, ErrorKind, Instances as _, LoadBalancers as _, Purpose};
use pileus_host::swap::{CanaryShare, Release, Roles};
use pileus_host::{Component, Engine, Guest, Limits, Metrics, Serving};
use pileus_loader::{Digest, Verified};
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use serde_json::json;
use tokio::time::timeout;

use crate::cloud::{Cloud, NAME, Watched, whole};
use crate::fixture::{configured_guest, engine, gate, guest, hostile_guest, metrics, nodes};

fn release(name: &str) -> Release {
    Release { component: Digest::of(name.as_bytes()), settings: Digest::of(b"") }
}

/// Adds a release with this behavior.
async fn add(serving: &Serving, engine: &Engine, behaviour: &str) -> Release {
    let guest = hostile_guest(engine, behaviour, gate(Vec::new()), Limits::default(), &metrics()).await;
    let release = release(behaviour);
    serving.add(release, guest);
    release
}

fn roles(serving: Release, canary: Option<(Release, u8)>) -> Roles {
    let canary = canary.map(|(release, share)| CanaryShare { release, share });
    Roles { serving: Some(serving), canary, is_active: true }
}

#[tokio::test]
async fn a_call_ends_with_the_release_that_it_began_with() {
    let (engine, serving) = (engine(), Serving::new("test"));
    let refused = serving.lookup(Purpose::Refresh, &nodes("a", 1)).await.unwrap_err();
    assert!(matches!(refused.kind, ErrorKind::Unavailable(Some(_))), "{refused:?}");
    let (old, new) = (add(&serving, &engine, "nap").await, add(&serving, &engine, "echo").await);
    serving.assign(roles(old, None));
    let slow = tokio::spawn({
        let serving = serving.clone();
        async move { serving.lookup(Purpose::Refresh, &nodes("slow", 1)).await }
    });
    // It naps for 600 ms.
    tokio::time::sleep(Duration::from_millis(100)).await;
    serving.assign(roles(new, None));
    let quick = serving.lookup(Purpose::Refresh, &nodes("quick", 1)).await.unwrap();
    assert!(matches!(quick[..], [Ok(Answer::Found(_))]) && !slow.is_finished(), "{quick:?}");
    assert!(timeout(Duration::ZERO, serving.drained(old)).await.is_err());
    serving.drained(old).await;
    let slow = slow.await.unwrap().unwrap();
    assert!(matches!(slow[..], [Ok(Answer::Found(_))]), "{slow:?}");
}

#[tokio::test]
async fn calls_of_a_replaced_release_that_take_too_long_are_ended() {
    let (engine, serving) = (engine(), Serving::new("test"));
    let old = add(&serving, &engine, "sleep").await;
    serving.assign(roles(old, None));
    let abort = async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        serving.abort(old);
    };
    let nodes = nodes("a", 2);
    let (answers, ()) = tokio::join!(serving.lookup(Purpose::Refresh, &nodes), abort);
    for answer in answers.unwrap() {
        let error = answer.unwrap_err();
        assert!(error.message.contains("took longer than a replaced release may take"), "{error}");
    }
    timeout(Duration::from_secs(5), serving.drained(old)).await.unwrap();
}

#[tokio::test]
async fn a_release_whose_calls_were_ended_serves_again_after_a_rollback() {
    let (engine, serving) = (engine(), Serving::new("test"));
    let (old, new) = (add(&serving, &engine, "echo").await, add(&serving, &engine, "trap").await);
    for roles in [roles(old, None), roles(new, None)] {
        serving.assign(roles);
    }
    serving.abort(old);
    serving.assign(roles(old, None));
    let answers = serving.lookup(Purpose::Refresh, &nodes("a", 2)).await.unwrap();
    assert!(matches!(answers[..], [Ok(Answer::Found(_)), Ok(Answer::Found(_))]), "{answers:?}");
}

#[tokio::test]
async fn a_canary_answers_its_share_of_the_lookups_and_nothing_else() {
    let (engine, serving) = (engine(), Serving::new("test"));
    let (active, canary) = (add(&serving, &engine, "echo").await, add(&serving, &engine, "trap").await);
    serving.assign(roles(active, Some((canary, 30))));
    let all = nodes("a", 200);
    let failed = async |purpose| {
        let answers = serving.lookup(purpose, &all).await.unwrap();
        assert_eq!(answers.len(), all.len());
        for (node, answer) in all.iter().zip(&answers) {
            let Ok(Answer::Found(instance)) = answer else { continue };
            assert!(instance.provider_id.to_string().ends_with(&node.name), "in their order");
        }
        let of = all.iter().zip(answers).filter(|(_, answer)| answer.is_err());
        of.map(|(node, _)| node.name.clone()).collect::<BTreeSet<_>>()
    };
    let share = failed(Purpose::Refresh).await;
    assert!((40..=80).contains(&share.len()), "{}", share.len());
    assert_eq!(failed(Purpose::Initialise).await, share, "a node stays with its release");
    assert!(failed(Purpose::Confirm).await.is_empty(), "a canary never says that an instance is gone");
    let cluster = Cluster { name: "c".to_owned(), uid: None };
    // The cloud was asked nothing, so the list isn't believed. That is the active release's, since the canary traps.
    let error = serving.list_owned(&cluster).await.unwrap_err();
    assert!(error.message.contains("list-owned returned a list of"), "{error}");

    let rates = serving.rates();
    let of = |release| rates.iter().find(|(found, _)| *found == release).unwrap().1;
    assert_eq!((of(canary).items, of(canary).traps), (2 * share.len() as u64, 2 * share.len() as u64));
    assert_eq!((of(active).items, of(active).traps), (600 - of(canary).items + 1, 0));
    // What was measured in other roles says nothing about these.
    serving.assign(roles(active, None));
    let rates = serving.rates();
    assert!(rates.len() == 1 && rates[0].1.items == 0, "{rates:?}");
}

#[tokio::test]
async fn a_canary_that_deletes_in_a_lookup_deletes_nothing() {
    let (engine, serving, cloud) = (engine(), Serving::new("test"), Cloud::answering(whole("200")).await);
    let (active, canary) = (add(&serving, &engine, "echo").await, release("canary"));
    let attempt = json!({"method": "DELETE", "authority": format!("{NAME}:{}", cloud.port), "path": "/lb/1"});
    let configuration = json!({"behaviour": "attempt", "attempts": [attempt]}).to_string();
    let gate = Watched::new(vec![cloud.grant()]).gate;
    let guest = configured_guest(&engine, &configuration, gate, Limits::default(), &metrics()).await;
    serving.add(canary, guest);
    serving.assign(roles(active, Some((canary, 100))));
    for answer in serving.lookup(Purpose::Refresh, &nodes("a", 5)).await.unwrap() {
        let Ok(Answer::Found(instance)) = answer else { panic!("{answer:?}") };
        assert!(instance.labels[0].1.contains("HttpRequestDenied"), "{instance:?}");
    }
    assert_eq!(cloud.requests(), Vec::<String>::new());
}

#[tokio::test]
async fn changes_wait_for_the_release_that_the_status_calls_active() {
    let (engine, serving) = (engine(), Serving::new("test"));
    let old = add(&serving, &engine, "echo").await;
    serving.assign(Roles { is_active: false, ..roles(old, None) });
    let cluster = Cluster { name: "c".to_owned(), uid: None };
    let refused = serving.list_owned(&cluster).await.unwrap_err();
    assert!(refused.message.contains("the active release isn't ready on this replica yet"), "{refused}");
    assert!(serving.lookup(Purpose::Refresh, &nodes("a", 1)).await.is_ok());
}

#[tokio::test]
async fn the_metric_shows_only_the_release_that_serves_calls() {
    let (engine, serving, mut registry) = (engine(), Serving::new("test"), Registry::default());
    let metrics = Metrics::register(&mut registry);
    let shown = || {
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        text.lines().filter(|line| line.starts_with("pileus_provider_info{")).count()
    };
    let add = async |mark: u8| {
        let mut bytes = guest("hostile_provider");
        // A custom section with this name.
        bytes.extend([0, 2, 1, mark]);
        let component = Component::load(&engine, Verified::from_operator(bytes, "test")).await.unwrap();
        let description = component.describe(&Limits::default(), &metrics).await.unwrap();
        let release = release(&mark.to_string());
        serving.add(release, Guest::new(component, "test", description, "{}", gate(Vec::new()), &metrics));
        release
    };
    let (old, new) = (add(b'1').await, add(b'2').await);
    assert_eq!(shown(), 0);
    for release in [old, new, old] {
        serving.assign(roles(release, None));
        assert_eq!(shown(), 1);
    }
}
