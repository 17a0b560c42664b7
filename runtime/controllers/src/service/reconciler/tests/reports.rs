//! What a provider reports beside whether a change is done: the ingress that works already, notices, annotations.

use pileus_cloud::{Notice, ServiceAction};

use super::*;

fn at(ip: &str) -> Vec<Ingress> {
    vec![Ingress { point: IngressPoint::Ip(ip.to_owned()), ..ingress() }]
}

fn notice(reason: &str, message: &str) -> Notice {
    Notice { reason: reason.to_owned(), message: message.to_owned(), is_warning: reason != "Normal" }
}

/// A change that goes on, with this status, these notices and this annotation.
fn goes_on(status: Option<Vec<Ingress>>, notices: &[Notice], id: Option<&str>) -> ServiceProgress {
    let id = id.map(|id| (ID.to_owned(), Some(id.to_owned())));
    ServiceProgress::InProgress {
        after: Duration::from_secs(2),
        resume: Some("note".to_owned()),
        status,
        notices: notices.to_vec(),
        annotations: id.into_iter().collect(),
    }
}

fn done(notices: &[Notice], annotations: &[(&str, Option<&str>)]) -> ServiceProgress {
    let annotations = annotations.iter().map(|(key, value)| ((*key).to_owned(), value.map(str::to_owned)));
    ServiceProgress::Done {
        status: vec![ingress()],
        notices: notices.to_vec(),
        annotations: annotations.collect(),
    }
}

fn address(harness: &Harness) -> Value {
    harness.get("a")["status"]["loadBalancer"]["ingress"][0]["ip"].clone()
}

fn id(harness: &Harness) -> Value {
    harness.get("a")["metadata"]["annotations"][ID].clone()
}

#[test]
fn ingress_that_works_is_written_while_the_change_goes_on_and_stays_until_it_is_done() {
    let mut harness = Harness::with_nodes(&nodes(&["n"]));
    for status in [None, Some(at("192.0.2.7")), None, Some(at("192.0.2.7"))] {
        harness.plan_outcome("a", Ok(goes_on(status, &[], None)));
    }
    harness.store(service("a", json!({})));
    let mut seen = Vec::new();
    while harness.calls.len() < 5 {
        let call = harness.calls.len();
        while harness.calls.len() == call {
            harness.run_for(Duration::from_millis(100));
        }
        seen.push((address(&harness), harness.last[0].resume.is_some(), harness.take_events()));
    }
    let events = |reasons: &[&str]| reasons.iter().map(|reason| format!("{reason} a")).collect::<Vec<_>>();
    let works = || json!("192.0.2.7");
    let expected = [
        (Value::Null, false, events(&["EnsuringLoadBalancer", "LoadBalancerPending"])),
        (works(), true, events(&[])),
        (works(), true, events(&[])),
        (works(), true, events(&[])),
        (json!("192.0.2.1"), true, events(&["EnsuredLoadBalancer"])),
    ];
    assert_eq!(seen, expected);
    assert_eq!(harness.patches, 3, "the finalizer and two statuses");
}

#[test]
fn a_write_in_between_neither_hurries_a_poll_nor_loses_its_note() {
    let mut harness = Harness::with_nodes(&nodes(&["n"]));
    harness.plan_outcome("a", Ok(goes_on(Some(at("192.0.2.7")), &[], Some("7"))));
    harness.store(service("a", json!({})));
    harness.run_for(Duration::from_millis(900));
    assert_eq!((address(&harness), id(&harness), harness.patches), (json!("192.0.2.7"), json!("7"), 3));
    assert_eq!(harness.run_for(Duration::from_secs(1)).take_calls(), [ENSURE], "not before its time");
    assert_eq!(harness.run_for(Duration::from_secs(1)).take_calls(), [ENSURE]);
    assert_eq!(harness.last[0].resume.as_deref(), Some("note"));
}

#[test]
fn a_deletion_takes_neither_status_nor_annotations() {
    let mut harness = settled(json!({}));
    harness.plan_outcome("a", Ok(goes_on(Some(at("192.0.2.7")), &[], Some("7"))));
    harness.change("a", json!({"metadata": {"deletionTimestamp": DELETING}}));
    harness.run_for(Duration::from_secs(1));
    assert_eq!((harness.take_calls().len(), harness.patches), (1, 0));
    assert_eq!((address(&harness), id(&harness)), (json!("192.0.2.1"), Value::Null));
}

