//! The body of a request. It is handed to the connection in parts, so that a slow upload shows its progress, and is told from
//! a registry that doesn't answer.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};

use crate::progress::Progress;

/// What is handed over at once.
const PART: usize = 64 << 10;

/// The bytes of a request that are not sent yet.
pub(super) struct Upload {
    rest: Bytes,
    total: u64,
    sent: Sent,
    progress: Option<Progress>,
}

/// How many bytes of an upload the connection has taken.
#[derive(Debug, Clone, Default)]
pub(super) struct Sent(Arc<AtomicU64>);

impl Sent {
    pub(super) fn bytes(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Upload {
    pub(super) fn new(bytes: Bytes, progress: Option<Progress>) -> Self {
        Self { total: bytes.len() as u64, rest: bytes, sent: Sent::default(), progress }
    }

    /// A view of its progress, which outlives it.
    pub(super) fn sent(&self) -> Sent {
        self.sent.clone()
    }
}

impl Body for Upload {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.rest.is_empty() {
            return Poll::Ready(None);
        }
        let length = PART.min(self.rest.len());
        let part = self.rest.split_to(length);
        let done = self.total - self.rest.len() as u64;
        self.sent.0.store(done, Ordering::Relaxed);
        if let Some(progress) = &self.progress {
            progress.report(done, self.total);
        }
        Poll::Ready(Some(Ok(Frame::data(part))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.rest.len() as u64)
    }
}
