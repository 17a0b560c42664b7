//! What was seen of calls that change something in the cloud, of load balancers and of routes alike. `judge` is what both
//! have to keep to.

pub(super) mod judge;

use std::time::Duration;

use pileus_cloud::{Error, Ingress, RouteProgress, ServiceProgress};
use pileus_gate::Effect;
use pileus_host::Fault;

use super::check::{Shortfall, failed, not_run};
use super::cloud::Scene;
use super::facts::Seen;
use super::words;

/// All that was seen of a capability that changes something. `T` is what it lists.
pub(crate) struct Changes<T> {
    /// What it did in the cloud, or what it takes to let it.
    pub(crate) played: Result<Played<T>, String>,
    /// What it did in front of a cloud in each kind of trouble.
    pub(crate) troubles: Vec<Trouble<T>>,
    /// The limit on a call's time at which the provider should stop, and the one at which it is stopped, of the call
    /// with [`Scene::Silence`].
    pub(crate) patience: (Duration, Duration),
}

/// What was done in a cloud, in the order in which it was done. It ends early where the provider can't go on.
pub(crate) struct Played<T> {
    /// The UID of the cluster for which it was done.
    pub(crate) cluster: String,
    /// What the two things are told apart by: the UIDs of Services, the destinations of routes.
    pub(crate) keys: [String; 2],
    pub(crate) turns: Vec<(Step, Turn)>,
    /// What was listed, after which step.
    pub(crate) lists: Vec<(Step, Listing<T>)>,
    /// What could not be removed again, and why.
    pub(crate) left: Vec<String>,
}

/// What a turn is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// One is deleted for a Service that never was.
    Before,
    /// Two are made.
    Make,
    /// The same two once more.
    Again,
    /// The same in another order, with something before them that never was.
    Mixed,
    /// The first has another port; the host tells nothing of the second.
    Unknown,
    /// The second as it was, after that.
    AfterUnknown,
    /// The first has its port again; the second is known, where the provider asks for that.
    Known,
    /// The second as it was, after that.
    AfterKnown,
    /// They lead to other Nodes.
    Move,
    /// The same once more.
    MoveAgain,
    /// The first is deleted.
    Delete,
    /// It is deleted once more.
    DeleteAgain,
    /// The second is removed by what the list tells of it alone.
    Orphan,
    /// Once more.
    OrphanAgain,
}

/// A call, or several until each of its changes had come to an end.
#[derive(Debug, Clone)]
pub(crate) struct Turn {
    /// What was sent, in words.
    pub(crate) sent: String,
    pub(crate) came: Result<Vec<Came>, NoAnswer>,
    /// What came of the first call, where there were several.
    pub(crate) first: Vec<Came>,
    /// The requests that the provider made, in their order.
    pub(crate) requests: Vec<Seen>,
}

/// A list, and the requests that it took.
#[derive(Debug, Clone)]
pub(crate) struct Listing<T> {
    pub(crate) came: Result<Vec<T>, NoAnswer>,
    pub(crate) requests: Vec<Seen>,
}

/// A change and a list in front of a cloud in trouble; without a list where one such wait tells enough.
pub(crate) struct Trouble<T> {
    pub(crate) scene: Scene,
    pub(crate) turn: Turn,
    pub(crate) list: Option<Listing<T>>,
}

/// What became of one change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Came {
    /// It is so; of a Service with its ways in.
    Done(Vec<Ingress>),
    /// It is under way.
    Under { after: Duration, resume: Option<String> },
    /// It is somebody else's.
    Elsewhere,
    /// It could not be done.
    Failed(Error),
}

/// Why a call brought no outcomes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NoAnswer {
    /// An error for all of it.
    Error(Error),
    /// It trapped, ran out of time, or answered what can't be.
    Fault(Fault),
}

