//! The last check before a change is sent: whether this process may change anything at that moment.
//!
//! A request may wait long before it is sent: in queues, for a name, for a connection. A check before the wait would be
//! worth nothing after it. So the check is made where the HTTP library takes the request's body to write it out, in the
//! task that owns the connection, with head and body still in its buffer. If the fence is closed, the library drops the
//! connection instead of flushing. What is left is the instant from there to the kernel. The client of the API server uses
//! the same body.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use crate::error::Error;

/// Tells whether changes may be made now. Clones share it.
#[derive(Clone)]
pub struct Fence(Arc<dyn Fn() -> bool + Send + Sync>);

impl Fence {
    /// A fence that is open while this returns true. It is called at each write, on any thread, and must not wait.
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
/// The HTTP library never takes an empty body, so for one the check is made when the library asks whether it is empty: while
/// the fence is closed it says no, and fails when it is taken.
#[derive(Debug)]
pub struct FencedBody<B> {
    body: B,
    fence: Fence,
    announces_length: bool,
}

impl<B> FencedBody<B> {
    /// Puts a body behind a fence.
    pub fn new(body: B, fence: Fence) -> Self {
        Self { body, fence, announces_length: false }
    }

    /// Announces an empty body as one of length 0 instead of no body, as some servers require.
    #[must_use]
    pub(crate) fn with_length(mut self) -> Self {
        self.announces_length = true;
        self
    }
}

impl<B> Body for FencedBody<B>
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
        self.body.is_end_stream() && !self.announces_length && self.fence.is_open()
    }

    fn size_hint(&self) -> SizeHint {
        // A length of 0 would be written without taking the body.
        if self.body.is_end_stream() && !self.fence.is_open() {
            SizeHint::default()
        } else {
            self.body.size_hint()
        }
    }
}
