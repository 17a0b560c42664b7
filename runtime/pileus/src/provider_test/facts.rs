//! The observations of a conformance test as plain values. The checks depend on nothing else, so they can be tested
//! without a component.

use std::time::Duration;

use pileus_cloud::{Answer, Error, Instance, ListedRoute, NodeReference, OwnedLoadBalancer, Purpose};
use pileus_gate::{Coverage, Effect, Refusal};
use pileus_host::{Capability, Description, Fault, Settings};
use serde_json::Value;

use super::changes::Changes;
use super::cloud::CloudMode;

/// All observations of one provider.
pub(crate) struct Facts {
    /// The answers of two calls of `describe`.
    pub(crate) described: [Result<Description, String>; 2],
    /// The capabilities that its component exports.
    pub(crate) capabilities: Vec<Capability>,
    /// The answers about invalid configurations.
    pub(crate) wrong_documents: Vec<WrongDocument>,
    /// The answers about its configuration; none if none was given.
    pub(crate) configured: Option<Configured>,
    /// The lookups; none if they could not be made.
    pub(crate) lookups: Option<Lookups>,
    /// The changes of load balancers; none if they could not be made.
    pub(crate) load_balancers: Option<Changes<OwnedLoadBalancer>>,
    /// The changes of routes; none if they could not be made.
    pub(crate) routes: Option<Changes<ListedRoute>>,
}

/// The answers of two calls of `configure`.
pub(crate) struct Configured {
    pub(crate) document: String,
    pub(crate) answers: [Result<Settings, Rejection>; 2],
    /// Which hosts that the first answer requests are granted.
    pub(crate) coverage: Coverage,
}

/// A remark about a configuration: its path and its message.
pub(crate) type Remark = (String, String);

/// Why `configure` returned no settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Rejection {
    /// The provider's problems.
    Problems(Vec<Remark>),
    /// The call failed, or its answer is invalid.
    Broken(String),
}

/// An invalid configuration, and the answer about it.
pub(crate) struct WrongDocument {
    /// What is wrong with it.
    pub(crate) what: String,
    /// The beginning of the document.
    pub(crate) document: String,
    /// The expected answer.
    pub(crate) expected: Expected,
    /// The notices with which the document was accepted, or why it was not.
    pub(crate) answer: Result<Vec<Remark>, Rejection>,
}

/// The expected answer about an invalid configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Expected {
    /// A problem that names this field.
    Problem(String),
    /// A problem or a notice that names this field. Operators of some clouds share a document with other programs, which
    /// have fields of their own.
    ProblemOrNotice(String),
    /// Any problem.
    AnyProblem,
    /// Any answer, because the document may be valid.
    AnyAnswer,
}

/// One call of `instances.lookup`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LookupCall {
    pub(crate) purpose: Purpose,
    pub(crate) nodes: Vec<NodeReference>,
    pub(crate) outcome: LookupOutcome,
    /// The provider's requests, in order.
    pub(crate) requests: Vec<SeenRequest>,
    pub(crate) took: Duration,
}

/// The outcome of a lookup call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum LookupOutcome {
    /// One answer for each Node.
    Answers(Vec<Result<Answer, Error>>),
    /// An error for all of them.
    Failed(Error),
    /// No answer: the call trapped, exceeded its time, or returned an invalid answer.
    Fault(Fault),
}

/// A granted request to the cloud.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SeenRequest {
    /// Method and URL, without the query, which may hold a secret.
    pub(crate) line: String,
    pub(crate) effect: Effect,
    /// Whether one of the provider's rules matches it.
    pub(crate) has_rule: bool,
    /// The indices of the call's Nodes that it names, by name or provider ID.
    pub(crate) about: Vec<usize>,
}

