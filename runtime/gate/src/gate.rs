//! The gate itself: the stages that a request passes, in order, from [`Gate::send`] and its `pass` to what `carry` does
//! after the cache. Each stage is a decision of its own module; here are only their order and the time that they may take.

mod carry;
mod config;

use std::sync::Arc;

use bytes::Bytes;
use http::HeaderMap;
use http_body_util::{BodyExt, Full};
use tokio::time::{Instant, sleep, timeout_at};

use crate::{
    body::{self, Answer, Body},
    cache::{self, Cache, CacheState, Told, View},
    connection::Connection,
    credentials::{Credential, CredentialState, Credentials, Replaced},
    deadlines::Deadlines,
    error::{Error, Missing, Phase},
    grants::decide,
    headers,
    limits::{Limiter, LimitsState, Urgency},
    network::{self, Network, Resolve},
    recent::{Seen, Source},
    record::{Metrics, Record, Records},
    rehearsal::Rehearsal,
    request::{Host, Request},
    rules::{Effect, Rules},
    stand_in::{Course, StandIn},
    trust,
    under_way::UnderWay,
    way::{Answered, Way},
    writes::Writes,
};
use carry::{Answerer, Asked};
pub use config::Config;

/// The way of one provider to its cloud. Cheap to clone; clones share connections and limits.
#[derive(Debug, Clone)]
pub struct Gate {
    inner: Arc<Inner>,
    urgency: Urgency,
    view: Option<View>,
    stand_in: Option<Arc<dyn StandIn>>,
}

#[derive(Debug)]
struct Inner {
    provider: Arc<str>,
    rules: Rules,
    cache: Cache,
    limiter: Limiter,
    credentials: Credentials,
    ways: Vec<Way>,
    under_way: UnderWay,
    writes: Writes,
    records: Arc<Records>,
}

/// What a request comes to before anybody is asked.
enum Examined {
    Asks(Box<Asked>),
    /// It is answered: by whoever stands in for the cloud, or since nobody is to be asked.
    Answered(Box<Answerer>),
}

impl Gate {
    /// Makes the gate of a provider. It has connections of its own, shared with no other gate. With credentials it needs a
    /// tokio runtime, since it begins to acquire them at once.
    ///
    /// Errors: [`Error::Config`] with all that is wrong with the config, [`Error::Roots`] and [`Error::ExtraRoots`] without
    /// trust roots.
    pub fn new(config: Config, metrics: &Metrics) -> Result<Self, Error> {
        Self::with_resolver(config, metrics, Arc::new(network::System))
    }

    /// Makes the gate of a provider that resolves names in its own way.
    pub fn with_resolver(
        config: Config,
        metrics: &Metrics,
        resolver: Arc<dyn Resolve>,
    ) -> Result<Self, Error> {
        config.check()?;
        let Config {
            provider,
            grants,
            rules,
            limits,
            tightened,
            credentials,
            denied_ranges,
            fence,
            connection,
        } = config;
        let Connection { extra_roots, proxy } = connection;
        let speaks_tls =
            grants.iter().any(|grant| grant.tls) || credentials.iter().any(Credential::speaks_tls);
        let tls = trust::tls(speaks_tls, extra_roots.as_deref())?;
        let (provider, connections): (Arc<str>, _) = (provider.into(), metrics.connections().clone());
        let network =
            Network { denied: denied_ranges, resolver, tls, proxy, provider: provider.clone(), connections };
        let network = Arc::new(network);
        let ways = grants.into_iter().map(|grant| Way::new(grant, network.clone())).collect();
        let (rules, under_way) = (Rules::new(rules)?, UnderWay::default());
        let writes = Writes::new(fence, under_way.clone());
        let cache = Cache::new(provider.clone(), metrics.clone());
        let limiter = Limiter::new(provider.clone(), &rules, limits, tightened, metrics.clone());
        // What is cached was for whom the old value was.
        let replaced: Replaced = Arc::new({
            let cache = cache.clone();
            move || cache.forget()
        });
        let counters = metrics.credentials();
        let credentials = Credentials::new(credentials, &provider, &network, counters, &replaced);
        let records = Arc::new(Records::new(provider.clone(), metrics.clone()));
        let inner = Inner { provider, rules, cache, limiter, credentials, ways, under_way, writes, records };
        Ok(Self { inner: Arc::new(inner), stand_in: None, view: None, urgency: Urgency::default() })
    }

