//! The path of one request, read from top to bottom: [`Gate::send`], then one function for each stage in the order in
//! which a request passes them. The table in the documentation of the crate names the file of each stage.
//!
//! Ten thousand requests may wait for a limit, so what one holds is kept small: futures of other stages are boxed.

use std::pin::pin;
use std::sync::Arc;

use bytes::Bytes;
use tokio::time::{Instant, sleep};
use tracing::Instrument;

use super::prepare::PreparedRequest;
use super::{Gate, GateFamily, Inner};
use crate::body::Body;
use crate::cache::{self, Fetch, Read, View};
use crate::credentials::Attached;
use crate::deadlines::Deadlines;
use crate::echo::{EchoDetector, NeedleSet};
use crate::effect::Effect;
use crate::error::{Error, Phase};
use crate::interceptor::{Interception, Interceptor};
use crate::limits::{HeldBack, Permit};
use crate::recent::Source;
use crate::record::{Duty, Record};
use crate::replies::PendingReply;
use crate::response::Response;
use crate::upstream::{CloudResponse, RefusalReader, behind, outgoing};
use crate::writes::{self, Write};

impl Gate {
    /// Carries a request and returns the cloud's response, redirects and failures included.
    ///
    /// Guarantees:
    /// - Nothing is sent that no grant allows, and nothing to an address that its grant doesn't open.
    /// - A call that [may only read](Gate::read_only) sends no write.
    /// - Nothing is sent after the soft deadline or over a limit. While the fence is closed, only GET, HEAD and OPTIONS are sent,
    ///   and none that a rule calls a write.
    /// - A request that a limit doesn't let through in time is answered 429 here, with a header `Pileus-Gate` that no
    ///   response of a cloud has.
    /// - Dropping the future or the body closes what was opened for the request. Only a write whose sending has begun is
    ///   finished, for up to a minute; later writes to the same resource wait for it. A read for the cache whose caller had no
    ///   more time goes on for up to two minutes, and the next call joins it.
    /// - Each request is counted once.
    ///
    /// Needs a tokio runtime with time and I/O.
    ///
    /// # Errors
    /// Every variant of [`Error`] that isn't about the configuration.
    pub fn send<B>(
        &self,
        request: http::Request<B>,
        deadlines: Deadlines,
    ) -> impl Future<Output = Result<http::Response<Body>, Error>> + use<'_, B>
    where
        B: http_body::Body<Data = Bytes>,
        B::Error: std::fmt::Display,
    {
        // Boxed, so that a request that waits doesn't hold room for what it was made from.
        let request = Box::new(request);
        async move {
            let mut record = self.inner.family.records.begin(self.urgency);
            let mut reply = PendingReply::begin(self.replies.as_ref());
            match self.pass(request, &deadlines, &mut record, &mut reply).await {
                Ok(response) => {
                    let (from, meaning) = (response.from, response.meaning);
                    let response =
                        response.charged(self.budget.as_ref()).inspect_err(|error| record.fail(error))?;
                    Ok(reply.respond((from, meaning), response.deliver(record)))
                }
                Err(error) => {
                    record.fail(&error);
                    Err(error)
                }
            }
        }
    }

    /// All stages, in order.
    async fn pass<B>(
        &self,
        request: Box<http::Request<B>>,
        deadlines: &Deadlines,
        record: &mut Record,
        reply: &mut PendingReply,
    ) -> Result<Response, Error>
    where
        B: http_body::Body<Data = Bytes>,
        B::Error: std::fmt::Display,
    {
        // Boxed, so that a request that waits doesn't hold room for its preparation.
        let mut request = Box::pin(self.prepare(request, deadlines, record)).await?;
        self.apply_other_rules(&mut request, record);
        let PreparedRequest { canonical, headers, body, classification, .. } = &*request;
        reply.set_request(canonical, headers, body, classification, &self.inner.rules);
        // Before the interceptor, which must not see what the cloud wouldn't.
        if self.can_only_miss(&request) {
            return Ok(cache::not_cached());
        }
        if let Some(interceptor) = &self.interceptor
            && let Some(response) = Box::pin(intercept(&**interceptor, &request)).await?
        {
            return Ok(response);
        }
        self.check_reader(&request)?;
        match &self.view {
            // Boxed, or a request without a view would hold room for it.
            Some(view) => Box::pin(self.read(view, request, record)).await,
            None => self.inner.carry(request, record, || {}).await,
        }
    }

    /// Cache: answers a read under this view from the cache, or joins or starts an exchange that others may join. Any other
    /// request passes by.
    async fn read(
        &self,
        view: &View,
        mut request: Box<PreparedRequest>,
        record: &mut Record,
    ) -> Result<Response, Error> {
        let inner = &self.inner;
        let PreparedRequest { canonical, headers, body, classification, urgency, deadlines, .. } = &*request;
        let Some(read) = Read::new(canonical, headers, body, classification, (*urgency, view)) else {
            return inner.carry(request, record, || {}).await;
        };
        let deadlines = *deadlines;
        let carry = |fetch| {
            request.deadlines = deadlines.of_shared_read();
            let carried = Arc::clone(inner).carry_shared(request, record.hand_over(Duty::None), fetch);
            match self.account.clone() {
                Some(account) => tokio::spawn(account.measure(carried)),
                None => tokio::spawn(carried),
            }
            .abort_handle()
        };
        inner.cache.read(&read, view, &deadlines, &inner.family.shutdown, carry).await
    }

