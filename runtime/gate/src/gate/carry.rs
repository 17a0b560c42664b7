//! The later stages of the chain: from the cache to the head of the answer. What is read under a view is carried in a task
//! of its own, for everybody who waits for it; anything else by whoever wants it.

use std::{pin::pin, sync::Arc};

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use hyper::body::Incoming;
use tokio::time::Instant;
use tracing::Instrument;

use super::Inner;
use crate::{
    cache::{Flight, Outcome, Read, Told, View},
    deadlines::Deadlines,
    echo::Echo,
    error::Error,
    fence::Fence,
    headers,
    limits::{HeldBack, LimitRequest, Permit, Urgency},
    recent::Source,
    record::Record,
    request::{Host, Request},
    rules::{Effect, Meaning},
    way::{Answered, Way, answered, behind, outgoing},
    writes::{self, Write, Writes},
};

/// A request of which everything is known that decides how it is carried.
pub(super) struct Asked {
    pub(super) way: Way,
    pub(super) request: Arc<Request>,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
    pub(super) meaning: Meaning,
    pub(super) urgency: Urgency,
    pub(super) deadlines: Deadlines,
}

/// Who answered a request.
pub(super) enum Answerer {
    /// The cloud.
    Cloud(Answered),
    /// The cache, or whoever asked the cloud for the same; and which of them, and how the record calls it.
    Cache(http::Response<Bytes>, Source, &'static str),
    /// Nobody, and the record knows.
    Nobody(Error),
    /// Whoever stands in for it.
    StandIn(http::Response<Bytes>),
    /// The gate, since a limit doesn't let the request through in time.
    Limits(HeldBack),
}

impl From<Told> for Answerer {
    fn from(told: Told) -> Self {
        match told {
            Told::Response(response, source, result) => Self::Cache(response, source, result),
            Told::HeldBack(held_back) => Self::Limits(held_back),
        }
    }
}

impl Inner {
    /// The chain from the cache on: what this view may be told is told, and for anything else follows the rest.
    pub(super) async fn read(
        self: Arc<Self>,
        view: &View,
        asked: Box<Asked>,
        record: &mut Record,
    ) -> Result<Answerer, Error> {
        let Asked { request, headers, body, meaning, urgency, deadlines, .. } = &*asked;
        let Some(read) = Read::new(request, headers, body, meaning, (*urgency, view)) else {
            return self.carry(asked, record, || {}).await;
        };
        let deadlines = *deadlines;
        let carry = |flight| {
            let flying = self.clone().fly(asked, record.hand_over(), flight);
            tokio::spawn(flying).abort_handle()
        };
        match self.cache.read(&read, view, &deadlines, &self.under_way, carry).await {
            Ok(told) => Ok(told.into()),
            Err(error) if record.is_handed_over() => Ok(Answerer::Nobody(error)),
            Err(error) => Err(error),
        }
    }

    /// Carries a request for everybody who waits for its answer.
    async fn fly(self: Arc<Self>, mut asked: Box<Asked>, mut record: Record, mut flight: Flight) {
        if let Some((name, value)) = flight.validator() {
            asked.headers.insert(name, value);
        }
        match self.carry(asked, &mut record, || flight.leaves()).await {
            // Boxed for the same reason as the exchange.
            Ok(Answerer::Cloud(answered)) => {
                Box::pin(flight.answered(answered, record, &self.under_way)).await;
            }
            Ok(Answerer::Limits(held_back)) => {
                record.held_back(StatusCode::TOO_MANY_REQUESTS);
                flight.failed(Outcome::HeldBack(held_back));
            }
            Ok(Answerer::Cache(..) | Answerer::StandIn(_) | Answerer::Nobody(_)) => {}
            Err(error) => {
                record.failed(&error);
                flight.failed(Outcome::Failed(error));
            }
        }
    }

    /// The rest of the chain: limits, credential, then the dial. It says when the request leaves.
    pub(super) async fn carry(
        &self,
        asked: Box<Asked>,
        record: &mut Record,
        leaves: impl FnOnce() + Send,
    ) -> Result<Answerer, Error> {
        record.waits();
        let turn = {
            // Pinned here, or each future around it would hold a place for it.
            let turn = pin!(self.turn(&asked));
            self.under_way.read(turn).await?
        };
        record.waited();
        match turn {
            Ok(permit) => {
                leaves();
                // Boxed, since this is the largest part of what a request that waits above would hold.
                Box::pin(self.exchange(asked, permit, record)).await.map(Answerer::Cloud)
            }
            Err(held_back) => Ok(Answerer::Limits(held_back)),
        }
    }

