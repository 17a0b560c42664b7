//! What the test observed of calls that change the cloud, for load balancers and routes alike. `claims` and `failures`
//! have the checks that both share.

pub(super) mod claims;
pub(super) mod failures;

use std::time::Duration;

use pileus_cloud::{Error, Ingress, Notice, RouteProgress, ServiceProgress};
use pileus_gate::Effect;
use pileus_host::Fault;

use super::check::{NotPassed, failed, not_run};
use super::cloud::CloudMode;
use super::describe;
use super::facts::SeenRequest;

/// All observations of a capability that changes the cloud. `T` is an item of its list.
pub(crate) struct Changes<T> {
    /// What happened in the real cloud, or what it takes to allow that.
    pub(crate) scenario: Result<Scenario<T>, String>,
    /// What happened with a cloud that fails, once for each kind of fault.
    pub(crate) faults: Vec<FaultRecord<T>>,
    /// The soft and the hard deadline of the call with [`CloudMode::Silence`].
    pub(crate) deadlines: (Duration, Duration),
}

/// The steps in the real cloud, in order. The scenario ends early if the provider can't continue.
pub(crate) struct Scenario<T> {
    /// The UID of the cluster.
    pub(crate) cluster: String,
    /// What identifies the two objects: the UIDs of Services, the destinations of routes.
    pub(crate) keys: [String; 2],
    pub(crate) calls: Vec<(Step, CallRecord)>,
    /// The lists, by the step that they followed.
    pub(crate) lists: Vec<(Step, Listing<T>)>,
    /// What could not be removed at the end, and why.
    pub(crate) left: Vec<String>,
}

/// A step of the scenario.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// Delete the load balancer of a Service that never existed.
    Before,
    /// Create two objects.
    Make,
    /// Create the same two again.
    Again,
    /// Create the same two in reverse order, after deleting one that never existed.
    Mixed,
    /// Change the port of the first; the host doesn't mention the second.
    Unknown,
    /// Then ensure the second, unchanged.
    AfterUnknown,
    /// Change the port of the first back; the second is known, if the provider reads known Services.
    Known,
    /// Then ensure the second, unchanged.
    AfterKnown,
    /// Move both to other Nodes.
    Move,
    /// The same again.
    MoveAgain,
    /// The same again, with all Nodes and a selection of those.
    Select,
    /// Delete the first.
    Delete,
    /// The same again.
    DeleteAgain,
    /// Remove the second by its entry in the list alone.
    Orphan,
    /// The same again.
    OrphanAgain,
}

/// A call, or several until each of its changes had ended.
#[derive(Debug, Clone)]
pub(crate) struct CallRecord {
    /// A description of the call.
    pub(crate) sent: String,
    pub(crate) outcomes: Result<Vec<ChangeOutcome>, CallFailure>,
    /// The outcomes of each change in all calls, in order.
    pub(crate) history: Vec<Vec<ChangeOutcome>>,
    /// The provider's requests, in order.
    pub(crate) requests: Vec<SeenRequest>,
}

/// A list, and the requests that it took.
#[derive(Debug, Clone)]
pub(crate) struct Listing<T> {
    pub(crate) items: Result<Vec<T>, CallFailure>,
    pub(crate) requests: Vec<SeenRequest>,
}

/// A change and a list with a cloud that fails. The list is left out where the change alone shows enough.
pub(crate) struct FaultRecord<T> {
    pub(crate) mode: CloudMode,
    pub(crate) call: CallRecord,
    pub(crate) list: Option<Listing<T>>,
}

/// The outcome of one change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ChangeOutcome {
    Done(ServiceReport),
    InProgress {
        after: Duration,
        resume: Option<String>,
        report: ServiceReport,
    },
    /// Another controller serves the object.
    Elsewhere,
    Failed(Error),
}

/// What the Service of a change is told with its outcome. Empty for routes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ServiceReport {
    /// Its ingress; none leaves it as it is.
    pub(crate) status: Option<Vec<Ingress>>,
    pub(crate) notices: Vec<Notice>,
    /// Annotations to set, or to remove with none.
    pub(crate) annotations: Vec<(String, Option<String>)>,
}

/// Why a call returned no outcomes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum CallFailure {
    /// An error for the whole call.
    Error(Error),
    /// The call trapped, exceeded its time, or returned an invalid answer.
    Fault(Fault),
}

impl From<Result<ServiceProgress, Error>> for ChangeOutcome {
    fn from(outcome: Result<ServiceProgress, Error>) -> Self {
        match outcome {
            Ok(ServiceProgress::Done { status, notices, annotations }) => {
                Self::Done(ServiceReport { status: Some(status), notices, annotations })
            }
            Ok(ServiceProgress::InProgress { after, resume, status, notices, annotations }) => {
                Self::InProgress { after, resume, report: ServiceReport { status, notices, annotations } }
            }
            Ok(ServiceProgress::Elsewhere) => Self::Elsewhere,
            Err(error) => Self::Failed(error),
        }
    }
}

