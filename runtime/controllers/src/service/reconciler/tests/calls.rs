use pileus_cloud::ServiceAction;

use super::*;

#[test]
fn a_change_during_a_call_is_sent_after_it() {
    let mut harness = settled(json!({}));
    harness.change("a", json!({"spec": {"ports": [{"port": 81}]}}));
    harness.now += Duration::from_millis(100);
    let [Work::Call(call)] = &harness.reconciler.next(harness.now, 0.0)[..] else {
        panic!("an ensure is due")
    };
    harness.change("a", json!({"metadata": {"deletionTimestamp": DELETING}}));
    harness.set_nodes(&nodes(&["n", "o"]));
    assert!(harness.settle().take_calls().is_empty());
    // The note, the delay and the failures of an operation for a former task don't count.
    harness.reconciler.on_call_result(
        call,
        Ok(vec![Ok(in_progress(3600, "of the ensure"))]),
        harness.now,
        0.0,
    );
    assert_eq!(harness.settle().take_calls(), ["delete uid-a"]);
    assert_eq!(harness.last[0].resume, None);
    let ServiceAction::Delete(deleted) = &harness.last[0].action else { panic!("{:?}", harness.last) };
    assert_eq!(deleted.ports[0].port, 81);
}

#[test]
fn an_operation_of_a_former_task_is_not_reported_as_pending_for_the_present_one() {
    let mut harness = settled(json!({}));
    let change = |port: u16| json!({"spec": {"ports": [{"port": port, "nodePort": 30080}]}});
    harness.change("a", change(81));
    harness.now += Duration::from_millis(100);
    let [Work::Call(call)] = &harness.reconciler.next(harness.now, 0.0)[..] else {
        panic!("an ensure is due")
    };
    harness.change("a", change(82));
    let pending = Ok(in_progress(3600, "of the former"));
    harness.reconciler.on_call_result(call, Ok(vec![pending.clone()]), harness.now, 0.0);
    harness.plan_outcome("a", pending);
    harness.settle();
    let pending = harness.take_events().iter().filter(|event| *event == "LoadBalancerPending a").count();
    assert_eq!(pending, 1, "for the present task only");
    assert!(harness.calls.len() == 1, "{:?}", harness.calls);
}

#[test]
fn a_resume_note_returns_only_for_the_same_spec_and_targets() {
    let mut harness = settled(json!({}));
    let mut resumes = Vec::new();
    let mut asks = |harness: &mut Harness, change: Option<Value>| {
        harness.plan_outcome("a", Ok(in_progress(2, "note")));
        if let Some(change) = change {
            harness.change("a", change);
        }
        harness.calls.clear();
        while harness.calls.is_empty() {
            harness.run_until_quiet(Duration::from_millis(500)).now += Duration::from_millis(500);
        }
        resumes.push(harness.last[0].resume.is_some());
    };
    asks(&mut harness, Some(json!({"spec": {"ports": [{"port": 81}]}})));
    asks(&mut harness, None);
    asks(&mut harness, Some(json!({"spec": {"ports": [{"port": 82}]}})));
    asks(&mut harness, None);
    harness.set_nodes(&nodes(&["n", "o"]));
    asks(&mut harness, None);
    asks(&mut harness, None);
    asks(&mut harness, Some(json!({"metadata": {"deletionTimestamp": DELETING}})));
    asks(&mut harness, None);
    harness.set_nodes(&nodes(&["n"]));
    asks(&mut harness, None);
    assert_eq!(resumes, [false, true, false, true, false, true, false, true, true]);
}

#[test]
fn a_single_call_takes_along_all_that_is_due() {
    let mut harness = Harness::with_requirements(
        &nodes(&["n"]),
        ServiceRequirements { allows_concurrent_calls: false, ..requirements() },
    );
    for name in ["a", "b", "c"] {
        harness.store(service(name, json!({})));
    }
    harness.settle();
    harness.plan_outcome("b", Ok(in_progress(1, "note")));
    harness.change("b", json!({"spec": {"ports": [{"port": 81}]}}));
    harness.run_for(Duration::from_secs(1));
    harness.set_nodes(&nodes(&["n", "o"]));
    harness.now += Duration::from_millis(900);
    harness.change("a", json!({"spec": {"ports": [{"port": 81}]}}));
    harness.sizes.clear();
    harness.settle();
    assert_eq!(harness.sizes, [(3, false)]);
}

#[test]
fn user_calls_hold_a_hundred_changes_four_run_at_once_and_target_updates_share_one() {
    let mut harness = Harness::with_nodes(&nodes(&["n"]));
    for n in 0..650 {
        harness.store(service(&format!("s{n}"), json!({"metadata": {"finalizers": [FINALIZER]}})));
    }
    harness.now += Duration::from_millis(100);
    let begun = harness.reconciler.next(harness.now, 0.0);
    let sizes = |work: &[Work]| -> Vec<usize> {
        work.iter().filter_map(|work| Some(calls(work)?.changes.len())).collect()
    };
    assert_eq!(sizes(&begun), [100; 4]);
    assert!(harness.reconciler.next(harness.now, 0.0).is_empty());
    for work in &begun {
        let done = ServiceProgress::done(vec![ingress()]);
        if let Some(call) = calls(work) {
            let outcomes = call.keys.iter().map(|_| Ok(done.clone())).collect();
            harness.reconciler.on_call_result(call, Ok(outcomes), harness.now, 0.0);
        }
    }
    assert_eq!(sizes(&harness.reconciler.next(harness.now, 0.0)), [100, 100, 50]);
    let mut harness = settled(json!({}));
    for n in 0..650 {
        harness.store(service(&format!("s{n}"), json!({})));
    }
    harness.settle().sizes.clear();
    harness.set_nodes(&nodes(&["n", "o"]));
    harness.settle();
    assert_eq!(harness.sizes, [(651, false)]);
}

fn calls(work: &Work) -> Option<&Call> {
    match work {
        Work::Call(call) => Some(call),
        _ => None,
    }
}

#[test]
fn known_services_are_those_that_keep_a_load_balancer_of_ours() {
    let mut harness = Harness::with_requirements(
        &nodes(&["n"]),
        ServiceRequirements { wants_known: true, ..requirements() },
    );
    let finalizer = json!({"finalizers": [FINALIZER]});
    let there = |change: Value| {
        let mut there = json!({"metadata": finalizer, "status": status("192.0.2.1")});
        crate::scenarios::merge(&mut there, &change);
        there
    };
    let wrong = json!({"spec": {"loadBalancerSourceRanges": ["all"]}});
    harness.store(service("kept", there(json!({}))));
    harness.store(service("unreadable", there(wrong.clone())));
    harness.store(service("foreign", there(json!({"spec": {"loadBalancerClass": "foreign"}}))));
    harness.store(service("broken", there(json!({}))));
    harness.store(service("leaving", there(json!({"metadata": {"deletionTimestamp": DELETING}}))));
    harness.plan_outcome("leaving", Ok(in_progress(600, "note")));
    harness.run_until_quiet(Duration::from_secs(2));
    // The provider last got it while it was valid, and made its load balancer from that.
    harness.change("broken", wrong);
    harness.store(service("a", json!({})));
    assert!(harness.settle().take_calls().contains(&ENSURE.to_owned()));
    assert_eq!(harness.known.iter().map(|known| &*known.name).collect::<Vec<_>>(), ["broken", "kept"]);
}
