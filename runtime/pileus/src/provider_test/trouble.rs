//! What a provider answers while its cloud is in trouble: an error of the right kind, and never that a machine is gone.

use pileus_cloud::{Answer, ErrorKind};
use pileus_host::Fault;

use super::check::{Check, Shortfall, Verdict, failed, not_run};
use super::cloud::{RETRY_AFTER, Scene};
use super::facts::{Call, Facts, Outcome};
use super::instances::{known_nodes, lookups, requests_needed, unless_misaligned};
use super::words;

pub(super) const CHECKS: &[Check] = &[
    Check {
        id: "trouble.busy",
        claim: "429 is an error of kind throttled, and nothing is absent",
        matters: "the host then waits as long as the cloud asked; any other answer makes a busy cloud busier",
        judge: |facts| judge(facts, Scene::Busy, |kind| matches!(kind, ErrorKind::Throttled(_)), "throttled"),
    },
    Check {
        id: "trouble.retry-after",
        claim: "throttled carries the time that the cloud asked for in Retry-After",
        matters: "without it the host guesses, and comes back too early or much too late",
        judge: retry_after,
    },
    Check {
        id: "trouble.down",
        claim: "503 is an error of kind unavailable, and nothing is absent",
        matters: "an outage of the cloud must not delete Nodes",
        judge: |facts| {
            let fits = |kind| matches!(kind, ErrorKind::Unavailable | ErrorKind::Throttled(_));
            judge(facts, Scene::Down, fits, "unavailable")
        },
    },
    Check {
        id: "trouble.halfway",
        claim: "what a cloud that breaks down halfway doesn't say is not absent",
        matters: "the last page of a list is the one that is missing, and with it every Node on it",
        judge: halfway,
    },
    Check {
        id: "trouble.forbidden",
        claim: "403 is an error of kind denied, and nothing is absent",
        matters: "a permission that was taken away must not delete Nodes, and somebody has to be told of it",
        judge: |facts| judge(facts, Scene::Forbidden, |kind| kind == ErrorKind::Denied, "denied"),
    },
    Check {
        id: "trouble.not-found",
        claim: "404 to everything is answered, and no machine is found",
        matters: "an API that has moved must not trap the provider",
        judge: not_found,
    },
    Check {
        id: "trouble.page",
        claim: "an answer that is not the cloud's is an error, and nothing is absent",
        matters: "proxies answer with pages of their own; a page without machines is no cloud without machines",
        judge: |facts| {
            let fits = |kind| matches!(kind, ErrorKind::Broken | ErrorKind::Unavailable);
            judge(facts, Scene::Page, fits, "broken or unavailable")
        },
    },
    Check {
        id: "trouble.cut-off",
        claim: "a connection that breaks is an error of kind unavailable, and nothing is absent",
        matters: "networks break for minutes; Nodes must survive that, and be asked about again soon",
        judge: |facts| judge(facts, Scene::CutOff, |kind| kind == ErrorKind::Unavailable, "unavailable"),
    },
    Check {
        id: "trouble.silence",
        claim: "a call stops by itself after its soft deadline, with pending or an error for what is left",
        matters: "a call that the host has to stop at the hard deadline loses the answers of all its Nodes",
        judge: silence,
    },
];

/// The calls that met the cloud in a scene. One that asked nothing of the cloud met nothing.
fn met(facts: &Facts, scene: Scene) -> Result<Vec<&Call>, Shortfall> {
    let calls =
        lookups(facts)?.troubles.iter().filter(|(other, _)| *other == scene).flat_map(|(_, calls)| calls);
    let met: Vec<_> =
        calls.filter(|call| !call.requests.is_empty() || matches!(call.outcome, Outcome::Fault(_))).collect();
    if met.is_empty() {
        return Err(requests_needed());
    }
    Ok(met)
}

