//! Checks of how a provider reads valid and invalid configurations.

use pileus_gate::{Coverage, DeniedRequests, Problem, Rule};
use pileus_host::{RequestedEndpoint, Settings};

use super::check::{Check, CheckResult, NotPassed, failed, not_run};
use super::describe;
use super::facts::{Configured, Expected, Facts, Rejection, Remark, WrongDocument};

pub(super) const CHECKS: &[Check] = &[
    Check {
        id: "configuration.accepted",
        claim: "configure accepts the configuration and returns valid settings",
        matters: "without settings there are no rules, and the provider does not start",
        test: accepted,
    },
    Check {
        id: "configuration.same-twice",
        claim: "configure returns the same settings for the same document",
        matters: "with changing rules, caching and limits would work only by chance",
        test: same_twice,
    },
    Check {
        id: "configuration.granted",
        claim: "every host that the provider requests is granted, and so is every request that its rules describe",
        matters: "requests without a grant are denied",
        test: granted,
    },
    Check {
        id: "configuration.effects",
        claim: "no rule calls a request a read that writes by its method",
        matters: "the gate treats a PUT, PATCH or DELETE as a write regardless of its rule, so the provider's reads would be fenced",
        test: effects,
    },
    Check {
        id: "configuration.counted-limits",
        claim: "a rule counts requests against each limit that the settings declare",
        matters: "a limit that no rule names limits nothing, and an operator can't lower it",
        test: counted_limits,
    },
    Check {
        id: "configuration.refuses-rubbish",
        claim: "configure rejects what is not a configuration, with a problem",
        matters: "an accepted mistake shows only later, when the first Node stays uninitialized",
        test: |facts| rejects(facts, |expected| *expected == Expected::AnyProblem),
    },
    Check {
        id: "configuration.names-fields",
        claim: "a problem with a field names the path of that field, and an unknown field is rejected or named in a notice",
        matters: "an operator has to find the field in a long document",
        test: |facts| rejects(facts, |it| matches!(it, Expected::Problem(_) | Expected::ProblemOrNotice(_))),
    },
    Check {
        id: "configuration.never-traps",
        claim: "configure returns for every document, valid or invalid",
        matters: "a trap says nothing about the operator's mistake",
        test: never_traps,
    },
];

/// What was received if an invalid document was accepted.
const ACCEPTED: &str = "settings, as if it were valid";

fn configured(facts: &Facts) -> Result<&Configured, NotPassed> {
    facts.configured.as_ref().ok_or_else(|| {
        not_run("a configuration: pass --config FILE or --config '{…}', or --provider FILE.yaml")
    })
}

fn settings(facts: &Facts) -> Result<(&Configured, &Settings), NotPassed> {
    let configured = configured(facts)?;
    match &configured.answers[0] {
        Ok(settings) => Ok((configured, settings)),
        Err(_) => Err(not_run("configuration.accepted has to pass first")),
    }
}

fn sent(document: &str) -> String {
    format!("info.configure({document})")
}

fn accepted(facts: &Facts) -> CheckResult {
    let Configured { document, answers, .. } = configured(facts)?;
    match &answers[0] {
        Ok(_) => Ok(()),
        Err(refused @ Rejection::Problems(_)) => Err(failed(
            sent(document),
            describe::rejection(refused),
            "fix the configuration that you passed, or how configure reads it",
        )),
        Err(refused @ Rejection::Broken(_)) => Err(failed(
            sent(document),
            describe::rejection(refused),
            "fix what it names; configure must not use the network, and wit/info.wit describes rules",
        )),
    }
}

fn same_twice(facts: &Facts) -> CheckResult {
    let (Configured { document, answers, .. }, first) = settings(facts)?;
    let received = match &answers[1] {
        Ok(second) => changes(first, second),
        Err(refused) => vec![format!("first settings, then: {}", describe::rejection(refused))],
    };
    if received.is_empty() {
        return Ok(());
    }
    Err(failed(
        format!("{}, twice", sent(document)),
        received.join("; "),
        "derive settings from the document alone: no times, no random numbers, no iteration order of a hash map",
    ))
}

/// The differences between two settings.
fn changes(first: &Settings, second: &Settings) -> Vec<String> {
    let parts = |settings: &Settings| {
        let Settings { endpoints, rules, limits, refusals, node_labels, notices, one_at_a_time } = settings;
        let text = |RequestedEndpoint { endpoint, reason, credential }: &RequestedEndpoint| match credential {
            None => format!("{endpoint} ({reason})"),
            Some(hint) => format!("{endpoint} ({reason}, {hint:?})"),
        };
        let endpoints = endpoints.iter().map(text).collect::<Vec<_>>().join(", ");
        [
            ("endpoints", endpoints),
            ("rules", format!("{rules:?}")),
            ("limits", format!("{limits:?}")),
            ("refusals", format!("{refusals:?}")),
            ("node labels", format!("{node_labels:?}")),
            ("notices", format!("{notices:?}")),
            ("one at a time", format!("{one_at_a_time:?}")),
        ]
    };
    let both = parts(first).into_iter().zip(parts(second));
    let change = |((part, first), (_, second)): ((&str, String), (&str, String))| {
        (first != second).then(|| format!("{part}: first {first}, then {second}"))
    };
    both.filter_map(change).collect()
}