impl From<Result<ServiceProgress, Error>> for Came {
    fn from(outcome: Result<ServiceProgress, Error>) -> Self {
        match outcome {
            Ok(ServiceProgress::Done { status, warnings: _ }) => Self::Done(status),
            Ok(ServiceProgress::InProgress { after, resume }) => Self::Under { after, resume },
            Ok(ServiceProgress::Elsewhere) => Self::Elsewhere,
            Err(error) => Self::Failed(error),
        }
    }
}

impl From<Result<RouteProgress, Error>> for Came {
    fn from(outcome: Result<RouteProgress, Error>) -> Self {
        match outcome {
            Ok(RouteProgress::Done) => Self::Done(Vec::new()),
            Ok(RouteProgress::InProgress { after, resume }) => Self::Under { after, resume },
            Err(error) => Self::Failed(error),
        }
    }
}

impl Came {
    /// The ways in, where it is done.
    fn done(&self) -> Option<&[Ingress]> {
        match self {
            Self::Done(status) => Some(status),
            Self::Under { .. } | Self::Elsewhere | Self::Failed(_) => None,
        }
    }
}

impl Turn {
    /// The ways in of each, where all are done.
    pub(crate) fn done(&self) -> Option<Vec<&[Ingress]>> {
        self.came.as_ref().ok()?.iter().map(Came::done).collect()
    }

    /// The first request that changes something. A `GET` that no rule is about is the affair of another check.
    pub(super) fn write(&self) -> Option<&Seen> {
        let writes = |request: &&Seen| {
            request.effect == Effect::Write && (request.has_rule || !request.line.starts_with("GET "))
        };
        self.requests.iter().find(writes)
    }

    fn is_misaligned(&self) -> bool {
        matches!(&self.came, Err(NoAnswer::Fault(Fault::Contract(_))))
    }

    pub(super) fn missed(&self, advice: impl Into<String>) -> Shortfall {
        self.unless_misaligned(self.failed(advice))
    }

    /// A call without one outcome for each change tells nothing about what the outcomes would have been.
    fn unless_misaligned(&self, shortfall: Shortfall) -> Shortfall {
        if self.is_misaligned() {
            not_run("the check of this capability whose name ends in one-each has to pass first")
        } else {
            shortfall
        }
    }

    fn failed(&self, advice: impl Into<String>) -> Shortfall {
        let came = format!(
            "{}; asked of the cloud: {}",
            words::came_of_changes(&self.came),
            words::lines(&self.requests)
        );
        failed(&self.sent, came, advice)
    }
}

impl<T> Changes<T> {
    /// What was done in the cloud.
    pub(super) fn played(&self) -> Result<&Played<T>, Shortfall> {
        self.played.as_ref().map_err(not_run)
    }

    /// All turns.
    pub(super) fn turns(&self) -> impl Iterator<Item = &Turn> {
        let played = self.played.iter().flat_map(|played| &played.turns).map(|(_, turn)| turn);
        played.chain(self.troubles.iter().map(|trouble| &trouble.turn))
    }
}

impl<T> Played<T> {
    /// Nothing yet, for this cluster and these two.
    pub(super) fn of(cluster: Option<String>, keys: [String; 2]) -> Self {
        let cluster = cluster.unwrap_or_default();
        Self { cluster, keys, turns: Vec::new(), lists: Vec::new(), left: Vec::new() }
    }

    /// What was done at a step, or what it takes to get there.
    pub(super) fn turn(&self, step: Step, needs: &str) -> Result<&Turn, Shortfall> {
        let turn = self.turns.iter().find(|(other, _)| *other == step).map(|(_, turn)| turn);
        turn.ok_or_else(|| not_run(needs))
    }

    /// What was listed after a step, or what it takes to get there.
    pub(super) fn list(&self, step: Step, needs: &str) -> Result<&[T], Shortfall> {
        let listed = self.lists.iter().find(|(other, _)| *other == step);
        listed.and_then(|(_, list)| list.came.as_deref().ok()).ok_or_else(|| not_run(needs))
    }
}
