//! What a provider answers about single Nodes while its cloud is well.

use pileus_cloud::{Answer, ErrorKind};
use pileus_gate::Effect;
use pileus_host::{Capability, Fault};

use super::check::{Check, Shortfall, Verdict, failed, not_run};
use super::facts::{Alone, Call, Facts, Known, Lookups, Outcome, Seen};
use super::words;

pub(super) const CHECKS: &[Check] = &[
    Check {
        id: "instances.known",
        claim: "a Node that the cloud knows is found by its name, with its addresses",
        matters: "a Node that joins has only its name; until it is found, no Pod runs on it",
        judge: finds,
    },
    Check {
        id: "instances.by-id",
        claim: "by its provider ID a Node has the same machine as by its name",
        matters: "the provider ID is written once and never changes; another machine behind it would be deleted or kept \
                  wrongly",
        judge: by_id,
    },
    Check {
        id: "instances.repeatable",
        claim: "the same question gets the same answer",
        matters: "each change of an answer is a write to the API server, for each Node, each half an hour",
        judge: repeatable,
    },
    Check {
        id: "instances.absent",
        claim: "a Node that nobody has is absent, and not an error",
        matters: "only `absent` lets the host remove a Node; with an error the Node of a deleted machine stays for ever",
        judge: absent,
    },
    Check {
        id: "instances.confirm",
        claim: "confirm reads the very machine that it is asked about",
        matters: "a Node may be deleted on the answer, and lists lag behind: a conclusion from one deletes healthy Nodes",
        judge: confirm,
    },
    Check {
        id: "instances.gone",
        claim: "confirm says of a machine that is gone that it is absent",
        matters: "otherwise the Nodes of deleted machines are never removed",
        judge: gone,
    },
    Check {
        id: "instances.foreign-id",
        claim: "a provider ID of another provider is neither found nor absent",
        matters: "`absent` may delete the Node of another cloud",
        judge: foreign,
    },
    Check {
        id: "instances.read-only",
        claim: "lookups make no request that could change something",
        matters: "a write drops the host's cache and isn't repeated; what no rule matches counts as one",
        judge: read_only,
    },
];