fn granted(facts: &Facts) -> CheckResult {
    let (Configured { document, coverage, .. }, settings) = settings(facts)?;
    if coverage.missing.is_empty() {
        return requests_granted(document, coverage, settings);
    }
    let missing: Vec<_> = coverage.missing.iter().map(ToString::to_string).collect();
    let flags: Vec<_> = missing.iter().map(|endpoint| format!("--grant {endpoint}")).collect();
    Err(failed(
        sent(document),
        format!("a request for access to {}, which no grant names", missing.join(", ")),
        format!("if this is intended, pass {} or add a grant to the document", flags.join(" ")),
    ))
}

fn requests_granted(document: &str, coverage: &Coverage, settings: &Settings) -> CheckResult {
    let text = |DeniedRequests { rule, missing }: &DeniedRequests| {
        let Rule { host, method, path, .. } = settings.rules.get(*rule)?;
        Some(format!("{method} {host}{path} ({missing})"))
    };
    let denied: Vec<_> = coverage.denied.iter().filter_map(text).collect();
    if denied.is_empty() {
        return Ok(());
    }
    Err(failed(
        sent(document),
        format!("rules for requests that no grant lets through: {}", denied.join(", ")),
        "add the methods and paths to a grant of the document, or remove the rules",
    ))
}

fn effects(facts: &Facts) -> CheckResult {
    let (Configured { document, .. }, settings) = settings(facts)?;
    not_followed(
        document,
        &pileus_gate::contradictions(&settings.rules),
        "give rules that say read or operation-poll a method of GET, HEAD, OPTIONS or POST",
    )
}

fn counted_limits(facts: &Facts) -> CheckResult {
    let (Configured { document, .. }, settings) = settings(facts)?;
    let limits: Vec<_> = settings.limits.iter().map(|published| published.limit.clone()).collect();
    not_followed(
        document,
        &pileus_gate::uncounted(&settings.rules, &limits),
        "name the key in the limits of the rules whose requests count against it, or leave the limit out",
    )
}

fn not_followed(document: &str, problems: &[Problem], advice: &str) -> CheckResult {
    if problems.is_empty() {
        return Ok(());
    }
    let received: Vec<_> = problems.iter().map(ToString::to_string).collect();
    Err(failed(sent(document), received.join("; "), advice))
}

fn rejects(facts: &Facts, about: impl Fn(&Expected) -> bool) -> CheckResult {
    let tested: Vec<_> = facts.wrong_documents.iter().filter(|case| about(&case.expected)).collect();
    if tested.is_empty() {
        return Err(not_run(
            "a schema with `properties` that have a `type`, from which the test derives invalid documents",
        ));
    }
    tested.into_iter().find_map(missed).map_or(Ok(()), Err)
}

/// What is wrong with the answer about an invalid document. Another check tests that the call doesn't fail.
fn missed(case: &WrongDocument) -> Option<NotPassed> {
    let WrongDocument { what, document, expected, answer } = case;
    let sent = format!("{what}: {}", sent(document));
    let name = |remarks: &[Remark], field: &str| {
        remarks.iter().any(|(path, message)| path.contains(field) || message.contains(field))
    };
    match (answer, expected) {
        (Ok(_), Expected::AnyProblem) => Some(failed(sent, ACCEPTED, "reject it with a problem")),
        (Ok(_), Expected::Problem(field)) => {
            Some(failed(sent, ACCEPTED, format!("reject it with a problem with the path {field}")))
        }
        (Ok(notices), Expected::ProblemOrNotice(field)) => (!name(notices, field)).then(|| {
            let advice = format!(
                "reject it with a problem with the path {field}, or name {field} in a notice; a field that is silently \
                 ignored is most likely misspelled"
            );
            failed(sent, ACCEPTED, advice)
        }),
        (
            Err(refused @ Rejection::Problems(problems)),
            Expected::Problem(field) | Expected::ProblemOrNotice(field),
        ) => (!name(problems, field)).then(|| {
            failed(sent, describe::rejection(refused), format!("give the problem the path {field}"))
        }),
        (Ok(_) | Err(_), _) => None,
    }
}

