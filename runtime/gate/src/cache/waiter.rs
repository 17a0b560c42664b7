//! The requests that wait for a fetch. A fetch that none of them has the time to wait for goes on for the next call.

use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{Semaphore, watch};
use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout_at};

use crate::cache::stored::WholeResponse;
use crate::cache::update::FetchResult;
use crate::deadlines::{Deadlines, LINGER};
use crate::error::{Error, Phase};
use crate::recent::Source;
use crate::request::Host;

/// The most fetches that go on without a caller, for each gate. A provider could begin thousands.
pub(super) const MOST_LINGERING: usize = 16;

/// A caller that goes after less than this has cancelled its request; its time can't be up.
const CANCELLED: Duration = Duration::from_secs(1);

/// The outcome of a fetch, for the requests that waited for it.
#[derive(Debug, Clone)]
pub(crate) enum FetchOutcome {
    /// A response, and where it came from.
    Response(Source, Arc<WholeResponse>),
    /// It failed.
    Failed(Error),
}

/// How far a fetch is.
#[derive(Debug, Clone)]
pub(super) enum Progress {
    Waits,
    /// It was sent. Says whether its answer may be stored, as far as is known.
    Left(bool),
    /// The head of its answer has come.
    Answering(bool),
    Ended(FetchOutcome, FetchResult),
}

/// A request that waits for a fetch. The fetch is given up when the last waiter is gone.
#[derive(Debug)]
pub(crate) struct Waiter {
    progress: watch::Receiver<Progress>,
    deadlines: Deadlines,
    since: Instant,
    lingering: Arc<Semaphore>,
    pub(crate) task: Arc<FetchTask>,
}

/// A waiter that does not keep the fetch alive.
#[derive(Debug)]
pub(crate) struct WeakWaiter {
    progress: watch::Receiver<Progress>,
    deadlines: Deadlines,
    lingering: Arc<Semaphore>,
    task: Weak<FetchTask>,
}

impl WeakWaiter {
    /// A waiter, unless all waiters have gone.
    pub(crate) fn take(&self) -> Option<Waiter> {
        let Self { progress, deadlines, lingering, task } = self;
        let (progress, lingering) = (progress.clone(), Arc::clone(lingering));
        let (deadlines, since) = (*deadlines, Instant::now());
        Some(Waiter { progress, deadlines, since, lingering, task: task.upgrade()? })
    }
}

/// The task that carries out a fetch; aborted when dropped.
#[derive(Debug, Default)]
pub(crate) struct FetchTask(OnceLock<AbortHandle>);

impl FetchTask {
    pub(crate) fn by(&self, task: AbortHandle) {
        self.0.get_or_init(|| task);
    }
}

impl Drop for FetchTask {
    fn drop(&mut self) {
        if let Some(task) = self.0.get() {
            task.abort();
        }
    }
}

impl Waiter {
    /// The first waiter of a fetch with these deadlines.
    pub(super) fn new(
        progress: watch::Receiver<Progress>,
        deadlines: Deadlines,
        lingering: Arc<Semaphore>,
    ) -> Self {
        Self { progress, deadlines, since: Instant::now(), lingering, task: Arc::default() }
    }

    /// The same waiter for a later request.
    pub(crate) fn free(&self) -> WeakWaiter {
        let Self { progress, deadlines, since: _, lingering, task } = self;
        let (progress, lingering) = (progress.clone(), Arc::clone(lingering));
        WeakWaiter { progress, deadlines: *deadlines, lingering, task: Arc::downgrade(task) }
    }

    /// Until when another request waits for a fetch whose own caller's time is up: for half of its own time. The cloud may be
    /// slow, or its answer lost. `None` for a fetch that is waited for.
    pub(crate) fn waits_until(&self, arrived: Instant, own: &Deadlines) -> Option<Instant> {
        let is_left_behind = Instant::now() + LINGER >= self.deadlines.hard;
        is_left_behind.then(|| arrived + own.soft.saturating_duration_since(arrived) / 2)
    }

