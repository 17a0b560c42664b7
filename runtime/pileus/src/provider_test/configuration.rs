//! What a provider makes of configurations, right and wrong ones.

use pileus_host::{RequestedEndpoint, Settings};

use super::check::{Check, Shortfall, Verdict, failed, not_run};
use super::facts::{Configured, Expected, Facts, Refusal, Refused};
use super::words;

pub(super) const CHECKS: &[Check] = &[
    Check {
        id: "configuration.accepted",
        claim: "configure accepts the configuration, and what follows from it can be",
        matters: "without settings there are no rules, no wishes, and no start",
        judge: accepted,
    },
    Check {
        id: "configuration.same-twice",
        claim: "configure answers the same document with the same settings",
        matters: "rules that change from start to start make caching and limits a matter of luck",
        judge: same_twice,
    },
    Check {
        id: "configuration.granted",
        claim: "every host that the provider wishes is granted",
        matters: "requests to a host that no grant names are denied",
        judge: granted,
    },
    Check {
        id: "configuration.refuses-rubbish",
        claim: "configure refuses what is no configuration, and says why",
        matters: "a mistake that is accepted shows only when the first Node waits in vain",
        judge: |facts| refuses(facts, |expected| *expected == Expected::AnyProblem),
    },
    Check {
        id: "configuration.names-fields",
        claim: "a problem with one field names the path of that field",
        matters: "an operator sees the message alone, beside a document of a hundred lines",
        judge: |facts| refuses(facts, |expected| matches!(expected, Expected::Problem(_))),
    },
    Check {
        id: "configuration.never-traps",
        claim: "configure answers every document, right or wrong",
        matters: "a trap tells an operator nothing about the mistake",
        judge: never_traps,
    },
];

fn configured(facts: &Facts) -> Result<&Configured, Shortfall> {
    facts.configured.as_ref().ok_or_else(|| {
        not_run("a configuration: pass --config FILE or --config '{…}', or --provider FILE.yaml")
    })
}

fn settings(facts: &Facts) -> Result<(&Configured, &Settings), Shortfall> {
    let configured = configured(facts)?;
    match &configured.answers[0] {
        Ok(settings) => Ok((configured, settings)),
        Err(_) => Err(not_run("configuration.accepted has to pass first")),
    }
}

fn sent(document: &str) -> String {
    format!("info.configure({document})")
}

fn accepted(facts: &Facts) -> Verdict {
    let Configured { document, answers, .. } = configured(facts)?;
    match &answers[0] {
        Ok(_) => Ok(()),
        Err(refused @ Refused::Problems(_)) => Err(failed(
            sent(document),
            words::refused(refused),
            "correct the configuration that you passed, or what configure makes of it",
        )),
        Err(refused @ Refused::Broke(_)) => Err(failed(
            sent(document),
            words::refused(refused),
            "correct what it names; configure must not use the network, and rules are patterns as in wit/info.wit",
        )),
    }
}

fn same_twice(facts: &Facts) -> Verdict {
    let (Configured { document, answers, .. }, first) = settings(facts)?;
    let came = match &answers[1] {
        Ok(second) => changes(first, second),
        Err(refused) => vec![format!("settings at first, and then: {}", words::refused(refused))],
    };
    if came.is_empty() {
        return Ok(());
    }
    Err(failed(
        format!("{}, twice", sent(document)),
        came.join("; "),
        "make settings from the document alone: no time, no random number, no order of a hash map",
    ))
}

/// What differs between two settings.
fn changes(first: &Settings, second: &Settings) -> Vec<String> {
    let parts = |settings: &Settings| {
        let Settings { endpoints: wishes, rules, limits, one_at_a_time } = settings;
        let wish =
            |RequestedEndpoint { endpoint, reason }: &RequestedEndpoint| format!("{endpoint} ({reason})");
        let wishes = wishes.iter().map(wish).collect::<Vec<_>>().join(", ");
        [
            ("endpoints", wishes),
            ("rules", format!("{rules:?}")),
            ("limits", format!("{limits:?}")),
            ("one at a time", format!("{one_at_a_time:?}")),
        ]
    };
    let both = parts(first).into_iter().zip(parts(second));
    let change = |((part, first), (_, second)): ((&str, String), (&str, String))| {
        (first != second).then(|| format!("{part}: first {first}, then {second}"))
    };
    both.filter_map(change).collect()
}

fn granted(facts: &Facts) -> Verdict {
    let (Configured { document, coverage, .. }, _) = settings(facts)?;
    if coverage.missing.is_empty() {
        return Ok(());
    }
    let missing: Vec<_> = coverage.missing.iter().map(ToString::to_string).collect();
    let flags: Vec<_> = missing.iter().map(|endpoint| format!("--grant {endpoint}")).collect();
    Err(failed(
        sent(document),
        format!("a wish for {}, which no grant names", missing.join(", ")),
        format!("if it is meant, pass {} or add a grant to the document", flags.join(" ")),
    ))
}

