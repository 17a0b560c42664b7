use super::*;

#[test]
fn a_settled_service_that_is_not_ours_any_more_is_forgotten_at_the_next_audit() {
    let mut harness = settled(json!({}));
    harness.change("a", json!({"spec": {"type": "ClusterIP"}}));
    assert_eq!(harness.settle().take_calls(), ["delete uid-a"]);
    assert_eq!(harness.reconciler.records.len(), 1, "it may change back while the cloud still shows it");
    harness.run_for(AUDIT * 11 / 10);
    assert!(harness.reconciler.records.is_empty() && harness.reconciler.names.is_empty());
}

#[test]
fn a_service_that_reappears_during_its_deletion_is_served_again() {
    let mut harness = settled(json!({}));
    harness.plan_outcome("a", Ok(in_progress(3600, "of the deletion")));
    harness.reconciler.observe_gone("default/a", harness.now);
    assert_eq!(harness.settle().take_calls(), ["delete uid-a"]);
    harness.change("a", json!({}));
    assert_eq!(harness.settle().take_calls(), [ENSURE]);
    assert_eq!(harness.last[0].resume, None);
}

#[test]
fn a_stale_observation_changes_nothing() {
    let mut harness = settled(json!({}));
    let mut older = harness.facts("a");
    (older.resource_version, older.finalizers) = ("2".to_owned(), Vec::new());
    harness.reconciler.observe(&Arc::new(older), harness.now);
    // Longer than the first delay of a write that was undone.
    assert!(harness.run_until_quiet(Duration::from_secs(11)).take_calls().is_empty() && harness.patches == 0);
}

#[test]
fn only_a_present_service_with_a_possible_load_balancer_needs_a_read_before_it_counts_as_gone() {
    let mut harness = settled(json!({}));
    harness.store(service("foreign", json!({"spec": {"loadBalancerClass": "foreign"}})));
    let read = |harness: &Harness| {
        ["default/a", "default/foreign", "default/unknown"]
            .map(|name| harness.reconciler.may_have_load_balancer(name))
    };
    assert_eq!(read(&harness), [true, false, false]);
    harness.reconciler.observe_gone("default/a", harness.now);
    assert_eq!(read(&harness), [false; 3]);
}

#[test]
fn the_summary_counts_wanted_settled_and_leaving_services() {
    let summary = |harness: &Harness| {
        let Summary { wanted, settled, leaving, .. } = harness.reconciler.summary();
        (wanted, settled, leaving)
    };
    let mut harness = settled(json!({}));
    harness.store(service("b", json!({"spec": {"loadBalancerSourceRanges": ["all"]}})));
    harness.store(service("c", json!({"spec": {"type": "ClusterIP"}})));
    harness.settle();
    assert_eq!(summary(&harness), (2, 1, 0));
    harness.change("a", json!({"spec": {"ports": [{"port": 81}]}}));
    assert_eq!(summary(&harness), (2, 0, 0));
    harness.settle();
    let ranges = |range: Value| json!({"spec": {"loadBalancerSourceRanges": range}});
    harness.change("a", ranges(json!(["all"])));
    harness.settle();
    assert_eq!(summary(&harness), (2, 0, 0), "it has become invalid");
    harness.change("a", ranges(json!(null)));
    harness.plan_outcome("a", Ok(in_progress(60, "note")));
    harness.change("a", json!({"metadata": {"deletionTimestamp": DELETING}}));
    harness.settle();
    assert_eq!(summary(&harness), (1, 0, 1));
}
