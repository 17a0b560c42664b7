use super::*;

#[test]
fn a_service_that_is_wanted_again_during_its_release_stays_ours() {
    let mut harness = settled(json!({}));
    harness.change("a", json!({"spec": {"type": "ClusterIP"}}));
    harness.now += Duration::from_millis(100);
    let [Work::Call(call)] = &harness.reconciler.next(harness.now, 0.0)[..] else {
        panic!("a delete is due")
    };
    let done = ServiceProgress::done(Vec::new());
    harness.reconciler.on_call_result(call, Ok(vec![Ok(done)]), harness.now, 0.0);
    let writes = |harness: &mut Harness, change: Value, answer: Option<ServiceFacts>| {
        let [Work::Write { .. }] = harness.reconciler.next(harness.now, 0.0)[..] else {
            panic!("a write is due")
        };
        harness.change("a", change);
        let answer = Arc::new(answer.unwrap_or_else(|| harness.facts("a")));
        harness.reconciler.on_write_result("uid-a", Ok(&answer), harness.now, 0.0);
    };
    let let_go = ServiceFacts { finalizers: Vec::new(), ..harness.facts("a") };
    let metadata = json!({"finalizers": null});
    writes(&mut harness, json!({"spec": {"type": "LoadBalancer"}, "metadata": metadata}), Some(let_go));
    let metadata = json!({"finalizers": [FINALIZER]});
    writes(&mut harness, json!({"spec": {"loadBalancerClass": "foreign"}, "metadata": metadata}), None);
    harness.settle();
    assert_eq!(harness.get("a")["metadata"]["finalizers"], json!([]));
}

#[test]
fn a_service_that_gets_another_class_is_deleted_and_released_and_then_left_alone() {
    let mut harness = settled(json!({"spec": {"loadBalancerClass": "ours"}}));
    let foreign = json!({"spec": {"loadBalancerClass": "foreign"}, "status": status("203.0.113.9")});
    harness.change("a", foreign);
    assert_eq!(harness.settle().take_calls(), ["delete uid-a"]);
    assert_eq!(harness.get("a")["metadata"]["finalizers"], json!([]));
    assert_eq!(
        harness.get("a")["status"],
        status("203.0.113.9"),
        "the status belongs to another controller by now"
    );
    harness.change("a", json!({"metadata": {"finalizers": [FINALIZER]}}));
    assert!(harness.run_until_quiet(Duration::from_secs(11)).take_calls().is_empty() && harness.patches == 1);
    harness.change("a", json!({"spec": {"type": "ClusterIP", "loadBalancerClass": null}}));
    assert!(harness.settle().take_calls().is_empty(), "the controller of its class may be working on it");
    assert_eq!(harness.reconciler.summary(), Summary::default());
}

#[test]
fn what_the_previous_leader_began_is_cleaned_up_however_stale_the_first_observation() {
    for first in [json!({"spec": {"loadBalancerClass": "foreign"}}), json!({"spec": {"type": "ClusterIP"}})] {
        let mut harness = Harness::with_nodes(&nodes(&["n"]));
        harness.store(service("a", json!({"spec": {"loadBalancerClass": "ours"}})));
        harness.change("a", first);
        harness.change("a", json!({"metadata": {"finalizers": [FINALIZER]}}));
        assert_eq!(harness.settle().take_calls(), ["delete uid-a"]);
        assert_eq!(harness.get("a")["metadata"]["finalizers"], json!([]));
    }
    let mut harness = Harness::with_nodes(&nodes(&["n"]));
    harness.store(service("a", json!({})));
    for change in [
        json!({"spec": {"type": "ClusterIP"}}),
        json!({"metadata": {"finalizers": [FINALIZER]}}),
        json!({"spec": {"type": "LoadBalancer", "loadBalancerClass": "foreign"}}),
    ] {
        harness.change("a", change);
    }
    harness.settle();
    assert_eq!(harness.get("a")["metadata"]["finalizers"], json!([]));
}

#[test]
fn our_status_is_removed_with_our_load_balancer() {
    let mut harness = settled(json!({}));
    harness.change("a", json!({"spec": {"loadBalancerClass": "foreign"}}));
    assert_eq!(harness.settle().take_calls(), ["delete uid-a"]);
    assert!(harness.get("a")["status"]["loadBalancer"].get("ingress").is_none());
}

