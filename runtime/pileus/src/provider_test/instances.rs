//! Checks of lookups of single Nodes in a healthy cloud.

use pileus_cloud::{Answer, ErrorKind};
use pileus_gate::Effect;
use pileus_host::{Capability, Fault};

use super::check::{Check, CheckResult, NotPassed, failed, not_run};
use super::describe;
use super::facts::{Alone, Facts, Known, LookupCall, LookupOutcome, Lookups, SeenRequest};

pub(super) const CHECKS: &[Check] = &[
    Check {
        id: "instances.known",
        claim: "a Node with an instance is found by its name, with addresses",
        matters: "a joining Node has only its name; until its instance is found, most Pods can't run on it",
        test: found_by_name,
    },
    Check {
        id: "instances.by-id",
        claim: "a Node has the same instance by provider ID as by name",
        matters: "the provider ID of a Node never changes; with another instance behind it, the host would delete or keep \
                  the wrong Node",
        test: by_id,
    },
    Check {
        id: "instances.repeatable",
        claim: "a repeated lookup has the same answer",
        matters: "each changed answer is a write to the API server, for each Node, each half an hour",
        test: repeatable,
    },
    Check {
        id: "instances.absent",
        claim: "a Node without an instance is absent, not an error",
        matters: "the host deletes a Node only after `absent`; after an error, the Node of a deleted instance stays forever",
        test: absent,
    },
    Check {
        id: "instances.confirm",
        claim: "confirm reads the instance itself",
        matters: "the host may delete the Node because of the answer; a stale list could get healthy Nodes deleted",
        test: confirm,
    },
    Check {
        id: "instances.gone",
        claim: "confirm answers absent for an instance that is gone",
        matters: "otherwise the Nodes of deleted instances are never removed",
        test: gone,
    },
    Check {
        id: "instances.foreign-id",
        claim: "a provider ID of another provider is neither found nor absent",
        matters: "`absent` could delete the Node of another cloud",
        test: foreign,
    },
    Check {
        id: "instances.read-only",
        claim: "lookups make no request that could change something",
        matters: "a write drops the host's cache and isn't retried; a request without a rule counts as a write",
        test: read_only,
    },
];

/// Whether a capability can be called, or why not.
pub(super) fn callable(facts: &Facts, capability: Capability) -> CheckResult {
    if !facts.capabilities.contains(&capability) {
        return Err(not_run(format!("a component that exports pileus:provider/{capability}")));
    }
    if facts.configured.is_none() {
        return Err(not_run(
            "a configuration: pass --config FILE or --config '{…}', or --provider FILE.yaml",
        ));
    }
    Ok(())
}

/// The observations of a capability that can be called.
pub(super) fn observed<T>(observed: Option<&T>) -> Result<&T, NotPassed> {
    observed.ok_or_else(|| not_run("info.describe and configuration.accepted have to pass first"))
}

/// The lookups, or why there are none.
pub(super) fn lookups(facts: &Facts) -> Result<&Lookups, NotPassed> {
    callable(facts, Capability::Instances)?;
    observed(facts.lookups.as_ref())
}

/// The lookups of Nodes with an instance, or why there are none.
pub(super) fn known_nodes(facts: &Facts) -> Result<&Known, NotPassed> {
    let known = lookups(facts)?.known.as_ref();
    known.ok_or_else(|| {
        not_run(
            "a Node with an instance: pass --node NAME or --node NAME=PROVIDER-ID, preferably for two Nodes",
        )
    })
}

/// The failure of a call, with its requests.
pub(super) fn missed(call: &LookupCall, advice: impl Into<String>) -> NotPassed {
    let received =
        format!("{}; requests to the cloud: {}", describe::outcome(call), describe::requests(&call.requests));
    let advice = if is_denied(call) {
        "grant what the message names, then test again".to_owned()
    } else {
        advice.into()
    };
    unless_misaligned(call, failed(describe::call(call), received, advice))
}

/// Whether a missing grant kept the provider from making requests.
fn is_denied(call: &LookupCall) -> bool {
    let kind = match &call.outcome {
        LookupOutcome::Answers(answers) => {
            answers.iter().find_map(|answer| Some(answer.as_ref().err()?.kind))
        }
        LookupOutcome::Failed(error) => Some(error.kind),
        LookupOutcome::Fault(_) => None,
    };
    kind == Some(ErrorKind::Denied) && call.requests.is_empty()
}

