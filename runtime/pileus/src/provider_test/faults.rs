//! Checks of lookups with a cloud that fails: the answer is an error of the right kind, and never absent.

use pileus_cloud::{Answer, ErrorKind};
use pileus_host::Fault;

use super::check::{Check, CheckResult, NotPassed, failed, not_run};
use super::cloud::{CloudMode, RETRY_AFTER};
use super::describe;
use super::facts::{Facts, LookupCall, LookupOutcome};
use super::instances::{known_nodes, lookups, requests_needed, unless_misaligned};

pub(super) const CHECKS: &[Check] = &[
    Check {
        id: "trouble.busy",
        claim: "429 is an error of kind throttled, and nothing is absent",
        matters: "the host then waits as long as the cloud asks; after any other answer it would add load",
        test: |facts| {
            right_kind(facts, CloudMode::Busy, |kind| matches!(kind, ErrorKind::Throttled(_)), "throttled")
        },
    },
    Check {
        id: "trouble.retry-after",
        claim: "throttled has the time of Retry-After",
        matters: "without it the host guesses, and retries too early or much too late",
        test: retry_after,
    },
    Check {
        id: "trouble.down",
        claim: "503 is an error of kind unavailable, and nothing is absent",
        matters: "an outage of the cloud must not delete Nodes",
        test: |facts| {
            let is_right = |kind| matches!(kind, ErrorKind::Unavailable(_) | ErrorKind::Throttled(_));
            right_kind(facts, CloudMode::Down, is_right, "unavailable")
        },
    },
    Check {
        id: "trouble.halfway",
        claim: "a Node is not absent because a later page of a list failed",
        matters: "otherwise every Node on the missing pages could be deleted",
        test: halfway,
    },
    Check {
        id: "trouble.forbidden",
        claim: "403 is an error of kind denied, and nothing is absent",
        matters: "a revoked permission must not delete Nodes, and the operator has to learn about it",
        test: |facts| right_kind(facts, CloudMode::Forbidden, |kind| kind == ErrorKind::Denied, "denied"),
    },
    Check {
        id: "trouble.not-found",
        claim: "404 to every request is answered, and no instance is found",
        matters: "an API that has moved must not trap the provider",
        test: not_found,
    },
    Check {
        id: "trouble.page",
        claim: "an answer that is not from the cloud is an error, and nothing is absent",
        matters: "a page of a proxy must not be taken for an empty list",
        test: |facts| {
            let is_right = |kind| matches!(kind, ErrorKind::Broken | ErrorKind::Unavailable(_));
            right_kind(facts, CloudMode::Page, is_right, "broken or unavailable")
        },
    },
    Check {
        id: "trouble.cut-off",
        claim: "a broken connection is an error of kind unavailable, and nothing is absent",
        matters: "networks fail for minutes; Nodes must survive that, and be looked up again soon",
        test: |facts| {
            right_kind(facts, CloudMode::CutOff, |kind| kind == ErrorKind::Unavailable(None), "unavailable")
        },
    },
    Check {
        id: "trouble.silence",
        claim: "a call returns after its soft deadline, with pending or an error for unfinished Nodes",
        matters: "a call that the host stops at the hard deadline loses the answers of all its Nodes",
        test: silence,
    },
];

/// The calls that encountered a fault. A call without requests encountered none.
fn encountered(facts: &Facts, mode: CloudMode) -> Result<Vec<&LookupCall>, NotPassed> {
    let calls =
        lookups(facts)?.faults.iter().filter(|(other, _)| *other == mode).flat_map(|(_, calls)| calls);
    let encountered: Vec<_> = calls
        .filter(|call| !call.requests.is_empty() || matches!(call.outcome, LookupOutcome::Fault(_)))
        .collect();
    if encountered.is_empty() {
        return Err(requests_needed());
    }
    Ok(encountered)
}

fn missed(call: &LookupCall, mode: CloudMode, advice: impl Into<String>) -> NotPassed {
    let sent = format!("{}, with {}", describe::call(call), mode.as_str());
    let advice = match &call.outcome {
        LookupOutcome::Answers(_)
        | LookupOutcome::Failed(_)
        | LookupOutcome::Fault(Fault::Deadline { .. }) => advice.into(),
        LookupOutcome::Fault(_) => "return an error if a request fails, instead of trapping".to_owned(),
    };
    unless_misaligned(call, failed(sent, describe::outcome(call), advice))
}

