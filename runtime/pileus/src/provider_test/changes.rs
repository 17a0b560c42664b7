//! What was seen of calls that change something in the cloud, of load balancers and of routes alike, and what both have to
//! keep to.

use std::time::Duration;

use pileus_cloud::{Error, ErrorKind, Ingress, Progress, ServiceProgress};
use pileus_gate::Effect;
use pileus_host::Fault;

use super::check::{Shortfall, Verdict, failed, not_run};
use super::cloud::{RETRY_AFTER, Scene};
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
    /// Nothing was done yet. Of load balancers: one is deleted for a Service that never was.
    Before,
    /// Two are made.
    Make,
    /// The same two once more.
    Again,
    /// The same in another order, with something between them that never was.
    Mixed,
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
            Ok(ServiceProgress::Under { after, resume }) => Self::Under { after, resume },
            Ok(ServiceProgress::Elsewhere) => Self::Elsewhere,
            Err(error) => Self::Failed(error),
        }
    }
}

impl From<Result<Progress, Error>> for Came {
    fn from(outcome: Result<Progress, Error>) -> Self {
        match outcome {
            Ok(Progress::Done) => Self::Done(Vec::new()),
            Ok(Progress::Under { after, resume }) => Self::Under { after, resume },
            Err(error) => Self::Failed(error),
        }
    }
}

impl Turn {
    /// The ways in of each, where all are done.
    pub(crate) fn done(&self) -> Option<Vec<&[Ingress]>> {
        let done = |came| match came {
            &Came::Done(ref status) => Some(status.as_slice()),
            Came::Under { .. } | Came::Elsewhere | Came::Failed(_) => None,
        };
        self.came.as_ref().ok()?.iter().map(done).collect()
    }

    /// The first request that changes something.
    pub(super) fn write(&self) -> Option<&Seen> {
        self.requests.iter().find(|request| request.effect == Effect::Write)
    }

    pub(super) fn missed(&self, advice: impl Into<String>) -> Shortfall {
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

/// What steps need that are about two Nodes.
pub(super) const TWO_NODES: &str =
    "two Nodes that the cloud knows: pass --node NAME or --node NAME=PROVIDER-ID twice";

/// A turn that has to be done with, and its ways in.
pub(super) fn done<'a>(turn: &'a Turn, advice: &str) -> Result<Vec<&'a [Ingress]>, Shortfall> {
    turn.done().ok_or_else(|| turn.missed(advice))
}

/// Every call brings one outcome for each change.
pub(super) fn one_each<T>(changes: &Changes<T>) -> Verdict {
    let is_misaligned = |turn: &&Turn| matches!(&turn.came, Err(NoAnswer::Fault(Fault::Contract(_))));
    match changes.turns().find(is_misaligned) {
        Some(turn) => Err(turn.missed(
            "build the list from the changes that were sent, one after another, in whatever order they are made",
        )),
        None => changes.played().map(|_| ()),
    }
}

/// A list changes nothing.
pub(super) fn lists_only_read<T>(changes: &Changes<T>, list: &str) -> Verdict {
    let played = changes.played()?;
    let troubled = changes.troubles.iter().filter_map(|trouble| trouble.list.as_ref());
    let lists = played.lists.iter().map(|(_, list)| list).chain(troubled);
    match lists.flat_map(|list| &list.requests).find(|request| request.effect == Effect::Write) {
        Some(Seen { line, has_rule: true, .. }) => Err(failed(
            list,
            format!("{line}, which a rule calls a write"),
            "read alone; what is wrong with what is there is for a change to mend",
        )),
        Some(Seen { line, .. }) => Err(failed(
            list,
            format!("{line}, which no rule is about, so it counts as a write"),
            "add a rule for it to the settings, with the effect read",
        )),
        None => Ok(()),
    }
}

/// All that was made is gone at the end.
pub(super) fn nothing_left<T>(changes: &Changes<T>) -> Verdict {
    let left = &changes.played()?.left;
    if left.is_empty() {
        return Ok(());
    }
    Err(failed(
        "all that removes what the test made, at its end",
        format!("still there: {}", left.join("; ")),
        "remove it in the cloud by hand, and then correct what the checks before this one name",
    ))
}