/// All calls of `instances.lookup`.
pub(crate) struct Lookups {
    /// The soft and the hard deadline of the call with [`CloudMode::Silence`].
    pub(crate) deadlines: (Duration, Duration),
    pub(crate) empty: LookupCall,
    /// A Node without an instance.
    pub(crate) missing: LookupCall,
    /// A Node whose provider ID belongs to another provider.
    pub(crate) foreign: LookupCall,
    /// As many Nodes as a call may carry, at most [`super::probe::LARGEST`].
    pub(crate) largest: LookupCall,
    /// A Node with the provider ID of an instance that is gone, if one was given.
    pub(crate) gone: Option<LookupCall>,
    /// Lookups of Nodes with an instance, if some were given.
    pub(crate) known: Option<Known>,
    /// The same calls with each kind of fault.
    pub(crate) faults: Vec<(CloudMode, Vec<LookupCall>)>,
    /// A call with each refusal that the provider declares.
    pub(crate) refused: Vec<(Refusal, LookupCall)>,
}

/// Lookups of Nodes with an instance.
pub(crate) struct Known {
    pub(crate) alone: Vec<Alone>,
    /// All of them in one call, by name, with Nodes without an instance between and after them.
    pub(crate) mixed: LookupCall,
    /// As `mixed`, in reverse.
    pub(crate) reversed: LookupCall,
    /// A refresh of a full batch: the Nodes with an instance in turns, by the provider IDs of their first answers. None if
    /// one of them has no answer.
    pub(crate) refreshed: Option<LookupCall>,
}

/// Separate lookups of one Node with an instance.
pub(crate) struct Alone {
    /// The expected provider ID, if one was given.
    pub(crate) expected: Option<String>,
    /// Two lookups by name, as for a Node that has just joined.
    pub(crate) by_name: [LookupCall; 2],
    /// A lookup by the provider ID of the first answer.
    pub(crate) by_id: Option<LookupCall>,
    /// A lookup that confirms its state, by provider ID.
    pub(crate) confirmed: Option<LookupCall>,
}

impl Facts {
    /// The first description.
    pub(crate) fn description(&self) -> Option<&Description> {
        self.described.first()?.as_ref().ok()
    }

    /// The schema of the configuration; null if the provider has no description.
    pub(crate) fn schema(&self) -> &Value {
        self.description().map_or(&Value::Null, |description| &description.configuration_schema)
    }
}

impl Lookups {
    /// All calls.
    pub(crate) fn all(&self) -> impl Iterator<Item = &LookupCall> {
        let Self { deadlines: _, empty, missing, foreign, largest, gone, known, faults, refused } = self;
        let known = known.iter().flat_map(|Known { alone, mixed, reversed, refreshed }| {
            let alone = alone.iter().flat_map(|Alone { expected: _, by_name, by_id, confirmed }| {
                by_name.iter().chain(by_id).chain(confirmed)
            });
            alone.chain([mixed, reversed]).chain(refreshed)
        });
        let faults = faults.iter().flat_map(|(_, calls)| calls);
        let faults = faults.chain(refused.iter().map(|(_, call)| call));
        [empty, missing, foreign, largest].into_iter().chain(gone).chain(known).chain(faults)
    }
}

impl LookupCall {
    /// The answers, if the call returned some.
    pub(crate) fn answers(&self) -> Option<&[Result<Answer, Error>]> {
        match &self.outcome {
            LookupOutcome::Answers(answers) => Some(answers),
            LookupOutcome::Failed(_) | LookupOutcome::Fault(_) => None,
        }
    }

    /// The instance that a call about one Node found.
    pub(crate) fn instance(&self) -> Option<&Instance> {
        match self.answers()? {
            [answer] => instance_of(answer),
            _ => None,
        }
    }
}

/// The instance that an answer found.
pub(crate) fn instance_of(answer: &Result<Answer, Error>) -> Option<&Instance> {
    match answer {
        Ok(Answer::Found(instance)) => Some(instance),
        Ok(Answer::Absent | Answer::Pending(_) | Answer::Unmanaged(_)) | Err(_) => None,
    }
}
