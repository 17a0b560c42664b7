//! The shared checks that need no change of the cloud: lists only read, and calls to a failing cloud end in the right way.

use pileus_cloud::ErrorKind;
use pileus_gate::Effect;

use super::super::check::{Check, CheckResult, NotPassed, failed, not_run};
use super::super::cloud::{CloudMode, RETRY_AFTER};
use super::super::describe;
use super::super::facts::{Facts, SeenRequest};
use super::claims::{Changing, changes};
use super::{CallFailure, CallRecord, ChangeOutcome, Changes, FaultRecord, Listing};

/// Listing changes nothing.
pub(in super::super) const fn read_only<C: Changing>(id: &'static str) -> Check {
    Check {
        id,
        claim: "listing makes no request that could change something",
        matters: "a write drops the host's cache and isn't retried; a request without a rule counts as a write",
        test: test_read_only::<C>,
    }
}

/// Faults of the cloud are errors of the right kind.
pub(in super::super) const fn faults<C: Changing>(id: &'static str, matters: &'static str) -> Check {
    Check {
        id,
        claim: "a change that a failing cloud doesn't confirm is an error of the right kind, and not done",
        matters,
        test: test_faults::<C>,
    }
}

/// Listing is all or nothing.
pub(in super::super) const fn whole_list<C: Changing>(id: &'static str, matters: &'static str) -> Check {
    Check {
        id,
        claim: "listing fails if a part of the list can't be read",
        matters,
        test: test_whole_list::<C>,
    }
}

/// Calls respect the soft deadline.
pub(in super::super) const fn deadline<C: Changing>(id: &'static str) -> Check {
    Check {
        id,
        claim: "a call returns after its soft deadline, with in-progress or an error for unfinished changes",
        matters: "a call that the host stops at the hard deadline loses the outcomes of all its changes",
        test: test_deadline::<C>,
    }
}

fn test_read_only<C: Changing>(facts: &Facts) -> CheckResult {
    let changes = changes::<C>(facts)?;
    let with_faults = changes.faults.iter().filter_map(|fault| fault.list.as_ref());
    let real = changes.scenario.iter().flat_map(|scenario| &scenario.lists).map(|(_, list)| list);
    let requests: Vec<_> = real.chain(with_faults).flat_map(|list| &list.requests).collect();
    if requests.is_empty() {
        return Err(grant_needed());
    }
    match requests.into_iter().find(|request| request.effect == Effect::Write) {
        Some(SeenRequest { line, has_rule: true, .. }) => Err(failed(
            C::LIST,
            format!("{line}, which a rule declares a write"),
            "only read; leave corrections to changes",
        )),
        Some(SeenRequest { line, .. }) => Err(failed(
            C::LIST,
            format!("{line}, which no rule matches, so it counts as a write"),
            "add a rule with the effect read to the settings",
        )),
        None => Ok(()),
    }
}

