use pileus_cloud::ServiceAction;

use super::*;

/// The UID of a Service that is gone.
const GONE: &str = "0f3c7a1e-52b4-4d6e-9a80-1c2d3e4f5a6b";

#[test]
fn orphans_are_removed_unknown_services_named_and_unattributed_objects_kept() {
    let mut harness = settled(json!({}));
    let ours = Some("cluster");
    let listed = vec![
        owned("of a", ours, Some("uid-a")),
        owned("an orphan", ours, Some(GONE)),
        owned("another orphan", ours, Some(GONE)),
        owned("of b", ours, Some("uid-b")),
        owned("of another cluster", Some("other"), Some(GONE)),
        owned("of no cluster", None, Some(GONE)),
        owned("of no service", ours, None),
    ];
    let present = [("uid-b", "default/b")].map(|(uid, name)| (uid.to_owned(), name.to_owned())).into();
    harness.listing = Ok(Listing { owned: listed, present });
    harness.plan_outcome("an orphan", Ok(in_progress(2, "note")));
    harness.plan_outcome("an orphan", failure(ErrorKind::Unavailable(None)));
    harness.run_for(AUDIT * 11 / 10);
    let mut removed = harness.take_calls();
    removed.retain(|call| call.starts_with("remove"));
    let again = ["remove an orphan"; 2];
    assert_eq!(removed, [["remove an orphan", "remove another orphan"], again].concat());
    let report = harness.reports.pop().unwrap();
    assert_eq!((report.orphans, report.unattributed), (2, 3));
    assert_eq!(report.unknown, ["default/b"]);
    assert_eq!(report.new_unattributed, ["of another cluster", "of no cluster", "of no service"]);
    // The Service that the list named has to be cleaned up, regardless of its type.
    harness.store(service("b", json!({"spec": {"type": "ClusterIP"}})));
    assert_eq!(harness.settle().take_calls(), ["delete uid-b"]);
    harness.store(service("c", json!({"spec": {"type": "ClusterIP"}})));
    assert!(harness.settle().take_calls().is_empty());
    harness.run_for(AUDIT * 11 / 10);
    assert!(harness.reports.pop().unwrap().new_unattributed.is_empty());
}

#[test]
fn an_orphan_is_removed_as_the_latest_list_shows_it() {
    let mut harness = Harness::with_nodes(&nodes(&["n"]));
    harness.settle();
    for version in ["1", "2"] {
        let extra = vec![("version".to_owned(), version.to_owned())];
        let listed = vec![OwnedLoadBalancer { extra, ..owned("an orphan", Some("cluster"), Some(GONE)) }];
        harness.listing = Ok(Listing { owned: listed, present: HashMap::new() });
        harness.plan_outcome("an orphan", failure(ErrorKind::Denied));
        harness.run_for(AUDIT * 11 / 10);
    }
    let ServiceAction::RemoveOrphan(owned) = &harness.last[0].action else { panic!("{:?}", harness.last) };
    assert_eq!(owned.extra[0].1, "2");
}

#[test]
fn a_failed_list_is_retried_and_one_older_than_a_deletion_does_not_count_for_it() {
    let mut harness = settled(json!({}));
    harness.listing = Err(Retry::WithBackoff);
    let before = harness.reports.len();
    harness.run_for(AUDIT * 11 / 10);
    assert!(harness.reports.len() > before + 1, "{}", harness.reports.len());
    let mut harness = settled(json!({}));
    harness.now += AUDIT;
    let work = harness.reconciler.next(harness.now, 0.0);
    assert!(matches!(work[..], [Work::ListOwned]), "{work:?}");
    harness.change("a", json!({"metadata": {"deletionTimestamp": DELETING}}));
    assert_eq!(harness.settle().take_calls(), ["delete uid-a"]);
    let listed = vec![owned("of a", Some("cluster"), Some("uid-a"))];
    let listing = Listing { owned: listed, present: HashMap::new() };
    assert_eq!(harness.reconciler.on_list_result(Ok(&listing), harness.now, 0.0).orphans, 0);
    assert!(harness.settle().take_calls().is_empty());
}