fn refuses(facts: &Facts, about: impl Fn(&Expected) -> bool) -> Verdict {
    let asked: Vec<_> = facts.refusals.iter().filter(|refusal| about(&refusal.expected)).collect();
    if asked.is_empty() {
        return Err(not_run(
            "a schema with `properties` that have a `type`, as this makes wrong documents from it",
        ));
    }
    asked.into_iter().find_map(missed).map_or(Ok(()), Err)
}

/// What is wrong with the answer to a wrong document. That it failed is another check's affair.
fn missed(refusal: &Refusal) -> Option<Shortfall> {
    let Refusal { what, document, expected, answer } = refusal;
    let sent = format!("{what}: {}", sent(document));
    match (answer, expected) {
        (Ok(()), Expected::AnyProblem) => {
            Some(failed(sent, "settings, as if it were right", "refuse it with a problem"))
        }
        (Ok(()), Expected::Problem(field)) => Some(failed(
            sent,
            "settings, as if it were right",
            format!(
                "refuse it with a problem whose path is {field}; a field that is ignored is most often a misspelt one"
            ),
        )),
        (Err(refused @ Refused::Problems(problems)), Expected::Problem(field)) => {
            let names = |(path, message): &(String, String)| path.contains(field) || message.contains(field);
            (!problems.iter().any(names))
                .then(|| failed(sent, words::refused(refused), format!("give the problem the path {field}")))
        }
        (Ok(()) | Err(_), _) => None,
    }
}

fn never_traps(facts: &Facts) -> Verdict {
    for Refusal { what, document, expected: _, answer } in &facts.refusals {
        if let Err(refused @ Refused::Broke(_)) = answer {
            return Err(failed(
                format!("{what}: {}", sent(document)),
                words::refused(refused),
                "return a list of problems with at least one in it instead of failing",
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use pileus_gate::{Endpoint, Rule};

    use super::super::samples::{facts, outcomes};
    use super::*;

    /// Each row changes one thing of what a good provider answers.
    #[test]
    fn each_check_sees_its_own_mistake_and_no_other_does() {
        type Change = fn(&mut Facts);
        let rows: [(&str, Change); 7] = [
            ("configuration.same-twice", |facts| {
                let Ok(second) = &mut facts.configured.as_mut().unwrap().answers[1] else { unreachable!() };
                second.rules.clear();
            }),
            ("configuration.granted", |facts| {
                let endpoint = Endpoint::new(true, "api.example".parse().unwrap(), None);
                facts.configured.as_mut().unwrap().coverage.missing.push(endpoint);
            }),
            ("configuration.refuses-rubbish", |facts| facts.refusals[0].answer = Ok(())),
            ("configuration.names-fields", |facts| facts.refusals[1].answer = Ok(())),
            ("configuration.names-fields", |facts| {
                let elsewhere = ("zones".to_owned(), "is wrong".to_owned());
                facts.refusals[1].answer = Err(Refused::Problems(vec![elsewhere]));
            }),
            ("configuration.never-traps", |facts| {
                facts.refusals[1].answer = Err(Refused::Broke("trapped".to_owned()));
            }),
            ("configuration.never-traps", |facts| {
                facts.refusals[2].answer = Err(Refused::Broke("trapped".to_owned()));
            }),
        ];
        for (expected, change) in rows {
            let mut facts = facts();
            change(&mut facts);
            assert_eq!(outcomes(&facts, "failed"), [expected]);
        }
    }

    #[test]
    fn a_configuration_that_is_refused_leaves_the_rest_unasked() {
        let mut facts = facts();
        let problem = ("endpoint".to_owned(), "is missing".to_owned());
        facts.configured.as_mut().unwrap().answers[0] = Err(Refused::Problems(vec![problem]));
        assert_eq!(outcomes(&facts, "failed"), ["configuration.accepted"]);
        let rest = ["configuration.same-twice", "configuration.granted"];
        assert_eq!(outcomes(&facts, "not run"), rest);
        facts.configured = None;
        assert_eq!(outcomes(&facts, "failed"), [""; 0]);
    }

    #[test]
    fn settings_that_change_are_told_by_what_changes() {
        let Facts { configured: Some(Configured { answers: [Ok(first), _], .. }), .. } = facts() else {
            unreachable!()
        };
        assert_eq!(changes(&first, &first), [""; 0]);
        let mut second = first.clone();
        let endpoint = Endpoint::new(true, "api.example".parse().unwrap(), None);
        second.endpoints.push(RequestedEndpoint { endpoint, reason: "to ask".to_owned() });
        assert_eq!(changes(&first, &second), ["endpoints: first , then https://api.example:443 (to ask)"]);
        second.rules.push(Rule { fold_case: true, ..first.rules[0].clone() });
        assert_eq!(changes(&first, &second).len(), 2);
    }
}