/// Every answer is an error of a right kind, or pending.
fn right_kind(facts: &Facts, mode: CloudMode, is_right: fn(ErrorKind) -> bool, kind: &str) -> CheckResult {
    for call in encountered(facts, mode)? {
        let passes = match &call.outcome {
            LookupOutcome::Failed(error) => is_right(error.kind),
            LookupOutcome::Answers(answers) => answers.iter().all(|answer| match answer {
                Err(error) => is_right(error.kind),
                Ok(Answer::Pending(_)) => true,
                Ok(_) => false,
            }),
            LookupOutcome::Fault(_) => false,
        };
        if !passes {
            let advice = format!(
                "check the status before the body, and answer an error of kind {kind} for every Node that is not \
                 known then"
            );
            return Err(missed(call, mode, advice));
        }
    }
    Ok(())
}

fn retry_after(facts: &Facts) -> CheckResult {
    let has_time = |kind: ErrorKind| match kind {
        ErrorKind::Throttled(after) => after.is_some_and(|after| after.as_secs() == RETRY_AFTER),
        _ => true, // another check tests the kind
    };
    for call in encountered(facts, CloudMode::Busy)? {
        let passes = match &call.outcome {
            LookupOutcome::Failed(error) => has_time(error.kind),
            LookupOutcome::Answers(answers) => {
                answers.iter().filter_map(|answer| answer.as_ref().err()).all(|error| has_time(error.kind))
            }
            LookupOutcome::Fault(_) => true,
        };
        if !passes {
            let advice = format!(
                "put the time of the header Retry-After, which was {RETRY_AFTER} seconds, into throttled"
            );
            return Err(missed(call, CloudMode::Busy, advice));
        }
    }
    Ok(())
}

/// The cloud has instances of all these Nodes, so none of them is absent, regardless of the answers that the provider got.
fn halfway(facts: &Facts) -> CheckResult {
    if known_nodes(facts)?.alone.iter().any(|known| known.by_name[0].instance().is_none()) {
        return Err(not_run("instances.known has to pass first"));
    }
    let was_cut =
        |call: &&LookupCall| call.requests.len() > 1 || matches!(call.outcome, LookupOutcome::Fault(_));
    let calls: Vec<_> = encountered(facts, CloudMode::BreaksDown)?.into_iter().filter(was_cut).collect();
    if calls.is_empty() {
        return Err(not_run(
            "Nodes that need more than one request: pass --node NAME for a Node on the second page, or for several Nodes",
        ));
    }
    for call in calls {
        let is_absent = |answer: &Result<Answer, _>| matches!(answer, Ok(Answer::Absent));
        let passes = match &call.outcome {
            LookupOutcome::Failed(_) => true,
            LookupOutcome::Answers(answers) => !answers.iter().any(is_absent),
            LookupOutcome::Fault(_) => false,
        };
        if !passes {
            let advice =
                "if a page of a list fails, answer its error for every Node that is not on earlier pages";
            return Err(missed(call, CloudMode::BreaksDown, advice));
        }
    }
    Ok(())
}

fn not_found(facts: &Facts) -> CheckResult {
    for call in encountered(facts, CloudMode::NotFound)? {
        let has_found = |answers: &[Result<Answer, _>]| {
            answers.iter().any(|answer| matches!(answer, Ok(Answer::Found(_))))
        };
        let passes = match &call.outcome {
            LookupOutcome::Failed(_) => true,
            LookupOutcome::Answers(answers) => !has_found(answers),
            LookupOutcome::Fault(_) => false,
        };
        if !passes {
            return Err(missed(
                call,
                CloudMode::NotFound,
                "answer absent if the instance itself was read, else an error",
            ));
        }
    }
    Ok(())
}

