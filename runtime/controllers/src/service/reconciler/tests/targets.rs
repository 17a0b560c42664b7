use pileus_cloud::{LocalEndpoints, ServiceAction};

use super::*;

#[test]
fn without_nodes_a_load_balancer_is_made_with_a_warning() {
    let mut harness = Harness::with_nodes(&[]);
    harness.store(service("a", json!({})));
    assert_eq!(harness.settle().take_calls(), ["ensure a []"]);
    let expected = ["EnsuringLoadBalancer a", "UnAvailableLoadBalancer a", "EnsuredLoadBalancer a"];
    assert_eq!(harness.take_events(), expected);
    harness.set_nodes(&nodes(&["n"]));
    assert_eq!(harness.settle().take_calls(), [r#"update a ["n"]"#]);
    assert_eq!(harness.take_events(), ["UpdatedLoadBalancer a"]);
    harness.set_nodes(&[]);
    harness.settle();
    assert_eq!(harness.take_events(), ["UnAvailableLoadBalancer a", "UpdatedLoadBalancer a"]);
}

#[test]
fn changed_endpoints_update_targets_and_other_services_are_passed_as_known() {
    let wants_both = ServiceRequirements { wants_endpoints: true, wants_known: true, ..requirements() };
    let mut harness = Harness::with_requirements(&nodes(&["n", "o"]), wants_both);
    let local = json!({"spec": {"externalTrafficPolicy": "Local", "healthCheckNodePort": 32000}});
    for name in ["a", "b"] {
        harness.store(service(name, local.clone()));
    }
    harness.store(service("c", json!({"spec": {"type": "ClusterIP"}})));
    harness.settle().take_calls();
    let mut facts = harness.facts("a");
    facts.local_endpoints = [("o".to_owned(), 2), ("gone".to_owned(), 1)].into();
    harness.reconciler.observe(&Arc::new(facts), harness.now);
    assert_eq!(harness.settle().take_calls(), [r#"update a ["n", "o"]"#]);
    let ServiceAction::UpdateTargets(updated) = &harness.last[0].action else { panic!("{:?}", harness.last) };
    assert_eq!(updated.endpoints, [LocalEndpoints { row: 1, count: 2 }]);
    assert_eq!(harness.known.iter().map(|known| &*known.name).collect::<Vec<_>>(), ["b"]);
    assert!(harness.settle().take_calls().is_empty());
}

#[test]
fn a_target_update_in_progress_is_polled_and_only_its_end_is_reported() {
    let mut harness = settled(json!({}));
    harness.plan_outcome("a", Ok(in_progress(2, "note")));
    harness.set_nodes(&nodes(&["n", "o"]));
    assert_eq!(harness.run_until_quiet(Duration::from_secs(3)).take_calls(), [r#"update a ["n", "o"]"#; 2]);
    assert_eq!(harness.take_events(), ["UpdatedLoadBalancer a"]);
}