/// The kinds of error that tell of trouble, and their names; none where an error may be of any kind.
fn fitting(scene: Scene) -> Option<(fn(ErrorKind) -> bool, &'static str)> {
    let asked = |kind| matches!(kind, ErrorKind::Throttled(Some(after)) if after.as_secs() == RETRY_AFTER);
    let down = |kind| matches!(kind, ErrorKind::Unavailable | ErrorKind::Throttled(_));
    match scene {
        Scene::Busy => Some((asked, "throttled, with the time of Retry-After")),
        Scene::Down => Some((down, "unavailable")),
        Scene::Forbidden => Some((|kind| kind == ErrorKind::Denied, "denied")),
        Scene::CutOff => Some((|kind| kind == ErrorKind::Unavailable, "unavailable")),
        _ => None,
    }
}

fn grant_needed() -> Shortfall {
    not_run("a grant for the hosts that it asks: pass --grant URL, or --provider FILE.yaml")
}

/// The troubles that a change or its list met; one that asked nothing of the cloud met none.
fn met<T>(changes: &Changes<T>) -> Result<Vec<&Trouble<T>>, Shortfall> {
    let has_met = |trouble: &&Trouble<T>| {
        !trouble.turn.requests.is_empty() || matches!(trouble.turn.came, Err(NoAnswer::Fault(_)))
    };
    let met: Vec<_> = changes.troubles.iter().filter(has_met).collect();
    if met.is_empty() { Err(grant_needed()) } else { Ok(met) }
}

/// What could not be done is an error of the right kind, or under way.
pub(super) fn kinds<T>(changes: &Changes<T>) -> Verdict {
    for Trouble { scene, turn, list: _ } in met(changes)? {
        let Some((fits, kind)) = fitting(*scene) else { continue };
        let right = match &turn.came {
            Err(NoAnswer::Error(error)) => fits(error.kind),
            Err(NoAnswer::Fault(_)) => false,
            Ok(outcomes) => outcomes.iter().all(|came| match came {
                Came::Failed(error) => fits(error.kind),
                Came::Under { .. } => true,
                Came::Done(_) | Came::Elsewhere => false,
            }),
        };
        if !right {
            return Err(in_trouble(
                *scene,
                turn,
                &format!(
                    "answer an error of kind {kind} for what the cloud did not confirm, and done for nothing of it"
                ),
            ));
        }
    }
    Ok(())
}

fn in_trouble(scene: Scene, turn: &Turn, advice: &str) -> Shortfall {
    let sent = format!("{} with {} behind it", turn.sent, scene.as_str());
    failed(sent, words::came_of_changes(&turn.came), advice)
}

/// What can't be read whole is no list.
pub(super) fn lists_are_whole<T>(changes: &Changes<T>, list: &str) -> Verdict {
    let mut has_met = false;
    for Trouble { scene, list: listing, .. } in &changes.troubles {
        let Some(Listing { came, requests }) = listing else { continue };
        // What came before it broke down may have been all.
        let is_cut = *scene != Scene::BreaksDown || requests.len() > 1;
        if !is_cut || *scene == Scene::NotFound || requests.is_empty() && came.is_ok() {
            continue;
        }
        has_met = true;
        let came = match came {
            Err(NoAnswer::Error(_)) => continue,
            Err(NoAnswer::Fault(fault)) => format!("no answer: the call {fault}"),
            Ok(listed) => format!("a list of {}", listed.len()),
        };
        let sent = format!("{list} with {} behind it", scene.as_str());
        return Err(failed(
            sent,
            came,
            "where a page of the list fails, fail with its error; a part of a list is none",
        ));
    }
    if has_met { Ok(()) } else { Err(grant_needed()) }
}

/// A call stops by itself after its soft deadline.
pub(super) fn stops<T>(changes: &Changes<T>) -> Verdict {
    let (soft, hard) = changes.patience;
    for Trouble { scene, turn, .. } in met(changes)? {
        if *scene != Scene::Silence {
            continue;
        }
        let right = match &turn.came {
            Err(NoAnswer::Error(_)) => true,
            Err(NoAnswer::Fault(_)) => false,
            Ok(outcomes) => outcomes.iter().all(|came| matches!(came, Came::Under { .. } | Came::Failed(_))),
        };
        if !right {
            return Err(in_trouble(
                *scene,
                turn,
                &format!(
                    "ask `call.remaining` how much is left (here {} at first, and the call is stopped after {}), and answer \
                 in-progress for what is not done by then",
                    words::human(soft),
                    words::human(hard)
                ),
            ));
        }
    }
    Ok(())
}
