//! Whether a gate is closed. A closed gate takes no more requests and ends its reads; writes in flight are finished
//! nonetheless, see `writes`.

use std::sync::Arc;

use tokio::sync::watch;

use crate::error::Error;

/// The signal that closes a gate. Clones share it.
#[derive(Debug, Clone)]
pub(crate) struct Shutdown(Arc<watch::Sender<bool>>);

impl Default for Shutdown {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(false)))
    }
}

impl Shutdown {
    pub(crate) fn close(&self) {
        self.0.send_replace(true);
    }

    /// # Errors
    /// [`Error::Closed`].
    pub(crate) fn check(&self) -> Result<(), Error> {
        if *self.0.borrow() { Err(Error::Closed) } else { Ok(()) }
    }

    /// Waits until the gate is closed.
    pub(crate) async fn closed(&self) {
        let mut closed = self.0.subscribe();
        // The sender lives in `self`.
        let _closed = closed.wait_for(|closed| *closed).await;
    }

    /// Runs an exchange that changes nothing, and drops it if the gate is closed first.
    ///
    /// # Errors
    /// [`Error::Closed`], and those of the exchange.
    pub(crate) async fn abort_on_close<T>(
        &self,
        exchange: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        tokio::select! {
            biased;
            () = self.closed() => Err(Error::Closed),
            result = exchange => result,
        }
    }
}