#[test]
fn a_service_served_elsewhere_keeps_its_status_and_is_ensured_when_it_changes() {
    let mut harness = Harness::with_nodes(&nodes(&["n"]));
    harness.plan_outcome("a", Ok(ServiceProgress::Elsewhere));
    harness.store(service(
        "a",
        json!({"status": status("203.0.113.9"), "metadata": {"finalizers": [FINALIZER]}}),
    ));
    harness.run_until_quiet(Duration::from_secs(2));
    assert_eq!((harness.take_calls().len(), harness.patches, harness.take_events().len()), (1, 0, 0));
    harness.plan_outcome("a", Ok(ServiceProgress::Elsewhere));
    harness.change("a", json!({"metadata": {"labels": {"a": "b"}}}));
    assert_eq!(harness.settle().take_calls(), [ENSURE]);
    harness.plan_outcome("a", Ok(ServiceProgress::Elsewhere));
    harness.change("a", json!({"metadata": {"deletionTimestamp": DELETING}}));
    assert_eq!((harness.settle().take_calls().len(), harness.patches), (1, 1));
}

/// A Service of another class from before the start, which the cloud's list names.
fn with_class_conflict() -> Harness {
    let mut harness = Harness::with_nodes(&nodes(&["n"]));
    harness.store(service("a", json!({"spec": {"loadBalancerClass": "foreign"}})));
    let listed = vec![owned("of a", Some("cluster"), Some("uid-a"))];
    harness.listing = Ok(Listing { owned: listed, present: HashMap::new() });
    assert!(harness.settle().take_calls().is_empty() && harness.patches == 0);
    harness
}

#[test]
fn a_list_never_deletes_the_load_balancer_of_a_live_service_with_another_class() {
    let mut harness = with_class_conflict();
    harness.run_for(AUDIT * 22 / 10);
    harness.change("a", json!({"metadata": {"labels": {"a": "b"}}}));
    assert!(harness.settle().take_calls().is_empty() && harness.patches == 0);
    let news = |report: &ListingReport| (report.class_conflicts, report.new_class_conflicts.len());
    assert_eq!(harness.reports.iter().map(news).collect::<Vec<_>>(), [(1, 1), (1, 0), (1, 0)]);
    let conflict = ("default/a".to_owned(), "class foreign".to_owned());
    assert_eq!(harness.reports[0].new_class_conflicts, [conflict], "reported once");
}

#[test]
fn a_listed_load_balancer_is_deleted_once_its_service_goes_or_changes_type() {
    type Change = fn(&mut Harness);
    let rows: [(&str, Change); 3] = [
        ("deleted", |harness| harness.change("a", json!({"metadata": {"deletionTimestamp": DELETING}}))),
        ("turned", |harness| {
            harness.change("a", json!({"spec": {"type": "ClusterIP", "loadBalancerClass": null}}));
        }),
        ("gone", |harness| harness.reconciler.observe_gone("default/a", harness.now)),
    ];
    for (name, change) in rows {
        let mut harness = with_class_conflict();
        assert!(
            harness.reconciler.may_have_load_balancer("default/a"),
            "{name}: it is read before it is taken for gone"
        );
        change(&mut harness);
        assert_eq!(harness.settle().take_calls(), ["delete uid-a"], "{name}");
    }
    let mut harness = with_class_conflict();
    harness.change("a", json!({"spec": {"loadBalancerClass": "ours"}}));
    assert_eq!(harness.settle().take_calls(), [ENSURE]);
}

#[test]
fn what_another_controller_made_for_a_formerly_ours_service_stays() {
    let mut harness = settled(json!({}));
    harness.change(
        "a",
        json!({"metadata": {"finalizers": null}, "status": null,
        "spec": {"loadBalancerClass": "foreign"}}),
    );
    assert_eq!(harness.settle().take_calls(), ["delete uid-a"]);
    let listed = vec![owned("of a", Some("cluster"), Some("uid-a"))];
    harness.listing = Ok(Listing { owned: listed, present: HashMap::new() });
    harness.run_for(AUDIT * 11 / 10);
    assert!(harness.take_calls().is_empty());
    assert_eq!(harness.reports.last().map(|report| report.class_conflicts), Some(1));
}

