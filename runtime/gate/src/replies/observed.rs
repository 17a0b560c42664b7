//! A response's body that observes whether its reader takes all of it.

use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http_body::{Body as _, Frame};

use super::{Replies, Reply};
use crate::body::Body;
use crate::error::Error;

/// A body that records when its reader has received all of it. It passes the last byte by itself, so that a reader that asks
/// for it has read everything before.
pub(super) struct ObservedBody {
    body: Body,
    last: Option<Bytes>,
    record: Option<(Replies, u64)>,
}

impl ObservedBody {
    pub(super) fn new(body: Body, replies: Replies, key: u64) -> Self {
        let mut observed = Self { body, last: None, record: Some((replies, key)) };
        if observed.body.is_end_stream() {
            observed.end(Reply::Complete);
        }
        observed
    }

    fn end(&mut self, reply: Reply) {
        if let Some((replies, key)) = self.record.take() {
            replies.set(key, reply);
        }
    }
}

impl http_body::Body for ObservedBody {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let this = self.get_mut();
        if let Some(last) = this.last.take() {
            return Poll::Ready(Some(Ok(Frame::data(last))));
        }
        let frame = std::task::ready!(Pin::new(&mut this.body).poll_frame(context));
        match frame {
            None => {
                this.end(Reply::Complete);
                Poll::Ready(None)
            }
            Some(Err(error)) => {
                this.end(Reply::Failed);
                Poll::Ready(Some(Err(error)))
            }
            Some(Ok(frame)) => Poll::Ready(Some(Ok(frame.map_data(|mut data| {
                if data.len() > 1 {
                    this.last = Some(data.split_off(data.len() - 1));
                }
                data
            })))),
        }
    }
}

impl Drop for ObservedBody {
    fn drop(&mut self) {
        // A reader that knows the length may not ask for the end, which is here then.
        if self.record.is_some() && self.last.is_none() {
            let mut context = Context::from_waker(Waker::noop());
            if let Poll::Ready(None) = Pin::new(&mut self.body).poll_frame(&mut context) {
                self.end(Reply::Complete);
            }
        }
    }
}
