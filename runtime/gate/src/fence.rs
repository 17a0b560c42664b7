//! The check that stands between a change and its first byte: whether this process may change anything at that moment.
//!
//! A request may wait for long before it is sent: in queues, for a name, for a connection. The answer to the question is
//! worth nothing by then. So it is asked where the HTTP library takes the request's body to write it out, in the task
//! that owns the connection, with head and body still in its buffer; where the answer is no, it drops the connection
//! instead of flushing. What is left is the instant from there to the kernel. The cluster's client uses the same body.

use std::{
    fmt,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use crate::error::Error;

/// Says at any moment whether changes may be made. Clones are the same.
#[derive(Clone)]
pub struct Fence(Arc<dyn Fn() -> bool + Send + Sync>);

impl Fence {
    /// A fence that is open whenever this says so. It is asked at each write, by any thread, and shouldn't wait.
    pub fn new(is_open: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(is_open))
    }

    /// Whether it is open now.
    pub fn is_open(&self) -> bool {
        (self.0)()
    }
}

/// Always open.
impl Default for Fence {
    fn default() -> Self {
        Self::new(|| true)
    }
}

impl fmt::Debug for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fence").finish_non_exhaustive()
    }
}

/// The body of a request that is sent only while its fence is open.
///
/// An empty body is never asked for, so here the question is whether it is empty: while the fence is closed it is not,
/// and what follows is the refusal.
#[derive(Debug)]
pub struct Fenced<B> {
    body: B,
    fence: Fence,
    says_that_it_is_empty: bool,
}

impl<B> Fenced<B> {
    /// Puts a body behind a fence.
    pub fn new(body: B, fence: Fence) -> Self {
        Self { body, fence, says_that_it_is_empty: false }
    }

    /// Announces an empty body as one of length 0 instead of none at all, which some servers insist on.
    #[must_use]
    pub(crate) fn with_length(mut self) -> Self {
        self.says_that_it_is_empty = true;
        self
    }
}

impl<B> Body for Fenced<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    type Data = Bytes;
    type Error = Box<dyn std::error::Error + Send + Sync>;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        if !self.fence.is_open() {
            return Poll::Ready(Some(Err(Error::Fenced.into())));
        }
        Pin::new(&mut self.body).poll_frame(context).map_err(Into::into)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream() && !self.says_that_it_is_empty && self.fence.is_open()
    }

    fn size_hint(&self) -> SizeHint {
        // A length of 0 would be written without asking for the body.
        if self.body.is_end_stream() && !self.fence.is_open() {
            SizeHint::default()
        } else {
            self.body.size_hint()
        }
    }
}
