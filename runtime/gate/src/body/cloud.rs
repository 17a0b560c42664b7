//! The body of a response as it comes from the cloud. Its beginning can be read ahead to see what a refusal means; its reader
//! gets the same frames as without that.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use tokio::time::{Instant, timeout_at};

type FrameResult = Result<Frame<Bytes>, hyper::Error>;

/// How many frames are read ahead, since each takes memory beside its data. Servers send some hundred bytes in one.
const MAX_FRAMES: usize = 1 << 10;

/// The body of a response of the cloud.
#[derive(Debug)]
pub(crate) struct CloudBody {
    /// What was read ahead.
    begun: VecDeque<FrameResult>,
    /// Whether nothing comes after that.
    has_ended: bool,
    rest: Incoming,
}

impl CloudBody {
    pub(crate) fn new(rest: Incoming) -> Self {
        Self { begun: VecDeque::new(), has_ended: false, rest }
    }

    /// Reads ahead until it has this many bytes or the body ends, but no longer than until then.
    pub(crate) async fn read_ahead(&mut self, bytes: usize, until: Instant) {
        let mut read = 0;
        while !self.has_ended && read < bytes && self.begun.len() < MAX_FRAMES {
            let Ok(next) = timeout_at(until, self.rest.frame()).await else { return };
            self.has_ended = next.as_ref().is_none_or(Result::is_err);
            let Some(frame) = next else { return };
            read += data(&frame).len();
            self.begun.push_back(frame);
        }
    }

    /// What was read ahead and isn't taken yet.
    pub(crate) fn begin(&self) -> Cow<'_, [u8]> {
        let mut all = self.begun.iter().map(data).filter(|data| !data.is_empty());
        match (all.next(), all.next()) {
            (None, _) => Cow::Borrowed(&[]),
            (Some(only), None) => Cow::Borrowed(only),
            (Some(first), Some(second)) => {
                Cow::Owned([first, second].into_iter().chain(all).flatten().copied().collect())
            }
        }
    }
}

fn data(frame: &FrameResult) -> &[u8] {
    frame.as_ref().ok().and_then(Frame::data_ref).map_or(&[], AsRef::as_ref)
}

impl Body for CloudBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<FrameResult>> {
        let this = self.get_mut();
        if let Some(frame) = this.begun.pop_front() {
            return Poll::Ready(Some(frame));
        }
        if this.has_ended {
            return Poll::Ready(None);
        }
        let frame = ready!(Pin::new(&mut this.rest).poll_frame(context));
        this.has_ended = frame.is_none();
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.begun.is_empty() && (self.has_ended || self.rest.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        let held: usize = self.begun.iter().map(|frame| data(frame).len()).sum();
        let (held, rest) = (u64::try_from(held).unwrap_or(u64::MAX), self.rest.size_hint());
        let mut hint = SizeHint::new();
        hint.set_lower(rest.lower().saturating_add(held));
        if let Some(upper) = rest.upper() {
            hint.set_upper(upper.saturating_add(held));
        }
        hint
    }
}
