//! What a conformance test saw: everything that was asked and what came of it, as plain values. The checks judge these
//! and nothing else, so each can be tested without a component.

use std::time::Duration;

use pileus_cloud::{Answer, Error, Instance, ListedRoute, NodeReference, OwnedLoadBalancer, Purpose};
use pileus_gate::{Coverage, Effect};
use pileus_host::{Capability, Description, Fault, Settings};
use serde_json::Value;

use super::changes::Changes;
use super::cloud::Scene;

/// All that was seen of one provider.
pub(crate) struct Facts {
    /// What it says that it is, asked twice.
    pub(crate) described: [Result<Description, String>; 2],
    /// What its component exports besides `info`.
    pub(crate) capabilities: Vec<Capability>,
    /// What it makes of documents that nobody should accept.
    pub(crate) refusals: Vec<Refusal>,
    /// What it makes of its configuration; none where none was given.
    pub(crate) configured: Option<Configured>,
    /// What it answers about machines; none where it can't be asked.
    pub(crate) lookups: Option<Lookups>,
    /// What it does for Services; none where it can't be asked.
    pub(crate) load_balancers: Option<Changes<OwnedLoadBalancer>>,
    /// What it does with routes; none where it can't be asked.
    pub(crate) routes: Option<Changes<ListedRoute>>,
}

/// What a provider makes of its configuration, asked twice.
pub(crate) struct Configured {
    pub(crate) document: String,
    pub(crate) answers: [Result<Settings, Refused>; 2],
    /// What the settings of the first answer wish, against what was granted.
    pub(crate) coverage: Coverage,
}

/// Why `configure` brought no settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Refused {
    /// The provider says what is wrong: path and message each.
    Problems(Vec<(String, String)>),
    /// It failed, or answered what can't be.
    Broke(String),
}

/// A document that is wrong on purpose.
pub(crate) struct Refusal {
    /// What is wrong with it.
    pub(crate) what: String,
    /// The document, or how it begins.
    pub(crate) document: String,
    /// What is expected.
    pub(crate) expected: Expected,
    /// What came back: whether it was accepted, or why not.
    pub(crate) answer: Result<(), Refused>,
}

/// What a provider should make of a wrong document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Expected {
    /// A problem that names this field.
    Problem(String),
    /// Any problem.
    AnyProblem,
    /// An answer, whatever it is: the document may be right.
    AnyAnswer,
}

/// One call of `instances.lookup`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Call {
    pub(crate) purpose: Purpose,
    pub(crate) nodes: Vec<NodeReference>,
    pub(crate) outcome: Outcome,
    /// The requests that the provider made, in their order.
    pub(crate) requests: Vec<Seen>,
    pub(crate) took: Duration,
}

/// What became of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// One answer for each Node.
    Answers(Vec<Result<Answer, Error>>),
    /// An error for all of them.
    Failed(Error),
    /// No answer: it trapped, ran out of time, or answered what can't be.
    Fault(Fault),
}

/// A request that was granted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Seen {
    /// Method and URL, without the query, which may hold a secret.
    pub(crate) line: String,
    pub(crate) effect: Effect,
    /// Whether one of the provider's rules is about it.
    pub(crate) has_rule: bool,
    /// Which of the call's Nodes it names, by name or by provider ID.
    pub(crate) about: Vec<usize>,
}

/// All calls of `instances.lookup`.
pub(crate) struct Lookups {
    /// The limit on a call's time at which the provider should stop, and the one at which it is stopped, of the call
    /// with [`Scene::Silence`].
    pub(crate) patience: (Duration, Duration),
    pub(crate) empty: Call,
    /// A Node that nobody has.
    pub(crate) missing: Call,
    /// A Node whose provider ID is another provider's.
    pub(crate) foreign: Call,
    /// As many Nodes as a call may carry, at most [`super::gather::LARGEST`].
    pub(crate) largest: Call,
    /// A Node with the provider ID of a machine that is gone, where the author named one.
    pub(crate) gone: Option<Call>,
    /// What was asked about Nodes that the cloud knows, where the author named some.
    pub(crate) known: Option<Known>,
    /// The same call in each of these situations.
    pub(crate) troubles: Vec<(Scene, Vec<Call>)>,
}

/// What was asked about Nodes that the cloud knows.
pub(crate) struct Known {
    pub(crate) alone: Vec<Alone>,
    /// All of them in one call, by name, with Nodes between and behind them that nobody has.
    pub(crate) mixed: Call,
    /// As `mixed`, in reverse.
    pub(crate) reversed: Call,
}

/// What was asked about one Node that the cloud knows, in calls of its own.
pub(crate) struct Alone {
    /// The provider ID that the author expects.
    pub(crate) expected: Option<String>,
    /// By name, as of a Node that has just joined; twice.
    pub(crate) by_name: [Call; 2],
    /// By the provider ID of the first answer.
    pub(crate) by_id: Option<Call>,
    /// Whether its machine is really gone, by provider ID.
    pub(crate) confirmed: Option<Call>,
}

impl Facts {
    /// The first description.
    pub(crate) fn description(&self) -> Option<&Description> {
        self.described.first()?.as_ref().ok()
    }

    /// The schema of the configuration; null where there is none.
    pub(crate) fn schema(&self) -> &Value {
        self.description().map_or(&Value::Null, |description| &description.configuration_schema)
    }
}

impl Lookups {
    /// All calls, with what they were about.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Call> {
        let Self { patience: _, empty, missing, foreign, largest, gone, known, troubles } = self;
        let known = known.iter().flat_map(|Known { alone, mixed, reversed }| {
            let alone = alone.iter().flat_map(|Alone { expected: _, by_name, by_id, confirmed }| {
                by_name.iter().chain(by_id).chain(confirmed)
            });
            alone.chain([mixed, reversed])
        });
        let troubles = troubles.iter().flat_map(|(_, calls)| calls);
        [empty, missing, foreign, largest].into_iter().chain(gone).chain(known).chain(troubles)
    }
}

impl Call {
    /// The answers, where there are some.
    pub(crate) fn answers(&self) -> Option<&[Result<Answer, Error>]> {
        match &self.outcome {
            Outcome::Answers(answers) => Some(answers),
            Outcome::Failed(_) | Outcome::Fault(_) => None,
        }
    }

    /// The machine that was found, of a call about one Node.
    pub(crate) fn machine(&self) -> Option<&Instance> {
        match self.answers()? {
            [answer] => machine(answer),
            _ => None,
        }
    }
}

/// The machine that an answer found.
pub(crate) fn machine(answer: &Result<Answer, Error>) -> Option<&Instance> {
    match answer {
        Ok(Answer::Found(machine)) => Some(machine),
        Ok(Answer::Absent | Answer::Pending(_) | Answer::Unmanaged) | Err(_) => None,
    }
}
