//! An exchange with the cloud that several may wait for. It goes on as long as anybody does, whoever asked first, and ends
//! at the deadlines of whoever asked first.

use std::pin::pin;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderName, HeaderValue, StatusCode};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout_at};

use crate::body::{BodyLimits, StreamedBody};
use crate::cache::Shared;
use crate::cache::decide::Landing;
use crate::cache::gathered::{Held, MOST};
use crate::cache::seen::FlightId;
use crate::cache::slot::Landed;
use crate::cache::stored::{Reply, Stored};
use crate::deadlines::Deadlines;
use crate::error::{Error, Phase};
use crate::recent::Source;
use crate::record::Record;
use crate::request::Host;
use crate::response::{Response, ResponseBody};
use crate::shutdown::Shutdown;

/// What came of an exchange, for everybody who waited for it.
#[derive(Debug, Clone)]
pub(crate) enum Outcome {
    /// A response, and where it came from.
    Response(Source, Arc<Reply>),
    /// It failed.
    Failed(Error),
}

#[derive(Debug, Clone)]
enum Progress {
    Waits,
    Left,
    Ended(Outcome, Landing),
}

/// The exchange, for whoever carries it.
#[derive(Debug)]
pub(crate) struct Flight {
    shared: Arc<Shared>,
    id: FlightId,
    /// Whether somebody may wait for the sweep to end that it is a part of.
    is_page: bool,
    /// The answer of which the cloud may say that it is still right.
    former: Option<Arc<Stored>>,
    keeps: bool,
    is_over: bool,
    progress: watch::Sender<Progress>,
}

/// The exchange, for whoever waits for it. When the last one of them is gone, it is given up.
#[derive(Debug)]
pub(crate) struct Seat {
    progress: watch::Receiver<Progress>,
    deadlines: Deadlines,
    pub(crate) carried: Arc<Carried>,
}

/// A seat, without keeping the exchange alive.
#[derive(Debug)]
pub(crate) struct FreeSeat {
    progress: watch::Receiver<Progress>,
    deadlines: Deadlines,
    carried: Weak<Carried>,
}

impl FreeSeat {
    /// Takes the seat, unless everybody has left.
    pub(crate) fn take(&self) -> Option<Seat> {
        let Self { progress, deadlines, carried } = self;
        let (progress, deadlines) = (progress.clone(), *deadlines);
        Some(Seat { progress, deadlines, carried: carried.upgrade()? })
    }
}

/// Who carries an exchange.
#[derive(Debug, Default)]
pub(crate) struct Carried(OnceLock<AbortHandle>);

impl Carried {
    pub(crate) fn by(&self, task: AbortHandle) {
        self.0.get_or_init(|| task);
    }
}

impl Drop for Carried {
    fn drop(&mut self) {
        if let Some(task) = self.0.get() {
            task.abort();
        }
    }
}

impl Flight {
    pub(super) fn new(
        shared: Arc<Shared>,
        (id, is_page): (FlightId, bool),
        former: Option<Arc<Stored>>,
        deadlines: Deadlines,
    ) -> (Self, Seat) {
        let (sender, progress) = watch::channel(Progress::Waits);
        let flight = Self { shared, id, is_page, former, keeps: false, is_over: false, progress: sender };
        (flight, Seat { progress, deadlines, carried: Arc::default() })
    }

    /// The header that asks whether the answer before is still right.
    pub(crate) fn validator(&self) -> Option<(HeaderName, HeaderValue)> {
        self.former.as_ref()?.validator().cloned()
    }

    /// It leaves now.
    pub(crate) fn leaves(&mut self) {
        self.keeps = self.shared.change(|state, now| state.sent(now, self.id));
        self.progress.send_replace(Progress::Left);
    }

    /// Takes the response in and gives it to all waiting callers.
    pub(crate) async fn respond(mut self, response: Response, mut record: Record, shutdown: &Shutdown) {
        record.respond(response.from, response.status());
        let Response { from, head, body } = response;
        let (incoming, limits) = match body {
            ResponseBody::Stream(incoming, limits) => (incoming, limits),
            // A limit held it back.
            ResponseBody::Whole(body) => {
                let reply = Reply { status: head.status, headers: head.headers, body };
                return self.ends(Outcome::Response(from, Arc::new(reply)), Landed::Failure);
            }
        };
        let confirmed = self.former.clone().filter(|_| head.status == StatusCode::NOT_MODIFIED);
        if confirmed.is_some() {
            record.revalidate();
        }
        let (outcome, landed) = match self.gather(incoming, limits, record, shutdown).await {
            Err(error) => (Outcome::Failed(error), Landed::Failure),
            Ok(body) => match confirmed {
                Some(former) => {
                    self.shared.lock().state.counts.revalidated += 1;
                    let reply = former.unpack().aged(Duration::ZERO);
                    (Outcome::Response(Source::Shared, Arc::new(reply)), Landed::Good(former))
                }
                None => self.taken(Reply { status: head.status, headers: head.headers, body }),
            },
        };
        self.ends(outcome, landed);
    }