fn never_traps(facts: &Facts) -> CheckResult {
    for WrongDocument { what, document, expected: _, answer } in &facts.wrong_documents {
        if let Err(refused @ Rejection::Broken(_)) = answer {
            return Err(failed(
                format!("{what}: {}", sent(document)),
                describe::rejection(refused),
                "return a list with at least one problem instead of failing",
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use pileus_gate::{Effect, Endpoint, Limit, MissingPart};
    use pileus_host::PublishedLimit;

    use super::super::samples::{facts, outcomes};
    use super::*;

    /// Each row changes one answer of a conforming provider.
    #[test]
    fn each_mistake_fails_exactly_its_own_check() {
        type Mistake = fn(&mut Facts);
        let rows: [(&str, Mistake); 14] = [
            ("configuration.same-twice", |facts| {
                let Ok(second) = &mut facts.configured.as_mut().unwrap().answers[1] else { unreachable!() };
                second.rules.clear();
            }),
            ("configuration.granted", |facts| {
                let endpoint = Endpoint::new(true, "api.example".parse().unwrap(), None);
                facts.configured.as_mut().unwrap().coverage.missing.push(endpoint);
            }),
            ("configuration.granted", |facts| {
                let denied = DeniedRequests { rule: 0, missing: MissingPart::Path };
                facts.configured.as_mut().unwrap().coverage.denied.push(denied);
            }),
            ("configuration.effects", |facts| {
                for answer in &mut facts.configured.as_mut().unwrap().answers {
                    answer.as_mut().unwrap().rules[0].method = "DELETE".parse().unwrap();
                }
            }),
            ("configuration.effects", |facts| {
                for answer in &mut facts.configured.as_mut().unwrap().answers {
                    let rule = &mut answer.as_mut().unwrap().rules[0];
                    (rule.method, rule.effect) = ("*".parse().unwrap(), Effect::OperationPoll);
                }
            }),
            ("configuration.counted-limits", |facts| {
                for answer in &mut facts.configured.as_mut().unwrap().answers {
                    let limit = Limit::new("unnamed", 1, 1.0).unwrap();
                    let (key, capacity, per_minute) = ("unnamed".to_owned(), 1, 60);
                    answer.as_mut().unwrap().limits.push(PublishedLimit { key, capacity, per_minute, limit });
                }
            }),
            ("configuration.refuses-rubbish", |facts| {
                facts.wrong_documents[0].answer = Ok(Vec::new());
            }),
            ("configuration.names-fields", |facts| {
                // A notice isn't enough for a known field of a wrong type.
                let notice = ("endpoint".to_owned(), "is wrong".to_owned());
                facts.wrong_documents[1].answer = Ok(vec![notice]);
            }),
            ("configuration.names-fields", |facts| {
                let elsewhere = ("zones".to_owned(), "is wrong".to_owned());
                facts.wrong_documents[1].answer = Err(Rejection::Problems(vec![elsewhere]));
            }),
            ("configuration.names-fields", |facts| facts.wrong_documents[3].answer = Ok(Vec::new())),
            ("configuration.names-fields", |facts| {
                let elsewhere = (String::new(), "endpoint has no effect".to_owned());
                facts.wrong_documents[3].answer = Ok(vec![elsewhere]);
            }),
            ("configuration.names-fields", |facts| {
                let elsewhere = ("endpoint".to_owned(), "is wrong".to_owned());
                facts.wrong_documents[3].answer = Err(Rejection::Problems(vec![elsewhere]));
            }),
            ("configuration.never-traps", |facts| {
                facts.wrong_documents[1].answer = Err(Rejection::Broken("trapped".to_owned()));
            }),
            ("configuration.never-traps", |facts| {
                facts.wrong_documents[2].answer = Err(Rejection::Broken("trapped".to_owned()));
            }),
        ];
        for (expected, mistake) in rows {
            let mut facts = facts();
            mistake(&mut facts);
            assert_eq!(outcomes(&facts, "failed"), [expected]);
        }
    }

    #[test]
    fn after_a_rejected_configuration_other_checks_do_not_run() {
        let mut facts = facts();
        let problem = ("endpoint".to_owned(), "is missing".to_owned());
        facts.configured.as_mut().unwrap().answers[0] = Err(Rejection::Problems(vec![problem]));
        assert_eq!(outcomes(&facts, "failed"), ["configuration.accepted"]);
        let rest = [
            "configuration.same-twice",
            "configuration.granted",
            "configuration.effects",
            "configuration.counted-limits",
        ];
        assert_eq!(outcomes(&facts, "not run"), rest);
        facts.configured = None;
        assert_eq!(outcomes(&facts, "failed"), [""; 0]);
    }

    #[test]
    fn changing_settings_are_reported_with_the_difference() {
        let Facts { configured: Some(Configured { answers: [Ok(first), _], .. }), .. } = facts() else {
            unreachable!()
        };
        assert_eq!(changes(&first, &first), [""; 0]);
        let mut second = first.clone();
        let endpoint = Endpoint::new(true, "api.example".parse().unwrap(), None);
        second.endpoints.push(RequestedEndpoint { endpoint, reason: "to ask".to_owned(), credential: None });
        assert_eq!(changes(&first, &second), ["endpoints: first , then https://api.example:443 (to ask)"]);
        second.rules.push(Rule { fold_case: true, ..first.rules[0].clone() });
        assert_eq!(changes(&first, &second).len(), 2);
    }
}
