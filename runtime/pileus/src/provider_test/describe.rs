//! Descriptions of calls, answers and requests for the report.

use std::time::Duration;

use pileus_cloud::{
    Answer, Error, IngressPoint, Instance, InstanceState, ListedRoute, NodeReference, OwnedLoadBalancer,
};

use super::changes::{CallFailure, ChangeOutcome, ServiceReport};
use super::facts::{LookupCall, LookupOutcome, Rejection, SeenRequest};

/// How many items of a list are shown; a batch may have thousands.
const MAX_ITEMS: usize = 4;

/// A lookup call.
pub(crate) fn call(call: &LookupCall) -> String {
    let LookupCall { purpose, nodes, .. } = call;
    let nodes = list(nodes.iter().map(node));
    format!("lookup({}, {nodes})", purpose.as_str())
}

/// The outcome of a lookup call.
pub(crate) fn outcome(call: &LookupCall) -> String {
    match &call.outcome {
        LookupOutcome::Answers(answers) => list(answers.iter().map(answer)),
        LookupOutcome::Failed(error) => format!("for all Nodes {}", self::error(error)),
        LookupOutcome::Fault(fault) => format!("no answer: the call {fault}"),
    }
}

/// Requests to the cloud.
pub(crate) fn requests(requests: &[SeenRequest]) -> String {
    match requests.len() {
        0 => "no request".to_owned(),
        _ => list(requests.iter().map(|request| request.line.clone())),
    }
}

/// The outcomes of changes.
pub(crate) fn change_outcomes(outcomes: &Result<Vec<ChangeOutcome>, CallFailure>) -> String {
    match outcomes {
        Ok(outcomes) => list(outcomes.iter().map(change_outcome)),
        Err(failure) => call_failure(failure),
    }
}

/// Why a call returned no outcomes.
pub(crate) fn call_failure(failure: &CallFailure) -> String {
    match failure {
        CallFailure::Error(error) => format!("for the whole call {}", self::error(error)),
        CallFailure::Fault(fault) => format!("no answer: the call {fault}"),
    }
}

fn change_outcome(outcome: &ChangeOutcome) -> String {
    match outcome {
        ChangeOutcome::Done(report) => format!("done{}", ingress(report)),
        ChangeOutcome::InProgress { after, resume: _, report } => {
            format!("in-progress{}, to be called again after {}", ingress(report), duration(*after))
        }
        ChangeOutcome::Elsewhere => "elsewhere".to_owned(),
        ChangeOutcome::Failed(error) => self::error(error),
    }
}

/// The ingress of a report, as the end of a clause.
fn ingress(report: &ServiceReport) -> String {
    let points = report.status.iter().flatten().map(|ingress| match &ingress.point {
        IngressPoint::Ip(point) | IngressPoint::Hostname(point) => point.as_str(),
    });
    let points = points.collect::<Vec<_>>().join(" and ");
    if points.is_empty() { points } else { format!(", at {points}") }
}

/// The result of list-owned.
pub(crate) fn owned(listed: &[OwnedLoadBalancer]) -> String {
    let uid = |uid: &Option<String>| uid.clone().unwrap_or_else(|| "none".to_owned());
    list(listed.iter().map(|owned| {
        let OwnedLoadBalancer { cluster_uid, service_uid, service: _, name, extra: _ } = owned;
        format!("{name} (cluster {}, Service {})", uid(cluster_uid), uid(service_uid))
    }))
}

/// The list of routes.
pub(crate) fn routes(listed: &[ListedRoute]) -> String {
    list(listed.iter().map(|route| {
        let ListedRoute { name, node, target, destination, .. } = route;
        let node = node.as_deref().unwrap_or("no node");
        let target = target.as_ref().map_or_else(|| "no instance".to_owned(), ToString::to_string);
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
        Ok(Answer::Found(found)) => instance(found),
        Ok(Answer::Absent) => "absent".to_owned(),
        Ok(Answer::Pending(after)) => format!("pending, to be looked up again after {}", duration(*after)),
        Ok(Answer::Unmanaged(_)) => "unmanaged".to_owned(),
        Err(error) => self::error(error),
    }
}

pub(crate) fn instance(instance: &Instance) -> String {
    let Instance { provider_id, instance_type, zone, region, addresses, labels, state, left_out } = instance;
    let state = match state {
        InstanceState::Running => "running",
        InstanceState::Stopped => "stopped",
        InstanceState::Unknown => "in an unknown state",
    };
    let facts = [("type", instance_type), ("zone", zone), ("region", region)];
    let facts = facts.iter().filter_map(|(name, fact)| Some(format!("{name} {}", fact.as_deref()?)));
    let addresses = addresses.iter().map(|address| format!("{} {}", address.kind, address.value));
    let labels = labels.iter().map(|(key, value)| format!("label {key}={value}"));
    let left_out = left_out.iter().map(|fact| format!("left out: {fact}"));
    let all: Vec<_> = facts.chain(addresses).chain(labels).chain(left_out).collect();
    let details = if all.is_empty() { "no details".to_owned() } else { all.join(", ") };
    format!("found {provider_id}, {state} ({details})")
}

pub(crate) fn error(error: &Error) -> String {
    format!("an error of kind {}: {}", error.kind.as_str(), error.message)
}

/// Why a configuration was not accepted.
pub(crate) fn rejection(rejection: &Rejection) -> String {
    match rejection {
        Rejection::Problems(problems) => {
            let problem = |(path, message): &(String, String)| match path.as_str() {
                "" => message.clone(),
                path => format!("{path}: {message}"),
            };
            format!("rejected: {}", problems.iter().map(problem).collect::<Vec<_>>().join("; "))
        }
        Rejection::Broken(how) => how.clone(),
    }
}

pub(crate) fn duration(duration: Duration) -> String {
    match duration.as_millis() {
        millis if millis < 10_000 => format!("{millis} ms"),
        millis => format!("{} s", millis / 1000),
    }
}

fn list(items: impl ExactSizeIterator<Item = String>) -> String {
    let more = items.len().saturating_sub(MAX_ITEMS);
    let shown = items.take(MAX_ITEMS).collect::<Vec<_>>().join(", ");
    match more {
        0 => format!("[{shown}]"),
        more => format!("[{shown}, and {more} more]"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lists_are_cut_with_a_count() {
        let items = |count: usize| (0..count).map(|number| number.to_string());
        let exactly = |count| list(items(count).collect::<Vec<_>>().into_iter());
        assert_eq!(exactly(0), "[]");
        assert_eq!(exactly(4), "[0, 1, 2, 3]");
        assert_eq!(exactly(5000), "[0, 1, 2, 3, and 4996 more]");
    }
}
