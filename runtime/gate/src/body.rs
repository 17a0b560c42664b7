//! Bodies under bounds. A request's body is gathered whole before anything is decided, since rules may read it and a
//! request that was never sent can then be sent again; an answer's body streams, and ends with an error where it grows
//! past its cap or stalls. Trailers are dropped in both directions: they could smuggle what the header policy took out.

use std::{
    pin::{Pin, pin},
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use http_body::{Body as _, Frame};
use http_body_util::{BodyExt, combinators::UnsyncBoxBody};
use hyper::body::Incoming;
use tokio::time::{Instant, Sleep, sleep_until};

use crate::{
    echo::Echo,
    error::{Error, Phase},
    record::Record,
};

/// The body of an answer.
pub type Body = UnsyncBoxBody<Bytes, Error>;

/// A load balancer of the largest cloud with a thousand members is about 1 MiB.
const MOST_SENT: usize = 8 << 20;
/// An SDK that writes pieces of 1 KiB needs 8,192 for the largest body; only a flood of tiny or empty ones needs more.
const MOST_PIECES: usize = 65_536;
/// A page of a thousand machines is about 4 MiB.
pub(crate) const MOST_RECEIVED: u64 = 16 << 20;

/// Gathers the body of a request. Dropping the future drops what was gathered.
///
/// Errors: [`Error::BodyTooLarge`] over the caps of bytes and pieces, [`Error::Malformed`] if the sender gave up.
pub(crate) async fn gather<B>(body: B) -> Result<Bytes, Error>
where
    B: http_body::Body<Data = Bytes>,
    B::Error: std::fmt::Display,
{
    let mut body = pin!(body);
    let mut gathered = BytesMut::new();
    let mut pieces = 0;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|cause| Error::Malformed {
            part: "body",
            found: String::new(),
            cause: format!("was left unfinished: {cause}"),
        })?;
        pieces += 1;
        if pieces > MOST_PIECES {
            return Err(Error::BodyTooLarge { limit: format!("{MOST_PIECES} pieces") });
        }
        let Ok(data) = frame.into_data() else { continue };
        if gathered.len().saturating_add(data.len()) > MOST_SENT {
            return Err(Error::BodyTooLarge { limit: format!("{} MiB", MOST_SENT >> 20) });
        }
        gathered.extend_from_slice(&data);
    }
    Ok(gathered.freeze())
}

/// How an answer's body is bounded.
pub(crate) struct Bounds {
    pub(crate) host: String,
    pub(crate) bytes: u64,
    pub(crate) between: Duration,
    pub(crate) hard: Instant,
    pub(crate) echo: Echo,
}

/// The streaming body of an answer. It carries the record of its exchange, which ends when the body ends, fails or is
/// dropped, whichever comes first; the connection is let go at the same moment.
pub(crate) struct Answer {
    open: Option<Open>,
}

struct Open {
    incoming: Incoming,
    bounds: Bounds,
    /// Runs only while the cloud is waited for: a provider may take its time between two reads.
    timer: Pin<Box<Sleep>>,
    waiting: bool,
    record: Record,
}

impl Answer {
    pub(crate) fn new(incoming: Incoming, bounds: Bounds, record: Record) -> Self {
        let timer = Box::pin(sleep_until(bounds.hard));
        Self { open: Some(Open { incoming, bounds, timer, waiting: false, record }) }
    }

    /// Lets the rest go, since whoever reads it can't take it.
    pub(crate) fn fail(&mut self, error: &Error) {
        if let Some(mut open) = self.open.take() {
            open.record.failed(error);
        }
    }
}

impl http_body::Body for Answer {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let this = self.get_mut();
        let Some(open) = &mut this.open else { return Poll::Ready(None) };
        let outcome = ready!(open.poll_data(context));
        if let Some(Err(error)) = &outcome {
            open.record.failed(error);
        }
        if !matches!(outcome, Some(Ok(_))) {
            this.open = None;
        }
        Poll::Ready(outcome.map(|data| data.map(Frame::data)))
    }
}