/// A Service of another class with the finalizer, for which the cloud has nothing.
fn with_other_class() -> Harness {
    let mut harness = Harness::with_nodes(&nodes(&["n"]));
    let metadata = json!({"finalizers": [FINALIZER]});
    harness.store(service("a", json!({"spec": {"loadBalancerClass": "foreign"}, "metadata": metadata})));
    assert!(harness.settle().take_calls().is_empty() && harness.patches == 0);
    harness
}

const TURNED: &str = r#"{"spec": {"type": "ClusterIP", "loadBalancerClass": null}}"#;

#[test]
fn a_finalizer_of_another_class_is_removed_only_after_the_grace_period() {
    let turned: Value = serde_json::from_str(TURNED).unwrap();
    let deleting = json!({"metadata": {"deletionTimestamp": DELETING}});
    for also in [json!({}), deleting] {
        let mut harness = with_other_class();
        harness.change("a", turned.clone());
        harness.change("a", also);
        harness.run_for(Duration::from_mins(29));
        assert!(
            harness.take_calls().is_empty() && harness.patches == 0,
            "the controller of its class may be working on it"
        );
        harness.run_for(Duration::from_secs(62));
        assert_eq!(harness.take_calls(), ["delete uid-a"]);
        assert_eq!((harness.get("a")["metadata"]["finalizers"].clone(), harness.patches), (json!([]), 1));
    }
    // It gets that class again, is cleaned up by its controller, or is gone.
    let rows = [
        ("turned back", json!({"spec": {"type": "LoadBalancer", "loadBalancerClass": "foreign"}})),
        ("done", json!({"metadata": {"finalizers": null}})),
    ];
    for (name, change) in rows {
        let mut harness = with_other_class();
        harness.change("a", turned.clone());
        harness.run_for(Duration::from_mins(29));
        harness.change("a", change);
        assert!(harness.run_for(AUDIT * 3).take_calls().is_empty() && harness.patches == 0, "{name}");
    }
    let mut harness = with_other_class();
    harness.change("a", turned);
    harness.reconciler.observe_gone("default/a", harness.now);
    harness.store(service("a", json!({"metadata": {"uid": "other"}})));
    assert_eq!(harness.settle().take_calls(), [ENSURE], "a new Service of the same name needn't wait");
}

#[test]
fn a_deletion_blocked_by_another_controller_is_reported_with_each_list_but_the_first() {
    let mut harness = with_other_class();
    harness.change("a", json!({"metadata": {"deletionTimestamp": DELETING}}));
    harness.run_for(AUDIT * 11 / 10);
    assert!(harness.take_events().is_empty(), "the controller of its class may be working on it");
    for _ in 0..2 {
        harness.run_for(AUDIT * 11 / 10);
        assert_eq!(harness.take_events(), ["SyncLoadBalancerFailed a"]);
        assert!(
            harness.notes.last().unwrap().contains("the controller of class foreign has to remove"),
            "{:?}",
            harness.notes
        );
    }
    assert!(harness.take_calls().is_empty() && harness.patches == 0);
    // Now the list names it, and so the finalizer is ours as well.
    let listed = vec![owned("of a", Some("cluster"), Some("uid-a"))];
    harness.listing = Ok(Listing { owned: listed, present: HashMap::new() });
    harness.run_for(AUDIT * 11 / 10);
    assert!(harness.take_calls().contains(&"delete uid-a".to_owned()));
    assert_eq!(harness.get("a")["metadata"]["finalizers"], json!([]));
}

#[test]
fn a_service_that_returns_to_another_class_before_its_deletion_keeps_its_load_balancer() {
    let turned: Value = serde_json::from_str(TURNED).unwrap();
    let back = json!({"spec": {"type": "LoadBalancer", "loadBalancerClass": "foreign"}});
    let mut harness = with_class_conflict();
    harness.change("a", turned.clone());
    harness.change("a", back.clone());
    assert!(harness.settle().take_calls().is_empty());
    // And a deletion in progress is given up: the other controller may have made it again.
    harness.plan_outcome("a", Ok(in_progress(60, "note")));
    harness.change("a", turned);
    assert_eq!(harness.settle().take_calls(), ["delete uid-a"]);
    harness.change("a", back);
    harness.run_for(AUDIT * 11 / 10);
    assert!(harness.take_calls().iter().all(|call| call == "list"), "{:?}", harness.calls);
}