/// Whether a capability could be called, or why not.
pub(super) fn callable(facts: &Facts, capability: Capability) -> Verdict {
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

/// What was seen of a capability that can be called.
pub(super) fn seen<T>(seen: Option<&T>) -> Result<&T, Shortfall> {
    seen.ok_or_else(|| not_run("info.describe and configuration.accepted have to pass first"))
}

/// The calls that were made, or why there were none.
pub(super) fn lookups(facts: &Facts) -> Result<&Lookups, Shortfall> {
    callable(facts, Capability::Instances)?;
    seen(facts.lookups.as_ref())
}

pub(super) fn known_nodes(facts: &Facts) -> Result<&Known, Shortfall> {
    let known = lookups(facts)?.known.as_ref();
    known.ok_or_else(|| {
        not_run("a Node that the cloud knows: pass --node NAME or --node NAME=PROVIDER-ID, better twice with two of them")
    })
}

/// A call that didn't bring what it should, with its requests.
pub(super) fn missed(call: &Call, advice: impl Into<String>) -> Shortfall {
    let came = format!("{}; asked of the cloud: {}", words::came(call), words::requests(call));
    let advice = if is_denied(call) {
        "grant what the message names, and test again".to_owned()
    } else {
        advice.into()
    };
    unless_misaligned(call, failed(words::sent(call), came, advice))
}

/// Whether the provider could find nothing out, as no grant lets it ask.
fn is_denied(call: &Call) -> bool {
    let kind = match &call.outcome {
        Outcome::Answers(answers) => answers.iter().find_map(|answer| Some(answer.as_ref().err()?.kind)),
        Outcome::Failed(error) => Some(error.kind),
        Outcome::Fault(_) => None,
    };
    kind == Some(ErrorKind::Denied) && call.requests.is_empty()
}

/// What a check needs that is about the requests of a provider.
pub(super) fn requests_needed() -> Shortfall {
    not_run(
        "a Node that makes the provider ask the cloud, and a grant for its hosts: pass --node NAME, and --grant URL or \
         --provider FILE.yaml",
    )
}

/// A call without one answer for each Node tells nothing about what the answers would have been.
pub(super) fn unless_misaligned(call: &Call, shortfall: Shortfall) -> Shortfall {
    if is_misaligned(call) { not_run("instances.one-each has to pass first") } else { shortfall }
}

pub(super) fn is_misaligned(call: &Call) -> bool {
    matches!(&call.outcome, Outcome::Fault(Fault::Contract(_)))
}

fn finds(facts: &Facts) -> Verdict {
    for Alone { expected, by_name: [call, _], .. } in &known_nodes(facts)?.alone {
        let Some(machine) = call.machine() else {
            return Err(missed(
                call,
                "look the machine up by the Node's name, or pass a Node that the cloud has under that name",
            ));
        };
        if let Some(expected) = expected
            && *expected != machine.provider_id.to_string()
        {
            return Err(missed(
                call,
                format!("return the machine with the provider ID {expected}, as --node says"),
            ));
        }
        if machine.addresses.is_empty() {
            return Err(missed(call, "return its addresses, at least one of the kind internal-ip"));
        }
    }
    Ok(())
}

fn by_id(facts: &Facts) -> Verdict {
    repeats(facts)?;
    for Alone { by_name: [by_name, _], by_id, .. } in &known_nodes(facts)?.alone {
        let (Some(machine), Some(call)) = (by_name.machine(), by_id) else {
            return Err(not_run("instances.known has to pass first"));
        };
        if call.machine() != Some(machine) {
            let advice = format!(
                "read the machine that the provider ID names, and tell the same of it as by name, which was: {}",
                words::instance(machine)
            );
            return Err(missed(call, advice));
        }
    }
    Ok(())
}

fn repeatable(facts: &Facts) -> Verdict {
    for Alone { by_name: [first, again], .. } in &known_nodes(facts)?.alone {
        if first.machine().is_none() {
            return Err(not_run("instances.known has to pass first"));
        }
        if first.outcome != again.outcome {
            return Err(failed(
                format!("{}, twice", words::sent(first)),
                format!("first {}, then {}", words::came(first), words::came(again)),
                "tell only what the cloud says, in an order that doesn't change",
            ));
        }
    }
    Ok(())
}

/// What changes from time to time can't be compared.
pub(super) fn repeats(facts: &Facts) -> Verdict {
    repeatable(facts).map_err(|shortfall| match shortfall {
        Shortfall::Failed(_) => not_run("instances.repeatable has to pass first"),
        needs @ Shortfall::NotRun(_) => needs,
    })
}

fn absent(facts: &Facts) -> Verdict {
    let call = &lookups(facts)?.missing;
    match call.answers() {
        Some([Ok(Answer::Absent)]) => Ok(()),
        _ => Err(missed(
            call,
            "answer absent where the cloud says that it has no such machine: its 404, a complete list without it",
        )),
    }
}

fn confirm(facts: &Facts) -> Verdict {
    for Alone { by_name: [by_name, _], confirmed, .. } in &known_nodes(facts)?.alone {
        let (Some(machine), Some(call)) = (by_name.machine(), confirmed) else {
            return Err(not_run("instances.known has to pass first"));
        };
        if call.machine().is_none_or(|found| found.provider_id != machine.provider_id) {
            return Err(missed(call, "find the machine by its provider ID for the purpose confirm too"));
        }
        if !call.requests.iter().any(|request| !request.about.is_empty()) {
            return Err(missed(
                call,
                "for the purpose confirm, read each machine by itself: no request named it by its ID or its name",
            ));
        }
    }
    Ok(())
}

fn gone(facts: &Facts) -> Verdict {
    let call = lookups(facts)?.gone.as_ref();
    let call =
        call.ok_or_else(|| not_run("the provider ID of a machine that is gone: pass --gone PROVIDER-ID"))?;
    match call.answers() {
        Some([Ok(Answer::Absent)]) => Ok(()),
        _ => Err(missed(call, "answer absent where the cloud answers that it has no machine of this ID")),
    }
}

fn foreign(facts: &Facts) -> Verdict {
    let call = &lookups(facts)?.foreign;
    match &call.outcome {
        Outcome::Failed(_) => Ok(()),
        Outcome::Answers(answers)
            if !matches!(answers.as_slice(), [Ok(Answer::Absent | Answer::Found(_))]) =>
        {
            Ok(())
        }
        Outcome::Answers(_) | Outcome::Fault(_) => Err(missed(
            call,
            "where a Node has a provider ID, go by it alone; answer unmanaged, or an error of kind invalid, where its scheme \
             isn't yours",
        )),
    }
}

fn read_only(facts: &Facts) -> Verdict {
    if lookups(facts)?.all().all(|call| call.requests.is_empty()) {
        return Err(requests_needed());
    }
    for call in lookups(facts)?.all() {
        let Some(Seen { line, has_rule, .. }) =
            call.requests.iter().find(|request| request.effect == Effect::Write)
        else {
            continue;
        };
        let (came, advice) = if *has_rule {
            (format!("{line}, which a rule calls a write"), "leave changes to load-balancers and routes")
        } else {
            (
                format!("{line}, which no rule is about, so it counts as a write"),
                "add a rule for it to the settings, with the effect read",
            )
        };
        return Err(failed(words::sent(call), came, advice));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use pileus_cloud::Error;

    use super::super::samples::{answers, asked, facts, found, known, outcomes, trapped};
    use super::*;

    /// Each row breaks one promise of a provider that keeps all.
    #[test]
    fn each_check_sees_its_own_mistake_and_no_other_does() {
        type Change = fn(&mut Facts);
        let rows: [(&str, Change); 12] = [
            ("instances.known", |facts| known(facts).alone[0].expected = Some("other://1".to_owned())),
            ("instances.by-id", |facts| {
                found(known(facts).alone[0].by_id.as_mut().unwrap()).zone = Some("b".to_owned());
            }),
            ("instances.repeatable", |facts| {
                let more = ("a".to_owned(), "b".to_owned());
                found(&mut known(facts).alone[1].by_name[1]).labels.push(more);
            }),
            ("instances.absent", |facts| {
                let broken = Error::new(ErrorKind::Broken, "no such machine");
                asked(facts).missing.outcome = Outcome::Answers(vec![Err(broken)]);
            }),
            ("instances.absent", |facts| asked(facts).missing.outcome = trapped()),
            ("instances.confirm", |facts| {
                known(facts).alone[1].confirmed.as_mut().unwrap().requests[0].about.clear();
            }),
            ("instances.confirm", |facts| {
                known(facts).alone[0].confirmed.as_mut().unwrap().outcome = answers([Ok(Answer::Absent)]);
            }),
            ("instances.gone", |facts| {
                asked(facts).gone.as_mut().unwrap().outcome = answers([Ok(Answer::Unmanaged)]);
            }),
            ("instances.foreign-id", |facts| {
                asked(facts).foreign.outcome = answers([Ok(Answer::Absent)]);
            }),
            ("instances.foreign-id", |facts| asked(facts).foreign.outcome = trapped()),
            ("instances.read-only", |facts| {
                asked(facts).empty.requests.push(Seen {
                    line: "POST https://cloud.example/".to_owned(),
                    effect: Effect::Write,
                    has_rule: false,
                    about: Vec::new(),
                });
            }),
            ("instances.known", |facts| {
                for call in &mut known(facts).alone[0].by_name {
                    found(call).addresses.clear();
                }
                let alone = &mut known(facts).alone[0];
                found(alone.by_id.as_mut().unwrap()).addresses.clear();
                let Known { mixed, reversed, .. } = known(facts);
                for call in [mixed, reversed] {
                    let Outcome::Answers(answers) = &mut call.outcome else { unreachable!() };
                    for answer in answers {
                        if let Ok(Answer::Found(machine)) = answer
                            && machine.provider_id.to_string().ends_with("node-1")
                        {
                            machine.addresses.clear();
                        }
                    }
                }
            }),
        ];
        for (expected, change) in rows {
            let mut facts = facts();
            change(&mut facts);
            assert_eq!(outcomes(&facts, "failed"), [expected]);
        }
    }

    #[test]
    fn where_nothing_is_granted_that_is_what_to_do_first() {
        let mut facts = facts();
        let alone = &mut known(&mut facts).alone[0];
        let denied = Error::new(ErrorKind::Denied, "it isn't granted");
        for call in &mut alone.by_name {
            call.outcome = answers([Err(denied.clone())]);
            call.requests.clear();
        }
        let Err(Shortfall::Failed(failure)) = finds(&facts) else { unreachable!() };
        assert!(failure.advice.starts_with("grant what"), "{failure:?}");
        assert!(outcomes(&facts, "not run").contains(&"instances.repeatable"), "two errors say nothing");
    }

    #[test]
    fn what_asks_the_cloud_nothing_has_not_shown_that_it_only_reads() {
        let mut facts = facts();
        let clear = |call: &mut Call| call.requests.clear();
        let Lookups { patience: _, empty, missing, foreign, largest, gone, known, troubles } =
            asked(&mut facts);
        [empty, missing, foreign, largest].into_iter().chain(gone).for_each(clear);
        *known = None;
        troubles.iter_mut().flat_map(|(_, calls)| calls).for_each(clear);
        let unrun = outcomes(&facts, "not run");
        assert!(
            unrun.contains(&"instances.read-only") && unrun.contains(&"instances.largest-batch"),
            "{unrun:?}"
        );
    }

    #[test]
    fn what_needs_a_node_or_a_configuration_says_what_to_pass() {
        let needs = |verdict| match verdict {
            Err(Shortfall::NotRun(needs)) => needs,
            other => unreachable!("{other:?}"),
        };
        let mut facts = facts();
        asked(&mut facts).known = None;
        asked(&mut facts).gone = None;
        assert!(needs(finds(&facts)).contains("--node NAME"));
        assert!(needs(gone(&facts)).contains("--gone PROVIDER-ID"));
        let names = ["known", "by-id", "repeatable", "confirm", "gone", "order", "neighbours"];
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
