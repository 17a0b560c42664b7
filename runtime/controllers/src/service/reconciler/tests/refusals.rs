//! Clouds that refuse the change of a whole load balancer for one of its targets.

use std::collections::BTreeSet;

use pileus_cloud::{Error as CloudError, ServiceAction};

use super::*;

/// A cluster with these Nodes and Services, and a cloud that refuses calls with some of the Nodes.
struct Refusing {
    harness: Harness,
    refused: BTreeSet<String>,
    /// Whether the cloud says which target it refuses.
    is_naming: bool,
    /// The Services that are refused with any targets.
    invalid: BTreeSet<String>,
    calls: usize,
    /// The fewest targets that a load balancer had since the last look.
    fewest: usize,
    /// What each load balancer has.
    has: BTreeMap<String, Vec<String>>,
}

impl Refusing {
    fn new(is_shared: bool, refused: &[&str], is_naming: bool) -> Self {
        let requirements = ServiceRequirements { allows_concurrent_calls: !is_shared, ..requirements() };
        Self {
            harness: Harness::with_requirements(&[], requirements),
            refused: refused.iter().map(|name| (*name).to_owned()).collect(),
            is_naming,
            invalid: BTreeSet::new(),
            calls: 0,
            fewest: usize::MAX,
            has: BTreeMap::new(),
        }
    }

    fn run(&mut self) -> &mut Self {
        self.run_for(Duration::from_mins(15))
    }

    fn run_for(&mut self, time: Duration) -> &mut Self {
        let until = self.harness.now + time;
        loop {
            let work = self.harness.reconciler.next(self.harness.now, 0.0);
            if work.is_empty() {
                match self.harness.reconciler.next_wake().filter(|at| *at <= until) {
                    Some(at) => self.harness.now = at,
                    None => return self,
                }
            }
            for work in work {
                match work {
                    Work::Call(call) => self.answer(&call),
                    work => self.harness.perform(work),
                }
            }
            for event in self.harness.reconciler.take_events() {
                self.harness.events.push(format!("{} {}", event.reason.as_str(), event.facts.service.name));
                self.harness.notes.push(event.note);
            }
        }
    }

    fn answer(&mut self, call: &Call) {
        self.calls += 1;
        let nodes: Vec<_> = call.targets.table().iter().map(|target| target.node.clone()).collect();
        let culprit = nodes.iter().find(|node| self.refused.contains(*node));
        let outcomes = call.changes.iter().map(|change| {
            let (ServiceAction::Ensure(service) | ServiceAction::UpdateTargets(service)) = &change.action
            else {
                return Ok(ServiceProgress::done(Vec::new()));
            };
            if self.invalid.contains(&service.name) {
                return Err(CloudError::new(ErrorKind::Invalid, "this setting is unknown"));
            }
            if let Some(culprit) = culprit {
                let named = format!("422: machine {culprit} has never existed.");
                let message = if self.is_naming { named } else { "422: bad member".to_owned() };
                return Err(CloudError::new(ErrorKind::Invalid, message));
            }
            self.fewest = self.fewest.min(nodes.len());
            self.has.insert(service.name.clone(), nodes.clone());
            Ok(ServiceProgress::done(vec![ingress()]))
        });
        let outcomes: Vec<_> = outcomes.collect();
        self.harness.reconciler.on_call_result(call, Ok(outcomes), self.harness.now, 0.0);
    }

    fn take_refused(&mut self) -> Vec<String> {
        self.harness.take_events();
        let notes = std::mem::take(&mut self.harness.notes);
        notes.into_iter().filter(|note| note.contains("is left out of the load balancer")).collect()
    }
}

fn names(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("n-{number:03}")).collect()
}

fn stored(names: &[String]) -> Vec<crate::scenarios::StoredNode> {
    nodes(&names.iter().map(String::as_str).collect::<Vec<_>>())
}