    async fn exchange(
        &self,
        asked: Box<Asked>,
        permit: Permit,
        record: &mut Record,
    ) -> Result<Answered, Error> {
        let Self { credentials, under_way, writes, .. } = self;
        let write = asked.as_write(writes);
        let Asked { way, request, headers, body, meaning, deadlines, .. } = *asked;
        let outgoing = outgoing(&request, headers, body)?;
        let (outgoing, attached) =
            under_way.read(credentials.attach(&request, outgoing, deadlines.soft)).await?;
        let way = Carried { way, write, deadlines, meaning: &meaning, host: &request.host };
        let again = attached.zip(permit.for_resend());
        let mut echo = Echo::of(outgoing.headers());
        let mut answer = self.send(&way, outgoing, permit, record).await?;
        if let Some((attached, again)) = again {
            let newer = attached.again(answer.status(), deadlines.soft);
            let newer = under_way.read(async { Ok(newer.await) }).await?;
            // What was left unfinished at its resource meanwhile mustn't be overtaken.
            let newer = newer.filter(|_| write.is_none_or(|write| writes.is_free(write)));
            if let Some((outgoing, permit)) = newer.and_then(|newer| Some((newer, again.take()?))) {
                // Its connection is let go before another is asked for.
                drop(answer);
                echo = Echo::of(outgoing.headers());
                answer = self.send(&way, outgoing, permit, record).await?;
            }
        }
        answered(&request.host, answer, echo, deadlines, record)
    }

    async fn send(
        &self,
        carried: &Carried<'_>,
        outgoing: http::Request<Bytes>,
        permit: Permit,
        record: &mut Record,
    ) -> Result<http::Response<Incoming>, Error> {
        let Carried { way, write, deadlines, meaning, host } = carried;
        record.sent = record.sent.saturating_add(u64::try_from(outgoing.body().len()).unwrap_or(u64::MAX));
        let exchange = |fence, deadlines| {
            // Ends when the exchange does, whoever waits for it.
            let change = self.cache.change(meaning);
            let exchange = way.exchange(host, behind(fence, outgoing), deadlines, permit);
            async move {
                let _ends = change;
                exchange.await
            }
        };
        let span = record.span();
        match write {
            Some(write) => {
                let theirs = deadlines.of_write(writes::LONGEST, Instant::now());
                let carry = self.writes.carry(*write, record, *deadlines, |fence| exchange(fence, theirs));
                carry.instrument(span).await
            }
            None => self.under_way.read(exchange(Fence::default(), *deadlines)).instrument(span).await,
        }
    }

    /// Waits for the turn of a request: a write first for what was left unfinished at its resource, and once more if
    /// that came while it waited for the limits.
    async fn turn(&self, asked: &Asked) -> Result<Result<Permit, HeldBack>, Error> {
        let Self { limiter, writes, .. } = self;
        let (write, soft) = (asked.as_write(writes), asked.deadlines.soft);
        loop {
            if let Some(write) = write
                && let Err(after) = writes.turn(write, soft).await
            {
                return Ok(Err(limiter.unfinished(after)));
            }
            let turn = limiter.acquire(asked.turn(), soft).await?;
            if turn.is_err() || write.is_none_or(|write| writes.is_free(write)) {
                return Ok(turn);
            }
        }
    }
}

/// How a request is carried, each time that it is.
struct Carried<'a> {
    way: Way,
    write: Option<Write>,
    deadlines: Deadlines,
    meaning: &'a Meaning,
    host: &'a Host,
}

impl Asked {
    /// What it is to the limits.
    fn turn(&self) -> LimitRequest<'_> {
        let Self { request, meaning, urgency, .. } = self;
        LimitRequest { request, meaning, urgency: *urgency, bytes: self.bytes() }
    }

    /// What it is to other writes, if it is one.
    fn as_write(&self, writes: &Writes) -> Option<Write> {
        let Self { request, meaning, body, .. } = self;
        let is_write = meaning.effect == Effect::Write;
        is_write.then(|| writes.write(request, meaning, body, self.bytes()))
    }

    /// What it holds in memory.
    fn bytes(&self) -> usize {
        let Request { path, query, .. } = &*self.request;
        self.body.len() + headers::size(&self.headers) + path.len() + query.as_ref().map_or(0, String::len)
    }
}
