use pileus_cloud::Notice;

use super::*;

/// A complete change with a warning.
fn warned(status: Vec<Ingress>) -> ServiceProgress {
    let warning =
        Notice { reason: "LoadBalancerWarning".to_owned(), message: "oh".to_owned(), is_warning: true };
    ServiceProgress::Done { status, notices: vec![warning], annotations: Vec::new() }
}

#[test]
fn after_a_start_settled_services_are_audited_in_one_call_after_user_work() {
    let mut harness = Harness::with_nodes(&nodes(&["n"]));
    for name in ["b", "c", "d"] {
        let metadata = json!({"finalizers": [FINALIZER]});
        harness.store(service(name, json!({"metadata": metadata, "status": status("192.0.2.1")})));
    }
    harness.store(service("a", json!({})));
    harness.run_until_quiet(Duration::from_secs(2));
    assert_eq!(harness.sizes, [(1, false), (3, true)]);
    assert_eq!(harness.take_calls()[0], ENSURE);
    assert_eq!(harness.take_events(), ["EnsuringLoadBalancer a", "EnsuredLoadBalancer a"]);
    // And each half hour, without an event where nothing has changed.
    harness.sizes.clear();
    harness.run_for(AUDIT * 11 / 10);
    assert_eq!(harness.sizes, [(4, true)]);
    assert_eq!((harness.take_events().len(), harness.patches), (0, 2));
}

#[test]
fn an_audit_that_finds_a_difference_reports_and_writes_it() {
    let mut harness = settled(json!({}));
    let other = Ingress { point: IngressPoint::Ip("192.0.2.2".to_owned()), ..ingress() };
    harness.plan_outcome("a", Ok(warned(vec![other])));
    harness.run_for(AUDIT * 11 / 10);
    assert_eq!(harness.take_events(), ["EnsuredLoadBalancer a", "LoadBalancerWarning a"]);
    assert_eq!(harness.get("a")["status"]["loadBalancer"]["ingress"][0]["ip"], "192.0.2.2");
    // An audit doesn't repeat a warning.
    harness.plan_outcome("a", Ok(warned(vec![ingress()])));
    harness.run_for(AUDIT * 11 / 10);
    assert_eq!(harness.take_events(), ["EnsuredLoadBalancer a"]);
    // Nor does a Node that joins; an ensure that a user waits for does.
    let warned = || Ok(warned(vec![ingress()]));
    harness.plan_outcome("a", warned());
    harness.set_nodes(&nodes(&["n", "o"]));
    harness.run_until_quiet(Duration::from_secs(2));
    assert_eq!(harness.take_events(), ["UpdatedLoadBalancer a"]);
    harness.plan_outcome("a", warned());
    harness.change("a", json!({"spec": {"ports": [{"port": 81}]}}));
    harness.settle();
    assert_eq!(
        harness.take_events(),
        ["EnsuringLoadBalancer a", "EnsuredLoadBalancer a", "LoadBalancerWarning a"]
    );
    // A transient failure of an audit isn't reported.
    for kind in [ErrorKind::Unavailable(None), ErrorKind::Broken] {
        harness.plan_outcome("a", failure(kind));
    }
    harness.run_for(AUDIT * 11 / 10);
    assert_eq!(harness.take_events(), ["SyncLoadBalancerFailed a"]);
    harness.run_for(AUDIT / 10);
    // An operation that an audit has started is polled with the priority of any other.
    harness.plan_outcome("a", Ok(in_progress(3, "note")));
    harness.sizes.clear();
    harness.run_for(AUDIT * 11 / 10);
    assert_eq!(harness.sizes, [(1, true), (1, false)]);
}

#[test]
fn audits_are_spread_over_a_tenth_of_their_period() {
    for (jitter, factor) in [(0.0, 1.0), (0.5, 1.05), (1.0, 1.1)] {
        let mut harness = Harness::with_nodes(&[]);
        harness.settle().now += AUDIT;
        assert!(matches!(harness.reconciler.next(harness.now, jitter)[..], [Work::ListOwned]));
        assert_eq!(harness.reconciler.next_wake(), Some(harness.now + AUDIT.mul_f64(factor)), "{jitter}");
    }
}

