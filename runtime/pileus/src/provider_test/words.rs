//! How calls, answers and requests are told to people, always in the same words.

use std::time::Duration;

use pileus_cloud::{
    Answer, Error, IngressPoint, Instance, InstanceState, ListedRoute, NodeReference, OwnedLoadBalancer,
};

use super::changes::{Came, NoAnswer};
use super::facts::{Call, Outcome, Refused, Seen};

/// How many of a list are shown: a batch may have thousands.
const SHOWN: usize = 4;

/// What a call sent.
pub(crate) fn sent(call: &Call) -> String {
    let Call { purpose, nodes, .. } = call;
    let nodes = list(nodes.iter().map(node));
    format!("lookup({}, {nodes})", purpose.as_str())
}

/// What came back of a call.
pub(crate) fn came(call: &Call) -> String {
    match &call.outcome {
        Outcome::Answers(answers) => list(answers.iter().map(answer)),
        Outcome::Failed(error) => format!("for all Nodes {}", failure(error)),
        Outcome::Fault(fault) => format!("no answer: the call {fault}"),
    }
}

/// The requests that a call made.
pub(crate) fn requests(call: &Call) -> String {
    lines(&call.requests)
}

/// Requests.
pub(crate) fn lines(requests: &[Seen]) -> String {
    match requests.len() {
        0 => "no request".to_owned(),
        _ => list(requests.iter().map(|request| request.line.clone())),
    }
}

/// What came back of changes.
pub(crate) fn came_of_changes(came: &Result<Vec<Came>, NoAnswer>) -> String {
    match came {
        Ok(outcomes) => list(outcomes.iter().map(outcome)),
        Err(none) => no_answer(none),
    }
}

/// Why nothing came back.
pub(crate) fn no_answer(none: &NoAnswer) -> String {
    match none {
        NoAnswer::Error(error) => format!("for all of it {}", failure(error)),
        NoAnswer::Fault(fault) => format!("no answer: the call {fault}"),
    }
}

fn outcome(came: &Came) -> String {
    match came {
        Came::Done(status) if status.is_empty() => "done".to_owned(),
        Came::Done(status) => {
            let points = status.iter().map(|ingress| match &ingress.point {
                IngressPoint::Ip(point) | IngressPoint::Hostname(point) => point.as_str(),
            });
            format!("done, at {}", points.collect::<Vec<_>>().join(" and "))
        }
        Came::Under { after, resume: _ } => format!("in-progress, to be asked again after {}", human(*after)),
        Came::Elsewhere => "elsewhere".to_owned(),
        Came::Failed(error) => failure(error),
    }
}

/// What list-owned told.
pub(crate) fn owned(listed: &[OwnedLoadBalancer]) -> String {
    let uid = |uid: &Option<String>| uid.clone().unwrap_or_else(|| "none".to_owned());
    list(listed.iter().map(|owned| {
        let OwnedLoadBalancer { cluster_uid, service_uid, service: _, name, extra: _ } = owned;
        format!("{name} (cluster {}, Service {})", uid(cluster_uid), uid(service_uid))
    }))
}

/// What the list of routes told.
pub(crate) fn routes(listed: &[ListedRoute]) -> String {
    list(listed.iter().map(|route| {
        let ListedRoute { name, node, target, destination, .. } = route;
        let node = node.as_deref().unwrap_or("no node");
        let target = target.as_ref().map_or_else(|| "no machine".to_owned(), ToString::to_string);
        format!("{name} to {destination} (of {node}, {target})")
    }))
}

pub(crate) fn node(node: &NodeReference) -> String {
    match &node.provider_id {
        Some(id) => format!("{} ({id})", node.name),
        None => node.name.clone(),
    }
}

pub(crate) fn answer(answer: &Result<Answer, Error>) -> String {
    match answer {
        Ok(Answer::Found(machine)) => instance(machine),
        Ok(Answer::Absent) => "absent".to_owned(),
        Ok(Answer::Pending(after)) => format!("pending, to be asked again after {}", human(*after)),
        Ok(Answer::Unmanaged) => "unmanaged".to_owned(),
        Err(error) => failure(error),
    }
}

pub(crate) fn instance(machine: &Instance) -> String {
    let Instance { provider_id, instance_type, zone, region, addresses, labels, state } = machine;
    let state = match state {
        InstanceState::Running => "running",
        InstanceState::Stopped => "stopped",
        InstanceState::Unknown => "in an unknown state",
    };
    let facts = [("type", instance_type), ("zone", zone), ("region", region)];
    let facts = facts.iter().filter_map(|(name, fact)| Some(format!("{name} {}", fact.as_deref()?)));
    let addresses = addresses.iter().map(|address| format!("{} {}", address.kind, address.value));
    let labels = labels.iter().map(|(key, value)| format!("label {key}={value}"));
    let all: Vec<_> = facts.chain(addresses).chain(labels).collect();
    let told = if all.is_empty() { "nothing else told".to_owned() } else { all.join(", ") };
    format!("found {provider_id}, {state} ({told})")
}

pub(crate) fn failure(error: &Error) -> String {
    format!("an error of kind {}: {}", error.kind.as_str(), error.message)
}

/// Why a configuration was not accepted.
pub(crate) fn refused(refused: &Refused) -> String {
    match refused {
        Refused::Problems(problems) => {
            let problem = |(path, message): &(String, String)| match path.as_str() {
                "" => message.clone(),
                path => format!("{path}: {message}"),
            };
            format!("refused: {}", problems.iter().map(problem).collect::<Vec<_>>().join("; "))
        }
        Refused::Broke(how) => how.clone(),
    }
}

pub(crate) fn human(duration: Duration) -> String {
    match duration.as_millis() {
        millis if millis < 10_000 => format!("{millis} ms"),
        millis => format!("{} s", millis / 1000),
    }
}

fn list(items: impl ExactSizeIterator<Item = String>) -> String {
    let more = items.len().saturating_sub(SHOWN);
    let shown = items.take(SHOWN).collect::<Vec<_>>().join(", ");
    match more {
        0 => format!("[{shown}]"),
        more => format!("[{shown}, and {more} more]"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lists_are_cut_and_counted() {
        let items = |count: usize| (0..count).map(|number| number.to_string());
        let exactly = |count| list(items(count).collect::<Vec<_>>().into_iter());
        assert_eq!(exactly(0), "[]");
        assert_eq!(exactly(4), "[0, 1, 2, 3]");
        assert_eq!(exactly(5000), "[0, 1, 2, 3, and 4996 more]");
    }
}
