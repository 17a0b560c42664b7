//! Checks of what a provider does for Services of type LoadBalancer: in the real cloud, if the test may change it, and
//! with a cloud that fails.

use pileus_cloud::{AnnotationType, OwnedLoadBalancer, is_uid_of};
use pileus_host::Capability;

use super::changes::claims::{self, Changing, TWO_NODES, done, has, precondition, wrong_list};
use super::changes::failures;
use super::changes::{Changes, Scenario, Step};
use super::check::{Check, CheckResult, NotPassed, not_run};
use super::describe;
use super::facts::Facts;

pub(super) const CREATED: &str = "load-balancers.ensure has to pass first";
const LISTED: &str = "load-balancers.owned has to pass first";

pub(super) const CHECKS: &[Check] = &[
    Check {
        id: "load-balancers.ensure",
        claim: "a Service gets a load balancer with an address or a host name",
        matters: "without ingress the Service can't be reached from outside",
        test: ensure,
    },
    claims::one_each::<Balancing>(
        "load-balancers.one-each",
        "the host discards a list of another length, so none of its Services makes progress",
    ),
    Check {
        id: "load-balancers.order",
        claim: "outcomes are in the order of the changes",
        matters: "an outcome at the wrong place sends the users of one Service to another",
        test: order,
    },
    Check {
        id: "load-balancers.no-write",
        claim: "ensuring a settled Service costs no write and keeps its ingress",
        matters: "the host ensures every Service each half an hour; writes would use up the cloud's limits",
        test: no_write,
    },
    Check {
        id: "load-balancers.known",
        claim: "a Service that isn't changed keeps all that it has, whether it is known or not",
        matters: "the host leaves Services out of `known` if the provider failed at them; they must not lose their ingress",
        test: known,
    },
    Check {
        id: "load-balancers.targets",
        claim: "changed targets are written, and then cost no write",
        matters: "otherwise new Nodes get no traffic, and traffic to removed Nodes is lost",
        test: targets,
    },
    Check {
        id: "load-balancers.selected",
        claim: "the targets of a Service are those that its selection names, not all of the call",
        matters: "the host selects by annotations of type node-selector; traffic would reach Nodes that the user excluded",
        test: selected,
    },
    claims::listed::<Balancing>(
        "load-balancers.owned",
        "list-owned returns each load balancer with the UIDs of its Service and cluster",
        "a load balancer without UIDs is never removed after its Service is gone, and costs money forever",
    ),
    claims::delete::<Balancing>(
        "load-balancers.delete",
        "a Service is removed only once its load balancer is, and no other Service may lose its own",
    ),
    claims::gone::<Balancing>(
        "load-balancers.gone",
        "if an answer is lost the host asks again; an error would keep the Service forever",
    ),
    Check {
        id: "load-balancers.orphan",
        claim: "an orphan is removed by its entry of list-owned alone",
        matters: "its Service is gone, so the entry is all that is known about it",
        test: orphan,
    },
    claims::left::<Balancing>(
        "load-balancers.left",
        "leftovers cost money, and would be left in a cluster as well",
    ),
    failures::read_only::<Balancing>("load-balancers.read-only"),
    failures::faults::<Balancing>(
        "load-balancers.trouble",
        "a Service would lose its finalizer while the cloud still has its load balancer",
    ),
    failures::whole_list::<Balancing>(
        "load-balancers.whole-list",
        "the host takes what is missing from a list for gone",
    ),
    failures::deadline::<Balancing>("load-balancers.deadline"),
];

/// The capability of managing load balancers.
pub(super) enum Balancing {}

impl Changing for Balancing {
    type Item = OwnedLoadBalancer;
    const CAPABILITY: Capability = Capability::LoadBalancers;
    const LIST: &'static str = "list-owned()";
    const CREATED: &'static str = CREATED;
    const LISTED: &'static str = LISTED;

    fn changes(facts: &Facts) -> Option<&Changes<OwnedLoadBalancer>> {
        facts.load_balancers.as_ref()
    }

    fn is_of(owned: &OwnedLoadBalancer, cluster: &str, service: &str) -> bool {
        let OwnedLoadBalancer { cluster_uid, service_uid, .. } = owned;
        let is_of = |mark: &Option<String>, uid| mark.as_deref().is_some_and(|mark| is_uid_of(mark, uid));
        is_of(service_uid, service) && is_of(cluster_uid, cluster)
    }

    fn is_complete(items: &[&OwnedLoadBalancer]) -> bool {
        !items.is_empty()
    }

