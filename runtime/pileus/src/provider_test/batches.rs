//! Checks of lookups of many Nodes at once in a healthy cloud.

use pileus_cloud::Instance;

use super::check::{Check, CheckResult, NotPassed, failed, not_run};
use super::describe;
use super::facts::{Alone, Facts, Known, LookupCall, LookupOutcome, instance_of};
use super::instances::{is_misaligned, known_nodes, lookups, missed, repeats, requests_needed};

pub(super) const CHECKS: &[Check] = &[
    Check {
        id: "instances.empty",
        claim: "an empty list of Nodes has an empty list of answers",
        matters: "a call without Nodes must not fail",
        test: empty,
    },
    Check {
        id: "instances.one-each",
        claim: "every call returns one answer for each Node",
        matters: "the host discards a list of another length, so none of its Nodes makes progress",
        test: one_each,
    },
    Check {
        id: "instances.order",
        claim: "answers are in the order of the Nodes",
        matters: "an answer at the wrong place gives a Node the addresses of another, or deletes it",
        test: order,
    },
    Check {
        id: "instances.neighbours",
        claim: "a Node has the same answer in a batch as alone",
        matters: "one Node that can't be found must not keep the others from joining",
        test: neighbours,
    },
    Check {
        id: "instances.refresh",
        claim: "a Node has the same answer in a full refresh by provider ID as alone",
        matters: "a provider reads a list for many Nodes; one that can't find them in it by their IDs makes all of them look \
                  deleted",
        test: refresh,
    },
    Check {
        id: "instances.largest-batch",
        claim: "the largest batch is answered in time",
        matters: "the host sends batches as large as the provider declares; after a restart that is the whole cluster",
        test: largest,
    },
];

fn empty(facts: &Facts) -> CheckResult {
    let call = &lookups(facts)?.empty;
    match call.answers() {
        Some([]) => Ok(()),
        _ => Err(missed(call, "return an empty list; no request is needed")),
    }
}

fn one_each(facts: &Facts) -> CheckResult {
    let wrong = lookups(facts)?.all().find(|call| is_misaligned(call));
    wrong.map_or(Ok(()), |call| {
        Err(failed(
            describe::call(call),
            describe::outcome(call),
            "build the list from the Nodes that were sent, in their order, not from what the cloud lists",
        ))
    })
}

/// The instance of each Node of a call, or none.
type FoundInstances<'a> = Vec<Option<&'a Instance>>;

/// The mixed calls, with the instance that each Node has when it is looked up alone; none for Nodes without an instance,
/// regardless of the answer about them.
fn mixed(facts: &Facts) -> Result<[(&LookupCall, FoundInstances<'_>); 2], NotPassed> {
    let Known { alone, mixed, reversed, refreshed: _ } = known_nodes(facts)?;
    repeats(facts)?;
    let mut instances = Vec::new();
    for Alone { by_name: [call, _], .. } in alone {
        let instance = call.instance().ok_or_else(|| not_run("instances.known has to pass first"))?;
        instances.extend([Some(instance), None]);
    }
    instances.push(None);
    let backwards = instances.iter().rev().copied().collect();
    Ok([(mixed, instances), (reversed, backwards)])
}

/// The instances in a call's answers, if it returned some.
fn found_instances(call: &LookupCall) -> Option<FoundInstances<'_>> {
    Some(call.answers()?.iter().map(instance_of).collect())
}

fn have_same_items(found: &[Option<&Instance>], expected: &[Option<&Instance>]) -> bool {
    let mut left = expected.to_vec();
    found.len() == expected.len()
        && found.iter().all(|instance| {
            let at = left.iter().position(|other| other == instance);
            at.map(|at| left.swap_remove(at)).is_some()
        })
}

fn order(facts: &Facts) -> CheckResult {
    for (call, expected) in mixed(facts)? {
        match found_instances(call) {
            Some(found) if found == expected => {}
            Some(found) if have_same_items(&found, &expected) => {
                let advice = "iterate over the Nodes in the order in which they were sent, and look each one up in the \
                              cloud's answer";
                return Err(missed(call, advice));
            }
            _ => return Err(not_run("instances.neighbours has to pass first")),
        }
    }
    Ok(())
}

