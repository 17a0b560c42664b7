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

/// A Node of a pool.
fn in_pool(name: &str, pool: &str) -> crate::scenarios::StoredNode {
    node(name, json!({"metadata": {"labels": {"pool": pool}}}))
}

/// A Service that chooses Nodes.
fn choosing(name: &str, selector: &str) -> Value {
    service(name, json!({"metadata": {"annotations": {NODES: selector}}}))
}

#[test]
fn only_a_change_of_the_chosen_nodes_updates_a_service() {
    let mut harness = Harness::with_nodes(&[in_pool("n", "web"), in_pool("o", "db")]);
    for name in ["all", "db", "web"] {
        let selector = if name == "all" { String::new() } else { format!("pool={name}") };
        harness.store(choosing(name, &selector));
    }
    let made = [r#"ensure all ["n", "o"]"#, r#"ensure db ["o"]"#, r#"ensure web ["n"]"#];
    assert_eq!(harness.settle().take_calls(), made);
    let rows: [(&str, &[crate::scenarios::StoredNode], &[&str]); 5] = [
        (
            "a Node of one pool joins",
            &[in_pool("a", "db"), in_pool("n", "web"), in_pool("o", "db")],
            &[r#"update all ["a", "n", "o"]"#, r#"update db ["a", "o"]"#],
        ),
        (
            "a Node changes its pool",
            &[in_pool("a", "web"), in_pool("n", "web"), in_pool("o", "db")],
            &[r#"update db ["o"]"#, r#"update web ["a", "n"]"#],
        ),
        (
            "a label that no Service reads",
            &[
                in_pool("a", "web"),
                in_pool("n", "web"),
                node("o", json!({"metadata": {"labels": {"pool": "db", "x": "y"}}})),
            ],
            &[],
        ),
        (
            "a Node leaves",
            &[in_pool("n", "web"), in_pool("o", "db")],
            &[r#"update all ["n", "o"]"#, r#"update web ["n"]"#],
        ),
        ("the last Node of a pool", &[in_pool("n", "web")], &[r#"update all ["n"]"#, "update db []"]),
    ];
    for (name, nodes, expected) in rows {
        harness.take_events();
        harness.set_nodes(nodes);
        assert_eq!(harness.run_for(Duration::from_secs(2)).take_calls(), expected, "{name}");
    }
    assert!(harness.take_events().contains(&"UnAvailableLoadBalancer db".to_owned()));
    let note = "There are no available nodes for the load balancer: its node selector matches none of them";
    assert!(harness.notes.contains(&note.to_owned()), "{:?}", harness.notes);
    harness.change("db", json!({"metadata": {"annotations": {NODES: "pool in (db,web)"}}}));
    assert_eq!(harness.settle().take_calls(), [r#"ensure db ["n"]"#]);
}

#[test]
fn an_invalid_selector_blocks_the_update_and_several_selectors_all_apply() {
    let mut harness = Harness::with_nodes(&[in_pool("n", "web"), in_pool("o", "db")]);
    harness.store(choosing("a", "pool=web"));
    assert_eq!(harness.settle().take_calls(), [ENSURE]);
    harness.take_events();
    harness.change("a", json!({"metadata": {"annotations": {NODES: "pool like web"}}}));
    harness.set_nodes(&[in_pool("n", "web"), in_pool("o", "web")]);
    assert!(harness.run_for(Duration::from_secs(2)).take_calls().is_empty());
    assert_eq!(harness.take_events(), ["SyncLoadBalancerFailed a"]);
    let note = harness.notes.last().unwrap();
    assert!(note.contains(NODES) && note.contains("unexpected \"like\""), "{note}");
    let annotations = [("x/nodes", "pool"), ("y/nodes", "pool!=db")];
    let requirements = ServiceRequirements {
        annotations: vec![("*/nodes".to_owned(), pileus_cloud::AnnotationType::NodeSelector)],
        ..requirements()
    };
    let service = service(
        "b",
        json!({"metadata": {"annotations": annotations.into_iter().collect::<HashMap<_, _>>()}}),
    );
    let facts = ServiceFacts::read(serde_json::from_value(service).unwrap(), &requirements);
    let matches = |pool: &[(&str, &str)]| {
        facts
            .node_selector
            .matches(&pool.iter().map(|(key, pool)| ((*key).to_owned(), (*pool).to_owned())).collect())
    };
    assert_eq!([matches(&[("pool", "web")]), matches(&[("pool", "db")]), matches(&[])], [true, false, false]);
}

#[test]
fn a_change_of_other_nodes_does_not_lose_the_note_of_an_operation() {
    let mut harness = Harness::with_nodes(&[in_pool("n", "web"), in_pool("o", "db")]);
    harness.plan_outcome("a", Ok(in_progress(2, "note")));
    harness.store(choosing("a", "pool=web"));
    harness.run_for(Duration::from_secs(1));
    harness.set_nodes(&[in_pool("a", "db"), in_pool("n", "web")]);
    assert_eq!(harness.run_for(Duration::from_secs(2)).take_calls(), [ENSURE; 2]);
    assert_eq!(harness.last[0].resume.as_deref(), Some("note"));
    assert!(
        harness.run_for(Duration::from_secs(5)).take_calls().is_empty(),
        "what was confirmed is what it chooses"
    );
}