    fn listing_advice(cluster: &str, service: &str) -> String {
        format!(
            "store the UIDs of cluster and Service on what is created, in labels or names, all of them or at least their first \
             24 digits, and list both; nothing has {cluster} and {service}"
        )
    }

    fn describe(listed: &[OwnedLoadBalancer]) -> String {
        describe::owned(listed)
    }
}

fn scenario(facts: &Facts) -> Result<&Scenario<OwnedLoadBalancer>, NotPassed> {
    claims::scenario::<Balancing>(facts)
}

fn ensure(facts: &Facts) -> CheckResult {
    let call = scenario(facts)?.call(Step::Make, "load-balancers.gone has to pass first")?;
    let advice =
        "create what the Services need, answer in-progress while the cloud works on it, and done afterwards";
    if done(call, advice)?.iter().any(|ingress| ingress.is_empty()) {
        return Err(call.missed("answer in-progress until the cloud reports an address or a host name"));
    }
    Ok(())
}

fn no_write(facts: &Facts) -> CheckResult {
    let scenario = scenario(facts)?;
    let (first, again) = (scenario.call(Step::Make, CREATED)?, scenario.call(Step::Again, CREATED)?);
    let status =
        done(again, "find the existing load balancer by the Service's UID, and answer done if it is right")?;
    if first.done().is_some_and(|before| before != status) {
        let before = describe::change_outcomes(&first.outcomes);
        return Err(again.missed(format!("return the same ingress as before, which was: {before}")));
    }
    match again.write() {
        Some(request) => Err(again.missed(format!(
            "compare the existing with the desired state, and omit {} if nothing differs",
            request.line
        ))),
        None => Ok(()),
    }
}

fn order(facts: &Facts) -> CheckResult {
    let scenario = scenario(facts)?;
    let (first, mixed) = (scenario.call(Step::Make, CREATED)?, scenario.call(Step::Mixed, CREATED)?);
    if scenario.call(Step::Before, CREATED)?.done().is_none() {
        return Err(not_run("load-balancers.gone has to pass first"));
    }
    let Some(&[one, other]) = first.done().as_deref() else {
        return Err(not_run(CREATED));
    };
    if one == other {
        return Err(not_run("a cloud that gives two Services different ingress"));
    }
    match mixed.done().as_deref() {
        Some(&[[], second, first]) if (first, second) == (one, other) => Ok(()),
        _ => Err(mixed.missed(
            "put each outcome at the place of its change; the first change was about a Service that does not exist",
        )),
    }
}

fn known(facts: &Facts) -> CheckResult {
    let scenario = scenario(facts)?;
    let created = scenario.call(Step::Make, CREATED)?;
    let Some(&[_, before]) = created.done().as_deref() else { return Err(not_run(CREATED)) };
    no_write(facts).map_err(|_| not_run("load-balancers.no-write has to pass first"))?;
    claims::test_listed::<Balancing>(facts).map_err(|_| not_run(LISTED))?;
    // With a wrong order, the ingress of the second would be that of the first.
    if matches!(order(facts), Err(NotPassed::Failed(_))) {
        return Err(not_run("load-balancers.order has to pass first"));
    }
    let Scenario { cluster, keys: [_, second], .. } = scenario;
    for (step, after) in [(Step::Unknown, Step::AfterUnknown), (Step::Known, Step::AfterKnown)] {
        let changed = scenario.call(step, CREATED)?;
        done(changed, "write the changed port, and answer done")?;
        if changed.write().is_none() {
            return Err(changed.missed("compare the existing ports with those that were sent"));
        }
        let advice = "leave unchanged what the cloud has for a Service that no change is about";
        let listed = scenario.list(step, LISTED)?;
        if !has::<Balancing>(listed, cluster, second) {
            return Err(wrong_list::<Balancing>(changed, listed, advice));
        }
        let kept = scenario.call(after, CREATED)?;
        if kept.done().as_deref() != Some(&[before]) || kept.write().is_some() {
            return Err(kept.missed(format!("{advice}; this followed {}", changed.sent)));
        }
    }
    Ok(())
}

fn targets(facts: &Facts) -> CheckResult {
    let scenario = scenario(facts)?;
    scenario.call(Step::Again, CREATED)?;
    let moved = scenario.call(Step::Move, TWO_NODES)?;
    let again = scenario.call(Step::MoveAgain, CREATED)?;
    done(moved, "write the targets that were sent, and answer done")?;
    if moved.write().is_none() {
        return Err(
            moved.missed("compare the existing targets with those that were sent, and write what differs")
        );
    }
    done(again, "answer done if nothing differs")?;
    match again.write() {
        Some(_) => {
            Err(again.missed("write all targets in one call; they are the same as in the call before"))
        }
        None => Ok(()),
    }
}