fn missed(call: &Call, scene: Scene, advice: impl Into<String>) -> Shortfall {
    let sent = format!("{} with {} behind it", words::sent(call), scene.as_str());
    let advice = match &call.outcome {
        Outcome::Answers(_) | Outcome::Failed(_) | Outcome::Fault(Fault::Deadline { .. }) => advice.into(),
        Outcome::Fault(_) => "return an error where a request fails, instead of trapping".to_owned(),
    };
    unless_misaligned(call, failed(sent, words::came(call), advice))
}

/// Every answer is an error of a kind that fits, or pending.
fn judge(facts: &Facts, scene: Scene, fits: fn(ErrorKind) -> bool, kind: &str) -> Verdict {
    for call in met(facts, scene)? {
        let right = match &call.outcome {
            Outcome::Failed(error) => fits(error.kind),
            Outcome::Answers(answers) => answers.iter().all(|answer| match answer {
                Err(error) => fits(error.kind),
                Ok(Answer::Pending(_)) => true,
                Ok(_) => false,
            }),
            Outcome::Fault(_) => false,
        };
        if !right {
            let advice = format!(
                "look at the status before the body, and answer an error of kind {kind} for every Node that it leaves \
                 unknown"
            );
            return Err(missed(call, scene, advice));
        }
    }
    Ok(())
}

fn retry_after(facts: &Facts) -> Verdict {
    let says = |kind: ErrorKind| match kind {
        ErrorKind::Throttled(after) => after.is_some_and(|after| after.as_secs() == RETRY_AFTER),
        _ => true, // what kind it is, is another check's affair
    };
    for call in met(facts, Scene::Busy)? {
        let right = match &call.outcome {
            Outcome::Failed(error) => says(error.kind),
            Outcome::Answers(answers) => {
                answers.iter().filter_map(|answer| answer.as_ref().err()).all(|error| says(error.kind))
            }
            Outcome::Fault(_) => true,
        };
        if !right {
            let advice =
                format!("read the header Retry-After, which was {RETRY_AFTER} seconds, into throttled");
            return Err(missed(call, Scene::Busy, advice));
        }
    }
    Ok(())
}

/// The cloud has the Nodes that it is asked about, so whatever the provider got to hear, none of them is absent.
fn halfway(facts: &Facts) -> Verdict {
    if known_nodes(facts)?.alone.iter().any(|known| known.by_name[0].machine().is_none()) {
        return Err(not_run("instances.known has to pass first"));
    }
    let broke_off = |call: &&Call| call.requests.len() > 1 || matches!(call.outcome, Outcome::Fault(_));
    let calls: Vec<_> = met(facts, Scene::BreaksDown)?.into_iter().filter(broke_off).collect();
    if calls.is_empty() {
        return Err(not_run(
            "Nodes that take the provider more than one request: pass --node NAME for a Node on the second page, or several",
        ));
    }
    for call in calls {
        let is_absent = |answer: &Result<Answer, _>| matches!(answer, Ok(Answer::Absent));
        let right = match &call.outcome {
            Outcome::Failed(_) => true,
            Outcome::Answers(answers) => !answers.iter().any(is_absent),
            Outcome::Fault(_) => false,
        };
        if !right {
            let advice = "where a page of a list fails, answer its error for every Node that the pages before don't have";
            return Err(missed(call, Scene::BreaksDown, advice));
        }
    }
    Ok(())
}

fn not_found(facts: &Facts) -> Verdict {
    for call in met(facts, Scene::NotFound)? {
        let finds = |answers: &[Result<Answer, _>]| {
            answers.iter().any(|answer| matches!(answer, Ok(Answer::Found(_))))
        };
        let right = match &call.outcome {
            Outcome::Failed(_) => true,
            Outcome::Answers(answers) => !finds(answers),
            Outcome::Fault(_) => false,
        };
        if !right {
            return Err(missed(
                call,
                Scene::NotFound,
                "answer absent where a machine was read by itself, else an error",
            ));
        }
    }
    Ok(())
}