    /// Takes no request any more, and gives up the reads that wait for an answer and the writes that haven't begun. Writes
    /// that have begun go on.
    pub fn close(&self) {
        self.inner.under_way.close();
    }

    /// How many writes may have begun and are unanswered.
    pub fn writes_under_way(&self) -> usize {
        self.inner.writes.count()
    }

    /// Waits until no write is under way.
    pub async fn writes_ended(&self) {
        self.inner.writes.ended().await;
    }

    /// The same gate, with somebody who sees each request before it is sent and may answer it in the cloud's place.
    #[must_use]
    pub fn with_stand_in(self, stand_in: Arc<dyn StandIn>) -> Self {
        Self { stand_in: Some(stand_in), ..self }
    }

    /// The same gate for a rehearsal: what may change something is answered here, 503 with a header `Pileus-Gate: rehearsal`,
    /// and written down. Reads and polls of operations are carried as ever, as far as the rules tell them and their method
    /// allows it, and nothing is allowed that wasn't.
    #[must_use]
    pub fn rehearsing(self) -> (Self, Rehearsal) {
        let rehearsal = Rehearsal::default();
        (self.with_stand_in(Arc::new(rehearsal.clone())), rehearsal)
    }

    /// The same gate for a call of this urgency. Without it a call is of the least.
    #[must_use]
    pub fn with_urgency(self, urgency: Urgency) -> Self {
        Self { urgency, ..self }
    }

    /// The same gate for a call that may be answered from the cache within the bounds of this view. Without it a gate
    /// reads nothing from its cache and puts nothing into it; what a change drops from it is dropped in any case.
    #[must_use]
    pub fn with_view(self, view: View) -> Self {
        Self { view: Some(view), ..self }
    }

    /// What the cache is like now.
    pub fn cache(&self) -> CacheState {
        self.inner.cache.state()
    }

    /// Empties all limits, so that they fill from now on as they do in a new gate: for a leader whose predecessor may
    /// have spent just now what they hold.
    pub fn empty_limits(&self) {
        self.inner.limiter.empty();
    }

    /// Goes on with what the limits of another gate of the same provider have learned, with what the cloud has closed for
    /// it and with what its buckets hold: for a new version of a provider, at the moment when it takes over. The other
    /// one's limits are empty then, so both together send no more than one.
    pub fn take_over(&self, predecessor: &Self) {
        self.inner.limiter.take_over(&predecessor.inner.limiter);
    }

    /// What the limits are like now.
    pub fn limits(&self) -> LimitsState {
        self.inner.limiter.state()
    }

    /// The operator's name for the provider.
    pub fn provider(&self) -> &str {
        &self.inner.provider
    }

    /// The last requests, from the one that ended last. They hold no secret.
    pub fn recent(&self) -> Vec<Seen> {
        self.inner.records.recent.list()
    }

    /// What the credentials are like now, in the order of the document.
    pub fn credentials(&self) -> Vec<CredentialState> {
        self.inner.credentials.state()
    }

    /// Carries a request and returns the answer as the cloud gave it, redirects and failures included.
    ///
    /// Guarantees: nothing is sent that no grant allows, to no address that its grant doesn't open, nothing after the
    /// soft deadline, nothing over a limit, and no change while the fence is closed. What a limit doesn't let through in
    /// time is answered 429 here, with a header `Pileus-Gate` that no answer of a cloud has. Dropping the future or the
    /// answer's body closes what was opened for it; only a change whose sending has begun is finished, for up to a
    /// minute, and later ones to the same resource wait for it. Each request is counted once. Needs a tokio runtime with time and I/O.
    pub fn send<B>(
        &self,
        request: http::Request<B>,
        deadlines: Deadlines,
    ) -> impl Future<Output = Result<http::Response<Body>, Error>> + use<'_, B>
    where
        B: http_body::Body<Data = Bytes>,
        B::Error: std::fmt::Display,
    {
        // Boxed, so that what waits for its turn doesn't hold a place for what it was made from.
        let request = Box::new(request);
        async move {
            let mut record = self.inner.records.begin(self.urgency);
            match self.pass(request, &deadlines, &mut record).await {
                Ok(Answerer::Cloud(Answered { head, incoming, bounds })) => {
                    record.answered(head.status, Source::Cloud);
                    let body = Answer::new(incoming, bounds, record).boxed_unsync();
                    Ok(http::Response::from_parts(head, body))
                }
                Ok(Answerer::Cache(response, source, result)) => {
                    record.told(response.status(), source, result);
                    Ok(whole(response))
                }
                Ok(Answerer::Nobody(error)) => Err(error),
                Ok(Answerer::StandIn(response)) => {
                    record.answered(response.status(), Source::StandIn);
                    Ok(whole(response))
                }
                Ok(Answerer::Limits(held_back)) => {
                    let response = held_back.into_response();
                    record.held_back(response.status());
                    Ok(whole(response))
                }
                Err(error) => {
                    record.failed(&error);
                    Err(error)
                }
            }
        }
    }

