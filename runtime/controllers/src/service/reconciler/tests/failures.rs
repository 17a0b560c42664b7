use pileus_cloud::ServiceAction;

use super::*;

#[test]
fn an_invalid_service_is_reported_and_only_its_deletion_reaches_the_cloud() {
    let wrong = json!({"spec": {"loadBalancerSourceRanges": ["all"]}});
    let mut harness = Harness::with_nodes(&nodes(&["n"]));
    harness.store(service("a", wrong.clone()));
    assert!(harness.settle().take_calls().is_empty() && harness.patches == 0);
    assert_eq!(harness.take_events(), ["SyncLoadBalancerFailed a"]);
    assert!(harness.notes[0].contains("192.0.2.0/24"), "{:?}", harness.notes);
    harness.change("a", json!({"metadata": {"labels": {"a": "b"}}}));
    assert!(harness.settle().take_events().is_empty(), "reported once");
    harness.run_for(AUDIT * 11 / 10);
    assert_eq!(
        harness.take_events(),
        ["SyncLoadBalancerFailed a"],
        "reported again with the audit, since events expire after an hour"
    );
    harness.change("a", json!({"spec": {"loadBalancerSourceRanges": null}}));
    assert_eq!(harness.settle().take_calls(), [ENSURE]);
    harness.take_events();
    // It keeps its load balancer and its finalizer.
    harness.change("a", wrong);
    harness.change("a", json!({"metadata": {"finalizers": null}}));
    harness.set_nodes(&nodes(&["n", "o"]));
    assert!(harness.run_until_quiet(Duration::from_secs(6)).take_calls().is_empty());
    assert_eq!(harness.get("a")["metadata"]["finalizers"], json!([FINALIZER]));
    harness.change("a", json!({"metadata": {"deletionTimestamp": DELETING}}));
    assert_eq!(harness.settle().take_calls(), ["delete uid-a"]);
    let ServiceAction::Delete(deleted) = &harness.last[0].action else { panic!("{:?}", harness.last) };
    assert!(deleted.source_ranges.is_empty(), "as the provider last got it");
    assert_eq!((deleted.targets.clone(), deleted.status.len()), (TargetSelection::Rows(Vec::new()), 1));
}

#[test]
fn a_service_with_the_name_of_an_undeleted_one_waits_and_says_why() {
    let mut harness = settled(json!({}));
    harness.plan_outcome("a", failure(ErrorKind::Denied));
    harness.store(service("a", json!({"metadata": {"uid": "other"}})));
    assert_eq!(harness.settle().take_calls(), ["delete uid-a"]);
    let expected = ["DeletingLoadBalancer a", "DeleteLoadBalancerFailed a", "SyncLoadBalancerFailed a"];
    assert_eq!(harness.take_events(), expected);
    assert!(
        harness.notes.last().unwrap().contains("a deleted Service of the same name"),
        "{:?}",
        harness.notes
    );
    assert_eq!(harness.run_until_quiet(Duration::from_secs(61)).take_calls(), ["delete uid-a", ENSURE]);
}

#[test]
fn throttling_is_reported_once_and_audits_report_only_failures_that_need_action() {
    let waits = || failure(ErrorKind::Throttled(Some(Duration::from_secs(5))));
    let mut harness = settled(json!({}));
    for _ in 0..2 {
        harness.plan_outcome("a", waits());
    }
    harness.change("a", json!({"spec": {"ports": [{"port": 81}]}}));
    harness.run_until_quiet(Duration::from_secs(6));
    assert_eq!(
        harness.take_events(),
        ["EnsuringLoadBalancer a", "LoadBalancerPending a", "EnsuredLoadBalancer a"]
    );
    for (outcome, expected) in
        [(waits(), 0), (failure(ErrorKind::Unavailable(None)), 0), (failure(ErrorKind::Denied), 1)]
    {
        let name = format!("{outcome:?}");
        harness.plan_outcome("a", outcome);
        harness.run_for(AUDIT * 11 / 10);
        assert_eq!(harness.take_events().len(), expected, "{name}");
    }
}

#[test]
fn a_failed_deletion_has_event_texts_of_its_own() {
    let leaves = json!({"metadata": {"deletionTimestamp": DELETING}});
    let note = |harness: &mut Harness| {
        harness.settle();
        let note = harness.notes.last().cloned().unwrap_or_default();
        (harness.take_events().pop().unwrap_or_default(), note)
    };
    let mut harness = settled(json!({}));
    harness.plan_outcome("a", failure(ErrorKind::Denied));
    harness.change("a", leaves.clone());
    let (reason, text) = note(&mut harness);
    assert_eq!(reason, "SyncLoadBalancerFailed a");
    assert!(text.starts_with("Error syncing load balancer: failed to delete load balancer: "), "{text}");
    let mut harness = settled(json!({}));
    harness.plan_outcome("a", failure(ErrorKind::Denied));
    harness.reconciler.observe_gone("default/a", harness.now);
    let (reason, text) = note(&mut harness);
    assert_eq!(reason, "DeleteLoadBalancerFailed a");
    assert!(text.starts_with("Error deleting load balancer: "), "{text}");
    let mut harness = settled(json!({}));
    harness.write_errors.push_back(Error::Forbidden("no".to_owned()));
    harness.change("a", leaves);
    harness.settle();
    let text = harness.notes.last().unwrap();
    assert!(text.contains("failed to remove load balancer cleanup finalizer"), "{text}");
}

#[test]
fn an_observation_without_a_relevant_change_shortens_no_delay() {
    let unseen = || json!({"metadata": {"annotations": {"a": "b"}}});
    let mut harness = settled(json!({}));
    harness.plan_outcome("a", failure(ErrorKind::Denied));
    harness.change("a", json!({"spec": {"ports": [{"port": 81}]}}));
    assert_eq!(harness.settle().take_calls(), [ENSURE]);
    harness.change("a", unseen());
    assert!(harness.settle().take_calls().is_empty());
    let mut harness = settled(json!({}));
    harness.plan_outcome("a", failure(ErrorKind::Denied));
    harness.change("a", json!({"metadata": {"deletionTimestamp": DELETING}}));
    assert_eq!(harness.settle().take_calls(), ["delete uid-a"]);
    harness.reconciler.observe_gone("default/a", harness.now);
    assert!(harness.settle().take_calls().is_empty(), "its delay stays when it is gone");
}
