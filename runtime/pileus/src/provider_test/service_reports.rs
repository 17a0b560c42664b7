//! Checks of what a provider tells a Service with the outcome of a change: ingress that works before the change is done, notices
//! for the user, and annotations to set.

use pileus_cloud::{Ingress, Notice};
use pileus_controllers::facts::service::is_valid_annotation;

use super::changes::claims;
use super::changes::failures::failed_with;
use super::changes::{CallRecord, ChangeOutcome, Step};
use super::check::{Check, CheckResult, failed};
use super::describe;
use super::facts::Facts;
use super::load_balancers::{Balancing, CREATED};

/// The reasons that the host gives to notices whose own it can't use.
const REPLACED_REASONS: [&str; 2] = ["LoadBalancerWarning", "LoadBalancerNotice"];

pub(super) const CHECKS: &[Check] = &[
    Check {
        id: "load-balancers.early-ingress",
        claim: "in-progress reports only ingress that the cloud has confirmed and that stays",
        matters: "the host writes it to the Service at once, so clients connect to it",
        test: early_ingress,
    },
    Check {
        id: "load-balancers.notices",
        claim: "notices have a reason of the cloud, and the same message while they apply",
        matters: "alerts find the events by their reason; a message that changes is an event at each audit",
        test: notices,
    },
    Check {
        id: "load-balancers.annotations",
        claim: "annotations to set are those that describe declares as written, with values of their type",
        matters: "the host drops all others, so the provider doesn't find its load balancer by them later",
        test: annotations,
    },
];

fn early_ingress(facts: &Facts) -> CheckResult {
    let changes = claims::changes::<Balancing>(facts)?;
    let reports_ingress = |outcome: &ChangeOutcome| match outcome {
        ChangeOutcome::InProgress { report, .. } => report.status.iter().flatten().next().is_some(),
        _ => false,
    };
    let made_up =
        changes.faults.iter().find(|fault| fault.call.history.iter().flatten().any(reports_ingress));
    if let Some(fault) = made_up {
        let advice = "report the ingress that the cloud has returned for this Service, and none before";
        return Err(failed_with(fault.mode, &fault.call, advice));
    }
    for (_, CallRecord { sent, history, .. }) in &changes.scenario()?.calls {
        if let Some(outcomes) = history.iter().find(|outcomes| loses_ingress(outcomes)) {
            let received =
                format!("for one change, call by call: {}", describe::change_outcomes(&Ok(outcomes.clone())));
            let advice = "report an address early only if it works already and stays; leave it out otherwise, and always of a \
                          deletion";
            return Err(failed(sent, received, advice));
        }
    }
    Ok(())
}

/// Whether a report of a change lacks ingress that the one before had.
fn loses_ingress(outcomes: &[ChangeOutcome]) -> bool {
    let status = outcomes.iter().filter_map(|outcome| outcome.report()?.status.as_deref());
    status.clone().zip(status.skip(1)).any(|(before, after)| {
        let stays = |ingress: &Ingress| after.iter().any(|other| other.point == ingress.point);
        !before.iter().all(stays)
    })
}

fn notices(facts: &Facts) -> CheckResult {
    let changes = claims::changes::<Balancing>(facts)?;
    for call in changes.calls() {
        let mut notices = call.reports().flat_map(|report| &report.notices);
        if let Some(notice) = notices.find(|it| REPLACED_REASONS.contains(&it.reason.as_str())) {
            let advice = "give it a CamelCase reason of this cloud, of at most 64 characters; the host replaced it, or left out a \
                          part of the status";
            return Err(failed(&call.sent, describe_notice(notice), advice));
        }
    }
    let scenario = changes.scenario()?;
    let (again, mixed) = (scenario.call(Step::Again, CREATED)?, scenario.call(Step::Mixed, CREATED)?);
    // The same two Services in reverse order, after another one.
    for (place, later_place) in [(0, 2), (1, 1)] {
        let (before, after) = (last_notices(again, place), last_notices(mixed, later_place));
        if let Some((old, new)) = reworded(before, after) {
            let received = format!("{}, then {}", describe_notice(old), describe_notice(new));
            let advice = "leave out of the message what changes: times, counters, IDs of requests";
            return Err(failed(format!("{}, then {}", again.sent, mixed.sent), received, advice));
        }
    }
    Ok(())
}

/// The notices of the last outcome of a change.
fn last_notices(call: &CallRecord, place: usize) -> &[Notice] {
    let last = call.history.get(place).and_then(|outcomes| outcomes.last()?.report());
    last.map_or(&[], |report| report.notices.as_slice())
}

/// A notice that another one with the same reason has replaced.
fn reworded<'a>(before: &'a [Notice], after: &'a [Notice]) -> Option<(&'a Notice, &'a Notice)> {
    let mut gone = before.iter().filter(|notice| !after.contains(notice));
    gone.find_map(|old| {
        let mut added = after.iter().filter(|notice| !before.contains(notice));
        added.find(|new| new.reason == old.reason).map(|new| (old, new))
    })
}

fn describe_notice(Notice { reason, message, .. }: &Notice) -> String {
    format!("the notice {reason}: {message}")
}