    /// The chain: what comes before anybody is asked, the cache, then what carries it; the caller finishes the record.
    async fn pass<B>(
        &self,
        request: Box<http::Request<B>>,
        deadlines: &Deadlines,
        record: &mut Record,
    ) -> Result<Answerer, Error>
    where
        B: http_body::Body<Data = Bytes>,
        B::Error: std::fmt::Display,
    {
        // Boxed, so that what waits for its turn doesn't hold a place for how it was examined.
        let asked = match Box::pin(self.examine(request, deadlines, record)).await? {
            Examined::Asks(asked) => asked,
            Examined::Answered(answerer) => return Ok(*answerer),
        };
        match &self.view {
            // Boxed, or whoever has no view would hold a place for it.
            Some(view) => Box::pin(self.inner.clone().read(view, asked, record)).await,
            None => self.inner.carry(asked, record, || {}).await,
        }
    }

    /// Canonical request, grant, rule, stand-in.
    async fn examine<B>(
        &self,
        request: Box<http::Request<B>>,
        deadlines: &Deadlines,
        record: &mut Record,
    ) -> Result<Examined, Error>
    where
        B: http_body::Body<Data = Bytes>,
        B::Error: std::fmt::Display,
    {
        let Inner { provider, rules, ways, under_way, .. } = &*self.inner;
        under_way.check()?;
        let (request, headers, body) = apart(request, record)?;
        let request = Arc::new(request);
        record.asks(&request);
        let way = decide(ways, &request).map_err(|missing| denied(provider, &request, missing))?;
        record.granted(&way.label);

        // Some APIs name the operation in the body. One that isn't granted is not worth the memory.
        let body = gather_until(deadlines.soft, body).await?;
        let meaning = rules.meaning(&request, &headers, &body);
        record.means(meaning.effect);
        // Before whoever stands in for the cloud, who isn't to see what the cloud wouldn't.
        if cache::is_for_it_alone(&headers) && (self.view.is_none() || meaning.effect != Effect::Read) {
            return Ok(Examined::Answered(Box::new(Told::nothing().into())));
        }
        match self.stand_in.as_ref().map(|stand_in| stand_in.decide(&request, &body, &meaning)) {
            None | Some(Course::Carry) => {}
            Some(Course::Answer(response)) => {
                return Ok(Examined::Answered(Box::new(Answerer::StandIn(response))));
            }
            Some(Course::Fail(error)) => return Err(error),
            Some(Course::Silence) => return Err(silence(&request.host, *deadlines).await),
        }
        let (way, urgency, deadlines) = (way.clone(), self.urgency, *deadlines);
        Ok(Examined::Asks(Box::new(Asked { way, request, headers, body, meaning, urgency, deadlines })))
    }
}

/// Takes a request apart, so that while it waits for its turn no more of it is kept than is sent.
#[expect(clippy::boxed_local, reason = "the box is to be gone when this returns")]
fn apart<B>(request: Box<http::Request<B>>, record: &mut Record) -> Result<(Request, HeaderMap, B), Error> {
    let (head, body) = (*request).into_parts();
    let request = Request::parse(&head.method, &head.uri)?;
    let (headers, stripped) = headers::edit_request(head.headers)?;
    record.stripped += stripped;
    Ok((request, headers, body))
}