fn silence(facts: &Facts) -> Verdict {
    let (soft, hard) = lookups(facts)?.patience;
    for call in met(facts, Scene::Silence)? {
        let right = match &call.outcome {
            Outcome::Failed(_) => true,
            Outcome::Answers(answers) => {
                answers.iter().all(|answer| matches!(answer, Err(_) | Ok(Answer::Pending(_))))
            }
            Outcome::Fault(_) => false,
        };
        if !right {
            let advice = format!(
                "ask `call.remaining` how much is left (here {} at first, and the call is stopped after {}), wait for no \
                 request much longer than that, and answer pending for what is not known by then",
                words::human(soft),
                words::human(hard)
            );
            return Err(missed(call, Scene::Silence, advice));
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

    fn with(scene: Scene, outcome: Outcome) -> Facts {
        let mut facts = facts();
        let troubles = &mut facts.lookups.as_mut().unwrap().troubles;
        let (_, calls) = troubles.iter_mut().find(|(other, _)| *other == scene).unwrap();
        calls[0].outcome = outcome;
        facts
    }

    #[test]
    fn absent_and_traps_are_never_right_in_trouble_and_other_kinds_only_where_they_fit() {
        let absent = || answers([Ok(Answer::Absent)]);
        let error = |kind| Outcome::Failed(Error::new(kind, "it failed"));
        let pending = || answers([Ok(Answer::Pending(Duration::from_secs(1)))]);
        let late = ErrorKind::Throttled(Some(Duration::from_secs(1)));
        let rows = [
            (Scene::Busy, absent(), Some("trouble.busy")),
            (Scene::Busy, trapped(), Some("trouble.busy")),
            (Scene::Busy, error(ErrorKind::Broken), Some("trouble.busy")),
            (Scene::Busy, error(ErrorKind::Throttled(None)), Some("trouble.retry-after")),
            (Scene::Busy, error(late), Some("trouble.retry-after")),
            (Scene::Busy, pending(), None),
            (Scene::Down, absent(), Some("trouble.down")),
            (Scene::Down, error(ErrorKind::Invalid), Some("trouble.down")),
            (Scene::Down, error(ErrorKind::Throttled(None)), None),
            (Scene::BreaksDown, absent(), Some("trouble.halfway")),
            (Scene::BreaksDown, trapped(), Some("trouble.halfway")),
            (Scene::BreaksDown, pending(), None),
            (Scene::Forbidden, absent(), Some("trouble.forbidden")),
            (Scene::Forbidden, error(ErrorKind::Unavailable), Some("trouble.forbidden")),
            (Scene::NotFound, absent(), None),
            (Scene::NotFound, trapped(), Some("trouble.not-found")),
            (Scene::Page, absent(), Some("trouble.page")),
            (Scene::Page, error(ErrorKind::Broken), None),
            (Scene::CutOff, absent(), Some("trouble.cut-off")),
            (Scene::Silence, absent(), Some("trouble.silence")),
            (Scene::Silence, trapped(), Some("trouble.silence")),
            (Scene::Silence, error(ErrorKind::Unavailable), None),
        ];
        for (scene, came, expected) in rows {
            let text = format!("{scene:?} {came:?}");
            assert_eq!(outcomes(&with(scene, came), "failed"), Vec::from_iter(expected), "{text}");
        }
    }

    #[test]
    fn of_a_node_that_the_cloud_has_not_absent_is_no_mistake_halfway() {
        let mut facts = with(Scene::BreaksDown, answers([Ok(Answer::Absent)]));
        for call in &mut facts.lookups.as_mut().unwrap().known.as_mut().unwrap().alone[0].by_name {
            call.outcome = answers([Ok(Answer::Absent)]);
        }
        assert_eq!(outcomes(&facts, "failed"), ["instances.known"]);
        assert!(outcomes(&facts, "not run").contains(&"trouble.halfway"));
    }

    #[test]
    fn a_provider_that_asks_nothing_has_not_passed() {
        let mut facts = facts();
        for (_, calls) in &mut facts.lookups.as_mut().unwrap().troubles {
            for call in calls {
                call.requests.clear();
            }
        }
        let ids: Vec<_> = CHECKS.iter().map(|check| check.id).collect();
        assert_eq!(outcomes(&facts, "not run"), ids);
    }
}