fn annotations(facts: &Facts) -> CheckResult {
    let changes = claims::changes::<Balancing>(facts)?;
    let requirements = facts.description().map(pileus_host::Description::service_requirements);
    let requirements = requirements.unwrap_or_default();
    for call in changes.calls() {
        let mut annotations = call.reports().flat_map(|report| &report.annotations);
        let is_invalid = |(key, value): &&(String, Option<String>)| {
            !is_valid_annotation(key, value.as_deref(), &requirements)
        };
        if let Some((key, value)) = annotations.find(is_invalid) {
            let received = match value {
                Some(value) => format!("the annotation {key}={value} to set"),
                None => format!("the annotation {key} to remove"),
            };
            let advice = "name the key in describe as written, with the type of its values, or don't set it";
            return Err(failed(&call.sent, received, advice));
        }
    }
    changes.scenario().map(|_| ())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::changes::ServiceReport;
    use super::super::check::NotPassed;
    use super::super::cloud::CloudMode;
    use super::super::samples::changes::{call, fault, ip, report};
    use super::super::samples::{facts, outcomes};
    use super::*;

    fn in_progress(addresses: &[&str]) -> ChangeOutcome {
        ChangeOutcome::InProgress {
            after: Duration::from_secs(1),
            resume: None,
            report: ServiceReport {
                status: (!addresses.is_empty()).then(|| report(addresses).status).flatten(),
                ..ServiceReport::default()
            },
        }
    }

    fn early_ingress_of(outcomes: Vec<ChangeOutcome>) -> Facts {
        let mut facts = facts();
        call(&mut facts.load_balancers, Step::Make).history[0] = outcomes;
        facts
    }

    #[test]
    fn ingress_that_was_reported_early_stays() {
        let (one, both) = (["192.0.2.1"], ["192.0.2.1", "192.0.2.2"]);
        for (history, passes) in [
            (vec![in_progress(&[]), ip("192.0.2.1")], true),
            (vec![in_progress(&one), in_progress(&[]), ip("192.0.2.1")], true),
            (vec![in_progress(&one), ChangeOutcome::Done(report(&both))], true),
            (vec![in_progress(&one), ChangeOutcome::Elsewhere], true),
            (vec![in_progress(&both), ip("192.0.2.1")], false),
            (vec![in_progress(&one), in_progress(&[]), ip("192.0.2.2")], false),
            (vec![in_progress(&one), ChangeOutcome::Done(report(&[]))], false),
        ] {
            let failed: &[&str] = if passes { &[] } else { &["load-balancers.early-ingress"] };
            assert_eq!(outcomes(&early_ingress_of(history.clone()), "failed"), failed, "{history:?}");
        }
    }

    #[test]
    fn a_cloud_that_fails_confirms_no_ingress() {
        for (outcome, passes) in [(in_progress(&[]), true), (in_progress(&["192.0.2.1"]), false)] {
            let mut facts = facts();
            fault(&mut facts.load_balancers, CloudMode::Down).call.history[0] = vec![outcome];
            let failed: &[&str] = if passes { &[] } else { &["load-balancers.early-ingress"] };
            assert_eq!(outcomes(&facts, "failed"), failed);
        }
    }

    fn notice(reason: &str, message: &str) -> Notice {
        Notice { reason: reason.to_owned(), message: message.to_owned(), is_warning: true }
    }

    #[test]
    fn notices_keep_their_reason_and_message() {
        let rows = [
            (vec![notice("A", "a")], vec![notice("A", "a")], true),
            (vec![notice("A", "a")], vec![], true),
            (vec![notice("A", "a")], vec![notice("B", "b")], true),
            (vec![notice("A", "a")], vec![notice("A", "a"), notice("A", "b")], true),
            (vec![notice("A", "a")], vec![notice("A", "b")], false),
            (vec![notice("LoadBalancerWarning", "a")], vec![], false),
            (vec![], vec![notice("LoadBalancerNotice", "a")], false),
        ];
        for (before, after, passes) in rows {
            for (place, later_place) in [(0, 2), (1, 1)] {
                let mut facts = facts();
                let told = |notices: &[Notice]| {
                    let report = ServiceReport { notices: notices.to_vec(), ..ServiceReport::default() };
                    vec![ChangeOutcome::Done(report)]
                };
                call(&mut facts.load_balancers, Step::Again).history[place] = told(&before);
                call(&mut facts.load_balancers, Step::Mixed).history[later_place] = told(&after);
                let failed: &[&str] = if passes { &[] } else { &["load-balancers.notices"] };
                assert_eq!(outcomes(&facts, "failed"), failed, "{before:?} {after:?}");
            }
        }
    }

    #[test]
    fn annotations_to_set_are_those_that_the_provider_named() {
        for (key, value, passes) in [
            ("sample.example/id", Some("7"), true),
            ("sample.example/id", None, true),
            ("sample.example/id", Some("seven"), false),
            ("sample.example/nodes", Some("a"), false),
            ("sample.example/other", Some("7"), false),
            ("sample.example/other", None, false),
        ] {
            let mut facts = facts();
            let annotations = vec![(key.to_owned(), value.map(str::to_owned))];
            let told = ChangeOutcome::Done(ServiceReport { annotations, ..ServiceReport::default() });
            call(&mut facts.load_balancers, Step::Make).history[1] = vec![told];
            let failed: &[&str] = if passes { &[] } else { &["load-balancers.annotations"] };
            assert_eq!(outcomes(&facts, "failed"), failed, "{key} {value:?}");
        }
    }

    #[test]
    fn without_changes_of_the_cloud_no_check_of_reports_passes() {
        let mut facts = facts();
        facts.load_balancers.as_mut().unwrap().scenario = Err("--allow-changes, which …".to_owned());
        for check in CHECKS {
            let result = (check.test)(&facts);
            assert!(matches!(result, Err(NotPassed::NotRun(_))), "{}", check.id);
        }
    }
}
