//! Bodies, bounded. A request's body is gathered whole before the gate decides on the request: rules may read it, and a
//! request that never left can be sent again. A response's body streams, and ends with an error when it grows past its cap
//! or stalls. Trailers are dropped in both directions: they could smuggle in what the header policy removes.

mod cloud;

use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body::{Body as _, Frame};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use tokio::time::{Instant, Sleep, sleep_until};

use crate::budget::{MemoryBudget, MemoryExcess};
use crate::echo::EchoDetector;
use crate::error::{Error, Phase};
pub(crate) use cloud::CloudBody;

/// The body of a response.
pub type Body = UnsyncBoxBody<Bytes, Error>;

/// The longest body of a request: 8 MiB. The largest document that a provider writes is a load balancer of Azure: with 500
/// frontends, 1,500 rules and 5,000 members it takes 2.4 MB without what only the cloud decides, and 8.9 MB as it was read.
const MAX_REQUEST_BODY: usize = 8 << 20;
/// An SDK that writes pieces of 1 KiB needs 8,192 for the largest body; only a flood of tiny or empty pieces needs more.
const MAX_PIECES: usize = 65_536;
/// The longest body of a response: 16 MiB. A page of a thousand instances takes 3 to 8 MB, the load balancer above 9 MB.
pub(crate) const MAX_RESPONSE_BODY: u64 = 16 << 20;

/// Gathers the body of a request. Dropping the future drops what was gathered. The body counts against the budget for as
/// long as anything has it.
///
/// # Errors
/// [`Error::BodyTooLarge`] over the caps of bytes and pieces, and over the budget; [`Error::Malformed`] if the sender gave up.
pub(crate) async fn gather<B>(body: B, budget: Option<&MemoryBudget>) -> Result<Bytes, Error>
where
    B: http_body::Body<Data = Bytes>,
    B::Error: std::fmt::Display,
{
    let mut body = pin!(body);
    let mut gathered = BytesMut::new();
    let mut charge = budget.map(|budget| budget.charge(0)).transpose().map_err(over_budget)?;
    let mut charged = 0;
    let mut pieces = 0;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|cause| Error::Malformed {
            part: "body",
            found: String::new(),
            cause: format!("was left unfinished: {cause}"),
        })?;
        pieces += 1;
        if pieces > MAX_PIECES {
            return Err(Error::BodyTooLarge { limit: format!("{MAX_PIECES} pieces") });
        }
        let Ok(data) = frame.into_data() else { continue };
        if gathered.len().saturating_add(data.len()) > MAX_REQUEST_BODY {
            return Err(Error::BodyTooLarge { limit: format!("{} MiB", MAX_REQUEST_BODY >> 20) });
        }
        gathered.extend_from_slice(&data);
        let grown = gathered.capacity().saturating_sub(charged);
        charge.as_mut().map_or(Ok(()), |charge| charge.grow(grown)).map_err(over_budget)?;
        charged += grown;
    }
    let gathered = gathered.freeze();
    Ok(match charge {
        Some(charge) => charge.hold(gathered),
        None => gathered,
    })
}

/// The error for a body that the call has no memory left for.
fn over_budget(MemoryExcess { limit, .. }: MemoryExcess) -> Error {
    Error::BodyTooLarge { limit: format!("{} MiB of memory for a call", limit >> 20) }
}

/// What bounds a response's body.
pub(crate) struct BodyLimits {
    pub(crate) host: String,
    pub(crate) bytes: u64,
    pub(crate) between: Duration,
    pub(crate) hard: Instant,
    pub(crate) echo: EchoDetector,
}

/// Observes the body of a response. Dropped when the body ends, fails or is dropped, whichever comes first.
pub(crate) trait BodyObserver {
    /// So many more bytes came from the cloud.
    fn on_bytes(&mut self, count: u64);

    /// The body ends with this error.
    fn on_error(&mut self, error: &Error);
}

/// A body in memory.
pub(crate) fn whole(body: Bytes) -> Body {
    Full::new(body).map_err(|never| match never {}).boxed_unsync()
}

/// A body that still comes from the cloud.
pub(crate) fn streamed<O>(incoming: CloudBody, limits: BodyLimits, observer: O) -> Body
where
    O: BodyObserver + Send + Unpin + 'static,
{
    StreamedBody::new(incoming, limits, observer).boxed_unsync()
}

/// The body of a response that still comes from the cloud. It owns its observer and its connection, and releases both
/// when it ends, fails or is dropped, whichever comes first.
pub(crate) struct StreamedBody<O> {
    open: Option<Open<O>>,
}

struct Open<O> {
    incoming: CloudBody,
    has_ended: bool,
    limits: BodyLimits,
    /// Runs only while the gate waits for the cloud: a provider may take its time between two reads.
    timer: Pin<Box<Sleep>>,
    is_waiting: bool,
    received: u64,
    observer: O,
}

