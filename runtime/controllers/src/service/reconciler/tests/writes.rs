use super::*;

#[test]
fn a_stripped_finalizer_returns_with_growing_delays() {
    let mut harness = settled(json!({}));
    let mut last = harness.now;
    for (after, seconds) in [(0, 5.0), (0, 10.0), (0, 20.0), (1, 40.0), (179, 179.0), (0, 5.0), (0, 10.0)] {
        harness.run_for(Duration::from_secs(after));
        harness.change("a", json!({"metadata": {"finalizers": null}}));
        while harness.get("a")["metadata"]["finalizers"] != json!([FINALIZER]) {
            harness.run_for(Duration::from_millis(500));
        }
        let took = (harness.now - last).as_secs_f64();
        assert!((seconds - 1.0..=seconds + 0.5).contains(&took), "{took} s instead of {seconds}");
        last = harness.now;
    }
    assert_eq!((harness.patches, harness.take_calls().len()), (7, 0));
}

#[test]
fn undoing_every_write_causes_no_write_storm() {
    let mut harness = settled(json!({}));
    for _ in 0..600 {
        harness.change("a", json!({"metadata": {"finalizers": null}, "status": null}));
        harness.run_for(Duration::from_secs(1));
    }
    assert!((16..=24).contains(&harness.patches), "{}", harness.patches);
    harness.run_until_quiet(Duration::from_mins(3));
    assert_eq!(harness.get("a")["metadata"]["finalizers"], json!([FINALIZER]));
    assert!(harness.get("a")["status"]["loadBalancer"].get("ingress").is_some());
}

#[test]
fn restoring_a_removed_finalizer_causes_no_write_storm() {
    let mut harness = settled(json!({}));
    harness.change("a", json!({"spec": {"type": "ClusterIP"}}));
    assert_eq!(harness.settle().take_calls(), ["delete uid-a"]);
    for _ in 0..600 {
        harness.change("a", json!({"metadata": {"finalizers": [FINALIZER]}}));
        harness.run_for(Duration::from_secs(1));
    }
    assert!((8..=12).contains(&harness.patches), "{}", harness.patches);
    harness.run_until_quiet(Duration::from_mins(10));
    assert_eq!(harness.get("a")["metadata"]["finalizers"], json!([]));
}

#[test]
fn writes_that_a_type_change_reverses_are_not_delayed() {
    let mut harness = settled(json!({}));
    for (kind, count) in [("ClusterIP", 0), ("LoadBalancer", 1)].repeat(8) {
        harness.change("a", json!({"spec": {"type": kind}}));
        harness.run_for(Duration::from_secs(2));
        let facts = harness.facts("a");
        assert_eq!((facts.finalizers.len(), facts.service.status.len()), (count, count));
    }
}

#[test]
fn a_status_that_others_write_or_remove_returns() {
    let mut harness = settled(json!({}));
    for change in [json!({"status": null}), json!({"status": status("203.0.113.9")})] {
        harness.change("a", change);
        harness.run_until_quiet(Duration::from_secs(11));
        assert_eq!(harness.get("a")["status"]["loadBalancer"]["ingress"][0]["ip"], "192.0.2.1");
    }
    assert_eq!((harness.patches, harness.take_calls().len(), harness.take_events().len()), (2, 0, 0));
}

#[test]
fn a_failed_write_is_reported_and_retried_later() {
    // An API server that has just started forbids at first what it allows seconds later.
    let refusals = [(Error::Refused("no".to_owned()), 60), (Error::Forbidden("no".to_owned()), 0)];
    for (refusal, seconds) in refusals {
        let mut harness = Harness::with_nodes(&nodes(&["n"]));
        let note = format!("finalizer: {refusal}");
        harness.write_errors.push_back(refusal);
        harness.store(service("a", json!({})));
        assert!(harness.run_until_quiet(Duration::from_millis(100)).take_calls().is_empty());
        assert_eq!(harness.take_events(), ["SyncLoadBalancerFailed a"]);
        assert!(harness.notes[0].ends_with(&note), "{:?}", harness.notes);
        let again = Duration::from_secs(seconds);
        assert!(
            harness.run_until_quiet(again.saturating_sub(Duration::from_secs(1))).take_calls().is_empty(),
            "{note}"
        );
        assert_eq!(harness.run_until_quiet(again + Duration::from_secs(1)).take_calls(), [ENSURE], "{note}");
    }
}

#[test]
fn a_stripped_finalizer_returns_while_a_failed_call_is_backed_off() {
    let mut harness = settled(json!({}));
    harness.run_for(Duration::from_secs(6));
    harness.plan_outcome("a", failure(ErrorKind::Denied));
    harness.change("a", json!({"spec": {"ports": [{"port": 81}]}}));
    assert_eq!(harness.settle().take_calls(), [ENSURE]);
    harness.change("a", json!({"metadata": {"finalizers": null}}));
    harness.run_for(Duration::from_secs(1));
    assert_eq!(harness.get("a")["metadata"]["finalizers"], json!([FINALIZER]));
}

/// A Service whose first write is in flight.
fn writing() -> (Harness, Arc<ServiceFacts>) {
    let mut harness = Harness::with_nodes(&nodes(&["n"]));
    harness.settle();
    harness.store(service("a", json!({})));
    let Some(Work::Write { facts, .. }) = harness.reconciler.next(harness.now, 0.0).pop() else {
        panic!("a write is due")
    };
    (harness, facts)
}

#[test]
fn a_failed_write_for_a_superseded_spec_causes_no_delay_and_no_event() {
    let (mut harness, _) = writing();
    harness.change("a", json!({"spec": {"ports": [{"port": 81}]}}));
    harness.reconciler.on_write_result("uid-a", Err(&Error::Refused("no".to_owned())), harness.now, 0.0);
    assert_eq!(harness.settle().take_calls(), [ENSURE]);
    assert_eq!(harness.take_events(), ["EnsuringLoadBalancer a", "EnsuredLoadBalancer a"]);
}

#[test]
fn a_write_result_does_not_bring_back_a_deleted_service() {
    let (mut harness, facts) = writing();
    harness.reconciler.observe_gone("default/a", harness.now);
    harness.reconciler.on_write_result("uid-a", Ok(&facts), harness.now, 0.0);
    assert!(harness.run_until_quiet(Duration::from_secs(11)).take_calls().is_empty());
}

#[test]
fn a_service_that_turned_without_a_finalizer_loses_its_status_in_one_write() {
    for (status, patches) in [(status("192.0.2.1"), 1), (Value::Null, 0)] {
        let mut harness = settled(json!({}));
        let metadata = json!({"finalizers": null});
        harness.change("a", json!({"spec": {"type": "ClusterIP"}, "metadata": metadata, "status": status}));
        assert_eq!(harness.run_until_quiet(Duration::from_secs(11)).take_calls(), ["delete uid-a"]);
        assert_eq!((harness.facts("a").service.status.len(), harness.patches), (0, patches));
    }
}