#[test]
fn a_refused_member_is_found_and_left_out_in_both_styles() {
    for is_shared in [false, true] {
        for is_naming in [false, true] {
            for refused in
                [&["n-007"][..], &["n-000"], &["n-063"], &["n-001", "n-040"], &["n-010", "n-011", "n-012"]]
            {
                let case = format!("shared {is_shared}, naming {is_naming}, {refused:?}");
                let mut cloud = Refusing::new(is_shared, refused, is_naming);
                cloud.harness.set_nodes(&stored(&names(64)));
                cloud.harness.store(service("a", json!({})));
                cloud.harness.store(service("b", json!({})));
                cloud.run_for(Duration::from_secs(100));
                for name in ["a", "b"] {
                    let has = &cloud.has[name];
                    assert_eq!(has.len(), 64 - refused.len(), "{case} {name}");
                    assert!(!has.iter().any(|node| refused.contains(&&**node)), "{case} {name}");
                }
                let calls = cloud.calls;
                assert!(calls <= 2 * 64, "{case}: {calls} calls");
                let told = cloud.take_refused();
                assert!(
                    refused.iter().all(|node| told.iter().any(|note| note.contains(node))),
                    "{case}: {told:?}"
                );
                // A change of the Service, and a Node that joins, reach the load balancer at once.
                cloud.calls = 0;
                cloud.harness.change("a", json!({"spec": {"sessionAffinity": "ClientIP"}}));
                cloud.harness.set_nodes(&stored(&names(65)));
                cloud.run_for(Duration::from_secs(10));
                assert!(cloud.has["b"].contains(&"n-064".to_owned()), "{case}");
                assert!(cloud.calls <= 3, "{case}: {} calls", cloud.calls);
                assert_eq!(cloud.take_refused(), Vec::<String>::new(), "{case}: told once");
            }
        }
    }
}

#[test]
fn a_load_balancer_keeps_what_it_has_while_the_refused_member_is_sought() {
    for (is_shared, is_naming) in [(false, false), (false, true), (true, false), (true, true)] {
        let mut cloud = Refusing::new(is_shared, &["n-064"], is_naming);
        cloud.harness.set_nodes(&stored(&names(64)));
        cloud.harness.store(service("a", json!({})));
        cloud.run();
        cloud.harness.set_nodes(&stored(&names(72)));
        cloud.fewest = usize::MAX;
        cloud.run();
        assert_eq!(cloud.has["a"].len(), 71, "{is_shared} {is_naming}");
        assert!(cloud.fewest >= 64, "{is_shared} {is_naming}: {}", cloud.fewest);
    }
}

#[test]
fn a_service_that_is_refused_for_itself_takes_no_target_from_any() {
    for is_shared in [false, true] {
        let mut cloud = Refusing::new(is_shared, &[], false);
        cloud.invalid.insert("bad".to_owned());
        cloud.harness.set_nodes(&stored(&names(64)));
        cloud.harness.store(service("a", json!({})));
        cloud.run();
        cloud.harness.store(service("bad", json!({})));
        cloud.calls = 0;
        cloud.run();
        assert_eq!(cloud.has["a"].len(), 64, "{is_shared}");
        assert_eq!(cloud.take_refused(), Vec::<String>::new(), "{is_shared}");
        assert!(cloud.calls < 60, "{is_shared}: {} calls", cloud.calls);
        // Once it is corrected, it gets everything.
        cloud.invalid.clear();
        cloud.harness.change("bad", json!({"spec": {"sessionAffinity": "ClientIP"}}));
        cloud.run();
        assert_eq!(cloud.has["bad"].len(), 64, "{is_shared}");
    }
}

#[test]
fn a_refused_member_is_tried_again_after_a_while() {
    for is_shared in [false, true] {
        let mut cloud = Refusing::new(is_shared, &["n-003"], true);
        cloud.harness.set_nodes(&stored(&names(8)));
        cloud.harness.store(service("a", json!({})));
        cloud.run();
        assert_eq!(cloud.has["a"].len(), 7);
        cloud.refused.clear();
        for _ in 0..3 {
            cloud.harness.now += AUDIT;
            cloud.run();
        }
        assert_eq!(cloud.has["a"].len(), 8, "{is_shared}");
    }
}