fn denied(provider: &str, request: &Request, missing: Missing) -> Error {
    let (provider, method) = (provider.to_owned(), request.method.to_string());
    Error::Denied { provider, method, url: request.shown_url(), missing }
}

/// An answer that didn't come over a wire.
fn whole(response: http::Response<Bytes>) -> http::Response<Body> {
    response.map(|body| Full::new(body).map_err(|never| match never {}).boxed_unsync())
}

/// Waits for an answer that doesn't come.
async fn silence(host: &Host, deadlines: Deadlines) -> Error {
    let after = deadlines.clamp(deadlines.first_byte, Instant::now());
    sleep(after).await;
    Error::Timeout { phase: Phase::FirstByte, host: host.to_string(), after }
}

/// Gathers the body while new requests are still taken. A request whose body was late isn't sent.
async fn gather_until<B>(soft: Instant, body: B) -> Result<Bytes, Error>
where
    B: http_body::Body<Data = Bytes>,
    B::Error: std::fmt::Display,
{
    let body = timeout_at(soft, body::gather(body)).await.map_err(|_| Error::DeadlinePassed)??;
    // A body that was ready at once beats the timer.
    if Instant::now() >= soft { Err(Error::DeadlinePassed) } else { Ok(body) }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use http::StatusCode;

    use super::*;
    use crate::{fence::Fence, grants::Grant, rules::Meaning};

    #[tokio::test(start_paused = true)]
    async fn a_body_that_is_late_or_a_deadline_that_is_past_sends_nothing() {
        let soft = Instant::now() + Duration::from_secs(1);
        let never = http_body_util::StreamBody::new(futures::stream::pending::<
            Result<http_body::Frame<Bytes>, Error>,
        >());
        assert!(matches!(gather_until(soft, never).await, Err(Error::DeadlinePassed)));
        let ready = Full::new(Bytes::from("ready"));
        assert!(matches!(gather_until(Instant::now(), ready).await, Err(Error::DeadlinePassed)));
    }

    #[derive(Debug)]
    struct Everything(fn() -> Course);

    impl StandIn for Everything {
        fn decide(&self, request: &Request, _: &[u8], meaning: &Meaning) -> Course {
            assert_eq!((request.url().as_str(), meaning.effect), ("http://cloud.invalid/a", Effect::Write));
            (self.0)()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_stand_in_answers_in_the_clouds_place_and_only_what_was_granted() {
        let grant = Grant {
            tls: false,
            host: "cloud.invalid".parse().unwrap(),
            port: 80,
            methods: vec!["*".parse().unwrap()],
            paths: vec!["/a".parse().unwrap()],
            addresses: Vec::new(),
        };
        let config = || Config {
            provider: "test".to_owned(),
            grants: vec![grant.clone()],
            rules: Vec::new(),
            limits: Vec::new(),
            tightened: Vec::new(),
            credentials: Vec::new(),
            denied_ranges: Vec::new(),
            fence: Fence::default(),
            connection: Connection::default(),
        };
        let metrics = Metrics::register(&mut prometheus_client::registry::Registry::default());
        let send_with = async |control, course, path: &str| {
            let gate = Gate::new(config(), &metrics).unwrap().with_stand_in(Arc::new(Everything(course)));
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
        let send = async |course, path: &str| send_with("", course, path).await;
        let for_the_cache = send_with("only-if-cached", || Course::Silence, "/a").await.unwrap();
        assert_eq!(for_the_cache.status(), StatusCode::GATEWAY_TIMEOUT, "there is no view of the cache");
        let answer = send(|| Course::Answer(http::Response::new(Bytes::from("hello"))), "/a").await.unwrap();
        assert_eq!(answer.into_body().collect().await.unwrap().to_bytes(), "hello");
        let failed = send(|| Course::Fail(Error::DeadlinePassed), "/a").await;
        assert!(matches!(failed, Err(Error::DeadlinePassed)), "{failed:?}");
        let silent = send(|| Course::Silence, "/a").await;
        assert!(matches!(silent, Err(Error::Timeout { after, .. }) if after == Duration::from_secs(9)));
        let denied = send(|| Course::Carry, "/b").await;
        assert!(matches!(denied, Err(Error::Denied { .. })), "{denied:?}");
    }
}
