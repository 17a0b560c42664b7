//! What a provider answers about many Nodes at once, while its cloud is well.

use pileus_cloud::Instance;

use super::check::{Check, Shortfall, Verdict, failed, not_run};
use super::facts::{Alone, Call, Facts, Known, Outcome, machine};
use super::instances::{is_misaligned, known_nodes, lookups, missed, repeats, requests_needed};
use super::words;

pub(super) const CHECKS: &[Check] = &[
    Check {
        id: "instances.empty",
        claim: "an empty list of Nodes gets an empty list of answers",
        matters: "a call must not depend on there being something to ask",
        judge: empty,
    },
    Check {
        id: "instances.one-each",
        claim: "every call brings one answer for each Node",
        matters: "the host throws a list of another length away as a whole: no Node of it gets on",
        judge: one_each,
    },
    Check {
        id: "instances.order",
        claim: "answers stand in the order of the Nodes",
        matters: "an answer at the wrong place gives a Node the addresses of another, or deletes it",
        judge: order,
    },
    Check {
        id: "instances.neighbours",
        claim: "a Node gets the same answer beside others as alone",
        matters: "one Node that can't be found must not keep the others from joining",
        judge: neighbours,
    },
    Check {
        id: "instances.largest-batch",
        claim: "a batch of the largest size is answered in time",
        matters: "the host sends as many as the provider said; after a restart that is the whole cluster",
        judge: largest,
    },
];

fn empty(facts: &Facts) -> Verdict {
    let call = &lookups(facts)?.empty;
    match call.answers() {
        Some([]) => Ok(()),
        _ => Err(missed(call, "return an empty list; a request is needless")),
    }
}

fn one_each(facts: &Facts) -> Verdict {
    let wrong = lookups(facts)?.all().find(|call| is_misaligned(call));
    wrong.map_or(Ok(()), |call| {
        Err(failed(
            words::sent(call),
            words::came(call),
            "build the list from the Nodes that were sent, one after another, not from what the cloud has",
        ))
    })
}

/// The machine of each Node of a call, or none.
type Machines<'a> = Vec<Option<&'a Instance>>;

/// The mixed calls, and the machine that each Node has when it is asked about alone; none for those that nobody has,
/// whatever the answer about them.
fn mixed(facts: &Facts) -> Result<[(&Call, Machines<'_>); 2], Shortfall> {
    let Known { alone, mixed, reversed } = known_nodes(facts)?;
    repeats(facts)?;
    let mut machines = Vec::new();
    for Alone { by_name: [call, _], .. } in alone {
        let machine = call.machine().ok_or_else(|| not_run("instances.known has to pass first"))?;
        machines.extend([Some(machine), None]);
    }
    machines.push(None);
    let backwards = machines.iter().rev().copied().collect();
    Ok([(mixed, machines), (reversed, backwards)])
}

/// The machines of a call's answers, where it brought some.
fn machines(call: &Call) -> Option<Machines<'_>> {
    Some(call.answers()?.iter().map(machine).collect())
}

fn are_the_same_in_some_order(came: &[Option<&Instance>], expected: &[Option<&Instance>]) -> bool {
    let mut left = expected.to_vec();
    came.len() == expected.len()
        && came.iter().all(|machine| {
            let at = left.iter().position(|other| other == machine);
            at.map(|at| left.swap_remove(at)).is_some()
        })
}

fn order(facts: &Facts) -> Verdict {
    for (call, expected) in mixed(facts)? {
        match machines(call) {
            Some(came) if came == expected => {}
            Some(came) if are_the_same_in_some_order(&came, &expected) => {
                let advice = "go through the Nodes in the order in which they were sent, and look each one up in what the \
                              cloud said";
                return Err(missed(call, advice));
            }
            _ => return Err(not_run("instances.neighbours has to pass first")),
        }
    }
    Ok(())
}

fn neighbours(facts: &Facts) -> Verdict {
    for (call, expected) in mixed(facts)? {
        if !machines(call).is_some_and(|came| are_the_same_in_some_order(&came, &expected)) {
            let advice = "give each Node an outcome of its own; fail as a whole only where no Node can be considered at all";
            return Err(missed(call, advice));
        }
    }
    Ok(())
}

fn largest(facts: &Facts) -> Verdict {
    let call = &lookups(facts)?.largest;
    match &call.outcome {
        Outcome::Answers(answers) if answers.iter().any(|answer| machine(answer).is_some()) => {
            Err(missed(call, "find no machine for a Node that nobody has"))
        }
        Outcome::Answers(_) | Outcome::Failed(_) if call.requests.is_empty() => Err(requests_needed()),
        Outcome::Answers(_) | Outcome::Failed(_) => Ok(()),
        Outcome::Fault(_) => Err(missed(
            call,
            format!(
                "name a smaller largest batch in describe, or need less for each Node; this took {}",
                words::human(call.took)
            ),
        )),
    }
}

#[cfg(test)]
mod tests {
    use pileus_cloud::{Answer, Error, ErrorKind};
    use pileus_host::Fault;

    use super::super::samples::{asked, facts, known, outcomes, trapped};
    use super::*;

    fn swap(call: &mut Call) {
        if let Outcome::Answers(answers) = &mut call.outcome {
            answers.reverse();
        }
    }

    /// Each row breaks one promise of a provider that keeps all.
    #[test]
    fn each_check_sees_its_own_mistake_and_no_other_does() {
        type Change = fn(&mut Facts);
        let rows: [(&str, Change); 6] = [
            ("instances.empty", |facts| asked(facts).empty.outcome = trapped()),
            ("instances.order", |facts| {
                swap(&mut known(facts).mixed);
                swap(&mut known(facts).reversed);
            }),
            ("instances.largest-batch", |facts| asked(facts).largest.outcome = trapped()),
            ("instances.one-each", |facts| {
                let contract = Fault::Contract("lookup answered 0 times about 1 nodes".to_owned());
                asked(facts).troubles[0].1[0].outcome = Outcome::Fault(contract);
            }),
            ("instances.neighbours", |facts| {
                known(facts).mixed.outcome =
                    Outcome::Failed(Error::new(ErrorKind::Broken, "a Node is unknown"));
            }),
            ("instances.neighbours", |facts| {
                let Outcome::Answers(answers) = &mut known(facts).reversed.outcome else { unreachable!() };
                answers[2] = Ok(Answer::Absent);
            }),
        ];
        for (expected, change) in rows {
            let mut facts = facts();
            change(&mut facts);
            assert_eq!(outcomes(&facts, "failed"), [expected]);
        }
    }

    #[test]
    fn what_nobody_has_may_be_any_answer_but_a_machine() {
        let mut facts = facts();
        let broken = Err(Error::new(ErrorKind::Broken, "no such machine"));
        let Outcome::Answers(answers) = &mut known(&mut facts).mixed.outcome else { unreachable!() };
        answers[1] = broken;
        assert_eq!(outcomes(&facts, "failed"), [""; 0]);
        let Outcome::Answers(answers) = &mut known(&mut facts).mixed.outcome else { unreachable!() };
        answers[1] = answers[0].clone();
        assert_eq!(outcomes(&facts, "failed"), ["instances.neighbours"]);
    }
}