impl Open {
    fn poll_data(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, Error>>> {
        loop {
            let Poll::Ready(frame) = Pin::new(&mut self.incoming).poll_frame(context) else {
                return self.poll_timer(context).map(|error| Some(Err(error)));
            };
            self.waiting = false;
            let data = match frame {
                None => {
                    let rest = self.bounds.echo.rest();
                    return Poll::Ready((!rest.is_empty()).then_some(Ok(rest)));
                }
                Some(Err(cause)) => return Poll::Ready(Some(Err(self.broken(cause)))),
                Some(Ok(frame)) => frame.into_data(),
            };
            let Ok(data) = data else { continue };
            let length = u64::try_from(data.len()).unwrap_or(u64::MAX);
            self.record.received = self.record.received.saturating_add(length);
            if self.record.received > self.bounds.bytes {
                return Poll::Ready(Some(Err(body_too_large(&self.bounds.host, self.bounds.bytes))));
            }
            match self.bounds.echo.pass(data) {
                None => return Poll::Ready(Some(Err(Error::Echo { host: self.bounds.host.clone() }))),
                Some(data) if !data.is_empty() => return Poll::Ready(Some(Ok(data))),
                Some(_) => {}
            }
        }
    }

    fn poll_timer(&mut self, context: &mut Context<'_>) -> Poll<Error> {
        let now = Instant::now();
        if !self.waiting {
            self.waiting = true;
            // A wish past the hard deadline was clamped to it, so the addition can't overflow.
            self.timer.as_mut().reset((now + self.bounds.between).min(self.bounds.hard));
        }
        ready!(self.timer.as_mut().poll(context));
        let phase = if now >= self.bounds.hard { Phase::Call } else { Phase::BetweenBytes };
        Poll::Ready(Error::Timeout { phase, host: self.bounds.host.clone(), after: self.bounds.between })
    }

    fn broken(&self, cause: hyper::Error) -> Error {
        Error::Protocol { host: self.bounds.host.clone(), source: std::sync::Arc::new(cause) }
    }
}

/// The refusal of an answer whose body is over its cap.
pub(crate) fn body_too_large(host: &str, cap: u64) -> Error {
    Error::ResponseTooLarge { host: host.to_owned(), part: "body", limit: format!("{} MiB", cap >> 20) }
}

#[cfg(test)]
mod tests {
    use futures::{FutureExt, stream};
    use http_body_util::StreamBody;

    use super::*;

    /// What `gather` says of a body of so many pieces of this length. Nothing here waits, so no runtime is needed.
    fn gathered(pieces: usize, length: usize) -> Result<usize, Error> {
        let piece = Bytes::from(vec![b'x'; length]);
        let frames = (0..pieces).map(|_| Ok::<_, Error>(Frame::data(piece.clone())));
        gather(StreamBody::new(stream::iter(frames))).now_or_never().unwrap().map(|body| body.len())
    }

    #[test]
    fn a_request_body_is_bounded_in_bytes_and_in_pieces() {
        assert_eq!(gathered(8, 1 << 20).unwrap(), 8 << 20);
        assert_eq!(gathered(MOST_PIECES, 1).unwrap(), MOST_PIECES);
        for (name, pieces, length) in [
            ("too many bytes", 9, 1 << 20),
            ("endless", usize::MAX, 1 << 20),
            ("endless single bytes", usize::MAX, 1),
            ("endless empty writes", usize::MAX, 0),
        ] {
            assert!(matches!(gathered(pieces, length), Err(Error::BodyTooLarge { .. })), "{name}");
        }
    }

    #[test]
    fn trailers_of_a_request_are_dropped() {
        let trailers = http::HeaderMap::from_iter([(http::header::AUTHORIZATION, "x".parse().unwrap())]);
        let frames = [Ok::<_, Error>(Frame::data(Bytes::from("a"))), Ok(Frame::trailers(trailers))];
        let body = gather(StreamBody::new(stream::iter(frames))).now_or_never().unwrap();
        assert_eq!(body.unwrap(), "a");
    }

    #[test]
    fn a_body_that_its_sender_gives_up_is_malformed() {
        let frames = [Ok(Frame::data(Bytes::from("a"))), Err("gone")];
        let body = gather(StreamBody::new(stream::iter(frames))).now_or_never().unwrap();
        assert!(matches!(body, Err(Error::Malformed { part: "body", .. })), "{body:?}");
    }
}