/// What a check of requests needs.
pub(super) fn requests_needed() -> NotPassed {
    not_run(
        "a Node for which the provider makes requests, and a grant for their hosts: pass --node NAME, and --grant URL or \
         --provider FILE.yaml",
    )
}

/// A call without one answer for each Node shows nothing about the answers themselves.
pub(super) fn unless_misaligned(call: &LookupCall, shortfall: NotPassed) -> NotPassed {
    if is_misaligned(call) { not_run("instances.one-each has to pass first") } else { shortfall }
}

pub(super) fn is_misaligned(call: &LookupCall) -> bool {
    matches!(&call.outcome, LookupOutcome::Fault(Fault::Contract(_)))
}

fn found_by_name(facts: &Facts) -> CheckResult {
    for Alone { expected, by_name: [call, _], .. } in &known_nodes(facts)?.alone {
        let Some(instance) = call.instance() else {
            return Err(missed(
                call,
                "look up the instance by the Node's name, or pass the name of a Node that has an instance",
            ));
        };
        if let Some(expected) = expected
            && *expected != instance.provider_id.to_string()
        {
            return Err(missed(
                call,
                format!("return the instance with the provider ID {expected}, which --node names"),
            ));
        }
        if instance.addresses.is_empty() {
            return Err(missed(call, "return its addresses, with at least one internal-ip"));
        }
        if !instance.left_out.is_empty() {
            return Err(missed(
                call,
                "return only facts that a Node can have; the host leaves the others out",
            ));
        }
    }
    Ok(())
}

fn by_id(facts: &Facts) -> CheckResult {
    repeats(facts)?;
    for Alone { by_name: [by_name, _], by_id, .. } in &known_nodes(facts)?.alone {
        let (Some(instance), Some(call)) = (by_name.instance(), by_id) else {
            return Err(not_run("instances.known has to pass first"));
        };
        if call.instance() != Some(instance) {
            let advice = format!(
                "read the instance that the provider ID names, and answer the same as by name, which was: {}",
                describe::instance(instance)
            );
            return Err(missed(call, advice));
        }
    }
    Ok(())
}

fn repeatable(facts: &Facts) -> CheckResult {
    for Alone { by_name: [first, again], .. } in &known_nodes(facts)?.alone {
        if first.instance().is_none() {
            return Err(not_run("instances.known has to pass first"));
        }
        if first.outcome != again.outcome {
            return Err(failed(
                format!("{}, twice", describe::call(first)),
                format!("first {}, then {}", describe::outcome(first), describe::outcome(again)),
                "return only what the cloud reports, in a stable order",
            ));
        }
    }
    Ok(())
}

/// Unstable answers can't be compared.
pub(super) fn repeats(facts: &Facts) -> CheckResult {
    repeatable(facts).map_err(|shortfall| match shortfall {
        NotPassed::Failed(_) => not_run("instances.repeatable has to pass first"),
        needs @ NotPassed::NotRun(_) => needs,
    })
}

fn absent(facts: &Facts) -> CheckResult {
    let call = &lookups(facts)?.missing;
    match call.answers() {
        Some([Ok(Answer::Absent)]) => was_asked(call),
        _ => Err(missed(
            call,
            "answer absent if the cloud says that the instance doesn't exist: with a 404, or a complete list without it",
        )),
    }
}

/// The host believes an absent instance only if the cloud answered a read of the same call.
fn was_asked(call: &LookupCall) -> CheckResult {
    let is_read = |request: &SeenRequest| match request.effect {
        Effect::Read => true,
        Effect::Write => ["GET ", "HEAD "].iter().any(|method| request.line.starts_with(method)),
        Effect::OperationPoll => false,
    };
    if call.requests.iter().any(is_read) {
        return Ok(());
    }
    Err(missed(
        call,
        "read the instance or a list before you answer absent: the host doesn't believe it otherwise",
    ))
}

fn confirm(facts: &Facts) -> CheckResult {
    for Alone { by_name: [by_name, _], confirmed, .. } in &known_nodes(facts)?.alone {
        let (Some(instance), Some(call)) = (by_name.instance(), confirmed) else {
            return Err(not_run("instances.known has to pass first"));
        };
        if call.instance().is_none_or(|found| found.provider_id != instance.provider_id) {
            return Err(missed(call, "find the instance by its provider ID also for the purpose confirm"));
        }
        if !call.requests.iter().any(|request| !request.about.is_empty()) {
            return Err(missed(
                call,
                "for the purpose confirm, read each instance itself: no request named its ID or name",
            ));
        }
    }
    Ok(())
}