/// Whether an error is of a right kind, and the name of that kind.
type Kinds = (fn(ErrorKind) -> bool, &'static str);

/// The right kinds of error for a fault; none if any kind is right.
fn right_kinds(mode: CloudMode) -> Option<Kinds> {
    let throttled =
        |kind| matches!(kind, ErrorKind::Throttled(Some(after)) if after.as_secs() == RETRY_AFTER);
    let down = |kind| matches!(kind, ErrorKind::Unavailable(_) | ErrorKind::Throttled(_));
    match mode {
        CloudMode::Busy => Some((throttled, "throttled, with the time of Retry-After")),
        CloudMode::Down => Some((down, "unavailable")),
        CloudMode::Forbidden => Some((|kind| kind == ErrorKind::Denied, "denied")),
        CloudMode::CutOff => Some((|kind| kind == ErrorKind::Unavailable(None), "unavailable")),
        _ => None,
    }
}

fn grant_needed() -> NotPassed {
    not_run("a grant for the hosts that it requests: pass --grant URL, or --provider FILE.yaml")
}

/// The faults that a change ran into; a change without requests ran into none.
fn encountered<T>(changes: &Changes<T>) -> Result<Vec<&FaultRecord<T>>, NotPassed> {
    let has_encountered = |fault: &&FaultRecord<T>| {
        !fault.call.requests.is_empty() || matches!(fault.call.outcomes, Err(CallFailure::Fault(_)))
    };
    let encountered: Vec<_> = changes.faults.iter().filter(has_encountered).collect();
    if encountered.is_empty() { Err(grant_needed()) } else { Ok(encountered) }
}

fn test_faults<C: Changing>(facts: &Facts) -> CheckResult {
    for FaultRecord { mode, call, list: _ } in encountered(changes::<C>(facts)?)? {
        let Some((is_right, kind)) = right_kinds(*mode) else { continue };
        let passes = match &call.outcomes {
            Err(CallFailure::Error(error)) => is_right(error.kind),
            Err(CallFailure::Fault(_)) => false,
            Ok(outcomes) => outcomes.iter().all(|outcome| match outcome {
                ChangeOutcome::Failed(error) => is_right(error.kind),
                ChangeOutcome::InProgress { .. } => true,
                ChangeOutcome::Done(_) | ChangeOutcome::Elsewhere => false,
            }),
        };
        if !passes {
            let advice = format!(
                "answer an error of kind {kind} for each change that the cloud did not confirm, and done for none of them"
            );
            return Err(failed_with(*mode, call, &advice));
        }
    }
    Ok(())
}

/// The failure of a call with a fault.
pub(in super::super) fn failed_with(mode: CloudMode, call: &CallRecord, advice: &str) -> NotPassed {
    let sent = format!("{}, with {}", call.sent, mode.as_str());
    call.unless_misaligned(failed(sent, describe::change_outcomes(&call.outcomes), advice))
}

fn test_whole_list<C: Changing>(facts: &Facts) -> CheckResult {
    let mut has_encountered = false;
    for FaultRecord { mode, list: listing, .. } in &changes::<C>(facts)?.faults {
        let Some(Listing { items, requests }) = listing else { continue };
        // The list may have been complete before the cloud broke down.
        let is_cut = *mode != CloudMode::BreaksDown || requests.len() > 1;
        if !is_cut || *mode == CloudMode::NotFound || requests.is_empty() && items.is_ok() {
            continue;
        }
        has_encountered = true;
        let received = match items {
            Err(CallFailure::Error(_)) => continue,
            Err(CallFailure::Fault(fault)) => format!("no answer: the call {fault}"),
            Ok(listed) => format!("a list of {} items", listed.len()),
        };
        let sent = format!("{}, with {}", C::LIST, mode.as_str());
        return Err(failed(
            sent,
            received,
            "if a page of the list fails, return its error instead of the other pages",
        ));
    }
    if has_encountered { Ok(()) } else { Err(grant_needed()) }
}

fn test_deadline<C: Changing>(facts: &Facts) -> CheckResult {
    let changes = changes::<C>(facts)?;
    let (soft, hard) = changes.deadlines;
    for FaultRecord { mode, call, .. } in encountered(changes)? {
        if *mode != CloudMode::Silence {
            continue;
        }
        let is_stopped = |outcome: &ChangeOutcome| {
            matches!(outcome, ChangeOutcome::InProgress { .. } | ChangeOutcome::Failed(_))
        };
        let passes = match &call.outcomes {
            Err(CallFailure::Error(_)) => true,
            Err(CallFailure::Fault(_)) => false,
            Ok(outcomes) => outcomes.iter().all(is_stopped),
        };
        if !passes {
            let advice = format!(
                "read the remaining time from `call.remaining` (here {} at first; the host stops the call after {}), and \
                 answer in-progress for changes that are not done by then",
                describe::duration(soft),
                describe::duration(hard)
            );
            return Err(failed_with(*mode, call, &advice));
        }
    }
    Ok(())
}