impl<O: BodyObserver> StreamedBody<O> {
    pub(crate) fn new(incoming: CloudBody, limits: BodyLimits, observer: O) -> Self {
        let timer = Box::pin(sleep_until(limits.hard));
        Self {
            open: Some(Open {
                incoming,
                has_ended: false,
                limits,
                timer,
                is_waiting: false,
                received: 0,
                observer,
            }),
        }
    }

    /// Ends the body with this error, because its reader can't take the rest.
    pub(crate) fn fail(&mut self, error: &Error) {
        if let Some(mut open) = self.open.take() {
            open.observer.on_error(error);
        }
    }
}

impl<O: BodyObserver + Unpin> http_body::Body for StreamedBody<O> {
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
            open.observer.on_error(error);
        }
        if !matches!(outcome, Some(Ok(_))) {
            this.open = None;
        }
        Poll::Ready(outcome.map(|data| data.map(Frame::data)))
    }
}

impl<O: BodyObserver> Open<O> {
    fn poll_data(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, Error>>> {
        loop {
            if let Some(piece) = self.limits.echo.next_piece() {
                return Poll::Ready(Some(Ok(piece)));
            }
            if self.has_ended {
                return Poll::Ready(None);
            }
            let Poll::Ready(frame) = Pin::new(&mut self.incoming).poll_frame(context) else {
                return self.poll_timer(context).map(|error| Some(Err(error)));
            };
            self.is_waiting = false;
            let data = match frame {
                None => None,
                Some(Err(cause)) => return Poll::Ready(Some(Err(self.broken(cause)))),
                Some(Ok(frame)) => {
                    // Trailers.
                    let Ok(data) = frame.into_data() else { continue };
                    Some(data)
                }
            };
            if let Err(error) = self.check(data.as_ref()) {
                return Poll::Ready(Some(Err(error)));
            }
            match data {
                None => self.has_ended = true,
                Some(data) if !self.limits.echo.is_on() => return Poll::Ready(Some(Ok(data))),
                Some(_) => {}
            }
        }
    }

    /// Counts the next data and searches it for the credential.
    fn check(&mut self, next: Option<&Bytes>) -> Result<(), Error> {
        let Self { limits: BodyLimits { host, bytes, echo, .. }, observer, received, .. } = self;
        let length = next.map_or(0, |data| u64::try_from(data.len()).unwrap_or(u64::MAX));
        observer.on_bytes(length);
        *received = received.saturating_add(length);
        if received > bytes {
            return Err(body_too_large(host, *bytes));
        }
        if echo.shows(next.map(AsRef::as_ref)) {
            return Err(Error::CredentialEchoed { host: host.clone() });
        }
        Ok(())
    }

    fn poll_timer(&mut self, context: &mut Context<'_>) -> Poll<Error> {
        let now = Instant::now();
        if !self.is_waiting {
            self.is_waiting = true;
            // A timeout past the hard deadline was clamped to it, so the addition can't overflow.
            self.timer.as_mut().reset((now + self.limits.between).min(self.limits.hard));
        }
        ready!(self.timer.as_mut().poll(context));
        let phase = if now >= self.limits.hard { Phase::Call } else { Phase::BetweenBytes };
        Poll::Ready(Error::Timeout { phase, host: self.limits.host.clone(), after: self.limits.between })
    }

    fn broken(&self, cause: hyper::Error) -> Error {
        Error::Protocol { host: self.limits.host.clone(), source: std::sync::Arc::new(cause) }
    }
}

/// The error for a response whose body is over its cap.
pub(crate) fn body_too_large(host: &str, cap: u64) -> Error {
    Error::ResponseTooLarge { host: host.to_owned(), part: "body", limit: format!("{} MiB", cap >> 20) }
}

#[cfg(test)]
mod tests {
    use futures::{FutureExt, stream};
    use http_body_util::StreamBody;

    use super::*;

    /// Gathers a body of so many pieces of this length. Nothing here waits, so no runtime is needed.
    fn gathered(pieces: usize, length: usize) -> Result<usize, Error> {
        let piece = Bytes::from(vec![b'x'; length]);
        let frames = (0..pieces).map(|_| Ok::<_, Error>(Frame::data(piece.clone())));
        gather(StreamBody::new(stream::iter(frames)), None).now_or_never().unwrap().map(|body| body.len())
    }

    #[test]
    fn a_request_body_is_bounded_in_bytes_and_in_pieces() {
        assert_eq!(gathered(8, 1 << 20).unwrap(), 8 << 20);
        assert_eq!(gathered(MAX_PIECES, 1).unwrap(), MAX_PIECES);
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
        let body = gather(StreamBody::new(stream::iter(frames)), None).now_or_never().unwrap();
        assert_eq!(body.unwrap(), "a");
    }

    #[test]
    fn a_body_that_its_sender_gives_up_is_malformed() {
        let frames = [Ok(Frame::data(Bytes::from("a"))), Err("gone")];
        let body = gather(StreamBody::new(stream::iter(frames)), None).now_or_never().unwrap();
        assert!(matches!(body, Err(Error::Malformed { part: "body", .. })), "{body:?}");
    }
}