fn silence(facts: &Facts) -> CheckResult {
    let (soft, hard) = lookups(facts)?.deadlines;
    for call in encountered(facts, CloudMode::Silence)? {
        let passes = match &call.outcome {
            LookupOutcome::Failed(_) => true,
            LookupOutcome::Answers(answers) => {
                answers.iter().all(|answer| matches!(answer, Err(_) | Ok(Answer::Pending(_))))
            }
            LookupOutcome::Fault(_) => false,
        };
        if !passes {
            let advice = format!(
                "read the remaining time from `call.remaining` (here {} at first; the host stops the call after {}), wait for no \
                 request much longer than that, and answer pending for Nodes that are not known by then",
                describe::duration(soft),
                describe::duration(hard)
            );
            return Err(missed(call, CloudMode::Silence, advice));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use pileus_cloud::Error;

    use super::super::samples::{answers, facts, outcomes, trapped};
    use super::*;

    fn with(mode: CloudMode, outcome: LookupOutcome) -> Facts {
        let mut facts = facts();
        let faults = &mut facts.lookups.as_mut().unwrap().faults;
        let (_, calls) = faults.iter_mut().find(|(other, _)| *other == mode).unwrap();
        calls[0].outcome = outcome;
        facts
    }

    #[test]
    fn with_a_fault_only_errors_of_a_right_kind_and_pending_pass() {
        let absent = || answers([Ok(Answer::Absent)]);
        let error = |kind| LookupOutcome::Failed(Error::new(kind, "it failed"));
        let pending = || answers([Ok(Answer::Pending(Duration::from_secs(1)))]);
        let late = ErrorKind::Throttled(Some(Duration::from_secs(1)));
        let rows = [
            (CloudMode::Busy, absent(), Some("trouble.busy")),
            (CloudMode::Busy, trapped(), Some("trouble.busy")),
            (CloudMode::Busy, error(ErrorKind::Broken), Some("trouble.busy")),
            (CloudMode::Busy, error(ErrorKind::Throttled(None)), Some("trouble.retry-after")),
            (CloudMode::Busy, error(late), Some("trouble.retry-after")),
            (CloudMode::Busy, pending(), None),
            (CloudMode::Down, absent(), Some("trouble.down")),
            (CloudMode::Down, error(ErrorKind::Invalid), Some("trouble.down")),
            (CloudMode::Down, error(ErrorKind::Throttled(None)), None),
            (CloudMode::BreaksDown, absent(), Some("trouble.halfway")),
            (CloudMode::BreaksDown, trapped(), Some("trouble.halfway")),
            (CloudMode::BreaksDown, pending(), None),
            (CloudMode::Forbidden, absent(), Some("trouble.forbidden")),
            (CloudMode::Forbidden, error(ErrorKind::Unavailable(None)), Some("trouble.forbidden")),
            (CloudMode::NotFound, absent(), None),
            (CloudMode::NotFound, trapped(), Some("trouble.not-found")),
            (CloudMode::Page, absent(), Some("trouble.page")),
            (CloudMode::Page, error(ErrorKind::Broken), None),
            (CloudMode::CutOff, absent(), Some("trouble.cut-off")),
            (CloudMode::Silence, absent(), Some("trouble.silence")),
            (CloudMode::Silence, trapped(), Some("trouble.silence")),
            (CloudMode::Silence, error(ErrorKind::Unavailable(None)), None),
        ];
        for (mode, outcome, expected) in rows {
            let text = format!("{mode:?} {outcome:?}");
            assert_eq!(outcomes(&with(mode, outcome), "failed"), Vec::from_iter(expected), "{text}");
        }
    }

    #[test]
    fn a_node_without_an_instance_may_be_absent_halfway() {
        let mut facts = with(CloudMode::BreaksDown, answers([Ok(Answer::Absent)]));
        for call in &mut facts.lookups.as_mut().unwrap().known.as_mut().unwrap().alone[0].by_name {
            call.outcome = answers([Ok(Answer::Absent)]);
        }
        assert_eq!(outcomes(&facts, "failed"), ["instances.known"]);
        assert!(outcomes(&facts, "not run").contains(&"trouble.halfway"));
    }

    #[test]
    fn without_requests_no_check_of_faults_passes() {
        let mut facts = facts();
        for (_, calls) in &mut facts.lookups.as_mut().unwrap().faults {
            for call in calls {
                call.requests.clear();
            }
        }
        let ids: Vec<_> = CHECKS.iter().map(|check| check.id).collect();
        assert_eq!(outcomes(&facts, "not run"), ids);
    }
}
