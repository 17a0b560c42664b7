//! How far a swap is, by the status of the resource.

use std::fmt;
use std::pin::pin;

use futures::StreamExt as _;
use jiff::Timestamp;
use kube::Client;
use kube::runtime::{WatchStreamExt as _, watcher};
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::time::{Duration, Instant, timeout_at};

use crate::Failure;
use crate::image;
use crate::pileus::between;

/// How long a swap may take.
const DEADLINE: Duration = Duration::from_mins(2);

/// What a swap waits for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum State {
    /// The leader has to notice the new tag, and resolve it.
    Resolve,
    Fetch,
    Verify,
    Compile,
    Check,
    DryRun,
    Waiting,
    Canary,
    Observe,
}

impl State {
    pub(super) const ALL: [Self; 9] = [
        Self::Resolve,
        Self::Fetch,
        Self::Verify,
        Self::Compile,
        Self::Check,
        Self::DryRun,
        Self::Waiting,
        Self::Canary,
        Self::Observe,
    ];
}

impl fmt::Display for State {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Resolve => "resolve the tag",
            Self::Fetch => "fetch",
            Self::Verify => "verify",
            Self::Compile => "compile",
            Self::Check => "check",
            Self::DryRun => "dry run",
            Self::Waiting => "wait",
            Self::Canary => "canary, 1 s",
            Self::Observe => "observe, 1 s",
        })
    }
}

/// What the status says about a release.
enum Seen {
    In(State),
    /// It is active, and has proven itself.
    Done,
    Stopped(String),
}

/// The time in a state.
pub(super) struct Stay {
    pub(super) state: State,
    pub(super) began: Timestamp,
    pub(super) took: Duration,
}

/// How a swap went.
pub(super) struct Swap {
    /// The states that it was in, in their order.
    pub(super) states: Vec<Stay>,
    /// Why it was stopped.
    pub(super) stopped: Option<String>,
}

/// The status of the resource as it changes.
pub(super) struct Progress {
    seen: mpsc::UnboundedReceiver<(Timestamp, Value)>,
}

impl Progress {
    /// Begins to watch.
    pub(super) fn watch(client: Client) -> Self {
        let (sender, seen) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            let events = watcher(image::resources(client), watcher::Config::default());
            let mut events = pin!(events.default_backoff().applied_objects());
            while let Some(event) = events.next().await {
                let Ok(mut resource) = event else { continue };
                let status = resource.data.get_mut("status").map(Value::take).unwrap_or_default();
                if sender.send((Timestamp::now(), status)).is_err() {
                    return;
                }
            }
        });
        Self { seen }
    }

    /// Follows the swap to the release with this digest until it has proven itself, or is stopped.
    pub(super) async fn follow(&mut self, digest: &str) -> Result<Swap, Failure> {
        let deadline = Instant::now() + DEADLINE;
        let (mut state, mut began) = (State::Resolve, Timestamp::now());
        let mut swap = Swap { states: Vec::new(), stopped: None };
        loop {
            let next = timeout_at(deadline, self.seen.recv()).await;
            let Ok(Some((at, status))) = next else {
                return Err(format!("the swap to {digest} doesn't get further than to {state}").into());
            };
            let seen = seen(&status, digest);
            if let Seen::In(now) = &seen
                && *now <= state
            {
                continue;
            }
            swap.states.push(Stay { state, began, took: between(began, at) });
            began = at;
            match seen {
                Seen::In(now) => state = now,
                Seen::Done => return Ok(swap),
                Seen::Stopped(why) => return Ok(Swap { stopped: Some(why), ..swap }),
            }
        }
    }
}

fn seen(status: &Value, digest: &str) -> Seen {
    let text = |pointer: &str| status.pointer(pointer).and_then(Value::as_str);
    let is_ours =
        |version: &&Value| version.pointer("/release/component").and_then(Value::as_str) == Some(digest);
    let mut rejected = status.get("rejected").and_then(Value::as_array).into_iter().flatten();
    if let Some(rejected) = rejected.find(is_ours) {
        let why = rejected.get("why").and_then(Value::as_str).unwrap_or_default();
        return Seen::Stopped(why.to_owned());
    }
    if status.get("active").as_ref().is_some_and(is_ours) {
        return if status.get("observing").is_some() { Seen::In(State::Observe) } else { Seen::Done };
    }
    if !status.get("candidate").as_ref().is_some_and(is_ours) {
        return Seen::In(State::Resolve);
    }
    match text("/candidate/phase/name") {
        Some("preparing") => Seen::In(preparing(status)),
        Some("dryRun") => Seen::In(State::DryRun),
        Some("waiting") => Seen::In(State::Waiting),
        Some("canary") => Seen::In(State::Canary),
        Some("held") => {
            let shown = status.pointer("/candidate/differences/shown").map(ToString::to_string);
            Seen::Stopped(format!("held: {}", shown.unwrap_or_default()))
        }
        _ => Seen::In(State::Resolve),
    }
}

/// The stage of the preparation that runs: the first whose condition doesn't hold.
fn preparing(status: &Value) -> State {
    let conditions = || status.get("conditions").and_then(Value::as_array).into_iter().flatten();
    let holds = |kind: &str| {
        let is_kind = |condition: &&Value| condition.get("type").and_then(Value::as_str) == Some(kind);
        let found = conditions().find(is_kind).and_then(|condition| condition.get("status")?.as_str());
        found == Some("True")
    };
    let stages = [("Fetched", State::Fetch), ("Verified", State::Verify), ("Compiled", State::Compile)];
    stages.into_iter().find(|(kind, _)| !holds(kind)).map_or(State::Check, |(_, stage)| stage)
}