    /// Waits for the end of the fetch, at most until these deadlines. None if the fetch ended only because of the deadlines of
    /// the request that began it, and this one has more time.
    pub(crate) async fn end(
        mut self,
        own: &Deadlines,
        host: &Host,
    ) -> Result<Option<(FetchOutcome, FetchResult)>, Error> {
        let left = self.progress.wait_for(|progress| !matches!(progress, Progress::Waits));
        // At its own soft deadline the fetch ends by itself.
        let soft = if own.soft < self.deadlines.soft { own.soft } else { self.deadlines.hard };
        timeout_at(soft, left).await.map_err(|_| Error::DeadlinePassed)?.map_err(|_| Error::Closed)?;
        let begun = Instant::now();
        let late = |phase| Error::Timeout { phase, host: host.to_string(), after: begun.elapsed() };
        let first_byte =
            own.first_byte.map(|_| begun + own.clamp(own.connect, begun) + own.clamp(own.first_byte, begun));
        let answering = self
            .progress
            .wait_for(|progress| matches!(progress, Progress::Answering(_) | Progress::Ended(..)));
        let answering = timeout_at(first_byte.map_or(own.hard, |until| until.min(own.hard)), answering);
        answering.await.map_err(|_| late(Phase::FirstByte))?.map_err(|_| Error::Closed)?;
        let (outcome, result) =
            timeout_at(own.hard, ended(&mut self.progress)).await.map_err(|_| late(Phase::Call))??;
        Ok((!self.is_early(&outcome, own)).then_some((outcome, result)))
    }

    fn is_early(&self, outcome: &FetchOutcome, own: &Deadlines) -> bool {
        let longer =
            |own: Option<_>, other: Option<_>| other.is_some_and(|other| own.is_none_or(|own| own > other));
        let Deadlines { soft, hard, connect, first_byte, between_bytes } = self.deadlines;
        match outcome {
            FetchOutcome::Response(Source::Limit, _) | FetchOutcome::Failed(Error::DeadlinePassed) => {
                own.soft > soft
            }
            FetchOutcome::Failed(Error::Timeout { phase, .. }) => {
                let has_wish = match phase {
                    Phase::Connect => longer(own.connect, connect),
                    Phase::FirstByte => longer(own.first_byte, first_byte),
                    Phase::BetweenBytes => longer(own.between_bytes, between_bytes),
                    Phase::Call => false,
                };
                has_wish || own.hard > hard
            }
            _ => false,
        }
    }
}

async fn ended(progress: &mut watch::Receiver<Progress>) -> Result<(FetchOutcome, FetchResult), Error> {
    // Only the end of the runtime ends the task of a fetch that is waited for.
    let ended = progress.wait_for(|progress| matches!(progress, Progress::Ended(..))).await;
    match &*ended.map_err(|_| Error::Closed)? {
        Progress::Ended(outcome, result) => Ok((outcome.clone(), *result)),
        Progress::Waits | Progress::Left(_) | Progress::Answering(_) => Err(Error::Closed),
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        let is_under_way =
            matches!(*self.progress.borrow(), Progress::Left(true) | Progress::Answering(true));
        let is_last = Arc::strong_count(&self.task) == 1;
        // A caller that goes sooner doesn't want the answer; one that goes later had no more time.
        if !is_under_way || !is_last || self.since.elapsed() < CANCELLED {
            return;
        }
        if let Ok(room) = Arc::clone(&self.lingering).try_acquire_owned()
            && let Ok(runtime) = Handle::try_current()
        {
            let (mut progress, task) = (self.progress.clone(), Arc::clone(&self.task));
            runtime.spawn(async move {
                // The fetch ends at its own deadlines.
                let _ended = progress.wait_for(|progress| matches!(progress, Progress::Ended(..))).await;
                drop((task, room));
            });
        }
    }
}