#[test]
fn the_status_of_a_former_spec_is_not_written() {
    let mut harness = settled(json!({}));
    harness.change("a", json!({"spec": {"ports": [{"port": 81}]}}));
    harness.now += Duration::from_millis(100);
    let [Work::Call(call)] = &harness.reconciler.next(harness.now, 0.0)[..] else {
        panic!("an ensure is due")
    };
    harness.change("a", json!({"spec": {"ports": [{"port": 82}]}}));
    let outcome = goes_on(Some(at("192.0.2.7")), &[notice("PoolUpdated", "of the former")], Some("7"));
    harness.reconciler.on_call_result(call, Ok(vec![Ok(outcome)]), harness.now, 0.0);
    harness.settle();
    assert_eq!((address(&harness), id(&harness), harness.patches), (json!("192.0.2.1"), Value::Null, 0));
    let events = ["EnsuringLoadBalancer a", "EnsuringLoadBalancer a", "EnsuredLoadBalancer a"];
    assert_eq!(harness.take_events(), events, "one of each task");
}

#[test]
fn a_status_that_changes_with_each_poll_is_written_ever_less_often() {
    let mut harness = Harness::with_nodes(&nodes(&["n"]));
    for poll in 0..300 {
        let status = at(&format!("192.0.2.{}", 2 + poll % 2));
        harness.plan_outcome("a", Ok(goes_on(Some(status), &[], Some(&poll.to_string()))));
    }
    harness.store(service("a", json!({})));
    harness.run_for(Duration::from_mins(9));
    assert!(harness.calls.len() > 250, "work goes on: {}", harness.calls.len());
    assert!((10..=20).contains(&harness.patches), "{}", harness.patches);
    harness.run_for(Duration::from_mins(2));
    assert_eq!(address(&harness), "192.0.2.1", "the end isn't delayed");
}

#[test]
fn a_write_that_is_refused_while_the_change_goes_on_holds_nothing_up() {
    for refusal in [Error::Refused("no".to_owned()), Error::Forbidden("no".to_owned())] {
        let mut harness = settled(json!({}));
        harness.plan_outcome("a", Ok(goes_on(None, &[], Some("7"))));
        harness.write_errors.push_back(refusal);
        harness.change("a", json!({"spec": {"ports": [{"port": 81}]}}));
        assert_eq!(harness.run_for(Duration::from_secs(3)).take_calls(), [ENSURE; 2]);
        let events = harness.take_events();
        assert!(events.contains(&"SyncLoadBalancerFailed a".to_owned()), "{events:?}");
        let notes = harness.notes.iter().filter(|note| note.contains("failed to update annotations"));
        assert_eq!(notes.count(), 1, "{:?}", harness.notes);
    }
}

#[test]
fn annotations_are_written_once_and_are_no_change_by_a_user() {
    let mut harness = Harness::with_nodes(&nodes(&["n"]));
    let told = || Ok(done(&[], &[(ID, Some("7"))]));
    for lost in [Error::Conflict, Error::Unavailable("no answer".to_owned())] {
        harness.write_errors.push_back(lost);
    }
    harness.plan_outcome("a", told());
    harness.store(service(
        "a",
        json!({"metadata": {"annotations": {"team": "blue"}, "finalizers": [FINALIZER]}}),
    ));
    harness.run_for(Duration::from_secs(20));
    assert_eq!((id(&harness), address(&harness)), (json!("7"), json!("192.0.2.1")));
    assert_eq!(harness.get("a")["metadata"]["annotations"]["team"], "blue");
    assert_eq!((harness.take_calls().len(), harness.patches), (1, 2), "after two writes that failed");
    // What a user makes of it stays until the next change or audit.
    harness.change("a", json!({"metadata": {"annotations": {ID: "8"}}}));
    assert!(harness.run_for(Duration::from_mins(1)).take_calls().is_empty());
    harness.plan_outcome("a", told());
    harness.run_for(AUDIT * 11 / 10);
    assert_eq!((id(&harness), harness.take_calls().len()), (json!("7"), 1));
    harness.change("a", json!({"metadata": {"annotations": {ID: null}}}));
    harness.plan_outcome("a", told());
    harness.set_nodes(&nodes(&["n", "o"]));
    harness.run_for(Duration::from_mins(1));
    assert_eq!((id(&harness), harness.take_calls().len()), (json!("7"), 1));
    // The provider removes it, and an outcome that doesn't name it changes nothing.
    let patches = harness.patches;
    harness.plan_outcome("a", Ok(done(&[], &[])));
    harness.change("a", json!({"spec": {"ports": [{"port": 81}]}}));
    harness.settle();
    assert_eq!((id(&harness), harness.patches), (json!("7"), patches));
    harness.plan_outcome("a", Ok(done(&[], &[(ID, None)])));
    harness.change("a", json!({"spec": {"ports": [{"port": 82}]}}));
    harness.settle();
    assert_eq!((id(&harness), harness.patches), (Value::Null, patches + 1));
}