    /// Whether a request wants a cached response only, and can't have one: it isn't a read, or no view admits it to the cache.
    fn can_only_miss(&self, request: &PreparedRequest) -> bool {
        cache::is_for_it_alone(&request.headers)
            && (request.classification.effect != Effect::Read
                || !self.view.as_ref().is_some_and(|view| cache::may_read(view, &request.headers)))
    }
}

/// Asks the interceptor. `None` sends the request to the cloud.
async fn intercept(
    interceptor: &dyn Interceptor,
    request: &PreparedRequest,
) -> Result<Option<Response>, Error> {
    let PreparedRequest { canonical, body, classification, deadlines, .. } = request;
    match interceptor.intercept(canonical, body, classification) {
        Interception::Forward => Ok(None),
        Interception::Respond(response) => Ok(Some(Response::whole(Source::Interceptor, response))),
        Interception::Fail(error) => Err(error),
        Interception::NoResponse => {
            let after = deadlines.clamp(deadlines.first_byte, Instant::now());
            sleep(after).await;
            Err(Error::Timeout { phase: Phase::FirstByte, host: canonical.host.to_string(), after })
        }
    }
}

impl Inner {
    /// Carries a read for all callers who wait for its response, in a task of its own.
    async fn carry_shared(
        self: Arc<Self>,
        mut request: Box<PreparedRequest>,
        mut record: Record,
        mut fetch: Fetch,
    ) {
        if let Some((name, value)) = fetch.validator() {
            request.headers.insert(name, value);
        }
        match self.carry(request, &mut record, || fetch.on_sent()).await {
            // Boxed for the same reason as the exchange.
            Ok(response) => Box::pin(fetch.on_response(response, record, &self.family.shutdown)).await,
            Err(error) => {
                record.fail(&error);
                fetch.on_failure(error);
            }
        }
    }

    /// Limit: waits until the limits let the request through, then carries it. Calls `leaves` when it does.
    async fn carry(
        &self,
        request: Box<PreparedRequest>,
        record: &mut Record,
        leaves: impl FnOnce() + Send,
    ) -> Result<Response, Error> {
        record.start_waiting();
        let turn = {
            // Pinned here, or each future around it would hold room for it.
            let turn = pin!(self.wait(&request));
            self.family.shutdown.abort_on_close(turn).await?
        };
        record.stop_waiting();
        match turn {
            Ok(permit) => {
                leaves();
                // Boxed, since this is the largest part of what a request that waits above would hold.
                Box::pin(self.exchange(request, permit, record)).await
            }
            Err(held_back) => Ok(Response::whole(Source::Limit, held_back.into_response())),
        }
    }

    /// Waits for the limits. A write first waits for unfinished writes to its resource whose callers have gone, and again
    /// if there is one when the limits let it through.
    async fn wait(&self, request: &PreparedRequest) -> Result<Result<Permit, HeldBack>, Error> {
        let (writes, limiter) = (&self.family.writes, &request.limits.limiter);
        let (write, soft) = (request.as_write(writes), request.deadlines.soft);
        loop {
            if let Some(write) = write
                && let Err(after) = writes.turn(write, soft).await
            {
                return Ok(Err(limiter.unfinished(after)));
            }
            let turn = limiter.acquire(request.as_limit_request(), soft).await?;
            if turn.is_err() || write.is_none_or(|write| writes.is_free(write)) {
                return Ok(turn);
            }
        }
    }

    /// Credential: attaches the credential, if the request is still allowed, and dials. If the cloud answers 401 and a newer credential can be had, sends
    /// the request once more.
    async fn exchange(
        &self,
        mut request: Box<PreparedRequest>,
        permit: Permit,
        record: &mut Record,
    ) -> Result<Response, Error> {
        let Self { credentials, family: GateFamily { shutdown, writes, .. }, .. } = self;
        let write = request.as_write(writes);
        let (headers, body) = (std::mem::take(&mut request.headers), std::mem::take(&mut request.body));
        let PreparedRequest { canonical, upstream, deadlines, .. } = &*request;
        self.check_present(canonical, upstream.as_ref())?;
        let outgoing = outgoing(canonical, headers, body)?;
        let (outgoing, attached) =
            shutdown.abort_on_close(credentials.attach(canonical, outgoing, deadlines.soft)).await?;
        let mut needles = attached.as_ref().map(Attached::needles);
        let again = attached.zip(permit.for_resend());
        let mut response = self.dial(&request, write, outgoing, permit, (record, needles.clone())).await?;
        if let Some((attached, again)) = again {
            let newer = attached.again(response.head.status, deadlines.soft);
            let newer = shutdown.abort_on_close(async { Ok(newer.await) }).await?;
            // Must not overtake a write to its resource that was left unfinished meanwhile.
            let newer = newer.filter(|_| write.is_none_or(|write| writes.is_free(write)));
            if let Some(((outgoing, newer), permit)) = newer.and_then(|newer| Some((newer, again.take()?))) {
                // Releases its connection before another is asked for.
                drop(response);
                needles = Some(newer);
                response = self.dial(&request, write, outgoing, permit, (record, needles.clone())).await?;
            }
        }
        let echo = EchoDetector::new(needles);
        Response::from_cloud(&canonical.host, response, echo, *deadlines, record)
    }