fn neighbours(facts: &Facts) -> CheckResult {
    for (call, expected) in mixed(facts)? {
        if !found_instances(call).is_some_and(|found| have_same_items(&found, &expected)) {
            let advice =
                "give each Node its own outcome; fail the whole call only if no Node can be looked up at all";
            return Err(missed(call, advice));
        }
    }
    Ok(())
}

fn refresh(facts: &Facts) -> CheckResult {
    let Known { alone, refreshed, .. } = known_nodes(facts)?;
    repeats(facts)?;
    let each: Option<Vec<_>> = alone.iter().map(|alone| alone.by_id.as_ref()?.answers()?.first()).collect();
    let (Some(each), Some(call)) = (each, refreshed) else {
        return Err(not_run("instances.known has to pass first"));
    };
    let is_same =
        |answers: &[_]| answers.iter().zip(each.iter().cycle()).all(|(answer, alone)| answer == *alone);
    if call.answers().is_some_and(is_same) {
        return Ok(());
    }
    Err(missed(call, "find each Node of a batch by its provider ID, also in what a list returned"))
}

fn largest(facts: &Facts) -> CheckResult {
    let call = &lookups(facts)?.largest;
    match &call.outcome {
        LookupOutcome::Answers(answers) if answers.iter().any(|answer| instance_of(answer).is_some()) => {
            Err(missed(call, "do not find an instance for a Node that has none"))
        }
        LookupOutcome::Answers(_) | LookupOutcome::Failed(_) if call.requests.is_empty() => {
            Err(requests_needed())
        }
        LookupOutcome::Answers(_) | LookupOutcome::Failed(_) => Ok(()),
        LookupOutcome::Fault(_) => Err(missed(
            call,
            format!(
                "declare a smaller largest batch in describe, or take less time for each Node; this call took {}",
                describe::duration(call.took)
            ),
        )),
    }
}

#[cfg(test)]
mod tests {
    use pileus_cloud::{Answer, Error, ErrorKind};
    use pileus_host::Fault;

    use super::super::samples::{answers, facts, known, lookups_of, outcomes, trapped};
    use super::*;

    fn swap(call: &mut LookupCall) {
        if let LookupOutcome::Answers(answers) = &mut call.outcome {
            answers.reverse();
        }
    }

    /// Each row breaks one rule in the observations of a conforming provider.
    #[test]
    fn each_mistake_fails_exactly_its_own_check() {
        type Mistake = fn(&mut Facts);
        let rows: [(&str, Mistake); 7] = [
            ("instances.empty", |facts| lookups_of(facts).empty.outcome = trapped()),
            ("instances.order", |facts| {
                swap(&mut known(facts).mixed);
                swap(&mut known(facts).reversed);
            }),
            ("instances.refresh", |facts| {
                let call = known(facts).refreshed.as_mut().unwrap();
                call.outcome = answers([Ok(Answer::Absent), Ok(Answer::Absent)]);
            }),
            ("instances.largest-batch", |facts| lookups_of(facts).largest.outcome = trapped()),
            ("instances.one-each", |facts| {
                let contract = Fault::Contract("lookup answered 0 times about 1 nodes".to_owned());
                lookups_of(facts).faults[0].1[0].outcome = LookupOutcome::Fault(contract);
            }),
            ("instances.neighbours", |facts| {
                known(facts).mixed.outcome =
                    LookupOutcome::Failed(Error::new(ErrorKind::Broken, "a Node is unknown"));
            }),
            ("instances.neighbours", |facts| {
                let LookupOutcome::Answers(answers) = &mut known(facts).reversed.outcome else {
                    unreachable!()
                };
                answers[2] = Ok(Answer::Absent);
            }),
        ];
        for (expected, mistake) in rows {
            let mut facts = facts();
            mistake(&mut facts);
            assert_eq!(outcomes(&facts, "failed"), [expected]);
        }
    }

    #[test]
    fn a_node_without_an_instance_may_have_any_answer_but_found() {
        let mut facts = facts();
        let broken = Err(Error::new(ErrorKind::Broken, "no such machine"));
        let LookupOutcome::Answers(answers) = &mut known(&mut facts).mixed.outcome else { unreachable!() };
        answers[1] = broken;
        assert_eq!(outcomes(&facts, "failed"), [""; 0]);
        let LookupOutcome::Answers(answers) = &mut known(&mut facts).mixed.outcome else { unreachable!() };
        answers[1] = answers[0].clone();
        assert_eq!(outcomes(&facts, "failed"), ["instances.neighbours"]);
    }
}