/// The calls of the next minutes, which must be audits; the next regular audit is later.
fn later(harness: &mut Harness) -> Vec<String> {
    harness.sizes.clear();
    let mut calls = harness.run_for(Duration::from_mins(5)).take_calls();
    let is_audit = |sizes: &[(usize, bool)]| sizes.iter().all(|(_, is_audit)| *is_audit);
    assert!(
        is_audit(&harness.sizes) && harness.take_events().is_empty(),
        "only audits, without events: {:?}",
        harness.sizes
    );
    calls.retain(|call| call != "list");
    calls
}

#[test]
fn a_change_that_is_reverted_is_audited_once_more_after_the_clouds_lag() {
    type Change = fn(&mut Harness);
    fn port(harness: &mut Harness, port: u16) {
        harness.change("a", json!({"spec": {"ports": [{"port": port, "nodePort": 30080}]}}));
    }
    fn kind(harness: &mut Harness, kind: &str) {
        harness.change("a", json!({"spec": {"type": kind}}));
    }
    let rows: [(&str, &[Change], usize); 8] = [
        ("another spec", &[|harness| port(harness, 81)], 0),
        ("two others", &[|harness| port(harness, 81), |harness| port(harness, 82)], 0),
        ("there and back", &[|harness| port(harness, 81), |harness| port(harness, 80)], 1),
        (
            "by two steps",
            &[|harness| port(harness, 81), |harness| port(harness, 82), |harness| port(harness, 80)],
            1,
        ),
        ("other nodes", &[|harness| harness.set_nodes(&nodes(&["n", "o"]))], 0),
        (
            "nodes that join and leave",
            &[|harness| harness.set_nodes(&nodes(&["n", "o"])), |harness| harness.set_nodes(&nodes(&["n"]))],
            1,
        ),
        (
            "deleted and made again",
            &[|harness| kind(harness, "ClusterIP"), |harness| kind(harness, "LoadBalancer")],
            1,
        ),
        ("its status alone", &[|harness| harness.change("a", json!({"status": null}))], 0),
    ];
    for (name, changes, audits) in rows {
        // A Service that is created after the first list has nothing in the cloud.
        let mut harness = Harness::with_nodes(&nodes(&["n"]));
        harness.settle().store(service("a", json!({})));
        harness.settle();
        for change in changes {
            change(&mut harness);
            harness.run_until_quiet(Duration::from_secs(11)).take_calls();
        }
        harness.take_events();
        assert_eq!(harness.reconciler.summary(), Summary { wanted: 1, settled: 1, leaving: 0 }, "{name}");
        assert_eq!(later(&mut harness).len(), audits, "{name}");
        assert!(later(&mut harness).is_empty(), "{name}: once");
    }
}

#[test]
fn a_spec_that_keeps_alternating_is_audited_on_schedule_and_once_at_the_end() {
    let mut harness = settled(json!({}));
    for round in 0..240 {
        harness.set_nodes(&nodes(if round % 2 == 0 { &["n", "o"] } else { &["n"] }));
        harness.run_for(Duration::from_secs(21));
    }
    let audits = |harness: &Harness| harness.sizes.iter().filter(|(_, is_audit)| *is_audit).count();
    assert_eq!(audits(&harness), 2, "in 84 minutes");
    harness.sizes.clear();
    harness.run_for(Duration::from_mins(5));
    assert_eq!((harness.sizes.len(), audits(&harness)), (1, 1));
}

#[test]
fn alternating_changes_do_not_postpone_an_audit() {
    let mut harness = settled(json!({}));
    let audit = harness.reconciler.next_wake().unwrap();
    let period = Duration::from_secs(21);
    harness.now = (audit + Duration::from_millis(500)).checked_sub(period * 5).unwrap();
    for round in 0..10 {
        harness.set_nodes(&nodes(if round % 2 == 0 { &["n", "o"] } else { &["n"] }));
        harness.run_for(period);
    }
    assert_eq!(harness.sizes.iter().filter(|(_, is_audit)| *is_audit).count(), 1);
}