impl From<Result<RouteProgress, Error>> for ChangeOutcome {
    fn from(outcome: Result<RouteProgress, Error>) -> Self {
        match outcome {
            Ok(RouteProgress::Done) => Self::Done(ServiceReport::default()),
            Ok(RouteProgress::Elsewhere) => Self::Elsewhere,
            Ok(RouteProgress::InProgress { after, resume }) => {
                Self::InProgress { after, resume, report: ServiceReport::default() }
            }
            Err(error) => Self::Failed(error),
        }
    }
}

impl ChangeOutcome {
    /// The ingress of a change that is done.
    fn done(&self) -> Option<&[Ingress]> {
        match self {
            Self::Done(report) => Some(report.status.as_deref().unwrap_or_default()),
            Self::InProgress { .. } | Self::Elsewhere | Self::Failed(_) => None,
        }
    }

    /// What the Service is told.
    pub(super) const fn report(&self) -> Option<&ServiceReport> {
        match self {
            Self::Done(report) | Self::InProgress { report, .. } => Some(report),
            Self::Elsewhere | Self::Failed(_) => None,
        }
    }
}

impl CallRecord {
    /// The ingress of each change, if all are done.
    pub(crate) fn done(&self) -> Option<Vec<&[Ingress]>> {
        self.outcomes.as_ref().ok()?.iter().map(ChangeOutcome::done).collect()
    }

    /// The first request that changes something. A `GET` without a rule is the subject of another check.
    pub(super) fn write(&self) -> Option<&SeenRequest> {
        let is_write = |request: &&SeenRequest| {
            request.effect == Effect::Write && (request.has_rule || !request.line.starts_with("GET "))
        };
        self.requests.iter().find(is_write)
    }

    /// What Services were told in all calls.
    pub(super) fn reports(&self) -> impl Iterator<Item = &ServiceReport> {
        self.history.iter().flatten().filter_map(ChangeOutcome::report)
    }

    fn is_misaligned(&self) -> bool {
        matches!(&self.outcomes, Err(CallFailure::Fault(Fault::Contract(_))))
    }

    /// A failure with this advice, unless the call is misaligned.
    pub(super) fn missed(&self, advice: impl Into<String>) -> NotPassed {
        self.unless_misaligned(self.failed(advice))
    }

    /// A call without one outcome for each change shows nothing about the outcomes themselves.
    fn unless_misaligned(&self, not_passed: NotPassed) -> NotPassed {
        if self.is_misaligned() {
            not_run("the check of this capability whose name ends in one-each has to pass first")
        } else {
            not_passed
        }
    }

    fn failed(&self, advice: impl Into<String>) -> NotPassed {
        let received = format!(
            "{}; requests to the cloud: {}",
            describe::change_outcomes(&self.outcomes),
            describe::requests(&self.requests)
        );
        failed(&self.sent, received, advice)
    }
}

impl<T> Changes<T> {
    /// What happened in the real cloud.
    pub(super) fn scenario(&self) -> Result<&Scenario<T>, NotPassed> {
        self.scenario.as_ref().map_err(not_run)
    }

    /// All calls.
    pub(super) fn calls(&self) -> impl Iterator<Item = &CallRecord> {
        let scenario = self.scenario.iter().flat_map(|scenario| &scenario.calls).map(|(_, call)| call);
        scenario.chain(self.faults.iter().map(|fault| &fault.call))
    }
}

impl<T> Scenario<T> {
    /// An empty scenario for a cluster and two objects.
    pub(super) fn of(cluster: Option<String>, keys: [String; 2]) -> Self {
        let cluster = cluster.unwrap_or_default();
        Self { cluster, keys, calls: Vec::new(), lists: Vec::new(), left: Vec::new() }
    }

    /// The call of a step, or what it takes to get there.
    pub(super) fn call(&self, step: Step, needs: &str) -> Result<&CallRecord, NotPassed> {
        let call = self.calls.iter().find(|(other, _)| *other == step).map(|(_, call)| call);
        call.ok_or_else(|| not_run(needs))
    }

    /// The list after a step, or what it takes to get there.
    pub(super) fn list(&self, step: Step, needs: &str) -> Result<&[T], NotPassed> {
        let listed = self.lists.iter().find(|(other, _)| *other == step);
        listed.and_then(|(_, list)| list.items.as_deref().ok()).ok_or_else(|| not_run(needs))
    }
}
