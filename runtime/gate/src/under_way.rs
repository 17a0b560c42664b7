//! What is on its way through a gate, so that the gate can be closed: reads are then given up, and writes that have
//! begun are finished.
//!
//! A write that has begun is never given up halfway, whoever stops waiting for it: nobody would know whether it was
//! done. It has a task of its own, until its answer or its deadline, and is counted.

use std::sync::{
    Arc,
    atomic::{AtomicU8, Ordering},
};

use tokio::{sync::watch, task::AbortHandle};
use tracing::Instrument;

use crate::{error::Error, fence::Fence};

/// The requests of a gate. Clones are the same.
#[derive(Debug, Clone)]
pub(crate) struct UnderWay {
    fence: Fence,
    state: Arc<State>,
}

#[derive(Debug)]
struct State {
    is_closed: watch::Sender<bool>,
    /// How many writes have a task.
    writes: watch::Sender<usize>,
}

impl UnderWay {
    pub(crate) fn new(fence: Fence) -> Self {
        let state = State { is_closed: watch::Sender::new(false), writes: watch::Sender::new(0) };
        Self { fence, state: Arc::new(state) }
    }

    pub(crate) fn close(&self) {
        self.state.is_closed.send_replace(true);
    }

    /// Errors: [`Error::Closed`].
    pub(crate) fn check(&self) -> Result<(), Error> {
        if *self.state.is_closed.borrow() { Err(Error::Closed) } else { Ok(()) }
    }

    async fn closed(&self) {
        let mut closed = self.state.is_closed.subscribe();
        // The sender lives in `self`.
        let _closed = closed.wait_for(|closed| *closed).await;
    }

    /// How many writes may have begun and are unanswered.
    pub(crate) fn writes(&self) -> usize {
        *self.state.writes.borrow()
    }

    pub(crate) async fn writes_ended(&self) {
        let mut writes = self.state.writes.subscribe();
        let _ended = writes.wait_for(|writes| *writes == 0).await;
    }

    /// Carries an exchange that changes nothing, unless the gate is closed first.
    pub(crate) async fn read<T>(&self, exchange: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        tokio::select! {
            biased;
            () = self.closed() => Err(Error::Closed),
            outcome = exchange => outcome,
        }
    }

    /// Carries an exchange that may change something, and that sends its body only if the fence that it is given lets
    /// it. Dropping the future gives it up as long as it hasn't begun, and so does closing the gate.
    pub(crate) async fn write<T: Send + 'static, F>(
        &self,
        exchange: impl FnOnce(Fence) -> F,
    ) -> Result<T, Error>
    where
        F: Future<Output = Result<T, Error>> + Send + 'static,
    {
        if !self.fence.is_open() {
            return Err(Error::Fenced);
        }
        let stage = Arc::new(Stage::default());
        let counted = Counted::new(self.state.clone());
        let exchange = exchange(self.fence_of(stage.clone()));
        let task = async move {
            let _counted = counted;
            exchange.await
        };
        let mut task = tokio::spawn(task.in_current_span());
        let given_up_if_dropped = GiveUp { stage, task: task.abort_handle() };
        let ended = tokio::select! {
            biased;
            ended = &mut task => ended,
            () = self.closed() => {
                if given_up_if_dropped.now() {
                    return Err(Error::Closed);
                }
                task.await
            }
        };
        ended.unwrap_or_else(|error| match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // Only the end of the runtime ends a task that is waited for.
            Err(_cancelled) => Err(Error::Closed),
        })
    }

    /// Open while a write may begin, which it thereby has.
    fn fence_of(&self, stage: Arc<Stage>) -> Fence {
        let (fence, state) = (self.fence.clone(), self.state.clone());
        Fence::new(move || {
            fence.is_open() && (stage.has_begun() || (!*state.is_closed.borrow() && stage.begin()))
        })
    }
}

/// How far a write has come.
#[derive(Debug, Default)]
struct Stage(AtomicU8);

impl Stage {
    const WAITING: u8 = 0;
    const BEGUN: u8 = 1;
    const GIVEN_UP: u8 = 2;

    fn has_begun(&self) -> bool {
        self.0.load(Ordering::SeqCst) == Self::BEGUN
    }

    fn begin(&self) -> bool {
        self.leave_waiting(Self::BEGUN)
    }

    fn give_up(&self) -> bool {
        self.leave_waiting(Self::GIVEN_UP)
    }

    fn leave_waiting(&self, next: u8) -> bool {
        self.0.compare_exchange(Self::WAITING, next, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }
}

/// Nobody waits for the write any more.
struct GiveUp {
    stage: Arc<Stage>,
    task: AbortHandle,
}

impl GiveUp {
    /// Ends the write unless it has begun. Whether it is given up.
    fn now(&self) -> bool {
        let is_given_up = self.stage.give_up();
        if is_given_up {
            self.task.abort();
        }
        is_given_up
    }
}

impl Drop for GiveUp {
    fn drop(&mut self) {
        self.now();
    }
}

/// A write that has a task.
struct Counted(Arc<State>);

impl Counted {
    fn new(state: Arc<State>) -> Self {
        state.writes.send_modify(|writes| *writes += 1);
        Self(state)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.writes.send_modify(|writes| *writes -= 1);
    }
}