    /// Dial: sends the request and waits for the head of the response. A write goes by `writes`, which finishes it even if
    /// its caller goes or the gate is closed; a read ends with either. A read by POST stays behind the fence.
    async fn dial(
        &self,
        request: &PreparedRequest,
        write: Option<Write>,
        outgoing: http::Request<Bytes>,
        permit: Permit,
        (record, needles): (&mut Record, Option<NeedleSet>),
    ) -> Result<CloudResponse, Error> {
        let PreparedRequest { upstream, canonical, classification, deadlines, account, .. } = request;
        record.sent = record.sent.saturating_add(u64::try_from(outgoing.body().len()).unwrap_or(u64::MAX));
        // A write has a task of its own, which its caller doesn't measure.
        let account = account.clone().filter(|_| write.is_some());
        let reader = RefusalReader { refusals: Arc::clone(&self.refusals), needles, account };
        let exchange = |fence, deadlines| {
            // Ends when the exchange does, regardless of who waits for it.
            let change = self.cache.change(classification);
            let outgoing = behind(fence, outgoing);
            let exchange = upstream.exchange(&canonical.host, outgoing, deadlines, permit, reader);
            async move {
                let _ends = change;
                exchange.await
            }
        };
        let span = record.span();
        if let Some(write) = write {
            let of_write = deadlines.of_write(writes::MAX_WRITE_TIME, Instant::now());
            let carry =
                self.family.writes.carry(write, record, *deadlines, |fence| exchange(fence, of_write));
            carry.instrument(span).await
        } else {
            let fence = self.family.writes.fence_of_read(canonical)?;
            self.family.shutdown.abort_on_close(exchange(fence, *deadlines)).instrument(span).await
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use http::StatusCode;
    use http_body_util::{BodyExt, Full};

    use super::*;
    use crate::gate::Config;
    use crate::grants::Grant;
    use crate::metrics::Metrics;
    use crate::request::Request;
    use crate::rules::Classification;

    #[derive(Debug)]
    struct Everything(fn() -> Interception);

    impl Interceptor for Everything {
        fn intercept(&self, request: &Request, _: &[u8], classification: &Classification) -> Interception {
            let found = (request.url(), classification.effect);
            assert_eq!(found, ("http://cloud.invalid/a".to_owned(), Effect::Write));
            (self.0)()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_interceptor_answers_instead_of_the_cloud_and_sees_only_what_is_granted() {
        let grant = Grant {
            tls: false,
            host: "cloud.invalid".parse().unwrap(),
            port: 80,
            methods: vec!["*".parse().unwrap()],
            paths: vec!["/a".parse().unwrap()],
            addresses: Vec::new(),
        };
        let config = || Config { grants: vec![grant.clone()], ..Config::new("test") };
        let metrics = Metrics::register(&mut prometheus_client::registry::Registry::default());
        let send_with = async |control, interception, path: &str| {
            let interceptor = Arc::new(Everything(interception));
            let gate = Gate::new(config(), &metrics).unwrap().with_interceptor(interceptor);
            let request = http::Request::get(format!("http://cloud.invalid{path}"));
            let request = request.header("cache-control", control);
            let (soft, hard) = (Duration::from_secs(1), Duration::from_secs(9));
            let deadlines = Deadlines {
                soft: Instant::now() + soft,
                hard: Instant::now() + hard,
                connect: None,
                first_byte: None,
                between_bytes: None,
            };
            gate.send(request.body(Full::new(Bytes::new())).unwrap(), deadlines).await
        };
        let send = async |interception, path: &str| send_with("", interception, path).await;
        let for_the_cache = send_with("only-if-cached", || Interception::NoResponse, "/a").await.unwrap();
        assert_eq!(for_the_cache.status(), StatusCode::GATEWAY_TIMEOUT, "there is no view of the cache");
        let hello = || Interception::Respond(http::Response::new(Bytes::from("hello")));
        let response = send(hello, "/a").await.unwrap();
        assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "hello");
        let failed = send(|| Interception::Fail(Error::DeadlinePassed), "/a").await;
        assert!(matches!(failed, Err(Error::DeadlinePassed)), "{failed:?}");
        let silent = send(|| Interception::NoResponse, "/a").await;
        assert!(matches!(silent, Err(Error::Timeout { after, .. }) if after == Duration::from_secs(9)));
        let denied = send(|| Interception::Forward, "/b").await;
        assert!(matches!(denied, Err(Error::Denied { .. })), "{denied:?}");
    }
}