#[test]
fn a_failed_list_is_retried_without_other_work() {
    let mut harness = Harness::with_nodes(&[]);
    harness.listing = Err(Retry::WithBackoff);
    harness.run_for(Duration::from_secs(5));
    assert!(harness.reports.len() > 2, "{}", harness.reports.len());
}

#[test]
fn an_orphan_removal_in_progress_is_polled_until_a_list_lacks_the_orphan() {
    let mut harness = Harness::with_nodes(&nodes(&["n"]));
    harness.settle();
    let listed = vec![owned("an orphan", Some("cluster"), Some(GONE))];
    harness.listing = Ok(Listing { owned: listed, present: HashMap::new() });
    for _ in 0..2 {
        harness.plan_outcome("an orphan", Ok(in_progress(3000, "note")));
    }
    harness.run_for(AUDIT * 11 / 10);
    assert_eq!(harness.take_calls(), ["remove an orphan"]);
    harness.run_for(AUDIT);
    assert!(harness.take_calls().is_empty(), "the next list still shows it");
    harness.run_for(AUDIT * 2 / 3);
    assert_eq!(harness.take_calls(), ["remove an orphan"]);
    harness.listing = Ok(Listing { owned: Vec::new(), present: HashMap::new() });
    harness.sizes.clear();
    harness.run_for(AUDIT * 3);
    assert!(harness.sizes.is_empty(), "{:?}", harness.sizes);
}

#[test]
fn a_beginning_of_a_uid_belongs_to_each_service_that_begins_so_and_else_to_an_orphan() {
    let [known, twin, listed] = [
        "aaaaaaaa-bbbb-4ccc-8ddd-eeee00000001",
        "aaaaaaaa-bbbb-4ccc-8ddd-eeee00000002",
        "bbbbbbbb-bbbb-4ccc-8ddd-eeee00000001",
    ];
    let ours = "11111111-2222-4333-8444-555555555555";
    let nothing: &[&str] = &[];
    for (name, cluster, mark, expected, unknown, orphans) in [
        ("a whole UID", ours, known, [known].as_slice(), 0, 0),
        ("31 digits", ours, "aaaaaaaabbbb4ccc8dddeeee0000000", &[known, twin], 0, 0),
        ("24 digits in capitals", ours, "AAAAAAAABBBB4CCC8DDDEEEE", &[known, twin], 0, 0),
        ("a Service that only the fresh list has", ours, "bbbbbbbbbbbb4ccc8dddeeee", nothing, 1, 0),
        ("a Service that is gone", ours, "ccccccccbbbb4ccc8dddeeee", nothing, 0, 1),
        ("a deleted Service", ours, "ddddddddbbbb4ccc8dddeeee", nothing, 0, 0),
        ("23 digits", ours, "ccccccccbbbb4ccc8dddeee", nothing, 0, 0),
        ("no UID", ours, "default/web", nothing, 0, 0),
        ("a beginning of our cluster", "111111112222433384445555", "ccccccccbbbb4ccc8dddeeee", nothing, 0, 1),
        ("too short for a cluster", "11111111222243338444555", "ccccccccbbbb4ccc8dddeeee", nothing, 0, 0),
        ("another cluster", "211111112222433384445555", "ccccccccbbbb4ccc8dddeeee", nothing, 0, 0),
    ] {
        let now = Instant::now();
        let mut found = Orphans::new(Some(ours.to_owned()), now);
        found.on_list_started();
        found.on_service_deleted("dddddddd-bbbb-4ccc-8ddd-eeee00000001");
        let present = [known, twin, listed].map(|uid| (uid.to_owned(), format!("default/{uid}"))).into();
        let listing = Listing { owned: vec![owned("lb", Some(cluster), Some(mark))], present };
        let (report, changes) = found.on_listed(&listing, &[known, twin].into(), now);
        assert_eq!(
            (changes.known, report.unknown.len()),
            (expected.iter().map(|uid| (*uid).to_owned()).collect(), unknown),
            "{name}"
        );
        assert_eq!((report.orphans, changes.orphans.len()), (orphans, orphans), "{name}");
        let is_known = !expected.is_empty() || unknown > 0 || orphans > 0 || name == "a deleted Service";
        assert_eq!(report.unattributed, usize::from(!is_known), "{name}");
    }
}
