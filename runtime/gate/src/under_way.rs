//! The end of a gate: once it is closed it takes no request any more, and gives up the reads that wait for an answer.
//! Writes that have begun are finished nonetheless, see `writes`.

use std::sync::Arc;

use tokio::sync::watch;

use crate::error::Error;

/// What is on its way through a gate. Clones are the same.
#[derive(Debug, Clone)]
pub(crate) struct UnderWay(Arc<watch::Sender<bool>>);

impl Default for UnderWay {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(false)))
    }
}

impl UnderWay {
    pub(crate) fn close(&self) {
        self.0.send_replace(true);
    }

    /// Errors: [`Error::Closed`].
    pub(crate) fn check(&self) -> Result<(), Error> {
        if *self.0.borrow() { Err(Error::Closed) } else { Ok(()) }
    }

    /// Waits until it is closed.
    pub(crate) async fn closed(&self) {
        let mut closed = self.0.subscribe();
        // The sender lives in `self`.
        let _closed = closed.wait_for(|closed| *closed).await;
    }

    /// Carries an exchange that changes nothing, unless the gate is closed first.
    pub(crate) async fn read<T>(&self, exchange: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        tokio::select! {
            biased;
            () = self.closed() => Err(Error::Closed),
            outcome = exchange => outcome,
        }
    }
}