fn gone(facts: &Facts) -> CheckResult {
    let call = lookups(facts)?.gone.as_ref();
    let call =
        call.ok_or_else(|| not_run("the provider ID of an instance that is gone: pass --gone PROVIDER-ID"))?;
    match call.answers() {
        Some([Ok(Answer::Absent)]) => was_asked(call),
        _ => Err(missed(call, "answer absent if the cloud says that it has no instance with this ID")),
    }
}

fn foreign(facts: &Facts) -> CheckResult {
    let call = &lookups(facts)?.foreign;
    match &call.outcome {
        LookupOutcome::Failed(_) => Ok(()),
        LookupOutcome::Answers(answers)
            if !matches!(answers.as_slice(), [Ok(Answer::Absent | Answer::Found(_))]) =>
        {
            Ok(())
        }
        LookupOutcome::Answers(_) | LookupOutcome::Fault(_) => Err(missed(
            call,
            "if a Node has a provider ID, use it alone; answer unmanaged, or an error of kind invalid, for a scheme that \
             isn't yours",
        )),
    }
}

fn read_only(facts: &Facts) -> CheckResult {
    if lookups(facts)?.all().all(|call| call.requests.is_empty()) {
        return Err(requests_needed());
    }
    for call in lookups(facts)?.all() {
        let Some(SeenRequest { line, has_rule, .. }) =
            call.requests.iter().find(|request| request.effect == Effect::Write)
        else {
            continue;
        };
        let (why, advice) = if *has_rule {
            ("which a rule declares a write", "make changes only in load-balancers and routes")
        } else {
            let advice = "add a rule with the effect read to the settings";
            ("which no rule matches, so it counts as a write", advice)
        };
        return Err(failed(describe::call(call), format!("{line}, {why}"), advice));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use pileus_cloud::{Error, Instance, Stance};

    use super::super::samples::{answers, facts, found, known, lookups_of, outcomes, trapped};
    use super::*;

    /// Changes the first Node's instance in all answers about it.
    fn in_all_answers(facts: &mut Facts, change: impl Fn(&mut Instance)) {
        let Known { alone, mixed, reversed, refreshed } = known(facts);
        let alone = &mut alone[0];
        alone.by_name.iter_mut().chain(&mut alone.by_id).for_each(|call| change(found(call)));
        in_batches([mixed, reversed].into_iter().chain(refreshed), change);
    }

    /// Changes the first Node's instance in calls about several Nodes.
    fn in_batches<'a>(calls: impl IntoIterator<Item = &'a mut LookupCall>, change: impl Fn(&mut Instance)) {
        for call in calls {
            let LookupOutcome::Answers(answers) = &mut call.outcome else { unreachable!() };
            for answer in answers {
                if let Ok(Answer::Found(instance)) = answer
                    && instance.provider_id.to_string().ends_with("node-1")
                {
                    change(instance);
                }
            }
        }
    }

    /// Each row breaks one rule in the observations of a conforming provider.
    #[test]
    fn each_mistake_fails_exactly_its_own_check() {
        type Mistake = fn(&mut Facts);
        let rows: [(&str, Mistake); 15] = [
            ("instances.known", |facts| known(facts).alone[0].expected = Some("other://1".to_owned())),
            ("instances.known", |facts| {
                let reason = "InternalIP \"127.0.0.1\": it is loopback";
                in_all_answers(facts, |instance| instance.left_out.push(reason.to_owned()));
            }),
            ("instances.by-id", |facts| {
                let Known { alone, refreshed, .. } = known(facts);
                let move_to_b = |instance: &mut Instance| instance.zone = Some("b".to_owned());
                move_to_b(found(alone[0].by_id.as_mut().unwrap()));
                in_batches(refreshed, move_to_b);
            }),
            ("instances.repeatable", |facts| {
                let more = ("a".to_owned(), "b".to_owned());
                found(&mut known(facts).alone[1].by_name[1]).labels.push(more);
            }),
            ("instances.absent", |facts| {
                let broken = Error::new(ErrorKind::Broken, "no such machine");
                lookups_of(facts).missing.outcome = LookupOutcome::Answers(vec![Err(broken)]);
            }),
            ("instances.absent", |facts| lookups_of(facts).missing.outcome = trapped()),
            ("instances.confirm", |facts| {
                known(facts).alone[1].confirmed.as_mut().unwrap().requests[0].about.clear();
            }),
            ("instances.confirm", |facts| {
                known(facts).alone[0].confirmed.as_mut().unwrap().outcome = answers([Ok(Answer::Absent)]);
            }),
            ("instances.gone", |facts| {
                lookups_of(facts).gone.as_mut().unwrap().outcome =
                    answers([Ok(Answer::Unmanaged(Stance::LeftAlone))]);
            }),
            ("instances.absent", |facts| lookups_of(facts).missing.requests.clear()),
            ("instances.gone", |facts| {
                let gone = lookups_of(facts).gone.as_mut().unwrap();
                gone.requests.iter_mut().for_each(|request| request.effect = Effect::OperationPoll);
            }),
            ("instances.foreign-id", |facts| {
                lookups_of(facts).foreign.outcome = answers([Ok(Answer::Absent)]);
            }),
            ("instances.foreign-id", |facts| lookups_of(facts).foreign.outcome = trapped()),
            ("instances.read-only", |facts| {
                lookups_of(facts).empty.requests.push(SeenRequest {
                    line: "POST https://cloud.example/".to_owned(),
                    effect: Effect::Write,
                    has_rule: false,
                    about: Vec::new(),
                });
            }),
            ("instances.known", |facts| {
                in_all_answers(facts, |instance| instance.addresses.clear());
            }),
        ];
        for (expected, mistake) in rows {
            let mut facts = facts();
            mistake(&mut facts);
            assert_eq!(outcomes(&facts, "failed"), [expected]);
        }
    }

    #[test]
    fn without_a_grant_the_advice_is_to_add_one() {
        let mut facts = facts();
        let alone = &mut known(&mut facts).alone[0];
        let denied = Error::new(ErrorKind::Denied, "it isn't granted");
        for call in &mut alone.by_name {
            call.outcome = answers([Err(denied.clone())]);
            call.requests.clear();
        }
        let Err(NotPassed::Failed(failure)) = found_by_name(&facts) else { unreachable!() };
        assert!(failure.advice.starts_with("grant what"), "{failure:?}");
        assert!(outcomes(&facts, "not run").contains(&"instances.repeatable"), "two errors prove nothing");
    }

    #[test]
    fn without_requests_the_checks_of_requests_do_not_run() {
        let mut facts = facts();
        let clear = |call: &mut LookupCall| call.requests.clear();
        let Lookups { deadlines: _, empty, missing, foreign, largest, gone, known, faults, refused } =
            lookups_of(&mut facts);
        refused.clear();
        [empty, missing, foreign, largest].into_iter().chain(gone).for_each(clear);
        *known = None;
        faults.iter_mut().flat_map(|(_, calls)| calls).for_each(clear);
        let unrun = outcomes(&facts, "not run");
        assert!(
            unrun.contains(&"instances.read-only") && unrun.contains(&"instances.largest-batch"),
            "{unrun:?}"
        );
    }

    #[test]
    fn checks_that_lack_a_flag_name_it() {
        let needs = |result| match result {
            Err(NotPassed::NotRun(needs)) => needs,
            other => unreachable!("{other:?}"),
        };
        let mut facts = facts();
        lookups_of(&mut facts).known = None;
        lookups_of(&mut facts).gone = None;
        assert!(needs(found_by_name(&facts)).contains("--node NAME"));
        assert!(needs(gone(&facts)).contains("--gone PROVIDER-ID"));
        let names = ["known", "by-id", "repeatable", "confirm", "gone", "order", "neighbours", "refresh"];
        let mut unrun = names.map(|name| format!("instances.{name}")).to_vec();
        unrun.push("trouble.halfway".to_owned());
        assert_eq!(outcomes(&facts, "not run"), unrun);
        facts.configured = None;
        assert!(needs(absent(&facts)).contains("--config"));
        facts.capabilities.clear();
        assert!(needs(absent(&facts)).contains("exports"));
        assert_eq!(outcomes(&facts, "failed"), [""; 0]);
    }
}