#[test]
fn each_notice_is_told_once_while_it_stays_and_again_after_a_users_change() {
    // Created after the first list, it has nothing in the cloud, and is audited on schedule only.
    let mut harness = Harness::with_nodes(&nodes(&["n"]));
    harness.settle().store(service("a", json!({})));
    harness.settle().take_events();
    let (pool, normal) = (notice("PoolUpdated", "the pool is new"), notice("Normal", "a normal one"));
    let [own, nameless] = [notice("SyncLoadBalancerFailed", "as if by us"), notice("", "without a reason")];
    let told = |harness: &mut Harness, outcomes: &[ServiceProgress], change: Value| {
        for outcome in outcomes {
            harness.plan_outcome("a", Ok(outcome.clone()));
        }
        harness.change("a", change);
        harness.run_for(Duration::from_secs(20));
        let events = harness.take_events().into_iter();
        let is_own =
            |event: &String| ["Ensur", "LoadBalancerPending"].iter().any(|own| event.starts_with(own));
        events.filter(|event| !is_own(event)).collect::<Vec<_>>()
    };
    let port = |port: u16| json!({"spec": {"ports": [{"port": port}]}});
    let all = [pool.clone(), normal.clone(), own, nameless];
    let goes_on = |notices: &[Notice]| goes_on(None, notices, None);
    let outcomes = [goes_on(&all[..1]), goes_on(&[]), goes_on(&all), goes_on(&all), done(&all, &[])];
    let expected = ["PoolUpdated a", "Normal a", "LoadBalancerWarning a", "LoadBalancerWarning a"];
    assert_eq!(told(&mut harness, &outcomes, port(81)), expected);
    assert!(harness.notes.contains(&"the pool is new".to_owned()), "{:?}", harness.notes);
    let again = told(&mut harness, &[goes_on(&all[..1]), done(&all[..1], &[])], port(82));
    assert_eq!(again, ["PoolUpdated a"], "after a change by the user");
    // An audit tells only what is new, and what was gone and is back.
    for (notices, expected) in [
        (std::slice::from_ref(&pool), &[] as &[&str]),
        (&[pool.clone(), normal], &["Normal a"]),
        (&[], &[]),
        (std::slice::from_ref(&pool), &["PoolUpdated a"]),
    ] {
        harness.plan_outcome("a", Ok(done(notices, &[])));
        harness.run_for(AUDIT * 11 / 10);
        assert_eq!(harness.take_events(), expected);
    }
}

#[test]
fn a_provider_that_invents_a_notice_with_each_poll_is_told_only_so_often() {
    let mut harness = settled(json!({}));
    for poll in 0..200 {
        let notices = [notice(&format!("Invented{poll}"), "?"), notice("Same", &poll.to_string())];
        harness.plan_outcome("a", Ok(goes_on(None, &notices, None)));
    }
    harness.change("a", json!({"spec": {"ports": [{"port": 81}]}}));
    harness.run_for(Duration::from_mins(10));
    let events = harness.take_events();
    let told = events.iter().filter(|event| event.starts_with("Invented") || event.starts_with("Same"));
    assert_eq!(told.count(), 32, "{events:?}");
}

#[test]
fn a_change_of_another_finalizer_is_a_change_of_the_service_and_that_of_our_own_is_not() {
    let mut harness = settled(json!({}));
    assert_eq!(harness.facts("a").finalizers, [FINALIZER]);
    harness.change("a", json!({"metadata": {"finalizers": [FINALIZER, "example.com/other"]}}));
    assert_eq!(harness.settle().take_calls(), [ENSURE]);
    let ServiceAction::Ensure(sent) = &harness.last[0].action else { panic!("{:?}", harness.last) };
    assert_eq!(sent.finalizers, ["example.com/other"]);
    // Stripped and written again.
    harness.change("a", json!({"metadata": {"finalizers": ["example.com/other"]}}));
    assert!(harness.run_for(Duration::from_secs(10)).take_calls().is_empty());
    assert_eq!(harness.facts("a").finalizers, ["example.com/other", FINALIZER]);
    harness.change("a", json!({"metadata": {"finalizers": [FINALIZER]}}));
    assert_eq!(harness.settle().take_calls(), [ENSURE]);
}

#[test]
fn a_deletion_and_calls_about_others_bring_the_annotations_that_the_provider_has_set() {
    let wants_known = ServiceRequirements { wants_known: true, ..requirements() };
    let mut harness = Harness::with_requirements(&nodes(&["n"]), wants_known);
    harness.plan_outcome("a", Ok(done(&[], &[(ID, Some("7"))])));
    harness.store(service("a", json!({"metadata": {"annotations": {NODES: "!spot"}}})));
    harness.settle();
    let expected = [(ID, "7"), (NODES, "!spot")].map(|(key, value)| (key.to_owned(), value.to_owned()));
    harness.store(service("b", json!({})));
    harness.settle();
    assert_eq!(harness.known[0].annotations, expected);
    // What a user changes beside the deletion isn't what the load balancer was made from.
    let annotations = json!({NODES: "spot"});
    harness.change("a", json!({"metadata": {"annotations": annotations, "deletionTimestamp": DELETING}}));
    harness.settle();
    let ServiceAction::Delete(deleted) = &harness.last[0].action else { panic!("{:?}", harness.last) };
    assert_eq!(deleted.annotations, expected);
}