    fn taken(&self, reply: Reply) -> (Outcome, Landed) {
        let kept = if self.keeps { Stored::pack(&reply) } else { None };
        let landed = match kept {
            Some(stored) => Landed::Good(Arc::new(stored)),
            None if reply.status.as_u16() < 400 => Landed::Passing,
            None => Landed::Failure,
        };
        (Outcome::Response(Source::Shared, Arc::new(reply)), landed)
    }

    /// The exchange failed.
    pub(crate) fn fail(mut self, error: Error) {
        self.ends(Outcome::Failed(error), Landed::Failure);
    }

    fn ends(&mut self, outcome: Outcome, landed: Landed) {
        self.is_over = true;
        let landing = self.shared.ended(self.id, landed, self.is_page);
        self.progress.send_replace(Progress::Ended(outcome, landing));
    }

    /// The whole body, which counts against what all of them may take until nobody has it any more. Those who wait for it
    /// have no answer yet, so it is given up with the gate.
    async fn gather(
        &self,
        incoming: Incoming,
        limits: BodyLimits,
        record: Record,
        shutdown: &Shutdown,
    ) -> Result<Bytes, Error> {
        let host = limits.host.clone();
        let mut body = StreamedBody::new(incoming, limits, record);
        let mut held = Held::new(self.shared.gathered.clone());
        let mut closed = pin!(shutdown.closed());
        loop {
            let frame = tokio::select! {
                biased;
                () = &mut closed => {
                    body.fail(&Error::Closed);
                    return Err(Error::Closed);
                }
                frame = body.frame() => frame,
            };
            let Some(frame) = frame else { break };
            let Ok(data) = frame?.into_data() else { continue };
            if !held.take(&data) {
                let limit = format!("{} MiB", MOST >> 20);
                let part = "body, with all others that are being read,";
                let error = Error::ResponseTooLarge { host, part, limit };
                body.fail(&error);
                return Err(error);
            }
        }
        Ok(held.into_bytes())
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        if !self.is_over {
            self.shared.ended(self.id, Landed::Failure, self.is_page);
        }
    }
}

impl Seat {
    /// The same seat for whoever comes next.
    pub(crate) fn free(&self) -> FreeSeat {
        let Self { progress, deadlines, carried } = self;
        FreeSeat { progress: progress.clone(), deadlines: *deadlines, carried: Arc::downgrade(carried) }
    }

    /// Waits for the end of one's own exchange.
    pub(crate) async fn own_end(mut self) -> Result<(Outcome, Landing), Error> {
        ended(&mut self.progress).await
    }

    /// Waits for the end of another's exchange, at most until these deadlines. `None` if it ended only because the time of
    /// whoever began it was over, and this one has more.
    pub(crate) async fn end(
        mut self,
        own: &Deadlines,
        host: &Host,
    ) -> Result<Option<(Outcome, Landing)>, Error> {
        // At its own deadlines it ends by itself.
        if own.soft < self.deadlines.soft {
            let left = self.progress.wait_for(|progress| !matches!(progress, Progress::Waits));
            timeout_at(own.soft, left)
                .await
                .map_err(|_| Error::DeadlinePassed)?
                .map_err(|_| Error::Closed)?;
        }
        let end = ended(&mut self.progress);
        let (outcome, landing) = if own.hard < self.deadlines.hard {
            let begun = Instant::now();
            timeout_at(own.hard, end).await.map_err(|_| Error::Timeout {
                phase: Phase::Call,
                host: host.to_string(),
                after: begun.elapsed(),
            })??
        } else {
            end.await?
        };
        Ok((!self.is_early(&outcome, own)).then_some((outcome, landing)))
    }

    fn is_early(&self, outcome: &Outcome, own: &Deadlines) -> bool {
        let longer =
            |own: Option<_>, other: Option<_>| other.is_some_and(|other| own.is_none_or(|own| own > other));
        let Deadlines { soft, hard, connect, first_byte, between_bytes } = self.deadlines;
        match outcome {
            Outcome::Response(Source::Limit, _) | Outcome::Failed(Error::DeadlinePassed) => own.soft > soft,
            Outcome::Failed(Error::Timeout { phase, .. }) => {
                let has_wish = match phase {
                    Phase::Connect => longer(own.connect, connect),
                    Phase::FirstByte => longer(own.first_byte, first_byte),
                    Phase::BetweenBytes => longer(own.between_bytes, between_bytes),
                    Phase::Call => false,
                };
                has_wish || own.hard > hard
            }
            _ => false,
        }
    }
}

async fn ended(progress: &mut watch::Receiver<Progress>) -> Result<(Outcome, Landing), Error> {
    // Only the end of the runtime ends the task of an exchange that is waited for.
    let ended = progress.wait_for(|progress| matches!(progress, Progress::Ended(..))).await;
    match &*ended.map_err(|_| Error::Closed)? {
        Progress::Ended(outcome, landing) => Ok((outcome.clone(), *landing)),
        Progress::Waits | Progress::Left => Err(Error::Closed),
    }
}