fn selected(facts: &Facts) -> CheckResult {
    let scenario = scenario(facts)?;
    let annotations = facts.description().map_or(&[][..], |description| &description.service_annotations);
    // The host selects for no other provider.
    if !annotations.iter().any(|annotation| annotation.value == AnnotationType::NodeSelector) {
        return Ok(());
    }
    precondition(targets(facts), "load-balancers.targets has to pass first")?;
    let call = scenario.call(Step::Select, TWO_NODES)?;
    done(call, "answer done if nothing differs")?;
    match call.write() {
        Some(_) => Err(call.missed(
            "take only the rows of the target table that the Service's `targets` name; they are the targets of before",
        )),
        None => Ok(()),
    }
}

fn orphan(facts: &Facts) -> CheckResult {
    let scenario = scenario(facts)?;
    let Scenario { cluster, keys: [_, second], .. } = scenario;
    let (call, again) = (scenario.call(Step::Orphan, LISTED)?, scenario.call(Step::OrphanAgain, LISTED)?);
    done(call, "find it by its name and by what the provider put into `extra`, and remove all of it")?;
    let listed = scenario.list(Step::Orphan, LISTED)?;
    if has::<Balancing>(listed, cluster, second) {
        let advice = "answer in-progress while the cloud still has it";
        return Err(wrong_list::<Balancing>(call, listed, advice));
    }
    done(again, "answer done if it is already gone").map(|_| ())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use pileus_cloud::{Error, ErrorKind};
    use pileus_gate::Effect;

    use super::super::changes::{CallFailure, ChangeOutcome, ServiceReport};
    use super::super::cloud::CloudMode;
    use super::super::samples::changes::{call, fault, ip, list, request};
    use super::super::samples::{facts, outcomes};
    use super::*;

    /// Each row breaks one rule in the observations of a conforming provider.
    #[test]
    fn each_mistake_fails_exactly_its_own_check() {
        type Mistake = fn(&mut Facts);
        let rows: [(&str, Mistake); 23] = [
            ("load-balancers.ensure", |it| call(&mut it.load_balancers, Step::Make).outcomes = Ok(broken())),
            ("load-balancers.order", |it| {
                let outcomes = vec![
                    ip("198.51.100.1"),
                    ip("198.51.100.2"),
                    ChangeOutcome::Done(ServiceReport::default()),
                ];
                call(&mut it.load_balancers, Step::Mixed).outcomes = Ok(outcomes);
            }),
            ("load-balancers.order", |it| call(&mut it.load_balancers, Step::Mixed).outcomes = Ok(broken())),
            ("load-balancers.no-write", |it| {
                call(&mut it.load_balancers, Step::Again).requests.push(request(Effect::Write));
            }),
            ("load-balancers.no-write", |it| {
                call(&mut it.load_balancers, Step::Again).outcomes =
                    Ok(vec![ip("198.51.100.1"), ip("198.51.100.3")]);
            }),
            ("load-balancers.no-write", |it| {
                call(&mut it.load_balancers, Step::Again).outcomes = Ok(broken());
            }),
            ("load-balancers.known", |it| {
                call(&mut it.load_balancers, Step::Unknown).outcomes = Ok(broken());
            }),
            ("load-balancers.known", |it| call(&mut it.load_balancers, Step::Unknown).requests.clear()),
            ("load-balancers.known", |it| {
                list(&mut it.load_balancers, Step::Unknown).pop();
            }),
            ("load-balancers.known", |it| {
                call(&mut it.load_balancers, Step::AfterKnown).requests.push(request(Effect::Write));
            }),
            ("load-balancers.known", |it| {
                call(&mut it.load_balancers, Step::AfterKnown).outcomes = Ok(vec![ip("198.51.100.3")]);
            }),
            ("load-balancers.targets", |it| call(&mut it.load_balancers, Step::Move).outcomes = Ok(broken())),
            ("load-balancers.targets", |it| call(&mut it.load_balancers, Step::Move).requests.clear()),
            ("load-balancers.targets", |it| {
                call(&mut it.load_balancers, Step::MoveAgain).requests.push(request(Effect::Write));
            }),
            ("load-balancers.selected", |it| {
                call(&mut it.load_balancers, Step::Select).outcomes = Ok(broken());
            }),
            ("load-balancers.selected", |it| {
                call(&mut it.load_balancers, Step::Select).requests.push(request(Effect::Write));
            }),
            ("load-balancers.owned", |it| list(&mut it.load_balancers, Step::Make)[1].cluster_uid = None),
            ("load-balancers.delete", |it| {
                let first = list(&mut it.load_balancers, Step::Make)[0].clone();
                list(&mut it.load_balancers, Step::Delete).push(first);
            }),
            ("load-balancers.gone", |it| call(&mut it.load_balancers, Step::Before).outcomes = Ok(broken())),
            ("load-balancers.orphan", |it| {
                call(&mut it.load_balancers, Step::Orphan).outcomes = Ok(broken());
            }),
            ("load-balancers.orphan", |it| {
                call(&mut it.load_balancers, Step::OrphanAgain).outcomes = Ok(broken());
            }),
            ("load-balancers.orphan", |it| {
                let second = list(&mut it.load_balancers, Step::Make)[1].clone();
                list(&mut it.load_balancers, Step::Orphan).push(second);
            }),
            ("load-balancers.trouble", |it| {
                let late = ErrorKind::Throttled(Some(Duration::from_secs(1)));
                let error = Error::new(late, "too early");
                fault(&mut it.load_balancers, CloudMode::Busy).call.outcomes = Err(CallFailure::Error(error));
            }),
        ];
        for (number, (expected, mistake)) in rows.into_iter().enumerate() {
            let mut facts = facts();
            mistake(&mut facts);
            assert_eq!(outcomes(&facts, "failed"), [expected], "{number}");
        }
    }

    fn broken() -> Vec<ChangeOutcome> {
        vec![ChangeOutcome::Failed(Error::new(ErrorKind::Broken, "it can't"))]
    }

    #[test]
    fn a_load_balancer_may_be_listed_with_the_beginnings_of_uids() {
        let (cluster, service) =
            ("0f3c7a1e-52b4-4d6e-9a80-1c2d3e4f5a6b", "a1b2c3d4-0000-4111-8222-333344445555");
        let beginning = |uid: &str, digits| Some(uid.replace('-', "").chars().take(digits).collect());
        for (cluster_digits, service_digits, expected) in
            [(32, 32, true), (31, 31, true), (24, 24, true), (23, 32, false), (32, 23, false)]
        {
            let owned = OwnedLoadBalancer {
                cluster_uid: beginning(cluster, cluster_digits),
                service_uid: beginning(service, service_digits),
                service: None,
                name: String::new(),
                extra: Vec::new(),
            };
            assert_eq!(Balancing::is_of(&owned, cluster, service), expected, "{owned:?}");
            assert!(!Balancing::is_of(&owned, service, cluster), "{owned:?}");
        }
    }

    #[test]
    fn checks_that_lack_a_flag_name_it() {
        let mut facts = facts();
        let scenario = &mut facts.load_balancers.as_mut().unwrap().scenario;
        scenario.as_mut().unwrap().calls.retain(|(step, _)| *step != Step::Move);
        let Err(NotPassed::NotRun(needs)) = targets(&facts) else { unreachable!() };
        assert_eq!(selected(&facts), targets(&facts));
        assert!(needs.contains("--node NAME"), "{needs}");
        facts.load_balancers.as_mut().unwrap().scenario = Err("--allow-changes, which …".to_owned());
        let needing = CHECKS.iter().filter(|check| {
            let result = (check.test)(&facts);
            matches!(result, Err(NotPassed::NotRun(needs)) if needs.starts_with("--allow-changes"))
        });
        let needing: Vec<_> = needing.map(|check| check.id.trim_start_matches("load-balancers.")).collect();
        assert_eq!(
            needing,
            [
                "ensure", "one-each", "order", "no-write", "known", "targets", "selected", "owned", "delete",
                "gone", "orphan", "left"
            ]
        );
        assert_eq!(outcomes(&facts, "failed"), [""; 0]);
    }

    #[test]
    fn a_list_that_was_complete_before_the_cloud_broke_down_passes() {
        let mut facts = facts();
        let list = fault(&mut facts.load_balancers, CloudMode::BreaksDown).list.as_mut().unwrap();
        (list.items, list.requests) = (Ok(Vec::new()), vec![request(Effect::Read)]);
        assert_eq!(outcomes(&facts, "failed"), [""; 0]);
    }

    #[test]
    fn without_requests_no_check_of_faults_passes() {
        let mut facts = facts();
        for fault in &mut facts.load_balancers.as_mut().unwrap().faults {
            fault.call.requests.clear();
            let list = fault.list.as_mut().unwrap();
            (list.items, list.requests) = (Ok(Vec::new()), Vec::new());
        }
        let ids = ["load-balancers.trouble", "load-balancers.whole-list", "load-balancers.deadline"];
        assert_eq!(outcomes(&facts, "not run"), ids);
    }
}
